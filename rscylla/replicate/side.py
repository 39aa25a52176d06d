"""``Side``: reads one of two tables that are compared, all rows in token order or single rows."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import groupby

from .._retry import retry
from ..base import ATTEMPTS, BACKOFF, pages, select_by_key, select_range, token_of, with_times
from ..cdc.log import Table
from ..cdc.rows import Cells
from ..clock import Clock, Stop
from ..driver import ReadSession, ReadStatement

__all__ = ["ComparedRow", "Group", "Key", "Side"]

_TOKEN = struct.Struct(">q")

Key = Cells
"""The cells of a primary key; None for columns that it lacks."""

ComparedRow = tuple[Key, Cells]
"""The key of a row, and its cells that are compared."""

Group = tuple[int, Iterator[ComparedRow]]
"""A token and its rows, which must be consumed before the next group."""


class Side:
    """One of the two tables. Rows are the cells of its key, then those that are compared."""

    def __init__(self, session: ReadSession, table: Table, page_size: int, clock: Clock, stop: Stop) -> None:
        self._session = session
        self.table = table
        self._clock = clock
        self.stop = stop
        self._doing = f"comparing {table.full_name}"
        self.key_size = len(table.key)
        selected = list(with_times(table.columns))  # those of the key first
        compared = selected[self.key_size :]
        self.columns = tuple(c.column.name for c in compared)
        self._ttls = {i for i, c in enumerate(compared) if c.what == "ttl"}
        cells = [c.cql for c in selected]
        self._scan = self._prepare(select_range(table, [token_of(table), *cells]), page_size)
        self._row = self._prepare(select_by_key(table, cells, table.key), page_size)
        # A partition with only static columns is returned as a row whose clustering key is null.
        self._partition = self._prepare(select_by_key(table, cells, table.partition_key), 1)

    def _prepare(self, cql: str, page_size: int) -> ReadStatement:
        return self._session.prepare(cql, page_size=page_size, doing=self._doing)

    def groups(self, low: int, high: int) -> Iterator[Group]:
        """Yield the tokens in ``(low, high]`` that have rows, and these, in the order of the table; tokens rise."""
        found = pages(self._session, self._scan, (low, high), doing=self._doing, clock=self._clock, stop=self.stop)
        rows = (row for page in found for row in page.cells(self.table.full_name))
        for token, group in groupby(rows, key=lambda row: row[0]):
            assert token is not None
            yield _TOKEN.unpack(token)[0], ((row[1 : 1 + self.key_size], self._compared(row, 1)) for row in group)

    def row(self, key: Key) -> Cells | None:
        """Return the current row of *key*; None if there is none."""
        # A key without a clustering key identifies the static columns of its partition.
        bound = [cell for cell in key if cell is not None]
        whole = len(bound) == self.key_size
        read = partial(self._session.read, self._row if whole else self._partition, bound, doing=self._doing)
        self.stop.check()
        page = retry(read, attempts=ATTEMPTS, backoff=BACKOFF, clock=self._clock, stop=self.stop)
        rows = [row for row in page.cells(self.table.full_name) if row[: self.key_size] == key]
        return self._compared(rows[0], 0) if rows else None

    def _compared(self, row: Cells, at: int) -> Cells:
        """Return the cells to compare. A TTL counts down, so only its presence is compared."""
        cells = row[at + self.key_size :]
        return tuple([b"" if i in self._ttls and cell is not None else cell for i, cell in enumerate(cells)])

    def wait(self, lag: timedelta) -> None:
        self._clock.wait(self.stop, lag.total_seconds())
        self.stop.check()
