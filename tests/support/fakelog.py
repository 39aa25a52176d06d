"""A CDC log in memory that stands where ``ReadSession`` stands: scripted generations, rows, node clocks, pages, faults.

It answers the very queries that the source sends, as the cluster would, and refuses any other. Pages are real bytes.
"""

from __future__ import annotations

import functools
import json
import random
import struct
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
from cassandra import InvalidRequest, cqltypes

from rscylla._tokens import token_of
from rscylla.cdc.log.query import LOG_SUFFIX
from rscylla.clock import Stop
from rscylla.driver import session as driver
from rscylla.driver.pages import Column, Page
from rscylla.driver.pages import type_of as type_of_driver
from rscylla.driver.session import ReadStatement
from rscylla.testing import ManualClock
from rscylla.types import Type

SECOND = 1_000_000
NOW_US = 1_763_719_200_000_000
EPOCH_TICKS = 0x01B21DD213814000

_INT = struct.Struct(">i")
_FLIP = bytes(b ^ 0x80 for b in range(256))


def type_of(name: str) -> Type:
    """Return the tree of a native CQL type, or of a marshal class text."""
    return type_of_driver(cqltypes._cqltypes.get(name) or cqltypes.lookup_casstype(name))


def stream_id(token: int, vnode: int = 0, salt: int = 0) -> bytes:
    """Return a version 1 stream id."""
    return token.to_bytes(8, "big", signed=True) + ((salt << 26) | (vnode << 4) | 1).to_bytes(8, "big")


def log_time(us: int, low: int = 0x8000_0000_0000_0000) -> bytes:
    """Return the raw timeuuid of a microsecond, with the low half given."""
    ticks = us * 10 + EPOCH_TICKS
    head = struct.pack(">IHH", ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, (ticks >> 48) & 0x0FFF | 0x1000)
    return head + low.to_bytes(8, "big")


@functools.lru_cache(maxsize=100_000)  # each page asks it of each row that was written
def order_of(time: bytes) -> tuple[int, bytes]:
    """Return the database's order of timeuuids, worked out without the code under test."""
    return uuid.UUID(bytes=time).time, time[8:].translate(_FLIP)


def body_of(rows: Iterable[Sequence[bytes | None]]) -> bytes:
    """Return the rows part of a RESULT frame."""
    rows = list(rows)
    cells = (c for row in rows for c in row)
    return _INT.pack(len(rows)) + b"".join(_INT.pack(-1) if c is None else _INT.pack(len(c)) + c for c in cells)


def columns_of(base: Sequence[tuple[str, str, str]], types: dict[str, str] | None = None) -> tuple[Column, ...]:
    """Return the columns of ``SELECT *`` from the log of a base table of (name, kind, CQL type) columns.

    *types* gives the marshal text for types that have no name of their own.
    """
    types = types or {}

    def known(name: str) -> Type:
        return type_of(types.get(name, name))

    fixed = [("cdc$stream_id", "blob"), ("cdc$time", "timeuuid"), ("cdc$batch_seq_no", "int")]
    rest = [("cdc$end_of_batch", "boolean"), ("cdc$operation", "tinyint"), ("cdc$ttl", "bigint")]
    columns = [Column(n, type_of(t)) for n, t in fixed]
    for name, kind, text in base:
        columns.append(Column(name, known(text)))
        if kind in ("regular", "static"):
            columns.append(Column(f"cdc$deleted_{name}", type_of("boolean")))
            if f"elements:{text}" in types:
                columns.append(Column(f"cdc$deleted_elements_{name}", known(f"elements:{text}")))
    return (*columns, *(Column(n, type_of(t)) for n, t in rest))


SIMPLE = (("pk", "partition_key", "int"), ("ck", "clustering", "int"), ("v", "regular", "int"))


def integer(value: int | None) -> bytes | None:
    return None if value is None else _INT.pack(value)


@attrs.frozen
class Written:
    """A log row as it was written. ``visible_us``: when a query first sees it."""

    generation: int
    stream: bytes
    time: bytes
    seq: int
    cells: dict[str, bytes | None]
    visible_us: int = 0

    @property
    def us(self) -> int:
        return (order_of(self.time)[0] - EPOCH_TICKS) // 10

    @property
    def order(self) -> tuple[Any, ...]:
        return self.generation, *order_of(self.time), self.stream, self.seq

    @property
    def name(self) -> tuple[str, str, int]:
        return self.stream.hex(), str(uuid.UUID(bytes=self.time)), self.seq


@attrs.frozen
class FakeBound:
    """Stands where ``RawRead`` stands."""

    statement: ReadStatement
    values: Sequence[bytes]
    routing_key: bytes | None


class FakeStatement(ReadStatement):
    """A statement of no driver."""

    def bind_raw(self, values: Sequence[bytes], routing_key: bytes | None = None) -> Any:
        return FakeBound(self, values, routing_key)


def blobs_of(raw: bytes) -> tuple[bytes, ...]:
    """Return the values of a serialized ``list<blob>``."""
    count, rest, blobs = int.from_bytes(raw[:4], "big"), raw[4:], []
    for _ in range(count):
        size = int.from_bytes(rest[:4], "big")
        blobs.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    assert not rest
    return tuple(blobs)


@attrs.frozen
class Asked:
    """A page that was asked for."""

    cql: str
    streams: tuple[bytes, ...]
    start_us: int
    end_us: int
    state: bytes | None

    @property
    def is_probe(self) -> bool:
        return "PER PARTITION LIMIT 1" in self.cql


@attrs.frozen
class Host:
    """A node. ``skew_us``: its clock minus the client's; None: it does not answer."""

    endpoint: str
    skew_us: int | None = 0


class FakeLog:
    """The cluster, one keyspace and one table with CDC. Answers at once, in the caller's thread."""

    def __init__(
        self,
        clock: ManualClock,
        *,
        keyspace: str = "ks",
        table: str = "t",
        base: Sequence[tuple[str, str, str]] = SIMPLE,
        ttl_s: int = 86_400,
        seed: int = 0,
    ) -> None:
        self.clock = clock
        self.keyspace = keyspace
        self.table = table
        self.base = base
        self.ttl_s = ttl_s
        self.enabled = "true"
        self.log_id = uuid.uuid4()
        self.created_us = 0
        self.altered_us: int | None = 0
        self.dropped: list[tuple[str, str, str, int]] = []
        self.history: list[tuple[int, str | None]] = []
        self.columns = columns_of(base)
        self.generations: dict[int, list[bytes]] = {}
        self.written: list[Written] = []
        self.nodes = [Host("127.0.0.1:9042")]
        self.asked: list[Asked] = []
        self.metadata: list[str] = []
        self.page_size: int | None = None
        self.on_fetch: Callable[[Asked], BaseException | None] = lambda _: None
        self.on_rows: Callable[[str], BaseException | None] = lambda _: None
        self.random = random.Random(seed)
        self.lock = threading.Lock()

    # ------------------------------------------------------------ script

    def generation(self, us: int, streams: Sequence[bytes]) -> int:
        """Add a generation that starts at *us*; return its time in ms."""
        self.generations[us // 1000] = list(streams)
        return us // 1000

    def write(
        self, us: int, *, at: int = 0, low: int | None = None, seq: int = 0, visible_us: int = 0, **values: Any
    ) -> Written:
        """Write a log row at *us* to a stream of the generation that *us* belongs to. Values are raw or int."""
        generation = max(g for g in self.generations if g * 1000 <= us)
        streams = self.generations[generation]
        cells = {
            n: bytes((v & 0xFF,)) if n == "cdc$operation" else integer(v) if isinstance(v, int) else v
            for n, v in {"cdc$operation": 2, "pk": at, "ck": 0, "v": 0, **values}.items()
        }
        time = log_time(us, self.random.getrandbits(64) if low is None else low)
        row = Written(generation, streams[at % len(streams)], time, seq, cells, visible_us)
        self.written.append(row)
        return row

    def expected(self, rows: Iterable[Written] | None = None) -> list[tuple[str, str, int]]:
        """Return the names of rows in the order of delivery."""
        return [w.name for w in sorted(self.written if rows is None else rows, key=lambda w: w.order)]

    # ------------------------------------------------------------ what ReadSession offers

    def hosts(self) -> list[Host]:
        return list(self.nodes)

    def until(self, stop: Stop) -> FakeLog:
        return self

    def replicas_of(self, keyspace: str) -> None:
        return None

    def prepare(self, cql: str, *, page_size: int, doing: str) -> ReadStatement:
        return FakeStatement(cql, type, 1, self.page_size or page_size)

    prepare_once = prepare

    def rows(
        self,
        cql: str,
        values: Iterable[Any] = (),
        *,
        doing: str,
        consistency: int | None = None,
        host: Any = None,
        timeout_s: float = 30.0,
    ) -> list[tuple[Any, ...]]:
        self.metadata.append(cql)
        error = self.on_rows(cql)
        if error is not None:
            raise driver.translate(error, doing)
        given = tuple(values)
        if "FROM system.local" in cql:
            host = self.nodes[0] if host is None else host
            if host.skew_us is None:
                raise driver.translate(OSError("down"), doing)
            return [((self.clock.now_us() + host.skew_us) // 1000,)]
        if "cdc_generation_timestamps WHERE key" in cql:
            times = [(g,) for g in self.generations]
            self.random.shuffle(times)
            return times
        if "cdc_streams_descriptions_v2" in cql:
            streams = self.generations.get(given[0], [])
            # Ends that are nowhere near the tokens: these streams are of no real ring.
            return [({s}, token_of(s) + 1_234_567) for s in self.random.sample(streams, len(streams))]
        return self._schema(cql, given)

    def _schema(self, cql: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if "FROM system.group0_history" in cql:
            return [(uuid.UUID(bytes=log_time(us)), text) for us, text in reversed(self.history)]
        if "keyspace_name = 'system_schema'" in cql:
            return []  # none of the columns that only some versions have
        if "keyspace_name = 'system_distributed'" in cql:
            return [("cdc_generation_timestamps",), ("cdc_streams_descriptions_v2",)]
        if "FROM system_schema.keyspaces" in cql:
            return [("system",), (self.keyspace,)]
        if cql.startswith("SELECT WRITETIME(type)"):
            return [(self.created_us,)]
        if "FROM system_schema.columns" in cql:
            return [(n, kind, at, text, "none") for at, (n, kind, text) in enumerate(self.base)]
        if "FROM system_schema.dropped_columns" in cql:
            return list(self.dropped)
        if cql.startswith("SELECT table_name, id, toUnixTimestamp(now()), WRITETIME"):
            return [(row[0], row[1], self.clock.now_us() // 1000, row[3]) for row in self._tables(given)]
        if any(f"FROM system_schema.{name}" in cql for name in ("views", "indexes", "scylla_tables")):
            return []
        if "FROM system_schema.tables" in cql:
            return self._tables(given)
        raise AssertionError(f"a query that the cluster would not know: {cql}")

    def _tables(self, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Answer for a keyspace, and for some names of it unless none is given."""
        keyspace, *names = given
        options = pack_options(enabled=self.enabled, ttl=str(self.ttl_s))
        tables = [
            (self.table, uuid.uuid4(), {"cdc": options}, self.altered_us),
            (self.table + LOG_SUFFIX, self.log_id, {}, self.altered_us),
        ]
        return [t for t in tables if keyspace == self.keyspace and (not names or t[0] in names)]

    def send(
        self,
        bound: FakeBound,
        state: bytes | None,
        *,
        on_page: Callable[[Page], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        statement, (raw, start, end) = bound.statement, bound.values
        streams = blobs_of(raw)
        start_us, end_us = ((uuid.UUID(bytes=time).time - EPOCH_TICKS) // 10 for time in (start, end))
        asked = Asked(statement.prepared, streams, start_us, end_us, state)
        with self.lock:
            self.asked.append(asked)
        if len(streams) > 100:
            on_error(InvalidRequest("too many partition key restrictions"))
            return
        error = self.on_fetch(asked)
        if error is not None:
            on_error(error)
            return
        on_page(self._page(statement, asked, order_of(start), order_of(end)))

    def _page(self, statement: ReadStatement, asked: Asked, start: Any, end: Any) -> Page:
        now = self.clock.now_us()
        fastest = now + max((host.skew_us or 0 for host in self.nodes), default=0)  # any node may be the one that reads
        found: list[Written] = []
        for at, stream in enumerate(asked.streams):
            here = [w for w in self.written if w.stream == stream and start <= order_of(w.time) < end]
            here = [w for w in here if w.visible_us <= now and (not self.ttl_s or fastest < w.us + self.ttl_s * SECOND)]
            here.sort(key=lambda w: w.order[1:])
            after = json.loads(asked.state) if asked.state else [-1]
            if at < after[0]:
                continue
            if at == after[0]:
                here = [w for w in here if [*_plain(w)] > after[1:]]
            found += here[:1] if asked.is_probe else here
        page, more = found[: statement.page_size], found[statement.page_size :]
        state = json.dumps([asked.streams.index(page[-1].stream), *_plain(page[-1])]).encode() if more else None
        if asked.is_probe:
            return Page(
                (Column("cdc$time", type_of("timeuuid")),), b"head" + body_of([(w.time,) for w in page]), 4, state
            )
        return Page(self.columns, b"head" + body_of([self._cells(w) for w in page]), 4, state)

    def _cells(self, row: Written) -> list[bytes | None]:
        own = {"cdc$stream_id": row.stream, "cdc$time": row.time, "cdc$batch_seq_no": _INT.pack(row.seq)}
        cells = {"cdc$end_of_batch": b"\x01", **own, **row.cells}
        return [cells.get(c.name) for c in self.columns]


def _plain(row: Written) -> tuple[int, str, int]:
    ticks, low = order_of(row.time)
    return ticks, low.hex(), row.seq


def pack_options(**options: str) -> bytes:
    """Return ``extensions['cdc']`` as Scylla stores it."""
    texts = [t.encode() for pair in options.items() for t in pair]
    return struct.pack("<I", len(options)) + b"".join(struct.pack("<I", len(t)) + t for t in texts)
