"""Runs in the executors: reads one span and yields Arrow batches of the schema that Spark has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import attrs

from ..._timeuuid import datetime_of
from ...cdc.arrow import ChangeView, EventView, LogView, Mode, span_batches
from ...cdc.arrow import check_schema as check_arrow_schema
from ...cdc.log import Generation, LoggedTable, NodeClocks, check_log, naming_dropped_log, reread_table, streams_of
from ...cdc.read import Limits, Span, SpanReader
from ...cdc.rows import Layout
from ...clock import Clock, Stop, SystemClock
from ...driver import ReadSession
from ...errors import CursorExpired, TableChanged
from ...types import Digits
from ..session.session import session_for, topology_of
from .options import Connection, Options
from .shape import columns_in
from .versions import arrow_schema

__all__ = ["SpanRead", "check_schema"]

_MISFIT = (
    "the schema of the DataFrame; the table was changed, or .schema(...) does not match it; load the DataFrame again "
    "without a schema"
)


@attrs.frozen
class SpanRead:
    """How to read spans. Can be pickled; contains a password only if the user set the option.

    ``schema``: the ``StructType`` of the batches.
    """

    connection: Connection
    mode: Mode
    schema: Any
    page_size: int
    keep_dollar: bool
    digits: Mapping[str, Digits] = attrs.field(factory=dict)
    strict: bool = False
    """Whether changes of columns that *schema* lacks are errors."""

    @classmethod
    def of(cls, options: Options, schema: Any) -> SpanRead:
        """Return how to read with *options*; *schema*: the ``StructType`` that Spark has."""
        return cls(
            options.connection,
            options.mode,
            schema,
            options.page_size,
            options.keep_dollar,
            options.digits,
            strict=options.fail_on_schema_change,
        )

    def batches(self, span: Span) -> Iterator[Any]:
        """Yield ``pyarrow.RecordBatch``es of all rows of *span*. Blocks while it reads.

        Raises:
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
            CursorExpired: rows that were promised may have expired since the plan.
            SchemaChanged, SourceError: as for ``span_batches``.
        """
        session, table, clock = session_for(self.connection), span.table, SystemClock()
        with naming_dropped_log(lambda: reread_table(session, table)):
            if not span.streams:
                topology = topology_of(self.connection, table.keyspace, table.name)
                span = span.of(streams_of(topology, Generation(span.window.generation), clock, Stop()))
            yield from span_batches(
                session,
                span,
                self.mode,
                arrow_schema(self.schema),
                clock=clock,
                limits=Limits(page_size=self.page_size),
                keep_dollar=self.keep_dollar,
                digits=self.digits,
                misfit=_MISFIT,
                strict=self.strict,
                columns=columns_in(self.schema),
                on_lost_keys=_refuse_lost_keys,
                on_read=partial(_check_kept, session, span, clock),
            )


def _check_kept(session: ReadSession, span: Span, clock: Clock, reader: SpanReader) -> None:
    """Check that what *reader* has read is of the log of *span*, and that its rows had not expired. Blocks on a query.

    Raises:
        CursorExpired: promised rows may have expired before they were read.
        TableChanged, TableNotFound, CDCDisabled, SourceError: as for ``check_log``.
    """
    promise = span.promise
    ahead_us = 0 if promise is None else promise.ahead_us
    lost = reader.lost(lambda: check_log(session, span.table, clock, Stop()) + ahead_us)
    if promise is None or lost is None:
        return
    # The node that was asked may itself be the fastest, so all are asked; rarely, as this takes a query for each.
    clocks = NodeClocks(session, clock)
    clocks.sample()
    if clocks.skew_us and len(clocks.skew_us) == len(session.hosts()):
        lost = reader.lost(clocks.fastest_us)
        if lost is None:
            return
    raise CursorExpired(
        f"{promise.message(span.table, lost)}, because they expired before an executor read them; read them sooner or "
        "with more executors, start later, or set the option failOnDataLoss to false to read the remaining rows",
        gap_from=datetime_of(lost.start_us),
        gap_to=datetime_of(lost.end_us),
    )


def _refuse_lost_keys(table: LoggedTable) -> NoReturn:
    raise TableChanged(
        f"{table.lost_keys}; repair the data that the query wrote, then start it again at that time or later"
    )


def check_schema(layout: Layout, view: LogView | ChangeView | EventView, schema: Any) -> None:
    """Check that *view*, of *layout*, has the columns of *schema*, a ``StructType``.

    Raises:
        ConfigError: a column is missing, is another one, or has another type.
    """
    check_arrow_schema(layout, view, arrow_schema(schema), _MISFIT, columns_in(schema))
