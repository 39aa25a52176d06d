"""The most frequent complaints of users of other CDC readers, and what rscylla does instead.

The tests cover the ten most frequent subjects in the issues and pull requests of the Go, Java, and Rust libraries and
of the Kafka connector. They run on a driven clock: a wait of the reader moves it, and no test measures real time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import attrs
import pytest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.cdc.rows import Bound
from rscylla.embedded import EmbeddedScylla, Rule, Statements
from rscylla.testing import ManualClock

LAG_S = 30
LAG = rscylla.StreamLag(seconds=LAG_S)
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@attrs.define
class Cluster:
    """A server on a driven clock, with a keyspace ``ks`` of vnodes and a keyspace ``tab`` of tablets."""

    scylla: EmbeddedScylla
    clock: ManualClock
    session: rscylla.Session

    def __call__(self, cql: str) -> Any:
        return self.session.execute(cql)

    def stream(self, table: str, **options: Any) -> rscylla.Stream:
        return rscylla.NewStream(self.session, *table.split("."), **{"clock": self.clock, "prefetch": 0, **options})

    def come_of_age(self) -> None:
        """Let everything that was written become older than the lag."""
        self.clock.advance(LAG_S + 1)

    def read(self, table: str, after: str = "", **options: Any) -> list[rscylla.Event]:
        """Return what there is from *after* to the head, at which all that was written so far lies behind."""
        self.come_of_age()
        events: list[rscylla.Event] = []
        client = self.stream(table, **options)(after, LAG, rscylla.StreamToHead())
        with closing(client), suppress(rscylla.HeadReached):
            while True:
                got = client.recv()
                if isinstance(got, rscylla.Event):
                    events.append(got)
        return events

    def queries_of(self, table: str) -> Rule:
        """Return what counts the log pages that are asked for from now on, as ``hits``."""
        return self.scylla.faults.delay(
            timedelta(0), Statements(kind="select", table=f"{table}_scylla_cdc_log"), times=None
        )


@contextmanager
def cluster(**server: Any) -> Iterator[Cluster]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, **{"vnodes": 3, "shards": 2, **server}) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE ks WITH replication = {NETWORK} AND tablets = {{'enabled': false}}")
        session.execute(f"CREATE KEYSPACE tab WITH replication = {NETWORK} AND tablets = {{'initial': 2}}")
        clock.advance(60)
        yield Cluster(scylla, clock, session)


@pytest.fixture
def small() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def next_event(client: Any) -> rscylla.ChangeEvent:
    while isinstance(got := client.recv(), rscylla.Progress):
        pass
    assert isinstance(got, rscylla.ChangeEvent)
    return got


# ---------------------------------------------------------------- 1


def test_a_cold_start_costs_a_handful_of_queries() -> None:
    """Other readers walk the time that the log keeps in windows of 30 or 60 s, each asked of each stream or vnode."""
    with cluster(vnodes=256, shards=3) as many:
        many.clock.advance(180 * 86_400)
        many("CREATE TABLE ks.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        many("INSERT INTO ks.t (id) VALUES (1)")
        many.clock.advance(20 * 3600)
        many("INSERT INTO ks.t (id) VALUES (2)")
        streams = 768
        groups = -(-streams // 99)  # 33 whole vnodes in a query
        with many.queries_of("t") as asked:
            assert [e.key["id"] for e in many.read("ks.t")] == [1, 2]
        assert asked.hits <= 6 * groups
        with many.queries_of("t") as asked:  # without changes, a poll of the head is one query per group
            began = many.clock.monotonic()
            with closing(many.stream("ks.t")(many.stream("ks.t").head_cursor(timedelta(0)), LAG)) as client:
                for _ in range(6):
                    assert isinstance(client.recv(), rscylla.Progress)
        looks = many.clock.monotonic() - began
        assert looks > 50
        assert 0 < asked.hits <= groups * (looks + 1)


# ---------------------------------------------------------------- 2


def test_a_restart_neither_loses_nor_repeats_and_tables_do_not_share_progress(small: Cluster) -> None:
    """In other clients, the start time overrides the saved position, and two tables share a checkpoint."""
    seen: list[tuple[str, int]] = []

    def run(table: str, *options: rscylla.options.StreamOption, fail_at: int | None = None) -> None:
        def consume(event: rscylla.Event, _: rscylla.Fate) -> None:
            if event.key["id"] == fail_at:
                raise RuntimeError("crash")
            seen.append((table, event.key["id"]))

        # A store and a stream of its own each time, as after a restart.
        store = ScyllaCursorStore(small.session, "ks", create=True, clock=small.clock)
        spec = rscylla.Spec(
            small.stream(table), store, rscylla.Consumer(f"app.{table}", consume), LAG, rscylla.StreamToHead(), *options
        )
        with suppress(rscylla.HeadReached, rscylla.RunError):
            rscylla.run(spec)

    tables = ("ks.a", "ks.b")
    for table in tables:
        small(f"CREATE TABLE {table} (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    for number in range(10):
        for table in tables:
            small(f"INSERT INTO {table} (id) VALUES ({number})")
        small.clock.advance(1)
    small.come_of_age()
    run("ks.a", fail_at=5)
    run("ks.b", fail_at=8)
    small.clock.advance(3 * 3600)  # down while writes continue
    for number in range(10, 15):
        for table in tables:
            small(f"INSERT INTO {table} (id) VALUES ({number})")
    small.come_of_age()
    for table in tables:
        run(table)
        run(table)
    for table in tables:
        assert sorted(n for of, n in seen if of == table) == list(range(15))


# ---------------------------------------------------------------- 3


@pytest.mark.parametrize(("lag_s", "poll_s"), [(1, 0.1), (30, 1.0)])
def test_a_change_is_delivered_after_its_lag_and_one_poll(small: Cluster, lag_s: int, poll_s: float) -> None:
    """Elsewhere windows of 30 or 60 s have to be full first, and a reader sleeps between them."""
    small("CREATE TABLE ks.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    client = small.stream("ks.t")("", rscylla.StreamLag(seconds=lag_s))
    pending = iter(range(12))
    small.clock.on_wait = lambda _: [  # one while it waits, at another part of the second each time
        small(f"INSERT INTO ks.t (id) VALUES ({n}) USING TIMESTAMP {small.clock.now_us() - n * 7919}")
        for n in [next(pending, None)]
        if n is not None
    ]
    with closing(client):
        for _ in range(12):
            event = next_event(client)
            age_s = (small.clock.now_us() - event.timestamp_us) / 1e6
            assert lag_s <= age_s <= lag_s + poll_s + 0.12


# ---------------------------------------------------------------- 4


def test_tables_with_tablets_are_read_side_by_side_while_they_split(small: Cluster) -> None:
    """Elsewhere tablets came late, as one task without parallelism, and failed for tables with clocks of their own."""
    tables = ("tab.a", "tab.b", "ks.c")
    for table in tables:
        small(f"CREATE TABLE {table} (pk int, n int, PRIMARY KEY (pk, n)) WITH cdc = {{'enabled': true}}")
        small.clock.advance(3)  # so that their stream sets begin at different times
    for second in range(60):
        if second == 10:
            small.scylla.split_tablets("tab", "a", timedelta(seconds=5))
        if second == 25:
            small.scylla.split_tablets("tab", "b", timedelta(seconds=5))
        if second == 40:
            small.scylla.merge_tablets("tab", "a", timedelta(seconds=5))
        for table in tables:
            small(f"INSERT INTO {table} (pk, n) VALUES ({second % 7}, {second})")
        small.clock.advance(1)
    sets: list[int] = []
    for table in tables:
        with small.queries_of(table[-1]) as asked:
            events = small.read(table)
        assert sorted(e.key["n"] for e in events) == list(range(60))
        for pk in range(7):
            numbers = [e.key["n"] for e in events if e.key["pk"] == pk]
            assert numbers == sorted(numbers)
        sets.append(len({rscylla.EventID.parse(e.id).generation for e in events}))
        assert asked.hits < 40, "the streams of a set are asked for together"
    assert sets == [3, 2, 1]


# ---------------------------------------------------------------- 5


def test_a_dropped_table_ends_the_run_and_a_bad_hour_does_not(small: Cluster) -> None:
    """In other clients, a task dies unnoticed, or queries a dropped table forever."""
    small("CREATE TABLE ks.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    small.clock.advance(120)  # the table is old enough that the row of the cursor is not looked up
    small("INSERT INTO ks.t (id) VALUES (1)")
    small.come_of_age()
    store = ScyllaCursorStore(small.session, "tab", create=True, clock=small.clock)
    seen: list[int] = []
    heard: list[BaseException] = []
    rules: list[Rule] = []

    def hear(error: BaseException) -> None:
        heard.append(error)
        if len(heard) == 2:
            small.scylla.faults.clear()

    def break_then_drop(event: rscylla.Event, _: rscylla.Fate) -> None:
        seen.append(event.key["id"])
        if event.key["id"] == 1:
            where = Statements(kind="select", table="t_scylla_cdc_log")
            rules.append(small.scylla.faults.fail("overloaded", where, times=None))
            small("INSERT INTO ks.t (id) VALUES (2)")
        else:
            small("DROP TABLE ks.t")

    consumer = rscylla.Consumer("billing", break_then_drop)
    with pytest.raises(rscylla.RunError) as caught:
        rscylla.run_forever(rscylla.Spec(small.stream("ks.t"), store, consumer, LAG, clock=small.clock), on_error=hear)
    assert isinstance(caught.value.__cause__, rscylla.TableNotFound)
    assert not caught.value.resumable
    assert seen == [1, 2]
    assert [type(e.__cause__) for e in heard[:2]] == [rscylla.QueryTimeout] * 2, "each run gave up, and was told"
    assert rules[0].hits == 2 * rscylla.Limits().attempts, "a page is tried a bounded number of times"


# ---------------------------------------------------------------- 6


def test_images_belong_to_their_own_change(small: Cluster) -> None:
    """Elsewhere the images of several rows of a batch are mixed up, or given up after 15 s."""
    small(
        "CREATE TABLE ks.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
    )
    small("CREATE TABLE ks.one (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': true}")
    inserts = "".join(f"INSERT INTO ks.t (pk, ck, v) VALUES (1, {ck}, {ck}); " for ck in range(4))
    small(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    small.clock.advance(1)
    small(
        "BEGIN UNLOGGED BATCH UPDATE ks.t SET s = 7 WHERE pk = 1; UPDATE ks.t SET v = 12 WHERE pk = 1 AND ck = 2; "
        "DELETE FROM ks.t WHERE pk = 1 AND ck = 0; INSERT INTO ks.t (pk, ck, v) VALUES (1, 3, 13); APPLY BATCH"
    )
    for page_size in (1, 3, 5000):
        events = small.read("ks.t", limits=rscylla.Limits(page_size=page_size))[4:]
        told = {
            (e.operation.name, e.key.get("ck")): (e.change.before, e.change.after)
            for e in events
            if isinstance(e, rscylla.ChangeEvent)
        }
        assert told == {
            ("UPDATE", None): (None, {"s": 7}),
            ("ROW_DELETE", 0): ({"v": 0}, None),
            ("UPDATE", 2): ({"v": 2}, {"v": 12}),
            ("INSERT", 3): ({"v": 3}, {"v": 13}),
        }
        assert len(events) == 4
    small("INSERT INTO ks.one (pk, v) VALUES (1, 5)")
    small("DELETE FROM ks.one WHERE pk = 1")
    _, delete = small.read("ks.one")
    assert delete.change is not None
    assert delete.change.before == {"v": 5}, "of tables without clustering key too"


# ---------------------------------------------------------------- 7


def test_collections_and_udts_are_decoded_and_null_is_not_empty(small: Cluster) -> None:
    """Elsewhere non-frozen collections are refused or left out, and null and empty are the same."""
    small("CREATE TYPE ks.place (city text, zip int)")
    small(
        "CREATE TABLE ks.t (id int PRIMARY KEY, v int, tags set<text>, m map<text, int>, l list<int>, "
        "f frozen<set<int>>, home place) WITH cdc = {'enabled': true}"
    )
    statements = {
        "UPDATE ks.t SET tags = {'a', 'b'} WHERE id = 1": ("tags", "OVERWRITTEN", {"a", "b"}, ()),
        "UPDATE ks.t SET tags = tags + {'c'} WHERE id = 1": ("tags", "EDITED", {"c"}, ()),
        "UPDATE ks.t SET tags = tags - {'a'} WHERE id = 1": ("tags", "EDITED", None, {"a"}),
        "UPDATE ks.t SET tags = null WHERE id = 1": ("tags", "NULL", None, ()),
        "UPDATE ks.t SET m['x'] = 1 WHERE id = 1": ("m", "EDITED", {"x": 1}, ()),
        "UPDATE ks.t SET l = [1, 2] WHERE id = 1": ("l", "OVERWRITTEN", [1, 2], ()),
        "UPDATE ks.t SET f = {} WHERE id = 1": ("f", "SET", set(), ()),
        "UPDATE ks.t SET f = null WHERE id = 1": ("f", "NULL", None, ()),
        "UPDATE ks.t SET home.zip = 5 WHERE id = 1": ("home", "EDITED", {"zip": 5}, ()),
        "UPDATE ks.t SET home.city = null WHERE id = 1": ("home", "EDITED", None, {"city"}),
        "UPDATE ks.t SET v = null WHERE id = 1": ("v", "NULL", None, ()),
    }
    for statement in statements:
        small(statement)
        small.clock.advance(1)
    events = small.read("ks.t")
    assert len(events) == len(statements)
    for event, (name, state, value, removed) in zip(events, statements.values(), strict=True):
        assert isinstance(event.change, rscylla.Change)
        column = event.change.columns[name]
        assert column.state.name == state
        assert (column.value if column.known else column.added or None) == value
        assert set(column.removed or ()) == set(removed)
        assert [n for n, c in event.change.columns.items() if c.state.name != "UNTOUCHED"] == [name]


# ---------------------------------------------------------------- 8


@pytest.mark.parametrize("keyspace", ["ks", "tab"])
def test_a_cursor_taken_before_a_snapshot_continues_without_a_gap(small: Cluster, keyspace: str) -> None:
    """In other clients, there is no way to combine the rows of a table with the changes that follow."""
    table = f"{keyspace}.t"
    small(f"CREATE TABLE {table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}")
    writes = iter(range(1_000_000))

    def write(number: int) -> None:
        late_us = number * 7 % 20 * 1_000_000 + number  # clocks of writers are behind, and no two times are the same
        using = f"USING TIMESTAMP {small.clock.now_us() - late_us}"
        if number % 5 == 4:
            small(f"DELETE FROM {table} {using} WHERE id = {number % 23}")
        else:
            small(f"INSERT INTO {table} (id, v) VALUES ({number % 23}, {number}) {using}")
        small.clock.advance(0.25)

    small.clock.advance(60)

    for _ in range(60):
        write(next(writes))
    handover = small.stream(table).head_cursor(timedelta(seconds=LAG_S))  # before the first range is read
    copy: dict[int, int] = {}
    edges = [-(2**63) + n * 2**60 for n in range(16)] + [2**63 - 1]
    for low, high in pairwise(edges):
        rows = small(f"SELECT id, v FROM {table} WHERE token(id) > {low} AND token(id) <= {high}")
        copy.update({row.id: row.v for row in rows})
        for _ in range(4):  # the table changes while it is read, in ranges that were read and in others
            write(next(writes))
    for event in small.read(table, handover):
        assert event.change is not None
        if event.change.is_delete:
            copy.pop(event.key["id"], None)
        else:
            copy[event.key["id"]] = event.change.after["v"]
    assert copy == {row.id: row.v for row in small(f"SELECT id, v FROM {table}")}


# ---------------------------------------------------------------- 9


def test_deletes_of_ranges_partitions_and_expired_rows_are_events(small: Cluster) -> None:
    """Elsewhere range deletes are skipped, partition deletes come half, and expiry is unheard of."""
    small("CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    small("CREATE TABLE ks.e (id int PRIMARY KEY, gone int TTL) WITH cdc = {'enabled': true}")
    for cql in (
        "DELETE FROM ks.t WHERE pk = 1 AND ck = 2",
        "DELETE FROM ks.t WHERE pk = 1 AND ck > 2 AND ck <= 5",
        "DELETE FROM ks.t WHERE pk = 1 AND ck >= 7",
        "DELETE FROM ks.t WHERE pk = 1",
    ):
        small(cql)
        small.clock.advance(1)
    small(f"INSERT INTO ks.e (id, gone) VALUES (1, {small.clock.now_us() // 1_000_000})")
    small.clock.advance(5)
    assert small.scylla.expire_rows() == 1
    row, first, second, partition = (e.change for e in small.read("ks.t"))
    assert all(isinstance(c, rscylla.Change) and c.is_delete for c in (row, first, second, partition))
    assert dict(row.key) == {"pk": 1, "ck": 2}
    assert first.range == (Bound({"ck": 2}, inclusive=False), Bound({"ck": 5}, inclusive=True))
    assert second.range == (Bound({"ck": 7}, inclusive=True), Bound({}, inclusive=True))
    assert (partition.operation.name, dict(partition.key)) == ("PARTITION_DELETE", {"pk": 1})
    _, expired = (e.change for e in small.read("ks.e"))
    assert (expired.operation.name, expired.expired, expired.is_delete) == ("SERVICE_PARTITION_DELETE", True, True)


# ---------------------------------------------------------------- 10


def test_the_schema_may_change_while_a_stream_is_open(small: Cluster) -> None:
    """Elsewhere a task has to be restarted, or decodes with the columns of another version."""
    small("CREATE TABLE ks.t (id int PRIMARY KEY, a int, b text) WITH cdc = {'enabled': true}")
    steps: list[tuple[str, str, dict[str, Any]]] = [
        ("", "INSERT INTO ks.t (id, a, b) VALUES (1, 1, 'x')", {"a": 1, "b": "x"}),
        ("ALTER TABLE ks.t ADD c double", "INSERT INTO ks.t (id, a, c) VALUES (2, 2, 1.5)", {"a": 2, "c": 1.5}),
        ("ALTER TABLE ks.t DROP a", "INSERT INTO ks.t (id, b, c) VALUES (3, 'y', 2.5)", {"b": "y", "c": 2.5}),
        ("ALTER TABLE ks.t ADD a int", "INSERT INTO ks.t (id, a) VALUES (4, 4)", {"a": 4}),
        ("ALTER TABLE ks.t RENAME id TO number", "INSERT INTO ks.t (number, a) VALUES (5, 5)", {"a": 5}),
    ]
    pending: Iterator[Callable[[], None]] = iter([_step(small, *step[:2]) for step in steps])
    with closing(small.stream("ks.t")("", LAG)) as client:
        for number, (_, _, after) in enumerate(steps, 1):
            next(pending)()
            event = next_event(client)
            assert list(event.key.values()) == [number]
            assert event.change.after == after
        assert event.foreign_id == '{"number":5}'


def _step(cluster: Cluster, alter: str, write: str) -> Callable[[], None]:
    def take() -> None:
        if alter:
            cluster(alter)
            cluster.clock.advance(10)  # a dropped name can be used again after a while
        cluster(write)

    return take
