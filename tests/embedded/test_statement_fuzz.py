"""Statements derived from the server's own grammar, for live tables of random types: each is carried out or refused.

No answer is an internal error, a refused statement changes nothing, all tables and their CDC logs stay readable, and a
restart finds the same state in the data directory. ``RSCYLLA_STATEMENT_SEEDS`` says how many tables' lives are tried,
``RSCYLLA_STATEMENT_FROM`` the first one, ``RSCYLLA_STATEMENT_SEED`` asks for one alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import struct
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from enginebox import decoded
from keptbox import Kept
from memorywire import STARTUP, MemoryTransport, answers, frame, long_string
from statements import Bound, Piece, StatementWriter, text_of, values_of

from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.errors import CqlError
from rscylla.embedded.result import UNSET, QueryParams, RowsResult, SchemaChange
from rscylla.embedded.schema.tables import TableSchema
from rscylla.embedded.wire.connection import Connection
from rscylla.embedded.wire.frame import Opcode
from rscylla.embedded.wire.interfaces import WireOptions
from rscylla.embedded.wire.server import Server
from rscylla.embedded.wire.transport import Listener

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("RSCYLLA_STATEMENT_SEEDS", "60"))
FIRST = int(os.environ.get("RSCYLLA_STATEMENT_FROM", "0"))
ONE_SEED = os.environ.get("RSCYLLA_STATEMENT_SEED")
SEEDS_PER_TEST = 15
STATEMENTS = 200
SHRINK_TRIES = 400


class Changes:
    """A journal that tells whether anything was changed since it was last asked, and hands on to another."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.seen: list[str] = []

    def wrote(self, mutations: Iterable[Any], rows: Sequence[Any]) -> None:
        self.seen.append("rows")
        self._journal.wrote(mutations, rows)

    def truncated(self, table: TableSchema) -> None:
        self.seen.append("truncate")
        self._journal.truncated(table)

    def schema_changing(self) -> None:
        self._journal.schema_changing()

    def schema_changed(self, changes: Sequence[SchemaChange]) -> None:
        if changes:
            self.seen.append("schema")
        self._journal.schema_changed(changes)


class Tracebacks(logging.Handler):
    """Keeps what the server logs of its internal errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.errors.append(record.exc_info[1])

    @contextmanager
    def attached(self) -> Iterator[None]:
        logger = logging.getLogger("rscylla")
        logger.addHandler(self)
        before, logger.propagate = logger.propagate, False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.propagate = before


class Life:
    """A server with random tables, and what clients send it."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = random.Random(seed)
        self.kept = Kept(path, compact_bytes=self.rng.choice([20_000, 1 << 26]))
        self.engine = self.kept.engine
        assert self.engine.writer.journal is not None
        self.changes = Changes(self.engine.writer.journal)
        self.engine.writer.journal = self.changes
        self.writer = StatementWriter(self.rng, self.engine.schema)
        self.counts: Counter[str] = Counter()
        self.tracebacks = Tracebacks()
        self._prepared: list[tuple[str, list[Piece]]] = []
        self._loop = asyncio.new_event_loop()
        self._server = Server(self.engine, WireOptions())
        self._listener = Listener(self.kept.cluster.nodes[0], shard_loads=[0, 0])
        self._transport = MemoryTransport()
        self._connection = self._on_loop(self._connect)

    def _on_loop(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return self._loop.run_until_complete(run())

    def _connect(self) -> Connection:
        connection = Connection(self._server, self._listener)
        connection.connection_made(self._transport)
        connection.data_received(frame(Opcode.STARTUP, STARTUP))
        return connection

    def close(self) -> None:
        self._on_loop(lambda: self._connection.connection_lost(None))
        self._loop.close()
        self.kept.durable.close()

    # ------------------------------------------------------------ statements

    def begin(self) -> None:
        """Create the keyspace, with vnodes or tablets, and some tables."""
        tablets = self.rng.choice(["false", "false", "true"])
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        texts = [
            f"CREATE KEYSPACE ks WITH replication = {replication} AND tablets = {{'enabled': {tablets}}}",
            "USE ks",
            "CREATE TYPE pair (f0 int, f1 frozen<list<text>>)",
        ]
        for text in texts:
            self.ask(Opcode.QUERY, long_string(text) + TAIL)
        while len(self.engine.schema.keyspaces["ks"].tables) < 3:
            text = self.writer.create_table(f"t{self.rng.randint(0, 5)}")
            self.try_([text], Opcode.QUERY)

    def step(self) -> None:
        rng = self.rng
        if (chance := rng.random()) < 0.05:
            self.kept.clock.advance(rng.choice([1, 60, 100_000]))
        elif chance < 0.06:
            self.engine.writer.expire_rows()
        if "ks" not in self.engine.schema.keyspaces:
            self.begin()
        pieces = self.writer.statement()
        if self._prepared and rng.random() < 0.1:
            # What was prepared before the tables were altered.
            self.try_(rng.choice(self._prepared)[1], Opcode.EXECUTE)
        is_write = str(pieces[0]).lower().startswith(("insert", "update", "delete"))
        ways = [Opcode.QUERY, Opcode.EXECUTE, Opcode.BATCH]
        self.try_(pieces, rng.choices(ways, [2, 2, 1 if is_write else 0.1])[0])

    def try_(self, pieces: list[Piece], opcode: int) -> None:
        """Send a statement, and check its answer."""
        self.counts["statements"] += 1
        before = content(self.engine) if self.rng.random() < 0.1 else None
        self.changes.seen.clear()
        state = self.rng.getstate()
        code, message = self.send(pieces, opcode)
        # ScyllaDB itself answers a write that has no stream with its error for all that is unexpected.
        if self.tracebacks.errors or (code == 0 and not message.startswith("cdc::")):
            error = self.tracebacks.errors[0] if self.tracebacks.errors else AssertionError(message)
            where = "".join(traceback.format_exception(error))
            pieces = self.shrunk(pieces, opcode, state)
            raise AssertionError(f"internal error: {text_of(pieces)!r} with {values_of(pieces)}\n{where}")
        if code is None:
            self.counts.update(self.changes.seen or ["no change"])
            return
        self.counts[f"error {code:#06x}"] += 1
        assert not self.changes.seen, f"refused, but changed {self.changes.seen}: {text_of(pieces)!r}: {message}"
        assert before is None or before == content(self.engine), f"refused, but not without effect: {text_of(pieces)!r}"

    def send(self, pieces: list[Piece], opcode: int) -> tuple[int | None, str]:
        """Return the code and message of the error, None if there is none."""
        text, values = long_string(text_of(pieces)), values_of(pieces)
        if opcode == Opcode.EXECUTE:
            answer, body = self.ask(Opcode.PREPARE, text)
            if answer == Opcode.ERROR:
                return error_of(body)
            self._prepared.append((text_of(pieces), pieces))
            (size,) = struct.unpack_from(">H", body, 4)
            body = body[4 : 6 + size]
            answer, body = self.ask(opcode, body + self.parameters(values))
        elif opcode == Opcode.BATCH:
            kind = self.rng.choice([0, 0, 0, 0, 1, 1, 1, 1, 2, 3])
            one = b"\0" + text + struct.pack(">H", len(values)) + b"".join(map(value_bytes, values))
            answer, body = self.ask(opcode, bytes([kind]) + b"\0\2" + one * 2 + b"\0\1\0")
        else:
            answer, body = self.ask(opcode, text + self.parameters(values))
        return error_of(body) if answer == Opcode.ERROR else (None, "")

    def parameters(self, values: list[Any]) -> bytes:
        """Return consistency, values and options of QUERY and EXECUTE."""
        rng = self.rng
        flags, rest = 0, b""
        if values:
            flags |= 0x01
            rest += struct.pack(">H", len(values)) + b"".join(map(value_bytes, values))
        if rng.random() < 0.2:
            flags |= 0x04
            rest += struct.pack(">i", rng.choice([1, 2, 100]))
            if rng.random() < 0.1:
                flags |= 0x08
                rest += value_bytes(rng.randbytes(rng.choice([1, 16, 40])))
        if rng.random() < 0.2:
            flags |= 0x20
            rest += struct.pack(">q", rng.choice([self.kept.clock.now_us(), 1, 0, -1, 2**63 - 1, -(2**63)]))
        return struct.pack(">HB", rng.choice([1, 1, 1, 4, 6, 10]), flags) + rest

    def ask(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        """Return opcode and body of the answer to a frame."""
        self._transport.out.clear()
        self._on_loop(lambda: self._connection.data_received(frame(opcode, body)))
        ((_, answer, answer_body),) = answers(bytes(self._transport.out))
        return answer, answer_body

    def shrunk(self, pieces: list[Piece], opcode: int, state: Any) -> list[Piece]:
        """Return the statement with all left out that is not needed for an internal error of the same kind."""
        kind = type(self.tracebacks.errors[0]) if self.tracebacks.errors else None
        words = [word for piece in pieces for word in ([piece] if isinstance(piece, Bound) else piece.split(" "))]
        size, tries = len(words) // 2, SHRINK_TRIES
        while size and tries:
            for at in range(0, len(words), size):
                tries -= 1
                self.tracebacks.errors.clear()
                self.rng.setstate(state)
                if tries <= 0:
                    return words
                self.send(words[:at] + words[at + size :], opcode)
                if self.tracebacks.errors and type(self.tracebacks.errors[0]) is kind:
                    words = words[:at] + words[at + size :]
                    break
            else:
                size //= 2
        return words


def content(engine: Engine) -> Any:
    """Return the schema and all rows; each cell is decoded by its column's type."""
    found: dict[str, Any] = {}
    for keyspace in engine.schema.keyspaces.values():
        if keyspace.name.startswith("system"):
            continue
        found[keyspace.name] = (dict(keyspace.options), dict(keyspace.types))
        for table in [*keyspace.tables.values()]:
            found[f"{keyspace.name}.{table.name}"] = (table, rows(engine, table))
    return found


def rows(engine: Engine, table: TableSchema) -> list[bytes]:
    name = table.name.replace('"', '""')
    params = QueryParams(node=engine.cluster.nodes[0].index)
    try:
        result = engine.query(f'SELECT * FROM "{table.keyspace}"."{name}"', (), params)
    except CqlError as error:
        raise AssertionError(f"{table.keyspace}.{table.name} cannot be read any more: {error}") from error
    assert isinstance(result, RowsResult)
    decoded(result)
    return [*result.rows]


TAIL = b"\0\1\0"


def value_bytes(value: Any) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    return b"\xff\xff\xff\xfe" if value is UNSET else struct.pack(">i", len(value)) + value


def error_of(body: bytes) -> tuple[int, str]:
    code, size = struct.unpack_from(">iH", body)
    return code, body[6 : 6 + size].decode()


def live(seed: int, path: Path) -> Counter[str]:
    """Lead one life, restart, and return how often what happened."""
    life = Life(seed, path)
    try:
        with life.tracebacks.attached():
            life.begin()
            for _ in range(STATEMENTS):
                life.step()
        before = content(life.engine)
        reopened = life.kept.reopened()
        try:
            assert content(reopened.engine) == before, "a restart finds something else"
        finally:
            reopened.durable.close()
    except BaseException as error:
        error.add_note(f"repeat with: RSCYLLA_STATEMENT_SEED={seed} python -m pytest {Path(__file__).name}")
        raise
    finally:
        life.close()
    return life.counts


def chunks() -> list[range]:
    if ONE_SEED is not None:
        return [range(int(ONE_SEED), int(ONE_SEED) + 1)]
    end = FIRST + SEEDS
    return [range(at, min(at + SEEDS_PER_TEST, end)) for at in range(FIRST, end, SEEDS_PER_TEST)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", chunks(), ids=str)
def test_statements_are_carried_out_or_refused(tmp_path: Path, seeds: range) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += live(seed, tmp_path / str(seed))
    print(dict(counts))
    # Neither are all statements refused, nor are all taken.
    assert counts["rows"] > 10 * len(seeds)
    assert counts["schema"] > len(seeds)
    assert counts["error 0x2200"] > 10 * len(seeds)
