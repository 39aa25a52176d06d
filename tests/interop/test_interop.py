"""What other languages' drivers and Scylla's own CDC libraries make of the embedded server.

A program in Go or Rust creates tables, writes to them and reads their logs through its CDC library. It has to get the
rows that Scylla's rules give, and those that rscylla delivers.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from interop_rows import IMAGES, MANY_ROWS, MORE_PARTITIONS, THINGS
from interop_values import plain, printed

import rscylla
from rscylla.embedded import EmbeddedScylla

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

SCHEMA = (Path(__file__).parent / "schema.cql").read_text()
TABLES = ("things", "images", "many")
DELAY = timedelta(milliseconds=300)
RUN_S = 120

Row = dict[str, Any]
Rows = dict[str, list[Row]]


@attrs.frozen
class World:
    """What was written, as two readers saw it: log rows by base table, those of one stream in its order."""

    peer: Rows
    ours: Rows
    model: str


# "upgraded" starts as 4.3, and its reader finds both generations in the tables of 4.4. The Go library asks for a system
# table that 4.3 lacks, and the Rust one does not know the description table of 4.3, so neither can read 4.3 itself.
WORLDS = [("go", "vnodes"), ("go", "tablets"), ("rust", "vnodes"), ("rust", "tablets"), ("rust", "upgraded")]


@pytest.fixture(scope="module", params=WORLDS, ids="-".join)
def world(request: pytest.FixtureRequest, peer_program: Callable[[str], Path]) -> Iterator[World]:
    """A cluster on which a peer wrote before and after a switch of streams, and then read."""
    language, model = request.param
    program = peer_program(language)
    with ExitStack() as stack:
        old = model == "upgraded"
        scylla = stack.enter_context(EmbeddedScylla(nodes=3, version="4.3" if old else None))
        since = str(_now_ms() - 1000)
        tablets = "" if old else f" AND tablets = {{'enabled': {str(model == 'tablets').lower()}}}"
        scylla.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
            + tablets
        )
        peer = _Peer(program, scylla)
        peer.run("write", given=SCHEMA)
        _switch_streams(scylla, model)
        peer.run("more", str(_now_ms() + DELAY // timedelta(milliseconds=1)))
        rows = peer.read(since)
        session = rscylla.connect([f"{host}:{scylla.port}" for host in scylla.contact_points])
        stack.callback(session.cluster.shutdown)
        yield World(rows, {table: _delivered(session, table) for table in TABLES}, model)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _switch_streams(scylla: EmbeddedScylla, model: str) -> None:
    """Let other streams be written to after DELAY."""
    if model == "upgraded":
        scylla.upgrade()
    if model == "tablets":
        for table in TABLES:
            scylla.split_tablets("ks", table, DELAY)
    else:
        scylla.new_generation(DELAY)


@attrs.frozen
class _Peer:
    program: Path
    scylla: EmbeddedScylla

    def run(self, *command: str, given: str = "") -> str:
        address = (self.scylla.contact_points[0], str(self.scylla.port), "ks")
        done = subprocess.run(
            [self.program, *address, *command], input=given, capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    def read(self, since: str) -> Rows:
        rows: Rows = {table: [] for table in TABLES}
        for line in self.run("read", since, "2", given=" ".join(TABLES)).splitlines():
            found = json.loads(line, object_hook=printed)
            rows[found["table"]].append(_with_lists(found["row"]))
        return rows


def _delivered(session: rscylla.Session, table: str) -> list[Row]:
    """Return the rows that rscylla delivers."""
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
    client = rscylla.NewStream(session, "ks", table, granularity="row")("", rscylla.StreamLag(milliseconds=50), until)
    rows: list[Row] = []
    try:
        while True:
            event = client.recv()
            if isinstance(event, rscylla.ChangeEvent):
                rows.append(_with_lists({name: plain(value) for name, value in event.row.items()}))
    except rscylla.HeadReached:
        return rows
    finally:
        client.close()


def _by_stream(rows: list[Row]) -> dict[str, list[Row]]:
    streams: dict[str, list[Row]] = {}
    for row in rows:
        streams.setdefault(row["cdc$stream_id"], []).append(row)
    return streams


def _by_partition(rows: list[Row]) -> dict[int, list[Row]]:
    """Return the rows of each base partition in the order of their times, without what differs from run to run."""
    partitions: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda r: (uuid.UUID(r["cdc$time"]).time, r["cdc$batch_seq_no"])):
        short = {name.removeprefix("cdc$"): value for name, value in row.items()}
        for name in ("stream_id", "time", "batch_seq_no", "end_of_batch"):
            short.pop(name, None)
        if "deleted_elements_steps" in short:
            short["deleted_elements_steps"] = len(short["deleted_elements_steps"][1])
        partitions.setdefault(short.pop("pk"), []).append(short)
    return partitions


def _with_lists(row: Row) -> Row:
    """Return the row with the list as a list. In a log it is a map from timeuuids, which tell the order, to values."""
    match row:
        case {"steps": ("map", cells)}:
            order = sorted((uuid.UUID(key).time, uuid.UUID(key).bytes[8:], value) for key, value in cells)
            return {**row, "steps": [value for *_, value in order]}
    return row


@pytest.mark.parametrize(("table", "expected"), [("things", THINGS), ("images", IMAGES)], ids=["things", "images"])
def test_a_peer_gets_the_rows_that_scylla_would_give(world: World, table: str, expected: dict[int, list[Row]]) -> None:
    assert _by_partition(world.peer[table]) == expected


@pytest.mark.parametrize("table", TABLES)
def test_a_peer_gets_what_rscylla_delivers(world: World, table: str) -> None:
    assert world.peer[table]
    assert _by_stream(world.peer[table]) == _by_stream(world.ours[table])


def test_a_peer_gets_each_row_of_many_pages_once(world: World) -> None:
    first = [row["ck"] for row in world.peer["many"] if row["ck"] >= 0]
    assert first == list(range(MANY_ROWS))


def test_a_peer_follows_a_switch_of_streams(world: World) -> None:
    later = [row for row in world.peer["many"] if row["ck"] < 0]
    before = [row for row in world.peer["many"] if row["ck"] >= 0]
    assert sorted(row["pk"] for row in later) == list(range(MORE_PARTITIONS))
    assert not set(_by_stream(later)) & set(_by_stream(before))
    # The batches went to one partition; these go all over the ring.
    assert len(_by_stream(before)) == 1
    assert len(_by_stream(later)) > 1


def test_a_record_ends_with_its_last_row(world: World) -> None:
    for rows in _by_stream(world.peer["things"] + world.peer["images"]).values():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            goes_on = following is not None and following["cdc$time"] == row["cdc$time"]
            assert row.get("cdc$end_of_batch") is (None if goes_on else True)
