"""Statements compiled against the schema as it is: plans, bind variables, and the plans that are kept."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..cql import ast
from ..errors import InvalidRequest, Unauthorized
from ..result import BindValue, ColumnSpec
from ..schema.tables import Keyspace, Schema, TableSchema
from ..system.contents import SystemTables
from ..types import BIGINT, DURATION
from .binding import Getter, Request, Scope
from .reads.select import SelectPlan
from .reads.selectrules import compile_select
from .values.calls import Calls
from .writes import lwt
from .writes.write import WritePlan
from .writes.writerules import compile_write

__all__ = ["LONG_TEXT", "Compiled", "Compiler", "Values", "answer_columns", "no_counters", "positional"]

_PLANS_MOST: Final = 2_000
LONG_TEXT: Final = 8_192
"""Characters; plans of longer statements, which hardly come twice, are not kept."""

# Scylla describes the markers of a batch's USING so.
_BATCH: Final = TableSchema("[batch]", "[batch]", uuid.UUID(int=0), uuid.UUID(int=0), ())

StatementPlan = SelectPlan | WritePlan
Values = Sequence[BindValue] | Mapping[str, BindValue]


@attrs.frozen
class Compiled:
    """A statement compiled against the schema of ``version``."""

    version: Any
    plan: Any
    variables: tuple[ColumnSpec, ...]
    pk_indexes: tuple[int, ...]
    timeout: Getter | None = None
    """USING TIMEOUT of a statement that it can end."""
    bound: Callable[[Request], Any] | None = None
    """Gives the statement with its values, where those are part of what is executed."""


class Compiler:
    """Compiles statements, and keeps the plans of those that came lately. All errors are ``CqlError``."""

    def __init__(self, schema: Schema, system: SystemTables) -> None:
        self.schema = schema
        self.calls = Calls()
        self._system = system
        self._plans: OrderedDict[tuple[str | None, str], Compiled] = OrderedDict()

    def compiled(self, text: str, statement: Any, keyspace: str | None) -> Compiled:
        place = (keyspace, text)
        known = self._plans.get(place)
        # A plan holds columns and types, so any change of the schema makes it stale.
        if known is not None and known.version is self.schema.version:
            return known
        compiled = self._compile(statement, keyspace)
        if len(text) <= LONG_TEXT:
            self._plans[place] = compiled
        if len(self._plans) > _PLANS_MOST:
            self._plans.popitem(last=False)
        return compiled

    def _compile(self, statement: Any, keyspace: str | None) -> Compiled:
        if isinstance(statement, ast.Batch):
            return self._compile_batch(statement, keyspace)
        if isinstance(statement, ast.Truncate):
            scope = Scope(self.schema, self.table(statement.table, keyspace), self.calls)
            timeout = _timeout(scope, statement)
            return Compiled(self.schema.version, None, tuple(scope.variables.values()), (), timeout)
        if isinstance(statement, ast.AlterTable) and isinstance(statement.drop_timestamp, ast.Marker):
            return self._compile_drop(statement, keyspace)
        if not isinstance(statement, ast.Select | ast.Insert | ast.Update | ast.Delete):
            return Compiled(self.schema.version, None, (), ())
        table = self.table(statement.table, keyspace)
        scope = Scope(self.schema, table, self.calls)
        plan: StatementPlan
        if isinstance(statement, ast.Select):
            plan = compile_select(scope, statement)
        else:
            self._check_writable(table)
            plan = compile_write(scope, statement)
            self._check_conditional(plan)
        timeout = _timeout(scope, statement)
        variables = _in_order(scope.variables, statement.markers)
        keys = [scope.key_markers.get(at) for at in range(len(table.partition_key))]
        # Drivers route by the whole key or not at all.
        pk_indexes = () if None in keys else tuple(at for at in keys if at is not None)
        # Conditional writes have time limits of their own, and do not look at this one.
        takes_it = isinstance(plan, SelectPlan) or not plan.is_conditional
        return Compiled(self.schema.version, plan, variables, pk_indexes, timeout if takes_it else None)

    def _compile_batch(self, statement: ast.Batch, keyspace: str | None) -> Compiled:
        plans: list[WritePlan] = []
        variables: dict[int, ColumnSpec] = {}
        for inner in statement.statements:
            scope = Scope(self.schema, self.table(inner.table, keyspace), self.calls)
            self._check_writable(scope.table)
            plans.append(compile_write(scope, inner))
            self._check_conditional(plans[-1])
            _timeout(scope, inner)
            variables |= scope.variables
        using: Any = None
        if statement.using.ttl is not None:
            raise InvalidRequest("Global TTL on the BATCH statement is not supported.")
        if statement.using.timestamp is not None and any(plan.is_conditional for plan in plans):
            raise InvalidRequest("Cannot provide custom timestamp for conditional BATCH")
        if statement.using.timestamp is not None and any(plan.sets_timestamp for plan in plans):
            raise InvalidRequest("Timestamp must be set either on BATCH or individual statements")
        if statement.kind == "counter" and plans:
            raise no_counters()
        lwt.check_one_table(plans)
        outer = Scope(self.schema, _BATCH, self.calls)
        timeout = None if any(plan.is_conditional for plan in plans) else _timeout(outer, statement)
        if statement.using.timestamp is not None:
            # A plan without operations, for the way it reads USING TIMESTAMP.
            using = WritePlan(outer, "UPDATE", ast.Using(timestamp=statement.using.timestamp))
        variables |= outer.variables
        ordered = _in_order(variables, statement.markers)
        return Compiled(self.schema.version, (plans, using), ordered, (), timeout)

    def _compile_drop(self, statement: ast.AlterTable, keyspace: str | None) -> Compiled:
        """Compile ALTER TABLE ... DROP ... USING TIMESTAMP with a bind marker."""
        scope = Scope(self.schema, self.table(statement.table, keyspace), self.calls)
        timestamp = scope.getter(statement.drop_timestamp, BIGINT, "[timestamp]")

        def bound(request: Request) -> ast.AlterTable:
            raw = timestamp(request)
            if not isinstance(raw, bytes):
                raise InvalidRequest("Invalid null or unset value of timestamp")
            return attrs.evolve(statement, drop_timestamp=ast.Constant("integer", str(BIGINT.decode(raw))))

        return Compiled(self.schema.version, None, tuple(scope.variables.values()), (), bound=bound)

    def clear(self) -> None:
        """Forget all plans."""
        self._plans.clear()

    def table(self, name: ast.TableName, current: str | None) -> TableSchema:
        keyspace_name = name.keyspace or current
        if keyspace_name is None:
            raise InvalidRequest(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
            )
        keyspace: Keyspace | None = self.schema.keyspaces.get(keyspace_name)
        if keyspace is None:
            raise InvalidRequest(f"Keyspace {keyspace_name} does not exist")
        table = keyspace.tables.get(name.name)
        if table is None:
            raise InvalidRequest(f"unconfigured table {name.name}")
        return table

    def _check_writable(self, table: TableSchema) -> None:
        if table.keyspace in self._system.protected and not self._system.is_writable(table):
            raise Unauthorized(f"Cannot modify {table.keyspace}.{table.name}: system tables are read-only here")

    def _check_conditional(self, plan: WritePlan) -> None:
        table = plan.table
        if plan.is_conditional and table.is_cdc_log and self.schema.keyspaces[table.keyspace].tablets is not None:
            raise InvalidRequest(f"LWT is not supported on CDC log tables: {table.keyspace}.{table.name}")


def no_counters() -> InvalidRequest:
    return InvalidRequest("Cannot include non-counter statement in a counter batch")


def answer_columns(plan: WritePlan | tuple[list[WritePlan], Any]) -> tuple[ColumnSpec, ...] | None:
    """Return what describes the answer of a write, None if it has none."""
    plans, is_batch = ([plan], False) if isinstance(plan, WritePlan) else (plan[0], True)
    if not any(each.is_conditional for each in plans):
        return None
    return lwt.cas_specs(plans[0].table, lwt.columns_of(plans, is_batch=is_batch))


def _timeout(scope: Scope, statement: Any) -> Getter | None:
    """Return what gives USING TIMEOUT of a statement, None for none."""
    using = getattr(statement, "using", None)
    term = statement.timeout if using is None else using.timeout
    return None if term is None else scope.getter(term, DURATION, "[timeout]")


def _in_order(variables: Mapping[int, ColumnSpec], markers: int) -> tuple[ColumnSpec, ...]:
    """Return the bind variables by index. Raises InvalidRequest if a marker is where nothing gives it a type."""
    if len(variables) < markers:
        raise InvalidRequest("a bind marker has no type: USING has the same part again")
    return tuple(variables[at] for at in range(markers))


def positional(variables: tuple[ColumnSpec, ...], values: Values) -> Sequence[BindValue]:
    """Return one value for each variable. Raises InvalidRequest when the numbers differ or a name is missing."""
    # The type first: to ask for the interface takes longer than all else here.
    if type(values) is not list and isinstance(values, Mapping):
        missing = [spec.name for spec in variables if spec.name not in values]
        if missing:
            raise InvalidRequest(f"Missing value for bind variable {missing[0]}")
        return [values[spec.name] for spec in variables]
    if len(values) != len(variables):
        raise InvalidRequest(
            f"Invalid amount of bind variables: expected {len(variables)} but got {len(values)} bind variables"
        )
    return values
