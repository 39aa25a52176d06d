"""What the embedded server alone spends on writes: in process, with ready frames and without sockets.

Prints CPU time of a row for each of several ways of writing; the instructions of a row, which do not depend on what
else the machine does (``--instructions``, needs valgrind); or a profile (``--profile WORKLOAD``).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

# Nothing of the client: under valgrind its import would take longer than the rest.
from rscylla.embedded.clock import ManualClock
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.result import QueryParams
from rscylla.embedded.wire.connection import Connection
from rscylla.embedded.wire.frame import HEADER, Opcode
from rscylla.embedded.wire.interfaces import WireOptions
from rscylla.embedded.wire.server import Server
from rscylla.embedded.wire.transport import Listener

KEYSPACE = "bench"
CREATE_KEYSPACE = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}} "
    "AND tablets = {'enabled': false}"
)
ORDERS = "(pk int, ck int, v text, n bigint, PRIMARY KEY (pk, ck))"
TAGS = "(pk int, ck int, s set<text>, m map<text, int>, l list<int>, PRIMARY KEY (pk, ck))"
IMAGES = "'preimage': true, 'postimage': true"
INSERT = f"INSERT INTO {KEYSPACE}.orders (pk, ck, v, n) VALUES (?, ?, ?, ?)"


@attrs.frozen
class Workload:
    """One way of writing. ``values`` of row *i*; ``batch`` rows to a request, 0 for a request without BATCH."""

    statement: str
    values: Callable[[int], Sequence[Any]]
    batch: int = 0
    columns: str = ORDERS
    cdc: str = "'enabled': true"

    @property
    def ddl(self) -> str:
        return f"CREATE TABLE {KEYSPACE}.orders {self.columns} WITH cdc = {{{self.cdc}}}"

    def requests(self, rows: int) -> Iterator[range]:
        """Yield the rows of each request."""
        for start in range(0, rows, self.batch or 1):
            yield range(start, min(rows, start + (self.batch or 1)))


def order(i: int) -> Sequence[Any]:
    return (i % 997, i, f"order number {i}", i)


def order_of_batch(i: int) -> Sequence[Any]:
    return (i // 100 % 997, i, f"order number {i}", i)


WORKLOADS = {
    "insert": Workload(INSERT, order),
    "insert, batches of 100": Workload(INSERT, order_of_batch, batch=100),
    "update of one column": Workload(
        f"UPDATE {KEYSPACE}.orders SET n = ? WHERE pk = ? AND ck = ?", lambda i: (i, i % 997, i % 5000)
    ),
    "update with both images": Workload(
        f"UPDATE {KEYSPACE}.orders SET n = ? WHERE pk = ? AND ck = ?",
        lambda i: (i, i % 997, i % 5000),
        cdc=f"'enabled': true, {IMAGES}",
    ),
    "collections": Workload(
        f"UPDATE {KEYSPACE}.orders SET s = s + ?, m[?] = ?, l = l + ? WHERE pk = ? AND ck = ?",
        lambda i: ({"new", f"tag {i % 7}"}, f"key {i % 5}", i, [i, i + 1], i % 997, i),
        columns=TAGS,
    ),
    "insert without CDC": Workload(INSERT, order, cdc="'enabled': false"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the medians are shown")
    parser.add_argument("--instructions", action="store_true", help="count them with valgrind")
    parser.add_argument("--profile", choices=WORKLOADS, metavar="WORKLOAD", help="profile this one")
    parser.add_argument("--serve", action="store_true", help="only serve the requests: what valgrind looks at")
    args = parser.parse_args()
    if args.serve:
        served(WORKLOADS[args.only[0]], args.rows)
    elif args.profile:
        profile(WORKLOADS[args.profile], args.rows)
    elif args.instructions:
        print(f"{'what':<28}{'instructions a row':>20}")
        for name in args.only:
            print(f"{name:<28}{instructions(name):>20,.0f}", flush=True)
    else:
        print(f"{'what':<28}{'us a row':>12}{'spread':>14}")
        for name in args.only:
            runs = [served(WORKLOADS[name], args.rows) / args.rows * 1e6 for _ in range(args.repeat)]
            spread = f"{min(runs):.1f}-{max(runs):.1f}"
            print(f"{name:<28}{statistics.median(runs):>12.1f}{spread:>14}", flush=True)


class Transport(asyncio.Transport):
    """A client that takes every answer, and sees to it that they are no errors."""

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return ("127.0.0.1", 40_000)

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing waits here."""

    def write(self, data: bytes) -> None:
        opcode = HEADER.unpack_from(data)[3]
        if opcode == Opcode.ERROR:
            raise SystemExit(f"the server refused: {data[HEADER.size :]!r}")


class Core:
    """A server without sockets, and one connection to it. Its clock stands still."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        clock = ManualClock()
        cluster = Cluster(1, clock=clock, seed=1)
        clock.advance(60)
        self._now_us = clock.now_us()
        self._engine = Engine(cluster, clock)
        server = Server(self._engine, WireOptions())
        self._engine.writer.faults = server.faults
        node = cluster.nodes[0]
        self._connection = Connection(server, Listener(node, shard_loads=[0] * node.shards))

        self._connection.connection_made(Transport())
        self.send(frame(Opcode.STARTUP, struct.pack(">H", 1) + string("CQL_VERSION") + string("3.0.0")))
        for text in (CREATE_KEYSPACE, workload.ddl):
            self._engine.query(text, (), QueryParams())
        self._prepared = self._engine.prepare(workload.statement, None)
        self._columns = [spec.type for spec in self._prepared.variables]

    def send(self, request: bytes) -> None:
        self._connection.data_received(request)

    def frames(self, rows: int) -> list[bytes]:
        """Return one request a frame, as a driver sends them: consistency, values, client timestamp."""
        frames: list[bytes] = []
        for at, request in enumerate(self._workload.requests(rows)):
            values = [self._values(i) for i in request]
            stamp = struct.pack(">q", self._now_us + at)
            identity = struct.pack(">H", 16) + self._prepared.id
            if self._workload.batch:
                items = b"".join(b"\x01" + identity + each for each in values)
                body = b"\x01" + struct.pack(">H", len(values)) + items + b"\x00\x0a" + b"\x20" + stamp
                frames.append(frame(Opcode.BATCH, body))
            else:
                body = identity + b"\x00\x0a" + b"\x21" + values[0] + stamp
                frames.append(frame(Opcode.EXECUTE, body))
        return frames

    def _values(self, i: int) -> bytes:
        parts = [struct.pack(">H", len(self._columns))]
        for cql_type, value in zip(self._columns, self._workload.values(i), strict=True):
            data = cql_type.encode(value)
            parts += (struct.pack(">i", len(data)), data)
        return b"".join(parts)


def frame(opcode: int, body: bytes) -> bytes:
    return HEADER.pack(4, 0, 1, opcode, len(body)) + body


def string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def served(workload: Workload, rows: int) -> float:
    """Return the CPU seconds that the server takes for *rows* rows."""
    core = Core(workload)
    frames = core.frames(rows)
    start = time.process_time()
    for each in frames:
        core.send(each)
    return time.process_time() - start


def profile(workload: Workload, rows: int) -> None:
    core = Core(workload)
    frames = core.frames(rows)
    profiler = cProfile.Profile()
    profiler.enable()
    for each in frames:
        core.send(each)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(35)


def instructions(name: str, few: int = 100, many: int = 500) -> float:
    """Return the instructions of one more row: what a run of *many* rows takes above one of *few*."""

    def count(rows: int) -> int:
        command = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            sys.executable,
            __file__,
        ]
        done = subprocess.run(
            [*command, "--only", name, "--serve", "--rows", str(rows)],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"I +refs: +([\d,]+)", done.stderr)
        if found is None:
            raise SystemExit(f"valgrind counted nothing:\n{done.stderr}")
        return int(found[1].replace(",", ""))

    return (count(many) - count(few)) / (many - few)


if __name__ == "__main__":
    main()
