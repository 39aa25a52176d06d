"""Comparing a table with its copy: row by row in the order of tokens, cells with their write times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from typing import Any

import attrs

from ..cdc.driver import LogSession, Session, consistency_named
from ..cdc.query import quote_name
from ..cdc.rows import Cells, decoder_for
from ..clock import Clock, Stop, SystemClock
from ..errors import ConfigError, TableNotFound
from .schema import check_target, read_columns
from .side import Key, Side

__all__ = ["Difference", "Verdict", "verify"]

_LEAST, _MOST = -(2**63), 2**63 - 1


@attrs.frozen
class Difference:
    """A row that is not the same on both sides.

    ``kind``: ``missing`` in the target, ``extra`` in it, or ``different``; then ``columns`` names what differs, a
    column's value, write time, or whether it has a TTL. ``key`` is the primary key, typed; without a clustering key
    it is of a partition that has static columns only.
    """

    kind: str
    key: Mapping[str, Any] = attrs.field(repr=False)
    columns: tuple[str, ...] = ()


@attrs.frozen
class Verdict:
    """What a comparison found. ``rows`` of the source were compared.

    ``differences`` are those that stayed after they were looked at again; ``more``: there were too many to go on.
    """

    rows: int
    differences: tuple[Difference, ...]
    more: bool = False

    @property
    def same(self) -> bool:
        """Whether the copy is right."""
        return not self.differences


def verify(
    source: Session,
    target: Session,
    keyspace: str,
    table: str,
    to_keyspace: str,
    to_table: str | None = None,
    *,
    lag: timedelta,
    limit: int = 100,
    looks: int = 3,
    ranges: int = 64,
    workers: int = 4,
    page_size: int = 1000,
    consistency: str = "QUORUM",
    stop: Stop | None = None,
    clock: Clock | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Compare a table with its copy, while both may be written to.

    Rows are compared by the columns of the source: values byte by byte, and of those that are written as a whole also
    the write time and whether they expire; when they expire may differ. What differs is read again after *lag*, up
    to *looks* times, because the change may have been on its way. Each of *workers* holds the rows of one token of each
    side in memory.

    Args:
        lag: at least what a change takes to arrive, the lag of the replicator included.
        limit: how many differing rows to tell of; with more than ten times as many the comparison ends early.
        ranges: how many parts the ring is read in.
        on_progress: called with the ranges done, and their number; by this thread.

    Raises:
        TableNotFound, CannotReplicate: the tables cannot be compared.
        Stopped: *stop* was set.
        ConnectionFailed, QueryTimeout, QueryFailed: one of the clusters did not answer.
    """
    if min(limit, looks, ranges, workers, page_size) < 1:
        raise ConfigError("limit, looks, ranges, workers and page_size must be 1 or more")
    level = consistency_named(consistency)
    ours, theirs = LogSession(source, consistency=level), LogSession(target, consistency=level)
    table_here = read_columns(ours, keyspace, table)
    if table_here is None:
        raise TableNotFound(f"there is no table {quote_name(keyspace)}.{quote_name(table)}; check the name")
    names = (to_keyspace, to_table or table)
    table_there = check_target(table_here, read_columns(theirs, *names), names=names)
    clock = clock or SystemClock()
    stop = stop or Stop()
    here = Side(ours, table_here, table_here.full_name, page_size, clock, stop)
    there = Side(theirs, table_here, table_there.full_name, page_size, clock, stop)
    doubts: set[Key] = set()
    rows = 0
    with ThreadPoolExecutor(workers, "rscylla-verify") as pool:
        parts = [pool.submit(_compare, here, there, low, high) for low, high in _ring(ranges)]
        try:
            for done, part in enumerate(parts, 1):
                count, differing = part.result()
                rows += count
                doubts |= differing
                if on_progress is not None:
                    on_progress(done, len(parts))
                if len(doubts) > 10 * limit:
                    break
        finally:
            for part in parts:
                part.cancel()
    more = len(doubts) > 10 * limit
    found = _look_again(here, there, sorted(doubts, key=_sortable)[: 10 * limit], looks, lag)
    return Verdict(rows, tuple(found[:limit]), more=more or len(found) > limit)


def _ring(parts: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of tokens, the lower one excluded, that cover the ring. No key has the least token."""
    edges = [_LEAST + (_MOST - _LEAST) * n // parts for n in range(parts)] + [_MOST]
    return pairwise(edges)


def _sortable(key: Key) -> tuple[bytes, ...]:
    return tuple(cell or b"" for cell in key)


# ---------------------------------------------------------------- comparing


def _compare(here: Side, there: Side, low: int, high: int) -> tuple[int, set[Key]]:
    """Return how many rows the source has in a range of tokens, and the keys of those that differ."""
    count = 0
    doubts: set[Key] = set()
    others = there.groups(low, high)
    other = next(others, None)
    for token, rows in here.groups(low, high):
        while other is not None and other[0] < token:
            doubts.update(other[1])
            other = next(others, None)
        copied: dict[Key, Cells] = {}
        if other is not None and other[0] == token:
            copied = other[1]
            other = next(others, None)
        count += len(rows)
        doubts.update(key for key in rows.keys() | copied.keys() if rows.get(key) != copied.get(key))
    while other is not None:
        doubts.update(other[1])
        other = next(others, None)
    return count, doubts


def _look_again(here: Side, there: Side, doubts: Sequence[Key], looks: int, lag: timedelta) -> list[Difference]:
    """Return which of *doubts* still differ after some time."""
    found: list[Difference] = []
    for _ in range(looks):
        if not doubts:
            return []
        here.wait(lag)
        found, left = [], []
        for key in doubts:
            difference = _difference(here, there, key)
            if difference is not None:
                found.append(difference)
                left.append(key)
        doubts = left
    return found


def _difference(here: Side, there: Side, key: Key) -> Difference | None:
    one, other = here.row(key), there.row(key)
    if one == other:
        return None
    typed = {
        column.name: decoder_for(column.type)(cell)
        for column, cell in zip(here.table.key, key, strict=True)
        if cell is not None
    }
    if one is None or other is None:
        return Difference("extra" if one is None else "missing", typed)
    names = (name for name, a, b in zip(here.columns, one, other, strict=True) if a != b)
    return Difference("different", typed, tuple(dict.fromkeys(names)))
