"""One side of a comparison: what is read of a table, and what of it is compared."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from fakelog import body_of

from rscylla.base.reading import ATTEMPTS
from rscylla.cdc.log.table import BaseColumn, Table
from rscylla.cdc.rows import Cells
from rscylla.clock import Stop
from rscylla.driver.pages import Column, Page
from rscylla.driver.session import ReadSession
from rscylla.errors import QueryTimeout, Stopped
from rscylla.replicate.side import ComparedRow, Side
from rscylla.testing import ManualClock
from rscylla.types import Type

TABLE = Table(
    "shop",
    "t",
    (
        BaseColumn("pk", "partition_key", 0, "int"),
        BaseColumn("ck", "clustering", 0, "int"),
        BaseColumn("s", "static", -1, "set<int>"),
        BaseColumn("v", "regular", -1, "int"),
    ),
)
CELLS = "pk, ck, s, v, writetime(v), ttl(v)"
SCAN = f"SELECT token(pk), {CELLS} FROM shop.t WHERE token(pk) > ? AND token(pk) <= ?"
ROW = f"SELECT {CELLS} FROM shop.t WHERE pk = ? AND ck = ?"
PARTITION = f"SELECT {CELLS} FROM shop.t WHERE pk = ?"


def page(rows: Iterable[Cells], state: bytes | None = None) -> Page:
    rows = list(rows)
    width = len(rows[0]) if rows else 6
    return Page(tuple(Column(str(n), Type("blob")) for n in range(width)), body_of(rows), 0, state)


class Log(ReadSession):
    """Statements are their text and page size; the pages are given, and so is how often a read fails before."""

    def __init__(self, *pages: Page, failures: int = 0) -> None:
        self.pages = list(pages)
        self.failures = failures
        self.asked: list[Any] = []

    def prepare(self, cql: str, *, page_size: int, doing: str) -> Any:
        assert doing == "comparing shop.t"
        return cql, page_size

    def fetch(
        self, statement: Any, values: Sequence[Any], state: bytes | None, *, on_page: Callable[[Page], None], **_: Any
    ) -> None:
        self.asked.append((statement, tuple(values)))
        on_page(self.pages.pop(0))

    def read(self, statement: Any, raw: Sequence[bytes], *, doing: str, state: bytes | None = None) -> Page:
        self.asked.append((statement[0], tuple(raw)))
        if self.failures:
            self.failures -= 1
            raise QueryTimeout(f"{doing}: no answer")
        return self.pages.pop(0)


def side(log: Log, *, clock: ManualClock | None = None, stop: Stop | None = None) -> Side:
    return Side(log, TABLE, 500, clock or ManualClock(), stop or Stop())


def token(value: int) -> bytes:
    return struct.pack(">q", value)


def groups(log: Log) -> list[tuple[int, list[ComparedRow]]]:
    return [(at, list(rows)) for at, rows in side(log).groups(-7, 9)]


def test_rows_come_in_groups_of_a_token_across_pages() -> None:
    log = Log(
        page(
            [(token(-5), b"a", b"1", None, b"v1", b"t1", None), (token(-5), b"b", b"1", None, b"v2", b"t2", None)], b"2"
        ),
        page([(token(-5), b"b", b"2", b"s", b"v3", b"t3", None), (token(3), b"c", b"1", None, None, None, None)]),
    )
    assert groups(log) == [
        (
            -5,
            [
                ((b"a", b"1"), (None, b"v1", b"t1", None)),
                ((b"b", b"1"), (None, b"v2", b"t2", None)),
                ((b"b", b"2"), (b"s", b"v3", b"t3", None)),
            ],
        ),
        (3, [((b"c", b"1"), (None, None, None, None))]),
    ]
    assert log.asked == [((SCAN, 500), (-7, 9))] * 2


def test_of_a_ttl_only_its_presence_is_compared() -> None:
    log = Log(
        page([(token(1), b"a", n, None, b"v", b"t", ttl) for n, ttl in ((b"1", b"9"), (b"2", b"8"), (b"3", None))])
    )
    [(_, rows)] = groups(log)
    assert [cells[-1] for _, cells in rows] == [b"", b"", None]
    log = Log(page([(b"a", b"1", None, b"v", b"t", b"9")]))
    assert side(log).row((b"a", b"1")) == (None, b"v", b"t", b"")


def test_a_row_is_read_by_its_whole_key() -> None:
    log = Log(page([(b"a", b"1", b"s", b"v", b"t", None)]), page([]))
    read = side(log)
    assert read.row((b"a", b"1")) == (b"s", b"v", b"t", None)
    assert read.row((b"a", b"2")) is None
    assert log.asked == [(ROW, (b"a", b"1")), (ROW, (b"a", b"2"))]
    assert read.columns == ("s", "v", "v", "v")


def test_a_partition_without_rows_is_read_by_its_partition_key() -> None:
    log = Log(page([(b"a", None, b"s", None, None, None)]), page([(b"a", b"1", b"s", b"v", b"t", None)]))
    read = side(log)
    assert read.row((b"a", None)) == (b"s", None, None, None)
    assert read.row((b"a", None)) is None, "it has rows now"
    assert log.asked == [(PARTITION, (b"a",))] * 2


def test_a_row_that_does_not_come_is_asked_for_again() -> None:
    clock, log = ManualClock(), Log(page([]), failures=ATTEMPTS - 1)
    assert side(log, clock=clock).row((b"a", b"1")) is None
    assert len(log.asked) == ATTEMPTS
    assert len(clock.waits) == ATTEMPTS - 1
    with pytest.raises(QueryTimeout, match=r"^comparing shop.t"):
        side(Log(failures=ATTEMPTS)).row((b"a", b"1"))


def test_a_stop_ends_the_reading_of_rows() -> None:
    stop, clock, log = Stop(), ManualClock(), Log(failures=2)
    clock.on_wait = lambda _: stop.set()
    with pytest.raises(Stopped):
        side(log, clock=clock, stop=stop).row((b"a", b"1"))
    with pytest.raises(Stopped):
        side(log, stop=stop).row((b"a", b"1"))
    assert len(log.asked) == 1


def test_the_lag_is_waited_for_on_the_clock_until_a_stop() -> None:
    stop, clock = Stop(), ManualClock()
    waiting = side(Log(), clock=clock, stop=stop)
    waiting.wait(timedelta(minutes=1, milliseconds=500))
    assert clock.waits == [60.5]
    stop.set()
    with pytest.raises(Stopped):
        waiting.wait(timedelta(minutes=1))
