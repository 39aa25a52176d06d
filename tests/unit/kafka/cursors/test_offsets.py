"""Offsets of the Java connector, from a file that Java wrote, and the cursors that continue after them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from connectorcases import START_US, cases, play
from draining import changes_of

import rscylla
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import ConfigError, CursorError, CursorExpired, InvalidCursor
from rscylla.kafka.cursors.offsets import (
    TABLET_TASKS,
    Entries,
    TaskOffset,
    connectors_of,
    offsets_of,
    read_file,
    take_over,
)
from rscylla.testing import ManualClock

RECORDED = Path(__file__).with_name("connect-offsets.bin")
"""Written by Connect's own FileOffsetBackingStore: the last offsets of three recorded cases, each a connector, and the
deleted offset of a fourth. tests/kafka/test_offsets.py writes such files anew."""

CASES = ("vnodes-two-tasks", "tablets", "windows", "batches-legacy-preimages", "restart-mid-batch-legacy")


@attrs.frozen
class Played:
    """A case on a server of ours: the same stream ids and times as where the connector was recorded."""

    name: str
    session: Any
    clock: ManualClock
    lines: list[dict[str, Any]]
    """What the connector delivered, in its order, as far as it is of rows."""

    def stream(self, table: str) -> rscylla.Stream:
        return rscylla.NewStream(self.session, *table.split("."), clock=self.clock)

    @property
    def tables(self) -> list[str]:
        return sorted({table_of(line) for line in self.lines})


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Played]]:
    with ExitStack() as stack:
        found = {}
        for name in CASES:
            case = cases()[name]
            options = json.loads(case.files["server.json"])
            clock = ManualClock(START_US)
            kept = {k: v for k, v in options.items() if k in ("shards", "vnodes", "seed")}
            scylla = stack.enter_context(EmbeddedScylla(clock=clock, **kept))
            session = scylla.connect()
            for statement in case.files["schema.cql"].splitlines():
                session.execute(statement)
            play(scylla, session, clock, case.files["statements.cql"])
            clock.advance(60)
            text = case.files.get("first.jsonl", "") + case.files["records.jsonl"]
            lines = [json.loads(line) for line in text.splitlines()]
            changes = [line for line in lines if line["value"] is not None and "source" in line["value"]]
            found[name] = Played(name, session, clock, changes)
        yield found


@pytest.fixture(params=CASES)
def played(servers: dict[str, Played], request: pytest.FixtureRequest) -> Played:
    return servers[request.param]


def table_of(line: dict[str, Any]) -> str:
    return f"{line['source_partition']['keyspace_name']}.{line['source_partition']['table_name']}"


def time_of(line: dict[str, Any]) -> int:
    return int(json.loads(line["value"])["source"]["ts_us"])


def entries_of(lines: list[dict[str, Any]], connector: str = "scylla") -> Entries:
    """Return what Connect stores when the records of *lines* are acknowledged."""
    found: dict[bytes, bytes | None] = {}
    for line in lines:
        key = json.dumps([connector, line["source_partition"]]).encode()
        found[key] = json.dumps(line["source_offset"]).encode()
    return found


def times_after(stream: rscylla.Stream, cursor: str) -> list[int]:
    client = stream(cursor, rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
    try:
        return [event.timestamp_us for event in changes_of(client)]
    finally:
        client.close()


# ---------------------------------------------------------------- what is delivered after a takeover


@pytest.mark.slow
def test_nothing_is_lost_wherever_the_connector_stopped(played: Played) -> None:
    for table in played.tables:
        lines = [line for line in played.lines if table_of(line) == table]
        stream = played.stream(table)
        for delivered in range(1, len(lines) + 1):
            taken = take_over(stream, offsets_of(entries_of(lines[:delivered]), "scylla"))
            again = times_after(stream, taken.cursor)
            assert {time_of(line) for line in lines[delivered:]} <= set(again)
            # What comes again is exactly what was written from the time that the takeover names.
            everything = times_after(stream, "")
            assert again == [time for time in everything if time >= taken.time_us]
            assert all(time_of(line) <= taken.reached_us for line in lines[:delivered])


def test_a_task_with_one_stream_continues_at_its_last_change(servers: dict[str, Played]) -> None:
    played = servers["restart-mid-batch-legacy"]
    [table] = played.tables
    last = played.lines[5]
    taken = take_over(played.stream(table), offsets_of(entries_of([last]), "scylla"))
    assert taken.time_us == time_of(last) == taken.reached_us
    assert (taken.tasks, taken.known) == (1, 1)


def test_a_task_with_several_streams_continues_at_the_start_of_its_window(servers: dict[str, Played]) -> None:
    # It reads one stream of the window after the other, so changes of other streams before the last one may lack.
    played = servers["tablets"]
    table = played.tables[0]
    last = [line for line in played.lines if table_of(line) == table][-1]
    taken = take_over(played.stream(table), offsets_of(entries_of([last]), "scylla"))
    assert taken.time_us < taken.reached_us
    assert len(played.stream(table).describe().streams(taken.generation)) > 1


def test_the_lowest_task_decides(servers: dict[str, Played]) -> None:
    played = servers["vnodes-two-tasks"]
    table = played.tables[0]
    source = played.stream(table).describe()
    [generation] = source.generations
    start_us = generation.start_us
    offsets = [task(played, table, generation, number, start_us + number * 10_000_000) for number in range(4)]
    assert take_over(played.stream(table), offsets[1:]).time_us == start_us  # one has read nothing yet
    taken = take_over(played.stream(table), [attrs.evolve(offsets[0], window_us=start_us + 7_000_000), *offsets[1:]])
    assert (taken.time_us, taken.reached_us) == (start_us + 7_000_000, start_us + 30_000_000)


def task(played: Played, table: str, generation: Any, number: int, window_us: int) -> TaskOffset:
    keyspace, name = table.split(".")
    return TaskOffset(keyspace, name, generation, number, window_us, window_us + 1000, None)


# ---------------------------------------------------------------- generations


def of(generation: Any, number: int, window_us: int) -> TaskOffset:
    return TaskOffset("ks", "t", generation, number, window_us, window_us + 30_000_000, None)


@pytest.fixture
def two_generations() -> Iterator[tuple[rscylla.Stream, list[Any]]]:
    clock = ManualClock(START_US)
    with EmbeddedScylla(clock=clock, vnodes=2, shards=2, seed=3) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        clock.advance(60)
        scylla.new_generation()
        clock.advance(300)
        stream = rscylla.NewStream(session, "ks", "t", clock=clock)
        yield stream, list(stream.describe().generations)


def test_a_generation_that_is_done_leads_to_the_next(two_generations: tuple[rscylla.Stream, list[Any]]) -> None:
    stream, [first, second] = two_generations
    old = [of(first, number, second.start_us + 1000) for number in range(2)]
    taken = take_over(stream, old)
    assert (taken.generation, taken.time_us, taken.known) == (second, second.start_us, 0)
    new = [of(second, number, second.start_us + 5_000_000 * (1 + number)) for number in range(2)]
    taken = take_over(stream, [*old, *new])
    assert (taken.generation, taken.time_us, taken.known) == (second, second.start_us + 5_000_000, 2)


def test_a_generation_that_is_not_done_is_finished_first(two_generations: tuple[rscylla.Stream, list[Any]]) -> None:
    stream, [first, second] = two_generations
    states = [of(first, 0, second.start_us + 1000), of(first, 1, first.start_us + 9_000_000)]
    taken = take_over(stream, states)
    assert (taken.generation, taken.time_us) == (first, first.start_us + 9_000_000)
    # All are past the end but one, which is right at it: as the connector, and so nothing is left out.
    states[1] = attrs.evolve(states[1], window_us=second.start_us)
    assert take_over(stream, states).generation == first


# ---------------------------------------------------------------- fast clocks


@pytest.mark.parametrize("ahead_s", [1, 20, 3600, 86_400 * 365])
def test_an_offset_of_a_fast_clock_passes_nothing_over(
    two_generations: tuple[rscylla.Stream, list[Any]], ahead_s: int
) -> None:
    stream, [first, second] = two_generations
    now_us = stream.describe().now_us()
    at_us = now_us + ahead_s * 1_000_000
    change = attrs.evolve(of(second, 1, at_us), change_us=at_us + 5_000_000)
    taken = take_over(stream, [*(of(first, n, at_us) for n in range(2)), of(second, 0, at_us), change])
    assert (taken.generation, taken.time_us) == (second, now_us - 30_000_000)
    assert taken.time_us <= taken.reached_us <= now_us
    assert taken.ahead_us == ahead_s * 1_000_000
    late_us = taken.time_us + 1
    stream.session.execute(f"INSERT INTO ks.t (pk, v) VALUES (7, 7) USING TIMESTAMP {late_us}")
    stream.session.execute("INSERT INTO ks.t (pk, v) VALUES (8, 8)")
    stream.clock.advance(60)  # type: ignore[union-attr]
    assert len(times_after(stream, taken.cursor)) == 2


def test_an_offset_of_a_generation_that_has_not_begun_passes_nothing_over(
    two_generations: tuple[rscylla.Stream, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, [first, second] = two_generations
    source = stream.describe()
    monkeypatch.setattr(type(source.node_clocks), "slowest_us", lambda self: second.start_us - 5_000_000)
    taken = take_over(stream, [of(second, number, second.start_us + 1000) for number in range(2)])
    assert (taken.generation, taken.time_us) == (first, first.start_us)
    old = [of(first, number, second.start_us + 1000) for number in range(2)]
    assert take_over(stream, old).time_us == second.start_us - 35_000_000


# ---------------------------------------------------------------- connectors that were upgraded


@pytest.fixture
def tablets() -> Iterator[tuple[EmbeddedScylla, rscylla.Stream, Any]]:
    clock = ManualClock(START_US)
    with EmbeddedScylla(clock=clock, shards=2, seed=3) as scylla:
        session = scylla.connect()
        tablets = "AND tablets = {'enabled': true}"
        strategy = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE ks WITH replication = {strategy} {tablets}")
        session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        clock.advance(300)
        yield scylla, rscylla.NewStream(session, "ks", "t", clock=clock), clock


def test_offsets_of_all_tablets_and_of_each_are_taken_together(
    tablets: tuple[EmbeddedScylla, rscylla.Stream, Any],
) -> None:
    _, stream, _ = tablets
    source = stream.describe()
    [generation] = source.generations
    count, start_us = len(source.streams(generation)), generation.start_us
    assert count > 1
    whole = of(generation, 0, start_us + 10_000_000)  # it stays when a release of 2.1 begins
    each = [of(generation, TABLET_TASKS + n, start_us + (20 + n) * 1_000_000) for n in range(count)]
    taken = take_over(stream, [whole, *each])
    assert (taken.time_us, taken.tasks, taken.known) == (start_us + 20_000_000, count, count)
    taken = take_over(stream, [whole, *each[1:]])  # stopped before each tablet had an offset of its own
    assert (taken.time_us, taken.tasks, taken.known) == (start_us + 10_000_000, count, count)
    taken = take_over(stream, [attrs.evolve(whole, change_us=start_us + 39_000_000), *each[1:]])
    assert taken.time_us == start_us + 10_000_000
    assert taken.reached_us == start_us + 40_000_000  # the end of the window that was read together
    assert take_over(stream, each[1:]).time_us == start_us
    with pytest.raises(InvalidCursor, match=f"for vnode {TABLET_TASKS + count}"):
        take_over(stream, [whole, of(generation, TABLET_TASKS + count, start_us)])


def test_each_generation_has_the_offsets_of_the_release_that_read_it(
    tablets: tuple[EmbeddedScylla, rscylla.Stream, Any],
) -> None:
    scylla, stream, clock = tablets
    scylla.split_tablets("ks", "t")
    clock.advance(300)
    source = stream.describe()
    [first, second] = source.generations
    count = len(source.streams(second))
    new = [of(second, TABLET_TASKS + n, second.start_us + 5_000_000) for n in range(count)]
    taken = take_over(stream, [of(first, 0, second.start_us + 1), *new])
    assert (taken.generation, taken.time_us) == (second, second.start_us + 5_000_000)
    taken = take_over(stream, [of(first, 0, second.start_us - 1_000_000), *new])
    assert (taken.generation, taken.time_us) == (first, second.start_us - 1_000_000)
    both = [of(first, 0, first.start_us + 1), *(of(first, TABLET_TASKS + n, second.start_us + 1) for n in range(2))]
    assert take_over(stream, [*both, *new]).generation == second


# ---------------------------------------------------------------- what does not fit


def test_offsets_of_another_cluster_are_refused(servers: dict[str, Played]) -> None:
    played = servers["vnodes-two-tasks"]
    table = played.tables[0]
    [generation] = played.stream(table).describe().generations
    strange = attrs.evolve(generation, time=generation.time + 77)
    with pytest.raises(InvalidCursor, match="which this cluster does not have; check that they are of this cluster"):
        take_over(played.stream(table), [task(played, table, strange, 0, strange.start_us)])
    with pytest.raises(InvalidCursor, match=r"has an offset of .* for vnode 9, but the CDC generation of .* has 4"):
        take_over(played.stream(table), [task(played, table, generation, 9, generation.start_us)])


def test_offsets_of_another_table_are_refused(servers: dict[str, Played]) -> None:
    played = servers["vnodes-two-tasks"]
    one, other = played.tables
    lines = [line for line in played.lines if table_of(line) == one]
    with pytest.raises(CursorError, match=rf"no offsets of {other}; check its property scylla.table.names"):
        take_over(played.stream(other), offsets_of(entries_of(lines), "scylla"))


def test_what_was_not_delivered_and_has_expired_is_told(two_generations: tuple[rscylla.Stream, list[Any]]) -> None:
    stream, [first, second] = two_generations
    states = [of(first, number, first.start_us + 20_000_000) for number in range(2)]
    stream.clock.advance(86_400 * 2)  # type: ignore[union-attr]
    with pytest.raises(CursorExpired):
        take_over(stream, states)
    # What a task without an offset has not read is as old as the log: as the connector, it begins at the oldest row.
    taken = take_over(stream, states[:1])
    assert taken.time_us == stream.describe().oldest().exact_us > second.start_us


def test_a_name_that_has_no_offsets(servers: dict[str, Played]) -> None:
    entries = entries_of(servers["windows"].lines, "orders")
    with pytest.raises(CursorError, match="'scylla' has no offsets there; there are those of 'orders'"):
        offsets_of(entries, "scylla")
    with pytest.raises(CursorError, match="there are none of any connector"):
        offsets_of({}, "scylla")


def test_offsets_of_another_kind_of_connector_are_refused() -> None:
    entries = {b'["jdbc",{"table":"t"}]': b'{"incrementing":7}'}
    assert connectors_of(entries) == ["jdbc"]
    with pytest.raises(InvalidCursor, match="not one of the Scylla CDC source connector"):
        offsets_of(entries, "jdbc")


# ---------------------------------------------------------------- the file


def test_a_file_of_connect_itself() -> None:
    entries = read_file(RECORDED)
    assert connectors_of(entries) == ["tablets", "vnodes-two-tasks", "windows"]
    for name in connectors_of(entries):
        lines = [json.loads(line) for line in cases()[name].files["records.jsonl"].splitlines()]
        expected = offsets_of(entries_of(lines, name), name)
        assert sorted(offsets_of(entries, name), key=repr) == sorted(expected, key=repr)
    assert [key for key, value in entries.items() if value is None] == [
        key for key in entries if key.startswith(b'["gone"')
    ]


def test_any_part_of_a_file_is_no_file(tmp_path: Path) -> None:
    data = RECORDED.read_bytes()
    damaged = tmp_path / "offsets"
    for size in (*range(0, 400, 7), *range(400, len(data), 997), len(data) - 1):
        damaged.write_bytes(data[:size])
        with pytest.raises(ConfigError, match="is not an offset file of Kafka Connect"):
            read_file(damaged)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_file(tmp_path / "none")
    text = tmp_path / "text"
    text.write_text("offsets\n")
    with pytest.raises(ConfigError, match=r"give the file that the worker's property offset\.storage\.file\.filename"):
        read_file(text)
