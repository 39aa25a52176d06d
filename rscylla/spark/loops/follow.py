"""``follow``: a streaming query that keeps a table up to date.

Each micro-batch is a window of changes for ``Sink.apply``. Its start and end come from the query's checkpoint, so a
batch that Spark repeats after a crash is the same window again, which the table already has. The table and the
checkpoint are two places that keep a position; the table's is the one that counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.errors import IllegalArgumentException
from pyspark.sql.functions import unix_micros

from ..._timeuuid import format_time
from ...cdc import PlannedWindow
from ...cdc.log import logged_tables
from ...errors import ConfigError
from ...event import EventID, LogMark, cursor_key
from ..pipeline.tables import check_same_log
from ..session.failures import spark_errors
from ..session.session import session_for
from ..sinks.sink import Sink, check_sink
from ..source.checkpoint import Batch, Checkpoint
from ..source.optionnames import renamed
from ..source.options import Options
from ..source.source import registered_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["check_arguments", "check_text", "checkpoint_cursor", "follow"]

_TRIGGERS = ("availableNow", "once", "processingTime")
"""What ``foreachBatch`` and sources in Python can have."""


def follow(
    spark: SparkSession,
    options: Mapping[str, str],
    sink: Sink,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Start a streaming query that applies the changes of a table to *sink*, and return the query.

    ::

        orders = MergeTable(spark, "shop.orders", using="delta")
        query = follow(spark, options, orders, checkpoint="/data/orders-checkpoint", trigger={"availableNow": True})
        query.awaitTermination()

    Where it starts: with a checkpoint, where that is; with a new one, at the cursor of the sink's table (its attribute
    ``cursor``, if it has one that is not ""); otherwise at the option ``startingPosition``. So a query can take over
    from ``windows``, ``start_from``, or a checkpoint that was deleted. A window that the table already has changes
    nothing.

    Args:
        options: of the data source, with mode ``changes``; ``maxWindowsPerTrigger`` limits a micro-batch.
        sink: a ``Sink``, of one running query at a time. ``apply`` is called in the driver, by one thread at a time.
        checkpoint: the directory in which Spark keeps the position of the query.
        trigger: ``{"availableNow": True}``, ``{"once": True}``, or one such as ``{"processingTime": "30 seconds"}``;
            without it, the query makes a batch for each ``windowSpan`` of time.
        name: name of the query in Spark's user interface and metrics; one at a time in a session.

    Raises:
        ConfigError: an argument or an option is wrong; or the table ends before the checkpoint, because it was
            restored, or created again; or the table is of another log than the changes, or the checkpoint is; or the
            session is a Spark Connect session.
        RscyllaError: Spark cannot start the query; see ``spark_errors``. Errors of the running query are raised by its
            ``awaitTermination``, such as ``SchemaChanged``: the table got or lost a column, which the query has after
            it was started again. With the option ``failOnSchemaChange=false``, the query goes on without new columns
            until it is started again, and the table never has what was written to them before.
    """
    check_arguments(sink, checkpoint, trigger, name)
    given = renamed(options)
    asked = Options.of(given)
    if asked.mode != "changes":
        raise ConfigError(f"follow needs mode changes, not {asked.mode}; omit the option mode")
    if asked.end.time_us is not None and not (trigger or {}).get("availableNow"):
        raise ConfigError(
            f"option {asked.end.option}: a query with an end needs trigger={{'availableNow': True}}; set it, or omit "
            "the option"
        )
    if not asked.columns:
        given.setdefault("failonschemachange", "true")
    with spark_errors():
        position = Checkpoint(spark, checkpoint)
        if name is not None and any(query.name == name for query in spark.streams.active):
            raise ConfigError(f"name={name!r} is that of a query that runs in this session; stop it, or use another")
        last, cursor = position.last(), _cursor_of(sink)
        if last is not None:
            _check_agree(last, cursor, asked, checkpoint)
        elif cursor:
            _check_log(cursor, asked)
            given["startingposition"] = cursor
        batches = _Batches(position, sink)
        source = registered_again(spark)
        writer = spark.readStream.format(source).options(**given).load().writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger is not None:
            try:
                writer = writer.trigger(**trigger)
            except IllegalArgumentException as e:
                raise ConfigError(
                    f"trigger: {trigger.get('processingTime')!r} is no interval for Spark; write a number and a unit, "
                    "such as '30 seconds', but no months or years"
                ) from e
        return writer.start()


def checkpoint_cursor(spark: SparkSession, checkpoint: str) -> str:
    """Return the cursor up to which the query with this *checkpoint* is done; "" if it has not done a batch.

    ``windows``, a service, or a query with a new checkpoint can continue from it.

    Raises:
        ConfigError: the checkpoint is not of a query of this source alone.
    """
    with spark_errors():
        last = Checkpoint(spark, checkpoint).last()
        if last is None or (last.is_first and not last.is_done):
            return ""
        return str((last.end if last.is_done else last.start).cursor())


def check_arguments(sink: object, checkpoint: object, trigger: object, name: object) -> None:
    """Raise ``ConfigError`` unless ``follow`` takes these arguments; the intervals of a trigger are read by Spark."""
    check_sink(sink)
    check_text("checkpoint=", checkpoint)
    if name is not None:
        check_text("name=", name)
    if trigger is None:
        return
    given = dict(trigger) if isinstance(trigger, Mapping) and trigger.keys() <= set(_TRIGGERS) else {}
    match [pair for pair in given.items() if pair[1] is not None]:
        case [("availableNow" | "once", True)]:
            return
        case [("processingTime", str(interval))] if interval.strip():
            return
    raise ConfigError(
        f"trigger must be a mapping with one of {', '.join(_TRIGGERS)}, such as {{'availableNow': True}} or "
        f"{{'processingTime': '30 seconds'}}, not {trigger!r}"
    )


def check_text(name: str, value: object) -> None:
    """Raise ``ConfigError`` unless *value*, the argument *name*, is a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} requires a text that is not empty, not {value!r}")


class _Batches:
    """Applies micro-batches to a sink. Spark calls it in the driver."""

    def __init__(self, checkpoint: Checkpoint, sink: Sink) -> None:
        self._checkpoint = checkpoint
        self._sink = sink

    def __call__(self, changes: DataFrame, number: int) -> None:
        window = self._checkpoint.batch(number).window()
        self._sink.apply(*_without_known(changes, window, _cursor_of(self._sink)))


def _without_known(changes: DataFrame, window: PlannedWindow, cursor: str | None) -> tuple[DataFrame, PlannedWindow]:
    """Return the part of a window after *cursor*, if that is a point in it; otherwise the whole window."""
    at = EventID.parse(cursor) if cursor else None
    if at is None or cursor is None or at.is_row or not window.start_us < at.exact_us < window.end_us:
        return changes, window
    left = attrs.evolve(window, start_us=at.exact_us, start=cursor)
    return changes.where(unix_micros("cdc_timestamp") >= at.exact_us), left


def _cursor_of(sink: Sink) -> str | None:
    """Return the cursor of the sink's table, "" if it has none yet; None if the sink keeps no cursor."""
    cursor = getattr(sink, "cursor", None)
    return None if cursor is None else str(cursor)


def _check_log(cursor: str, asked: Options) -> None:
    """Raise ``ConfigError`` if *cursor*, of the sink's table, is of another log than the changes. Blocks on queries.

    The source would say so when the query runs. It does not look at other tables, and takes a newer log for one of this
    table that its node does not know yet, so the query would start again and again.
    """
    at = EventID.parse(cursor)
    if at.mark is None:
        return
    logs = logged_tables(session_for(asked.connection))
    own, theirs = logs.get((asked.keyspace, asked.table)), uuid.UUID(bytes=at.mark.log)
    if own is None or (theirs not in logs.values() and theirs.version == own.version == 1 and theirs.time > own.time):
        return  # the source says what is wrong, or tries again
    check_same_log(cursor, str(attrs.evolve(at, mark=LogMark(own.bytes))), "of this query")


def _check_agree(last: Batch, cursor: str | None, asked: Options, checkpoint: str) -> None:
    """Raise ``ConfigError`` if the next batch would leave out changes that the table lacks.

    A table that is ahead of the checkpoint is fine: it has the next batches already.
    """
    if cursor is None:
        return
    begins = (last.end if last.is_done else last.start).cursor()
    at = f"the checkpoint {checkpoint} continues at {format_time(begins.exact_us)}"
    if not cursor:
        # Also if the first batch would begin at the cursor of a table that is gone.
        if last.is_done or not last.is_first or (last.start.chosen == "given" and asked.start.name):
            raise ConfigError(
                f"{at}, but the table is not there, or empty; start with a new checkpoint, which begins at the option "
                "startingPosition, or at the cursor of start_from"
            )
        return
    check_same_log(cursor, str(begins), "of this query")
    if cursor_key(cursor) < begins.key and EventID.parse(cursor).exact_us < begins.exact_us:
        raise ConfigError(
            f"{at}, but the table ends at {format_time(EventID.parse(cursor).exact_us)}, as after it was restored; "
            "start with a new checkpoint, which begins at the table's cursor"
        )
