"""The scalar functions of CQL, and the choice among those of one name. CAST has its own in ``types/casts.py``.

``token`` is not here, for it needs the table's partition key and partitioner; neither are the aggregates.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...types.casts import cast_function
from ...types.composed import SetType
from ...types.cqltype import CqlType
from ...types.fitting import is_assignable, is_compatible, term_text
from ...types.natives import BIGINT, BLOB, COUNTER, DATE, NANOS_PER_DAY, NATIVE_TYPES, TIME, TIMESTAMP, TIMEUUID, UUID
from ...types.timeuuid import TimeUuids, max_timeuuid, millis, min_timeuuid

__all__ = [
    "FUNCTIONS",
    "CallContext",
    "Function",
    "cast_function",
    "check_arguments",
    "find_function",
    "set_intersection",
]

_MS_PER_DAY: Final = 86_400_000
_timeuuids: Final = TimeUuids()


@attrs.frozen
class CallContext:
    """What functions may know of the request: the coordinator's time, and where new timeuuids come from."""

    now_us: int
    timeuuids: TimeUuids = _timeuuids


Body = Callable[[CallContext, Sequence[bytes]], bytes]


@attrs.frozen
class Function:
    """One signature. ``is_pure``: equal arguments give equal results. ``empty_is_null``: so does an empty argument."""

    name: str
    arguments: tuple[CqlType, ...]
    result: CqlType
    is_pure: bool
    body: Body
    empty_is_null: bool = False

    def call(self, context: CallContext, arguments: Sequence[bytes | None]) -> bytes | None:
        """Return the encoded result; null if an argument is null.

        *arguments* are encoded values of the types in ``arguments``, already validated.
        """
        given: list[bytes] = []
        for value in arguments:
            if value is None or (self.empty_is_null and not value):
                return None
            given.append(value)
        return self.body(context, given)

    def __str__(self) -> str:
        return f"system.{self.name} : ({', '.join(t.name for t in self.arguments)}) -> {self.result.name}"


def check_arguments(function: Function, arguments: Sequence[Any], shown: Sequence[str]) -> None:
    """Raise InvalidRequest unless the only function of a name takes the arguments, ``shown`` being their text."""
    if len(arguments) != len(function.arguments):
        needed = len(function.arguments)
        raise InvalidRequest(
            f"Invalid number of arguments in call to function system.{function.name}: {needed} required but"
            f" {len(arguments)} provided"
        )
    for at, (wanted, given) in enumerate(zip(function.arguments, arguments, strict=True)):
        if not _takes(wanted, given):
            raise InvalidRequest(
                f"Type error: {shown[at]} cannot be passed as argument {at} of function system.{function.name} of type"
                f" {wanted.name}"
            )


def find_function(
    name: str,
    arguments: Sequence[Any],
    *,
    wanted: CqlType | None = None,
    keyspace: str | None = None,
    shown: Sequence[str] | None = None,
) -> Function:
    """Return the function of that name that takes the arguments.

    Args:
        name: As parsed: lower-case unless it was quoted.
        arguments: For each one its type (CqlType), or its term as parsed.
        wanted: The type the result must have, None for any. It also chooses among signatures.
        keyspace: As parsed; native functions live in ``system``.
        shown: The arguments as errors show them; by default as terms are written and types are named.

    Raises:
        InvalidRequest: No such function, none that takes the arguments, or more than one that does.
    """
    candidates = FUNCTIONS.get(name, ()) if keyspace in (None, "system") else ()
    if not candidates and name.startswith("similarity_"):
        raise InvalidRequest(f"the vector function {name} is not supported by the embedded server")
    if not candidates and name in ("count", "countrows", "min", "max", "sum", "avg"):
        raise InvalidRequest("Aggregation functions are not supported outside of a select list")
    if not candidates:
        raise InvalidRequest(f"Unknown function '{f'{keyspace}.' if keyspace else ''}{name}'")
    if len(candidates) == 1:
        texts = shown or [a.name if isinstance(a, CqlType) else term_text(a) for a in arguments]
        check_arguments(candidates[0], arguments, texts)
    sized = [f for f in candidates if len(f.arguments) == len(arguments)]
    fitting = [f for f in sized if all(map(_takes, f.arguments, arguments))]
    if wanted is not None:
        # A function whose result is of another type is no candidate where a value of *wanted* must stand.
        of_type = [f for f in fitting if is_compatible(f.result, wanted)]
        if fitting and not of_type:
            raise InvalidRequest(
                f"Type error: cannot assign result of function system.{name} (type {fitting[0].result.name}) to a "
                f"value of type {wanted.name}"
            )
        fitting = of_type
    if not fitting:
        known = ", ".join(map(str, candidates))
        raise InvalidRequest(
            f"Invalid call to function {name}, none of its type signatures match (known type signatures: {known})"
        )
    if len(fitting) > 1:
        known = ", ".join(map(str, fitting))
        raise InvalidRequest(
            f"Ambiguous call to function {name} (can be matched by following signatures: {known}): "
            "use type casts to disambiguate"
        )
    return fitting[0]


def set_intersection(kinds: Sequence[CqlType | None]) -> Function:
    """Return ``set_intersection`` of sets of these types, frozen or not. Raises InvalidRequest for others."""
    if len(kinds) != 2:
        raise InvalidRequest("set_intersection() accepts 2 arguments")
    left, right = kinds
    if not isinstance(left, SetType) or not isinstance(right, SetType):
        raise InvalidRequest("set_intersection() is only valid if both arguments are of set type")
    if left.element.freeze() != right.element.freeze():
        raise InvalidRequest("set_intersection() is only valid if both arguments are of the same set type")
    common = left.freeze()

    def body(_: CallContext, values: Sequence[bytes]) -> bytes:
        return common.join(set(common.split(values[0])) & set(common.split(values[1])))

    return Function("set_intersection", (common, common), common, True, body)


def _takes(cql_type: CqlType, argument: Any) -> bool:
    if isinstance(argument, CqlType):
        return is_compatible(argument, cql_type)
    if isinstance(argument, ast.Call):
        if argument.name == "token":
            return cql_type is BIGINT
        nested = FUNCTIONS.get(argument.name, ())
        return any(is_compatible(f.result, cql_type) for f in nested if len(f.arguments) == len(argument.args))
    return is_assignable(argument, cql_type)


# ---------------------------------------------------------------- bodies


def _timestamp_of(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _date_ms(data: bytes) -> int:
    return int(DATE.decode(data)) * _MS_PER_DAY


def _as_timestamp(timestamp_ms: int) -> bytes:
    return TIMESTAMP.encode(timestamp_ms)


def _as_date(timestamp_ms: int) -> bytes:
    return DATE.encode(timestamp_ms // _MS_PER_DAY)


def _time_function(name: str, source: CqlType, read: Callable[[bytes], int], result: CqlType) -> Function:
    """Return a conversion between types that hold a point in time, through milliseconds."""
    write = _as_date if result is DATE else _as_timestamp
    return Function(name, (source,), result, True, lambda _, args: write(read(args[0])), empty_is_null=True)


def _bound_function(name: str, bound: Callable[[int], bytes]) -> Function:
    def body(_: CallContext, args: Sequence[bytes]) -> bytes:
        return bound(_timestamp_of(args[0]))

    return Function(name, (TIMESTAMP,), TIMEUUID, True, body, empty_is_null=True)


def _now(context: CallContext, _: Sequence[bytes]) -> bytes:
    return context.timeuuids.next(context.now_us)


def _random_uuid(_: CallContext, __: Sequence[bytes]) -> bytes:
    return uuid.uuid4().bytes


def _current_timestamp(context: CallContext, _: Sequence[bytes]) -> bytes:
    return _as_timestamp(context.now_us // 1_000)


def _current_date(context: CallContext, _: Sequence[bytes]) -> bytes:
    return _as_date(context.now_us // 1_000)


def _current_time(context: CallContext, _: Sequence[bytes]) -> bytes:
    return TIME.encode(context.now_us // 1_000 * 1_000_000 % NANOS_PER_DAY)


def _from_blob(name: str, cql_type: CqlType, _: CallContext, arguments: Sequence[bytes]) -> bytes:
    try:
        cql_type.validate(arguments[0])
    except InvalidRequest:
        raise InvalidRequest(
            f"In call to function system.{name}, value 0x{arguments[0].hex()} is not a valid binary representation for"
            f" type {cql_type.name}"
        ) from None
    return arguments[0]


def _list_functions() -> list[Function]:
    # Source of names, types and nulls: Scylla ``cql3/functions/time_uuid_fcts.hh``, ``bytes_conversion_fcts.hh``.
    functions_ = [
        Function("now", (), TIMEUUID, False, _now),
        Function("currenttimeuuid", (), TIMEUUID, False, _now),
        Function("uuid", (), UUID, False, _random_uuid),
        Function("currenttimestamp", (), TIMESTAMP, False, _current_timestamp),
        Function("currentdate", (), DATE, False, _current_date),
        Function("currenttime", (), TIME, False, _current_time),
        _bound_function("mintimeuuid", min_timeuuid),
        _bound_function("maxtimeuuid", max_timeuuid),
        _time_function("dateof", TIMEUUID, millis, TIMESTAMP),
        _time_function("unixtimestampof", TIMEUUID, millis, BIGINT),
        _time_function("todate", TIMEUUID, millis, DATE),
        _time_function("todate", TIMESTAMP, _timestamp_of, DATE),
        _time_function("totimestamp", TIMEUUID, millis, TIMESTAMP),
        _time_function("totimestamp", DATE, _date_ms, TIMESTAMP),
        _time_function("tounixtimestamp", TIMEUUID, millis, BIGINT),
        _time_function("tounixtimestamp", TIMESTAMP, _timestamp_of, BIGINT),
        _time_function("tounixtimestamp", DATE, _date_ms, BIGINT),
    ]
    for type_name, cql_type in NATIVE_TYPES.items():
        if cql_type not in (BLOB, COUNTER):
            functions_.append(Function(f"{type_name}asblob", (cql_type,), BLOB, True, lambda _, args: args[0]))
            reading = f"blobas{type_name}"
            # Bound now: a lambda in the loop would see the last type only.
            body = functools.partial(_from_blob, reading, cql_type)
            functions_.append(Function(reading, (BLOB,), cql_type, True, body))
    return functions_


def _by_name(functions_: list[Function]) -> dict[str, tuple[Function, ...]]:
    table: dict[str, tuple[Function, ...]] = {}
    for function in functions_:
        table[function.name] = (*table.get(function.name, ()), function)
    return table


FUNCTIONS: Final[dict[str, tuple[Function, ...]]] = _by_name(_list_functions())
"""All signatures by lower-case name."""
