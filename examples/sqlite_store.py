"""A custom cursor store: cursors in a SQLite file, for services on one machine. It uses public names only.

Implements ``rscylla.abc.CursorStore`` and ``CursorAdmin``, and passes ``rscylla.testing.contracts``. As a program it
runs a consumer twice, which continues where it was. On the command line, with this folder as the working directory:

    rscylla cursor list --store sqlite_store:open_store
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import rscylla
from cursorstore import CursorCodec, EventCursorCodec
from rscylla.abc import CursorRecord
from rscylla.errors import CursorRegression

SCHEMA = """CREATE TABLE IF NOT EXISTS cursors (
    consumer TEXT, epoch INTEGER, position TEXT, updated TEXT, reason TEXT, PRIMARY KEY (consumer, epoch)
)"""

LAST = "SELECT consumer, epoch, position, updated, reason FROM cursors WHERE consumer = ? ORDER BY epoch DESC"

Row = tuple[str, int, str, str, str]


class SqliteCursorStore:
    """Cursors in the file *path*, which processes of one machine may share. Thread-safe; each save is a transaction.

    A reset opens a new epoch, and consumers work in the epoch in which they read their cursor. *codec* turns cursors
    into positions that sort as text, which is how two cursors are compared.
    """

    def __init__(self, path: str | Path, *, codec: CursorCodec | None = None) -> None:
        self._codec = codec or EventCursorCodec()
        self._lock = threading.Lock()
        self._epochs: dict[str, int] = {}  # consumer -> the epoch in which it works
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute(SCHEMA)

    def get_cursor(self, consumer: str) -> str:
        with self._reading(consumer) as row:
            self._epochs[consumer] = row[1]
        return self._codec.decode(row[2])

    def set_cursor(self, consumer: str, cursor: str) -> None:
        position = self._codec.encode(cursor)
        with self._reading(consumer) as (_, epoch, saved, _, reason):
            if self._epochs.setdefault(consumer, epoch) != epoch:
                raise rscylla.CursorConflict(f"the cursor of consumer {consumer!r} was reset; read it again")
            if self._codec.sort_key(position) < self._codec.sort_key(saved):
                raise CursorRegression(
                    f"the cursor of consumer {consumer!r} is lower than the saved one; reset the cursor to "
                    "move it back on purpose",
                    consumer=consumer,
                    stored=self._codec.decode(saved),
                    given=cursor,
                )
            if position > saved:
                self._save(consumer, epoch, position, reason)

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        return next(iter(self.cursor_history(consumer)), None)

    def list_cursors(self) -> list[CursorRecord]:
        with self._lock:
            names = self._db.execute("SELECT DISTINCT consumer FROM cursors ORDER BY consumer").fetchall()
        return [record for (name,) in names if (record := self.find_cursor(name)) is not None]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        check(consumer)
        with self._lock:
            return [self._record(row) for row in self._db.execute(LAST, (consumer,))]

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        if not reason.strip():
            raise rscylla.ConfigError("a reset requires a reason, which is recorded with it")
        position = self._codec.encode(cursor)
        with self._reading(consumer) as (_, epoch, *_):
            self._save(consumer, epoch + 1, position, reason)

    @contextmanager
    def _reading(self, consumer: str) -> Iterator[Row]:
        """Yield the newest row of *consumer*, in a transaction that keeps other processes from writing."""
        check(consumer)
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db.execute(LAST, (consumer,)).fetchone() or (consumer, 0, "", "", "")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _save(self, consumer: str, epoch: int, position: str, reason: str) -> None:
        values = consumer, epoch, position, datetime.now(UTC).isoformat(), reason
        self._db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?, ?)", values)

    def _record(self, row: Row) -> CursorRecord:
        consumer, epoch, position, updated, reason = row
        return CursorRecord(consumer, self._codec.decode(position), epoch, datetime.fromisoformat(updated), reason)


def check(consumer: str) -> None:
    if not consumer:
        raise rscylla.ConfigError("a consumer needs a name")


def open_store() -> SqliteCursorStore:
    """Return the store in the file that CURSORS_DB names: what ``rscylla --store`` calls."""
    return SqliteCursorStore(os.environ.get("CURSORS_DB", "cursors.db"))


def main() -> None:
    from rscylla.embedded import EmbeddedScylla

    parser = argparse.ArgumentParser(description="Run a consumer twice, with its cursor in a SQLite file.")
    parser.add_argument("--embedded", action="store_true", required=True, help="on a server of its own")
    parser.add_argument("--db", default=":memory:", help="file of the cursors")
    store = SqliteCursorStore(parser.parse_args().db)
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, state text) WITH cdc = {'enabled': true}")
        for n in (1, 2):
            session.execute("INSERT INTO shop.orders (id, state) VALUES (%s, 'new')", (n,))
            consumer = rscylla.Consumer("billing", lambda event, run, n=n: print(f"run {n}:", event.foreign_id))
            until_now = rscylla.StreamUntil(datetime.now(UTC))
            stream = rscylla.NewStream(session, "shop", "orders")
            rscylla.run_forever(rscylla.Spec(stream, store, consumer, rscylla.StreamLag(milliseconds=100), until_now))
    store.close()


if __name__ == "__main__":
    main()
