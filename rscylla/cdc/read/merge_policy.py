"""Decides which readers of a table's slices become one, and which wait for each other. Pure.

A reader reads some slices. Readers that are at the same point become one, so that no row is read twice. One that comes
from behind halts at the point of the next one, which waits for it, if it is near, for up to ``PATIENCE_S``.
A slice whose consumer is slow is left behind: it gets a reader of its own, so that it holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto

import attrs

__all__ = [
    "FREE",
    "NEAR_US",
    "NEAR_WINDOWS",
    "PATIENCE_S",
    "Backlog",
    "Place",
    "Stage",
    "blocked_s",
    "halt_of",
    "is_awaited",
    "meet",
]

PATIENCE_S = 1.0
"""How long a reader waits for another one, and the consumers of a reader for a slow one."""

RECENT_S = 0.2
"""A reader that has just read is waited for, even if a consumer has to take the last window first."""

NEAR_WINDOWS = 2
NEAR_US = 60_000_000
"""A reader that is at most this many windows, or this long, behind is waited for: cursors that are saved together
differ by about as much, and the first windows of a reader are short."""


class Stage(Enum):
    """What a reader does.

    ``READS``: a step, or it is about to. ``HELD``: it waits for another reader. ``POLLS``: it waits for its next poll.
    ``IDLE``: nobody asks for more. ``BLOCKED``: it waits for a slow consumer. ``ENDED``: it reads no more.
    """

    READS = auto()
    HELD = auto()
    POLLS = auto()
    IDLE = auto()
    BLOCKED = auto()
    ENDED = auto()


FREE = (Stage.HELD, Stage.POLLS, Stage.IDLE)
"""Between two steps, where a reader can be taken over."""


@attrs.frozen
class Place:
    """Where a reader is: a generation and a time, how long its next window is, and how long ago its last step began."""

    generation: int
    at_us: int
    width_us: int
    stage: Stage
    step_s: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether it will probably be elsewhere soon."""
        if self.stage in (Stage.IDLE, Stage.BLOCKED):
            return self.step_s < RECENT_S
        return self.stage is Stage.HELD or (self.stage is Stage.READS and self.step_s < PATIENCE_S)


def meet(me: Place, other: Place) -> bool:
    """Whether the reader at *me*, which is about to read, takes over *other*, which is between two steps.

    A reader whose consumer is slow would block the other.
    """
    return other.stage in FREE and (me.generation, me.at_us) == (other.generation, other.at_us)


def is_awaited(me: Place, others: Iterable[Place]) -> bool:
    """Whether one of *others* comes from so near behind that *me* waits for it."""
    return any(
        other.moves
        and other.generation == me.generation
        and 0 < me.at_us - other.at_us <= max(NEAR_US, NEAR_WINDOWS * max(me.width_us, other.width_us))
        for other in others
    )


def halt_of(me: Place, others: Iterable[Place]) -> int | None:
    """Return the time at which the next step of *me* ends at the latest, in order to meet the next of *others*."""
    ahead = (p.at_us for p in others if p.generation == me.generation and p.stage is not Stage.ENDED)
    return min((us for us in ahead if us > me.at_us), default=None)


@attrs.frozen
class Backlog:
    """What a consumer has left. ``is_full``: nothing more may be read for it. ``idle_s``: how long it has waited."""

    is_full: bool
    idle_s: float | None = None


def blocked_s(backlogs: Sequence[Backlog]) -> float | None:
    """Return how long the reader still waits for its slow consumers: None for ever, 0 if they are to be left behind."""
    idle = [b.idle_s for b in backlogs if b.idle_s is not None]
    return max(0.0, PATIENCE_S - max(idle)) if idle else None
