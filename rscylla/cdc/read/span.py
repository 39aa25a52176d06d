"""Reads a closed span of time of some streams of one generation, as a task of a distributed job.

Unlike ``rscylla.cdc.read.reader``, it does not follow the head, new generations, or clocks: whoever planned the span
made sure that it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from ..._timeuuid import ticks_of, ticks_to_us
from ...clock import Clock, Stop
from ...driver import Page, ReadSession
from ..log import (
    End,
    Gap,
    Generation,
    LoggedTable,
    LogWindow,
    Promise,
    Walk,
    Width,
    group_streams,
    is_altered,
    reread_table,
)
from ..rows import Layout, Layouts, new_rows
from .drive import Drive
from .scan import Limits, LogScan, TooMuch

__all__ = ["Span", "SpanReader"]

FIRST_WIDTH_US = 10_000_000
"""Width of the first window; later ones adapt to the rows found."""

_NARROWEST = 64
"""How many times narrower a window gets at once at most: the rows of a page may be a burst."""


@attrs.frozen
class Span:
    """Some streams of a table's log in a window: part number ``part`` of ``parts`` equal parts of its generation's.

    Can be pickled and read anywhere. ``streams``: empty if whoever reads the span looks them up. A plan of many spans
    then stays small: a stream id takes 16 bytes, and there may be 100,000 in a generation. ``after``: if not empty, the
    position (``EventID.position``) up to which rows are left out. ``promise``: the rows that must not be missed; None
    for none.
    """

    table: LoggedTable = attrs.field(repr=lambda table: table.full_name)
    window: LogWindow
    streams: tuple[bytes, ...] = attrs.field(default=(), repr=lambda streams: f"<{len(streams)}>")
    after: bytes = b""
    promise: Promise | None = attrs.field(default=None, repr=False)
    part: int = 0
    parts: int = 1

    def of(self, streams: tuple[bytes, ...]) -> Span:
        """Return the span with its part of *streams*, which are all streams of the generation."""
        first, end = (len(streams) * part // self.parts for part in (self.part, self.part + 1))
        return attrs.evolve(self, streams=streams[first:end])


class SpanReader:
    """Reads one span, window by window, each as wide as the limits of a window allow. Used by one thread at a time.

    Args:
        limits: the rows and bytes of a window limit what is in memory at once.
    """

    def __init__(self, session: ReadSession, span: Span, *, clock: Clock, limits: Limits, stop: Stop) -> None:
        self._session = session
        self._span = span
        self._clock = clock
        self._stop = stop
        self._limits = limits
        table = span.table
        self._groups = group_streams(span.streams, replicas_of=session.replicas_of(table.keyspace))
        self._scan = LogScan(session, table.keyspace, table.name, clock=clock, limits=limits, stop=stop)
        self._layouts = Layouts(self._reread)
        self._done: list[tuple[int, int, float]] = []
        self._is_first = True  # nothing is known about how dense the rows are
        self.table = table
        """The base table as it was last read."""

    def pages(self) -> Iterator[Page]:
        """Yield each page that has rows, as it comes. As many pages are in memory as queries are in flight.

        Raises:
            Stopped: the stop signal was set.
            SourceError: reading failed.
        """
        for pages in self._read(whole=False):
            yield from pages

    def windows(self) -> Iterator[list[Page]]:
        """Yield the pages of each window that has rows. Windows are in order of time; pages of a window in no order.

        All rows of one stream and time are in one window.

        Raises:
            Stopped: the stop signal was set.
            SourceError: reading failed.
        """
        return self._read(whole=True)

    def lost(self, latest_us: Callable[[], int]) -> Gap | None:
        """Return the span of the promised rows that may have expired before they were read, or None.

        Args:
            latest_us: returns the time of the clock by which rows expire, in microseconds. It is called once, and may
                block. Windows are read in order of time, so the first ones may have expired by then although they were
                read in time.
        """
        # Read first: a pause between the two readings then makes rows look older, which can only report too much.
        monotonic = self._clock.monotonic()
        now_us = latest_us()
        promise = self._span.promise
        found = [
            attrs.evolve(gap, end_us=min(gap.end_us, end_us))
            for start_us, end_us, read_at in self._done
            if promise and (gap := promise.lost(start_us, end_us, now_us - round((monotonic - read_at) * 1e6)))
        ]
        return attrs.evolve(found[0], end_us=found[-1].end_us) if found else None

    def _note_done(self, start_us: int, end_us: int) -> None:
        """Note that the rows between the two times have been read just now, or are known not to exist."""
        if self._span.promise is not None:
            self._done.append((start_us, end_us, self._clock.monotonic()))

    def _read(self, *, whole: bool) -> Iterator[list[Page]]:
        """Yield the pages of each window with rows; unless *whole*, in several lists."""
        window, limits = self._span.window, self._limits
        generations = (Generation(window.generation),)
        if whole:
            width = Width.within(limits.window_rows, limits.window_bytes, us=FIRST_WIDTH_US)
        else:
            width = Width(us=FIRST_WIDTH_US, target=limits.window_rows, target_bytes=limits.window_bytes)
        walk = Walk(generations[0], window.start_us, width, end_us=window.end_us)
        check = self._check_fits if whole else None
        drive = Drive(walk, self._scan, lambda _: self._groups, whole=whole, check=check)
        while not isinstance(step := drive.walk.next(generations, window.end_us), End):
            self._stop.check()
            start_us, found = drive.walk.at_us, list[Page]()
            for page in drive.take(step):
                if page.row_count and whole:
                    found.append(page)
                elif page.row_count:
                    yield [page]
            if drive.walk.at_us > start_us:
                self._note_done(start_us, drive.walk.at_us)
                if found:
                    yield found

    def _check_fits(self, page: Page, window: LogWindow) -> None:
        """Raise ``TooMuch`` if *page*, the first of all and not the last of *window*, shows that it exceeds the limits.

        A window that exceeds them is read in vain. Pages have one stream after the other, each in order of time, so the
        page shows how far the query has come. It is taken that the other streams are as dense. Only once: where rows
        come in bursts, windows would become tiny.
        """
        is_first, self._is_first = self._is_first, False
        if not is_first or page.state is None or not window.can_narrow:
            return
        layout = self.layout_of(page)
        rows = new_rows().add(page, layout)
        last_us = ticks_to_us(ticks_of(list(rows.column(layout.time))[-1] or b""))
        streams = len(set(rows.column(layout.stream_id))) - 1 + (last_us + 1 - window.start_us) / window.span_us
        share = streams / len(self._span.streams)
        limits = self._limits
        excess = max(page.row_count / limits.window_rows, page.size / limits.window_bytes) / share
        if excess > 1:
            width = Width.within(limits.window_rows, limits.window_bytes)
            fitting_us = int(
                window.span_us * min(width.target / page.row_count, width.target_bytes / page.size) * share
            )
            raise TooMuch(max(fitting_us, window.span_us // _NARROWEST))

    def layout_of(self, page: Page) -> Layout:
        """Return the layout of *page*. May read the table again.

        Raises:
            MetadataError: a column that every log has, or a key column of the table, is missing.
        """
        return self._layouts.of(page, self.table)

    def confirm(self) -> None:
        """Read the table again if it was altered: pages with the same columns may lack keys that were renamed.

        Blocks on a query.

        Raises:
            TableChanged, TableNotFound, CDCDisabled, SourceError: as for ``reread_table``.
        """
        if is_altered(self._session, self.table):
            self._reread()

    def _reread(self) -> LoggedTable:
        """Read the table again, because it was changed after the span was planned."""
        self.table = reread_table(self._session, self.table)
        return self.table
