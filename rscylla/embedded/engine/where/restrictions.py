"""WHERE clauses: which partitions, which clustering ranges, and what is left to filter row by row.

``Restrictions`` sorts the relations of a statement out once; its methods give keys, token ranges and clustering ranges
for one request. Messages follow Scylla's ``cql3/restrictions/statement_restrictions.cc``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from ...cql import ast
from ...errors import InvalidRequest
from ...schema.tables import Column
from ...storage.mutation import Bound, Key
from ...storage.tokens import MIN_TOKEN
from ...types import BIGINT, CqlType, TupleType
from ..binding import Getter, Request, Scope, not_unset
from .filtering import Check, Predicate, predicate, relation_text
from .keys import MAX_KEY, KeyRestriction, check_length, check_product, key_check, not_null, one
from .ranges import Range, RangeMaker
from .tuples import SLICES, TupleRelation, Values, check_sizes, check_together, tuple_key

__all__ = ["Restrictions"]

_MAX_TOKEN = (1 << 63) - 1


class Restrictions:
    """The relations of a WHERE clause over one table."""

    def __init__(self, scope: Scope, where: Iterable[ast.Relation]) -> None:
        self.table = scope.table
        self._scope = scope
        self._make = RangeMaker(scope.table)
        self._single: dict[str, KeyRestriction] = {}
        self._token: list[tuple[str, Getter]] = []
        self._tuples: list[TupleRelation] = []
        self._equal: set[str] = set()
        self._last_clustering: Column | None = None
        self.looks_into_clustering = False
        """Whether a relation asks for an element of a clustering column."""
        self.slice_conflict: str | None = None
        """What is said of a clustering column after one with a slice, unless rows may be filtered."""
        self.filters: list[Predicate] = []
        self.filtered_names: list[str] = []
        for relation in where:
            self._add(relation)
        self._sort_out()

    # ------------------------------------------------------------ reading the clause

    def _column(self, name: str) -> Column:
        column = self.table.by_name.get(name)
        if column is None:
            raise InvalidRequest(f"Unrecognized name {name}")
        return column

    def _add(self, relation: ast.Relation) -> None:
        if relation.op == "!=":
            raise InvalidRequest(f'Unsupported "!=" relation: {relation_text(relation)}')
        kind = relation.left[0]
        if kind == "token":
            self._add_token(relation)
        elif kind in ("tuple", "clustering_bound"):
            self._add_tuple(relation)
        elif kind == "column" and relation.op in ("=", "IN", *SLICES):
            self._add_column(relation, self._column(relation.left[1]))
        else:
            self._add_filter(relation)

    def _add_filter(self, relation: ast.Relation) -> None:
        found = predicate(self._scope, relation)
        self._check_mix(found.column)
        if relation.op.startswith("CONTAINS") or relation.left[0] == "element":
            self.looks_into_clustering = self.looks_into_clustering or found.column.kind == "clustering"
        self.filters.append(found)
        self.filtered_names.append(found.column.name)

    def _add_column(self, relation: ast.Relation, column: Column) -> None:
        if column.kind not in ("partition_key", "clustering"):
            self._add_filter(relation)
            return
        relation = _equal_of_one(relation)
        op = relation.op
        self._check_mix(column, is_slice=op in SLICES)
        single = self._single.setdefault(column.name, KeyRestriction(column))
        if op in SLICES:
            single.slices.append((op, self._scope.getter(relation.right, column.type, column.name)))
        elif op == "IN":
            single.is_in = True
            single.equals.append(self._values(relation, column.type, column.name))
        else:
            single.equal = self._scope.getter(relation.right, column.type, column.name)
            single.equals.append(one(single.equal, column.name))
        if op == "=":
            self._equal.add(column.name)
            # Drivers compute a token from these; of IN and slices there is none.
            if isinstance(relation.right, ast.Marker) and column.kind == "partition_key":
                self._scope.key_markers[column.position] = relation.right.index

    def _check_mix(self, column: Column, *, is_slice: bool = False) -> None:
        """Refuse what may not stand beside the relations before. Order counts, as it does in Scylla."""
        if column.kind == "partition_key" and self._token:
            raise _with_token(column.name)
        if column.kind != "clustering":
            return
        if self._tuples:
            raise _mixed()
        last = self._last_clustering
        if last is None or column.position > last.position:
            self._last_clustering = column
        if last is None or self.slice_conflict is not None:
            return
        known = self._single.get(last.name)
        if column.position > last.position and known is not None and known.slices:
            self.slice_conflict = (
                f'Clustering column "{column.name}" cannot be restricted (preceding column "{last.name}" is restricted'
                " by a non-EQ relation)"
            )
        elif column.position < last.position and is_slice:
            self.slice_conflict = (
                f'PRIMARY KEY column "{last.name}" cannot be restricted (preceding column "{column.name}" is restricted'
                " by a non-EQ relation)"
            )

    def _values(self, relation: ast.Relation, cql_type: CqlType, name: str) -> Values:
        """Return the function that gives the values of ``= term``, ``IN (...)`` or ``IN ?``."""
        if relation.op != "IN":
            return one(self._scope.getter(relation.right, cql_type, name), name)
        if isinstance(relation.right, tuple):
            getters = [self._scope.getter(term, cql_type, f"value(IN({name}))") for term in relation.right]
            return lambda request: [not_unset(get(request), "column", name) for get in getters]
        whole = self._scope.in_list(relation.right, cql_type, f"IN({name})")

        def of_list(request: Request) -> list[bytes | None]:
            found = whole(request)
            return [None] if found is None else found

        return of_list

    def _add_token(self, relation: ast.Relation) -> None:
        names = relation.left[1]
        expected = [column.name for column in self.table.partition_key]
        for name in names:
            self._column(name)
        if len(names) != len(expected):
            raise InvalidRequest(
                f"Invalid number of arguments in call to function system.token: {len(expected)} required but"
                f" {len(names)} provided"
            )
        if len(set(names)) < len(names):
            raise InvalidRequest("The token() function contains duplicate partition key components")
        if list(names) != expected:
            raise InvalidRequest(
                f"The token function arguments must be in the partition key order: {', '.join(expected)}"
            )
        if relation.op not in ("=", *SLICES):
            raise InvalidRequest(f"{relation.op} cannot be used with the token function")
        restricted = [name for name in expected if name in self._single or name in self.filtered_names]
        if restricted:
            raise _with_token(", ".join(restricted))
        self._token.append((relation.op, self._scope.getter(relation.right, BIGINT, "partition key token")))

    def _add_tuple(self, relation: ast.Relation) -> None:
        columns = tuple(self._column(name) for name in relation.left[1])
        for at, column in enumerate(columns):
            if column.kind != "clustering":
                raise InvalidRequest(
                    "Multi-column relations can only be applied to clustering columns but was applied to:"
                    f" {column.name}"
                )
            if column.position != at:
                raise InvalidRequest(
                    "Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY"
                    " KEY order"
                    if at == 0
                    else "Clustering columns must appear in the PRIMARY KEY order in multi-column relations"
                )
        if relation.op not in ("=", "IN", *SLICES):
            raise InvalidRequest(f"{relation.op} cannot be used for Multi-column relations")
        in_order = relation.left[0] == "clustering_bound"
        if in_order and relation.op not in SLICES:
            raise InvalidRequest(f"Operator {relation.op} cannot be used with SCYLLA_CLUSTERING_BOUND; use < <= > >=")
        check_sizes(columns, relation)
        relation = _equal_of_one(relation)
        cql_type = TupleType(tuple(column.type for column in columns))
        values = self._values(relation, cql_type, f"({','.join(column.name for column in columns)})")
        found = TupleRelation(columns, cql_type, relation.op, values, in_order)
        if self._last_clustering is not None:
            raise _mixed()
        if self._tuples:
            check_together(self._tuples, found)
        self._tuples.append(found)
        if relation.op == "=":
            self._equal.update(column.name for column in columns)

    def _sort_out(self) -> None:
        """Split clustering restrictions into a usable prefix and what has to be filtered."""
        partition = self.table.partition_key
        named = [c for c in partition if c.name in self._single]
        filtered = set(self.filtered_names)
        self.full_key = len(named) == len(partition) and all(self._single[c.name].equals for c in partition)
        self.key_is_in = any(self._single[c.name].is_in for c in named)
        self.sliced_key = any(self._single[c.name].slices or c.name in filtered for c in named) or any(
            c.name in filtered for c in partition
        )
        self.partial_key = bool(named) and not self.full_key
        self.prefix: list[Column] = []
        self.broken_after: tuple[Column, Column] | None = None
        self.restricts_clustering = bool(self._tuples) or self._last_clustering is not None
        open_column: Column | None = None
        in_prefix = True
        for column in self.table.clustering_key:
            single = self._single.get(column.name)
            if single is None and column.name not in filtered:
                open_column = open_column or column
            elif open_column is not None:
                self.broken_after = self.broken_after or (open_column, column)
            elif single is None:
                # It gives no range, but the columns after it may be restricted: rows are looked at anyway.
                in_prefix = False
            elif in_prefix:
                self.prefix.append(column)
                if not single.equals:
                    # A slice ends the prefix: columns after it have no range of their own.
                    open_column = column

    # ------------------------------------------------------------ asking about the clause

    def require_prefix(self) -> None:
        """Raise InvalidRequest if a clustering column is restricted without the columns before it."""
        if self.slice_conflict is not None:
            raise InvalidRequest(self.slice_conflict)
        if self.broken_after is not None:
            before, after = self.broken_after
            raise InvalidRequest(
                f'PRIMARY KEY column "{after.name}" cannot be restricted as preceding column "{before.name}" is not'
                " restricted"
            )

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    @property
    def clustering_is_in(self) -> bool:
        return any(self._single[c.name].is_in for c in self.prefix) or any(t.op == "IN" for t in self._tuples)

    @property
    def full_clustering(self) -> bool:
        """Whether each clustering column has = or IN."""
        if any(t.op in ("=", "IN") and len(t.columns) == len(self.table.clustering_key) for t in self._tuples):
            return True
        return all(c.name in self._single and self._single[c.name].equals for c in self.table.clustering_key)

    @property
    def has_slice(self) -> bool:
        if any(t.op in SLICES for t in self._tuples):
            return True
        # A slice beside an equality only checks the value.
        return any(not self._single[c.name].equals for c in self.prefix)

    def sliced(self, column: Column) -> bool:
        return column.name in self._single and bool(self._single[column.name].slices)

    def names(self, column: Column) -> bool:
        """Whether the column has a restriction of its own."""
        return column.name in self._single

    def restricted_prefix(self) -> int:
        """How many leading clustering columns have a restriction."""
        return max((len(t.columns) for t in self._tuples), default=len(self.prefix))

    def has_single_equal(self, column: Column) -> bool:
        """Whether an = names the column alone."""
        return column.name in self._equal and column.name in self._single

    def has_equal(self, column: Column) -> bool:
        """Whether an = names the column, alone or in a tuple."""
        return column.name in self._equal

    def key_predicates(self) -> list[Callable[[Request], Check]]:
        """Return checks for key columns that neither a key list nor a clustering range covers."""
        out: list[Callable[[Request], Check]] = []
        if self.partial_key:
            out.extend(
                key_check(column, self._single[column.name])
                for column in self.table.partition_key
                if column.name in self._single
            )
        out.extend(
            key_check(column, self._single[column.name])
            for column in self.table.clustering_key
            if column.name in self._single and column not in self.prefix
        )
        return out

    # ------------------------------------------------------------ values for a request

    def point(self, columns: Sequence[Column]) -> Callable[[Request], Key] | None:
        """Return the function that gives the one key that = names for *columns*, None if they say anything else.

        The function raises InvalidRequest as ``keys`` and ``ranges`` do for a write.
        """
        parts: list[tuple[str, Getter]] = []
        for column in columns:
            single = self._single.get(column.name)
            if single is None or single.equal is None or len(single.equals) > 1 or single.slices:
                return None
            parts.append((column.name, single.equal))
        if len(parts) == 1:
            return self._single_point(*parts[0])

        def key(request: Request) -> Key:
            found = tuple([not_null(get(request), name) for name, get in parts])
            check_length(found)
            return found

        return key

    @staticmethod
    def _single_point(name: str, get: Getter) -> Callable[[Request], Key]:
        def key(request: Request) -> Key:
            value = get(request)
            if not isinstance(value, bytes) or len(value) > MAX_KEY:
                check_length((not_null(value, name),))
            return (value,)  # type: ignore[return-value]  # it is no null

        return key

    def keys(self, request: Request, *, null_error: bool) -> list[Key]:
        """Return the partition keys, each once, ordered by their values. A null selects nothing, or is an error."""
        lists: list[list[bytes]] = []
        for column in self.table.partition_key:
            values = self._single[column.name].values
            assert values is not None
            found = values(request)
            if null_error and None in found:
                raise InvalidRequest(f"Invalid null value in condition for column {column.name}")
            lists.append([value for value in found if value is not None])
        # Most statements name one partition: no product, nothing to sort.
        if not self.key_is_in:
            if not all(lists):
                return []
            key = tuple([values[0] for values in lists])
            check_length(key)
            return [key]
        check_product("partition", lists)
        ordered = [
            sorted(set(values), key=column.type.sort_key)
            for column, values in zip(self.table.partition_key, lists, strict=True)
        ]
        keys = list(itertools.product(*ordered))
        for key in keys:
            check_length(key)
        return keys

    def token_range(self, request: Request) -> tuple[int, int] | None:
        """Return the inclusive token range, or None when it is empty."""
        low, high = MIN_TOKEN, _MAX_TOKEN
        for op, getter in self._token:
            raw = not_unset(getter(request), "column", "partition key token")
            if raw is None:
                return None
            token = int.from_bytes(raw, "big", signed=True)
            if token == MIN_TOKEN and op[0] == "<":
                # Scylla takes the smallest token for the end of the ring here.
                token = _MAX_TOKEN
            if op in ("=", ">", ">="):
                low = max(low, token + (op == ">"))
            if op in ("=", "<", "<="):
                high = min(high, token - (op == "<"))
        return (low, high) if low <= high else None

    def ranges(self, request: Request, *, null_error: bool = False) -> list[Range]:
        """Return the clustering ranges, disjoint and in declared order; one unbounded range without restrictions.

        A null selects nothing; after an = it is an error if ``null_error``.
        """
        if self._tuples:
            found = self._tuple_ranges(request)
        else:
            found = self._single_ranges(request, null_error=null_error)
        # A read takes ranges in order and each row once.
        if len(found) > 1:
            # IN (1, 1) names one row. Positions hold lists, too, which have no hash.
            found.sort(key=lambda r: r.low)
            found = [next(same) for _, same in itertools.groupby(found, key=lambda r: r.low)]
        return found

    def row(self, key: Key) -> Range:
        """Return the range that is the one row with this full clustering key."""
        return self._make.row(key)

    def _single_ranges(self, request: Request, *, null_error: bool) -> list[Range]:
        prefixes: list[Key] = [()]
        for column in self.prefix:
            single = self._single[column.name]
            if single.values is None:
                return self._slices(request, prefixes, single)
            values = single.values(request)
            if single.is_in:
                check_product("clustering", [prefixes, values])
            elif null_error and None in values:
                raise InvalidRequest(f"Invalid null value in condition for column {column.name}")
            prefixes = [(*p, v) for p in prefixes for v in values if v is not None]
        return [self._make.row(p) for p in prefixes]

    def _slices(self, request: Request, prefixes: list[Key], single: KeyRestriction) -> list[Range]:
        """Return the range of each prefix that all slices of the column after it leave."""
        bounds = [(op, not_unset(getter(request), "column", single.column.name)) for op, getter in single.slices]
        out: list[Range] = []
        for prefix in prefixes:
            left: Range | None = self._make.row(prefix)
            for op, value in bounds:
                if value is None or left is None:
                    left = None
                    break
                bound, open_end = Bound((*prefix, value), op.endswith("=")), Bound(prefix)
                # Under DESC the greater values come first, so ">" ends the range.
                starts = (op[0] == ">") != single.column.descending
                part = self._make.between(bound, open_end) if starts else self._make.between(open_end, bound)
                left = self._make.intersection(left, part)
            if left is not None:
                out.append(left)
        return out

    def _tuple_ranges(self, request: Request) -> list[Range]:
        found = [self._make.between(Bound(), Bound())]
        for t in self._tuples:
            keys = [tuple_key(t, value) for value in t.values(request) if value is not None]
            if t.op in ("=", "IN"):
                parts = [self._make.row(key) for key in keys]
            elif t.in_order:
                bounds = [Bound(key, t.op.endswith("=")) for key in keys]
                parts = [
                    self._make.between(b, Bound()) if t.op[0] == ">" else self._make.between(Bound(), b) for b in bounds
                ]
            else:
                parts = [r for key in keys for r in self._make.tuple_slice(t.columns, t.op, key)]
            found = [cut for left in found for right in parts if (cut := self._make.intersection(left, right))]
        return found


def _equal_of_one(relation: ast.Relation) -> ast.Relation:
    """Return ``x = a`` for ``x IN (a)``, which Scylla takes for the same."""
    if relation.op == "IN" and isinstance(relation.right, tuple) and len(relation.right) == 1:
        return ast.Relation(relation.left, "=", relation.right[0])
    return relation


def _mixed() -> InvalidRequest:
    return InvalidRequest(
        "Mixing single column relations and multi column relations on clustering columns is not allowed"
    )


def _with_token(names: str) -> InvalidRequest:
    return InvalidRequest(f'Columns "{names}" cannot be restricted by both a normal relation and a token relation')
