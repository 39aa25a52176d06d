"""WHERE clauses: which partitions, which clustering ranges, and what is left to filter row by row.

``Restrictions`` sorts the relations of a statement out once; its methods give keys, token ranges and clustering ranges
for one request. Messages follow Scylla's ``cql3/restrictions/statement_restrictions.cc``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from ..cql import ast
from ..errors import InvalidRequest, ServerError
from ..result import UNSET
from ..schema.tables import Column
from ..storage.mutation import Bound, Key
from ..storage.tokens import MIN_TOKEN
from ..types import BIGINT, CqlType, ListType, TupleType
from .binding import Getter, Request, Scope
from .filtering import Check, Predicate, predicate
from .ranges import Range, RangeMaker
from .rows import RowView, column_value

__all__ = ["Restrictions"]

_MAX_TOKEN = (1 << 63) - 1
_SLICES = ("<", "<=", ">", ">=")
_MOST_KEYS = 100  # keys that IN lists may name, Scylla's default for partition and for clustering keys

Values = Callable[[Request], list[bytes | None]]


@attrs.define
class _Single:
    """All that is said about one key column: values of = or IN, and slices."""

    values: Values | None = None
    is_in: bool = False
    slices: list[tuple[str, Getter]] = attrs.field(factory=list)


class Restrictions:
    """The relations of a WHERE clause over one table."""

    def __init__(self, scope: Scope, where: Iterable[ast.Relation]) -> None:
        self.table = scope.table
        self._scope = scope
        self._make = RangeMaker(scope.table)
        self._single: dict[str, _Single] = {}
        self._token: list[tuple[str, Getter]] = []
        self._multi: list[tuple[tuple[Column, ...], str, Values]] = []
        self._bounds: list[tuple[str, TupleType, Values]] = []
        self.filters: list[Predicate] = []
        self.filtered_names: list[str] = []
        for relation in where:
            self._add(relation)
        if (self._multi or self._bounds) and any(c.name in self._single for c in self.table.clustering_key):
            raise InvalidRequest(
                "Mixing single column relations and multi column relations on clustering columns is not allowed"
            )
        self._sort_out()

    # ------------------------------------------------------------ reading the clause

    def _column(self, name: str) -> Column:
        column = self.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Unrecognized name {name}")
        return column

    def _add(self, relation: ast.Relation) -> None:
        kind = relation.left[0]
        if kind == "token":
            self._add_token(relation)
        elif kind == "tuple":
            self._add_tuple(relation)
        elif kind == "clustering_bound":
            self._add_bound(relation)
        elif kind == "column":
            self._add_column(relation, self._column(relation.left[1]))
        else:
            self.filters.append(predicate(self._scope, relation))
            self.filtered_names.append(relation.left[1])

    def _add_column(self, relation: ast.Relation, column: Column) -> None:
        op = relation.op
        is_key = column.kind in ("partition_key", "clustering")
        if not is_key or op not in ("=", "IN", *_SLICES):
            self.filters.append(predicate(self._scope, relation))
            self.filtered_names.append(column.name)
            return
        single = self._single.setdefault(column.name, _Single())
        if op in _SLICES:
            if single.values is not None:
                raise _twice(column)
            if any(known[0] == op[0] for known, _ in single.slices):
                raise InvalidRequest(f"More than one restriction was found for the {_side(op)} bound on {column.name}")
            single.slices.append((op, self._scope.getter(relation.right, column.type, column.name)))
            return
        if single.values is not None or single.slices:
            raise _twice(column)
        single.is_in = op == "IN"
        single.values = self._values(relation, column.type, column.name)
        # Drivers compute a token from these; of IN and slices there is none.
        if op == "=" and isinstance(relation.right, ast.Marker) and column.kind == "partition_key":
            self._scope.key_markers[column.position] = relation.right.index

    def _values(self, relation: ast.Relation, cql_type: CqlType, name: str) -> Values:
        """Return the function that gives the values of ``= term``, ``IN (...)`` or ``IN ?``."""
        if relation.op != "IN":
            get = self._scope.getter(relation.right, cql_type, name)
            return lambda request: [_set(get(request), name)]
        if isinstance(relation.right, tuple):
            getters = [self._scope.getter(term, cql_type, name) for term in relation.right]
            return lambda request: [_set(get(request), name) for get in getters]
        listed = ListType(cql_type.freeze(), frozen=True)
        whole = self._scope.getter(relation.right, listed, f"in({name})")

        def of_list(request: Request) -> list[bytes | None]:
            value = _set(whole(request), name)
            if value is None:
                raise InvalidRequest(f"Invalid null value for IN restriction on {name}")
            return list(listed.split(value))

        return of_list

    def _add_token(self, relation: ast.Relation) -> None:
        names = relation.left[1]
        expected = [column.name for column in self.table.partition_key]
        for name in names:
            self._column(name)
        if list(names) != expected:
            raise InvalidRequest(
                f"The token function arguments must be in the partition key order: {', '.join(expected)}"
            )
        if relation.op not in ("=", *_SLICES):
            raise InvalidRequest(f"{relation.op} cannot be used with the token function")
        self._token.append((relation.op, self._scope.getter(relation.right, BIGINT, "partition key token")))

    def _add_tuple(self, relation: ast.Relation) -> None:
        columns, _, values = self._clustering_tuple(relation)
        if relation.op not in ("=", "IN", *_SLICES):
            raise InvalidRequest(f"Unsupported operator {relation.op} on a multi-column relation")
        self._multi.append((columns, relation.op, values))

    def _add_bound(self, relation: ast.Relation) -> None:
        """``(c1, c2) > SCYLLA_CLUSTERING_BOUND (1, 2)``: compares in declared order, whatever is DESC."""
        _, cql_type, values = self._clustering_tuple(relation)
        if relation.op not in _SLICES:
            raise InvalidRequest(f"Operator {relation.op} cannot be used with SCYLLA_CLUSTERING_BOUND; use < <= > >=")
        self._bounds.append((relation.op, cql_type, values))

    def _clustering_tuple(self, relation: ast.Relation) -> tuple[tuple[Column, ...], TupleType, Values]:
        columns = tuple(self._column(name) for name in relation.left[1])
        for at, column in enumerate(columns):
            if column.kind != "clustering":
                raise InvalidRequest(
                    "Multi-column relations can only be applied to clustering columns but was applied to:"
                    f" {column.name}"
                )
            if column.position != at:
                raise InvalidRequest(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: "
                    f"({', '.join(c.name for c in columns)})"
                )
        cql_type = TupleType(tuple(column.type for column in columns))
        name = f"({','.join(column.name for column in columns)})"
        return columns, cql_type, self._values(relation, cql_type, name)

    def _sort_out(self) -> None:
        """Split clustering restrictions into a usable prefix and what has to be filtered."""
        partition = self.table.partition_key
        named = [c for c in partition if c.name in self._single]
        if self._token and named:
            raise InvalidRequest(
                f"Column {named[0].name} cannot be restricted by both a normal relation and a token relation"
            )
        self.full_key = len(named) == len(partition) and all(self._single[c.name].values for c in partition)
        self.key_is_in = any(self._single[c.name].is_in for c in named)
        self.partial_key = bool(named) and not self.full_key
        self.sliced_key = any(self._single[c.name].slices for c in named)
        self.prefix: list[Column] = []
        self.broken_after: tuple[Column, Column] | None = None
        open_column: Column | None = None
        self.restricts_clustering = bool(self._multi or self._bounds) or any(
            c.name in self._single for c in self.table.clustering_key
        )
        for column in self.table.clustering_key:
            single = self._single.get(column.name)
            if single is None:
                open_column = open_column or column
            elif open_column is not None:
                self.broken_after = self.broken_after or (open_column, column)
            else:
                self.prefix.append(column)
                if single.values is None:
                    # A slice ends the prefix: columns after it have no range of their own.
                    open_column = column

    # ------------------------------------------------------------ asking about the clause

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    @property
    def clustering_is_in(self) -> bool:
        return any(self._single[c.name].is_in for c in self.prefix) or any(op == "IN" for _, op, _ in self._multi)

    @property
    def full_clustering(self) -> bool:
        """Whether each clustering column has = or IN."""
        if any(op in ("=", "IN") and len(c) == len(self.table.clustering_key) for c, op, _ in self._multi):
            return True
        return all(c.name in self._single and self._single[c.name].values for c in self.table.clustering_key)

    @property
    def has_slice(self) -> bool:
        if self._bounds or any(op in _SLICES for _, op, _ in self._multi):
            return True
        return any(self._single[c.name].slices for c in self.prefix)

    def sliced(self, column: Column) -> bool:
        return column.name in self._single and bool(self._single[column.name].slices)

    def names(self, column: Column) -> bool:
        """Whether the column has a restriction of its own."""
        return column.name in self._single

    def restricted_prefix(self) -> int:
        """How many leading clustering columns have a restriction."""
        return max((len(columns) for columns, _, _ in self._multi), default=len(self.prefix))

    def key_predicates(self) -> list[Callable[[Request], Check]]:
        """Return checks for key columns that neither a key list nor a clustering range covers."""
        out: list[Callable[[Request], Check]] = []
        if self.partial_key:
            out.extend(
                _key_check(column, self._single[column.name])
                for column in self.table.partition_key
                if column.name in self._single
            )
        out.extend(
            _key_check(column, self._single[column.name])
            for column in self.table.clustering_key
            if column.name in self._single and column not in self.prefix
        )
        return out

    # ------------------------------------------------------------ values for a request

    def keys(self, request: Request, *, null_error: bool) -> list[Key]:
        """Return the partition keys, each once, in the order written. A null selects nothing, or is an error."""
        lists: list[list[bytes]] = []
        for column in self.table.partition_key:
            values = self._single[column.name].values
            assert values is not None
            found = values(request)
            if null_error and None in found:
                raise InvalidRequest(f"Invalid null value in condition for column {column.name}")
            lists.append([value for value in found if value is not None])
        # Most statements name one partition: no product, no duplicates to look for.
        if not self.key_is_in:
            return [tuple([values[0] for values in lists])] if all(lists) else []
        _check_product("partition", lists)
        return list(dict.fromkeys(itertools.product(*lists)))

    def token_range(self, request: Request) -> tuple[int, int] | None:
        """Return the inclusive token range, or None when it is empty."""
        low, high = MIN_TOKEN, _MAX_TOKEN
        for op, getter in self._token:
            raw = _set(getter(request), "partition key token")
            if raw is None:
                raise InvalidRequest("Invalid null token value for a range")
            token = int.from_bytes(raw, "big", signed=True)
            if op in ("=", ">", ">="):
                low = max(low, token + (op == ">"))
            if op in ("=", "<", "<="):
                high = min(high, token - (op == "<"))
        return (low, high) if low <= high else None

    def ranges(self, request: Request) -> list[Range]:
        """Return the clustering ranges, disjoint and in declared order; one unbounded range without restrictions."""
        if self._multi or self._bounds:
            found = self._multi_ranges(request)
        else:
            found = self._single_ranges(request)
        # A read takes ranges in order and each row once.
        if len(found) > 1:
            # IN (1, 1) names one row.
            found = list({(r.low, r.high): r for r in sorted(found, key=lambda r: r.low)}.values())
        return found

    def row(self, key: Key) -> Range:
        """Return the range that is the one row with this full clustering key."""
        return self._make.row(key)

    def _single_ranges(self, request: Request) -> list[Range]:
        prefixes: list[Key] = [()]
        for column in self.prefix:
            single = self._single[column.name]
            if single.values is None:
                start, end = self._slice(request, column, single)
                if start is None or end is None:
                    return []
                return [
                    r
                    for p in prefixes
                    for r in [
                        self._make.between(
                            Bound((*p, *start.prefix), start.inclusive), Bound((*p, *end.prefix), end.inclusive)
                        )
                    ]
                    if r.low < r.high
                ]
            values = single.values(request)
            if single.is_in:
                _check_product("clustering", [prefixes, values])
            prefixes = [(*p, v) for p in prefixes for v in values if v is not None]
        return [self._make.row(p) for p in prefixes]

    @staticmethod
    def _slice(request: Request, column: Column, single: _Single) -> tuple[Bound | None, Bound | None]:
        """Return the bounds of one column's slice in declared order; None for a comparison with null."""
        start, end = Bound(), Bound()
        for op, getter in single.slices:
            value = _set(getter(request), column.name)
            if value is None:
                return None, None
            bound = Bound((value,), op.endswith("="))
            # Under DESC the greater values come first, so ">" ends the range.
            if (op[0] == ">") != column.descending:
                start = bound
            else:
                end = bound
        return start, end

    def _multi_ranges(self, request: Request) -> list[Range]:
        found = [self._make.between(Bound(), Bound())]
        for columns, op, values in self._multi:
            tuple_type = TupleType(tuple(column.type for column in columns))
            keys = [self._tuple_key(tuple_type, value) for value in values(request) if value is not None]
            if op in ("=", "IN"):
                parts = [self._make.row(key) for key in keys]
            else:
                parts = [r for key in keys for r in self._make.tuple_slice(columns, op, key)]
            found = [cut for left in found for right in parts if (cut := self._make.intersection(left, right))]
        for op, cql_type, values in self._bounds:
            key = self._tuple_key(cql_type, values(request)[0] or b"")
            bound = Bound(key, op.endswith("="))
            part = self._make.between(bound, Bound()) if op[0] == ">" else self._make.between(Bound(), bound)
            found = [cut for left in found if (cut := self._make.intersection(left, part))]
        return found

    @staticmethod
    def _tuple_key(tuple_type: TupleType, value: bytes) -> Key:
        parts = tuple_type.split(value)
        if any(part is None for part in parts):
            raise InvalidRequest("Invalid null value in condition for a clustering column tuple")
        return tuple(part for part in parts if part is not None)


def _side(op: str) -> str:
    return "start" if op[0] == ">" else "end"


def _twice(column: Column) -> InvalidRequest:
    return InvalidRequest(f"{column.name} cannot be restricted by more than one relation if it includes an Equal")


def _check_product(kind: str, lists: Sequence[Sequence[Any]]) -> None:
    """Refuse IN lists that name more keys than a node accepts. Source: Scylla ``statement_restrictions.cc``."""
    size = math.prod(len(set(values)) for values in lists)
    if size > _MOST_KEYS:
        raise ServerError(
            f"size of {kind}-key IN list or {kind}-key cartesian product of IN list {size} is greater than maximum"
            f" {_MOST_KEYS}. Use --max-{kind}-key-restrictions-per-query configuration option to change default"
            " setting."
        )


def _set(value: Any, name: str) -> bytes | None:
    if value is UNSET:
        raise InvalidRequest(f"Invalid unset value for column {name}")
    return value  # type: ignore[no-any-return]


def _key_check(column: Column, single: _Single) -> Callable[[Request], Check]:
    """Return a maker of checks of one key column against ``= IN < <= > >=``."""
    sort_key, read = column.type.sort_key, column_value(column)

    def for_request(request: Request) -> Check:
        wanted = None
        if single.values is not None:
            wanted = {v for v in single.values(request) if v is not None}
        slices = [(op, _set(getter(request), column.name)) for op, getter in single.slices]
        limits = [(op, None if value is None else sort_key(value)) for op, value in slices]

        def check(view: RowView) -> bool:
            value = read(view)
            if value is None:
                return False
            if wanted is not None:
                return value in wanted
            return all(limit is not None and _compare(sort_key(value), op, limit) for op, limit in limits)

        return check

    return for_request


def _compare(left: Any, op: str, right: Any) -> bool:
    if op == "<":
        return bool(left < right)
    if op == "<=":
        return bool(left <= right)
    return bool(left > right) if op == ">" else bool(left >= right)
