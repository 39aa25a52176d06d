"""``Group``: a process of a group, which shares the slices of its consumers with the other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

import attrs

from ...abc import Consumer, CursorStore, Membership
from ...errors import ConfigError
from ...options import StreamOption
from ...reflex import RunOptions, Sliceable, Spec, flat_specs, slice_specs

__all__ = ["Group", "SliceLanes", "group_lanes"]

SliceLanes = Callable[[int, int], Iterable[Spec | Iterable[Spec]]]
"""Returns the lanes of slice *index* of *count*, of all consumers of the group: one of each."""


@attrs.frozen(init=False)
class Group:
    """What a ``Service`` needs to share the slices of consumers with other processes.

    ``membership`` is the place of this process in the group, such as a ``cursorstore.ScyllaMembership``. The cursor
    store of the lanes has to have it, too: ``ScyllaCursorStore(..., lease=membership)``.

    Each of *lanes* is a function of the index of a slice and the number of slices. It is called when this process gets
    the slice, again each time, and returns the specs of that slice: ``billing[5/64]``, or both specs of a
    ``fast_and_sweep``. Together, the functions return the specs of all consumers and tables of the group. Build streams
    once, outside, and slice them in the function, so that the slices of a table are read together. ``group_lanes``
    returns such a function for the common case.
    """

    membership: Membership
    functions: tuple[SliceLanes, ...]

    def __init__(self, membership: Membership, *lanes: SliceLanes) -> None:
        if not lanes or not all(callable(function) for function in lanes):
            raise ConfigError(
                "Group: pass a function that returns the specs of a slice, such as rscylla.group_lanes returns"
            )
        self.__attrs_init__(membership, lanes)

    def lanes(self, index: int, count: int) -> tuple[Spec, ...]:
        """Return the specs of a slice, of all consumers of the group."""
        specs = (spec for function in self.functions for spec in flat_specs(function(index, count)))
        return tuple(attrs.evolve(spec, key_slice=(index, count)) for spec in specs)


def group_lanes(
    consumer: str,
    stream: Sliceable,
    store: CursorStore,
    make: Callable[[str], Consumer],
    *options: StreamOption,
    **more: Unpack[RunOptions],
) -> SliceLanes:
    """Return a function for ``Group`` that makes the lanes of a consumer; the arguments are those of ``slice_specs``.

    Args:
        make: returns the consumer of a slice; called with the name of the slice, such as ``billing[5/64]``.
    """

    def lanes(index: int, count: int) -> tuple[Spec, ...]:
        return slice_specs(consumer, count, stream, store, make, *options, only=[index], **more)

    return lanes
