"""The page of a service in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import MISSING, Open, Shown, Told, chromium, opening, telling


@pytest.fixture(scope="session")
def browser() -> Iterator[Open]:
    pytest.importorskip("playwright", reason="pip install playwright, which tox -e web does")
    executable = chromium()
    if executable is None:
        pytest.skip(MISSING)
    with opening(executable) as open_page:
        yield open_page


@pytest.fixture
def open_page(browser: Open, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens pages. None of them may log an error, raise one, or try what its policy forbids."""
    if "told" in request.fixturenames:
        request.getfixturevalue("told")  # it ends after the pages that ask it
    opened: list[Shown] = []

    def open_it(url: str, **settings: Any) -> Shown:
        opened.append(browser(url, **settings))
        return opened[-1]

    yield open_it
    for shown in opened:
        shown.page.context.close()
    unexpected = [
        said
        for shown in opened
        for said in shown.complaints
        if not any(expected in said for expected in shown.forgiven)
    ]
    assert unexpected == []


@pytest.fixture
def told() -> Iterator[Told]:
    with telling() as told:
        yield told
