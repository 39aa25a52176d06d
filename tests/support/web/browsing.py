"""A page in headless Chromium, and services that show it documents."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from rscylla.clock import Stop, SystemClock
from rscylla.service.http import Endpoint, json_answer
from rscylla.service.page.page import page as page_of_service

__all__ = ["MISSING", "Open", "Shown", "Told", "chromium", "opening", "telling"]

PATIENCE_MS = 60_000

MISSING = 'Chromium is not installed; "apt-get install chromium" installs it, and so does "tox -e web" as root'

_WATCH = """
document.addEventListener("securitypolicyviolation",
    (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
"""


@attrs.define
class Shown:
    """A page in the browser, what it asked for, and what it complained of: errors, and what its policy forbids."""

    page: Any
    url: str
    complaints: list[str] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)
    forgiven: tuple[str, ...] = ()
    """Complaints with one of these texts are expected."""

    def load(self) -> None:
        """Load the page and wait until it shows a document."""
        self.page.goto(self.url)
        self.until("document.querySelector('#overview dd') !== null")

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait until *condition*, in JavaScript, holds; only a minute without it is a failure."""
        # Playwright's own wait_for_function evaluates text in the page, which the page's policy forbids.
        clock, never = SystemClock(), Stop()
        deadline = clock.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(condition, argument):
            assert clock.monotonic() < deadline, f"a minute passed without: {condition}"
            clock.wait(never, 0.02)


Open = Callable[..., Shown]


def chromium() -> str | None:
    """Return where Chromium is, None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def opening(executable: str) -> Iterator[Open]:
    """Start Chromium; yield a function that opens a URL in a context of its own, with settings of Playwright's."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's sandbox refuses to run as root.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=executable, args=sandbox)

        def open_page(url: str, **settings: Any) -> Shown:
            context = browser.new_context(**settings)
            context.add_init_script(_WATCH)
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            shown = Shown(page, url)
            page.on("console", lambda said: shown.complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: shown.complaints.append(str(error)))
            page.on("request", lambda request: shown.asked.append(request.url))
            return shown

        yield open_page
        browser.close()


@attrs.define
class Told:
    """A service that shows the ``document`` that it is told to."""

    document: dict[str, Any] = attrs.field(factory=dict)
    url: str = ""
    asked: int = 0

    def status(self, headers: Any) -> Any:
        self.asked += 1
        return json_answer(200, self.document)


@contextmanager
def telling(port: int = 0) -> Iterator[Told]:
    """Serve the page, and a document."""
    told = Told()
    endpoint = Endpoint({"/": page_of_service, "/status": told.status}, "127.0.0.1", port)
    endpoint.start()
    told.url = "http://{}:{}/".format(*endpoint.address)
    try:
        yield told
    finally:
        endpoint.close()
