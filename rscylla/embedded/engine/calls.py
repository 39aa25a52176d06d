"""Function calls in statements: native functions of terms and of row values, and ``token``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..cql import ast
from ..errors import FunctionFailure, InvalidRequest
from ..result import UNSET
from ..schema.tables import TableSchema
from ..storage.mutation import Key
from ..storage.tokens import table_token
from ..types import BIGINT, TEXT, CqlType
from ..types.casts import cast_function
from ..types.jsontext import from_json, read_json, to_json
from ..types.terms import is_compatible
from ..types.timeuuid import TimeUuids
from .binding import Getter, Request, Scope
from .functions import CallContext, find_function
from .rows import RowView

__all__ = ["Calls"]


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
            arguments = [_argument(getter(request)) for getter in getters]
            return function.call(self._context(request), arguments)

        return get

    @staticmethod
    def _from_json(scope: Scope, call: ast.Call, cql_type: CqlType) -> Getter:
        _one_argument("fromjson", call.args)
        text = scope.getter(call.args[0], TEXT, "arg0(system.fromjson)")

        def get(request: Request) -> bytes | None:
            raw = _argument(text(request))
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
            parts = [_argument(getter(request)) for getter in getters]
            if any(part is None for part in parts):
                return None
            return token(tuple(part for part in parts if part is not None)).to_bytes(8, "big", signed=True)

        return get

    def select(
        self, scope: Scope, name: str, arguments: list[Any]
    ) -> tuple[CqlType, Callable[[Request], Callable[[RowView], bytes | None]]]:
        """Return the result type and evaluator of a function in a select list.

        ``arguments`` are compiled expressions (with ``type`` and ``for_request``) or terms.
        """
        if name == "tojson":
            return _to_json(arguments)
        kinds = [getattr(argument, "type", argument) for argument in arguments]
        function = find_function(name, kinds)
        parts: list[Callable[[Request], Callable[[RowView], bytes | None]]] = []
        for at, (argument, kind) in enumerate(zip(arguments, function.arguments, strict=True)):
            if hasattr(argument, "for_request"):
                parts.append(argument.for_request)
            else:
                parts.append(_constant(scope.getter(argument, kind, f"arg{at}(system.{name})")))

        def for_request(request: Request) -> Callable[[RowView], bytes | None]:
            readers = [part(request) for part in parts]
            context = self._context(request)
            return lambda view: function.call(context, [read(view) for read in readers])

        return function.result, for_request

    def token(self, table: TableSchema) -> Callable[[Key], int]:
        return table_token(table)

    def cast(self, source: CqlType, target: CqlType) -> Callable[[bytes], bytes | None]:
        return cast_function(source, target)


def _one_argument(name: str, arguments: Sequence[Any]) -> None:
    if len(arguments) != 1:
        raise InvalidRequest(
            f"Invalid number of arguments in call to function system.{name}: 1 required but {len(arguments)} provided"
        )


def _to_json(arguments: list[Any]) -> tuple[CqlType, Callable[[Request], Callable[[RowView], bytes | None]]]:
    """Return toJson of an expression: it takes any type, so it is not among the functions with signatures."""
    _one_argument("tojson", arguments)
    (argument,) = arguments
    if not hasattr(argument, "for_request"):
        raise InvalidRequest("toJson of a constant is not supported by the embedded server; give it a column")

    def for_request(request: Request) -> Callable[[RowView], bytes | None]:
        read = argument.for_request(request)
        return lambda view: to_json(argument.type, read(view)).encode()

    return TEXT, for_request


def _constant(getter: Getter) -> Callable[[Request], Callable[[RowView], bytes | None]]:
    def for_request(request: Request) -> Callable[[RowView], bytes | None]:
        value = _argument(getter(request))
        return lambda view: value

    return for_request


def _argument(value: Any) -> bytes | None:
    if value is UNSET:
        raise InvalidRequest("Invalid unset value for an argument to a function call")
    return value  # type: ignore[no-any-return]
