"""Values whose fields JSON would have in another shape: refused, so that nothing personal is where nobody looks."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, NewType, TypedDict

import attrs
import pytest
from cattrs import override

from rscylla.errors import ConfigError
from rscylla.eventsourcing import FORGOTTEN, EventTypes, MemorySubjectKeys, PersonalData, personal, subject
from rscylla.eventsourcing.codec import Codec
from rscylla.eventsourcing.codec.values import Hiding

SECRET = "Anna-Ångström-7"


@attrs.frozen
class Address:
    country: str
    street: str = personal()


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


def types_of(cls: type) -> EventTypes:
    types = EventTypes(personal=PersonalData(MemorySubjectKeys()))
    types.register(cls)
    return types


OTHER = override(rename="other")


class Renamed(TypedDict):
    a: Annotated[Address, OTHER]
    b: str


class Known(TypedDict):
    a: Address


class RenamedPair(NamedTuple):
    at: Annotated[Address, OTHER]


@attrs.frozen(slots=False)
class Email(str):
    address: str = personal()


@attrs.frozen(slots=False)
class Streets(list[str]):
    main: str = personal()


@dataclasses.dataclass(frozen=True)
class Base:
    at: Address


@attrs.frozen
class MarkedToo(Base):
    name: str = personal(default="")


HOOKS = override(unstruct_hook=lambda value: value.street, struct_hook=lambda raw, _: Address("SE", raw))


def written_otherwise() -> Iterator[type]:
    """Yield classes whose fields cattrs writes under other names, in another shape, or not at all."""
    base, mail = {"who": subject(type=str)}, {"mail": personal(type=str, default="")}
    yield attrs.make_class("Mail", {**base, "mail": personal(type=Annotated[str, override(rename="email")])})
    yield attrs.make_class("Note", {**base, "note": attrs.field(type=Annotated[str, OTHER], default=""), **mail})
    yield attrs.make_class("Left", {**base, "note": attrs.field(type=Annotated[str, override(omit_if_default=True)])})
    yield attrs.make_class("Out", {**base, "note": attrs.field(type=Annotated[str, override(omit=True)], default="")})
    kept = attrs.field(type=Annotated[Address, override(omit=False)], init=False, default=Address("SE", SECRET))
    yield attrs.make_class("Kept", {**base, "kept": kept})
    swapped = {"note": attrs.field(type=Annotated[str, override(rename="mail")])}
    yield attrs.make_class(
        "Swapped", {**base, **swapped, "mail": personal(type=Annotated[str, override(rename="note")])}
    )
    named = NewType("named", Annotated[Address, OTHER])  # type: ignore[valid-newtype]
    for kind in (
        Annotated[Address, HOOKS], Annotated[Address, "a note", OTHER], list[Annotated[Address, OTHER]], named,
        dict[str, Annotated[Address, OTHER] | None], Renamed, RenamedPair, Email, list[Email], Streets, MarkedToo,
    ):  # fmt: skip
        yield attrs.make_class("Holder", {**base, "it": attrs.field(type=kind)})


def test_what_would_be_written_in_another_shape_than_it_has_is_refused_when_it_is_registered() -> None:
    for cls in written_otherwise():
        with pytest.raises(ConfigError, match=r"override\(\)|is also something else"):
            types_of(cls)
    for kind in (str, OrderedDict[int, Address], defaultdict[str, Address], Known):
        noted = attrs.field(type=Annotated[kind, "a note"])
        types_of(attrs.make_class("Noted", {"who": subject(type=str), "it": noted}))


GIFT = Gift(Person("a", SECRET), frozenset({Person("b", "")}), Address("SE", SECRET), "d")
KNOWN = {"giver": {"id": "a", "name": SECRET}, "takers": [{"id": "b", "name": ""}], "who": "d"}
KNOWN |= {"to": {"country": "SE", "street": SECRET}}


@pytest.mark.parametrize(
    ("value", "raw", "cls"),
    [
        (GIFT, [KNOWN], "Gift"),
        (GIFT, {**KNOWN, "more": SECRET}, "Gift"),
        (GIFT, {**KNOWN, "giver": {"id": "a", "n": SECRET}}, "Person"),
        (GIFT, {**KNOWN, "to": {"country": "SE", "street": SECRET, "number": 1}}, "Address"),
        (GIFT, {**KNOWN, "to": SECRET}, "Address"),
        (GIFT, {**KNOWN, "takers": SECRET}, "frozenset"),
        (GIFT, {**KNOWN, "takers": []}, "frozenset"),
        (GIFT, {**KNOWN, "who": {"d": SECRET}}, "str"),
        ({"a": GIFT, "b": GIFT}, {"b": KNOWN, "a": KNOWN}, "dict"),
        (Email(SECRET), SECRET, "Email"),
        (iter(()), [], "tuple_iterator"),
    ],
)
def test_personal_data_are_not_stored_where_json_has_them_in_a_shape_that_is_not_known(
    value: Any, raw: Any, cls: str
) -> None:
    hiding = Hiding(lambda _, field: field.placeholder)
    assert SECRET not in str(hiding(GIFT, KNOWN))
    with pytest.raises(ConfigError, match=f"a {cls} in another shape") as caught:
        hiding(value, raw)
    assert SECRET not in str(caught.value)


def test_an_event_is_not_stored_if_its_personal_data_put_back_do_not_make_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = types_of(Person)
    monkeypatch.setattr(Hiding, "__call__", lambda self, value, raw: {"id": raw["id"]})
    with pytest.raises(ConfigError, match="Person would not be the same"):
        types.encode(Person("ann", SECRET))


def test_a_sealed_change_without_a_value_takes_a_member_out() -> None:
    people = PersonalData(MemorySubjectKeys())
    sealed = people.seal("Person", "ann", [[["title"]], [["name"], "Ann"]])
    stored = json.dumps({"id": "ann", "name": FORGOTTEN, "title": "Dr", "$personal": ["ann", sealed]})
    assert Codec(people).opened("Person", stored) == {"id": "ann", "name": "Ann"}
