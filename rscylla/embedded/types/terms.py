"""Terms of a statement turned into the encoded values of a known type."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..cql import ast
from ..cql.names import quote_name
from ..errors import InvalidRequest
from .cqltype import CqlType, ListType, MapType, SetType, TupleType, UdtType, VectorType
from .literals import parse_date, parse_duration, parse_time, parse_timestamp
from .natives import (
    ASCII,
    BIGINT,
    BLOB,
    BOOLEAN,
    COUNTER,
    DATE,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INET,
    INT,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMEUUID,
    TINYINT,
    UUID,
    VARINT,
    NativeType,
)
from .typetext import parse_type

__all__ = [
    "UNSET",
    "Unset",
    "default_type",
    "has_grown_from",
    "is_assignable",
    "is_compatible",
    "resolve",
    "term_bytes",
    "term_text",
]


class Unset:
    """A bind value that was sent as "not set" (length -2)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()

_MAX_FLOAT: Final = math.nextafter(float.fromhex("0x1.ffffffp127"), 0)  # the last that 32 bits round to a number

BindFn = Callable[[ast.Marker, CqlType], "bytes | Unset | None"]
CallFn = Callable[[ast.Call, CqlType], "bytes | None"]

# Which constants a type takes. Source: Scylla ``cql3/expr/prepare_expr.cc``, untyped_constant_test_assignment.
_ACCEPTED: Final[dict[str, frozenset[NativeType]]] = {
    "string": frozenset((ASCII, TEXT, INET, TIMESTAMP, DATE, TIME)),
    "integer": frozenset(
        (BIGINT, COUNTER, DECIMAL, DOUBLE, FLOAT, INT, SMALLINT, TIMESTAMP, DATE, TINYINT, VARINT),
    ),
    "uuid": frozenset((UUID, TIMEUUID)),
    "float": frozenset((DECIMAL, DOUBLE, FLOAT)),
    "boolean": frozenset((BOOLEAN,)),
    "blob": frozenset((BLOB,)),
    "duration": frozenset((DURATION,)),
}
_WIDER: Final[dict[CqlType, tuple[CqlType, ...]]] = {
    TINYINT: (SMALLINT, INT, BIGINT, VARINT, FLOAT, DOUBLE, DECIMAL),
    SMALLINT: (INT, BIGINT, VARINT, FLOAT, DOUBLE, DECIMAL),
    INT: (BIGINT, VARINT, DOUBLE, DECIMAL),
    BIGINT: (VARINT, DECIMAL),
    VARINT: (DECIMAL,),
    FLOAT: (DOUBLE,),
}


def _read_float(text: str, largest: float) -> float:
    value = float(text)
    # Only a written infinity is one: a number too large is refused rather than changed.
    if not text.lstrip("-").startswith("i") and abs(value) > largest:
        raise ValueError
    return value


_READERS: Final[dict[NativeType, Callable[[str], Any]]] = {
    **dict.fromkeys((BIGINT, COUNTER, INT, SMALLINT, TINYINT, VARINT), int),
    DOUBLE: lambda text: _read_float(text, sys.float_info.max),
    FLOAT: lambda text: _read_float(text, _MAX_FLOAT),
    **dict.fromkeys((TEXT, ASCII, INET), str),
    DECIMAL: Decimal,
    BOOLEAN: lambda text: text.lower() == "true",
    BLOB: bytes.fromhex,
    **dict.fromkeys((UUID, TIMEUUID), uuid.UUID),
    TIMESTAMP: parse_timestamp,
    DATE: parse_date,
    TIME: parse_time,
    DURATION: parse_duration,
}


def default_type(term: Any) -> CqlType | None:
    """Return the type of a term whose place does not tell it, as in a select list; None if it has none.

    Integers are int, bigint or varint by their size; collections and tuples are frozen ones of what is in them. null,
    markers, UDTs and empty collections have no type of their own. Source: Scylla ``cql3/expr/prepare_expr.cc``.
    """
    match term:
        case ast.Cast():
            return _hint(term.type_text, None)
        case ast.ListTerm():
            element = _common_type(term.items)
            return None if element is None else ListType(element, frozen=True)
        case ast.SetTerm():
            element = _common_type(term.items)
            return None if element is None else SetType(element, frozen=True)
        case ast.MapTerm():
            key, value = _common_type([k for k, _ in term.items]), _common_type([v for _, v in term.items])
            return None if key is None or value is None else MapType(key, value, frozen=True)
        case ast.TupleTerm():
            types = tuple(kind for kind in map(default_type, term.items) if kind is not None)
            return TupleType(types) if len(types) == len(term.items) else None
    if not isinstance(term, ast.Constant):
        return None
    if term.kind == "integer":
        digits = term.text.lstrip("-0") or "0"
        # A varint in any case; Python refuses to read more than 4300 digits.
        number = int(digits) if len(digits) < 20 else 1 << 64
        number = -number if term.text.startswith("-") else number
        return INT if -(1 << 31) <= number < 1 << 31 else BIGINT if -(1 << 63) <= number < 1 << 63 else VARINT
    kinds: dict[str, CqlType] = {
        "string": TEXT,
        "float": DOUBLE,
        "boolean": BOOLEAN,
        "uuid": UUID,
        "blob": BLOB,
        "duration": DURATION,
    }
    return kinds.get(term.kind)


def _common_type(terms: Sequence[Any]) -> CqlType | None:
    """Return the type that all the terms are of, or can be widened to."""
    types = [default_type(term) for term in terms]
    for wanted in types:
        if wanted is not None and all(t is not None and (t == wanted or wanted in _WIDER.get(t, ())) for t in types):
            return wanted
    return None


def term_text(term: Any) -> str:
    """Return a term as CQL text, as the names of result columns show it."""
    match term:
        case ast.Constant(kind="string"):
            quoted = term.text.replace("'", "''")
            return f"'{quoted}'"
        case ast.Constant():
            return {"null": "null", "blob": f"0x{term.text}"}.get(term.kind, term.text)
        case ast.Cast():
            return f"({term.type_text}){term_text(term.term)}"
        case ast.Call():
            return f"{term.name}({_texts(term.args)})"
        case ast.ListTerm():
            return f"[{_texts(term.items)}]"
        case ast.SetTerm():
            return f"{{{_texts(term.items)}}}"
        case ast.TupleTerm():
            return f"({_texts(term.items)})"
        case ast.MapTerm():
            return "{" + ", ".join(f"{term_text(key)}: {term_text(value)}" for key, value in term.items) + "}"
        case ast.UdtTerm():
            return "{" + ", ".join(f"{name}: {term_text(value)}" for name, value in term.fields) + "}"
    return "?"


def _texts(terms: Sequence[Any]) -> str:
    return ", ".join(map(term_text, terms))


def is_compatible(source: CqlType, target: CqlType) -> bool:
    """Tell whether an encoded value of *source* is a value of *target* as it stands."""
    # Frozen or not, a whole value is encoded alike; and any bytes are a blob.
    if source.freeze() == target.freeze() or target is BLOB:
        return True
    return (source, target) in ((ASCII, TEXT), (TIMEUUID, UUID), (TIMESTAMP, BIGINT))


def has_grown_from(former: CqlType, later: CqlType) -> bool:
    """Tell whether values of *former* are values of *later*, where tuples and UDTs may have got more fields."""
    match former, later:
        case ListType(), ListType():
            return has_grown_from(former.element, later.element)
        case SetType(), SetType():
            return has_grown_from(former.element, later.element)
        case MapType(), MapType():
            return has_grown_from(former.key, later.key) and has_grown_from(former.value, later.value)
        case (TupleType() | UdtType(), TupleType() | UdtType()):
            pairs = zip(former.items, later.items, strict=False)
            return len(former.items) <= len(later.items) and all(has_grown_from(f, t) for f, t in pairs)
    return is_compatible(former, later)


def is_assignable(term: Any, cql_type: CqlType) -> bool:
    """Tell whether a term may stand where a value of *cql_type* is wanted, going by its outer form only."""
    match term:
        case ast.Constant():
            if term.kind == "null":
                return cql_type is not COUNTER
            return isinstance(cql_type, NativeType) and cql_type in _ACCEPTED[term.kind]
        case ast.Cast():
            hinted = _hint(term.type_text, cql_type)
            return is_compatible(hinted, cql_type) or cql_type in _WIDER.get(hinted, ())
        case ast.Marker() | ast.Call():
            return True
    fitting: dict[type, tuple[type, ...]] = {
        ast.ListTerm: (ListType, VectorType),
        ast.SetTerm: (SetType,) if getattr(term, "items", ()) else (SetType, MapType),
        ast.MapTerm: (MapType,),
        ast.TupleTerm: (TupleType, UdtType),
        ast.UdtTerm: (UdtType,),
    }
    return isinstance(cql_type, fitting.get(type(term), ()))


def term_bytes(cql_type: CqlType, term: Any, *, receiver: str = "") -> bytes | None:
    """Return the encoded value of a term without markers and calls, None for null.

    Args:
        cql_type: The type of the place the term stands in.
        term: A term of :mod:`.ast`.
        receiver: Name of the column or variable, for error messages.

    Raises:
        InvalidRequest: The term is not of the type, or it holds a marker or a call.
    """

    def bind(marker: ast.Marker, _: CqlType) -> bytes | None:
        raise InvalidRequest("bind variables cannot be used here, write a constant")

    def call(function: ast.Call, _: CqlType) -> bytes | None:
        raise InvalidRequest(f"the function {function.name} cannot be called here, write a constant")

    result = resolve(term, cql_type, bind, call, receiver=receiver)
    return None if isinstance(result, Unset) else result


def resolve(term: Any, cql_type: CqlType, bind: BindFn, call: CallFn, *, receiver: str = "") -> bytes | Unset | None:
    """Return the encoded value of any term, None for null, UNSET for a marker that is bound to "not set".

    Args:
        term: A term of :mod:`.ast`.
        cql_type: The type of the place the term stands in.
        bind: Gives the value bound to a marker. It is validated and put into stored form here.
        call: Gives the value of a function call, already of the wanted type.
        receiver: Name of the column or variable, for error messages.

    Raises:
        InvalidRequest: A part of the term is not of its type; null or UNSET inside a collection.
    """
    return _Resolver(bind, call, receiver).value(term, cql_type)


class _Resolver:
    def __init__(self, bind: BindFn, call: CallFn, receiver: str) -> None:
        self._bind = bind
        self._call = call
        self._receiver = receiver

    def _mismatch(self, what: str, cql_type: CqlType) -> InvalidRequest:
        place = f' for "{self._receiver}"' if self._receiver else ""
        return InvalidRequest(f"Invalid {what}{place} of type {cql_type.name}")

    def value(self, term: Any, cql_type: CqlType) -> bytes | Unset | None:
        match term:
            case ast.Constant():
                return self._constant(term, cql_type)
            case ast.Marker():
                bound = self._bind(term, cql_type)
                return cql_type.normalize(bound) if isinstance(bound, bytes) else bound
            case ast.Call():
                return self._call(term, cql_type)
            case ast.Cast():
                return self._cast(term, cql_type)
        return self._compound(term, cql_type)

    def _constant(self, term: ast.Constant, cql_type: CqlType) -> bytes | None:
        if term.kind == "null":
            if cql_type is COUNTER:
                raise InvalidRequest("Invalid null value for counter increment/decrement")
            return None
        if not isinstance(cql_type, NativeType) or cql_type not in _ACCEPTED[term.kind]:
            raise self._mismatch(_as_written(term), cql_type)
        if term.kind == "string" and not term.text and cql_type not in (TEXT, ASCII):
            return b""  # Scylla makes an empty value of an empty text
        try:
            return cql_type.encode(_READERS[cql_type](term.text))
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._mismatch(_as_written(term), cql_type).message}: {error.message}") from None
        except (ValueError, InvalidOperation) as error:
            reason = f": marshaling error: {error}" if cql_type in (TIMESTAMP, DATE, TIME, DURATION) else ""
            raise InvalidRequest(self._mismatch(_as_written(term), cql_type).message + reason) from None

    def _cast(self, term: ast.Cast, cql_type: CqlType) -> bytes | Unset | None:
        hinted = _hint(term.type_text, cql_type)
        value = self.value(term.term, hinted)
        if not isinstance(value, bytes) or is_compatible(hinted, cql_type):
            return value
        if cql_type in _WIDER.get(hinted, ()):
            return cql_type.encode(hinted.decode(value))
        raise self._mismatch(f"value of type {hinted.name}", cql_type)

    def _compound(self, term: Any, cql_type: CqlType) -> bytes | None:
        # Collections, tuples and UDTs: each kind of literal fits one or two kinds of type.
        match term, cql_type:
            case ast.ListTerm(), ListType() | VectorType():
                return cql_type.join([self._element(item, cql_type.element) for item in term.items])
            case ast.SetTerm(), SetType():
                return cql_type.join([self._element(item, cql_type.element) for item in term.items])
            case ast.SetTerm(), MapType() if not term.items:
                return cql_type.join([])
            case ast.MapTerm(), MapType():
                pairs = [(self._element(k, cql_type.key), self._element(v, cql_type.value)) for k, v in term.items]
                return cql_type.join(pairs)
            case ast.TupleTerm(), TupleType() | UdtType():
                return self._tuple(term, cql_type)
            case ast.UdtTerm(), UdtType():
                return self._udt(term, cql_type)
        raise self._mismatch(f"{_TERM_NAMES.get(type(term), 'term')} literal", cql_type)

    def _element(self, term: Any, cql_type: CqlType) -> bytes:
        value = self.value(term, cql_type)
        if value is None:
            raise InvalidRequest("null is not supported inside collections")
        if isinstance(value, Unset):
            raise InvalidRequest("unset value is not supported inside collections")
        return value

    def _component(self, term: Any, cql_type: CqlType, what: str) -> bytes | None:
        value = self.value(term, cql_type)
        if isinstance(value, Unset):
            raise InvalidRequest(f"Invalid unset value for {what}")
        return value

    def _tuple(self, term: ast.TupleTerm, cql_type: TupleType | UdtType) -> bytes:
        given, expected = len(term.items), len(cql_type.items)
        if given > expected:
            mismatch = self._mismatch("tuple literal", cql_type).message
            raise InvalidRequest(f"{mismatch}: too many elements, expects {expected} but got {given}")
        parts = zip(term.items, cql_type.items, strict=False)
        return cql_type.join([self._component(t, c, f"tuple component {at}") for at, (t, c) in enumerate(parts)])

    def _udt(self, term: ast.UdtTerm, cql_type: UdtType) -> bytes:
        given = dict(term.fields)
        unknown = [name for name in given if name not in cql_type.field_names]
        if unknown:
            raise self._mismatch(f"user type literal: there is no field {quote_name(unknown[0])}", cql_type)
        parts: list[bytes | None] = []
        for name, field_type in zip(cql_type.field_names, cql_type.field_types, strict=True):
            parts.append(self._component(given[name], field_type, f"field {name}") if name in given else None)
        return cql_type.join(parts)


def _as_written(term: ast.Constant) -> str:
    text = f"0x{term.text}" if term.kind == "blob" else term.text
    return f"{_KIND_NAMES[term.kind]} constant ({text})"


_KIND_NAMES: Final = {
    "string": "STRING",
    "integer": "INTEGER",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "uuid": "UUID",
    "blob": "HEX",
    "duration": "DURATION",
}
_TERM_NAMES: Final[dict[type, str]] = {
    ast.ListTerm: "list",
    ast.SetTerm: "set",
    ast.MapTerm: "map",
    ast.TupleTerm: "tuple",
    ast.UdtTerm: "user type",
}


def _hint(type_text: str, receiver: CqlType | None) -> CqlType:
    """Return the type of a hint; a UDT can be named only where a value of that very type is expected."""

    def lookup(name: str) -> UdtType:
        if isinstance(receiver, UdtType) and name.rpartition(".")[2] == receiver.type_name:
            return receiver
        raise InvalidRequest(f"Unknown type {name} in a type hint")

    return parse_type(type_text, lookup)
