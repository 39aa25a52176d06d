"""Which terms fit which types: what can be told of a term before it has a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..cql import ast
from ..errors import InvalidRequest
from .composed import ListType, MapType, SetType, TupleType, UdtType, VectorType
from .cqltype import CqlType
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
    "LITERALS",
    "default_type",
    "has_grown_from",
    "has_spellings",
    "hint",
    "is_assignable",
    "is_compatible",
    "misfits",
    "term_text",
]

LITERALS: Final[dict[type, str]] = {
    ast.ListTerm: "list",
    ast.SetTerm: "set",
    ast.MapTerm: "map",
    ast.TupleTerm: "tuple type",
    ast.UdtTerm: "user type",
}
"""How errors name the literals that have parts."""

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
# Which types' values are values of another type as they stand. Source: Scylla ``types/types.cc``,
# is_value_compatible_with.
_SAME_BYTES: Final[dict[CqlType, tuple[CqlType, ...]]] = {
    TEXT: (ASCII,),
    UUID: (TIMEUUID,),
    VARINT: (INT, BIGINT),
    BIGINT: (TIMESTAMP,),
    TIMESTAMP: (BIGINT,),
}
_WIDER: Final[dict[CqlType, tuple[CqlType, ...]]] = {
    TINYINT: (SMALLINT, INT, BIGINT, VARINT, FLOAT, DOUBLE, DECIMAL),
    SMALLINT: (INT, BIGINT, VARINT, FLOAT, DOUBLE, DECIMAL),
    INT: (BIGINT, VARINT, DOUBLE, DECIMAL),
    BIGINT: (VARINT, DECIMAL),
    VARINT: (DECIMAL,),
    FLOAT: (DOUBLE,),
}


def default_type(term: Any) -> CqlType | None:
    """Return the type of a term whose place does not tell it, as in a select list; None if it has none.

    Integers are int, bigint or varint by their size; collections and tuples are frozen ones of what is in them. null,
    markers, UDTs and empty collections have no type of their own. Source: Scylla ``cql3/expr/prepare_expr.cc``.
    """
    match term:
        case ast.Cast():
            return hint(term.type_text, None)
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
    return source in _SAME_BYTES.get(target, ())


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


def has_spellings(cql_type: CqlType) -> bool:
    """Tell whether values of the type can be equal and differ in bytes, as 1.0 and 1.00 do."""
    match cql_type:
        case ListType() | SetType() | VectorType():
            return has_spellings(cql_type.element)
        case MapType():
            return has_spellings(cql_type.key) or has_spellings(cql_type.value)
        case TupleType() | UdtType():
            return any(map(has_spellings, cql_type.items))
    return cql_type in (DECIMAL, VARINT, BOOLEAN, FLOAT, DOUBLE)


def is_assignable(term: Any, cql_type: CqlType) -> bool:
    """Tell whether a term is written as a value of *cql_type* is; markers and calls may give one."""
    match term:
        case ast.Constant():
            if term.kind == "null":
                return cql_type is not COUNTER
            if isinstance(cql_type, TupleType):
                return term.kind == "string"
            return isinstance(cql_type, NativeType) and cql_type in _ACCEPTED[term.kind]
        case ast.Cast():
            return is_compatible(hint(term.type_text, cql_type), cql_type)
        case ast.Marker() | ast.Call():
            return True
    return _fits(term, cql_type) and not any(misfits(term, cql_type, ""))


def _fits(term: Any, cql_type: CqlType) -> bool:
    """Tell whether a literal of parts is of the kind of *cql_type*, whatever its parts are."""
    fitting: dict[type, tuple[type, ...]] = {
        ast.ListTerm: (ListType, VectorType),
        ast.SetTerm: (SetType,) if getattr(term, "items", ()) else (SetType, MapType),
        ast.MapTerm: (MapType,),
        ast.TupleTerm: (TupleType, UdtType),
        ast.UdtTerm: (UdtType,),
    }
    return isinstance(cql_type, fitting.get(type(term), ()))


def misfits(term: Any, cql_type: CqlType, receiver: str) -> Iterator[str]:
    """Yield what keeps the parts of a literal from being those of *cql_type*, as error messages."""
    match term, cql_type:
        case ast.ListTerm(), VectorType() if len(term.items) != cql_type.dimension:
            sizes = f"expected {cql_type.dimension} elements, but given {len(term.items)}"
            yield f"Invalid vector literal for {receiver} of type {cql_type.name}: {sizes}"
        case ast.ListTerm() | ast.SetTerm(), ListType() | SetType() | VectorType():
            kind = "vector" if isinstance(cql_type, VectorType) else LITERALS[type(term)]
            for item in term.items:
                yield from _misfit(item, cql_type.element, f"{kind} literal for {receiver}: value {term_text(item)}")
        case ast.MapTerm(), MapType():
            for key, value in term.items:
                yield from _misfit(key, cql_type.key, f"map literal for {receiver}: key {term_text(key)}")
                yield from _misfit(value, cql_type.value, f"map literal for {receiver}: value {term_text(value)}")
        case ast.TupleTerm(), TupleType() | UdtType():
            given, expected = len(term.items), len(cql_type.items)
            if given > expected:
                sizes = f"Type {cql_type.name} expects {expected} but got {given}"
                yield f"Invalid tuple literal for {receiver}: too many elements. {sizes}"
            for at, (item, wanted) in enumerate(zip(term.items, cql_type.items, strict=False)):
                yield from _misfit(item, wanted, f"tuple literal for {receiver}: component {at}")
        case ast.UdtTerm(), UdtType():
            types = dict(zip(cql_type.field_names, cql_type.field_types, strict=True))
            for name, value in term.fields:
                if name not in types:
                    yield f"Unknown field '{name}' in value of user defined type {cql_type.type_name}"
                else:
                    yield from _misfit(value, types[name], f"user type literal for {receiver}: field {name}")


def _misfit(term: Any, cql_type: CqlType, where: str) -> Iterator[str]:
    if not is_assignable(term, cql_type):
        yield f"Invalid {where} is not of type {cql_type.name}"


def hint(type_text: str, receiver: CqlType | None) -> CqlType:
    """Return the type of a hint; a UDT can be named only where the expected type is or holds that very type."""

    def lookup(name: str) -> UdtType:
        found = None if receiver is None else _held_udt(receiver, name.rpartition(".")[2])
        if found is None:
            raise InvalidRequest(f"Unknown type {name} in a type hint")
        return found

    return parse_type(type_text, lookup)


def _held_udt(cql_type: CqlType, name: str) -> UdtType | None:
    """Return the UDT of that name that a type is or holds."""
    match cql_type:
        case UdtType(type_name=own) if own == name:
            return cql_type
        case ListType() | SetType() | VectorType():
            return _held_udt(cql_type.element, name)
        case MapType():
            return _held_udt(cql_type.key, name) or _held_udt(cql_type.value, name)
        case TupleType() | UdtType():
            return next(filter(None, (_held_udt(item, name) for item in cql_type.items)), None)
    return None
