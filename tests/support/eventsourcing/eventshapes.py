"""Random classes of events with marks inside, and objects of them: what is personal in them holds secrets.

Nothing here knows how events are stored. A secret is a text or a number that is nowhere else, so whoever finds one of
its forms in what was written has found personal data.
"""

from __future__ import annotations

import base64
import dataclasses
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import count
from types import new_class
from typing import Annotated, Any, NamedTuple, NewType, Optional, TypedDict

import attrs
from cattrs import override
from hypothesis import strategies as st

from rscylla.eventsourcing import personal, subject

__all__ = ["SUBJECTS", "Drawn", "drawn_events", "forms_of", "found_in", "text_of"]

PUBLIC = ("tea", "cup", "", "ünï", "a b")
SUBJECTS = ("s-1", "s-2", "s-3")
_numbers = count(1)


class Grade(Enum):
    LOW = "low"
    HIGH = "high"


class Rank(IntEnum):
    FIRST = 1
    LAST = 9


class Sku(str):
    """A text of a type of its own."""


Cents = NewType("Cents", int)


@attrs.define
class Drawn:
    """A class of events, an object of it, and the secrets in it."""

    cls: type
    event: Any
    secrets: list[str]


def forms_of(secret: str) -> Iterator[bytes]:
    """Yield the forms in which a text may be written."""
    plain = secret.encode()
    yield plain
    yield plain.hex().encode()
    for coding in ("utf-16-le", "utf-16-be", "utf-32-le"):
        yield secret.encode(coding)
    for encode in (base64.b64encode, base64.b85encode):
        for shift in range(4):
            # What base64 makes of it inside a longer text depends on where it begins there.
            yield encode(b"\0" * shift + plain)[8:-8]


def found_in(written: bytes, secrets: list[str]) -> list[str]:
    """Return the secrets of which a form is in *written*."""
    folded = written.lower()
    return [s for s in secrets if any(form in written or form.lower() in folded for form in forms_of(s))]


class _Maker:
    """Draws types together with values of them. *odd*: also such as cattrs writes in another way than other types."""

    def __init__(self, draw: Callable[[Any], Any], *, odd: bool = False) -> None:
        self.draw = draw
        self.odd = odd
        self.secrets: list[str] = []

    def secret(self) -> str:
        self.secrets.append(f"Secret-{next(_numbers):06d}-Ångström-{uuid.uuid4().hex}")
        return self.secrets[-1]

    def text(self, *, secret: bool) -> str:
        return self.secret() if secret else self.draw(st.sampled_from(PUBLIC))

    def number(self, *, secret: bool) -> int:
        if not secret:
            return self.draw(st.integers(-3, 3))
        number = uuid.uuid4().int | 1 << 127
        self.secrets.append(str(number))
        return number

    def leaf(self, *, secret: bool) -> tuple[Any, Any]:
        text, number = (lambda: self.text(secret=secret)), (lambda: self.number(secret=secret))
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.draw(st.integers(0, 10**15)))
        makers: list[Callable[[], tuple[Any, Any]]] = [
            lambda: (str, text()),
            lambda: (int, number()),
            lambda: (Cents, number()),
            lambda: (Sku, Sku(text())),
            lambda: (Decimal, Decimal(number())),
            lambda: (bytes, text().encode()),
            lambda: (str | int | None, self.draw(st.sampled_from((text(), number(), None)))),
        ]
        if not secret:
            makers += [
                lambda: (float, self.draw(st.floats(allow_nan=False, allow_infinity=False))),
                lambda: (bool, self.draw(st.booleans())),
                lambda: (datetime, at),
                lambda: (uuid.UUID, uuid.uuid4()),
                lambda: (Grade, self.draw(st.sampled_from(Grade))),
                lambda: (Rank, self.draw(st.sampled_from(Rank))),
                lambda: (Any, {"any": [text(), number(), None]}),
            ]
        return self.draw(st.sampled_from(makers))()

    def key(self) -> tuple[Any, Any]:
        return self.draw(
            st.sampled_from((
                (str, self.draw(st.sampled_from(PUBLIC))), (int, self.draw(st.integers())), (Grade, Grade.LOW),
                (Rank, Rank.LAST), (uuid.UUID, uuid.uuid4()), (Decimal, Decimal("1.50")), (bool, True), (float, 0.5),
            ))
        )  # fmt: skip

    def node(self, depth: int, *, secret: bool, owned: bool, frozen: bool = False) -> tuple[Any, Any]:
        """Return a type and a value. *owned*: marks may be in it. *frozen*: the value can be in a set."""
        kinds = ["leaf"] if depth <= 0 else ["leaf", "class", "class", "tuple", "pair", "optional", "set", "named"]
        if depth > 0 and not frozen:
            kinds += ["list", "deque", "dict", "dict", "ordered", "typed"]
        kind = self.draw(st.sampled_from(kinds))

        def inner(*, frozen: bool = frozen) -> tuple[Any, Any]:
            return self.node(depth - 1, secret=secret, owned=owned, frozen=frozen)

        if self.odd and owned and self.draw(st.integers(0, 9)) == 0:
            return self.both()
        if kind == "leaf":
            found = self.leaf(secret=secret)
            return (str, self.text(secret=secret)) if frozen and found[0] is Any else found
        if kind == "class":
            return self.object(depth - 1, secret=secret, owned=owned, frozen=frozen)
        if kind == "optional":
            of, value = inner()
            return Optional[of], self.draw(st.sampled_from((value, None)))  # noqa: UP045 - of any type
        if kind in ("tuple", "list", "deque"):
            of, value = inner()
            made = {"tuple": tuple, "list": list, "deque": deque}[kind]
            return (tuple[of, ...] if made is tuple else made[of]), made([value, value])
        if kind == "set":
            of, value = inner(frozen=True)
            made = frozenset if frozen else self.draw(st.sampled_from((set, frozenset)))
            return made[of], made([value])
        if kind == "pair":
            (of, value), (of2, value2) = inner(), inner()
            return tuple[of, of2], (value, value2)
        if kind in ("dict", "ordered"):
            (keys, key), (of, value) = self.key(), inner()
            made = dict if kind == "dict" else OrderedDict
            return made[keys, of], made({key: value})
        (of, value), name = inner(), f"N{next(_numbers)}"
        of = self.noted(of, value, ("a", "b"))
        if kind == "typed":
            return TypedDict(name, {"a": of, "b": int}), {"a": value, "b": 1}
        annotations = {"a": of, "b": int}
        named = new_class(
            name, (NamedTuple,), {}, lambda space: space.update(__annotations__=annotations, __module__=__name__)
        )
        return named, named(value, 1)

    def noted(self, of: Any, value: Any, names: tuple[str, ...]) -> Any:
        """Return *of*, perhaps with a note; an odd one changes how a field, which may be one of *names*, is written."""
        notes: list[Any] = ["a note"]
        if self.odd:
            name = self.draw(st.sampled_from((*names, "other")))
            notes += [
                override(rename=name),
                override(rename=name, omit_if_default=True),
                override(omit=True),
                override(unstruct_hook=lambda value: [text_of(value)], struct_hook=lambda _, __: value),
            ]
        return self.draw(st.sampled_from((of, of, of, *(Annotated[of, note] for note in notes))))

    def both(self) -> tuple[type, Any]:
        """Return a class that has a field, and is a text or a container as well, and an object of it."""
        bases = (self.draw(st.sampled_from((str, list, set))),)
        made = attrs.make_class(f"C{next(_numbers)}", {"it": personal(type=str)}, bases=bases, frozen=True, slots=False)
        return made, made(self.secret())

    def object(
        self, depth: int, *, secret: bool, owned: bool, frozen: bool = False, root: bool = False
    ) -> tuple[type, Any]:
        """Return a class, and an object of it. It may name a subject of its own, unless it is a secret itself."""
        name = f"C{next(_numbers)}"
        has_subject = root or (not secret and self.draw(st.booleans()))
        fields: dict[str, tuple[Any, Any, Any]] = {}
        if has_subject:
            fields["who"] = str, subject(), self.draw(st.sampled_from(SUBJECTS))
        for n in range(self.draw(st.integers(1, 3))):
            marked = (owned or has_subject) and not secret and self.draw(st.booleans())
            of, value = self.node(
                depth, secret=secret or marked, owned=(owned or has_subject) and not marked, frozen=frozen
            )
            if marked and of is not str:
                of = Optional[of]  # noqa: UP045 - of any type
            field = attrs.field() if not marked else personal() if of is str else personal(placeholder=None)
            fields[f"f{n}"] = self.noted(of, value, ("f0", "f1", "who")), field, value
        if self.draw(st.booleans()) and not root:
            made = dataclasses.make_dataclass(
                name,
                [(f, of, dataclasses.field(metadata=dict(field.metadata))) for f, (of, field, _) in fields.items()],
                frozen=True,
            )
        else:
            made = attrs.make_class(
                name,
                {
                    f: attrs.field(
                        type=of, metadata=field.metadata, alias=self.draw(st.sampled_from((f, f"given_{f}")))
                    )
                    for f, (of, field, _) in fields.items()
                },
                frozen=True,
            )
        aliases = [one.alias for one in attrs.fields(made)] if attrs.has(made) else list(fields)
        return made, made(**{f: value for f, (_, _, value) in zip(aliases, fields.values(), strict=True)})


@st.composite
def drawn_events(draw: Callable[[Any], Any], *, odd: bool = False) -> Drawn:
    """Draw a class of events, and an object of it. An *odd* one may be refused."""
    maker = _Maker(draw, odd=odd)
    cls, event = maker.object(3, secret=False, owned=True, root=True)
    # What is not in the object, such as the value of an optional field that is None, was drawn for nothing.
    there = text_of(event)
    return Drawn(cls, event, [secret for secret in maker.secrets if secret in there])


def text_of(value: Any) -> str:
    """Return all texts and numbers in *value*, whether its classes show them or not."""
    if attrs.has(type(value)):
        return " ".join(text_of(getattr(value, f.name)) for f in attrs.fields(type(value)))
    if dataclasses.is_dataclass(value):
        return " ".join(text_of(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, dict):
        return " ".join(map(text_of, value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return " ".join(map(text_of, value))
    return value.decode() if isinstance(value, bytes) else str(value)
