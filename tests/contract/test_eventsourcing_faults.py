"""Appends under faults: answers that are lost, outcomes that are unknown, and what the log has of them."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from eventshop import Pay, Place, orders

from rscylla._retry import Backoff
from rscylla.embedded import EmbeddedScylla, Rule, Statements
from rscylla.errors import ConnectionFailed, QueryTimeout, SubjectForgotten, VersionConflict
from rscylla.eventsourcing import (
    AggregateID,
    CommandHandler,
    EventRecord,
    PersonalData,
    ScyllaBuilds,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    ScyllaTimers,
    Timer,
)
from rscylla.testing import ManualClock

KEYSPACE = "Shop"
TABLE = "faulty_events"
APPENDS = Statements(kind="batch", table=TABLE)
AT = datetime(2026, 11, 21, 10, tzinfo=UTC)

Fault = Callable[[EmbeddedScylla], Rule]

FAULTS: dict[str, Fault] = {
    "timeout, applied": lambda s: s.faults.fail("write_timeout", APPENDS, applied=True),
    "timeout, not applied": lambda s: s.faults.fail("write_timeout", APPENDS),
    "refused for now": lambda s: s.faults.fail("overloaded", APPENDS),
    "connection lost, applied": lambda s: s.faults.drop_connection(APPENDS, partway=True),
    "connection lost, not applied": lambda s: s.faults.drop_connection(APPENDS),
    "no answer, applied": lambda s: s.faults.no_answer(APPENDS, applied=True),
    "no answer, not applied": lambda s: s.faults.no_answer(APPENDS),
}


def records(aggregate: AggregateID, after: int, count: int = 2) -> list[EventRecord]:
    return [EventRecord(aggregate, after + 1 + n, uuid.uuid4(), "Happened", 1, "{}", AT) for n in range(count)]


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    """Two nodes: when a connection is lost, the driver asks the other one at once, whatever it asked."""
    with EmbeddedScylla(seed=1, nodes=2) as server:
        server.connect().execute(
            f'CREATE KEYSPACE "{KEYSPACE}" WITH replication = '
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2} AND tablets = {'enabled': false}"
        )
        yield server


@pytest.fixture
def aggregate() -> AggregateID:
    return AggregateID("order", str(uuid.uuid4()))


@pytest.fixture
def session(scylla: EmbeddedScylla) -> Iterator[Any]:
    yield scylla.connect()
    scylla.faults.clear()


class Store(ScyllaEventStore):
    """A store that calls ``between`` after an answer that was lost, or a refusal, and before it reads."""

    def __init__(self, session: Any) -> None:
        super().__init__(session, KEYSPACE, TABLE, create=True, clock=ManualClock())
        self.between: Callable[[], None] = lambda: None

    def _settled(self, aggregate: AggregateID, expected: int, count: int) -> tuple[int, list[Any]]:
        between, self.between = self.between, lambda: None
        between()
        return super()._settled(aggregate, expected, count)


@pytest.fixture
def store(session: Any, request: pytest.FixtureRequest) -> Store:
    """A store that gives up on an answer soon where one does not come: others may take a busy machine longer."""
    found = Store(session)
    found.head(AggregateID("order", "none"))  # creates the table, and prepares
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    session.default_timeout = 3.0 if "no answer" in params.get("fault", "") else 60.0
    return found


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_append_whose_answer_is_lost_is_done_once(
    scylla: EmbeddedScylla, store: Store, aggregate: AggregateID, fault: str, version: int
) -> None:
    before = records(aggregate, 0, version)
    if before:
        store.append(before)
    appended = records(aggregate, version)
    rule = FAULTS[fault](scylla)
    store.append(appended)
    assert rule.hits == 1
    assert list(store.read(aggregate)) == before + appended


# The driver itself sends an append again that was refused for now, or whose connection ended before it was applied.
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"refused for now", "connection lost, not applied"}))
def test_what_another_appends_after_a_lost_answer_is_told_apart(
    scylla: EmbeddedScylla, store: Store, aggregate: AggregateID, fault: str
) -> None:
    ours, other = records(aggregate, 0), Store(scylla.connect())

    def overtake() -> None:
        theirs.extend(records(aggregate, other.head(aggregate)))
        other.append(theirs)

    theirs: list[EventRecord] = []
    store.between = overtake
    FAULTS[fault](scylla)
    error = None
    try:
        store.append(ours)
    except VersionConflict as e:
        error = e
    assert theirs, "the answer was lost"
    assert list(store.read(aggregate)) == (ours if error is None else []) + theirs
    assert error is None or (error.expected, error.actual) == (0, 2)


def test_an_append_whose_outcome_stays_unknown_says_so_and_may_come_again(
    scylla: EmbeddedScylla, store: Store, aggregate: AggregateID
) -> None:
    appended = records(aggregate, 0)
    with (
        scylla.faults.fail("write_timeout", APPENDS, applied=True),
        scylla.faults.fail("read_timeout", Statements(kind="select", table=TABLE), times=None),
        pytest.raises(QueryTimeout, match="reading the version of order/"),
    ):
        store.append(appended)
    store.append(appended)
    assert list(store.read(aggregate)) == appended
    with scylla.faults.fail("write_timeout", APPENDS, times=None) as rule:
        with pytest.raises(QueryTimeout, match="appending 2 events to order/"):
            store.append(records(aggregate, 2))
        assert rule.hits == 8
    assert list(store.read(aggregate)) == appended


def log_of(session: Any, aggregate: AggregateID) -> list[Any]:
    rows = session.execute(f'SELECT * FROM "{KEYSPACE}"."{TABLE}_scylla_cdc_log"')
    names = {"cdc$operation": "op", "cdc$batch_seq_no": "seq", "cdc$end_of_batch": "end", "cdc$time": "time"}
    found = [{names.get(k, k): v for k, v in zip(rows.column_names, row, strict=True)} for row in rows]
    return [row for row in found if row["aggregate_id"] == aggregate.id]


def test_the_log_has_the_head_and_then_the_events_of_an_append(
    scylla: EmbeddedScylla, store: Store, aggregate: AggregateID
) -> None:
    """As a mutation of a static row and rows is split: one record, the static row first, then the inserts."""
    first, second = records(aggregate, 0, 3), records(aggregate, 3, 1)
    store.append(first)
    with pytest.raises(VersionConflict):
        store.append(records(aggregate, 1))
    store.append(first)
    store.append(second)
    found = sorted(log_of(scylla.connect(), aggregate), key=lambda row: (row["time"].time, row["seq"]))
    shown = [(row["seq"], row["op"], row["head"], row["version"], row["event_id"]) for row in found]
    ids = [record.event_id for record in first]
    assert shown == [
        (0, 1, 3, None, None),
        *((1 + n, 2, None, 1 + n, one) for n, one in enumerate(ids)),
        (0, 1, 4, None, None),
        (1, 2, None, 4, second[0].event_id),
    ]
    assert [row["end"] for row in found] == [None, None, None, True, None, True]
    assert len({row["time"] for row in found[:4]}) == 1
    deleted = [name for name in found[0] if name.startswith("cdc$deleted_")]
    assert [row[name] for row in found for name in deleted] == [None] * (len(found) * len(deleted))


# ---------------------------------------------------------------- load


def broken(scylla: EmbeddedScylla, probability: float) -> None:
    """Let a part of the appends, and of the reads that settle them, go wrong in all ways until the faults end."""
    often: dict[str, Any] = {"times": None, "probability": probability, "seed": 7}
    scylla.faults.fail("write_timeout", APPENDS, applied=True, **often)
    scylla.faults.fail("write_timeout", APPENDS, **often)
    scylla.faults.drop_connection(APPENDS, partway=True, **{**often, "probability": probability / 10})
    scylla.faults.fail("overloaded", Statements(table=TABLE), **often)
    scylla.faults.fail("read_timeout", Statements(kind="select", table=TABLE), **often)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as e:  # noqa: BLE001 - raised below
            errors.append(e)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.slow
def test_many_appenders_under_faults_lose_and_double_nothing(
    scylla: EmbeddedScylla, store: Store, aggregate: AggregateID
) -> None:
    appended: list[EventRecord] = []
    conflicts: list[VersionConflict] = []
    sessions = [scylla.connect() for _ in range(4)]

    def append(store: Store, some: Sequence[EventRecord]) -> bool:
        while True:
            try:
                store.append(some)
            except (QueryTimeout, ConnectionFailed):
                continue  # the same append again tells
            except VersionConflict as e:
                conflicts.append(e)
                return False
            return True

    def head(store: Store) -> int:
        while True:
            try:
                return store.head(aggregate)
            except (QueryTimeout, ConnectionFailed):
                continue

    def work(number: int) -> None:
        mine, done = Store(sessions[number]), 0
        while done < 20:
            some = records(aggregate, head(mine), 1 + done % 3)
            if append(mine, some):
                appended.extend(some)
                done += 1

    broken(scylla, 0.1)
    in_threads(4, work)
    scylla.faults.clear()
    assert conflicts, "the appenders met"
    found = list(store.read(aggregate))
    assert [record.version for record in found] == list(range(1, len(found) + 1))
    assert found == sorted(appended, key=lambda record: record.version)
    logged = [row["event_id"] for row in log_of(sessions[0], aggregate) if row["op"] == 2]
    assert sorted(logged) == sorted(record.event_id for record in found)


@pytest.mark.slow
def test_commands_under_faults_are_done_once(scylla: EmbeddedScylla, store: Store) -> None:
    session = scylla.connect()
    keys = ScyllaSubjectKeys(session, KEYSPACE, create=True)
    snapshots = ScyllaSnapshotStore(session, KEYSPACE, create=True)
    name = str(uuid.uuid4())
    soon = Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=5))

    def handler(session: Any) -> CommandHandler[Any, Any, Any]:
        shop = orders(PersonalData(keys))
        return CommandHandler(shop, Store(session), snapshots=snapshots, snapshot_every=7, attempts=1000, backoff=soon)

    sessions = [scylla.connect() for _ in range(4)]
    handler(session).handle(name, Place("ann", "Ann", 1000))
    broken(scylla, 0.05)

    def work(number: int) -> None:
        mine, dice = handler(sessions[number]), random.Random(number)
        for n in range(15):
            command = f"pay {(number + n % 2) % 4} {n}"  # half of the commands are sent by another thread, too
            for _ in range(1 + dice.randrange(2)):
                mine.handle(name, Pay(1), command_id=command)

    in_threads(4, work)
    scylla.faults.clear()
    sent = {f"pay {(number + n % 2) % 4} {n}" for number in range(4) for n in range(15)}
    found = list(store.read(AggregateID("order", name)))
    assert sorted(record.causation_id for record in found[1:]) == sorted(sent)
    plain = CommandHandler(orders(PersonalData(keys)), store).load(name)
    assert handler(session).load(name).state == plain.state
    assert plain.state.open == 1000 - len(sent)


def test_who_is_forgotten_in_the_middle_of_faults_stays_so(scylla: EmbeddedScylla, session: Any) -> None:
    keys = ScyllaSubjectKeys(session, KEYSPACE, "faulty_keys", create=True, clock=ManualClock())
    assert keys.find_key("none") is None
    writes = Statements(table="faulty_keys", matching=" IF ")
    for n, applied in enumerate((True, False)):
        who = f"customer {n}"
        scylla.faults.fail("write_timeout", writes, applied=applied)
        key = keys.make_key(who)
        assert keys.find_key(who) == key
        scylla.faults.fail("write_timeout", writes, applied=applied)
        keys.forget(who)
        assert keys.find_key(who) is None
        with pytest.raises(SubjectForgotten):
            keys.make_key(who)


@pytest.mark.parametrize("applied", [True, False])
def test_a_timer_whose_write_times_out_is_kept_or_the_error_is_told(scylla: EmbeddedScylla, applied: bool) -> None:
    timers = ScyllaTimers(scylla.connect(), KEYSPACE, "faulty_timers", create=True)
    timers.create_schema()
    timer = Timer(str(uuid.uuid4()), AT, "data")
    writes = Statements(table="faulty_timers", matching=" IF ")

    def told(work: Callable[[], bool]) -> bool:
        """Return what *work* returns; it may be told to come again, and does."""
        with scylla.faults.fail("write_timeout", writes, applied=applied) as rule:
            if applied:
                assert work()
            else:
                with pytest.raises(QueryTimeout, match="faulty_timers"):
                    work()
            assert rule.hits == 1
        return work()

    assert told(lambda: timers.schedule(timer))
    assert timer in timers.due(datetime.now(UTC), 10)
    assert told(lambda: timers.claim(timer, "a", timedelta(minutes=1)))
    other = Timer(str(uuid.uuid4()), AT)
    assert timers.schedule(other)
    assert told(lambda: timers.cancel(other.id))


@pytest.mark.parametrize("applied", [True, False])
def test_a_step_of_a_build_that_times_out_is_done_or_the_error_is_told(scylla: EmbeddedScylla, applied: bool) -> None:
    builds, name = ScyllaBuilds(scylla.connect(), KEYSPACE, "faulty_builds", create=True), str(uuid.uuid4())
    assert builds.find_builds(name).building == 1
    steps: list[Callable[[], bool]] = [
        lambda: builds.scanned(name, 1, "lane", 3),
        lambda: builds.activate(name, 1),
        lambda: builds.begin_build(name, 2),
    ]
    for step in steps:
        with scylla.faults.fail("write_timeout", Statements(table="faulty_builds", matching=" IF "), applied=applied):
            if applied:
                assert step()
            else:
                with pytest.raises(QueryTimeout, match="faulty_builds"):
                    step()
        assert step()


def test_a_row_that_something_else_wrote_is_told(scylla: EmbeddedScylla, store: Store, aggregate: AggregateID) -> None:
    session = scylla.connect()
    text = f'INSERT INTO "{KEYSPACE}"."{TABLE}" (aggregate_type, aggregate_id, version) VALUES (%s, %s, 1)'
    session.execute(text, attrs.astuple(aggregate))
    try:
        with pytest.raises(Exception, match=r"event 1 of order/.* lacks a value"):
            list(store.read(aggregate))
    finally:
        where = "aggregate_type = %s AND aggregate_id = %s"
        session.execute(f'DELETE FROM "{KEYSPACE}"."{TABLE}" WHERE {where}', attrs.astuple(aggregate))
