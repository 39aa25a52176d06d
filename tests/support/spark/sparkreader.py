"""Calls the data source as Spark does, without Spark: batches, and queries with their checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import attrs
import pytest
from draining import changes_of
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict

import rscylla
from rscylla.embedded import EmbeddedScylla
from rscylla.spark.session.session import close_sessions
from rscylla.spark.source import planning, reading, source
from rscylla.spark.source.source import KeepingStreamReader, ScyllaCdcDataSource, StreamReader
from rscylla.spark.source.versions import ReadAllAvailable, ReadLimit
from rscylla.testing import ManualClock

ALL = ReadAllAvailable()
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"

OF_BOTH_KINDS = pytest.mark.parametrize("world", ["vnodes", "tablets"], indirect=True)
"""For tests in which streams come and go, or are counted; others have tablets."""

Row = dict[str, Any]


@attrs.define
class World:
    """A server on a driven clock with one table, and the data source on it."""

    scylla: EmbeddedScylla
    clock: ManualClock
    session: rscylla.Session
    written: int = 0

    def write(self, count: int, *, every: timedelta = timedelta()) -> None:
        for _ in range(count):
            self.session.execute(f"INSERT INTO ks.t (pk, ck, v) VALUES ({self.written % 7}, {self.written}, 1)")
            self.written += 1
            self.clock.advance(every.total_seconds())

    def source(self, **more: object) -> ScyllaCdcDataSource:
        options = {
            "contactPoints": f"{self.scylla.contact_points[0]}:{self.scylla.port}",
            "keyspace": "ks",
            "table": "t",
            "lag": "30s",
            "consistency": "ONE",
            "parallelism": "3",
        }
        return ScyllaCdcDataSource(CaseInsensitiveDict({**options, **{n: str(v) for n, v in more.items()}}))

    def stream(self, **more: object) -> StreamReader:
        source = self.source(**more)
        reader = source.streamReader(schema=source.schema())
        assert isinstance(reader, StreamReader)
        return reader

    def batch(self, **more: object) -> list[Row]:
        """Return the rows of a batch, sorted by where they are in the log."""
        source = self.source(**more)
        reader = source.reader(schema=source.schema())
        return rows_of(reader, reader.partitions())

    def events(self, after: str = "") -> list[rscylla.ChangeEvent]:
        stream = rscylla.NewStream(self.session, "ks", "t", clock=self.clock)
        client = stream(after, rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
        try:
            return changes_of(client)
        finally:
            client.close()


def rows_of(reader: Any, partitions: list[Any]) -> list[Row]:
    """Read the partitions as executors do: reader and partition come there pickled."""
    rows: list[Row] = []
    for partition in partitions:
        read, given = cloudpickle.loads(cloudpickle.dumps((reader.read, partition)))
        for batch in read(given):
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: (row.get("cdc_sequence") or b"", repr(row)))


@contextmanager
def world_of(monkeypatch: pytest.MonkeyPatch, *, tablets: bool) -> Iterator[World]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, tablets=tablets, seed=5) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE ks WITH replication = {NETWORK}")
        session.execute(
            "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true, 'ttl': 3600}"
        )
        for module in (planning, reading):
            monkeypatch.setattr(module, "SystemClock", lambda: clock)
        # ``Query`` calls readers as PySpark from 4.2 on does, whichever is installed; see ``QueryWithoutStarts``.
        monkeypatch.setattr(source, "PASSES_LIMITS", True)
        yield World(scylla, clock, session)
        close_sessions()


def switch(world: World) -> None:
    """Start a new generation ten seconds from now, and advance the clock past it."""
    model = rscylla.NewStream(world.session, "ks", "t", clock=world.clock).describe().topology.model
    if model == "tablets":
        world.scylla.split_tablets("ks", "t", timedelta(seconds=10))
    else:
        world.scylla.new_generation(timedelta(seconds=10))
    world.clock.advance(11)


def passed_through_a_checkpoint(offset: Row) -> Row:
    text = json.dumps(offset)
    assert len(text) < 320
    return json.loads(text)  # type: ignore[no-any-return]


def sequences(rows: list[Row]) -> list[bytes]:
    return [row["cdc_sequence"] for row in rows]


def positions(events: list[rscylla.ChangeEvent]) -> list[bytes]:
    return [event.position for event in events]


@attrs.define
class Query:
    """Calls a reader as Spark does, and keeps what Spark keeps: the end of each batch, and how many are done.

    Until a batch is done Spark asks for the initial offset each time it needs one, also after a restart.
    """

    world: World
    reader: StreamReader
    ends: list[str] = attrs.field(factory=list)
    done: int = 0
    rows: list[Row] = attrs.field(factory=list)
    replayed: dict[int, list[Row]] = attrs.field(factory=dict)

    def restart(self, reader: StreamReader, *, available_now: bool = False) -> None:
        self.reader = reader
        if available_now:
            reader.prepareForTriggerAvailableNow()

    def run_batch(self, limit: ReadLimit = ALL, *, fails: bool = False) -> bool:
        """Run the batch that is planned, or plan one; return False when nothing is new."""
        if len(self.ends) == self.done:
            start = self._start()
            end = self.reader.latestOffset(start, limit)
            if self.ends and json.dumps(end) == self.ends[-1]:
                return False
            self.ends.append(json.dumps(end))
        end = json.loads(self.ends[self.done])
        assert len(self.ends[self.done]) < 460
        rows = self.read(self.reader.partitions(self._start(), end))
        assert self.replayed.setdefault(self.done, rows) == rows
        if not fails:
            self.rows += rows
            self.done += 1
        return True

    def read(self, partitions: list[Any]) -> list[Row]:
        return rows_of(self.reader, partitions)

    def _start(self) -> Row:
        self.world.clock.advance(0.003)
        return json.loads(self.ends[self.done - 1] if self.done else json.dumps(self.reader.initialOffset()))  # type: ignore[no-any-return]


class QueryWithoutStarts(Query):
    """Calls a reader as PySpark 4.1 does: it passes neither the start of a batch nor a limit."""

    def restart(self, reader: StreamReader, *, available_now: bool = False) -> None:
        assert isinstance(self.reader, StreamReader)
        schema = reader._span_read.schema
        self.reader = KeepingStreamReader(reader._options, schema)
        if self.ends:
            last = json.loads(self.ends[-1])
            assert self.reader.partitions(last, json.loads(self.ends[-1])) == []

    def run_batch(self, limit: ReadLimit = ALL, *, fails: bool = False) -> bool:
        if len(self.ends) == self.done:
            # The initial offset is asked for when the batch is planned, which is later.
            self.world.clock.advance(0.003)
            end = json.dumps(self.reader.latestOffset())  # type: ignore[call-arg]
            if self.ends and end == self.ends[-1]:
                return False
            self.ends.append(end)
        return super().run_batch(limit, fails=fails)


def alter(world: World, ttl_s: int, comment: str = "") -> None:
    """Alter the TTL; a *comment* of its own shows that something was altered although the TTL may be as it was."""
    world.session.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {ttl_s}}} AND comment = '{comment}'")


def about(us: int) -> Any:
    """Equal to times that are *us* but for the milliseconds that planning takes."""
    return pytest.approx(us, abs=10_000)


def planned(world: World, **options: Any) -> tuple[Any, list[Any]]:
    source = world.source(**options)
    reader = source.reader(schema=source.schema())
    return reader, reader.partitions()
