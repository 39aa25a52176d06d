"""Reads a closed span of time of some streams of one generation: what a task of a bigger job does, anywhere.

Unlike ``rscylla.cdc.reader`` it follows nothing: no head, no new generations, no clocks. Who planned the span knew that
it is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import attrs

from .._timeuuid import ticks_of, ticks_to_us
from ..clock import Clock, Stop
from ..errors import QueryTimeout
from .driver import LogSession, LogStatement
from .pages import Page
from .plan import Width, Window, group_streams, next_window, tasks_for
from .query import first_row_cql, scan_cql
from .rows import Layout, Layouts
from .scan import Limits, Scanner, TooMuch, TooSlow
from .table import TableInfo, read_table
from .topology import Generation, generation_at

__all__ = ["Span", "SpanReader", "windows_between"]

log = logging.getLogger("rscylla")

PROBE_FROM_US = 10_000_000
"""Empty time longer than this is jumped over, by asking each stream for its first row."""

FIRST_WIDTH_US = 10_000_000


@attrs.frozen
class Span:
    """Some streams of a table's log in a window. Can be pickled and read anywhere.

    ``after``: if not empty, the position (``EventID.position``) up to which rows are left out.
    """

    table: TableInfo = attrs.field(repr=lambda table: table.full_name)
    window: Window
    streams: tuple[bytes, ...] = attrs.field(repr=lambda streams: f"<{len(streams)}>")
    after: bytes = b""


def windows_between(generations: tuple[Generation, ...], start_us: int, end_us: int) -> tuple[Window, ...]:
    """Return the time from *start_us* to *end_us* cut where generations begin; none before the first.

    >>> [w.end_us for w in windows_between((Generation(1), Generation(2)), 0, 2_500)]
    [2000, 2500]
    """
    windows = []
    i = generation_at(generations, start_us)
    at = start_us if i >= 0 else (generations[0].start_us if generations else end_us)
    i = max(i, 0)
    while at < end_us:
        following = generations[i + 1] if i + 1 < len(generations) else None
        end = end_us if following is None else min(end_us, following.start_us)
        windows.append(Window(generations[i].time, at, end))
        at = end
        i += 1
    return tuple(windows)


class SpanReader:
    """Reads one span, window by window, each as wide as the limits for one allow. One thread at a time.

    Args:
        limits: the rows and bytes of a window are what is held in memory at once.
    """

    def __init__(self, session: LogSession, span: Span, *, clock: Clock, limits: Limits, stop: Stop) -> None:
        self._session = session
        self._span = span
        self._stop = stop
        self._limits = limits
        self._scanner = Scanner(session, clock=clock, limits=limits)
        self._groups = group_streams(span.streams)
        table = span.table
        doing = f"preparing to read the log of {table.full_name}"
        self._scan = session.prepare(scan_cql(table.keyspace, table.name), page_size=limits.page_size, doing=doing)
        self._first = session.prepare(
            first_row_cql(table.keyspace, table.name), page_size=limits.page_size, doing=doing
        )
        self._layouts = Layouts(self._reread)
        self.table = table
        """The base table as it was read last."""

    def windows(self) -> Iterator[list[Page]]:
        """Yield the pages of each window that has rows, in the order of time; in a window pages are in no order.

        All rows of one stream and time are in one window.

        Raises:
            Stopped, SourceError: reading did not succeed.
        """
        window = self._span.window
        limits = self._limits
        target, target_bytes = max(1, limits.window_rows // 5), max(1, limits.window_bytes // 5)
        width = Width(us=FIRST_WIDTH_US, target=target, target_bytes=target_bytes)
        at = window.start_us
        while True:
            self._stop.check()
            part = next_window(window.generation, at, watermark_us=window.end_us, boundary_us=None, width_us=width.us)
            if part is None:
                return
            pages: list[Page] = []
            try:
                self._ask(self._scan, part, pages.append, may_give_up=width.can_narrow(part))
            except TooMuch as e:
                width = width.narrower(part, slow=isinstance(e, TooSlow))
                continue
            rows = sum(page.row_count for page in pages)
            width = width.after(part, rows, sum(page.size for page in pages))
            if rows:
                yield [page for page in pages if page.row_count]
            at = part.end_us if rows else self._past_empty(part, width)

    def layout_of(self, page: Page) -> Layout:
        """Return what the columns of *page* mean.

        Raises:
            MetadataError: a column that every log has, or a key column of the table, is not there.
        """
        return self._layouts.of(page, self.table)

    def _reread(self) -> TableInfo:
        """Read the table again: it was changed since the span was planned."""
        self.table = read_table(self._session, self.table.keyspace, self.table.name)
        return self.table

    def _past_empty(self, window: Window, width: Width) -> int:
        """Return where to go on after an empty window: at the first row if there is one, else at the end."""
        end_us = self._span.window.end_us
        if end_us - window.end_us < max(PROBE_FROM_US, 2 * width.us):
            return window.end_us
        first: list[int] = []

        def collect(page: Page) -> None:
            first.extend(ticks_of(time) for (time,) in page.cells() if time is not None)

        try:
            rest = Window(window.generation, window.end_us, end_us)
            self._ask(self._first, rest, collect, may_give_up=False)
        except QueryTimeout as e:
            log.info("%s; walking the empty time instead", e)
            return window.end_us
        return max(window.end_us, ticks_to_us(min(first))) if first else end_us

    def _ask(
        self, statement: LogStatement, window: Window, collect: Callable[[Page], None], *, may_give_up: bool
    ) -> None:
        table = self._span.table
        tasks = tasks_for(window, self._groups, keyspace=table.keyspace, table=table.name)
        self._scanner.read(statement, tasks, self._stop, collect, may_give_up=may_give_up)
