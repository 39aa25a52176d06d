"""Who may ask: headers that keep browsers strict, and a check that a page of another site commands nothing.

Nobody logs in to this service, so it listens on loopback. A page on the internet can still make a browser send requests
to loopback; such a request carries the name it was asked by, and says that it comes from another site.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem

__all__ = ["NOTHING", "Guards", "guarded"]

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The policy of an answer that loads nothing."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": NOTHING,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of each answer that does not set its own."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

MAX_BODY = 256 * 1024
"""Bytes of a command; the largest that the models allow is well below."""


def guarded(app: ASGIApp, names: Iterable[str] = ()) -> ASGIApp:
    """Return *app* behind the guards, answering to loopback and to *names*."""
    return TrustedHostMiddleware(Guards(app), allowed_hosts=[*LOOPBACK, *names], www_redirect=False)


class Guards:
    """Refuses commands of other sites and bodies that are too large, and adds the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        app = self._app
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            length = headers.get("content-length", "")
            if _is_foreign(headers):
                app = Problem(403, "foreign", "Another site asked", "commands come from this site alone").answer()
            elif headers.get("transfer-encoding") or not (length or "0").isdigit() or int(length or 0) > MAX_BODY:
                detail = f"send a Content-Length of at most {MAX_BODY} bytes"
                app = Problem(413, "too-large", "The body is too large", detail).answer()
        await app(scope, receive, send_guarded)


def _is_foreign(headers: Headers) -> bool:
    """Return whether a browser sent the request for a page of another site."""
    # Each browser of today sends the first; the second is for those that do not. Programs send neither.
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
