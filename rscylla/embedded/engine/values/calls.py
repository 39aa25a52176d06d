"""Function calls in statements: native functions of terms and of row values, and ``token``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...cql import ast
from ...errors import FunctionFailure, InvalidRequest
from ...storage.tokens import table_token
from ...types import BIGINT, TEXT, CqlType, default_type
from ...types.casts import cast_function
from ...types.fitting import is_compatible
from ...types.jsontext import from_json, read_json, to_json
from ...types.timeuuid import TimeUuids
from ..binding import Getter, Request, Scope, not_unset
from .expression import Combine
from .functions import CallContext, Function, check_arguments, find_function, set_intersection

__all__ = ["Calls"]

_ARGUMENT: Final = "an argument to a function call"


class Calls:
    """Implements ``binding.Functions`` with the native functions."""

    def __init__(self) -> None:
        # Each node has its own: timeuuids of one source never go back, and node clocks may differ.
        self._timeuuids: defaultdict[int, TimeUuids] = defaultdict(TimeUuids)

    def _context(self, request: Request) -> CallContext:
        return CallContext(request.now_us, self._timeuuids[request.params.node])

    def getter(self, scope: Scope, call: ast.Call, cql_type: CqlType) -> Getter:
        """Return the function that gives the call's value, which must fit ``cql_type``."""
        # token and fromJson have no signature to be found by: one takes the table's key, the other gives any type.
        if call.name == "token" and call.keyspace in (None, "system"):
            if not is_compatible(BIGINT, cql_type):
                raise InvalidRequest(
                    "Type error: cannot assign result of function system.token (type bigint) to a value of type"
                    f" {cql_type.name}"
                )
            return self._token_of_terms(scope, call)
        if call.name == "fromjson" and call.keyspace in (None, "system"):
            return self._from_json(scope, call, cql_type)
        function = find_function(call.name, call.args, wanted=cql_type, keyspace=call.keyspace)
        getters = [
            scope.getter(argument, kind, f"arg{at}(system.{function.name})")
            for at, (argument, kind) in enumerate(zip(call.args, function.arguments, strict=True))
        ]

        def get(request: Request) -> bytes | None:
            arguments = [not_unset(getter(request), _ARGUMENT) for getter in getters]
            return function.call(self._context(request), arguments)

        return get

    @staticmethod
    def _from_json(scope: Scope, call: ast.Call, cql_type: CqlType) -> Getter:
        _one_argument("fromjson", call.args)
        text = scope.getter(call.args[0], TEXT, "arg0(system.fromjson)")

        def get(request: Request) -> bytes | None:
            raw = not_unset(text(request), _ARGUMENT)
            try:
                return None if raw is None else from_json(cql_type, read_json(raw.decode()))
            except InvalidRequest as error:
                detail = f"Failed parsing fromJson parameter: {error.message}"
                raise FunctionFailure(scope.table.keyspace, "fromJson", (cql_type.marshal_name,), detail) from error

        return get

    @staticmethod
    def _token_of_terms(scope: Scope, call: ast.Call) -> Getter:
        columns = scope.table.partition_key
        if len(call.args) != len(columns):
            raise InvalidRequest(
                f"Invalid number of arguments in call to function token: {len(columns)} required but"
                f" {len(call.args)} provided"
            )
        getters = [
            scope.getter(argument, column.type, f"arg{at}(system.token)")
            for at, (argument, column) in enumerate(zip(call.args, columns, strict=True))
        ]
        token = table_token(scope.table)

        def get(request: Request) -> bytes | None:
            parts = [not_unset(getter(request), _ARGUMENT) for getter in getters]
            if any(part is None for part in parts):
                return None
            return token(tuple(part for part in parts if part is not None)).to_bytes(8, "big", signed=True)

        return get

    def selected(
        self, scope: Scope, name: str, arguments: list[Any], shown: list[str]
    ) -> tuple[CqlType, Sequence[CqlType], Callable[[Request], Combine]]:
        """Return the result type of a function in a select list, the types it takes, and what computes it.

        ``arguments`` are types of values, or terms; ``shown`` their text in errors.
        """
        known = [default_type(a) if not isinstance(a, CqlType) else a for a in arguments]
        if name == "fromjson":
            raise InvalidRequest("fromJson() can only be called if receiver type is known")
        if name == "tojson":
            if len(known) != 1:
                raise InvalidRequest("toJson() accepts 1 argument only")
            (kind,) = known
            if kind is None:
                raise InvalidRequest("toJson() is only valid when its argument type is known")
            return TEXT, [kind], lambda request: lambda values: to_json(kind, values[0]).encode()
        if name == "token":
            return self._token_of_values(scope, arguments, shown)
        if name == "set_intersection":
            # An empty literal is of the type of the other set.
            function = set_intersection([kind or next(filter(None, known), None) for kind in known])
        else:
            function = find_function(name, arguments, shown=shown)

        def combine(request: Request) -> Combine:
            context = self._context(request)
            return lambda values: function.call(context, values)

        return function.result, function.arguments, combine

    @staticmethod
    def _token_of_values(
        scope: Scope, arguments: list[Any], shown: list[str]
    ) -> tuple[CqlType, Sequence[CqlType], Callable[[Request], Combine]]:
        kinds = tuple(column.type for column in scope.table.partition_key)
        token = table_token(scope.table)

        def body(_: CallContext, values: Sequence[bytes]) -> bytes:
            return token(tuple(values)).to_bytes(8, "big", signed=True)

        function = Function("token", kinds, BIGINT, True, body)
        check_arguments(function, arguments, shown)
        return BIGINT, kinds, lambda request: lambda values: function.call(CallContext(request.now_us), values)

    def cast(self, source: CqlType, target: CqlType) -> Callable[[bytes], bytes | None]:
        return cast_function(source, target)


def _one_argument(name: str, arguments: Sequence[Any]) -> None:
    if len(arguments) != 1:
        raise InvalidRequest(
            f"Invalid number of arguments in call to function system.{name}: 1 required but {len(arguments)} provided"
        )
