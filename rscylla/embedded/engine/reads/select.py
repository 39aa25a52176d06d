"""SELECT: the pages of a read, aggregates, order and limits.

A log page takes the short way: finished rows are sliced, never looked at. Everything else goes row by row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import attrs

from ...cql import ast
from ...errors import SERIAL_LEVELS, InvalidRequest, consistency_name
from ...result import UNSET, ColumnSpec, RowsResult
from ...schema.tables import Column
from ...storage.mutation import Key
from ...storage.packed import PackedPartition, cut_row, join_row
from ...storage.partitions import TableStore
from ...storage.positions import position_maker
from ...types import INT, TEXT
from ...types.jsontext import json_row
from ..binding import Getter, Request, Scope
from ..rows import RowView, column_value
from ..values.expression import Collector, Evaluate
from ..where.filtering import Check
from ..where.restrictions import Restrictions
from .paging import PageMark, PlainPage
from .projection import Projection
from .reading import StoreReader

__all__ = ["SelectPlan"]

_PAGE_BYTES = 1 << 20  # a page ends after the row that fills it to this size, Scylla's query_page_size_in_bytes
_NO_LIMIT = 1 << 62
_STEP_ROWS = 2_000  # rows of an aggregate between two pauses
_WRITE_LEVELS = (0, 7)  # ANY, EACH_QUORUM


class SelectPlan:
    """A compiled SELECT. ``columns`` is the result's metadata."""

    def __init__(self, scope: Scope, statement: ast.Select, projection: Projection, restrictions: Restrictions) -> None:
        self.table = scope.table
        self.projection = projection
        self.restrictions = restrictions
        self.distinct = statement.distinct
        self.limit = _limit_getter(scope, statement.limit, "[limit]")
        self.partition_limit = _limit_getter(scope, statement.per_partition_limit, "[per_partition_limit]")
        self.reverse = False
        self.sort_columns: tuple[Column, ...] = ()
        self.group: tuple[Column, ...] = ()
        self.columns: tuple[ColumnSpec, ...] = projection.specs
        if statement.json:
            self.columns = (ColumnSpec(scope.table.keyspace, scope.table.name, "[json]", TEXT),)
        self._is_json = statement.json
        self.filters: list[Callable[[Request], Check]] = []
        # All columns in the order of the table: log rows can be sent as they are stored.
        self.is_whole_row = projection.plain == scope.table.columns
        self._counts = all(expression.counts for expression in projection.expressions)
        self._readers = [column_value(column) for column in projection.plain or ()]

    # ------------------------------------------------------------ for a request

    @property
    def is_aggregate(self) -> bool:
        """Whether it reads all rows for one page."""
        return self.projection.is_aggregate or bool(self.group)

    def execute(self, request: Request, store: TableStore) -> RowsResult:
        """Return a page of the result."""
        return self._shown(self._read(request, store))

    def steps(self, request: Request, store: TableStore) -> Generator[None, None, RowsResult]:
        """Return the page of an aggregate, with a pause after each step; the table may be written to meanwhile."""
        return self._shown((yield from self._grouped(request, store)))

    def _shown(self, result: RowsResult) -> RowsResult:
        if not self._is_json:
            return result
        names = [spec.name for spec in self.projection.specs]
        types = [spec.type for spec in self.projection.specs]
        # The pieces that were read hold the columns; the answer has one, the JSON.
        rows = attrs.evolve(result, columns=tuple(self.projection.specs)).rows
        return attrs.evolve(result, pieces=[join_row([json_row(names, types, cut_row(row))]) for row in rows])

    def _read(self, request: Request, store: TableStore) -> RowsResult:
        if self.is_aggregate:
            return _finished(self._grouped(request, store))
        params = request.params
        _check_level(params.consistency)
        page_size = params.page_size if params.page_size is not None and params.page_size > 0 else None
        limit = _limit(self.limit, request, "LIMIT")
        # The rows of several partitions are sorted in memory: there is no place at which a next page could go on.
        if self.sort_columns and page_size is not None and (limit > page_size or self.filters):
            raise InvalidRequest(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either"
                " remove the ORDER BY or the IN and sort client side, or disable paging for this query"
            )
        mark = None if params.paging_state is None else PageMark.unpack(params.paging_state, self.table.id)
        reader = self._reader(request, store, None if mark is None else (mark.key, mark.ck))
        if reader is None:
            return RowsResult(self.columns, ())
        if mark is not None and mark.left is not None:
            limit = mark.left
        if self.sort_columns:
            views = sorted(self._views(request, reader, None), key=self._sort_key())
            if self.reverse:
                views.reverse()
            evaluate = self._evaluators(request)
            return RowsResult(self.columns, [join_row([e(v) for e in evaluate]) for v in views[:limit]])
        if (
            self.projection.plain is not None
            and not self.filters
            and not self.distinct
            and self.partition_limit is None
        ):
            return self._plain_page(request, reader, page_size, limit)
        return self._page(request, reader, page_size, limit, mark)

    def _reader(self, request: Request, store: TableStore, resume: tuple[Key, Key | None] | None) -> StoreReader | None:
        """Return what to read, None when nothing can match. *resume*: see `StoreReader`."""
        restrictions = self.restrictions
        keys = restrictions.keys(request, null_error=False) if restrictions.full_key else None
        if keys is not None and self.table.is_cdc_log:
            # A key of any other length has the smallest token, which no row can have.
            keys = [key for key in keys if len(key[0]) == 16]
        tokens = None if restrictions.full_key else restrictions.token_range(request)
        ranges = restrictions.ranges(request)
        if request.params.consistency in SERIAL_LEVELS and (keys is None or len(keys) != 1):
            raise InvalidRequest("SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time")
        if (keys is None and tokens is None) or not ranges:
            return None
        return StoreReader(
            store,
            request.now_s,
            ranges,
            keys,
            tokens,
            self.reverse,
            statics=not restrictions.restricts_clustering,
            resume=resume,
            counts=self._counts and not self.filters and not self.group,
        )

    def _views(self, request: Request, reader: StoreReader, mark: PageMark | None) -> Iterator[RowView]:
        """Yield the rows that match, with PER PARTITION LIMIT applied."""
        most = _limit(self.partition_limit, request, "PER PARTITION LIMIT")
        checks = [make(request) for make in self.filters]
        for partition in reader.partitions():
            views = reader.views(partition)
            if checks:
                views = (view for view in views if all(check(view) for check in checks))
            if self.distinct:
                views = itertools.islice(views, 1)
            elif self.partition_limit is not None:
                before = mark.in_partition if mark is not None and mark.key == partition.key else 0
                views = itertools.islice(views, max(most - before, 0))
            yield from views

    def _evaluators(self, request: Request) -> list[Evaluate]:
        return [expression.for_request(request) for expression in self.projection.expressions]

    def _page(
        self, request: Request, reader: StoreReader, page_size: int | None, limit: int, mark: PageMark | None
    ) -> RowsResult:
        """Return a page of evaluated rows."""
        evaluate = self._evaluators(request)
        most = min(limit, page_size or _NO_LIMIT)
        views = self._views(request, reader, mark)
        rows: list[bytes] = []
        size, in_partition = 0, 0
        last: RowView | None = None
        for view in itertools.islice(views, most):
            row = join_row([e(view) for e in evaluate])
            rows.append(row)
            size += len(row)
            if last is None:
                # PER PARTITION LIMIT counts rows over all pages.
                in_partition = mark.in_partition if mark is not None and mark.key == view.key else 0
            elif last.key is not view.key and last.key != view.key:
                in_partition = 0
            in_partition += 1
            last = view
            if page_size is not None and size >= _PAGE_BYTES:
                break
        if last is None or page_size is None or len(rows) >= limit or next(views, None) is None:
            return RowsResult(self.columns, rows)
        # DISTINCT is done with a partition after its first row.
        ck = None if self.distinct else last.ck
        left = None if limit >= _NO_LIMIT else limit - len(rows)
        return RowsResult(self.columns, rows, PageMark(self.table.id, last.key, ck, left, in_partition).pack())

    def _plain_page(self, request: Request, reader: StoreReader, page_size: int | None, limit: int) -> RowsResult:
        """Return a page of bare columns: log rows by slices, others cell by cell."""
        page = PlainPage(min(limit, page_size or _NO_LIMIT), _NO_LIMIT if page_size is None else _PAGE_BYTES)
        more = False
        for partition in reader.partitions():
            if page.is_full:
                # "More pages" is said only if there is a row for one: the client would ask in vain.
                more = next(reader.views(partition), None) is not None
            elif isinstance(partition, PackedPartition):
                more = page.take_packed(reader, partition, None if self.is_whole_row else self._narrowed)
            else:
                more = page.take(reader, partition, self._readers)
            if more:
                break
        if not more or page_size is None or page.stop is None or page.count >= limit:
            return RowsResult(self.columns, page.pieces, count=page.count)
        key, ck = page.stop
        left = None if limit >= _NO_LIMIT else limit - page.count
        state = PageMark(self.table.id, key, ck, left, 0).pack()
        return RowsResult(self.columns, page.pieces, state, count=page.count)

    def _narrowed(self, wires: list[bytes]) -> list[bytes]:
        """Return log rows with only the selected columns."""
        places = {column.name: at for at, column in enumerate(self.table.columns)}
        wanted = [places[column.name] for column in self.projection.plain or ()]
        return [join_row([cells[at] for at in wanted]) for cells in map(cut_row, wires)]

    def _grouped(self, request: Request, store: TableStore) -> Generator[None, None, RowsResult]:
        """Return one row a group; without GROUP BY one row in all, also of nothing. Groups come in one page."""
        _check_level(request.params.consistency)
        limit = _limit(self.limit, request, "LIMIT")
        groups = _Groups(self, request, _limit(self.partition_limit, request, "PER PARTITION LIMIT"))
        checks = [make(request) for make in self.filters]
        resume: tuple[Key, Key | None] | None = None
        while True:
            reader = self._reader(request, store, resume)
            resume = None
            views = iter(()) if reader is None else self._all_views(reader)
            last: RowView | None = None
            for count, view in enumerate(views):
                # Rows that were counted all at once have no place of their own to go on from.
                if count >= _STEP_ROWS and last is not None and (last.ck or last.key is not view.key):
                    resume = last.key, None if self.distinct else last.ck or None
                    break
                if all(check(view) for check in checks):
                    groups.add(view)
                last = view
            if resume is None:
                return RowsResult(self.columns, groups.rows()[:limit])
            yield

    def _all_views(self, reader: StoreReader) -> Iterator[RowView]:
        for partition in reader.partitions():
            views = reader.views(partition)
            yield from itertools.islice(views, 1) if self.distinct else views

    def _sort_key(self) -> Callable[[RowView], Any]:
        """Order rows of several partitions by the columns of ORDER BY, as these are declared; static rows first."""
        position = position_maker(self.table)
        places = [column.position for column in self.sort_columns]

        def key(view: RowView) -> Any:
            if view.ck is None:
                return ()
            parts = position(view.ck)
            return tuple([parts[at] for at in places])

        return key


class _Groups:
    """The groups of an aggregate: rows come in order, so a group is over when a row of another one comes."""

    def __init__(self, plan: SelectPlan, request: Request, partition_limit: int) -> None:
        self._makers = [expression.collectors(request) for expression in plan.projection.expressions]
        self._columns = [column_value(column) for column in plan.group]
        # Other columns of the partition key than these have one value.
        self._depth = sum(column.kind == "partition_key" for column in plan.group)
        self._most = partition_limit
        self._rows: list[bytes] = []
        self._key: tuple[Any, ...] | None = None
        self._in_partition = 0
        self._collectors: list[Collector] = []

    def add(self, view: RowView) -> None:
        key = tuple([column(view) for column in self._columns])
        if key != self._key:
            self._end()
            is_same = self._key is not None and key[: self._depth] == self._key[: self._depth]
            self._in_partition = self._in_partition + 1 if is_same else 1
            self._key = key
            self._collectors = [make() for make in self._makers] if self._in_partition <= self._most else []
        for collector in self._collectors:
            collector.add(view)

    def _end(self) -> None:
        if self._collectors:
            self._rows.append(join_row([collector.result() for collector in self._collectors]))

    def rows(self) -> list[bytes]:
        """Return a row a group. To be called once."""
        if self._key is None and not self._columns:
            self._collectors = [make() for make in self._makers]
        self._end()
        return self._rows


def _finished(steps: Generator[None, None, RowsResult]) -> RowsResult:
    """Return the result of *steps* without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: RowsResult = end.value
            return result


def _check_level(consistency: int) -> None:
    if consistency in _WRITE_LEVELS:
        raise InvalidRequest(f"{consistency_name(consistency)} ConsistencyLevel is only supported for writes")


def _limit_getter(scope: Scope, term: Any, name: str) -> Getter | None:
    return None if term is None else scope.getter(term, INT, name)


def _limit(getter: Getter | None, request: Request, what: str) -> int:
    if getter is None:
        return _NO_LIMIT
    raw = getter(request)
    if raw is UNSET:
        return _NO_LIMIT
    if not isinstance(raw, bytes):
        raise InvalidRequest("Invalid null value of limit")
    limit = int.from_bytes(raw, "big", signed=True)
    if limit <= 0:
        raise InvalidRequest(f"{what} must be strictly positive")
    return limit
