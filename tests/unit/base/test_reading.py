"""The reader of base tables: pages in their order, each asked for ahead, and again where it did not come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut

import rscylla
from rscylla.base.reading import ATTEMPTS, pages
from rscylla.driver.pages import Page
from rscylla.testing import ManualClock


class Session:
    """Returns pages 0, 1, and 2 of a query, whose states are their numbers, after raising *failures*."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked: list[bytes | None] = []

    def fetch(
        self, statement: Any, values: Any, state: bytes | None, *, on_page: Callable[[Page], None], on_error: Any
    ) -> None:
        assert (statement, values) == ("statement", (1, 2))
        self.asked.append(state)
        if self.failures and state == b"1":
            on_error(self.failures.pop())
            return
        number = 0 if state is None else int(state)
        on_page(Page((), b"%d" % number, 0, b"%d" % (number + 1) if number < 2 else None))


def read(session: Session, stop: rscylla.Stop | None = None, clock: ManualClock | None = None) -> Any:
    return pages(
        session,  # type: ignore[arg-type]
        "statement",  # type: ignore[arg-type]
        (1, 2),
        doing="reading shop.t",
        clock=clock or ManualClock(),
        stop=stop or rscylla.Stop(),
    )


def test_pages_come_in_order_and_the_next_one_is_asked_for_before_a_page_is_worked_on() -> None:
    session = Session()
    asked = [(page.body, list(session.asked)) for page in read(session)]
    assert asked == [(b"0", [None, b"1"]), (b"1", [None, b"1", b"2"]), (b"2", [None, b"1", b"2"])]


def test_a_page_that_does_not_come_is_asked_for_again_from_the_same_place() -> None:
    session, clock = Session(*[OperationTimedOut()] * (ATTEMPTS - 1)), ManualClock()
    assert [page.body for page in read(session, clock=clock)] == [b"0", b"1", b"2"]
    assert session.asked == [None, *[b"1"] * ATTEMPTS, b"2"]
    assert len(clock.waits) == ATTEMPTS - 1, "it is given time in between"
    assert clock.waits[-1] > clock.waits[0] > 0


def test_a_page_that_never_comes_is_an_error_in_our_terms() -> None:
    session = Session(*[OperationTimedOut()] * ATTEMPTS)
    with pytest.raises(rscylla.QueryTimeout, match=r"^reading shop.t") as caught:
        list(read(session))
    assert isinstance(caught.value.__cause__, OperationTimedOut)
    assert session.asked == [None, *[b"1"] * ATTEMPTS]


def test_what_is_refused_is_not_asked_again() -> None:
    session = Session(InvalidRequest("no such column"))
    with pytest.raises(rscylla.errors.QueryFailed, match="no such column"):
        list(read(session))
    assert session.asked == [None, b"1"]


def test_a_stop_ends_the_reading_before_the_next_page_is_asked_for() -> None:
    stop = rscylla.Stop()
    session = Session()
    found = read(session, stop)
    next(found)
    stop.set()
    with pytest.raises(rscylla.Stopped):
        list(found)
    assert session.asked == [None, b"1"]


def test_a_stop_that_is_set_before_asks_for_nothing() -> None:
    stop, session = rscylla.Stop(), Session()
    stop.set()
    with pytest.raises(rscylla.Stopped):
        list(read(session, stop))
    assert session.asked == []


def test_a_stop_ends_the_pause_before_another_attempt() -> None:
    stop, clock, session = rscylla.Stop(), ManualClock(), Session(OperationTimedOut())
    clock.on_wait = lambda _: stop.set()
    with pytest.raises(rscylla.Stopped):
        list(read(session, stop, clock))
    assert session.asked == [None, b"1"]
