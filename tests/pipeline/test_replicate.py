"""A table is copied change by change, killed and repeated in the meantime, and the copy is the table."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import histories
import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import ExecuteMessage

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla.embedded import EmbeddedScylla
from rscylla.replicate import Difference, Replicator, Ttl, Verdict, verify
from rscylla.testing import ManualClock

LAG = timedelta(milliseconds=1)


@attrs.frozen
class Place:
    """Two keyspaces on one server."""

    scylla: EmbeddedScylla
    session: rscylla.Session
    source: str
    target: str

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.replace("{src}", self.source).replace("{dst}", self.target))

    def replicate(self, table: str = "t", *, store: MemoryCursorStore | None = None, ttl: Ttl = "original") -> int:
        """Copy everything up to now; return how many changes were applied."""
        replicator = Replicator(self.session, self.session, self.target, table, create=True, ttl=ttl)
        consumer = rscylla.concurrent(rscylla.Consumer("copy", replicator), workers=4)
        stream = rscylla.NewStream(self.session, self.source, table)
        until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
        spec = rscylla.Spec(stream, store or MemoryCursorStore(), consumer, rscylla.StreamLag(LAG), until)
        with pytest.raises(rscylla.HeadReached):
            rscylla.run(spec)
        return replicator.applied

    def verify(self, table: str = "t", **options: object) -> Verdict:
        return verify(
            self.session,
            self.session,
            self.source,
            table,
            self.target,
            table,
            lag=LAG,
            ranges=7,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla() as scylla:
        yield scylla


@pytest.fixture
def place(scylla: EmbeddedScylla) -> Place:
    session = scylla.connect()
    names = [f"ks_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    for name in names:
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
    return Place(scylla, session, *names)


# ---------------------------------------------------------------- the copy is the table


@pytest.mark.parametrize("seed", range(4))
def test_the_copy_of_a_random_history_is_the_table(place: Place, seed: int) -> None:
    histories.create(place.session.execute, place.source, "t")
    store = MemoryCursorStore()
    for part in range(3):
        for statement in histories.statements(seed * 10 + part, f"{place.source}.t", 60):
            place.session.execute(statement)
        assert place.replicate(store=store) > 0
        verdict = place.verify()
        assert verdict.same, [(d.kind, d.key, d.columns) for d in verdict.differences]
        assert verdict.rows > 0
    again = place.replicate()  # from the oldest change on: nothing comes back to life
    assert again > 100
    assert place.verify().same


class Watched(rscylla.Stop):
    """Counts who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    def on_set(self, call: Callable[[], None]) -> Callable[[], None]:
        forget = super().on_set(call)
        self.waiting += 1

        def forgotten() -> None:
            self.waiting -= 1
            forget()

        return forgotten


def test_a_table_is_copied_to_another_cluster_and_compared_there(place: Place) -> None:
    levels: set[int] = set()

    def sent(future: Any) -> None:
        if isinstance(future.message, ExecuteMessage):
            levels.add(future.message.consistency_level)

    with EmbeddedScylla() as other:
        target = other.connect()
        target.execute("CREATE KEYSPACE copy WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        place.run(
            "CREATE TYPE {src}.inner (x int)",
            'CREATE TYPE {src}."Outer" (inner frozen<inner>)',
            'CREATE TABLE {src}."T" ("Pk" int, day int, "Ck" int, o "Outer", PRIMARY KEY (("Pk", day), "Ck")) '
            """WITH CLUSTERING ORDER BY ("Ck" DESC) AND cdc = {'enabled': true}""",
            *(
                f'INSERT INTO {{src}}."T" ("Pk", day, "Ck", o) VALUES ({n % 3}, 1, {n}, {{inner: {{x: {n}}}}})'
                for n in range(9)
            ),
        )
        replicator = Replicator(place.session, target, "copy", "CopyOfT", create=True)
        spec = rscylla.Spec(
            rscylla.NewStream(place.session, place.source, "T"),
            MemoryCursorStore(),
            rscylla.Consumer("copy", replicator),
            rscylla.StreamLag(LAG),
            rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1)),
        )
        with pytest.raises(rscylla.HeadReached):
            rscylla.run(spec)
        for session in (place.session, target):
            session.add_request_init_listener(sent)
        stop = Watched()

        def compared() -> Verdict:
            return verify(
                place.session,
                target,
                place.source,
                "T",
                "copy",
                "CopyOfT",
                lag=LAG,
                stop=stop,
                clock=ManualClock(),
                consistency="LOCAL_QUORUM",
            )

        # A column that only the target has is not compared.
        target.execute('ALTER TABLE copy."CopyOfT" ADD more int')
        target.execute('UPDATE copy."CopyOfT" SET more = 1 WHERE "Pk" = 1 AND day = 1 AND "Ck" = 1')
        assert compared() == Verdict(9, ())
        target.execute('DELETE FROM copy."CopyOfT" WHERE "Pk" = 1 AND day = 1 AND "Ck" = 4')
        assert compared() == Verdict(9, (Difference("missing", {"Pk": 1, "day": 1, "Ck": 4}),))
        assert levels == {ConsistencyLevel.LOCAL_QUORUM}
        assert stop.waiting == 0
        with pytest.raises(rscylla.TableNotFound, match="there is no table copy"):
            verify(place.session, target, "copy", "CopyOfT", "copy", lag=LAG)
        with pytest.raises(rscylla.TableNotFound, match=r'the target table copy\."T" does not exist'):
            verify(place.session, target, place.source, "T", "copy", lag=LAG)


RANGES = [
    "a = 1",
    "a > 0",
    "a >= 1 AND a < 2",
    "a = 1 AND b > 0",
    "a = 1 AND b >= 0 AND b < 2",
    "a = 1 AND b <= 1",
    "a = 1 AND b = 1",
    "a = 1 AND b = 1 AND c > 1",
    "a = 1 AND b = 1 AND c < 2",
    "(a, b) > SCYLLA_CLUSTERING_BOUND (1, 1)",
    "(a, b) >= SCYLLA_CLUSTERING_BOUND (0, 1) AND (a) <= SCYLLA_CLUSTERING_BOUND (1)",
    "(a) > SCYLLA_CLUSTERING_BOUND (0) AND (a, b, c) < SCYLLA_CLUSTERING_BOUND (2, 1, 1)",
    "(a, b) > SCYLLA_CLUSTERING_BOUND (1, 1) AND (a) <= SCYLLA_CLUSTERING_BOUND (1)",
]


@pytest.mark.parametrize("order", ["a ASC, b ASC, c ASC", "a ASC, b DESC, c ASC", "a DESC, b DESC, c DESC"])
def test_ranges_of_all_forms(place: Place, order: str) -> None:
    place.run(
        "CREATE TABLE {src}.t (pk int, a int, b int, c int, v int, PRIMARY KEY (pk, a, b, c)) "
        f"WITH CLUSTERING ORDER BY ({order}) AND cdc = {{'enabled': true}}"
    )
    insert = place.session.prepare(f"INSERT INTO {place.source}.t (pk, a, b, c, v) VALUES (?, ?, ?, ?, 0)")
    for pk in range(len(RANGES)):
        for n in range(27):
            place.session.execute(insert, [pk, n // 9, n // 3 % 3, n % 3])
    place.replicate()
    for pk, where in enumerate(RANGES):
        place.run(f"DELETE FROM {{src}}.t WHERE pk = {pk} AND {where}")
    place.replicate()
    verdict = place.verify()
    assert verdict.same, [d.key for d in verdict.differences]
    assert 0 < verdict.rows < 27 * len(RANGES)


CLUSTERING = {
    "text": "''",
    "ascii": "'m'",
    "blob": "0x80",
    "boolean": "true",
    "tinyint": "-1",
    "smallint": "1",
    "int": "-5",
    "bigint": "5",
    "varint": "-300",
    "decimal": "1.5",
    "float": "-1.5",
    "double": "2",
    "date": "'2026-11-21'",
    "time": "'10:00:00'",
    "timestamp": "-1",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "timeuuid": "123e4567-e89b-12d3-a456-426614174000",
    "inet": "'::1'",
    "frozen<list<int>>": "[1]",
    "frozen<set<int>>": "{-1}",
    "frozen<map<int, text>>": "{1: 'x'}",
    "tuple<int, text>": "(1, 'x')",
    "frozen<pair>": "{x: -1, y: 'b'}",
}


@pytest.mark.parametrize("of", CLUSTERING)
def test_two_deleted_ranges_that_meet_leave_the_static_row(place: Place, of: str) -> None:
    value = CLUSTERING[of]
    place.run(
        "CREATE TYPE {src}.pair (x int, y text)",
        f"CREATE TABLE {{src}}.t (pk int, ck {of}, s int static, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}",
        f"INSERT INTO {{src}}.t (pk, ck, s) VALUES (1, {value}, 1)",
    )
    place.replicate()
    place.run(
        f"BEGIN BATCH DELETE FROM {{src}}.t WHERE pk = 1 AND ck < {value};"
        f"DELETE FROM {{src}}.t WHERE pk = 1 AND ck >= {value}; APPLY BATCH"
    )
    place.replicate()
    assert list(place.session.execute(f"SELECT ck, s FROM {place.target}.t")) == [(None, 1)]
    assert place.verify().same


@pytest.mark.parametrize("ahead", [0, 5 * 3600])
@pytest.mark.parametrize(("ttl", "left"), [("original", 1000), ("remaining", 400)])
def test_copies_expire_after_their_ttl_or_with_the_original(ttl: Ttl, left: int, ahead: int) -> None:
    """Also if the clock of the process is ahead of those of the nodes."""
    clock = ManualClock()
    with EmbeddedScylla(clock=clock) as scylla:
        session = scylla.connect()
        for name in ("src", "dst"):
            replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
        session.execute("CREATE TABLE src.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        at = f"USING TIMESTAMP {clock.now_us()}"
        session.execute(f"INSERT INTO src.t (pk, v) VALUES (1, 1) {at} AND TTL 1000")
        session.execute(f"INSERT INTO src.t (pk, v) VALUES (2, 1) {at}")
        session.execute(f"INSERT INTO src.t (pk, v) VALUES (3, 1) {at} AND TTL 500")
        clock.advance(600)
        mine = ManualClock(clock.now_us() + ahead * 1_000_000)
        replicator = Replicator(session, session, "dst", create=True, ttl=ttl, clock=mine)
        stream = rscylla.NewStream(session, "src", "t", clock=clock)
        spec = rscylla.Spec(
            stream,
            MemoryCursorStore(),
            rscylla.Consumer("copy", replicator),
            rscylla.StreamLag(seconds=30),
            rscylla.StreamToHead(),
            clock=clock,
        )
        rscylla.run_forever(spec)
        found = {row.pk: row.ttl for row in session.execute("SELECT pk, ttl(v) AS ttl FROM dst.t")}
        assert found == {1: left, 2: None, 3: 500 if ttl == "original" else 1}
        clock.advance(1)
        assert {row.pk for row in session.execute("SELECT pk FROM dst.t")} == (
            {1, 2, 3} if ttl == "original" else {1, 2}
        )


# ---------------------------------------------------------------- killed in between


def test_a_process_that_is_killed_again_and_again_copies_it_all(place: Place) -> None:
    histories.create(place.session.execute, place.source, "t")
    node = f"{place.scylla.contact_points[0]}:{place.scylla.port}"
    names = (f"{place.source}.t", f"{place.target}.t")
    command = ["replicate", *names, "--lag", "0.001", "--create", "--workers", "4", "--host", node]

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from rscylla.cli import main; main()", *command, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    dice = random.Random(7)
    store: ScyllaCursorStore | None = None
    for kill in range(4):
        child = start()
        try:
            before = "" if store is None else store.get_cursor("replicate-" + "-".join(names))
            for statement in histories.statements(kill, names[0], dice.randrange(20, 60)):
                place.session.execute(statement)
            if store is None:
                wait_for(lambda: table_exists(place, "rscylla_cursors"), child)
                store = ScyllaCursorStore(place.session, place.target)
            wait_for(lambda: store.get_cursor("replicate-" + "-".join(names)) != before, child)  # noqa: B023 - waited for here
            for statement in histories.statements(100 + kill, names[0], 30):
                place.session.execute(statement)
        finally:
            child.kill()
            child.communicate()
    out, errors = start("--to-head", "--json").communicate(timeout=120)
    assert json.loads(out.splitlines()[-1])["applied"] > 0, errors
    verdict = place.verify()
    assert verdict.same, [(d.kind, d.key, d.columns) for d in verdict.differences]
    assert verdict.rows > 0
    out, errors = start("--verify").communicate(timeout=120)
    assert out == f"{verdict.rows} rows compared, 0 differ\n", errors


def table_exists(place: Place, name: str) -> bool:
    cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    return bool(list(place.session.execute(cql, [place.target, name])))


def wait_for(condition: object, child: subprocess.Popen[str]) -> None:
    never = rscylla.Stop()
    for _ in range(6000):
        if condition():  # type: ignore[operator]
            return
        assert child.poll() is None, child.communicate()
        never.wait(0.01)
    pytest.fail("it did not happen within a minute")


# ---------------------------------------------------------------- what is refused


def refused(place: Place) -> rscylla.RunError:
    stream = rscylla.NewStream(place.session, place.source, "t")
    store = MemoryCursorStore()
    consumer = rscylla.Consumer("copy", Replicator(place.session, place.session, place.target))
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
    with pytest.raises(rscylla.RunError) as caught:
        rscylla.run(rscylla.Spec(stream, store, consumer, rscylla.StreamLag(LAG), until))
    assert store.get_cursor("copy") == ""
    return caught.value


COLUMNS = "pk int, ck int, v int, s int static, l list<int>"
SOURCE = f"CREATE TABLE {{src}}.t ({COLUMNS}, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (None, "does not exist; create it"),
        ("pk int, ck int, v int, l list<int>, PRIMARY KEY (pk, ck)", "lacks the column 's'.* ADD s int STATIC"),
        ("pk int, ck int, v bigint, s int static, l list<int>, PRIMARY KEY (pk, ck)", "'v' is bigint in"),
        ("pk int, ck int, v int, s int, l list<int>, PRIMARY KEY (pk, ck)", "'s' is int in .*, but int static in"),
        ("pk int, ck int, v int, s int static, l frozen<list<int>>, PRIMARY KEY (pk, ck)", "'l' is frozen<list<int>>"),
        ("pk int, ck int, v int, l list<int>, PRIMARY KEY ((pk, ck))", "a different primary key"),
        (f"{COLUMNS}, PRIMARY KEY (pk, ck)) WITH CLUSTERING ORDER BY (ck DESC", "a different primary key"),
    ],
)
def test_a_target_that_cannot_take_the_changes_is_refused(place: Place, target: str | None, text: str) -> None:
    place.run(SOURCE, "INSERT INTO {src}.t (pk, ck, v) VALUES (1, 1, 1)")
    if target is not None:
        place.run(f"CREATE TABLE {{dst}}.t ({target})")
    error = refused(place).__cause__
    assert isinstance(error, rscylla.errors.CannotReplicate | rscylla.TableNotFound)
    with pytest.raises(type(error), match=text):
        raise error


def test_a_type_that_got_a_field_is_reported(place: Place) -> None:
    for keyspace in ("src", "dst"):
        place.run(f"CREATE TYPE {{{keyspace}}}.pair (x int)")
    place.run("CREATE TABLE {src}.t (pk int PRIMARY KEY, u pair) WITH cdc = {'enabled': true}")
    place.run("INSERT INTO {src}.t (pk, u) VALUES (1, {x: 1})")
    store = MemoryCursorStore()
    place.replicate(store=store)
    place.run("ALTER TYPE {src}.pair ADD y text", "UPDATE {src}.t SET u.y = 'new' WHERE pk = 1")
    assert "pair in" in str(error := refused(place).__cause__)
    assert "a type of that name has other fields" in str(error)
    place.run("ALTER TYPE {dst}.pair ADD y text")
    place.replicate(store=store)
    assert place.verify().same
    assert next(iter(place.session.execute(f"SELECT u FROM {place.target}.t"))).u == (1, "new")


def test_a_log_of_keys_cannot_be_copied(place: Place) -> None:
    place.run(
        "CREATE TABLE {src}.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'delta': 'keys'}",
        "INSERT INTO {src}.t (pk, v) VALUES (1, 1)",
    )
    assert "holds only keys" in str(refused(place).__cause__)


def test_inserts_that_may_lack_values_are_told_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryCursorStore()
    place.run(
        "CREATE TABLE {src}.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'delta': 'keys'}",
        "INSERT INTO {src}.t (pk, v) VALUES (1, 1)",
        "INSERT INTO {src}.t (pk, v) VALUES (2, 2)",
        "ALTER TABLE {src}.t WITH cdc = {'enabled': true, 'delta': 'full'}",
    )
    place.replicate(store=store)
    (told,) = [record.getMessage() for record in caplog.records if "only its key" in record.getMessage()]
    assert told.startswith(
        f"an insert of {place.source}.t has only its key, and is from before the table was altered at "
    )
    assert not place.verify().same


def test_an_insert_of_a_key_alone_is_copied_without_a_word_since_the_table_is_as_it_is(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.run(SOURCE, "INSERT INTO {src}.t (pk, ck) VALUES (1, 1)")
    store = MemoryCursorStore()
    place.replicate(store=store)
    place.run("INSERT INTO {src}.t (pk, ck, v) VALUES (1, 2, 1)", "ALTER TABLE {src}.t WITH comment = 'x'")
    place.run("INSERT INTO {src}.t (pk, ck) VALUES (1, 3)")
    place.replicate(store=store)
    assert "only its key" not in caplog.text
    assert place.verify().same


def test_a_table_is_not_copied_to_itself(place: Place) -> None:
    place.run(SOURCE)
    with pytest.raises(rscylla.errors.CannotReplicate, match="to itself"):
        Replicator(place.session, place.session, place.source).prepare(place.source, "t")


def test_a_new_column_stops_the_copy_until_the_target_has_it(place: Place) -> None:
    store = MemoryCursorStore()
    place.run(SOURCE, "INSERT INTO {src}.t (pk, ck, v) VALUES (1, 1, 1)")
    place.replicate(store=store)
    place.run("ALTER TABLE {src}.t ADD w text", "UPDATE {src}.t SET w = 'new' WHERE pk = 1 AND ck = 1")
    saved = store.get_cursor("copy")
    with pytest.raises(rscylla.RunError, match=f"ALTER TABLE {place.target}.t ADD w text"):
        rscylla.run(
            rscylla.Spec(
                rscylla.NewStream(place.session, place.source, "t"),
                store,
                rscylla.Consumer("copy", Replicator(place.session, place.session, place.target)),
                rscylla.StreamLag(LAG),
            )
        )
    assert store.get_cursor("copy") == saved
    place.run("ALTER TABLE {dst}.t ADD w text")
    place.replicate(store=store)
    assert place.verify().same


def test_a_dropped_column_is_left_out(place: Place) -> None:
    place.run(SOURCE, "INSERT INTO {src}.t (pk, ck, v) VALUES (1, 1, 1)", "ALTER TABLE {src}.t DROP v")
    place.run("INSERT INTO {src}.t (pk, ck, l) VALUES (1, 1, [4])")
    place.replicate()
    assert place.verify().same


# ---------------------------------------------------------------- comparing


def test_differences_are_found_and_named(place: Place) -> None:
    place.run(SOURCE)
    for n in range(30):
        place.run(f"INSERT INTO {{src}}.t (pk, ck, v, l) VALUES ({n}, 0, {n}, [{n}])")
    place.replicate()
    place.run("UPDATE {src}.t SET s = 1 WHERE pk = 99")
    assert [(d.kind, dict(d.key)) for d in place.verify().differences] == [("missing", {"pk": 99})]
    place.replicate()
    assert place.verify().same
    written = place.session.execute(f"SELECT writetime(v) AS at FROM {place.source}.t WHERE pk = 6").one().at
    place.run(
        "UPDATE {dst}.t SET v = 3 WHERE pk = 3 AND ck = 0",  # the value stays, its time changes
        "UPDATE {dst}.t SET l = [5, 5] WHERE pk = 5 AND ck = 0",
        f"UPDATE {{dst}}.t USING TIMESTAMP {written} AND TTL 1000 SET v = 6 WHERE pk = 6 AND ck = 0",
        "DELETE FROM {dst}.t WHERE pk = 7",
        "INSERT INTO {dst}.t (pk, ck) VALUES (8, 1)",
    )
    found = {(d.key["pk"], d.key.get("ck")): d for d in place.verify().differences}
    assert found == {
        (3, 0): Difference("different", {"pk": 3, "ck": 0}, ("v",)),
        (5, 0): Difference("different", {"pk": 5, "ck": 0}, ("l",)),
        (6, 0): Difference("different", {"pk": 6, "ck": 0}, ("v",)),
        (7, 0): Difference("missing", {"pk": 7, "ck": 0}),
        (8, 1): Difference("extra", {"pk": 8, "ck": 1}),
    }
    few = place.verify(limit=2)
    assert (len(few.differences), few.more, few.same) == (2, True, False)


def test_a_change_on_its_way_does_not_count_as_a_difference(place: Place) -> None:
    place.run(SOURCE, "INSERT INTO {src}.t (pk, ck, v) VALUES (1, 1, 1)")
    place.replicate()
    place.run("INSERT INTO {src}.t (pk, ck, v) VALUES (2, 1, 1)", "UPDATE {src}.t SET v = 2 WHERE pk = 1 AND ck = 1")

    class Clock(ManualClock):
        def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
            place.replicate()
            return super().wait(stop, seconds)

    assert place.verify(clock=Clock()).same
    assert not place.verify(clock=ManualClock()).differences


COMPARING = sys.modules["rscylla.replicate.verify"]


def test_more_changes_on_their_way_than_are_kept_in_mind(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPARING, "_MOST_DOUBTS", 3)
    place.run(SOURCE)
    inserts = [f"INSERT INTO {{src}}.t (pk, ck, v) VALUES ({n % 7}, {n}, 1)" for n in range(60)]
    place.run(*inserts)
    place.replicate()
    place.run(*inserts, "DELETE FROM {dst}.t WHERE pk = 6 AND ck = 55")

    class Clock(ManualClock):
        def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
            place.replicate()
            place.run("DELETE FROM {dst}.t WHERE pk = 6 AND ck = 55")
            return super().wait(stop, seconds)

    verdict = place.verify(clock=Clock(), limit=2, workers=1)
    assert [dict(d.key) for d in verdict.differences] == [{"pk": 6, "ck": 55}]
    assert (verdict.rows, verdict.more, verdict.unsettled) == (60, False, 0)


def test_what_changes_all_the_time_is_not_judged_but_the_rest_of_its_row_is(place: Place) -> None:
    place.run(SOURCE, *(f"INSERT INTO {{src}}.t (pk, ck, v, l) VALUES ({n}, 1, 1, [1])" for n in range(3)))
    place.replicate()

    class Clock(ManualClock):
        def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
            place.run(
                "UPDATE {src}.t SET v = 2 WHERE pk = 0 AND ck = 1",
                "UPDATE {src}.t SET v = 2 WHERE pk = 1 AND ck = 1",
            )
            return super().wait(stop, seconds)

    place.run("UPDATE {dst}.t SET l = [2] WHERE pk = 1 AND ck = 1", "UPDATE {src}.t SET v = 2 WHERE pk = 0 AND ck = 1")
    verdict = place.verify(clock=Clock())
    assert verdict.differences == (Difference("different", {"pk": 1, "ck": 1}, ("l",)),)
    assert verdict.unsettled == 1


def test_a_comparison_ends_early_and_does_not_read_the_rest(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPARING, "_MOST_DOUBTS", 5)
    place.run(SOURCE, f"CREATE TABLE {{dst}}.t ({COLUMNS}, PRIMARY KEY (pk, ck))")
    place.run(*(f"INSERT INTO {{src}}.t (pk, ck, v) VALUES (1, {n}, 1)" for n in range(100)))
    verdict = place.verify(limit=3, page_size=10)
    assert (len(verdict.differences), verdict.more, verdict.same) == (3, True, False)
    assert verdict.rows < 20


def test_an_error_ends_the_comparison_of_all_ranges(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPARING, "_MOST_DOUBTS", 1)
    place.run(SOURCE, *(f"INSERT INTO {{src}}.t (pk, ck, v) VALUES ({n}, 1, 1)" for n in range(20)))
    place.replicate()
    tokens = place.session.execute(f"SELECT pk, token(pk) FROM {place.source}.t")
    differing = max(tokens, key=lambda row: row[1])[0]
    place.run(f"DELETE FROM {{dst}}.t WHERE pk = {differing}")
    ended: list[bool] = []

    class Waiting(ManualClock):
        """Waits, in the second range, until the comparison is ended."""

        def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
            ended.append(stop.wait(30))
            return stop.is_set()

    def fail(_done: int, _all: int) -> None:
        raise KeyError("progress")

    with pytest.raises(KeyError, match="progress"):
        verify(
            place.session,
            place.session,
            place.source,
            "t",
            place.target,
            lag=LAG,
            ranges=2,
            workers=2,
            clock=Waiting(),
            on_progress=fail,
        )
    assert all(ended)


def test_bad_numbers_are_refused(place: Place) -> None:
    for name in ("limit", "looks", "workers", "page_size"):
        with pytest.raises(rscylla.ConfigError, match="1 or more"):
            place.verify(**{name: 0})
    with pytest.raises(rscylla.ConfigError, match="1 or more"):
        verify(place.session, place.session, place.source, "t", place.target, lag=LAG, ranges=0)
    with pytest.raises(rscylla.ConfigError, match="'original' or 'remaining'"):
        Replicator(place.session, place.session, place.target, ttl="none")  # type: ignore[arg-type]


def test_stopped(place: Place) -> None:
    place.run(SOURCE, f"CREATE TABLE {{dst}}.t ({COLUMNS}, PRIMARY KEY (pk, ck))")
    stop = rscylla.Stop()
    stop.set()
    with pytest.raises(rscylla.Stopped):
        place.verify(stop=stop)
