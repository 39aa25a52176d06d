"""Decides where to read next in a log, and how far. Pure: it reads no clock and sends no query.

A caller asks ``Walk.next`` for a step, takes it, and reports the result to the walk, which returns the next walk:

    step      what it asks for                                      reported by
    Read      the rows of a window                                  ``read``, or ``too_much``
    Probe     the first row of a span that is probably empty        ``probed``
    Skip      nothing: the rows of a span have expired              ``skipped``
    Switch    nothing: the next generation begins here              ``switched``
    Wait      nothing: the rows that follow are not complete yet    ``waited``
    End       nothing: everything requested was read

Windows follow each other without gaps. None crosses the start of a generation or of a span that has expired.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .topology import Generation, generation_at

__all__ = [
    "Action",
    "End",
    "Gap",
    "LogWindow",
    "Probe",
    "Read",
    "Skip",
    "Switch",
    "Wait",
    "Walk",
    "Width",
    "windows_between",
]

PROBE_FROM_US = 10_000_000
"""Empty time longer than this is not read window by window: each stream is asked for its first row instead."""


@attrs.frozen
class LogWindow:
    """A half-open span of time, ``[start_us, end_us)``, in one generation, given by its time in ms."""

    generation: int
    start_us: int
    end_us: int

    @property
    def span_us(self) -> int:
        return self.end_us - self.start_us

    @property
    def can_narrow(self) -> bool:
        """Whether the window is wide enough to be split."""
        return self.span_us > 1


@attrs.frozen
class Gap:
    """A span of time whose rows have expired, or in which there can be none; ``ttl_s`` is the TTL of its rows."""

    start_us: int
    end_us: int
    ttl_s: int | None = None


@attrs.frozen
class Width:
    """How wide the next window may be, from the contents of the last ones. Each step returns a new value.

    ``us`` adapts to ``target`` rows or ``target_bytes`` per window, whichever is less: at most four times wider per
    step, and four times narrower after a window that exceeded the limits or a query that timed out. ``slow_us``: the
    length of a window that took too long. From then on, windows are at most half as long, plus a sixteenth more with
    each window: with a time-out at every other window, reading would be slower than the writes to the log.
    """

    us: int = 1_000_000
    target: int = 20_000
    target_bytes: int = 12_000_000
    most_us: int = 86_400_000_000
    slow_us: int | None = None

    @classmethod
    def within(cls, rows: int, size: int, *, us: int = 1_000_000) -> Width:
        """Return the width for windows of at most *rows* rows and *size* bytes; the first one is *us* long."""
        # A window that exceeds the limits must be read again. At a fifth of them, writes may become five times denser.
        return cls(us=us, target=max(1, rows // 5), target_bytes=max(1, size // 5))

    def after(self, window: LogWindow, rows: int, size: int = 0) -> Width:
        """Return the width to use after *window* was read and had *rows* rows with *size* bytes in total."""
        fitting = window.span_us * self.target // rows if rows else self.most_us
        if size:
            fitting = min(fitting, window.span_us * self.target_bytes // size)
        if window.span_us < self.us and fitting >= self.us:
            return self  # a window cut short at a watermark or boundary says nothing about wider ones
        fitting = min(fitting, 4 * self.us)
        if self.slow_us is None:
            return self._bounded(fitting)
        slow_us = self.slow_us + self.slow_us // 16 + 1
        known = attrs.evolve(self, slow_us=slow_us if slow_us // 2 < self.most_us else None)
        return known._bounded(min(fitting, slow_us // 2))  # noqa: SLF001 - same class

    def narrower(self, window: LogWindow, *, slow: bool = False, fitting_us: int | None = None) -> Width:
        """Return the width to use after *window* was too much to read at once; see ``Walk.too_much``."""
        known = attrs.evolve(self, slow_us=window.span_us) if slow else self
        quarter_us = window.span_us // 4
        return known._bounded(quarter_us if fitting_us is None else min(quarter_us, fitting_us))  # noqa: SLF001

    def _bounded(self, us: int) -> Width:
        return attrs.evolve(self, us=max(1, min(us, self.most_us)))


@attrs.frozen
class Read:
    """Read the rows of a window. ``at_head``: the window ends where the complete rows end."""

    window: LogWindow
    at_head: bool


@attrs.frozen
class Probe:
    """Find the time of the first row in a window. ``at_head``: as for ``Read``."""

    window: LogWindow
    at_head: bool


@attrs.frozen
class Skip:
    """Continue after a span whose rows have expired."""

    gap: Gap


@attrs.frozen
class Switch:
    """Continue with the streams of the next generation."""

    generation: Generation


@attrs.frozen
class Wait:
    """Ask again later: there is something to read once rows are complete up to ``until_us``."""

    until_us: int


@attrs.frozen
class End:
    """Everything requested was read."""


Action = Read | Probe | Skip | Switch | Wait | End


@attrs.frozen
class Walk:
    """A position in a log, and facts from the steps so far. Each report of a step returns a new value.

    ``generation`` and ``at_us``: the position; all rows before it were read. ``floor_us``: no row before it is read.
    ``end_us`` and ``to_head``: where the walk ends. ``least_us``: the shortest window that is read at the head.
    ``probe_from_us``: the shortest span that is probed; None: probe no span.

    The last two describe the last step. ``at_head``: it read all complete rows. ``was_empty``: it found no row.
    """

    generation: Generation
    at_us: int
    width: Width
    floor_us: int = attrs.field(default=0, kw_only=True)
    end_us: int | None = attrs.field(default=None, kw_only=True)
    to_head: bool = attrs.field(default=False, kw_only=True)
    least_us: int = attrs.field(default=0, kw_only=True)
    probe_from_us: int | None = attrs.field(default=PROBE_FROM_US, kw_only=True)
    at_head: bool = attrs.field(default=False, kw_only=True)
    was_empty: bool = attrs.field(default=False, kw_only=True)

    @property
    def is_done(self) -> bool:
        """Whether everything requested was read. The head is that of the last step, although it has moved since."""
        return (self.at_head and self.to_head) or (self.end_us is not None and self.at_us >= self.end_us)

    def horizon_us(self, reach_us: int) -> int:
        """Return how far the next step goes at most; ``next`` needs all generations that start before that."""
        if self.was_empty and self.probe_from_us is not None:
            return reach_us
        return min(self.at_us + self.width.us, reach_us)

    def next(
        self, generations: Sequence[Generation], reach_us: int, gaps: Sequence[Gap] = (), halt_us: int | None = None
    ) -> Action:
        """Return the next step.

        Args:
            generations: all that start before ``horizon_us``, in order of time.
            reach_us: time before which all rows have arrived.
            gaps: the expired spans at ``at_us`` or later, in order of time.
            halt_us: a time at which the step ends at the latest, although the walk goes on; before the position, as it
                may be after a skip, it means nothing.
        """
        at_us, end_us = self.at_us, self.end_us
        if self.is_done:
            return End()
        gap = next((h for h in gaps if h.end_us > at_us), None)
        if gap is not None and gap.start_us <= at_us:
            return Skip(gap)
        following = self._following(generations)
        if following is not None and following.start_us <= min(at_us, reach_us):
            return Switch(following)
        head_us = reach_us if end_us is None else min(reach_us, end_us)
        limits = [each.start_us for each in (following, gap) if each is not None]
        if halt_us is not None and halt_us > at_us:
            limits.append(halt_us)
        limit_us = min([head_us, *limits])
        if self._is_to_probe(limit_us):
            return Probe(LogWindow(self.generation.time, at_us, limit_us), limit_us == head_us)
        to_us = min(at_us + self.width.us, limit_us)
        worth_us = max(1, min(self.least_us, self.width.us))
        may_grow = to_us == head_us != end_us and not self.to_head
        if to_us - at_us < (worth_us if may_grow else 1):
            if self.to_head:
                return End()
            return Wait(at_us + worth_us if end_us is None else min(at_us + worth_us, end_us))
        return Read(LogWindow(self.generation.time, at_us, to_us), to_us == head_us)

    def read(self, step: Read, rows: int | None, size: int = 0) -> Walk:
        """Return the walk after *step*, whose window had *rows* rows with *size* bytes.

        Args:
            rows: None if they were not counted.
        """
        width = self.width if rows is None else self.width.after(step.window, rows, size)
        return attrs.evolve(self, at_us=step.window.end_us, width=width, at_head=step.at_head, was_empty=rows == 0)

    def too_much(self, step: Read, *, slow: bool = False, fitting_us: int | None = None) -> Walk:
        """Return the walk after the window of *step* was too much to read at once.

        Args:
            slow: it took too long.
            fitting_us: how wide a window may be that fits, if that is known; it is at most a quarter as wide.
        """
        width = self.width.narrower(step.window, slow=slow, fitting_us=fitting_us)
        return attrs.evolve(self, width=width, at_head=False, was_empty=False)

    def probed(self, step: Probe, first_us: int | None) -> Walk:
        """Return the walk after *step*; *first_us* is the time of the first row, None if there is none."""
        window = step.window
        at_us = window.end_us if first_us is None else min(max(first_us, window.start_us), window.end_us)
        at_head = step.at_head and at_us == window.end_us
        return attrs.evolve(self, at_us=at_us, at_head=at_head, was_empty=False)

    def skipped(self, step: Skip, generations: Sequence[Generation]) -> Walk:
        """Return the walk after the expired span of *step*."""
        generation = generations[max(generation_at(generations, step.gap.end_us), 0)]
        at_us = max(step.gap.end_us, generation.start_us)
        return attrs.evolve(self, generation=generation, at_us=at_us, at_head=False, was_empty=False)

    def switched(self, step: Switch) -> Walk:
        """Return the walk at the start of the next generation, even if that is before the current position."""
        at_us = max(step.generation.start_us, self.floor_us)
        return attrs.evolve(self, generation=step.generation, at_us=at_us, at_head=False, was_empty=False)

    def waited(self) -> Walk:
        """Return the walk to use after a ``Wait``."""
        return attrs.evolve(self, at_head=True, was_empty=False)

    def _following(self, generations: Sequence[Generation]) -> Generation | None:
        """Return the next generation; None if the current one is the newest."""
        i = generation_at(generations, self.generation.start_us) + 1
        return generations[i] if i < len(generations) else None

    def _is_to_probe(self, limit_us: int) -> bool:
        if not self.was_empty or self.probe_from_us is None:
            return False
        return limit_us - self.at_us >= max(self.probe_from_us, 2 * self.width.us)


def windows_between(generations: Sequence[Generation], start_us: int, end_us: int) -> tuple[LogWindow, ...]:
    """Return the windows from *start_us* to *end_us*, cut where generations begin; none before the first generation.

    >>> [w.end_us for w in windows_between((Generation(1), Generation(2)), 0, 2_500)]
    [2000, 2500]
    """
    following = generations[max(generation_at(generations, start_us), 0) :]
    ends = [*(min(each.start_us, end_us) for each in following[1:]), end_us]
    found = [LogWindow(g.time, max(start_us, g.start_us), us) for g, us in zip(following, ends, strict=False)]
    return tuple(window for window in found if window.span_us > 0)
