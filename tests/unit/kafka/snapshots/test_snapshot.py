"""Snapshots of base tables on an embedded server: which rows they have, and that changes continue after them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, reslice_cursors
from cursorstore.cursors.reslice import reslice_started
from rscylla.abc import CursorRecord, Message, PublishDone
from rscylla.driver.session import ReadSession
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import ConfigError, InvalidCursor, PublishRejected, RunError
from rscylla.kafka.cursors.positions import lane_names
from rscylla.kafka.snapshots.snapshot import Mode, Position, Snapshots, request, snapshot_name
from rscylla.publish import DebeziumMessages, publishing
from rscylla.reflex import slice_name
from rscylla.testing import ManualClock

CONSUMER = "demo.ks.t"
LAG = timedelta(seconds=30)
PROPERTIES = {
    "topic.prefix": "demo",
    "cdc.output.format": "advanced",
    "cdc.include.after": "full",
    "cdc.include.before": "none",
    "cdc.include.primary-key.placement": "kafka-key,payload-after,payload-before",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


class Sink:
    """Acknowledges at once, and calls ``on_publish`` before it takes records."""

    def __init__(self) -> None:
        self.records: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
        self.on_publish: Callable[[Sequence[Message]], None] = lambda messages: None

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        self.on_publish(messages)
        for message in messages:
            self.records.append((json.loads(message.key or b"{}"), json.loads(message.value or b"null")))
        done(None)

    def flush(self, timeout_s: float) -> bool:
        return True

    def abandon(self) -> None: ...
    def trouble(self) -> str:
        return ""

    def close(self) -> None: ...

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [value for _, value in self.records if value is not None and value["op"] == "r"]

    @property
    def marks(self) -> list[str]:
        return [value["source"]["snapshot"] for value in self.rows]


class Bench:
    """A table, the snapshots of it, and what follows."""

    def __init__(self, clock: ManualClock, session: rscylla.Session) -> None:
        self.clock = clock
        self.session = session
        self.sink = Sink()
        self.store = MemoryCursorStore()
        self.stop = rscylla.Stop()

    def table(self, columns: str = "pk int PRIMARY KEY, v int") -> None:
        self.session.execute(
            f"CREATE TABLE ks.t ({columns}) WITH cdc = {{'enabled': true, 'preimage': true, 'postimage': true}}"
        )
        self.clock.advance(60)

    def cql(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement)

    def stream(self) -> rscylla.Stream:
        return rscylla.NewStream(self.session, "ks", "t", clock=self.clock)

    def snapshots(self, mode: Mode = "initial", **more: Any) -> Snapshots:
        return Snapshots(PROPERTIES, self.sink, mode, LAG, **more)

    def take(self, mode: Mode = "initial", *, part: tuple[int, int] = (0, 1), **more: Any) -> bool:
        stream = self.stream().sliced(*part)
        return self.snapshots(mode, **more).before(stream, self.store, slice_name(CONSUMER, *part), self.stop)

    def follow(self) -> None:
        """Publish the changes up to now."""
        self.clock.advance(LAG + timedelta(seconds=5))
        consumer = publishing(CONSUMER, DebeziumMessages(PROPERTIES, clock=self.clock), self.sink)
        spec = rscylla.Spec(
            self.stream(),
            self.store,
            consumer,
            rscylla.StreamLag(seconds=LAG.total_seconds()),
            rscylla.StreamToHead(),
            clock=self.clock,
        )
        with pytest.raises(rscylla.HeadReached):
            rscylla.run(spec)

    def replica(self) -> dict[str, Any]:
        """Return the rows that a consumer has who keeps the newest record of each key in the order of arrival."""
        found: dict[str, Any] = {}
        for key, value in self.sink.records:
            name = json.dumps(key)
            if value is None or value["after"] is None:
                found.pop(name, None)
            else:
                found[name] = value["after"]
        return found

    def base(self) -> dict[str, Any]:
        rows = self.session.execute("SELECT * FROM ks.t")
        return {json.dumps({"pk": row.pk}): {"pk": row.pk, "v": row.v} for row in rows}


@pytest.fixture
def bench() -> Iterator[Bench]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, seed=5, shards=2, vnodes=2) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        yield Bench(clock, session)


# ---------------------------------------------------------------- rows


def test_each_row_is_a_record_once(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, {n * 10})" for n in range(57)))
    before_us = bench.clock.now_us()
    assert bench.take(page_rows=5)
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == list(range(57))
    assert all(value["after"]["v"] == value["after"]["pk"] * 10 for value in bench.sink.rows)
    assert [key["pk"] for key, _ in bench.sink.records] == [value["after"]["pk"] for value in bench.sink.rows]
    assert bench.sink.marks == ["first", *["true"] * 55, "last"]
    assert all(value["source"]["ts_us"] >= before_us for value in bench.sink.rows)


def test_static_rows_are_records_of_their_own(bench: Bench) -> None:
    bench.table("pk int, ck int, s text static, v int, PRIMARY KEY (pk, ck)")
    bench.cql(
        "INSERT INTO ks.t (pk, s) VALUES (1, 'alone')",
        "INSERT INTO ks.t (pk, s) VALUES (2, 'with rows')",
        *(f"INSERT INTO ks.t (pk, ck, v) VALUES (2, {n}, {n})" for n in range(7)),
        *(f"INSERT INTO ks.t (pk, ck, v) VALUES (3, {n}, {n})" for n in range(3)),
    )
    bench.take(page_rows=2)
    found = [(key["pk"], key["ck"], value["after"]["s"]) for key, value in bench.sink.records if value is not None]
    assert sorted(found, key=str) == sorted(
        [
            (1, None, "alone"),
            (2, None, "with rows"),
            *((2, n, None) for n in range(7)),
            *((3, n, None) for n in range(3)),
        ],
        key=str,
    )
    of_two = [ck for pk, ck, _ in found if pk == 2]
    assert of_two == [None, *range(7)]  # the static row first, then the order of the table


def test_rows_that_expire_are_there_until_they_do(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1) USING TTL 100", "INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    bench.take()
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == [1, 2]
    bench.clock.advance(200)
    again = Bench(bench.clock, bench.session)
    again.take()
    assert [value["after"]["pk"] for value in again.sink.rows] == [2]


def test_a_table_without_rows(bench: Bench) -> None:
    bench.table()
    assert bench.take()
    assert bench.sink.records == []
    assert bench.take()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    bench.follow()
    assert [value["op"] for _, value in bench.sink.records if value] == ["c"]


def test_slices_have_the_rows_of_their_keys(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(60)))
    parts = []
    for index in range(3):
        bench.sink = Sink()
        bench.take(part=(index, 3))
        parts.append({value["after"]["pk"] for value in bench.sink.rows})
    assert all(parts)
    assert sorted(pk for part in parts for pk in part) == list(range(60))


def test_progress_is_told(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(40)))
    told: list[tuple[Any, ...]] = []
    registry = CollectorRegistry()

    def tell(*progress: Any) -> None:
        told.append((*progress, registry.get_sample_value("rscylla_snapshot_done_ratio", lane)))

    lane = {"consumer_name": f"{CONSUMER}/snapshot"}
    bench.take(page_rows=4, on_progress=tell, options={"registry": registry})
    assert {name for name, *_ in told} == {"ks.t"}
    assert [part for *_, part in told] == [part for _, part, *_ in told]
    parts = [part for _, part, *_ in told]
    assert parts == sorted(parts)
    assert 0 < parts[0] < 0.2
    assert told[-1][1:] == (1.0, 40, 1.0)


@pytest.mark.parametrize("skew_s", [-5, 5])
def test_rows_have_the_time_of_the_slowest_clock(skew_s: int) -> None:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, seed=5, shards=2, vnodes=2) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        bench = Bench(clock, session)
        bench.table()
        bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 0)")
        scylla.faults.skew_clock("127.0.0.1", timedelta(seconds=skew_s))
        bench.take()
        (row,) = bench.sink.rows
        behind_us = max(0, -skew_s) * 1_000_000
        assert row["source"]["ts_us"] == pytest.approx(clock.now_us() - behind_us, abs=10_000)
        scylla.faults.clear()


def test_progress_of_a_slice_says_so(bench: Bench) -> None:
    bench.table()
    told: list[str] = []
    bench.take(part=(1, 2), on_progress=lambda name, *_: told.append(name))
    assert set(told) == {"ks.t[1/2]"}


def test_rows_a_second_are_limited(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    began = bench.clock.monotonic()
    bench.take(rows_per_s=10)
    assert 4.9 <= bench.clock.monotonic() - began <= 5.5
    with pytest.raises(ConfigError, match="at least one row a second"):
        bench.snapshots(rows_per_s=0.5)


# ---------------------------------------------------------------- with the changes


def test_a_snapshot_and_the_changes_after_it_are_the_table(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    writes = iter(range(1, 1000))

    def write(messages: Sequence[Message]) -> None:
        for _ in messages:
            bench.clock.advance(1)
            n = next(writes)
            if n % 5 == 0:
                bench.cql(f"DELETE FROM ks.t WHERE pk = {n * 7 % 60}")
            else:
                bench.cql(f"INSERT INTO ks.t (pk, v) VALUES ({n * 11 % 60}, {n})")

    bench.sink.on_publish = write
    bench.take(page_rows=3)
    bench.sink.on_publish = lambda messages: None
    assert bench.replica() != bench.base()  # the rows alone are of different times
    bench.follow()
    assert bench.replica() == bench.base()


@pytest.mark.parametrize("published", [1, 7, 20, 49])
def test_a_snapshot_that_is_interrupted_continues(bench: Bench, published: int) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))

    class Killed(BaseException):
        pass

    def kill(messages: Sequence[Message]) -> None:
        if len(bench.sink.records) >= published:
            raise Killed

    bench.sink.on_publish = kill
    with pytest.raises(Killed):
        bench.take(page_rows=1)
    began = bench.store.get_cursor(CONSUMER)
    first = [key["pk"] for key, _ in bench.sink.records]
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1000, 1)")
    bench.clock.advance(100)

    bench.sink.on_publish = lambda messages: None
    bench.sink.records.clear()
    assert bench.take(page_rows=1)
    second = [key["pk"] for key, _ in bench.sink.records]
    assert set(range(50)) <= {*first, *second}
    assert not set(first) & set(second)
    assert bench.sink.marks[-1] == "last"
    assert "first" not in bench.sink.marks
    assert bench.store.get_cursor(CONSUMER) == began
    bench.follow()
    assert bench.replica().keys() >= {json.dumps({"pk": 1000})}


def test_rows_of_a_partition_are_published_together_and_not_again(bench: Bench) -> None:
    """In exactly-once mode, a transaction has all of them, and the cursor after them."""
    bench.table("pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck)")
    bench.cql(*(f"INSERT INTO ks.t (pk, ck, v, s) VALUES ({pk}, {ck}, 0, 0)" for pk in range(40) for ck in range(7)))
    calls: list[list[int]] = []

    def kill(messages: Sequence[Message]) -> None:
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append([json.loads(message.key or b"")["pk"] for message in messages])

    bench.sink.on_publish = kill
    with pytest.raises(KeyboardInterrupt):
        bench.take(page_rows=10)
    bench.sink.on_publish = lambda messages: None
    bench.take(page_rows=10)
    keys = [json.dumps(key) for key, _ in bench.sink.records]
    assert len(keys) == len(set(keys)) == 40 * 8
    [first] = calls
    assert all(first.count(pk) == 8 for pk in first)


def test_columns_that_come_and_go_while_rows_are_read(bench: Bench) -> None:
    bench.table("pk int PRIMARY KEY, v int, w int")
    bench.cql(*(f"INSERT INTO ks.t (pk, v, w) VALUES ({n}, {n}, {n})" for n in range(60)))
    changes = iter(["ALTER TABLE ks.t ADD x int", "ALTER TABLE ks.t DROP w"])

    def alter(messages: Sequence[Message]) -> None:
        if len(bench.sink.records) % 20 == 5 and (change := next(changes, None)) is not None:
            bench.cql(change)

    bench.sink.on_publish = alter
    bench.take(page_rows=1, options={"max_unacknowledged": 1})
    assert {key["pk"] for key, _ in bench.sink.records} == set(range(60))
    columns = [tuple(sorted(value["after"])) for value in bench.sink.rows]
    assert columns[0] == ("pk", "v", "w")
    assert columns[-1] == ("pk", "v", "x")
    assert all(value["after"]["v"] == value["after"]["pk"] for value in bench.sink.rows)


# ---------------------------------------------------------------- modes


def test_never_takes_none(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    assert bench.take("never")
    assert bench.sink.records == []
    assert bench.store.list_cursors() == []


def test_initial_only_is_not_followed_by_changes(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    for _ in range(2):
        assert not bench.take("initial_only")
        assert len(bench.sink.records) == 1


def test_a_consumer_that_has_run_takes_none(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    bench.store.set_cursor(CONSUMER, bench.stream().cursor_at())
    assert bench.take("initial")
    assert bench.take("when_needed")
    assert bench.sink.records == []


def test_when_needed_takes_another_one_when_changes_were_lost(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    assert bench.take("when_needed")
    bench.follow()
    bench.clock.advance(timedelta(days=3))
    assert bench.take("initial")  # not its business: the stream will say so
    assert len(bench.sink.rows) == 1
    assert bench.take("when_needed")
    assert len(bench.sink.rows) == 2
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    bench.follow()
    assert bench.replica() == bench.base()


def test_when_needed_takes_one_alone_when_changes_were_lost_of_slices_of_which_one_had_not_begun(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)", "INSERT INTO ks.t (pk, v) VALUES (2, 2)")
    for index in range(2):
        bench.store.set_cursor(slice_name(CONSUMER, index, 2), bench.stream().cursor_at())
    bench.store.reset_cursor(f"{CONSUMER}/snapshot[1/2]", str(Position(0).at(2**63 - 1)), reason="test")
    for name in (CONSUMER, f"{CONSUMER}/snapshot"):
        reslice_started(bench.store, name, 2, 1, reason="test")
    bench.clock.advance(timedelta(days=3))
    assert bench.take("when_needed")
    bench.follow()
    assert bench.take("when_needed")
    assert sorted(key["pk"] for key, _ in bench.sink.records) == [1, 2]


def test_when_needed_begins_again_when_changes_were_lost_while_it_was_interrupted(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(20)))
    interrupted(bench, 5)
    bench.clock.advance(timedelta(days=3))
    assert bench.take("when_needed")
    bench.follow()
    assert bench.take("when_needed")
    assert sorted(key["pk"] for key, _ in bench.sink.records) == list(range(20))


def test_an_unknown_mode(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"snapshot\.mode is 'always'; it can be initial, initial_only, never"):
        bench.snapshots("always")  # type: ignore[arg-type]


# ---------------------------------------------------------------- on request


def test_rows_on_request_come_beside_changes(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(20)))
    bench.store.set_cursor(CONSUMER, bench.stream().cursor_at())
    bench.follow()
    bench.sink.records.clear()
    assert request(bench.stream(), bench.store, CONSUMER, reason="a new consumer") == [snapshot_name(CONSUMER, (0, 1))]

    def until_idle(seconds: float) -> None:
        if seconds == 5:
            bench.stop.set()

    bench.clock.on_wait = until_idle
    bench.snapshots("never").follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == list(range(20))
    assert set(bench.sink.marks) == {"incremental"}
    bench.stop = rscylla.Stop()
    assert bench.take("initial")  # it is no initial snapshot, and changes nothing
    assert len(bench.sink.records) == 20


def test_rows_that_waited_too_long_are_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    bench.store.set_cursor(CONSUMER, bench.stream().cursor_at())
    request(bench.stream(), bench.store, CONSUMER, reason="test")
    made = DebeziumMessages.of_records
    delays = iter([20])

    def slow(self: DebeziumMessages, records: Any) -> Any:
        if (delay := next(delays, 0)) != 0:  # the sink was busy; meanwhile, a change was written, and may be published
            bench.clock.advance(delay)
            bench.cql("UPDATE ks.t SET v = 2 WHERE pk = 1")
        return made(self, records)

    monkeypatch.setattr(DebeziumMessages, "of_records", slow)
    bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
    bench.snapshots("never").follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    assert [value["after"]["v"] for value in bench.sink.rows] == [2]


def ops(bench: Bench) -> list[tuple[str, int]]:
    return [(value["op"], value["after"]["v"]) for _, value in bench.sink.records if value is not None]


def test_a_row_that_was_published_too_late_comes_again_where_nothing_holds_changes_back(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
    bench.store.set_cursor(CONSUMER, bench.stream().head_cursor(timedelta()))
    request(bench.stream(), bench.store, CONSUMER, reason="test")

    def full(messages: Sequence[Message]) -> None:
        bench.sink.on_publish = lambda messages: None
        bench.cql("UPDATE ks.t SET v = 2 WHERE pk = 1")
        bench.follow()  # a program of its own publishes the changes meanwhile

    bench.sink.on_publish = full
    bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
    bench.snapshots("never").follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    assert ops(bench)[-3:] == [("u", 2), ("r", 1), ("r", 2)]


def test_rows_after_one_that_is_refused_are_fresh_too(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 1)" for n in range(3)))
    bench.store.set_cursor(CONSUMER, bench.stream().head_cursor(timedelta()))
    request(bench.stream(), bench.store, CONSUMER, reason="test")
    refused: list[bytes | None] = []

    def refuse(messages: Sequence[Message]) -> None:
        if messages[0].topic == "dead":
            if len(refused) == 1:  # the broker took its time to say so
                bench.clock.advance(20)
                bench.cql(*(f"UPDATE ks.t SET v = 2 WHERE pk = {n}" for n in range(3)))
        elif not refused or messages[0].key == refused[0]:
            refused.append(messages[0].key)
            raise PublishRejected("no", index=0)

    bench.sink.on_publish = refuse
    bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
    options = {"dead_letter": lambda message, why: message._replace(topic="dead")}
    bench.snapshots("never", options=options).follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    others = [
        value["after"]["v"] for key, value in bench.sink.records if value and key != json.loads(refused[0] or b"")
    ]
    assert (len(refused), others) == (1, [2, 2])


@pytest.mark.parametrize("mode", ["initial", "never"])
def test_a_column_that_goes_between_the_look_at_the_schema_and_the_query(
    bench: Bench, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.table("pk int PRIMARY KEY, v int, extra int")
    bench.cql(*(f"INSERT INTO ks.t (pk, v, extra) VALUES ({n}, 1, 1)" for n in range(50)))
    prepare = ReadSession.prepare
    dropped: list[str] = []

    def prepared(session: ReadSession, statement: str, *args: Any, **more: Any) -> Any:
        if "token(" in statement and "extra" in statement and not dropped:
            dropped.append(statement)
            bench.cql("ALTER TABLE ks.t DROP extra")
        return prepare(session, statement, *args, **more)

    monkeypatch.setattr(ReadSession, "prepare", prepared)
    if mode == "initial":
        bench.take()
    else:
        bench.store.set_cursor(CONSUMER, bench.stream().head_cursor(timedelta()))
        request(bench.stream(), bench.store, CONSUMER, reason="test")
        bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
        bench.snapshots("never").follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    assert dropped
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == list(range(50))


def test_a_request_needs_somebody_who_works(bench: Bench) -> None:
    bench.table()
    with pytest.raises(ConfigError, match="has no cursor yet, so there is nobody to ask"):
        request(bench.stream(), bench.store, CONSUMER, reason="test")
    for index in range(2):
        bench.store.set_cursor(f"{CONSUMER}[{index}/2]", bench.stream().cursor_at())
    names = request(bench.stream(), bench.store, CONSUMER, reason="test")
    assert names == [f"{CONSUMER}/snapshot[{index}/2]" for index in range(2)]


def test_a_request_does_not_replace_an_initial_snapshot(bench: Bench) -> None:
    bench.table()
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (1, 1)")

    def fail(messages: Sequence[Message]) -> None:
        raise KeyboardInterrupt

    bench.sink.on_publish = fail
    with pytest.raises(KeyboardInterrupt):
        bench.take()
    with pytest.raises(ConfigError, match="is not complete; wait for its end"):
        request(bench.stream(), bench.store, CONSUMER, reason="test")


# ---------------------------------------------------------------- other slices


def interrupted(bench: Bench, after: int, part: tuple[int, int] = (0, 1)) -> set[int]:
    """Take a snapshot up to some rows; return their keys."""

    def kill(messages: Sequence[Message]) -> None:
        if len(bench.sink.records) >= after:
            raise KeyboardInterrupt

    bench.sink.on_publish = kill
    with pytest.raises(KeyboardInterrupt):
        bench.take(part=part, page_rows=1)
    bench.sink.on_publish = lambda messages: None
    taken = {key["pk"] for key, _ in bench.sink.records}
    bench.sink.records.clear()
    return taken


def rest(bench: Bench, count: int) -> set[int]:
    """Go on with the snapshot in *count* slices; return the keys of its rows."""
    for index in range(count):
        assert bench.take(part=(index, count))
    return {key["pk"] for key, _ in bench.sink.records}


def test_a_snapshot_goes_on_in_other_slices(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    first = interrupted(bench, 20)
    assert reslice_cursors(bench.store, CONSUMER, 1, 3).keys() == {
        f"{name}[{index}/3]" for name in (CONSUMER, f"{CONSUMER}/snapshot") for index in range(3)
    }
    second = rest(bench, 3)
    assert first | second == set(range(50))
    assert not first & second


def test_slices_that_began_at_unlike_times_lack_no_row_as_one(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    assert bench.take(part=(0, 3))
    first = {key["pk"] for key, _ in bench.sink.records}
    bench.sink.records.clear()
    bench.clock.advance(100)
    first |= interrupted(bench, 5, part=(2, 3))
    bench.clock.advance(100)
    first |= interrupted(bench, 5, part=(1, 3))
    reslice_cursors(bench.store, CONSUMER, 3, 1)
    second = rest(bench, 1)
    assert first | second == set(range(50))
    assert len(second) < 50


def test_a_slice_of_which_a_part_had_not_begun_begins(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    assert bench.take(part=(0, 2))
    bench.sink.records.clear()
    for name in (CONSUMER, f"{CONSUMER}/snapshot"):
        reslice_started(bench.store, name, 2, 1, reason="test")
    assert rest(bench, 1) == set(range(50))
    bench.cql("INSERT INTO ks.t (pk, v) VALUES (100, 0)", "DELETE FROM ks.t WHERE pk = 1")
    bench.follow()
    assert bench.replica() == bench.base()
    bench.sink.records.clear()
    assert rest(bench, 1) == set()  # once


def test_a_request_follows_its_table_into_other_slices(bench: Bench) -> None:
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    bench.store.set_cursor(CONSUMER, bench.stream().cursor_at())
    request(bench.stream(), bench.store, CONSUMER, reason="test")
    reslice_cursors(bench.store, CONSUMER, 1, 2)
    for index in range(2):
        bench.stop = rscylla.Stop()
        bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
        stream, name = bench.stream().sliced(index, 2), slice_name(CONSUMER, index, 2)
        bench.snapshots("never").follow(stream, bench.store, name, bench.stop)
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == list(range(50))


@pytest.mark.parametrize("begin", [reslice_cursors, reslice_started])
@pytest.mark.parametrize("done", [False, True])
def test_a_request_goes_on_with_slices_of_which_one_was_never_asked(bench: Bench, begin: Any, done: bool) -> None:
    """It may have begun since, or never."""
    bench.table()
    bench.cql(*(f"INSERT INTO ks.t (pk, v) VALUES ({n}, 0)" for n in range(50)))
    for index in (0, 2):
        bench.store.set_cursor(slice_name(CONSUMER, index, 3), bench.stream().cursor_at())
    asked = request(bench.stream(), bench.store, CONSUMER, reason="test")
    if done:
        bench.store.reset_cursor(asked[0], Position(0).at(2**63 - 1), reason="an initial one, which is complete")
    bench.store.reset_cursor(slice_name(CONSUMER, 1, 3), "", reason="test")
    for name in (CONSUMER,) if begin is reslice_cursors else (CONSUMER, f"{CONSUMER}/snapshot"):
        begin(bench.store, name, 3, 1, reason="test")
    bench.clock.on_wait = lambda seconds: bench.stop.set() if seconds == 5 else None
    bench.snapshots("never").follow(bench.stream(), bench.store, CONSUMER, bench.stop)
    assert sorted(value["after"]["pk"] for value in bench.sink.rows) == list(range(50))


@pytest.mark.parametrize("kinds", [(0, 1), (1, 0), (0, 0)])
def test_an_initial_snapshot_goes_on_with_slices_of_which_one_was_never_asked(kinds: tuple[int, int]) -> None:
    store = MemoryCursorStore()
    for index, kind in enumerate(kinds):
        store.reset_cursor(slice_name(f"{CONSUMER}/snapshot", index, 3), Position(kind).at(index), reason="test")
    after = reslice_started(store, f"{CONSUMER}/snapshot", 3, 1, reason="test")
    assert after == {f"{CONSUMER}/snapshot": str(Position(0))}


def test_nobody_asked_for_a_snapshot_that_was_complete_where_it_began() -> None:
    store = MemoryCursorStore()
    store.reset_cursor(slice_name(f"{CONSUMER}/snapshot", 0, 2), Position(1).at(2**63 - 1), reason="test")
    assert reslice_started(store, f"{CONSUMER}/snapshot", 2, 1, reason="test") == {f"{CONSUMER}/snapshot": ""}


# ---------------------------------------------------------------- positions


def test_positions_rise_with_the_tokens() -> None:
    from rscylla.event import cursor_key

    position = Position(1)
    tokens = [-(2**63), -5, 0, 7, 2**63 - 2, 2**63 - 1]
    cursors = [position.at(token) for token in tokens]
    assert sorted(cursors, key=cursor_key) == cursors
    assert [Position.parse(cursor).token for cursor in cursors] == tokens
    assert Position.parse(str(position)) == position
    assert [Position.parse(cursor).is_done for cursor in cursors] == [False] * 5 + [True]


def test_a_cursor_of_changes_is_no_position(bench: Bench) -> None:
    bench.table()
    bench.store.set_cursor(snapshot_name(CONSUMER, (0, 1)), bench.stream().cursor_at())
    with pytest.raises((InvalidCursor, RunError), match="is not that of a snapshot; check the name"):
        bench.take()


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("consumer", ["orders[1/4]", "orders/snapshot", "orders/snapshot[0/2]", "[0/4]", CONSUMER])
def test_whatever_a_consumer_is_named_its_snapshot_is_of_its_slice(consumer: str) -> None:
    for part in ((0, 1), (1, 4), (0, 2)):
        name = snapshot_name(slice_name(consumer, *part), part)
        assert CursorRecord(name, "").slice_of(f"{consumer}/snapshot") == part


@pytest.mark.parametrize("prefix", ["demo", "demo.eu", "demo[0/4]", "a/snapshot", "a+"])
@pytest.mark.parametrize("part", [(0, 1), (1, 4)])
def test_both_cursors_of_a_lane_are_found_by_either(prefix: str, part: tuple[int, int]) -> None:
    name = slice_name(f"{prefix}.ks.t", *part)
    lane = name, snapshot_name(name, part)
    assert [lane_names(prefix, each) for each in lane] == [lane, lane]


@pytest.mark.parametrize("other", ["demo.ks", "demo.ks.t[4/4]", "demo.ks.t/snapshots", "demo.ks.t.u", "xdemo.ks.t", ""])
def test_a_consumer_that_is_no_lane_of_the_connector_is_alone(other: str) -> None:
    assert lane_names("demo", other) == (other,)


def test_a_consumer_that_is_named_like_a_slice_asks_for_a_snapshot_of_its_own(bench: Bench) -> None:
    bench.table()
    odd = "orders[1/4]"
    bench.store.set_cursor(odd, bench.stream().cursor_at())
    assert request(bench.stream(), bench.store, odd, reason="a new consumer") == [f"{odd}/snapshot"]
    assert [CursorRecord(record.consumer, "").slice_of("orders/snapshot") for record in bench.store.list_cursors()] == [
        None,
        None,
    ]
