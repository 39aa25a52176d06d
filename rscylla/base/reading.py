"""The one reader of base tables: the pages of a query, each requested while the one before is processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from .._retry import Backoff, retry
from ..clock import Clock, Stop
from ..driver import Page, ReadSession, ReadStatement, translate

__all__ = ["ATTEMPTS", "BACKOFF", "pages"]

ATTEMPTS = 8
"""As for a page of a log, see ``Limits.attempts``: if a page fails, the caller reads all pages again."""

BACKOFF = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5))


def pages(
    session: ReadSession, statement: ReadStatement, values: Sequence[Any], *, doing: str, clock: Clock, stop: Stop
) -> Iterator[Page]:
    """Yield the pages of a query; a failed page is requested again, from the end of the one before. Blocks.

    Raises:
        ConnectionFailed, QueryTimeout: a page did not come after several attempts.
        QueryFailed: the cluster refused the query.
        Stopped: *stop* is set.
    """
    stop.check()
    ask = _asked(session, statement, values, None, doing)
    while True:
        page = retry(ask, attempts=ATTEMPTS, backoff=BACKOFF, clock=clock, stop=stop)
        if page.state is None:
            yield page
            return
        stop.check()
        ask = _asked(session, statement, values, page.state, doing)
        yield page


def _asked(
    session: ReadSession, statement: ReadStatement, values: Sequence[Any], state: bytes | None, doing: str
) -> Callable[[], Page]:
    """Request a page; return a function that waits for it, and requests it again if it is called again."""
    answers: SimpleQueue[Page | BaseException] = SimpleQueue()

    def send() -> bool:
        session.fetch(statement, values, state, on_page=answers.put, on_error=answers.put)
        return True

    sent = send()

    def page() -> Page:
        nonlocal sent
        sent = sent or send()
        got = answers.get()
        sent = False
        if isinstance(got, BaseException):
            raise translate(got, doing, grant="SELECT on the table") from got
        return got

    return page
