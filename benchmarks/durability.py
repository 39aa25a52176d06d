"""Writes to an embedded server with and without a data directory, and prints what keeping the data costs.

Beside them, the time in which SQLite takes the same bytes as rows of a table, one transaction a write, and how long a
server takes to come back after kill -9.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rscylla.embedded import EmbeddedScyllaProcess

KEYSPACE = "bench"
REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=40_000)
    parser.add_argument("--synced", type=int, default=2_000, help="writes that wait for the disk")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None, help="where to make the data directories; default: temporary")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=args.dir))
    modes: dict[str, tuple[dict[str, Any], int]] = {
        "in memory": ({}, args.writes),
        "data directory": ({"data_dir": root / "plain"}, args.writes),
        "  always making a snapshot": ({"data_dir": root / "small", "compact_bytes": 1}, args.writes),
        "  fsync": ({"data_dir": root / "synced", "fsync": True}, args.synced),
    }
    print(f"{'insert of one row, with CDC':<34}{'writes/s':>12}{'server us':>12}{'ratio':>8}{'slowest ms':>12}")
    baseline = 0.0
    try:
        for name, (options, writes) in modes.items():
            runs = [write(root, options, writes) for _ in range(args.repeat)]
            wall, cpu, slowest = min(runs, key=lambda run: run[1])
            per_write = 1e6 * cpu / writes
            baseline = baseline or per_write
            ratio = per_write / baseline
            print(f"{name:<34}{writes / wall:>12,.0f}{per_write:>12.1f}{ratio:>8.2f}{1e3 * slowest:>12.1f}", flush=True)
        come_back(root / "plain", args.writes)
        by_sqlite(root, args.writes)
    finally:
        shutil.rmtree(root)


def write(root: Path, options: dict[str, Any], writes: int) -> tuple[float, float, float]:
    """Return wall time, the server's CPU time, and the longest time between two answers; all in seconds."""
    from cassandra.concurrent import execute_concurrent_with_args

    if "data_dir" in options:
        shutil.rmtree(options["data_dir"], ignore_errors=True)
    with EmbeddedScyllaProcess(**options) as server:
        session = server.connect()
        session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {REPLICATION}")
        session.execute(
            f"CREATE TABLE {KEYSPACE}.orders (pk int, ck int, v text, n bigint, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true}"
        )
        insert = session.prepare(f"INSERT INTO {KEYSPACE}.orders (pk, ck, v, n) VALUES (?, ?, ?, ?)")
        rows: Iterator[Any] = ((i % 997, i, f"order number {i}", i) for i in range(writes))
        cpu, start = cpu_of(server.pid), time.perf_counter()
        last, slowest = start, 0.0
        for ok, result in execute_concurrent_with_args(session, insert, rows, concurrency=16, results_generator=True):
            if not ok:
                raise result
            now = time.perf_counter()
            last, slowest = now, max(slowest, now - last)
        return last - start, cpu_of(server.pid) - cpu, slowest


def come_back(path: Path, writes: int) -> None:
    """Print how long a server takes to start with what the run before has left, after a kill."""
    size = sum(file.stat().st_size for file in path.iterdir())
    start = time.perf_counter()
    with EmbeddedScyllaProcess() as server:
        empty = time.perf_counter() - start
        server.kill()
    start = time.perf_counter()
    with EmbeddedScyllaProcess(data_dir=path) as server:
        took = time.perf_counter() - start
        session = server.connect()
        found = session.execute(f"SELECT count(*) FROM {KEYSPACE}.orders").one()[0]
        server.kill()
        session.cluster.shutdown()
    if found != writes:
        raise SystemExit(f"{found} rows came back, {writes} were written")
    rate = writes / max(took - empty, 1e-9)
    print(f"start with {size / 1e6:.1f} MB: {took:.2f} s, of which {empty:.2f} s without any; {rate:,.0f} writes/s")


def by_sqlite(root: Path, writes: int) -> None:
    """Print what SQLite takes for as many rows of a base table and its log, in the fastest of its safe settings."""
    base, log = os.urandom(60), os.urandom(110)
    with sqlite3.connect(root / "reference.db", isolation_level=None) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # a killed process loses nothing, as in the data directory
        for table in ("base", "log"):
            database.execute(f"CREATE TABLE {table} (token INTEGER, pk BLOB, ck BLOB, row BLOB, PRIMARY KEY (pk, ck))")
        cpu = time.process_time()
        for i in range(writes):
            key, clustering = (i % 997).to_bytes(4, "big"), i.to_bytes(4, "big")
            database.execute("BEGIN")
            database.execute("INSERT OR REPLACE INTO base VALUES (?, ?, ?, ?)", (i, key, clustering, base))
            database.execute("INSERT OR REPLACE INTO log VALUES (?, ?, ?, ?)", (i, key, clustering, log))
            database.execute("COMMIT")
        cpu = time.process_time() - cpu
    database.close()
    print(f"SQLite alone (WAL, synchronous off): {1e6 * cpu / writes:.1f} us a write of the same bytes")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
