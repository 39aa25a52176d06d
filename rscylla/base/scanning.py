"""Rows of base tables as Python values, by token range."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ..cdc.log import Table, read_base_table
from ..clock import Clock, Stop, SystemClock
from ..driver import ReadSession, Session, consistency_named
from ..errors import ConfigError, MalformedData, TableNotFound
from ..types import Decoder, Type, decoder_for, quote_name
from .queries import select_range, token_of
from .reading import pages

__all__ = ["TableScan"]


class TableScan:
    """Reads *columns* of all rows of a table. Thread-safe; the caller keeps the session. Blocks.

    Args:
        columns: names of columns, in the order in which their values are returned.
        consistency: level of the reads, by name.
        page_size: how many rows a page has, at most.
    """

    def __init__(
        self,
        session: Session,
        keyspace: str,
        table: str,
        columns: Sequence[str],
        *,
        consistency: str,
        page_size: int = 1000,
        clock: Clock | None = None,
    ) -> None:
        self._read = ReadSession(session, consistency=consistency_named(consistency))
        self._keyspace = keyspace
        self._name = table
        self._columns = tuple(columns)
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._known: tuple[Table, list[tuple[str, Decoder]]] | None = None

    def pages(self, low: int, high: int, *, stop: Stop) -> Iterator[list[tuple[int, tuple[Any, ...]]]]:
        """Yield the rows of pages, each with its token, in the order of the table; tokens are in ``(low, high]``.

        ``rscylla.types`` says how values are represented. A failed page is requested again a few times.

        Raises:
            TableNotFound: there is no such table.
            ConfigError: it lacks a column.
            ConnectionFailed, QueryTimeout: a page did not come after several attempts.
            MalformedData: a cell has bytes that are not of its type.
            Stopped: *stop* is set.
        """
        table, decoders = self._table()
        doing = f"reading the rows of {table.full_name}"
        text = select_range(table, [token_of(table), *(quote_name(name) for name, _ in decoders[1:])])
        session = self._read.until(stop)
        statement = session.prepare_once(text, page_size=self._page_size, doing=doing)
        for page in pages(session, statement, (low, high), doing=doing, clock=self._clock, stop=stop):
            found: list[tuple[int, tuple[Any, ...]]] = []
            for cells in page.cells(table.full_name):
                token, *values = [
                    None if cell is None else _decoded(cell, decode, table, name)
                    for cell, (name, decode) in zip(cells, decoders, strict=True)
                ]
                assert token is not None
                found.append((token, tuple(values)))
            yield found

    def _table(self) -> tuple[Table, list[tuple[str, Decoder]]]:
        with self._lock:
            if self._known is None:
                table = read_base_table(self._read, self._keyspace, self._name)
                if table is None:
                    raise TableNotFound(
                        f"there is no table {quote_name(self._keyspace)}.{quote_name(self._name)}; check the name"
                    )
                types = {column.name: column.type for column in table.columns}
                if lacking := [name for name in self._columns if name not in types]:
                    raise ConfigError(f"table {table.full_name} lacks the columns {', '.join(lacking)}")
                decoders = [("", decoder_for(Type("bigint")))]
                decoders += [(name, decoder_for(types[name])) for name in self._columns]
                self._known = table, decoders
            return self._known


def _decoded(cell: bytes, decode: Decoder, table: Table, name: str) -> Any:
    try:
        return decode(cell)
    except Exception as e:
        raise MalformedData.of_cell(table.full_name, name, is_log=False) from e
