"""Commands: decided on the whole state, once, again after conflicts, and from snapshots."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import attrs
import pytest
from eventshop import Pay, Place, Refused, State, orders

from rscylla._retry import Backoff
from rscylla.clock import Stop
from rscylla.errors import (
    CommandIDReused,
    ConfigError,
    ConnectionFailed,
    QueryTimeout,
    Stopped,
    UnreadableEvent,
    VersionConflict,
    VersionGap,
)
from rscylla.eventsourcing import (
    FORGOTTEN,
    Aggregate,
    AggregateID,
    CommandHandler,
    EventRecord,
    EventTypes,
    MemoryEventStore,
    MemorySnapshotStore,
    MemorySubjectKeys,
    PersonalData,
    Snapshot,
    event_id_of,
)
from rscylla.testing import ManualClock

ORDER = AggregateID("order", "1")
SOON = Backoff(initial=timedelta(microseconds=1), maximum=timedelta(microseconds=1))


class Store(MemoryEventStore):
    """A store that calls ``before`` ahead of each append, and counts the events that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.reads: list[int] = []

    def append(self, records: Sequence[EventRecord]) -> None:
        self.before()
        super().append(records)
        self.after()

    def read(self, aggregate: AggregateID, after: int = 0):  # type: ignore[no-untyped-def]
        found = list(super().read(aggregate, after))
        self.reads.append(len(found))
        return iter(found)


@pytest.fixture
def personal() -> PersonalData:
    return PersonalData(MemorySubjectKeys())


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def handler(store: Store, personal: PersonalData) -> CommandHandler:  # type: ignore[type-arg]
    return CommandHandler(orders(personal), store, backoff=SOON, clock=ManualClock())


def test_a_command_leads_to_events_with_its_context(handler: CommandHandler, store: Store) -> None:
    done = handler.handle("1", Place("ann", "Ann", 30), command_id="c", user="u", metadata={"ip": "::1"})
    assert (done.version, done.state, done.repeated) == (1, State("ann", "Ann", 30), False)
    (found,) = store.read(ORDER)
    assert done.events[0].record == found
    assert (found.causation_id, found.correlation_id, found.user, found.metadata) == ("c", "c", "u", {"ip": "::1"})
    assert found.event_id == event_id_of(ORDER, "c", 0)
    assert handler.handle("1", Pay(10), correlation_id="k").events[0].correlation_id == "k"
    assert handler.load("1").state.open == 20


def test_a_refusal_is_the_applications_own_error(handler: CommandHandler, store: Store) -> None:
    with pytest.raises(Refused, match="only 0 to pay"):
        handler.handle("1", Pay(1))
    assert store.head(ORDER) == 0


def test_a_command_without_events_changes_nothing(handler: CommandHandler, store: Store) -> None:
    assert handler.handle("1", Pay(0)).version == 0
    assert store.head(ORDER) == 0


def test_a_command_sent_twice_is_done_once(handler: CommandHandler, store: Store) -> None:
    handler.handle("1", Place("ann", "Ann", 30))
    first = handler.handle("1", Pay(10), command_id="pay")
    handler.handle("1", Pay(20))
    second = handler.handle("1", Pay(10), command_id="pay")
    assert second.repeated
    assert second.events == first.events
    assert (second.version, second.state.open) == (3, 0)
    assert store.head(ORDER) == 3


@pytest.mark.parametrize("other", [Pay(11), Pay(500), Pay(0), Place("bob", "Bob", 1)])
@pytest.mark.parametrize("snapshots", [False, True])
def test_the_id_of_another_command_is_refused(
    store: Store, personal: PersonalData, other: Any, snapshots: bool
) -> None:
    kept = MemorySnapshotStore() if snapshots else None
    handler = CommandHandler(orders(personal), store, snapshots=kept, snapshot_every=2, clock=ManualClock())
    handler.handle("1", Place("ann", "Ann", 30))
    handler.handle("1", Pay(10), command_id="pay")
    handler.handle("1", Pay(20))
    with pytest.raises(CommandIDReused, match=r"command id 'pay' is of an earlier command to order/1") as caught:
        handler.handle("1", other, command_id="pay")
    assert "only 30 to pay" not in "".join(traceback.format_exception(caught.value)), "what decide says stays with it"
    assert store.head(ORDER) == 3
    assert handler.handle("1", Pay(10), command_id="pay").repeated


def test_the_id_of_another_command_is_refused_though_that_one_comes_first_in_the_last_moment(
    handler: CommandHandler, store: Store, personal: PersonalData
) -> None:
    handler.handle("1", Place("ann", "Ann", 30))
    first = CommandHandler(orders(personal), store)

    def overtake() -> None:
        store.before = lambda: None
        first.handle("1", Pay(10), command_id="pay")

    store.before = overtake
    with pytest.raises(CommandIDReused):
        handler.handle("1", Pay(20), command_id="pay")
    assert handler.load("1").state.open == 20


def test_what_the_receiver_of_a_command_made_may_differ_when_it_comes_again() -> None:
    types = EventTypes()

    @types.register
    @attrs.frozen
    class Confirmed:
        amount: float
        due: datetime
        reference: str
        key: uuid.UUID
        trace: str = attrs.field(eq=False)
        days: tuple[date, ...] = ()

    def received(amount: float = 1.0, days: int = 1, reference: str = "") -> Confirmed:
        number = next(numbers)
        made = reference or str(uuid.uuid4())
        day = date(2026, 11, number)
        return Confirmed(amount, datetime(2026, 11, number, tzinfo=UTC), made, uuid.uuid4(), str(number), (day,) * days)

    numbers = itertools.count(1)
    kind: Aggregate[int, Any, Any] = Aggregate("a", 0, lambda _, command: [command], lambda n, _: n + 1, types)
    handler = CommandHandler(kind, MemoryEventStore(), clock=ManualClock())
    handler.handle("1", received(), command_id="c")
    assert handler.handle("1", received(), command_id="c").repeated
    for other in (received(2.0), received(days=2), received(reference="another")):
        with pytest.raises(CommandIDReused):
            handler.handle("1", other, command_id="c")
    assert handler.handle("1", received(), command_id="c").version == 1


def test_a_command_about_a_person_who_was_forgotten_since_is_still_recognized(
    handler: CommandHandler, personal: PersonalData
) -> None:
    handler.handle("1", Place("ann", "Ann", 30), command_id="place")
    personal.forget("ann")
    assert handler.handle("1", Place("ann", "Ann", 30), command_id="place").repeated


def test_after_a_conflict_the_aggregate_decides_again_on_what_is_new(
    handler: CommandHandler, store: Store, personal: PersonalData
) -> None:
    handler.handle("1", Place("ann", "Ann", 30))
    other = CommandHandler(orders(personal), store)

    def overtake() -> None:
        store.before = lambda: None
        other.handle("1", Pay(25))

    store.before = overtake
    store.reads.clear()
    with pytest.raises(Refused, match="only 5 to pay"):
        handler.handle("1", Pay(10))
    assert store.reads == [1, 1, 1], "what was read before the conflict is not read again"
    store.before = overtake
    with pytest.raises(Refused):
        handler.handle("1", Pay(5))


def test_a_sender_that_expects_a_version_is_told_of_another_one_at_once(
    handler: CommandHandler, store: Store, personal: PersonalData
) -> None:
    assert handler.handle("1", Place("ann", "Ann", 30), expected=0).version == 1
    for expected in (0, 2):
        with pytest.raises(VersionConflict) as caught:
            handler.handle("1", Pay(5), expected=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, 1)
    paid = handler.handle("1", Pay(5), command_id="p", expected=1)
    assert handler.handle("1", Pay(5), command_id="p", expected=1).events == paid.events
    other = CommandHandler(orders(personal), store)

    def overtake() -> None:
        store.before = lambda: None
        other.handle("1", Pay(5))

    store.before = overtake
    with pytest.raises(VersionConflict) as caught:
        handler.handle("1", Pay(5), expected=2)
    assert (caught.value.expected, caught.value.actual) == (2, 3)
    assert store.head(ORDER) == 3


def test_an_expected_version_and_a_lost_answer_are_no_conflict(handler: CommandHandler, store: Store) -> None:
    def lost() -> None:
        store.after = lambda: None
        raise QueryTimeout("late")

    store.after = lost
    assert handler.handle("1", Place("ann", "Ann", 30), expected=0).version == 1


def test_a_handler_gives_up_after_its_attempts(store: Store, personal: PersonalData) -> None:
    handler = CommandHandler(orders(personal), store, attempts=3, backoff=SOON, clock=ManualClock())
    handler.handle("1", Place("ann", "Ann", 30))
    other, calls = CommandHandler(orders(personal), MemoryEventStore()), []

    def always() -> None:
        calls.append(1)
        raise VersionConflict("again", expected=1, actual=2)

    store.before = always
    with pytest.raises(VersionConflict):
        handler.handle("1", Pay(1))
    assert len(calls) == 3
    assert other.load("1").version == 0


def test_a_stop_ends_the_reading_of_a_large_aggregate(
    handler: CommandHandler, store: Store, personal: PersonalData
) -> None:
    stop, read = Stop(), list[int]()
    handler.handle("1", Place("ann", "Ann", 30))
    for _ in range(5):
        handler.handle("1", Pay(1))

    class Stopping(MemoryEventStore):
        def read(self, aggregate: AggregateID, after: int = 0):  # type: ignore[no-untyped-def]
            for record in store.read(aggregate, after):
                read.append(record.version)
                if record.version == 3:
                    stop.set()
                yield record

    with pytest.raises(Stopped):
        CommandHandler(orders(personal), Stopping(), clock=ManualClock(), stop=stop).handle("1", Pay(1))
    assert read == [1, 2, 3]


@pytest.mark.parametrize("error", [QueryTimeout("late"), ConnectionFailed("cut")])
def test_an_append_whose_outcome_is_unknown_is_not_done_twice(
    handler: CommandHandler, store: Store, error: Exception
) -> None:
    def lost() -> None:
        store.after = lambda: None
        raise error

    store.after = lost
    done = handler.handle("1", Place("ann", "Ann", 30))
    assert (done.repeated, done.version, len(done.events)) == (True, 1, 1)
    assert store.head(ORDER) == 1


def test_commands_of_many_threads_are_all_done_once(store: Store, personal: PersonalData) -> None:
    CommandHandler(orders(personal), store).handle("1", Place("ann", "Ann", 1000))

    def work(who: int) -> None:
        handler = CommandHandler(orders(personal), store, attempts=1000, backoff=SOON)
        for n in range(20):
            handler.handle("1", Pay(1), command_id=f"pay {n % 10} {who}")

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.head(ORDER) == 41
    assert CommandHandler(orders(personal), store).load("1").state.open == 960


# ---------------------------------------------------------------- snapshots


def snapshotting(
    store: Store, snapshots: MemorySnapshotStore, personal: PersonalData, *, remember: int = 5, schema: int = 1
) -> CommandHandler:  # type: ignore[type-arg]
    aggregate = orders(personal, state_schema=schema)
    return CommandHandler(aggregate, store, snapshots=snapshots, snapshot_every=10, remember=remember)


def test_a_load_from_a_snapshot_equals_a_replay(store: Store, personal: PersonalData) -> None:
    snapshots = MemorySnapshotStore()
    handler = snapshotting(store, snapshots, personal)
    handler.handle("1", Place("ann", "Ann", 100))
    for n in range(24):
        handler.handle("1", Pay(1), command_id=str(n))
    kept = snapshots.get_snapshot(ORDER)
    assert kept is not None
    assert (kept.version, kept.commands) == (20, ("14", "15", "16", "17", "18"))
    assert json.loads(kept.state)["name"] == FORGOTTEN, "personal data are sealed in snapshots, too"
    store.reads.clear()
    loaded = handler.load("1")
    assert (store.reads, loaded.snapshot, loaded.version) == ([5], 20, 25)
    assert loaded.state == CommandHandler(orders(personal), store).load("1").state
    store.reads.clear()
    assert handler.handle("1", Pay(1), command_id="14").repeated
    assert not handler.handle("1", Pay(1), command_id="13").repeated, "forgotten after remember= commands"


def test_a_snapshot_of_another_schema_or_a_broken_one_is_not_used(
    store: Store, personal: PersonalData, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = MemorySnapshotStore()
    handler = snapshotting(store, snapshots, personal)
    handler.handle("1", Place("ann", "Ann", 100))
    for _ in range(10):
        handler.handle("1", Pay(1))
    right = handler.load("1").state
    assert snapshotting(store, snapshots, personal, schema=2).load("1").state == right
    assert snapshotting(store, snapshots, personal, schema=2).load("1").snapshot == 0
    snapshots.put_snapshot(Snapshot(ORDER, 10, 1, '{"open":"much"}'))
    with caplog.at_level(logging.WARNING):
        assert handler.load("1").state == right
    assert "the snapshot of order/1 is not used" in caplog.text


def test_a_snapshot_that_cannot_be_kept_does_not_fail_the_command(
    store: Store, personal: PersonalData, caplog: pytest.LogCaptureFixture
) -> None:
    class Down(MemorySnapshotStore):
        def put_snapshot(self, snapshot: Snapshot) -> None:
            raise QueryTimeout("down")

    handler = snapshotting(store, Down(), personal)
    handler.handle("1", Place("ann", "Ann", 100))
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            handler.handle("1", Pay(1))
    assert "no snapshot of order/1 was kept" in caplog.text
    assert store.head(ORDER) == 10


@attrs.frozen
class Booked:
    seat: int
    by: str


@attrs.frozen
class Open:
    seats: Mapping[int, str] = attrs.field(factory=dict)


@attrs.frozen
class Full(Open):
    pass


class Taken(Exception):
    pass


def flights(state: Any, evolve: Callable[[Any, Booked], Any], **options: Any) -> Aggregate[Any, Booked, Booked]:
    types = EventTypes()
    types.register(Booked)

    def decide(state: Any, command: Booked) -> list[Booked]:
        if command.seat in (getattr(state, "seats", state) or ()):
            raise Taken
        return [command]

    return Aggregate("flight", state, decide, evolve, types, **options)


def with_seat(seats: Mapping[int, str], event: Booked) -> dict[int, str]:
    return {**seats, event.seat: event.by}


def filled(state: Open, event: Booked) -> Open:
    seats = with_seat(state.seats, event)
    return Full(seats)


@pytest.mark.parametrize(
    ("state", "evolve", "options", "kept"),
    [
        ({}, with_seat, {}, False),
        ({}, with_seat, {"state_type": dict[int, str]}, True),
        ({}, with_seat, {"state_type": dict[str, str]}, False),
        ({}, with_seat, {"state_type": object}, False),
        (Open(), filled, {}, False),
        (Open(), lambda state, event: Open(with_seat(state.seats, event)), {}, True),
        ((), lambda seats, event: (*seats, event.seat), {}, False),
        (frozenset(), lambda seats, event: seats | {event.seat}, {"state_type": frozenset[int]}, True),
        (frozenset(), lambda seats, event: seats | {event.seat}, {"state_type": set[int]}, False),
        (None, lambda seats, event: with_seat(seats or {}, event), {"state_type": dict[int, str]}, False),
    ],
)
def test_a_state_from_a_snapshot_is_the_one_of_its_events_or_there_is_no_snapshot(
    state: Any, evolve: Any, options: dict[str, Any], kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, snapshots = MemoryEventStore(), MemorySnapshotStore()
    aggregate = flights(state, evolve, **options)
    with caplog.at_level(logging.WARNING):
        handler = CommandHandler(aggregate, store, snapshots=snapshots, snapshot_every=1)
        for seat in range(1, 6):
            handler.handle("LH1", Booked(seat, "ann"))
    assert len(caplog.records) == (0 if kept else 1), "it is said once"
    found = CommandHandler(aggregate, store, snapshots=snapshots, snapshot_every=1).load("LH1")
    replayed = CommandHandler(aggregate, store).load("LH1")
    assert (found.state, repr(found.state)) == (replayed.state, repr(replayed.state))
    assert bool(found.snapshot) == kept
    with pytest.raises(Taken):
        handler.handle("LH1", Booked(1, "eve"))


def test_a_state_may_be_none(store: Store) -> None:
    types = EventTypes()
    types.register(Booked)
    aggregate = Aggregate("flight", 7, lambda _, event: [event], lambda state, _: None if state == 7 else state, types)
    handler = CommandHandler(aggregate, store)
    assert [handler.handle("LH1", Booked(n, "ann")).state for n in range(3)] == [None] * 3


def test_who_is_forgotten_is_gone_from_states_and_snapshots(store: Store, personal: PersonalData) -> None:
    snapshots = MemorySnapshotStore()
    handler = snapshotting(store, snapshots, personal)
    handler.handle("1", Place("ann", "Ann", 100))
    for _ in range(10):
        handler.handle("1", Pay(1))
    assert handler.load("1").state.name == "Ann"
    personal.forget("ann")
    for seen in (handler, CommandHandler(orders(personal), store)):
        assert seen.load("1").state.name == FORGOTTEN
    for _ in range(10):
        handler.handle("1", Pay(1))
    kept = snapshots.get_snapshot(ORDER)
    assert kept is not None
    assert kept.version == 20, "a state without personal data is kept"


def test_an_unreadable_event_stops_the_command(handler: CommandHandler, store: Store) -> None:
    handler.handle("1", Place("ann", "Ann", 100))
    (first,) = store.read(ORDER)
    store.append([EventRecord(ORDER, 2, event_id_of(ORDER, "other", 0), "Unheard", 1, "{}", first.at)])
    with pytest.raises(UnreadableEvent, match="event 2 of order/1, type Unheard, schema 1"):
        handler.handle("1", Pay(1))


def test_nothing_is_decided_on_a_state_from_which_an_event_is_missing(
    handler: CommandHandler, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler.handle("1", Place("ann", "Ann", 100))
    for _ in range(3):
        handler.handle("1", Pay(1))
    kept = [record for record in store.read(ORDER) if record.version != 3]
    monkeypatch.setattr(store, "read", lambda _, after=0: iter(kept[after:]))
    with pytest.raises(VersionGap, match="order/1 has event 4 after event 2") as caught:
        handler.handle("1", Pay(1))
    assert (caught.value.expected, caught.value.actual) == (3, 4)


def test_an_old_event_is_upcast_before_it_is_applied(handler: CommandHandler, store: Store) -> None:
    data = '{"customer_id":"ann","name":"[forgotten]","price":7}'
    handler.handle("2", Place("bob", "Bob", 1))
    (some,) = store.read(AggregateID("order", "2"))
    store.append([EventRecord(ORDER, 1, event_id_of(ORDER, "c", 0), "Placed", 1, data, some.at)])
    assert handler.load("1").state.open == 7


def test_wrong_options_are_refused(store: Store, personal: PersonalData) -> None:
    for options in ({"snapshot_every": 0}, {"attempts": 0}, {"remember": -1}):
        with pytest.raises(ConfigError):
            CommandHandler(orders(personal), store, **options)  # type: ignore[arg-type]
