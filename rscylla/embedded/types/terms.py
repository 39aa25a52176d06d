"""Terms of a statement turned into the encoded values of a known type."""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..cql import ast
from ..errors import InvalidRequest
from .composed import ListType, MapType, SetType, TupleType, UdtType, VectorType
from .cqltype import CqlType
from .fitting import LITERALS, hint, is_assignable, is_compatible, misfits, term_text
from .literals import parse_date, parse_duration, parse_time, parse_timestamp, parse_varint
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

__all__ = ["READERS", "UNSET", "Unset", "resolve", "term_bytes"]


class Unset:
    """A bind value that was sent as "not set" (length -2)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()

_MAX_FLOAT: Final = math.nextafter(float.fromhex("0x1.ffffffp127"), 0)  # the last that 32 bits round to a number

_TUPLE_MARK: Final = re.compile(r"(?<!\\):")

BindFn = Callable[[ast.Marker, CqlType], "bytes | Unset | None"]
CallFn = Callable[[ast.Call, CqlType], "bytes | None"]


def _read_float(text: str, largest: float) -> float:
    value = float(text)
    # Only a written infinity is one: a number too large is refused rather than changed.
    if not text.lstrip("-").startswith("i") and abs(value) > largest:
        raise ValueError
    return value


READERS: Final[dict[NativeType, Callable[[str], Any]]] = {
    **dict.fromkeys((BIGINT, COUNTER, INT, SMALLINT, TINYINT), int),
    VARINT: parse_varint,
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
"""What reads the constants of each type."""


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
        if isinstance(cql_type, TupleType) and term.kind == "string":
            return _tuple_from_text(cql_type, term.text)
        if not isinstance(cql_type, NativeType) or not is_assignable(term, cql_type):
            raise self._mismatch(_as_written(term), cql_type)
        if term.kind == "string" and not term.text and cql_type not in (TEXT, ASCII):
            return b""  # Scylla makes an empty value of an empty text
        try:
            return cql_type.encode(READERS[cql_type](term.text))
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._mismatch(_as_written(term), cql_type).message}: {error.message}") from None
        except (ValueError, InvalidOperation) as error:
            reason = f": marshaling error: {error}" if cql_type in (TIMESTAMP, DATE, TIME, DURATION) else ""
            raise InvalidRequest(self._mismatch(_as_written(term), cql_type).message + reason) from None

    def _cast(self, term: ast.Cast, cql_type: CqlType) -> bytes | Unset | None:
        hinted = hint(term.type_text, cql_type)
        value = self.value(term.term, hinted)
        if is_compatible(hinted, cql_type):
            return value
        place = self._receiver or "a value"
        raise InvalidRequest(f"Cannot assign value {term_text(term)} to {place} of type {cql_type.name}")

    def _compound(self, term: Any, cql_type: CqlType) -> bytes | None:
        try:
            return self._joined(term, cql_type)
        except InvalidRequest:
            # The whole literal is told first, as in Scylla, which looks at all its parts before it takes their values.
            for reason in misfits(term, cql_type, self._receiver or "a value"):
                raise InvalidRequest(reason) from None
            raise

    def _joined(self, term: Any, cql_type: CqlType) -> bytes:
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
        place = self._receiver or "a value"
        raise InvalidRequest(f"Invalid {LITERALS.get(type(term), 'term')} literal for {place} of type {cql_type.name}")

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
        if len(term.items) > len(cql_type.items):
            raise InvalidRequest("too many elements")
        parts = zip(term.items, cql_type.items, strict=False)
        return cql_type.join([self._component(t, c, f"tuple component {at}") for at, (t, c) in enumerate(parts)])

    def _udt(self, term: ast.UdtTerm, cql_type: UdtType) -> bytes:
        given = dict(term.fields)
        if not given.keys() <= set(cql_type.field_names):
            raise InvalidRequest("unknown field")
        parts: list[bytes | None] = []
        for name, field_type in zip(cql_type.field_names, cql_type.field_types, strict=True):
            parts.append(self._component(given[name], field_type, f"field {name}") if name in given else None)
        return cql_type.join(parts)


def _tuple_from_text(cql_type: TupleType, text: str) -> bytes:
    r"""Return the tuple of a text such as ``1:a\:b:@``, in which ``@`` is null."""
    texts = _TUPLE_MARK.split(text)
    if len(texts) > len(cql_type.items):
        raise InvalidRequest(
            f"Invalid tuple literal: too many elements. Type {cql_type.name} expects {len(cql_type.items)} but got"
            f" {len(texts)}"
        )
    parts: list[bytes | None] = []
    for part, kind in zip(texts, cql_type.items, strict=False):
        plain = part.replace("\\:", ":").replace("\\@", "@")
        if part == "@":
            parts.append(None)
        elif isinstance(kind, TupleType):
            parts.append(_tuple_from_text(kind, plain))
        elif isinstance(kind, NativeType):
            try:
                parts.append(kind.encode(READERS[kind](plain)))
            except (ValueError, InvalidOperation):
                raise InvalidRequest(f"marshaling error: '{plain}' is not a value of type {kind.name}") from None
        else:
            raise InvalidRequest(f"a value of type {kind.name} cannot be read from text")
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
