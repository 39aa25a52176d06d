"""Groups of processes that share the slices of their consumers: what one read of a group shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

import attrs

from .._tokens import slices_text

__all__ = ["NOBODY", "GroupMember", "GroupSlice", "GroupView"]

NOBODY = ""
"""In place of a member's token: no member."""


@attrs.frozen
class GroupMember:
    """A process that is in a group, until it leaves or ``expires_in`` passes without a renewal.

    ``token`` identifies it: a process that joins again has another one. ``owner`` is its name, for people. ``renewals``
    is the number of times it has renewed its membership. ``drains``: it was asked to hand over its slices, and gets no
    others. ``reads``: what it reads on each of its slices, as names of consumers and tables; None if it has not told.
    ``slices_stay``: a cursor of that is in a store that keeps its number of slices.
    """

    token: str
    owner: str
    since: datetime | None = None
    expires_in: timedelta = timedelta()
    renewals: int = 0
    drains: bool = False
    reads: frozenset[str] | None = None
    slices_stay: bool = False


@attrs.frozen
class GroupSlice:
    """A slice of a group, and who has it.

    ``holder`` is the token of a member, ``NOBODY``, or the token of a member that is no longer there, from which any
    other member may take the slice. ``epoch`` grows with each holder. ``owner``, ``since``, ``before`` and ``why`` are
    for people: the name of the holder, since when it has the slice, the name of the holder before, and how it got the
    slice.
    """

    index: int
    epoch: int = 0
    holder: str = NOBODY
    owner: str = ""
    since: datetime | None = None
    before: str = ""
    why: str = ""


@attrs.frozen
class GroupView:
    """A group as the database had it at one moment.

    ``count`` is the number of slices. ``next_count`` is the number that replaces it, 0 if none: from then on nobody
    takes a slice, and when all are free, their cursors are moved. ``members`` are those that are there, oldest first;
    ``slices`` are all slices of ``count``, by index.
    """

    name: str
    count: int
    next_count: int
    members: tuple[GroupMember, ...]
    slices: tuple[GroupSlice, ...]

    def member(self, token: str) -> GroupMember | None:
        """Return the member with *token*, None if it is not there."""
        return next((member for member in self.members if member.token == token), None)

    def holder(self, index: int) -> GroupMember | None:
        """Return the member that holds slice *index*; None if it is free, or its holder is no longer there."""
        return self.member(self.slices[index].holder)

    def unread(self, absent: Collection[str] = ()) -> tuple[str, ...]:
        """Return what nobody reads of the group, as far as the view shows, and why; nothing if all is read.

        Args:
            absent: tokens of members that act no more, although their membership has not expired yet.
        """
        if self.next_count:
            how = f"`rscylla group reslice {self.name} --to {self.next_count} --store KEYSPACE`"
            what = (
                f"its slices change from {self.count} to {self.next_count}, and nobody takes any until that has ended"
            )
            return (f"{what}; if no command is doing it, run {how}, or the same with --abort",)
        return (*self._without_holder(absent), *self._without_reader())

    def _held_by(self, member: GroupMember) -> list[int]:
        return [one.index for one in self.slices if one.holder == member.token]

    def _without_holder(self, absent: Collection[str]) -> Iterator[str]:
        if free := [one.index for one in self.slices if self.holder(one.index) is None]:
            yield f"nobody holds {slices_text(free)}{'' if self.members else ', because the group has no members'}"
        for member in self.members:
            if member.token in absent and (held := self._held_by(member)):
                yield f"{slices_text(held)}: held by {member.owner}, which does not renew its membership"

    def _without_reader(self) -> Iterator[str]:
        """Yield the slices whose holders do not run what other members do."""
        wanted = frozenset[str]().union(*(member.reads or () for member in self.members))
        for member in self.members:
            held, lacks = self._held_by(member), () if member.reads is None else sorted(wanted - member.reads)
            if held and lacks:
                yield (
                    f"{slices_text(held)}: not read by {_consumers(lacks)}, which {member.owner}, their holder, does "
                    "not run, and other members do; give services with different consumers groups of their own"
                )


def _consumers(names: Sequence[str]) -> str:
    """Return some names as text: ``consumer "billing"``."""
    shown = ", ".join(f'"{name}"' for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"consumer{'s' if len(names) > 1 else ''} {shown}{more}"


SHOWN = 3
"""How many names a text has, at most."""
