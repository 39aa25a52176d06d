"""Plans reads of a table's log: decides where they start and end, and splits them into spans for the executors."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from ..._timeuuid import datetime_of, format_time
from ...cdc.arrow import ChangeView, EventView, LogView, statement_of, view_for
from ...cdc.log import (
    Blank,
    OnExpired,
    Promise,
    Source,
    begin,
    dropped_columns,
    generation_at,
    naming_dropped_log,
    windows_between,
)
from ...cdc.read import RowCounter, Span
from ...cdc.rows import Layout
from ...clock import Stop, SystemClock
from ...errors import CDCDisabled, ConfigError, CursorExpired, NoStreams, SchemaChanged
from ...event import EventID
from ..session.session import session_for
from .dividing import Division
from .offsets import Offset
from .optionnames import nearest
from .options import Options, Position
from .shape import metadata_of

__all__ = ["Plan", "open_source", "struct_of", "view_of"]

log = logging.getLogger("rscylla")

CLOCKS_DIFFER_US = 2_000_000
"""An end that is complete by one sample of the nodes' clocks may be complete only so much later by another: by as long
as a node may take to tell its time. A batch waits for it.
"""


def open_source(options: Options) -> Source:
    """Return the current state of the table's log. Blocks on a few small queries."""
    return Source(session_for(options.connection), options.keyspace, options.table, SystemClock(), Stop())


def view_of(source: Source, options: Options) -> tuple[Layout, LogView | ChangeView | EventView]:
    """Return the layout of the log's columns, and their view for the mode of *options*. Blocks on one statement.

    Raises:
        ConfigError: two columns would have the same name.
        TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
    """
    table = source.table
    with naming_dropped_log(source.reread_table):
        statement = statement_of(source.session, table, options.page_size)
    layout = Layout.of(statement.columns, table)
    return layout, view_for(options.mode, layout, keep_dollar=options.keep_dollar, digits=options.digits)


def struct_of(source: Source, options: Options) -> StructType:
    """Return the columns of the DataFrame, with what they are in the table as metadata. Blocks on small queries.

    Raises: as for ``view_of``; and
        ConfigError: the option ``columns`` names one that the log does not have in this mode, or one twice.
    """
    _, view = view_of(source, options)
    names = options.columns or tuple(view.schema.names)
    for name in names:
        if name not in view.schema.names:
            raise ConfigError(
                f"option columns: mode {options.mode} has no column {name!r}; {_instead(name, view.schema)}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"option columns: {name!r} is named twice; name each column once")
    struct = from_arrow_schema(pa.schema([view.schema.field(n) for n in names]), prefer_timestamp_ntz=False)
    dropped = dropped_columns(source.session, source.table.keyspace, source.table.name)
    return _with_metadata(
        struct, {c.name: metadata_of(c, dropped.get(c.name), source.table) for c in source.table.columns}
    )


def _instead(name: str, columns: pa.Schema) -> str:
    """Return a hint at what to use for the column *name*, which *columns* lack."""
    if "cdc_values" in columns.names and name in {field.name for field in columns.field("cdc_values").type}:
        return f"its values are in 'cdc_values': name that, and select cdc_values.{name}"
    return nearest(name, columns.names, "columns")


_WITH_COLUMNS = ("cdc_values", "cdc_before", "cdc_after")


def _with_metadata(struct: StructType, metadata: dict[str, dict[str, Any]]) -> StructType:
    """Return *struct* with the CQL metadata of the fields for columns of the base table."""
    fields = []
    for field in struct.fields:
        type_ = field.dataType
        if field.name in _WITH_COLUMNS and isinstance(type_, StructType):
            type_ = _with_metadata(type_, metadata)
        fields.append(StructField(field.name, type_, field.nullable, metadata.get(field.name)))
    return StructType(fields)


class Plan:
    """Plans the read of one table by its options. Used by one thread at a time; may block on small queries.

    Args:
        delta: the option of the log when the DataFrame was made, "" if that is not known.
    """

    def __init__(self, options: Options, delta: str = "") -> None:
        self.options = options
        self.delta = delta
        self.source = open_source(options)
        self._policy: OnExpired = "raise" if options.fail_on_data_loss else "oldest"
        self.source.check_lag(options.lag_us, self._policy)
        self._counter: RowCounter | None = None
        self.division = Division(self.source, options)

    @property
    def log_id(self) -> str:
        return self.source.table.log_id.hex

    def watermark_us(self) -> int:
        """Return the time before which the log is complete. Queries the cluster at most every 15 seconds.

        Raises:
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        self.source.refresh_metadata()
        return self.source.watermark_us(self.options.lag_us)

    def start(self, position: Position) -> tuple[EventID, bool]:
        """Return where a read from *position* starts, and whether the loss of rows after it is an error.

        Raises:
            InvalidCursor, CursorExpired, TableChanged: the cursor cannot be continued.
            TableNotFound, CDCDisabled: the log no longer exists.
        """
        if position.name == "latest":
            return self.source.at(self.watermark_us()), True
        if position.time_us is not None:
            at = self.source.begin_at(position.time_us)
            self._check_kept(position.time_us, at.exact_us, self._promise(0))
            return at, True
        with naming_dropped_log(self.source.reread_table):
            return begin(self.source, position.cursor or None, self._policy)

    def generation_before(self, end_us: int) -> int:
        """Return the generation of the rows right before *end_us*, in milliseconds since the epoch."""
        generations = self.source.generations_until(end_us, self.options.lag_us)
        return generations[max(generation_at(generations, end_us - 1), 0)].time

    def batch_end_us(self) -> int:
        """Return where a batch ends.

        Raises:
            ConfigError: the requested time is not complete yet.
        """
        complete_us = self.watermark_us()
        end_us = self.options.end.time_us
        if end_us is None:
            return complete_us
        most_us = CLOCKS_DIFFER_US
        while 0 < (left_us := end_us - complete_us) <= most_us:
            SystemClock().wait(Stop(), left_us / 1e6)
            most_us -= left_us
            complete_us = self.watermark_us()
        if end_us > complete_us:
            raise ConfigError(
                f"option {self.options.end.option} is {(end_us - complete_us) / 1e6:.3f} s after the complete part of "
                "the log, by the option lag and the nodes' clocks; ask for latest, or later"
            )
        return end_us

    def check_start(self, end_us: int) -> None:
        """Check where a batch starts that ends at *end_us*; log a warning if it cannot have rows yet.

        Raises:
            ConfigError: it starts at a time in the future.
        """
        start = self.options.start
        at_us = EventID.parse(start.cursor).exact_us if start.cursor else start.time_us
        if at_us is None or at_us <= end_us:
            return
        # A cursor or a time of just now is what a job gives that goes on where another one ended.
        if start.time_us is not None and start.time_us > self.source.latest_us():
            raise ConfigError(
                f"option {start.option} ({format_time(at_us)}) is in the future, by the nodes' clocks, so a batch is "
                "empty; start earlier, or use readStream, which waits"
            )
        log.warning(
            "option %s is %.3f s after the complete part of the log, by the option lag and the nodes' clocks, so the "
            "batch is empty",
            start.option,
            (at_us - end_us) / 1e6,
        )

    def end_within(self, start_us: int, end_us: int, rows: int) -> int:
        """Return *end_us*, or an earlier time if the log has more than *rows* rows until then; see ``RowCounter``.

        Raises:
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        with naming_dropped_log(self.source.reread_table):
            if self._counter is None:
                self._counter = RowCounter(self.source, page_size=self.options.page_size, stop=Stop())
            self.source.generations_until(end_us, self.options.lag_us)
            return self._counter.reach_us(start_us, end_us, rows)

    def spans(
        self,
        start_us: int,
        end_us: int,
        *,
        after: bytes = b"",
        promised: bool = True,
        since_us: int = 0,
        most_us: int | None = None,
    ) -> list[Span]:
        """Return spans that contain all rows from *start_us* to *end_us*, each exactly once.

        Args:
            after: if not empty, the position of the row after which to start.
            promised: whether the loss of rows is an error, except for those that had expired by *since_us*.
            most_us: the longest span; None for any.

        Raises:
            CursorExpired: rows that were promised may be gone or not logged, and ``failOnDataLoss`` is true.
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        plan = partial(self._spans, start_us, end_us, after, promised=promised, since_us=since_us, most_us=most_us)
        try:
            return plan()
        except NoStreams:
            if not self.source.has_forgotten():
                raise
            return plan()

    def _spans(
        self, start_us: int, end_us: int, after: bytes, *, promised: bool, since_us: int, most_us: int | None
    ) -> list[Span]:
        source, options = self.source, self.options
        self.confirm(end_us)
        generations = source.generations_until(end_us, options.lag_us)
        promise = self._promise(since_us) if promised else None
        remaining_us = source.remaining_us(start_us)  # before the check: more rows expire between the two
        if promise is not None:
            self._check_kept(start_us, end_us, promise)
        windows = windows_between(generations, remaining_us, end_us)
        return self.division.spans(windows, after=after, promise=promise, most_us=most_us)

    def learn(self, at: Offset) -> None:
        """Use what *at*, where a batch starts, has of the table that the schema does not show any more."""
        source = self.source
        source.learn_blanks(at.cursor())
        if at.ttl_s is not None:
            source.lifetimes = source.lifetimes.knowing(at.ttl_s)
        else:
            source.assumed_ttl_s = at.assumed_ttl_s

    def seen_at(self, time_us: int) -> str:
        """Return what was seen of the table by *time_us*; see ``LogMark``."""
        return self.source.blanks.seen_at(time_us, self.source.table)

    def confirm(self, until_us: int) -> None:
        """Check that changes until *until_us* were logged as the DataFrame has them. Blocks on a query at most.

        Raises:
            SchemaChanged: the log had only the keys of changes then, or has them now, but not both.
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        self.source.confirm(until_us)
        now = self.source.table.delta
        if self.delta not in ("", now):
            raise SchemaChanged(
                f"the log of {self.source.table.full_name} has delta {now!r} now, and had {self.delta!r} when the "
                "DataFrame was made; start the query again, or load the DataFrame again"
            )

    def before_blank(self, start_us: int, end_us: int) -> int:
        """Return *end_us*, or the time before it from which changes after *start_us* may not have been logged.

        Blocks on a query if the table was not looked at since *end_us*.

        Raises:
            CDCDisabled, CursorExpired: it is *start_us*, and ``failOnDataLoss`` is true.
            TableChanged, TableNotFound: the log no longer exists.
        """
        self.confirm(end_us)
        blank = self.source.blanks.first(start_us, end_us)
        if blank is None or not self.options.fail_on_data_loss:
            return end_us
        if blank.start_us <= start_us:
            self._report_blank(blank)
        return blank.start_us

    def _report_blank(self, blank: Blank) -> None:
        text = blank.message(self.source.table)
        if not self.options.fail_on_data_loss:
            log.error("%s; continuing with the rows that there are because failOnDataLoss is false", text)
            return
        text = (
            f"{text}; start later (a query: with a new checkpoint, after a repair of the data that it wrote), or set "
            "the option failOnDataLoss to false to read the rows that there are"
        )
        if blank.is_open:
            raise CDCDisabled(text)
        raise CursorExpired(text, gap_from=datetime_of(blank.start_us), gap_to=datetime_of(blank.end_us))

    def ttls_at(self, time_us: int) -> tuple[int | None, int | None]:
        """Return the TTL of rows written at *time_us*, None if it is not known, and what is then assumed of it."""
        ttl_s = self.source.lifetimes.ttl_at(time_us)
        return ttl_s, self.source.assumed_ttl_s if ttl_s is None else None

    def _promise(self, since_us: int) -> Promise:
        """Return the promise of all rows, except for those that had expired by *since_us*."""
        return Promise(self.source.assumed_lifetimes(), self.source.born_us(), since_us)

    def _check_kept(self, start_us: int, end_us: int, promise: Promise) -> None:
        """Report it if promised rows between the two times may have expired, or may not have been logged.

        Raises:
            CursorExpired, CDCDisabled: they may, and ``failOnDataLoss`` is true.
        """
        blank = self.source.blanks.first(start_us, end_us)
        if blank is not None:
            self._report_blank(blank)
        lost = self.source.missed(start_us, end_us, promise)
        if lost is None:
            return
        text = promise.message(self.source.table, lost)
        if self.options.fail_on_data_loss:
            raise CursorExpired(
                f"{text}; start later (a query: with a new checkpoint, after a repair of the data that it wrote), or "
                "set the option failOnDataLoss to false to read the remaining rows",
                gap_from=datetime_of(lost.start_us),
                gap_to=datetime_of(lost.end_us),
            )
        log.error("%s; continuing with the remaining rows because failOnDataLoss is false", text)
