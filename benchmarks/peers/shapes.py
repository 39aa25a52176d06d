"""The tables that benchmarks read, how they are filled, and clocks of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

import rscylla

KEYSPACE = "bench"
LAG = rscylla.StreamLag(milliseconds=1)
CONCURRENCY = 8

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"

_WIDE = {
    "name": "text",
    "city": "text",
    "note": "text",
    "code": "int",
    "amount": "bigint",
    "price": "double",
    "paid": "boolean",
    "ref": "uuid",
    "at": "timestamp",
    "raw": "blob",
}


@attrs.frozen
class Shape:
    """A kind of table. All have the key ``pk int``, ``ck bigint``.

    ``columns``: the CQL types of the others. ``values``: the values of row *i*, as CQL with markers and as a function.
    ``updates``: how often each row is written again after its insert.
    """

    name: str
    columns: dict[str, str]
    values: tuple[str, Callable[[int], tuple[Any, ...]]]
    cdc: str = "'enabled': true"
    images: bool = False
    updates: int = 0

    def writes(self, log_rows: int) -> int:
        """Return how many rows to insert for *log_rows* rows of the log, or just more."""
        return -(-log_rows // self.log_rows(1))

    def log_rows(self, inserts: int) -> int:
        """Return the rows of the log after so many inserts, each with its updates."""
        return inserts * ((2 + 3 * self.updates) if self.images else 1 + self.updates)

    def changes(self, inserts: int) -> int:
        return inserts * (1 + self.updates)


def _wide(i: int) -> tuple[Any, ...]:
    return f"customer {i}", "Reykjavík", "to the door", i % 97, i * 3, i / 7, i % 2 == 0


_WIDE_VALUES = "?, ?, ?, ?, ?, ?, ?, 6ab09bec-e68e-48d9-a5f8-97e6fb4c9b47, 1763719205000, 0x00112233445566778899"

SHAPES = {
    shape.name: shape
    for shape in (
        Shape("narrow", {"v": "text", "n": "bigint"}, ("?, ?", lambda i: (f"order {i * 7919 % 1_000_003:012d}", i))),
        Shape("wide", _WIDE, (_WIDE_VALUES, _wide)),
        Shape(
            "images",
            _WIDE,
            (_WIDE_VALUES, _wide),
            cdc="'enabled': true, 'preimage': 'full', 'postimage': true",
            images=True,
            updates=2,
        ),
        Shape(
            "collections",
            {
                "tags": "set<text>",
                "scores": "map<text, int>",
                "steps": "list<bigint>",
                "path": "frozen<list<int>>",
                "pair": "frozen<tuple<int, text>>",
            },
            (
                "{'red', 'green', 'blue'}, ?, ?, [1, 2, 3, 4], (7, 'seven')",
                lambda i: ({"x": i % 89, "y": i % 97}, [i, i + 1, i + 2]),
            ),
        ),
    )
}


@attrs.frozen
class Log:
    """A log that is complete. ``since_ms`` is a time before its first row."""

    table: str
    rows: int
    changes: int
    since_ms: int


def create_keyspace(session: rscylla.Session) -> None:
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {REPLICATION} AND tablets = {{'enabled': false}}"
    )


def fill(session: rscylla.Session, shape: Shape, log_rows: int, *, table: str = "", batch: int = 100) -> Log:
    """Create the table and write until its log has *log_rows* rows or just more; a batch is rows of one partition.

    Returns when the log is complete at a lag of ``LAG``.
    """
    table = table or shape.name
    create_keyspace(session)
    declared = ", ".join(f"{name} {kind}" for name, kind in shape.columns.items())
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{table} (pk int, ck bigint, {declared}, PRIMARY KEY (pk, ck)) "
        f"WITH cdc = {{{shape.cdc}}}"
    )
    marks, values = shape.values
    insert = session.prepare(
        f"INSERT INTO {KEYSPACE}.{table} (pk, ck, {', '.join(shape.columns)}) VALUES (?, ?, {marks})"
    )
    since, inserts = time.time_ns() // 1_000_000 - 1, shape.writes(log_rows)
    for again in range(1 + shape.updates):
        _write(session, insert, batch, inserts, lambda i, shift=again: values(i + shift))
    return Log(table, shape.log_rows(inserts), shape.changes(inserts), since)


def _write(
    session: rscylla.Session, insert: Any, size: int, inserts: int, values: Callable[[int], tuple[Any, ...]]
) -> None:
    from cassandra.concurrent import execute_concurrent
    from cassandra.query import BatchStatement, BatchType

    def batches() -> Iterator[tuple[Any, None]]:
        for start in range(0, inserts, size):
            statement = BatchStatement(BatchType.UNLOGGED)
            for i in range(start, min(inserts, start + size)):
                statement.add(insert, (start // size, i, *values(i)))
            yield statement, None

    for ok, result in execute_concurrent(session, batches(), concurrency=CONCURRENCY, results_generator=True):
        if not ok:
            raise result


# ---------------------------------------------------------------- clocks


@contextmanager
def timed(pid: int) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, its wall time, own CPU time, and the CPU time of process *pid*."""
    spent: list[float] = []
    child, client, wall = cpu_of(pid), time.process_time(), time.perf_counter()
    yield spent
    spent += [time.perf_counter() - wall, time.process_time() - client, cpu_of(pid) - child]


def cpu_of(pid: int) -> float:
    """Return the CPU seconds that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Return the bytes that a process has resident (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_mb_of(pid: int) -> float:
    """Return the most memory that a process has had resident, in megabytes (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
