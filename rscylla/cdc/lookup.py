"""Looks up the current row of the base table for an event or a foreign id."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from .._integers import parse_int
from .._retry import Backoff, retry
from ..clock import Clock, Stop
from ..driver import Page, ReadSession, ReadStatement
from ..errors import ConfigError, IncompleteKey, MalformedData, QueryFailed
from ..event import Event
from ..types import Decoder, Encoder, Type, decoder_for, encoder_for, native, quote_name
from .log import BaseColumn, LoggedTable, read_table
from .rows import ChangeEvent

__all__ = ["BaseRows"]

T = TypeVar("T")

ATTEMPTS = 5
"""Attempts of a query; the pauses between them add up to at most 1.5 s."""

_BACKOFF = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))


@attrs.frozen(eq=False)
class _Prepared:
    """A prepared read of one row, with the names and encoders of its key columns in the order of the values."""

    statement: ReadStatement
    names: tuple[str, ...]
    encoders: tuple[Encoder, ...]


class BaseRows:
    """Reads rows of a base table by key. Thread-safe. Each statement is prepared once, on first use."""

    def __init__(self, session: ReadSession, keyspace: str, table: str, clock: Clock) -> None:
        self._session = session
        self._keyspace = keyspace
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._by_key: _Prepared | None = None
        self._static: _Prepared | None = None
        self._decoders: tuple[Any, list[tuple[str, Decoder]]] | None = None

    def get(self, of: Event | str) -> dict[str, Any] | None:
        """Return the row by column, with null as None; None if the row does not exist. See ``Stream.lookup``."""
        if isinstance(of, ChangeEvent):
            if of.table != (self._keyspace, self._table):
                raise ConfigError(f"the event is of {of.table[0]}.{of.table[1]}, not of {self._name}")
            if of.change.static:
                return self._read(self._prepared_static(), list(of.raw_partition_key().values()))
            key = of.raw_key()
            if key is None:
                raise IncompleteKey(
                    f"the event ({of.operation.name}) does not identify a single row of {self._name}; look up rows "
                    "by events with a whole primary key"
                )
            return self._read(self._prepared(), list(key.values()))  # by position: a column may have been renamed since
        text = of if isinstance(of, str) else of.foreign_id
        prepared = self._prepared()
        key_of = self._key_of(prepared, text)
        return self._read(prepared, [key_of[n] for n in prepared.names])

    @property
    def _name(self) -> str:
        return f"{quote_name(self._keyspace)}.{quote_name(self._table)}"

    # ------------------------------------------------------------ keys

    def _key_of(self, prepared: _Prepared, foreign_id: str) -> dict[str, bytes]:
        """Return the serialized key of a foreign id. Errors name the column and never contain values."""
        try:
            fields = json.loads(foreign_id, parse_int=parse_int)
        except (ValueError, RecursionError) as e:
            raise ConfigError("the text is not a foreign id; pass the JSON of Event.foreign_id") from e
        if not isinstance(fields, dict):
            raise ConfigError("the text is not a foreign id; pass a JSON object of the primary key")
        if unknown := fields.keys() - set(prepared.names):
            raise ConfigError(f"the foreign id has {min(unknown)!r}, which is not in the primary key of {self._name}")
        if missing := [n for n in prepared.names if n not in fields]:
            raise IncompleteKey(
                f"the foreign id lacks {missing[0]!r}, so it names no single row of {self._name}; ids of range "
                "deletes, partition deletes, and static rows cannot be looked up"
            )
        key = {}
        for name, encode in zip(prepared.names, prepared.encoders, strict=True):
            try:
                key[name] = encode(fields[name])
            except (ValueError, TypeError, ArithmeticError, LookupError, struct.error) as e:
                raise ConfigError(f"the foreign id's {name!r} is not a value of its column in {self._name}: {e}") from e
        return key

    # ------------------------------------------------------------ statements

    def _prepared(self) -> _Prepared:
        with self._lock:
            if self._by_key is None:
                self._by_key = self._prepare("SELECT *", self._read_table().key)
            return self._by_key

    def _prepared_static(self) -> _Prepared:
        with self._lock:
            if self._static is None:
                table = self._read_table()
                columns = ", ".join(quote_name(c.name) for c in table.of_kind("partition_key", "static"))
                self._static = self._prepare(f"SELECT DISTINCT {columns}", table.partition_key)
            return self._static

    def _read_table(self) -> LoggedTable:
        return self._retried(lambda: read_table(self._session, self._keyspace, self._table))

    def _prepare(self, select: str, key: Sequence[BaseColumn]) -> _Prepared:
        where = " AND ".join(f"{quote_name(c.name)} = ?" for c in key)
        doing = f"preparing to look up rows of {self._name}"
        cql = f"{select} FROM {self._name} WHERE {where}"
        statement = self._retried(lambda: self._session.prepare(cql, page_size=2, doing=doing))
        return _Prepared(statement, tuple(c.name for c in key), tuple(_or_empty(c.type) for c in key))

    # ------------------------------------------------------------ reading

    def _read(self, prepared: _Prepared, values: Sequence[bytes]) -> dict[str, Any] | None:
        """Return the row with the key *values*, which are in the order of the key columns."""
        doing = f"looking up a row of {self._name}"
        try:
            page = self._retried(lambda: self._session.read(prepared.statement, values, doing=doing))
        except QueryFailed:
            with self._lock:  # the table may have been created again with another key: the next call reads it
                self._by_key = self._static = None
            raise
        rows = page.cells(self._name)
        if not rows:
            return None
        found: dict[str, Any] = {}
        for (name, decode), raw in zip(self._decoders_of(page), rows[0], strict=True):
            try:
                found[name] = None if raw is None else decode(raw)
            except ValueError as e:
                raise MalformedData.of_cell(self._name, name, is_log=False) from e
        return found

    def _decoders_of(self, page: Page) -> list[tuple[str, Decoder]]:
        """Return the decoders for the columns of *page*. Keeps those of the last page."""
        known = self._decoders  # a single attribute, so that threads never see columns with the decoders of others
        if known is None or known[0] is not page.columns:
            known = self._decoders = page.columns, [(c.name, decoder_for(c.type)) for c in page.columns]
        return known[1]

    def _retried(self, read: Callable[[], T]) -> T:
        """Return the result of *read*. Retries temporary errors."""
        return retry(read, attempts=ATTEMPTS, backoff=_BACKOFF, clock=self._clock, stop=Stop())


def _or_empty(type_: Type) -> Encoder:
    """Return an encoder that encodes JSON null as an empty value, because no part of a primary key is null."""
    encode = encoder_for(type_)
    return encode if native(type_).has_empty else lambda value: b"" if value is None else encode(value)
