"""Compares a table with its copy: row by row in token order, and cells with their write times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import zip_longest
from typing import Any

import attrs

from .._tokens import TokenRange
from ..cdc.log import read_base_table
from ..cdc.rows import Cells
from ..clock import Clock, Stop, SystemClock
from ..driver import ReadSession, Session, consistency_named
from ..errors import ConfigError, TableNotFound
from ..types import decoder_for, quote_name
from .schema import check_target
from .side import ComparedRow, Group, Key, Side

__all__ = ["Difference", "Verdict", "verify"]

_MOST_DOUBTS = 1000
"""How many rows that differ are kept until they are read again."""

_MOST_WAITING = 10_000
"""How many rows of one side wait for rows of the other before they count as different."""


@attrs.frozen
class Difference:
    """A row that differs between the two tables.

    ``kind``: ``missing`` in the target, ``extra`` in the target, or ``different``; ``columns`` then names the columns
    whose value, write time, or presence of a TTL differs. ``key`` is the primary key, typed; without a clustering key,
    the difference is in a partition that has only static columns.
    """

    kind: str
    key: Mapping[str, Any] = attrs.field(repr=False)
    columns: tuple[str, ...] = ()


@attrs.frozen
class Verdict:
    """The result of a comparison. ``rows`` is the number of source rows compared.

    ``differences`` are those that remained when the rows were read again; ``more``: the comparison ended early, because
    there were too many. ``unsettled`` rows could not be judged: wherever the two tables differ, the source had changed
    within the lag at each attempt.
    """

    rows: int
    differences: tuple[Difference, ...]
    more: bool = False
    unsettled: int = 0

    @property
    def same(self) -> bool:
        """Whether no difference was found."""
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
    """Compare a table with its copy, even while both are written to.

    Rows are compared by the columns of the source: values byte by byte and, for columns that are written as a whole,
    the write time and whether they expire; the time of expiry may differ. A row that differs is read again after *lag*,
    up to *looks* times, because the change may still be on its way. It counts as a difference if it still differs and
    has not changed at the source within the last *lag*. Memory is bounded, whatever the size of the table and its
    partitions: a page of each table for each of *workers*, and the keys of some thousand differing rows.

    Args:
        lag: at least the time that a change takes to arrive, including the lag of the replicator.
        limit: the maximum number of differing rows to report; with more, the comparison ends early.
        ranges: the number of token ranges.
        on_progress: called with the number of finished ranges, and their total; by this thread.

    Raises:
        TableNotFound, CannotReplicate: the tables cannot be compared.
        Stopped: *stop* was set.
        ConnectionFailed, QueryTimeout, QueryFailed: one of the clusters did not answer.
    """
    if min(limit, looks, ranges, workers, page_size) < 1:
        raise ConfigError("limit, looks, ranges, workers and page_size must be 1 or more")
    level = consistency_named(consistency)
    ours, theirs = ReadSession(source, consistency=level), ReadSession(target, consistency=level)
    table_here = read_base_table(ours, keyspace, table)
    if table_here is None:
        raise TableNotFound(f"there is no table {quote_name(keyspace)}.{quote_name(table)}; check the name")
    names = (to_keyspace, to_table or table)
    table_there = check_target(table_here, read_base_table(theirs, *names), names=names)
    clock = clock or SystemClock()
    over = Stop()  # also set after an error, which leaves the caller's signal as it is
    forget = (stop or Stop()).on_set(over.set)
    here = Side(ours, table_here, page_size, clock, over)
    # With the columns of the source, here too: others of the target are not compared.
    copy = attrs.evolve(table_here, keyspace=table_there.keyspace, name=table_there.name)
    there = Side(theirs, copy, page_size, clock, over)
    search = _Search(here, there, looks=looks, limit=limit, lag=lag)
    try:
        with ThreadPoolExecutor(workers, "rscylla-verify") as pool:
            parts = [pool.submit(search.compare, part.low, part.high) for part in TokenRange().split(ranges)]
            try:
                _follow(search, parts, on_progress)
            finally:
                # An error, or enough differences: the rest need not be read.
                if not all(part.done() for part in parts):
                    over.set()
                for part in parts:
                    part.cancel()
        if not search.enough:
            search.look_again()
    finally:
        forget()
    return search.verdict()


def _follow(search: _Search, parts: list[Future[None]], on_progress: Callable[[int, int], None] | None) -> None:
    """Wait for *parts*, or until enough was found."""
    for done, part in enumerate(parts, 1):
        part.result()
        if on_progress is not None:
            on_progress(done, len(parts))
        if search.enough:
            return


# ---------------------------------------------------------------- comparing


class _Search:
    """The results so far. ``compare`` is thread-safe."""

    def __init__(self, here: Side, there: Side, *, looks: int, limit: int, lag: timedelta) -> None:
        self._here = here
        self._there = there
        self._looks = looks
        self._limit = limit
        self._lag = lag
        self._lock = threading.Lock()
        self._doubts: dict[Key, None] = {}
        self._rows = 0
        self._unsettled = 0
        self._found: list[Difference] = []

    @property
    def enough(self) -> bool:
        """Whether there are more differences than are asked for."""
        return len(self._found) > self._limit

    def verdict(self) -> Verdict:
        return Verdict(self._rows, tuple(self._found[: self._limit]), more=self.enough, unsettled=self._unsettled)

    def compare(self, low: int, high: int) -> None:
        """Compare the rows of a range of tokens. Ends early if enough was found."""
        for key in _differing(self._counted(self._here.groups(low, high)), self._there.groups(low, high)):
            with self._lock:
                self._doubts[key] = None
                full = len(self._doubts) >= _MOST_DOUBTS
            if full:
                self.look_again()
            if self.enough:
                return

    def _counted(self, groups: Iterable[Group]) -> Iterator[Group]:
        for token, rows in groups:
            yield token, self._counted_rows(rows)

    def _counted_rows(self, rows: Iterable[ComparedRow]) -> Iterator[ComparedRow]:
        # One lock for a group of rows, not one for each row.
        count = 0
        try:
            for row in rows:
                count += 1
                yield row
        finally:
            with self._lock:
                self._rows += count

    def look_again(self) -> None:
        """Read the rows in doubt again after the lag, and record those that still differ."""
        with self._lock:
            doubts, self._doubts = list(self._doubts), {}
        found: list[Difference] = []
        unsettled = 0
        # Read now, so that the next read shows whether the source has changed in between.
        before = {key: _digest(self._here.row(key)) for key in doubts}
        for _ in range(self._looks):
            if not before:
                break
            self._here.wait(self._lag)
            found, unsettled = [], 0
            for key, digest in list(before.items()):
                one, other = self._here.row(key), self._there.row(key)
                if one == other:
                    del before[key]
                    continue
                difference = self._difference(key, one, other, digest)
                found += [difference] if difference is not None else []
                unsettled += difference is None
                before[key] = _digest(one)
        with self._lock:
            self._found += found
            self._unsettled += unsettled

    def _difference(self, key: Key, one: Cells | None, other: Cells | None, before: _Digest) -> Difference | None:
        """Return how the rows differ; None if the source has changed every differing cell since *before*."""
        now = _digest(one)
        typed = {
            column.name: decoder_for(column.type)(cell)
            for column, cell in zip(self._here.table.key, key, strict=True)
            if cell is not None
        }
        if one is None or other is None:
            if (before is None) != (now is None):
                return None
            return Difference("extra" if one is None else "missing", typed)
        if before is None or now is None:
            return None
        names = self._here.columns  # a column has several cells: value, time, TTL
        changed = {name for name, earlier, later in zip(names, before, now, strict=True) if earlier != later}
        differing = dict.fromkeys(name for name, a, b in zip(names, one, other, strict=True) if a != b)
        columns = tuple(name for name in differing if name not in changed)
        return Difference("different", typed, columns) if columns else None


_Digest = tuple[int, ...] | None
"""The hashes of a row's cells, which show changes with much less memory than the cells."""


def _digest(row: Cells | None) -> _Digest:
    return None if row is None else tuple(map(hash, row))


def _differing(ours: Iterable[Group], theirs: Iterable[Group]) -> Iterator[Key]:
    """Yield the keys of rows that are not the same on both sides, whose tokens rise."""
    others = iter(theirs)
    other = next(others, None)
    for token, rows in ours:
        while other is not None and other[0] < token:
            yield from (key for key, _ in other[1])
            other = next(others, None)
        if other is not None and other[0] == token:
            yield from _aligned(rows, other[1])
            other = next(others, None)
        else:
            yield from (key for key, _ in rows)
    while other is not None:
        yield from (key for key, _ in other[1])
        other = next(others, None)


def _aligned(ours: Iterable[ComparedRow], theirs: Iterable[ComparedRow]) -> Iterator[Key]:
    """Yield the keys of rows that are not the same on both sides, which have the same order.

    So what comes before two rows with one key, and has met none with its own, has none. Were the order another, keys
    would be yielded that do not differ, which shows when their rows are read again.
    """
    waiting: tuple[dict[Key, Cells], dict[Key, Cells]] = ({}, {})
    for pair in zip_longest(ours, theirs):
        for row, mine, others in zip(pair, waiting, reversed(waiting), strict=True):
            if row is None:
                continue
            key, cells = row
            if key not in others:
                mine[key] = cells
                continue
            yield from mine
            mine.clear()
            for earlier in list(others):
                if others.pop(earlier) != cells or earlier != key:
                    yield earlier
                if earlier == key:
                    break
        if sum(map(len, waiting)) > _MOST_WAITING:
            for side in waiting:
                yield from side
                side.clear()
    for side in waiting:
        yield from side
