"""``windows_as_arrow``: the changes of a table as complete windows of Arrow record batches, without Spark.

The windows, their rows and the cursor are those of ``rscylla.spark.windows``; this process reads the rows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ..abc import CursorStore
from ..errors import ConfigError
from ..options import StreamOption
from ..types import Digits
from .log import Generation, naming_dropped_log
from .planned import PlannedWindow, WindowLoop, WindowOptions
from .read import Span
from .rows import Layout, Layouts
from .stream import Stream

if TYPE_CHECKING:
    from .arrow import Mode

__all__ = ["ArrowRows", "ArrowWindows", "windows_as_arrow"]

_MISFIT = (
    "the window: the table was changed while the window was read; open the windows again, and it comes with the "
    "table's new columns"
)


class ArrowRows:
    """The rows of a window as ``pyarrow.RecordBatch``es. They are read as the batches are taken.

    It is an Arrow stream by the Arrow PyCapsule interface, so ``polars.DataFrame(rows)``, ``pyarrow.table(rows)``, and
    ``duckdb.sql("SELECT ... FROM rows")`` accept it as it is. Each use reads the rows from the cluster again, and
    returns the same rows as long as the log keeps them; the rows of windows with ``max_rows`` are read once and kept.

    Used by one thread at a time, together with the windows that it comes from; that thread need not be the same each
    time. Errors of a use: as for ``windows_as_arrow``; a library that takes the stream raises its own error with the
    text of ours.
    """

    window: PlannedWindow
    schema: Any
    """The ``pyarrow.Schema`` of all batches: the columns of the table when the window was planned."""

    def __init__(self, window: PlannedWindow, schema: Any, read: Callable[[], Iterator[Any]]) -> None:
        self.window = window
        self.schema = schema
        self._read = read
        self._kept: list[Any] | None = None

    @property
    def cursor(self) -> str:
        """The cursor after the window, which the store gets when the window is done."""
        return self.window.end

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows as ``pyarrow.RecordBatch``es of at most about ten thousand rows. Blocks while it reads."""
        return self._read() if self._kept is None else iter(self._kept)

    def reader(self) -> Any:
        """Return a ``pyarrow.RecordBatchReader`` that reads the rows as they are taken."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def table(self) -> Any:
        """Return all rows as a ``pyarrow.Table``. Blocks until they are read."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a ``pandas.DataFrame``; *options* are those of ``pyarrow.Table.to_pandas``."""
        return self.table().to_pandas(**options)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ArrowRows of {self.window.name}>"

    def _count(self, most: int | None) -> int:
        """Return the number of rows, and keep them; but stop behind *most* rows, if given, and keep none then."""
        kept: list[Any] = []
        count = 0
        for batch in self._read():
            count += int(batch.num_rows)
            if most is not None and count > most:
                return count
            kept.append(batch)
        self._kept = kept
        return count


class ArrowWindows(WindowLoop[tuple[PlannedWindow, ArrowRows]]):
    """The result of ``windows_as_arrow``: an iterator for one thread, and a context manager that closes it."""

    def __init__(
        self,
        stream: Stream,
        store: CursorStore,
        name: str,
        options: Iterable[StreamOption],
        how: WindowOptions,
        mode: Mode,
        columns: Sequence[str] | None,
        digits: Mapping[str, Digits],
    ) -> None:
        self._mode: Mode = mode
        self._digits = digits
        self._columns = columns
        self._limits = stream.limits
        super().__init__(stream, store, name, options, how)

    def _prepare(self, stream: Stream) -> None:
        self._seen()

    def _shown(self, window: PlannedWindow) -> tuple[PlannedWindow, ArrowRows]:
        schema, layout = self._seen()
        return window, ArrowRows(window, schema, partial(self._batches, window, schema, layout))

    def _rows_of(self, shown: tuple[PlannedWindow, ArrowRows]) -> int:
        window, rows = shown
        most = self._plan.max_rows if window.in_log.can_narrow else None
        return rows._count(most)  # noqa: SLF001 - made here

    def _seen(self) -> tuple[Any, Layout]:
        """Return the columns as they are now, and those of the log.

        Blocks on one statement, and on the table's description if it changed.
        A window is complete before it is planned, so no row of it has a column that was added later.
        """
        import pyarrow as pa

        from .arrow import statement_of, view_for

        source = self._source
        names = self._columns
        if names is not None and (isinstance(names, str) or not 0 < len(names) == len(set(names))):
            raise ConfigError(
                f"columns must be different names of columns, at least one, or None for all, not {names!r}"
            )
        with naming_dropped_log(source.reread_table):
            statement = statement_of(source.session, source.table, self._limits.page_size)
        layouts = Layouts(lambda: source.reread_table(retrying=True))
        layout = layouts.of_columns(statement.columns, source.table)
        schema = view_for(self._mode, layout, digits=self._digits).schema
        if names is None:
            return schema, layout
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise ConfigError(
                f"columns: mode {self._mode} of {source.table.full_name} has no column {unknown[0]!r}; use columns of "
                f"{', '.join(schema.names)}"
            )
        return pa.schema([schema.field(name) for name in names]), layout

    def _batches(self, window: PlannedWindow, schema: Any, layout: Layout) -> Iterator[Any]:
        """Yield the batches of *window*, then check that the log has kept all of them until now."""
        from .arrow import columns_of, span_batches

        source, follower = self._source, self._follower
        with naming_dropped_log(source.reread_table):
            streams = source.streams(Generation(window.generation))
            yield from span_batches(
                source.session,
                Span(source.table, window.in_log, streams, window.after, follower.promise),
                self._mode,
                schema,
                clock=source.clock,
                limits=self._limits,
                digits=self._digits,
                misfit=_MISFIT,
                columns=columns_of(layout),
                on_lost_keys=lambda table: follower.report_lost_keys(table, window.end_us),
                on_read=lambda reader: follower.check_kept(reader.lost(source.latest_us), window.end_us),
            )


def windows_as_arrow(
    stream: Stream,
    store: CursorStore,
    name: str,
    *options: StreamOption,
    mode: Mode = "changes",
    columns: Sequence[str] | None = None,
    decimal_as: Any = None,
    varint_as: Any = None,
    **how: Unpack[WindowOptions],
) -> ArrowWindows:
    """Yield the changes of a table after the cursor *name* as complete windows, one after the other, in order.

    ::

        for window, changes in rscylla.windows_as_arrow(stream, store, "report", StreamLag(seconds=30), StreamToHead()):
            frame = polars.DataFrame(changes)

    Yields pairs of the window and its rows (``ArrowRows``). The windows, the columns of each mode, and the cursor are
    those of ``rscylla.spark.windows``, and the cursor is that of ``rscylla.run``: a consumer can move from one to the
    other. docs/spark.md describes the columns.

    The cursor moves to the end of a window when the loop requests the next one, that is, when the loop body ends
    without an error. After an error in the body or a ``break``, the cursor stays at the start of the window, and its
    rows are delivered again; if the window is done, call ``save()`` on the iterator before a ``break``. The window then
    begins at the same ``window.start``, but may end elsewhere, because the head has moved. The body must be idempotent:
    let it replace what it has of the same ``window.start_name``.

    Rows are in the order of events, except in mode ``log``, where they are in no order. What is in memory while rows
    are read is bounded by the stream's ``Limits``, not by the window: ``window_rows`` and ``window_bytes`` at a time,
    and in mode ``log`` only the pages in flight.

    Args:
        stream: of ``NewStream``. Its session, consistency, limits, and clock are used.
        store: the store of the cursor.
        options: options of a stream; ``StreamLag`` is required. With ``StreamToHead``, the loop ends at the head; with
            ``StreamUntil``, at that time; otherwise, it waits at the head for more changes.
        mode: ``"changes"``, ``"log"`` for the log's own rows, or ``"events"``.
        columns: names of the columns to read; None for all. Others are not decoded.
        decimal_as, varint_as: the type of columns of CQL's decimal and varint, at any depth, such as
            ``pyarrow.decimal128(38, 2)``; None for text, which holds all of them. Not in mode ``events``, which has
            JSON. A number that does not fit is an error (``SourceError``) while rows are read.
        how: see ``WindowOptions``. The rows of a window are in memory before it is returned if ``max_rows`` is given.

    Raises:
        MissingLag, ConfigError: an option is missing or invalid, or pyarrow is not installed.
        TableNotFound, CDCDisabled, InvalidCursor, CursorExpired, TableChanged, SourceError: as for a stream, also
            during iteration and while rows are read.
        MalformedData: while rows are read: a cell has no value of its type.
    """
    try:
        from .arrow import span_batches  # noqa: F401 - tried
    except ImportError as e:
        raise ConfigError("windows_as_arrow requires pyarrow and numpy; pip install 'rscylla[arrow]'") from e
    digits = _digits_of({"decimal": decimal_as, "varint": varint_as})
    if digits and mode == "events":
        raise ConfigError("decimal_as= and varint_as= do not apply to mode events, which has JSON; omit them")
    return ArrowWindows(stream, store, name, options, how, mode, columns, digits)


def _digits_of(types: Mapping[str, Any]) -> dict[str, Digits]:
    """Return the digits of the CQL types that are numbers in Arrow."""
    import pyarrow as pa

    found = {}
    for kind, type_ in types.items():
        if type_ is None:
            continue
        if not isinstance(type_, pa.Decimal128Type) or not 0 <= type_.scale <= type_.precision:
            raise ConfigError(
                f"{kind}_as must be a type such as pyarrow.decimal128(38, 2), with no more decimal places than digits, "
                f"or None for text, not {type_!r}"
            )
        found[kind] = Digits(type_.precision, type_.scale)
    return found
