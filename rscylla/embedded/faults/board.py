"""Breaking a cluster on purpose: the server's side. Which requests meet a fault, and what becomes of them.

All of it runs on the loop's thread. Without rules a request costs one look at an empty list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..clock import checked_seconds
from ..cql import ast
from ..cql.parser import parse
from ..errors import (
    ConfigError,
    CqlError,
    EmbeddedScyllaError,
    InvalidRequest,
    IsBootstrapping,
    Overloaded,
    RateLimit,
    ReadFailure,
    ReadTimeout,
    ServerError,
    Unauthorized,
    Unavailable,
    Unprepared,
    WriteFailure,
    WriteTimeout,
)
from ..result import Prepared, QueryParams, Result, RowsResult
from ..schema.tables import TableSchema
from ..storage.mutation import PartitionMutation
from .rules import Statements

__all__ = ["Asked", "Fault", "FaultBoard", "perform"]

_EMPTY_PAGE: Final = b"\x00rscylla: after an empty page\x00"
"""Starts the paging state of an empty page that was made up; what follows is the state of the true one."""

_WRITES: Final = ("insert", "update", "delete", "batch")


@attrs.frozen
class AskedStatement:
    """One statement of a request: what it does, to which table, and its text."""

    kind: str
    keyspace: str | None
    table: str | None
    text: str


@attrs.frozen
class Asked:
    """A request, as far as faults look at it. ``statement_id`` is that of an EXECUTE."""

    node: str
    operations: Sequence[AskedStatement]
    params: QueryParams
    statement_id: bytes | None = None
    knows_rate_limit: bool = False

    @classmethod
    def about(
        cls,
        node: str,
        items: Iterable[Prepared | str],
        params: QueryParams,
        *,
        kind: str | None = None,
        statement_id: bytes | None = None,
        knows_rate_limit: bool = False,
    ) -> Asked:
        """Describe a request by its statements, texts or prepared. *kind* is that of the whole, if not each one's."""
        found: list[AskedStatement] = []
        for item in items:
            text, keyspace = (item, params.keyspace) if isinstance(item, str) else (item.text, item.keyspace)
            try:
                statement: Any = parse(item) if isinstance(item, str) else item.statement
            except CqlError:
                statement = None  # the engine will say what is wrong with it
            found += _operations(statement, keyspace, text)
        if kind is not None:
            # A rule may name a batch as such, or the kind of a statement in it; a PREPARE is met as a PREPARE only.
            whole = [attrs.evolve(operation, kind=kind) for operation in found]
            found = whole if kind == "prepare" else whole + found
        return cls(node, found, params, statement_id, knows_rate_limit)

    @property
    def is_write(self) -> bool:
        return any(operation.kind in _WRITES for operation in self.operations)

    @property
    def write_type(self) -> str:
        if any(" IF " in f" {o.text.upper()} " for o in self.operations):
            return "CAS"
        return "BATCH" if any(operation.kind == "batch" for operation in self.operations) else "SIMPLE"


def _operations(statement: Any, keyspace: str | None, text: str) -> list[AskedStatement]:
    if isinstance(statement, ast.Batch):
        inner = [each for one in statement.statements for each in _operations(one, keyspace, text)]
        return [attrs.evolve(each, kind="batch") for each in inner] + inner
    if isinstance(statement, ast.Use):
        return []  # drivers send it on each new connection, which would use up a fault meant for the next request
    kinds = {ast.Select: "select", ast.Insert: "insert", ast.Update: "update", ast.Delete: "delete"}
    name = getattr(statement, "table", None)
    if not isinstance(name, ast.TableName):
        return [AskedStatement("other", keyspace, None, text)]
    return [AskedStatement(kinds.get(type(statement), "other"), name.keyspace or keyspace, name.name, text)]


@attrs.define(eq=False)
class _Rule:
    action: str
    on: Statements
    times: int | None
    probability: float
    dice: random.Random
    arguments: dict[str, Any]
    hits: int = 0

    def fits(self, asked: Asked) -> bool:
        on = self.on
        if on.node is not None and on.node != asked.node:
            return False
        if on.later_pages and asked.params.paging_state is None:
            return False
        # Only an EXECUTE has an id that could be unknown.
        if self.arguments.get("fault") == "unprepared" and asked.statement_id is None:
            return False
        return any(self._fits(operation) for operation in asked.operations)

    def _fits(self, operation: AskedStatement) -> bool:
        on = self.on
        if operation.kind != on.kind and (on.kind is not None or operation.kind == "prepare"):
            return False
        if self.action == "cut" and operation.kind != "select":
            return False
        if on.matching is not None and not re.search(on.matching, operation.text, re.IGNORECASE):
            return False
        return self.fits_table(operation.keyspace, operation.table)

    def fits_table(self, keyspace: str | None, table: str | None) -> bool:
        on = self.on
        # Drivers live on the system tables: a rule for "every request" would keep them from connecting at all.
        if on.keyspace is None:
            if keyspace is not None and (keyspace == "system" or keyspace.startswith("system_")):
                return False
        elif on.keyspace != keyspace:
            return False
        return on.table is None or on.table == table

    def strikes(self) -> bool:
        """Return whether it strikes this time, and count that."""
        if self.times is not None and self.hits >= self.times:
            return False
        if self.probability < 1 and self.dice.random() >= self.probability:
            return False
        self.hits += 1
        return True


@attrs.frozen
class Fault:
    """What becomes of one request; see `Faults`. ``error`` ends it; ``rows`` and ``empty`` cut its page."""

    error: CqlError | None = None
    applied: bool = False
    silent: bool = False
    drop: bool = False
    partway: bool = False
    delay_s: float = 0.0
    rows: int | None = None
    empty: bool = False


NOTHING: Final = Fault()


class FaultBoard:
    """The rules of one server. ``is_current`` tells whether a table is still the one that a held write was made for."""

    def __init__(self, is_current: Callable[[TableSchema], bool]) -> None:
        self.rules: list[_Rule] = []
        """Those that may still strike a request."""
        self._writes: list[_Rule] = []
        self._all: list[_Rule] = []
        self._held: list[tuple[list[TableSchema], Callable[[], None]]] = []
        self._is_current = is_current

    # ------------------------------------------------------------ the owner's side

    def add(
        self,
        action: str,
        on: dict[str, Any],
        times: int | None,
        probability: float,
        seed: int | None,
        arguments: dict[str, Any],
    ) -> int:
        """Add a rule and return its number. ValueError if it makes no sense; see `Faults`."""
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None for all, not {times}")
        if not 0 < probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, not {probability}")
        _check(action, arguments)
        if on["kind"] == "prepare" and action in ("delay", "cut"):
            raise ValueError("a request to prepare a statement can fail, get no answer or lose its connection, no more")
        rule = _Rule(action, Statements(**on), times, probability, random.Random(seed), arguments)
        self._all.append(rule)
        # Apart: only writes to the engine meet these, and requests without other rules then cost nothing.
        (self._writes if action in ("replay", "hold") else self.rules).append(rule)
        return len(self._all) - 1

    def hits(self, number: int) -> int:
        return self._rule(number).hits

    def _rule(self, number: int) -> _Rule:
        if not 0 <= number < len(self._all):
            raise ValueError(f"no rule has the number {number}")
        return self._all[number]

    def active(self) -> list[dict[str, Any]]:
        """Return the rules that may still strike as plain values, oldest first."""
        return [
            {
                "rule": number,
                "action": rule.action,
                "on": attrs.asdict(rule.on),
                "times": rule.times,
                "probability": rule.probability,
                "hits": rule.hits,
                **rule.arguments,
            }
            for number, rule in enumerate(self._all)
            if (rule in self.rules or rule in self._writes) and (rule.times is None or rule.hits < rule.times)
        ]

    @property
    def held(self) -> int:
        """How many requests are held back."""
        return len(self._held)

    def remove(self, number: int) -> None:
        rule = self._rule(number)
        for rules in (self.rules, self._writes):
            if rule in rules:
                rules.remove(rule)

    def clear(self) -> None:
        self.rules.clear()
        self._writes.clear()

    def deliver_held(self) -> int:
        """Carry out what was held back, oldest first; see `Faults.deliver_held`."""
        count = 0
        while self._held:
            # Taken out first: one that cannot be delivered must not stand in the way of the others.
            tables, apply = self._held.pop(0)
            for table in tables:
                if not self._is_current(table):
                    raise EmbeddedScyllaError(
                        f"table {table.keyspace}.{table.name} was changed or dropped since a write to it was held "
                        "back; that write is gone, the others stay until deliver_held is called again"
                    )
            apply()
            count += 1
        return count

    # ------------------------------------------------------------ the server's side

    def concerns(self, params: QueryParams) -> bool:
        """Return whether a request has to be looked at: there are rules, or it continues behind a made up page."""
        return bool(self.rules) or (params.paging_state is not None and params.paging_state.startswith(_EMPTY_PAGE))

    def meet(self, asked: Asked) -> Fault:
        """Return what becomes of a request."""
        behind_empty = asked.params.paging_state is not None and asked.params.paging_state.startswith(_EMPTY_PAGE)
        for rule in self.rules:
            # The page behind an empty one belongs to the same strike: another one would be empty again, for ever.
            if rule.action == "cut" and behind_empty:
                if rule.fits(asked) and rule.arguments["rows"] is not None:
                    return Fault(rows=rule.arguments["rows"])
            elif rule.fits(asked) and rule.strikes():
                return _fault(rule, asked)
        return NOTHING

    @property
    def concerns_writes(self) -> bool:
        """See `engine.writing.WriteFaults`."""
        return bool(self._writes)

    def copies(self, table: TableSchema) -> int:
        """See `engine.writing.WriteFaults`."""
        return 1 + any(
            rule.action == "replay" and rule.fits_table(table.keyspace, table.name) and rule.strikes()
            for rule in self._writes
        )

    def hold(self, mutations: Iterable[PartitionMutation], apply: Callable[[], None]) -> bool:
        """See `engine.writing.WriteFaults`."""
        tables = [mutation.table for mutation in mutations]
        for rule in self._writes:
            fits = rule.action == "hold" and any(rule.fits_table(t.keyspace, t.name) for t in tables)
            if fits and rule.strikes():
                self._held.append((tables, apply))
                return True
        return False


_ARGUMENTS: Final[dict[str, set[str]]] = {
    "fail": {"fault", "applied"},
    "no_answer": {"applied"},
    "delay": {"delay_s"},
    "drop": {"partway"},
    "cut": {"rows", "empty"},
    "replay": set(),
    "hold": set(),
}


def _check(action: str, arguments: dict[str, Any]) -> None:
    if _ARGUMENTS.get(action) != set(arguments):
        raise ValueError(f"no rule has the action {action!r} with the arguments {', '.join(arguments) or 'none'}")
    match action:
        case "fail":
            if arguments["fault"] not in _ERRORS:
                raise ValueError(f"no fault is called {arguments['fault']!r}; there are {', '.join(_ERRORS)}")
        case "delay":
            delay_seconds(arguments)
        case "cut":
            rows = arguments["rows"]
            if rows is not None and rows < 1:
                raise ValueError(f"cut_pages: rows must be 1 or more, not {rows}; empty=True makes empty pages")
            if rows is None and not arguments["empty"]:
                raise ValueError("cut_pages: give rows=, or empty=True, or both")


def delay_seconds(arguments: Mapping[str, Any]) -> float:
    """Return the delay that a fault has. ValueError unless it is a number of seconds, not negative."""
    delay_s = arguments["delay_s"]
    if isinstance(delay_s, int | float) and delay_s < 0:
        raise ValueError("a delay cannot be negative")
    return checked_seconds(delay_s, 1, "delay_s", least=0)


def _fault(rule: _Rule, asked: Asked) -> Fault:
    arguments = rule.arguments
    match rule.action:
        case "fail":
            return Fault(error=_ERRORS[arguments["fault"]](asked), applied=arguments["applied"])
        case "no_answer":
            return Fault(silent=True, applied=arguments["applied"])
        case "delay":
            return Fault(delay_s=arguments["delay_s"])
        case "drop":
            return Fault(drop=True, partway=arguments["partway"])
        case _:
            return Fault(rows=arguments["rows"], empty=arguments["empty"])


def _rate_limit(asked: Asked) -> CqlError:
    error = RateLimit(is_write=asked.is_write)
    return error if asked.knows_rate_limit else ConfigError(error.message)


_ERRORS: Final[dict[str, Callable[[Asked], CqlError]]] = {
    "unavailable": lambda asked: Unavailable(asked.params.consistency),
    "read_timeout": lambda asked: ReadTimeout(asked.params.consistency),
    "write_timeout": lambda asked: WriteTimeout(asked.params.consistency, asked.write_type),
    "read_failure": lambda asked: ReadFailure(asked.params.consistency),
    "write_failure": lambda asked: WriteFailure(asked.params.consistency, asked.write_type),
    "overloaded": lambda _: Overloaded("Too many in flight requests (injected fault: overloaded)"),
    "bootstrapping": lambda _: IsBootstrapping("Node is bootstrapping (injected fault: bootstrapping)"),
    "unprepared": lambda asked: Unprepared(asked.statement_id or b""),
    "rate_limit": _rate_limit,
    "server_error": lambda _: ServerError("injected fault: server_error"),
    "invalid": lambda _: InvalidRequest("injected fault: invalid"),
    "unauthorized": lambda _: Unauthorized("injected fault: unauthorized"),
}


def perform(fault: Fault, params: QueryParams, run: Callable[[QueryParams], Result]) -> Result:
    """Carry a request out as far as *fault* lets it, by ``run``; return its result or raise the fault's error."""
    state = params.paging_state
    behind_empty = state is not None and state.startswith(_EMPTY_PAGE)
    if state is not None and behind_empty:
        params = attrs.evolve(params, paging_state=state.removeprefix(_EMPTY_PAGE) or None)
    if fault.error is not None:
        if fault.applied:
            run(params)
        raise fault.error
    if params.page_size is None or (fault.rows is None and not fault.empty):
        return run(params)
    if fault.empty and not behind_empty:
        # For the columns, and for the error if there is one; the row comes again with the next page.
        first = run(attrs.evolve(params, page_size=1))
        if isinstance(first, RowsResult):
            return RowsResult(first.columns, (), _EMPTY_PAGE + (params.paging_state or b""))
        return first
    rows = params.page_size if fault.rows is None else min(params.page_size, fault.rows)
    return run(attrs.evolve(params, page_size=rows))
