"""The data source ``scylla-cdc``, which Spark calls in the driver and in its workers.

``schema``, offsets, and partitions run in processes beside the driver, and ``read`` runs in the executors. They share
no state, so the ``SpanRead`` and the partition's ``Span`` contain everything that ``read`` needs.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from ..._timeuuid import format_time
from ...cdc.log import Generation
from ...cdc.read import Span
from ...errors import ConfigError, RscyllaError
from .handed import HandedRead
from .offsets import VERSION, Offset
from .optionnames import known_as, of_table, renamed
from .options import SAFE_LAG_S, Options
from .planning import Plan, open_source, struct_of, view_of
from .reading import SpanRead, check_schema
from .shape import delta_of
from .versions import (
    PASSES_LIMITS,
    PositionKeeper,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

__all__ = ["NAME", "ScyllaCdcDataSource", "register"]

log = logging.getLogger("rscylla")

NAME = "scylla-cdc"

WINDOW_US = 10_000_000
"""The default ``windowSpan`` of a streaming query."""


def register(spark: Any) -> None:
    """Register ``format("scylla-cdc")`` with *spark*.

    Spark finds the source automatically where rscylla is installed. Use this function for sessions where that fails:
    for an editable install, if another ``pyspark_*`` module on the path cannot be imported, or if the environment is
    not activated. In the last case, with a local master, Spark's workers run this interpreter from now on.
    """
    _use_this_python(spark)
    spark.dataSource.register(ScyllaCdcDataSource)


def registered_again(spark: Any) -> str:
    """Register the source under another name, and return that.

    A query that runs beside others needs it: Spark keeps the environment of a source's Python processes in a map that
    its streams write to without a lock, and all queries of one name share it. If two of them start at the same time,
    the map may break, and no query of the application can run any more ("Illegal size of collection").
    """
    name = f"{NAME}-{next(_numbers)}"
    _use_this_python(spark)
    spark.dataSource.register(
        type("ScyllaCdcDataSource", (ScyllaCdcDataSource,), {"name": classmethod(lambda _: name)})
    )
    return name


_numbers = itertools.count(1)


def _use_this_python(spark: Any) -> None:
    """Have the workers of a local session run the Python of ``PYSPARK_PYTHON``, however late it was set, or this."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or not context.master.startswith("local"):
        return  # an executor may have this environment elsewhere
    if context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)


class ScyllaCdcDataSource(DataSource):  # type: ignore[misc]
    """The CDC log of a table as rows: ``spark.read.format("scylla-cdc")``, or ``readStream``; see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the table's log in the requested mode. Queries the cluster."""
        handed = HandedRead.given(self.options)
        if handed is not None:
            return handed.read.schema
        of_catalog = of_table(self.options)
        options = Options.of(self.options if of_catalog is None else of_catalog)
        if options.lag_us < SAFE_LAG_S * 1_000_000:
            warnings.warn(
                f"the lag of {options.lag_us / 1e6:g} s is unsafe: below {SAFE_LAG_S} s rows may arrive behind the "
                "reader and be missed",
                UserWarning,
                stacklevel=1,
            )
        struct = struct_of(open_source(options), options)
        return struct if of_catalog is None else _with_options(struct, renamed(of_catalog))

    def reader(self, schema: StructType) -> DataSourceReader:
        handed = HandedRead.given(self.options)
        if handed is not None:
            return SpansReader(attrs.evolve(handed.read, schema=schema), handed.spans)
        options = self._options(schema)
        if options.windows_per_trigger is not None or options.rows_per_trigger is not None:
            log.warning("maxWindowsPerTrigger and maxRowsPerTrigger are for readStream; spark.read reads all rows")
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._options(schema)
        if PASSES_LIMITS:
            return StreamReader(options, schema)
        if options.windows_per_trigger is not None or options.rows_per_trigger is not None:
            log.warning(
                "PySpark 4.1 runs availableNow as one batch: with maxWindowsPerTrigger or maxRowsPerTrigger, the query "
                "ends after a batch of that size; start it again for the rest, or use PySpark 4.2"
            )
        return KeepingStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer to a base table: rows are inserted, changes applied; see ``sinks/writing.py``."""
        from ..sinks.writing import writer_for  # not needed for reading, which is what most workers do

        return writer_for(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise ConfigError(
            "format('scylla-cdc') has no writeStream; use writeStream.foreachBatch(ScyllaTable(options).write) for "
            "changes, or foreachBatch with write.format('scylla-cdc') for rows"
        )

    def _options(self, schema: StructType) -> Options:
        own = renamed(self.options)
        stored = {name: value for name, value in _options_in(schema).items() if known_as(name) not in own}
        return Options.of({**stored, **self.options})


_OPTIONS = "scylla-cdc"
"""Key of the metadata of a catalog table's first column: the options that the table was created with.

Spark stores the options of ``CREATE TABLE ... USING``, but does not pass them to a Python source when the table is
read. It does pass the columns that the source returned.
"""


def _with_options(struct: StructType, options: dict[str, str]) -> StructType:
    if "password" in options:  # metadata is part of each DataFrame, and of files that are written from it
        raise ConfigError("CREATE TABLE does not accept the option password; use passwordEnv or credentialsFile")
    first, *others = struct.fields
    metadata = {**first.metadata, _OPTIONS: options}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def _options_in(struct: StructType) -> dict[str, str]:
    found = (field.metadata[_OPTIONS] for field in struct.fields if _OPTIONS in field.metadata)
    return dict(next(found, {}))


# ---------------------------------------------------------------- batch


class SpansReader(DataSourceReader):  # type: ignore[misc]
    """Reads the spans of a batch, which may be planned already."""

    def __init__(self, span_read: SpanRead, spans: Sequence[Span] = ()) -> None:
        self._span_read = span_read
        self._spans = spans

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spans": ()}  # an executor gets the span that it reads

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(span) for span in self._spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark replaces an empty list by one partition
            yield from self._span_read.batches(partition.value)


class BatchReader(SpansReader):
    """A batch: everything between two points. Its end is fixed when it is planned, so each action reads the same.

    It accepts no filters: Spark keeps one plan for each DataFrame, so the filters of one query would also apply to
    later queries of the same DataFrame, and to the other side of a union.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(SpanRead.of(options, schema))
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        plan = Plan(options, delta_of(self._span_read.schema))
        check_schema(*view_of(plan.source, options), self._span_read.schema)
        end_us = plan.batch_end_us()
        plan.check_start(end_us)
        at, promised = plan.start(options.start)
        after = at.position if at.is_row else b""
        self._spans = plan.spans(at.exact_us, end_us, after=after, promised=promised, most_us=options.window_us)
        return super().partitions()


# ---------------------------------------------------------------- stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming query. Offsets are points in time; the changes between two offsets never differ."""

    _is_told_of_trigger = True

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._span_read = SpanRead.of(options, schema)
        self._until_us = options.end.time_us
        self._window_us = options.window_us or WINDOW_US
        self._available_us: int | None = None
        self._plan: Plan | None = None
        self._end_us: int | None = None
        self._next: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._planned: tuple[tuple[dict[str, Any], dict[str, Any]], list[Span]] | None = None
        self._split: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None, "_planned": None}  # the process that reads has nothing to plan

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a query without a checkpoint. Other calls may return other positions: see ``Offset``."""
        plan = self._opened()
        at, promised = plan.start(self._options.start)
        after = at.position if at.is_row else b""
        chosen = (self._options.start.name or "given") if promised else "earliest"
        ttl_s, assumed_s = plan.ttls_at(at.exact_us)
        initial = Offset(
            plan.log_id,
            at.exact_us,
            at.generation,
            after,
            chosen=chosen,
            ttl_s=ttl_s,
            assumed_ttl_s=assumed_s,
            seen=plan.seen_at(at.exact_us),
        )
        return initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        windows, rows = self._options.windows_per_trigger, self._options.rows_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        # Spark's limits count files or rows; here, windows take the place of files.
        return ReadAllAvailable() if windows is None else ReadMaxFiles(windows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_us = self._head_us()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch: *start* itself, the same object, if there is nothing new.

        Except at an end, batches end on a grid of windows, so that a query without a trigger does not spin. Behind an
        initial offset the answer is always another one, as it keeps where the first batch starts.

        Raises:
            ConfigError: the option ``endingPosition`` is given to a query that goes on behind it; or *start* is of
                another log, which is said before Spark stores an end in the checkpoint.
            CDCDisabled, CursorExpired: changes after *start* may not have been logged; see ``Plan.before_blank``.
        """
        if self._until_us is not None and self._available_us is None and self._is_told_of_trigger:
            raise ConfigError(
                f"option {self._options.end.option}: a query with an end needs trigger(availableNow=True); set it, use "
                "spark.read, or omit the option"
            )
        plan, at = self._opened(), Offset.of(start)
        at.check_of(plan.log_id, plan.source.table.full_name)
        end_us = self._limited_us(at, limit)
        plan.learn(at)
        if at.promised and end_us > at.time_us:
            end_us = plan.before_blank(at.time_us, end_us)
        self._end_us = max(end_us, at.time_us)
        if end_us <= at.time_us and not at.chosen:
            return start
        self._next = start, self._end_of(plan, at, end_us).as_json()
        return self._next[1]

    def _limited_us(self, at: Offset, limit: ReadLimit) -> int:
        """Return the end of the batch after *at* by the head, the grid of windows, the ends and the limits."""
        head_us = self._head_us()
        ends = [us for us in (self._available_us, self._until_us) if us is not None]
        end_us = head_us - head_us % self._window_us
        # An end need not lie on the grid: what lies before it is complete, and no later batch would read the rest.
        if ends and head_us >= min(ends):
            end_us = min(ends)
        windows = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        if isinstance(limit, ReadMaxRows):  # Spark has no limit of both, so the other one is in the options only
            windows = self._options.windows_per_trigger
        if windows is not None:
            # Windows are counted from the one in which the query stands.
            first_us = at.time_us - at.time_us % self._window_us
            end_us = min(end_us, first_us + windows * self._window_us)
        if isinstance(limit, ReadMaxRows) and end_us > at.time_us:
            end_us = self._opened().end_within(at.time_us, end_us, limit.max_rows)
        return end_us

    def _end_of(self, plan: Plan, at: Offset, end_us: int) -> Offset:
        """Return the end of the batch from *at* to *end_us*, which only the first batch may have no changes before."""
        if end_us > at.time_us:
            generation, after = plan.generation_before(end_us), b""
        else:
            end_us, generation, after = at.time_us, at.generation, at.after
        source = plan.source
        # After "earliest", rows that expire before they are read were never promised. Each end records that as long as
        # such rows follow it.
        since_us = at.since_us if at.promised else source.latest_us() + source.edge_us
        if next(source.assumed_lifetimes().gaps_after(end_us, since_us), None) is None:
            since_us = 0
        ttl_s, assumed_s = plan.ttls_at(end_us)
        return Offset(
            plan.log_id,
            end_us,
            generation,
            after,
            begin=at if at.chosen else None,
            ttl_s=ttl_s,
            since_us=since_us,
            assumed_ttl_s=assumed_s,
            seen=plan.seen_at(end_us),
        )

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the head, whatever the limits, and ``progress``: how far the query is when the current batch is done.

        Spark shows it and does not store it. It calls this after each ``latestOffset``.
        """
        plan, head_us = self._opened(), self._head_us()
        head = {"v": VERSION, "log": plan.log_id, "t": head_us}
        if self._end_us is None:
            return head
        if self._next is not None:
            self._split_next(*self._next)
        seen = progress_of(self._end_us, head_us, lag_us=self._options.lag_us, window_us=self._window_us)
        return {**head, "progress": {**seen, **self._split}}

    def _split_next(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Plan the batch for which Spark asks next, and keep the result until then."""
        self._next = None
        with suppress(RscyllaError):  # ``partitions`` raises it
            spans = self._spans(start, end)
            self._planned = (start, end), spans
            if spans:
                last = spans[-1]
                generation = Generation(last.window.generation)
                self._split = {"generation": str(generation), "splits": len(spans)}
                if last.streams:  # the plan has read the streams, so the source knows them
                    self._split["streams"] = len(self._opened().source.streams(generation))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        known, self._planned = self._planned, None
        spans = known[1] if known is not None and known[0] == (start, end) else self._spans(start, end)
        return [InputPartition(span) for span in spans]

    def _spans(self, start: dict[str, Any], end: dict[str, Any]) -> list[Span]:
        plan = self._opened()
        first, last = Offset.of(start), Offset.of(end)
        if first.chosen and last.begin is not None:
            first = last.begin
        name = plan.source.table.full_name
        for offset in (first, last):
            offset.check_of(plan.log_id, name)
        if last.time_us < first.time_us:
            raise ConfigError(
                f"the checkpoint's offsets of {name} go backwards, from {first.time_us} to {last.time_us}; the "
                "checkpoint was changed manually or by two queries at once: start with a new one"
            )
        plan.learn(first)
        return plan.spans(
            first.time_us, last.time_us, after=first.after, promised=first.promised, since_us=first.since_us
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._span_read.batches(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint stores all state."""

    def stop(self) -> None:
        """Do nothing: the session belongs to the process, and ends with it."""

    def _opened(self) -> Plan:
        if self._plan is None:
            plan = Plan(self._options, delta_of(self._span_read.schema))
            check_schema(*view_of(plan.source, self._options), self._span_read.schema)
            self._plan = plan
        return self._plan

    def _head_us(self) -> int:
        return self._opened().watermark_us()


def progress_of(end_us: int, head_us: int, *, lag_us: int, window_us: int) -> dict[str, Any]:
    """Return what ``latestOffset`` shows of a query whose current batch ends at *end_us*.

    ``watermark``: everything before it was read when the batch is done. ``head``: everything before it can be read.
    ``lag_s``: the time on the slowest node minus the watermark. ``behind_s``: the head minus the watermark.
    ``windows_behind``: the windows in between that are complete.

    >>> progress_of(10_000_000, 25_000_000, lag_us=30_000_000, window_us=10_000_000)["windows_behind"]
    1
    """
    behind_us = max(0, head_us - end_us)
    return {
        "watermark": format_time(end_us),
        "head": format_time(head_us),
        "lag_s": (head_us + lag_us - end_us) / 1e6,
        "behind_s": behind_us / 1e6,
        "windows_behind": (end_us + behind_us) // window_us - end_us // window_us,
    }


class KeepingStreamReader(PositionKeeper, StreamReader):
    """A streaming query on PySpark 4.1.

    With ``availableNow``, Spark asks for one offset, and makes one batch up to it. A source is not told of triggers, so
    the first batch after each start goes to the head, as if that was the trigger; later batches end on the grid.
    """

    _is_told_of_trigger = False
    _asked = False

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        self._available_us = None if self._asked else self._head_us()
        self._asked = True
        return super().latestOffset(start, limit)
