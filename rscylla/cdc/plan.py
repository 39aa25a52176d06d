"""What to read next, as values: windows, and the tasks that read them. Pure; no clock is read and nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import attrs

from .._streamid import vnode_of
from ..errors import ConfigError

__all__ = ["MAX_STREAMS_PER_QUERY", "ScanTask", "Width", "Window", "group_streams", "next_window", "tasks_for"]

MAX_STREAMS_PER_QUERY = 100
"""Scylla refuses more partition keys in one query by default (``max_partition_key_restrictions_per_query``)."""


@attrs.frozen
class Window:
    """A half-open span of time, ``[start_us, end_us)``, inside one generation (its time in ms)."""

    generation: int
    start_us: int
    end_us: int

    @property
    def span_us(self) -> int:
        return self.end_us - self.start_us


@attrs.frozen
class ScanTask:
    """One query: some streams of a generation in a span of time. Can be pickled and run anywhere."""

    keyspace: str
    table: str
    generation: int
    streams: tuple[bytes, ...] = attrs.field(repr=lambda streams: f"<{len(streams)}>")
    start_us: int
    end_us: int


def next_window(
    generation: int, start_us: int, *, watermark_us: int, boundary_us: int | None, width_us: int
) -> Window | None:
    """Return the next complete window of *generation* from *start_us*, or None when it is too early.

    Args:
        watermark_us: rows before it have all arrived.
        boundary_us: where the next generation starts, None if there is none; a window never crosses it.
        width_us: greatest length.

    >>> next_window(0, 5_000_000, watermark_us=5_000_000, boundary_us=None, width_us=1_000_000) is None
    True
    """
    end = min(start_us + width_us, watermark_us)
    if boundary_us is not None:
        end = min(end, boundary_us)
    if end <= start_us:
        return None
    return Window(generation, start_us, end)


def group_streams(streams: Sequence[bytes], *, limit: int = MAX_STREAMS_PER_QUERY) -> tuple[tuple[bytes, ...], ...]:
    """Return the streams in groups of at most *limit*, each of whole vnodes where they fit.

    The streams of a vnode share their replicas, and neighbours in the ring mostly do. Those of tablets name no vnode;
    each stands for itself, and a group is any *limit* neighbours.

    Args:
        streams: in ascending order of token, as ``Topology.streams`` gives them.
    """
    if not 0 < limit <= MAX_STREAMS_PER_QUERY:
        raise ConfigError(f"streams per query must be from 1 to {MAX_STREAMS_PER_QUERY}, not {limit}")
    groups: list[tuple[bytes, ...]] = []
    filling: list[bytes] = []
    for _, members in groupby(streams, key=vnode_of):
        vnode = list(members)
        if filling and len(filling) + len(vnode) > limit:
            groups.append(tuple(filling))
            filling = []
        while len(vnode) > limit:
            groups.append(tuple(vnode[:limit]))
            vnode = vnode[limit:]
        filling += vnode
    if filling:
        groups.append(tuple(filling))
    return tuple(groups)


def tasks_for(
    window: Window, groups: Sequence[tuple[bytes, ...]], *, keyspace: str, table: str
) -> tuple[ScanTask, ...]:
    """Return one task a group of streams."""
    return tuple(ScanTask(keyspace, table, window.generation, g, window.start_us, window.end_us) for g in groups)


@attrs.frozen
class Width:
    """How wide the next window may be, from what the last ones held. Each step returns a new value.

    ``us`` follows what was found: towards ``target`` rows or ``target_bytes`` a window, whichever is less, at most four
    times wider a step, and four times narrower when a window held more than the limits allow or a query timed out.
    ``slow_us``: a window this long took too long. Only half of that is asked from then on, and with each window a
    sixteenth more: to wait for time-outs at every other window would be slower than the log is written.
    """

    us: int = 1_000_000
    target: int = 20_000
    target_bytes: int = 12_000_000
    least_us: int = 1
    most_us: int = 86_400_000_000
    slow_us: int | None = None

    def after(self, window: Window, rows: int, size: int = 0) -> Width:
        """Return the width to use after *window* was read whole and held *rows* rows of *size* bytes in all."""
        fitting = window.span_us * self.target // rows if rows else self.most_us
        if size:
            fitting = min(fitting, window.span_us * self.target_bytes // size)
        if window.span_us < self.us and fitting >= self.us:
            return self  # cut short at a watermark or boundary: says nothing of wider ones
        fitting = min(fitting, 4 * self.us)
        if self.slow_us is None:
            return self._bounded(fitting)
        slow_us = self.slow_us + self.slow_us // 16 + 1
        known = attrs.evolve(self, slow_us=slow_us if slow_us // 2 < self.most_us else None)
        return known._bounded(min(fitting, slow_us // 2))  # noqa: SLF001 - one of ours

    def narrower(self, window: Window, *, slow: bool = False) -> Width:
        """Return the width to use after *window* turned out too much to read at once; *slow*: it took too long."""
        known = attrs.evolve(self, slow_us=window.span_us) if slow else self
        return known._bounded(window.span_us // 4)  # noqa: SLF001 - one of ours

    def can_narrow(self, window: Window) -> bool:
        """Whether *window* is still wide enough to be cut."""
        return window.span_us > self.least_us

    def _bounded(self, us: int) -> Width:
        return attrs.evolve(self, us=max(self.least_us, min(us, self.most_us)))
