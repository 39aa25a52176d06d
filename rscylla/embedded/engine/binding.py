"""From terms in a statement to functions that give their bytes for one request, and the bind variables they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from ..cql import ast
from ..errors import InvalidRequest
from ..result import UNSET, BindValue, ColumnSpec, QueryParams
from ..schema.tables import Schema, TableSchema
from ..types import (
    DURATION,
    CqlType,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    is_compatible,
    parse_type,
    resolve,
    term_bytes,
    term_text,
)

__all__ = ["Functions", "Getter", "Request", "Scope", "find_udt", "has_parts_to_bind", "not_unset", "timeout_us"]


@attrs.define
class Request:
    """One execution of a statement. Times are the coordinating node's; ``timestamp`` stamps writes without their own.

    ``now_us`` microseconds, ``now_s`` whole seconds.
    """

    values: Sequence[BindValue]
    params: QueryParams
    now_us: int
    timestamp: int

    @property
    def now_s(self) -> int:
        return self.now_us // 1_000_000


Getter = Callable[[Request], BindValue]


class Functions(Protocol):
    """The engine's door to CQL functions: compiles a call where a value of a type is wanted."""

    def getter(self, scope: Scope, call: ast.Call, cql_type: CqlType) -> Getter: ...

    def selected(
        self, scope: Scope, name: str, arguments: list[Any], shown: list[str]
    ) -> tuple[CqlType, Sequence[CqlType], Callable[[Request], Callable[[Sequence[bytes | None]], bytes | None]]]: ...

    def cast(self, source: CqlType, target: CqlType) -> Callable[[bytes], bytes | None]: ...


def has_parts_to_bind(term: Any) -> bool:
    """Tell whether a term holds a bind marker or a function call."""
    if isinstance(term, ast.Constant):
        return False
    if isinstance(term, ast.Marker | ast.Call):
        return True
    if isinstance(term, ast.Cast):
        return has_parts_to_bind(term.term)
    if isinstance(term, ast.ListTerm | ast.SetTerm | ast.TupleTerm):
        return any(has_parts_to_bind(item) for item in term.items)
    if isinstance(term, ast.MapTerm):
        return any(has_parts_to_bind(key) or has_parts_to_bind(value) for key, value in term.items)
    if isinstance(term, ast.UdtTerm):
        return any(has_parts_to_bind(value) for _, value in term.fields)
    return False


class Scope:
    """What a statement is compiled against: the schema, its table, and the bind variables found on the way."""

    def __init__(self, schema: Schema, table: TableSchema, functions: Functions) -> None:
        self.schema = schema
        self.table = table
        self.functions = functions
        self.variables: dict[int, ColumnSpec] = {}
        self.key_markers: dict[int, int] = {}  # position in the partition key -> marker

    def marker(self, marker: ast.Marker, cql_type: CqlType, name: str) -> None:
        spec = ColumnSpec(self.table.keyspace, self.table.name, marker.name or name, cql_type)
        # A named marker may stand in several places: it is one variable, and so has one type.
        known = self.variables.setdefault(marker.index, spec)
        if known.type != cql_type:
            raise InvalidRequest(
                f"variable {spec.name} has type {known.type.name} in one place and {cql_type.name} in another; name"
                " them apart"
            )

    def lookup_udt(self, name: str) -> UdtType:
        """Return the user-defined type of that name in the table's keyspace. Raises InvalidRequest."""
        return find_udt(self.schema, self.table.keyspace, name)

    def getter(self, term: Any, cql_type: CqlType, name: str) -> Getter:
        """Return the function that gives the term's bytes (None for null, UNSET) for a request.

        Literals are turned into bytes and checked now; bound values are checked when the function is called.
        """
        if isinstance(term, ast.Marker):
            self.marker(term, cql_type, name)
            return _bound(term, cql_type, name)
        if not has_parts_to_bind(term):
            constant = term_bytes(cql_type, term, receiver=name)
            return lambda request: constant
        if isinstance(term, ast.Call):
            return self.functions.getter(self, term, cql_type)
        if isinstance(term, ast.Cast):
            hinted = parse_type(term.type_text, self.lookup_udt)
            if not is_compatible(hinted, cql_type):
                raise InvalidRequest(f"Cannot assign value {term_text(term)} to {name} of type {cql_type.name}")
            return self.getter(term.term, hinted, name)
        return self._composed(term, cql_type, name)

    def in_list(
        self, marker: ast.Marker, cql_type: CqlType, name: str
    ) -> Callable[[Request], list[bytes | None] | None]:
        """Return the function that gives the values of ``IN ?``, None for null; among them may be nulls."""
        listed = ListType(cql_type.freeze(), frozen=True)
        self.marker(marker, listed, name)
        normalize = listed.element.normalize

        def get(request: Request) -> list[bytes | None] | None:
            raw = not_unset(request.values[marker.index], "column", name)
            if raw is None:
                return None
            try:
                return [None if part is None else normalize(part) for part in listed.split_nullable(raw)]
            except InvalidRequest as error:
                raise _not_bound(marker, name, error) from None

        return get

    def _composed(self, term: Any, cql_type: CqlType, name: str) -> Getter:
        """A collection, tuple or UDT literal with markers or calls inside."""
        # By identity: equal calls may stand where different types are wanted. The getter keeps the term, and so the
        # ids.
        parts: dict[int, Getter] = {}
        self._inner(term, cql_type, name, parts)

        def get(request: Request) -> BindValue:
            return resolve(
                term,
                cql_type,
                lambda marker, _: parts[id(marker)](request),
                lambda call, _: not_unset(parts[id(call)](request), "an argument to a function call"),
            )

        return get

    def _inner(self, term: Any, cql_type: CqlType, name: str, out: dict[int, Getter]) -> None:
        if isinstance(term, ast.Marker | ast.Call):
            out[id(term)] = self.getter(term, cql_type, name)
        elif isinstance(term, ast.Cast):
            self._inner(term.term, parse_type(term.type_text, self.lookup_udt), name, out)
        elif isinstance(term, ast.MapTerm) and isinstance(cql_type, MapType):
            for key, value in term.items:
                self._inner(key, cql_type.key, f"key({name})", out)
                self._inner(value, cql_type.value, f"value({name})", out)
        elif isinstance(term, ast.UdtTerm) and isinstance(cql_type, UdtType):
            types = dict(zip(cql_type.field_names, cql_type.field_types, strict=True))
            for field, value in term.fields:
                if field in types:
                    self._inner(value, types[field], f"{name}.{field}", out)
        elif isinstance(term, ast.TupleTerm) and isinstance(cql_type, TupleType | UdtType):
            for at, (item, inner) in enumerate(zip(term.items, cql_type.items, strict=False)):
                self._inner(item, inner, f"{name}[{at}]", out)
        elif isinstance(term, ast.ListTerm | ast.SetTerm) and isinstance(cql_type, ListType | SetType | VectorType):
            for item in term.items:
                self._inner(item, cql_type.element, f"value({name})", out)


def find_udt(schema: Schema, keyspace: str, name: str) -> UdtType:
    """Return a user-defined type; ``name`` may carry its keyspace. Raises InvalidRequest when it is not there."""
    place, _, bare = name.rpartition(".")
    found = schema.keyspaces.get(place or keyspace)
    udt = found.types.get(bare) if found else None
    if not isinstance(udt, UdtType):
        raise InvalidRequest(f"Unknown type {place or keyspace}.{bare}")
    return udt


def _bound(marker: ast.Marker, cql_type: CqlType, name: str) -> Getter:
    index, normalize = marker.index, cql_type.normalize

    def get(request: Request) -> BindValue:
        value = request.values[index]
        if not isinstance(value, bytes):
            return value
        try:
            return normalize(value)
        except InvalidRequest as error:
            raise _not_bound(marker, name, error) from None

    return get


def _not_bound(marker: ast.Marker, name: str, error: InvalidRequest) -> InvalidRequest:
    return InvalidRequest(f"Exception while binding column {marker.name or name}: {error.message}")


def timeout_us(get: Getter, request: Request) -> int:
    """Return USING TIMEOUT in microseconds. Raises InvalidRequest for a duration that cannot be one."""
    raw = not_unset(get(request), "[timeout]")
    if raw is None:
        raise InvalidRequest("Timeout value cannot be null")
    duration = DURATION.decode(raw)
    if duration.months or duration.days:
        raise InvalidRequest("Timeout values cannot be expressed in days/months")
    if duration.nanoseconds % 1_000_000:
        raise InvalidRequest("Timeout values cannot have granularity finer than milliseconds")
    if duration.nanoseconds < 0:
        raise InvalidRequest("Timeout values must be non-negative")
    return int(duration.nanoseconds // 1000)


def not_unset(value: BindValue, *what: str) -> bytes | None:
    """Return *value*, or None for null. Raises InvalidRequest if *what* was left unset."""
    if value is UNSET:
        raise InvalidRequest(f"Invalid unset value for {' '.join(what)}")
    return value  # type: ignore[return-value]  # UNSET is the only other possibility
