"""Personal data: sealed wherever they are, refused where they cannot be, and in no text of an error."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import re
import traceback
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import attrs
import pytest
from eventmemory import MemoryTimers
from eventshapes import SUBJECTS, Drawn, drawn_events, found_in, text_of
from hypothesis import HealthCheck, given, settings

from rscylla.errors import ConfigError, SubjectForgotten, UnreadableEvent
from rscylla.eventsourcing import (
    FORGOTTEN,
    Aggregate,
    AggregateID,
    CommandHandler,
    ConcealedError,
    Envelope,
    EventRecord,
    EventTypes,
    MemoryEventStore,
    MemorySnapshotStore,
    MemorySubjectKeys,
    PersonalData,
    Processes,
    Send,
    Timer,
    personal,
    subject,
)

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
T = TypeVar("T")
SECRET = "Anna-Ångström-7"


def record(name: str, schema: int, data: str) -> EventRecord:
    return EventRecord(AggregateID("customer", "1"), 1, uuid.uuid4(), name, schema, data, AT)


@attrs.define
class Sealing:
    """Types of events, and the keys of their subjects."""

    keys: MemorySubjectKeys = attrs.field(factory=MemorySubjectKeys)

    def types(self, *classes: type) -> EventTypes:
        types = EventTypes(personal=PersonalData(self.keys))
        for cls in classes:
            types.register(cls)
        return types

    def stored(self, event: Any) -> EventRecord:
        return record(*self.types(type(event)).encode(event))

    def read(self, cls: type, stored: EventRecord) -> Any:
        """Return the event as a process reads it that has no keys in memory."""
        return self.types(cls).decode(stored).event


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(drawn_events())
@pytest.mark.slow
def test_no_secret_of_any_event_is_in_what_is_stored_or_in_what_is_read_once_all_are_forgotten(drawn: Drawn) -> None:
    assert_sealed(drawn)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(drawn_events(odd=True))
@pytest.mark.slow
def test_an_event_that_is_written_in_a_way_of_its_own_is_sealed_too_or_its_class_is_refused(drawn: Drawn) -> None:
    try:
        Sealing().types(drawn.cls)
    except ConfigError:
        return
    assert_sealed(drawn)


def assert_sealed(drawn: Drawn) -> None:
    sealing = Sealing()
    stored = sealing.stored(drawn.event)
    assert not found_in(stored.data.encode(), drawn.secrets)
    assert text_of(sealing.read(drawn.cls, stored)) == text_of(drawn.event)
    for who in SUBJECTS:
        sealing.keys.forget(who)
        sealing.read(drawn.cls, stored)
    assert not found_in(text_of(sealing.read(drawn.cls, stored)).encode(), drawn.secrets)


@attrs.frozen
class Address:
    country: str
    street: str = personal()


@dataclasses.dataclass(frozen=True)
class Parcel:
    to: Address
    weight: float = 1.0


class Stop(NamedTuple):
    at: Address
    number: int


@attrs.frozen
class Moved:
    parcels: frozenset[Parcel]
    stops: deque[Stop]
    by_year: dict[int, list[Address | None]]
    who: str = subject()


def test_personal_fields_are_sealed_in_each_kind_of_container() -> None:
    home, work = Address("SE", "Street 1"), Address("SE", "Street 2")
    event = Moved(frozenset({Parcel(home), Parcel(work)}), deque([Stop(home, 1)]), {1980: [work, None]}, "ann")
    sealing = Sealing()
    stored = sealing.stored(event)
    assert "Street" not in stored.data
    assert sealing.read(Moved, stored) == event
    sealing.keys.forget("ann")
    gone = Address("SE", FORGOTTEN)
    assert sealing.read(Moved, stored) == Moved(
        frozenset({Parcel(gone)}), deque([Stop(gone, 1)]), {1980: [gone, None]}, "ann"
    )


@attrs.frozen
class Person:
    id: str = subject()
    name: str = personal()


@attrs.frozen
class Gift:
    giver: Person
    takers: frozenset[Person]
    to: Address
    who: str = subject()
    text: str = personal()


def test_a_class_that_names_its_own_subject_is_forgotten_with_that_one() -> None:
    event = Gift(Person("a", "A"), frozenset({Person("b", "B"), Person("c", "C")}), Address("SE", "S"), "d", "T")
    sealing = Sealing()
    stored = sealing.stored(event)
    assert sealing.read(Gift, stored) == event
    sealing.keys.forget("b")
    found = sealing.read(Gift, stored)
    assert found.takers == {Person("b", FORGOTTEN), Person("c", "C")}
    assert (found.giver, found.text, found.to.street) == (Person("a", "A"), "T", "S")
    with pytest.raises(SubjectForgotten):
        sealing.stored(event)
    sealing.keys.forget("d")
    found = sealing.read(Gift, stored)
    assert (found.giver.name, found.text, found.to.street) == ("A", FORGOTTEN, FORGOTTEN)


class Pair(NamedTuple, Generic[T]):
    at: Address
    it: T


def test_containers_that_only_the_converter_knows_are_no_way_round_the_sealing() -> None:
    by_name = defaultdict(Address, home=Address("SE", SECRET))
    for kind, value in ((defaultdict[str, Address], by_name), (Pair[int], Pair(Address("SE", SECRET), 1))):
        cls = attrs.make_class("Kept", {"it": attrs.field(type=kind), "who": subject(type=str)}, frozen=True)
        try:
            stored = Sealing().stored(cls(value, "ann"))
        except ConfigError:
            continue
        assert SECRET not in stored.data
        unowned = attrs.make_class("Unowned", {"it": attrs.field(type=kind)}, frozen=True)
        with pytest.raises(ConfigError, match=r"no subject\(\)"):
            Sealing().stored(unowned(value))


class Opaque:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.inner == other.inner

    __hash__ = None  # type: ignore[assignment]


def test_what_cannot_be_looked_into_is_refused_though_it_is_personal_itself() -> None:
    who = {"who": subject(type=str)}
    for box in (attrs.field(type=Opaque), personal(type=Opaque, placeholder={}), personal(type=list[Opaque])):
        with pytest.raises(ConfigError, match=r"Kept\.box"):
            Sealing().types(attrs.make_class("Kept", {**who, "box": box}))
    hidden = attrs.make_class("Hidden", {"box": attrs.field(type=Any)})
    for value in (Opaque(Address("SE", SECRET)), Address("SE", SECRET), [Address("SE", SECRET)]):
        with pytest.raises(ConfigError):
            Sealing().stored(hidden(value))


def marked_where_nobody_looks() -> Iterator[type]:
    @dataclasses.dataclass
    class Data:
        name: str = personal()

    class Name(NamedTuple):
        name: str = personal()

    base = {"who": subject(type=str)}
    yield attrs.make_class("InDataclass", {**base, "it": attrs.field(type=Data)})
    yield attrs.make_class("InTuple", {**base, "it": attrs.field(type=Name)})
    yield attrs.make_class("Noted", {**base, "it": attrs.field(type=Annotated[str, personal()])})
    yield attrs.make_class("NotedInside", {**base, "it": attrs.field(type=list[Annotated[str, personal()]])})
    yield attrs.make_class("NotGiven", {**base, "it": personal(type=str, init=False, default="")})
    yield attrs.make_class("Both", {"it": subject(type=str, metadata=personal().metadata)})
    yield attrs.make_class("Nested", {**base, "it": personal(type=Person | None, placeholder=None)})
    yield attrs.make_class("Key", {**base, "it": attrs.field(type=dict[Address, int])})
    yield attrs.make_class("Unowned", {"it": attrs.field(type=dict[str, tuple[frozenset[Parcel], ...]])})


def test_marks_that_would_not_be_seen_or_make_no_sense_are_refused_when_they_are_registered() -> None:
    for cls in marked_where_nobody_looks():
        with pytest.raises(ConfigError):
            Sealing().types(cls)


def test_an_event_that_could_not_be_read_once_its_subject_is_forgotten_is_refused() -> None:
    def check(_: Any, __: Any, value: str) -> None:
        if "@" not in value:
            raise ValueError(f"{value} is no address")

    cls = attrs.make_class("Mailed", {"who": subject(type=str), "to": personal(type=str, validator=check)})
    with pytest.raises(ConfigError, match="cannot be sealed"):
        Sealing().stored(cls("ann", "ann@example.org"))


# ---------------------------------------------------------------- states


def club(state: Any, kind: Any, evolve: Callable[[Any, Any], Any], types: EventTypes) -> Aggregate[Any, Any, Any]:
    return Aggregate("club", state, lambda _, event: [event], evolve, types, state_type=kind)


def test_states_of_containers_are_sealed_if_their_type_is_declared() -> None:
    for state, kind, evolve in (
        ({}, dict[str, Person], lambda members, event: {**members, event.id: event}),
        ([], list[Person], lambda members, event: [*members, event]),
        (None, Person | None, lambda _, event: event),
    ):
        sealing, store, snapshots = Sealing(), MemoryEventStore(), MemorySnapshotStore()
        kept = CommandHandler(
            club(state, kind, evolve, sealing.types(Person)), store, snapshots=snapshots, snapshot_every=1
        )
        done = kept.handle("chess", Person("m1", SECRET))
        snapshot = snapshots.get_snapshot(AggregateID("club", "chess"))
        assert snapshot is not None
        assert SECRET not in snapshot.state
        again = CommandHandler(
            club(state, kind, evolve, sealing.types(Person)), MemoryEventStore(), snapshots=snapshots
        )
        assert again.load("chess").state == done.state
        reader = EventTypes()
        assert FORGOTTEN in text_of(reader.decode_state("club", kind, snapshot.state)), "without keys"
        sealing.keys.forget("m1")
        again = CommandHandler(
            club(state, kind, evolve, sealing.types(Person)), MemoryEventStore(), snapshots=snapshots
        )
        assert FORGOTTEN in text_of(again.load("chess").state)


@pytest.mark.parametrize(
    ("state", "kind", "why"),
    [
        ({}, dict, "does not say what it holds"),
        ("", str, "texts outside of classes"),
        ({}, dict[str, str], "texts outside of classes"),
        (Address("", ""), Address, r"no subject\(\)"),
    ],
)
def test_a_state_that_would_keep_personal_data_in_the_clear_is_never_in_a_snapshot(
    state: Any, kind: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = MemorySnapshotStore()
    aggregate = club(state, kind, lambda state, _: state, Sealing().types(Person))
    with caplog.at_level(logging.WARNING, "rscylla.eventsourcing"):
        kept = CommandHandler(aggregate, MemoryEventStore(), snapshots=snapshots, snapshot_every=1)
        for n in range(3):
            kept.handle("chess", Person(f"m{n}", SECRET))
    (line,) = caplog.records
    assert "no snapshots of club are made" in line.message
    assert re.search(why, line.message)
    assert snapshots.get_snapshot(AggregateID("club", "chess")) is None


# ---------------------------------------------------------------- errors


def all_of(error: BaseException | None) -> str:
    """Return all that can be printed of an error, by whatever prints it."""
    if error is None:
        return ""
    own = "".join(traceback.format_exception(error)) + repr(error.args) + repr(vars(error))
    return own + all_of(error.__cause__) + all_of(error.__context__)


def test_no_error_of_reading_quotes_what_was_opened() -> None:
    @attrs.frozen
    class Line:
        at: dict[str, date]

    old = attrs.make_class("Registered", {"who": subject(type=str), "it": personal(type=Any)}, frozen=True)
    new = attrs.make_class("Registered", {"who": subject(type=str), "it": personal(type=Line | None, placeholder=None)})
    sealing = Sealing()
    for value in (SECRET, {"at": SECRET}, {"at": {SECRET: "x"}}, {"at": {"x": SECRET}}):
        with pytest.raises(UnreadableEvent) as caught:
            sealing.read(new, sealing.stored(old("ann", value)))
        assert SECRET not in all_of(caught.value)
        assert caught.value.__cause__ is not None
    assert "it.at: " in str(caught.value.__cause__), "the fields are named"

    types = EventTypes(personal=PersonalData(sealing.keys))
    types.register(new, schema=2)
    types.upcaster("Registered", 1)(lambda data: {"it": date.fromisoformat(data["it"])})
    with pytest.raises(UnreadableEvent) as caught:
        types.decode(sealing.stored(old("ann", SECRET)))
    assert SECRET not in all_of(caught.value)
    assert "fromisoformat" in all_of(caught.value), "the traceback shows the line that failed"
    assert SECRET not in all_of(pickle.loads(pickle.dumps(caught.value)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, SECRET), (date, SECRET), (Decimal, SECRET), (tuple[int, ...], (SECRET,)), (float, float("nan")), (str, 7)],
)
def test_no_error_of_writing_quotes_a_value(kind: Any, value: Any) -> None:
    cls = attrs.make_class("Wrong", {"who": subject(type=str), "it": personal(type=kind | None, placeholder=None)})
    with pytest.raises(ConfigError) as caught:
        Sealing().stored(cls("ann", value))
    assert SECRET not in all_of(caught.value)
    assert "nan" not in all_of(caught.value).replace("allow_nan", "")


def test_an_object_does_not_show_its_personal_fields() -> None:
    assert repr(Person("ann", SECRET)) == "Person(id='ann', name=<personal>)"


class Failure(Exception):
    def __init__(self, what: Person) -> None:
        self.what = what

    def __str__(self) -> str:
        return f"cannot take {self.what.name}"


def raising(make: Callable[[Person], BaseException]) -> Callable[[Any, Any], Any]:
    def evolve(state: Any, event: Any) -> Any:
        try:
            raise make(event)
        except LookupError as e:
            raise RuntimeError("cannot evolve") from e

    return evolve


@pytest.mark.parametrize(
    "make",
    [
        lambda event: ValueError(f"no such person: {event.name}"),
        lambda event: ValueError(event.name.upper()),
        lambda event: ValueError(event.name.split("-")[1].encode()),
        lambda event: KeyError(event.name),
        lambda event: OSError(2, event.name),
        lambda event: Failure(event),
        lambda event: ExceptionGroup("several", [ValueError(event.name)]),
        lambda event: ExceptionGroup(event.name, [ValueError("")]),
    ],
)
def test_an_error_of_the_applications_code_loses_its_text_if_it_quotes_personal_data(
    make: Callable[[Person], BaseException],
) -> None:
    handler = CommandHandler(club(0, int, raising(make), Sealing().types(Person)), MemoryEventStore())
    with pytest.raises(Exception) as caught:
        handler.handle("chess", Person("m1", SECRET))
    printed = "".join(traceback.format_exception(caught.value)).lower()
    assert not any(part.lower() in printed for part in (SECRET, "ngstr"))
    kind = type(make(Person("m1", SECRET)))
    assert isinstance(caught.value, (kind, RuntimeError, ConcealedError))
    assert {kind.__name__.lower(), "valueerror"} & set(re.findall(r"\w+", printed)), "its class stays"
    assert "in evolve" in printed, "and its place"


def test_a_refusal_reaches_its_caller_as_it_is_and_the_letters_of_a_process_manager_without_its_text() -> None:
    def decide(state: Any, _: Any) -> Any:
        if state is not None:
            raise ValueError(f"{state.name} is here already")
        return [Person("m1", SECRET)]

    types = Sealing().types(Person)
    aggregate = Aggregate("club", None, decide, lambda _, event: event, types, state_type=Person | None)
    handler = CommandHandler(aggregate, MemoryEventStore())
    handler.handle("chess", None)
    with pytest.raises(ValueError, match=f"{SECRET} is here already"):
        handler.handle("chess", None)

    class Manager:
        name = "manager"

        def react(self, envelope: Envelope[Any], /) -> tuple[Send, ...]:
            return ()

        def fire(self, timer: Timer, /) -> tuple[Send, ...]:
            return (Send(AggregateID("club", "chess"), None),)

    def send(to: AggregateID, command: Any, *, command_id: str, correlation_id: str) -> None:
        handler.handle(to.id, command)

    with pytest.raises(ValueError, match="left out") as caught:
        Processes(Manager(), send, MemoryTimers(), types.decode).fire(Timer("manager/1", AT))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_error_that_quotes_nothing_personal_stays_as_it_is() -> None:
    failure = ValueError("the stream of m1 is damaged")
    handler = CommandHandler(club(0, int, raising(lambda _: failure), Sealing().types(Person)), MemoryEventStore())
    with pytest.raises(ValueError, match="the stream of m1 is damaged") as caught:
        handler.handle("chess", Person("m1", SECRET))
    assert caught.value is failure
