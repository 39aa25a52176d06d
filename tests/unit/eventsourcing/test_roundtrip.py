"""What is stored can be read: an event comes back as the same, or is refused before it is stored."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import attrs
import pytest
from eventshapes import Drawn, drawn_events
from freezegun import freeze_time
from hypothesis import HealthCheck, given, settings

from rscylla.errors import ConfigError
from rscylla.eventsourcing import (
    Aggregate,
    AggregateID,
    CommandHandler,
    EventRecord,
    EventTypes,
    MemoryEventStore,
    MemorySubjectKeys,
    PersonalData,
)

AT = datetime(2026, 11, 21, 10, tzinfo=UTC)
T = TypeVar("T")


@attrs.frozen
class Line:
    sku: str


@attrs.frozen
class Gift(Line):
    note: str


@attrs.frozen
class Priced:
    price: int


@attrs.frozen
class PricedToo:
    price: int
    note: str = ""


@attrs.frozen
class Box(Generic[T]):
    it: T


@attrs.frozen
class Node:
    name: str
    inner: tuple[Node, ...] = ()


@attrs.frozen
class Doubled:
    n: int = attrs.field(converter=lambda n: 2 * n)


@attrs.frozen
class Quiet:
    n: int = attrs.field(eq=False)


@attrs.define
class Counting:
    n: int
    seen: int = attrs.field(default=0, init=False)


@attrs.frozen(slots=False)
class Open:
    n: int


@dataclasses.dataclass(frozen=True)
class Boxed:
    line: Line


class Named(NamedTuple):
    n: int
    price: Decimal


class Typed(TypedDict):
    by_seat: dict[int, str]


class Sku(str):
    pass


class Opaque:
    pass


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "1"


class Pair(enum.Enum):
    ONE = (1, 2)


class Endless(enum.Enum):
    END = float("inf")


class Nameless(enum.Enum):
    NAME = "\ud800"


class Unknown(enum.Enum):
    NONE = None


@attrs.frozen(slots=False)
class Bag(list[int]):
    size: int


Cents = NewType("Cents", int)


def _id(value: object) -> str:
    return "many digits" if isinstance(value, int) and value > 10**100 else ascii(value)


def stored(kind: Any, value: Any) -> Any:
    """Store an event with a field of that type and value, and return what is read."""
    types = EventTypes()
    cls = attrs.make_class("Stored", {"it": attrs.field(type=kind)}, frozen=True)
    types.register(cls)
    name, schema, data = types.encode(cls(value))
    return types.decode(EventRecord(AggregateID("one", "1"), 1, uuid.uuid4(), name, schema, data, AT)).event.it


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[int, str], {7: "ann", -1: ""}),
        (dict[float, int], {0.5: 1, 1e30: 2, 1.0: 3}),
        (dict[bool, int], {True: 1}),
        (dict[Flags, int], {Flags.A | Flags.B: 1}),
        (dict[uuid.UUID, int], {uuid.UUID(int=7): 1}),
        (dict[Decimal, int], {Decimal("1.50"): 1}),
        (dict[datetime, int], {AT: 1}),
        (dict[date, list[Line]], {AT.date(): [Line("a")]}),
        (dict[bytes, int], {b"\0": 1}),
        (dict[Sku, int], {Sku("a"): 1}),
        (dict[Literal["a", "b"], int], {"a": 1}),
        (dict[Cents, int], {Cents(1): 1}),
        (Mapping[int, dict[int, Line]], {1: {2: Line("a")}}),
        (OrderedDict[int, int], OrderedDict({2: 1, 1: 2})),
        (Counter[str], Counter("aab")),
        (defaultdict[str, int], defaultdict(int, a=1)),
        (Typed, {"by_seat": {1: "ann"}}),
        (Named, Named(1, Decimal("2.0"))),
        (Box[Box[int]], Box(Box(1))),
        (Node, Node("a", (Node("b"),))),
        (Line | Priced | None, Priced(1)),
        (int | float | bool | str, 1.0),
        (deque[int], deque([1])),
        (frozenset[Line], frozenset({Line("a")})),
        (Boxed, Boxed(Line("a"))),
        (float, -0.0),
        (Decimal, Decimal("-0.00")),
        (datetime, datetime(2026, 1, 1)),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (Quiet, Quiet(1)),
        (Any, {"a": [1, None, "b"]}),
    ],
    ids=_id,
)
def test_a_value_of_its_declared_type_comes_back_as_it_was(kind: Any, value: Any) -> None:
    found = stored(kind, value)
    assert found == value
    assert repr(found) == repr(value), "the types inside, too"


@pytest.mark.parametrize(
    "kind",
    [
        object,
        T,
        Box,
        Iterable[int],
        Callable,
        complex,
        Opaque,
        time,
        Line | PricedToo | Priced,
        Line | list[Line],
        dict[str, int] | Line,
        Decimal | str,
        datetime | date,
        Flags | int,
        Pair,
        Endless,
        Nameless,
        Unknown,
        Literal["a", b"b"],
        Literal["\ud800"],
        Bag,
        dict[str | None, str],
        dict[str | int, str],
        dict[tuple[int, int], str],
        dict[Line, str],
        dict[Mixed, str],
        dict[int, list[object]],
        tuple[Boxed, dict[str, dict[frozenset[int], int]]],
    ],
    ids=_id,
)
def test_a_type_that_can_be_ambiguous_is_refused_by_name_when_it_is_registered(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"(Placed\.it|Box\.it)"):
        EventTypes().register(attrs.make_class("Placed", {"it": attrs.field(type=kind)}))


def test_a_name_in_a_type_that_is_not_known_is_refused_when_it_is_registered() -> None:
    name = "Nowhere"
    for kind in (f"list[{name}]", NamedTuple("Pair", [("a", name)]), TypedDict("Row", {"a": name})):
        with pytest.raises(ConfigError, match=r"Placed|Pair|Row"):
            EventTypes().register(attrs.make_class("Placed", {"it": attrs.field(type=kind)}))


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        (int, True, "cause"),
        (bool, 1, "cause"),
        (float, 2**53 + 1, "another value"),
        (date, AT, "cause"),
        (str, Sku("a"), "str instead of Sku"),
        (str, None, "cause"),
        (Line, Gift("a", "b"), "Line instead of Gift"),
        (list[Line], [Gift("a", "b")], r"it\[\] .* Line instead of Gift"),
        (list[int], (1,), "list instead of tuple"),
        (Sequence[int], [1], "tuple instead of list"),
        (dict[str, int], OrderedDict(a=1), "dict instead of OrderedDict"),
        (dict[int, str], {True: "a"}, "cause"),
        (dict, {1: "a"}, "a key of it"),
        (Any, Line("a"), "dict instead of Line"),
        (Any, (1,), "list instead of tuple"),
        (deque[int], deque([1], maxlen=2), "maxlen"),
        (defaultdict[str, int], defaultdict(list, a=1), "default_factory"),
        (Box[str], Box(1), "cause"),
        (Doubled, Doubled(1), r"it\.n"),
        (Decimal, Decimal("NaN"), "another value"),
        (datetime, datetime(2026, 1, 1, fold=1), r"fold; .*datetime\.UTC"),
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), r"use \.astimezone\(datetime\.UTC"),
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), r"datetime\.UTC"),
        (datetime, datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")), r"datetime\.UTC"),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "home")), r"datetime\.UTC"),
        (list[datetime], [datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))], r"it\[\] would keep.*datetime\.UTC"),
        (str, "\ud800", "JSON does not have"),
        (float, float("inf"), "JSON does not have"),
        (int, 10**5000, "JSON does not have"),
    ],
    ids=_id,
)
def test_a_value_that_would_come_back_as_another_is_refused_before_it_is_stored(
    kind: Any, value: Any, where: str
) -> None:
    with pytest.raises(ConfigError, match=where):
        stored(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(float, 5), (float | None, 5), (list[float], [1, 2.5]), (dict[str, float], {"a": 2}), (float, -(2**60))],
)
def test_an_int_is_a_legal_value_where_a_float_is_declared(kind: Any, value: Any) -> None:
    assert stored(kind, value) == value


def test_what_is_not_in_a_field_that_is_stored_is_not_lost_in_silence() -> None:
    counting, odd = Counting(1), Open(1)
    counting.seen = 5
    object.__setattr__(odd, "note", "gone")
    for kind, value, where in ((Counting, counting, r"it\.seen"), (Open, odd, "'note', which is not a field")):
        with pytest.raises(ConfigError, match=where):
            stored(kind, value)


def test_an_aggregate_never_gets_an_event_that_it_cannot_load() -> None:
    types = EventTypes()
    types.register(attrs.make_class("Seen", {"it": attrs.field(type=date)}, frozen=True))
    seen = types.register(attrs.make_class("Met", {"it": attrs.field(type=dict[int, str])}, frozen=True))
    store = MemoryEventStore()
    handler = CommandHandler(Aggregate("one", 0, lambda _, event: [event], lambda n, _: n + 1, types), store)
    handler.handle("1", seen({7: "ann"}))
    with pytest.raises(ConfigError, match="Met would not be read as it was written"):
        handler.handle("1", seen({"7": "bob"}))
    assert handler.load("1").state == handler.handle("1", seen({8: "bob"})).version - 1 == 1


def test_a_time_of_a_frozen_clock_is_a_time() -> None:
    with freeze_time("2026-11-21 10:00"):
        moved, day = datetime.now(UTC), date.today()
        assert type(moved) is not type(AT)
        assert (stored(datetime, moved), stored(date, day)) == (AT, AT.date())
        with pytest.raises(ConfigError):
            stored(date, moved)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(drawn_events())
def test_an_event_of_any_class_comes_back_as_it_was(drawn: Drawn) -> None:
    types = EventTypes(personal=PersonalData(MemorySubjectKeys()))
    types.register(drawn.cls)
    record = EventRecord(AggregateID("one", "1"), 1, uuid.uuid4(), *types.encode(drawn.event), AT)
    assert types.decode(record).event == drawn.event
