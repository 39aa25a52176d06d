"""Types of events: names, schemas, upcasters, strict values, and personal fields."""

from __future__ import annotations

import enum
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla.errors import ConfigError, QueryTimeout, SubjectForgotten, UnreadableEvent
from rscylla.eventsourcing import (
    FORGOTTEN,
    AggregateID,
    EventRecord,
    EventTypes,
    MemorySubjectKeys,
    PersonalData,
    personal,
    subject,
)
from rscylla.testing import ManualClock

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)


def record(name: str, schema: int, data: str) -> EventRecord:
    return EventRecord(AggregateID("order", "1"), 1, uuid.uuid4(), name, schema, data, AT)


def again(types: EventTypes, event: object) -> Any:
    return types.decode(record(*types.encode(event))).event


class Size(enum.Enum):
    SMALL = "small"


@attrs.frozen
class Line:
    sku: str
    count: int


@attrs.frozen
class Rich:
    text: str
    number: float
    price: Decimal
    id: uuid.UUID
    at: datetime
    day: date
    size: Size
    lines: tuple[Line, ...]
    named: dict[str, int]
    note: str | None = None
    done: bool = False


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@attrs.frozen
class Enumerated:
    colour: Colour
    level: Level | None
    colours: dict[Colour, Level]


def test_an_enumeration_of_texts_or_numbers_is_read_as_its_members() -> None:
    types = EventTypes()
    types.register(Enumerated)
    found = again(types, Enumerated(Colour.RED, Level.HIGH, {Colour.RED: Level.HIGH}))
    assert found.colour is Colour.RED
    assert found.level is Level.HIGH
    assert list(map(type, (*found.colours, *found.colours.values()))) == [Colour, Level]
    for data in ('{"colour":"blue","level":3,"colours":{}}', '{"colour":"red","level":4,"colours":{}}'):
        with pytest.raises(UnreadableEvent):
            types.decode(record("Enumerated", 1, data))


@given(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False))
def test_an_event_is_read_as_it_was_written(text: str, count: int, number: float, price: Decimal) -> None:
    types = EventTypes()
    types.register(Rich)
    event = Rich(text, number, price, uuid.UUID(int=7), AT, AT.date(), Size.SMALL, (Line(text, count),), {text: count})
    assert again(types, event) == event


@attrs.frozen
class Counted:
    count: int


@pytest.mark.parametrize(("kind", "value"), [(str, 1), (bool, 1), (float, "1"), (Decimal, 1), (datetime, 1), (Size, 1)])
def test_a_value_of_another_type_is_refused(kind: type, value: object) -> None:
    types = EventTypes()
    types.register(attrs.make_class("One", {"it": attrs.field(type=kind)}))
    with pytest.raises(UnreadableEvent, match="data that are not of its type"):
        types.decode(record("One", 1, json.dumps({"it": value})))


@pytest.mark.parametrize("data", ['{"count":"1"}', '{"count":1.5}', '{"count":true}', "{}", "[]", "null", "{", ""])
def test_data_of_another_type_are_not_bent_until_they_fit(data: str) -> None:
    types = EventTypes()
    types.register(Counted)
    with pytest.raises(UnreadableEvent, match="data that are not of its type") as caught:
        types.decode(record("Counted", 1, data))
    assert caught.value.__cause__ is not None
    assert not caught.value.resumable
    assert (caught.value.type, caught.value.schema) == ("Counted", 1)


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_json_does_not_have_is_refused_when_it_is_written(value: Any) -> None:
    @attrs.frozen
    class Odd:
        value: Any

    types = EventTypes()
    types.register(Odd)
    with pytest.raises(ConfigError, match="Odd has a value that JSON does not have"):
        types.encode(Odd(value))


def test_upcasters_are_chained_and_may_rename() -> None:
    types = EventTypes()
    types.register(Counted, schema=3)
    types.upcaster("Number", 1, to=("Counted", 1))(lambda data: {"n": data["number"]})
    types.upcaster("Counted", 1)(lambda data: {"m": data["n"]})
    types.upcaster("Counted", 2)(lambda data: {"count": int(data["m"])})
    assert types.decode(record("Number", 1, '{"number":"7"}')).event == Counted(7)
    assert types.decode(record("Counted", 2, '{"m":"8"}')).event == Counted(8)
    found = types.decode(record("Counted", 3, '{"count":9,"more":0}'))
    assert (found.event, found.schema) == (Counted(9), 3)


@pytest.mark.parametrize(
    ("name", "schema", "why"),
    [
        ("Other", 1, "unknown type or schema"),
        ("Counted", 4, "unknown type or schema"),
        ("Counted", 2, "has no upcaster"),
        ("Circle", 1, "unknown type or schema"),
        ("Counted", 1, "data that are not of its type"),
    ],
)
def test_an_event_without_a_way_to_its_class_is_unreadable(name: str, schema: int, why: str) -> None:
    types = EventTypes()
    types.register(Counted, schema=3)
    types.upcaster("Counted", 1)(lambda data: {"count": data["missing"]})
    types.upcaster("Circle", 1, to=("Circle", 2))(lambda data: data)
    types.upcaster("Circle", 2, to=("Circle", 1))(lambda data: data)
    with pytest.raises(UnreadableEvent, match=why):
        types.decode(record(name, schema, "{}"))


def test_wrong_registrations_are_refused() -> None:
    types = EventTypes()
    types.register(Counted)
    types.upcaster("Counted", 1)(dict)
    wrong = [
        lambda: types.register(Counted, name="Again"),
        lambda: types.register(Line, name="Counted"),
        lambda: types.register(dict),
        lambda: types.register(Line, schema=0),
        lambda: types.upcaster("Counted", 1),
        lambda: types.encode(Line("a", 1)),
    ]
    for one in wrong:
        with pytest.raises(ConfigError):
            one()


# ---------------------------------------------------------------- personal data


@attrs.frozen
class Address:
    street: str = personal()
    country: str = "SE"


@attrs.frozen
class Moved:
    who: str = subject()
    name: str = personal()
    born: int | None = personal(placeholder=None)
    addresses: tuple[Address, ...] = ()
    by_kind: dict[str, Address] = attrs.field(factory=dict)


MOVED = Moved("ann", "Ann Ü", 1970, (Address("A 1"), Address("B 2", "NO")), {"work": Address("C 3")})
GONE = Moved("ann", FORGOTTEN, None, (Address(FORGOTTEN), Address(FORGOTTEN, "NO")), {"work": Address(FORGOTTEN)})


def sealing(clock: ManualClock | None = None) -> tuple[EventTypes, PersonalData, MemorySubjectKeys]:
    keys = MemorySubjectKeys()
    data = PersonalData(keys, cache_for=timedelta(seconds=60), clock=clock)
    types = EventTypes(personal=data)
    types.register(Moved)
    return types, data, keys


def test_personal_fields_are_sealed_wherever_they_are() -> None:
    types, _, _ = sealing()
    _, _, text = types.encode(MOVED)
    clear = json.loads(text)
    del clear["$personal"]  # in which three letters may meet by chance
    assert not any(secret in json.dumps(clear) for secret in ("Ann", "1970", "A 1", "B 2", "C 3"))
    assert '"country":"NO"' in text
    assert again(types, MOVED) == MOVED
    assert types.encode(MOVED)[2] != text, "nonces are random"


def test_who_is_forgotten_is_read_as_placeholders() -> None:
    types, data, _ = sealing()
    stored = record(*types.encode(MOVED))
    data.forget("ann")
    assert types.decode(stored).event == GONE
    with pytest.raises(SubjectForgotten):
        types.encode(MOVED)
    assert types.decode(record(*types.encode(GONE))).event == GONE, "nothing personal is left to seal"


def test_a_key_stays_in_the_cache_for_a_limited_time() -> None:
    clock = ManualClock()
    types, _, keys = sealing(clock)
    stored = record(*types.encode(MOVED))
    keys.forget("ann")  # by another process
    clock.advance(59)
    assert types.decode(stored).event == MOVED
    clock.advance(2)
    assert types.decode(stored).event == GONE


def test_who_is_forgotten_while_a_key_is_read_is_not_kept_in_the_cache() -> None:
    types, _, keys = sealing(ManualClock())
    stored = record(*types.encode(MOVED))
    find = keys.find_key

    class Slow(MemorySubjectKeys):
        def find_key(self, subject: str) -> bytes | None:
            key = find(subject)
            if key is not None:
                reading.forget(subject)
            return key

        def forget(self, subject: str) -> None:
            keys.forget(subject)

    reading = PersonalData(Slow(), cache_for=timedelta(minutes=1))
    reader = EventTypes(personal=reading)
    reader.register(Moved)
    assert reader.decode(stored).event == MOVED, "it was read before"
    assert reader.decode(stored).event == GONE


def test_the_cache_is_bounded() -> None:
    keys = MemorySubjectKeys()
    data = PersonalData(keys, cache_size=2)
    types = EventTypes(personal=data)
    types.register(Moved)
    stored = {who: record(*types.encode(attrs.evolve(MOVED, who=who))) for who in "abc"}
    for who in "abc":
        keys.forget(who)
    assert [types.decode(stored[who]).event.name for who in "abc"] == [FORGOTTEN, "Ann Ü", "Ann Ü"]


@pytest.mark.parametrize("part", [0, 1])
def test_what_is_sealed_cannot_be_moved_or_changed(part: int) -> None:
    types, _, keys = sealing()
    raw = json.loads(types.encode(MOVED)[2])
    keys.make_key("bob")
    if part == 0:
        raw["$personal"][0] = "bob"
    else:
        raw["$personal"][1] = raw["$personal"][1][:-8] + "AAAAAAA="
    with pytest.raises(UnreadableEvent):
        types.decode(record("Moved", 1, json.dumps(raw)))


def test_without_keys_a_reader_has_the_placeholders() -> None:
    types, _, _ = sealing()
    stored = record(*types.encode(MOVED))
    name, _, text = stored.type, stored.schema, stored.data
    reader = EventTypes()
    reader.register(attrs.make_class("Moved", {"who": attrs.field(type=str), "name": attrs.field(type=str)}))
    assert reader.decode(record(name, 1, text)).event.name == FORGOTTEN


def test_an_error_of_the_keys_is_not_taken_for_broken_data() -> None:
    types, _, _ = sealing(ManualClock())
    stored = record(*types.encode(MOVED))

    class Down(MemorySubjectKeys):
        def find_key(self, subject: str) -> bytes | None:
            raise QueryTimeout("down")

    reader = EventTypes(personal=PersonalData(Down()))
    reader.register(Moved)
    with pytest.raises(QueryTimeout):
        reader.decode(stored)


def test_marks_that_make_no_sense_are_refused() -> None:
    types, _, _ = sealing()
    wrong = [
        attrs.make_class("NoSubject", {"name": personal(type=str)}),
        attrs.make_class("TwoSubjects", {"a": subject(type=str), "b": subject(type=str), "c": personal(type=str)}),
        attrs.make_class("WrongPlaceholder", {"a": subject(type=str), "b": personal(type=int)}),
    ]
    for cls in wrong:
        with pytest.raises(ConfigError):
            types.register(cls)
    with pytest.raises(ConfigError, match="PersonalData"):
        EventTypes().register(Moved)
    with pytest.raises(ConfigError, match="subject is not a text"):
        types.encode(attrs.evolve(MOVED, who=""))


@attrs.frozen
class Street:
    name: str = personal()


def test_personal_fields_of_inner_classes_without_a_subject_are_refused_and_not_stored_in_clear_text() -> None:
    types, _, _ = sealing()
    for inner in (Street, tuple[Street, ...], dict[str, Street | None]):
        cls = attrs.make_class("Delivered", {"to": attrs.field(type=inner)})
        with pytest.raises(ConfigError, match=r"Delivered has personal fields in Street, but no subject\(\)"):
            types.register(cls)
        with pytest.raises(ConfigError, match="no subject"):
            types.encode_state("order", cls(None))
