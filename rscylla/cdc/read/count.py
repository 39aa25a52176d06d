"""Finds how far a number of rows of a log reaches, for jobs that divide a log into parts of limited size."""

from __future__ import annotations

import attrs

from ...clock import Stop
from ..log import End, Generation, Read, Source, StreamGroup, Walk, Width, generation_at, group_streams, times_cql
from .drive import Drive
from .scan import Limits, LogScan

__all__ = ["RowCounter"]

FIRST_WIDTH_US = 10_000_000
"""Width of the first window that is counted; later ones adapt to the rows found."""

FULL = 3 / 4
"""A part of the limit that is enough: to come closer would take more queries of each stream."""

COUNT_S = 10.0
"""A count that takes longer than this ends at what it has."""

_UNLIMITED = 2**62  # the limits of a window are for rows that are kept


class RowCounter:
    """Counts rows of one table's log, of all streams. Used by one thread at a time.

    It reads the times of the rows, and no other column, and keeps none of them. The density of the rows found is kept,
    so the first window of a count usually has most of the rows asked for.
    """

    def __init__(self, source: Source, *, page_size: int, stop: Stop) -> None:
        self._source = source
        table = source.table
        limits = Limits(page_size=page_size, window_rows=_UNLIMITED, window_bytes=_UNLIMITED)
        self._scan = LogScan(
            source.session, table.keyspace, table.name, clock=source.clock, limits=limits, stop=stop, cql=times_cql
        )
        self._width = Width(us=FIRST_WIDTH_US)
        self._groups: tuple[int, tuple[StreamGroup, ...]] = (-1, ())

    def reach_us(self, start_us: int, end_us: int, most: int) -> int:
        """Return a time after *start_us*, and at most *end_us*, before which there are at most *most* rows. Blocks.

        The rows are those from *start_us* on. If there are more up to *end_us*, the result usually has at least three
        quarters of *most*; less after ten seconds of counting, or in front of a burst. A single microsecond with more
        rows is not divided. *end_us* is complete, and all generations that start before it are known.

        Raises:
            Stopped, SourceError: as for ``LogScan``.
        """
        generations = self._source.generations
        first = generations[max(generation_at(generations, start_us), 0)]
        width = attrs.evolve(self._width, target=_wanted(most))
        walk = Walk(first, max(start_us, first.start_us), width, end_us=max(start_us, first.start_us, end_us))
        drive = Drive(walk, self._scan, self._groups_of)
        due = self._source.clock.monotonic() + COUNT_S
        rows = span_us = 0
        while rows < most * FULL and (walk.at_us <= start_us or self._source.clock.monotonic() < due):
            step = walk.next(generations, end_us)
            if isinstance(step, End):
                break
            found = sum(page.row_count for page in drive.take(step, most=most - rows))
            if isinstance(step, Read) and drive.walk.at_us == step.window.end_us:
                if rows and rows + found > most:
                    break  # the microsecond is too much for the rest, and becomes the next part
                rows, span_us = rows + found, span_us + step.window.span_us
                rest = attrs.evolve(walk.width, target=_wanted(most - rows))
                drive.walk = attrs.evolve(drive.walk, width=rest.after(step.window, found))
            walk = drive.walk
        fitting_us = span_us * _wanted(most) // rows if rows else walk.width.us
        self._width = attrs.evolve(walk.width, us=max(1, min(fitting_us, 4 * max(span_us, walk.width.us))))
        return min(walk.at_us, end_us)

    def _groups_of(self, generation: int) -> tuple[StreamGroup, ...]:
        known, groups = self._groups
        if known != generation:
            source = self._source
            streams = source.streams(Generation(generation))
            groups = group_streams(streams, replicas_of=source.session.replicas_of(source.table.keyspace))
            self._groups = generation, groups
        return groups


def _wanted(most: int) -> int:
    # A window that exceeds the limit must be counted again. At four fifths, there is room for a quarter more.
    return max(1, most * 4 // 5)
