"""The fence of a slice of a group: whether this process may work on the slice, and in which epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rscylla._tokens import Slice

from ..leases.term import Term

__all__ = ["Holdings", "SliceFence"]

_FRESH_NS = 1_000_000
"""How much later than its two clocks say a fence may turn false: much less than a margin."""


class Holdings:
    """The slices that a member holds, with their epochs. Changed by one thread at a time, and read by any."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.slices: Mapping[Slice, int] = {}  # set as a whole
        self.epochs: dict[Slice, int] = {}  # of all slices that were ever held

    def set(self, slices: Mapping[Slice, int]) -> None:
        # The epochs first: a slice that is held has its epoch.
        self.epochs.update(slices)
        self.slices = slices


class SliceFence:
    """The fence of one slice of a group. Implements ``rscylla.abc.Fence``."""

    def __init__(
        self, group: str, owner: str, key_slice: Slice, holdings: Holdings, outgrow: Callable[[int], None]
    ) -> None:
        self.name = key_slice.name(group)
        """The name of the group and the slice, such as ``workers[5/64]``."""
        self.owner = owner
        self._slice = key_slice
        self._holdings = holdings
        self.outgrow = outgrow
        """Raise the epoch of the slice, which is held, above one that a store has found."""
        self.held = _asker_of(key_slice, holdings)
        """Return whether this process may work on the slice now. Sends no query."""

    def __repr__(self) -> str:
        return f"<fence of slice {self.name!r}: {'held' if self.held() else 'not held'}, epoch {self.epoch}>"

    @property
    def epoch(self) -> int:
        """The epoch in which this process last held the slice, 0 before the first."""
        return self._holdings.epochs.get(self._slice, 0)


def _asker_of(key_slice: Slice, holdings: Holdings) -> Callable[[], bool]:
    """Return a function that returns whether *key_slice* is held now: a closure, because it is asked before each event.

    It reads the wall clock each time. The other one is read again when the wall clock stepped, or has advanced by
    ``_FRESH_NS``. Only a wall clock that steps back as far as the process was paused, to that precision, hides the
    pause, and for that long.
    """
    term = holdings.term
    monotonic, wall_ns = term.clocks
    # These slices were held then, and are until the wall clock says so. Set as a whole: several threads may ask.
    fresh: tuple[Mapping[Slice, int], int, int] = holdings.slices, 0, 0

    def held() -> bool:
        nonlocal fresh
        slices, after_ns, before_ns = fresh
        if holdings.slices is slices and after_ns < wall_ns() < before_ns:  # other slices when a membership has ended
            return True
        # The time is checked before the slices are read: after a new membership has begun, no old ones are there.
        until, now_ns = term.until, wall_ns()
        if monotonic() >= until[0] or now_ns >= until[1]:  # as ``Term.runs``
            return False
        slices = holdings.slices
        if key_slice not in slices:
            return False
        fresh = slices, now_ns, min(now_ns + _FRESH_NS, until[1])
        return True

    return held
