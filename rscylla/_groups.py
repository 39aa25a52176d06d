"""Groups of processes that share the slices of their consumers: what one read of a group shows."""

from __future__ import annotations

from datetime import datetime, timedelta

import attrs

__all__ = ["NOBODY", "GroupMember", "GroupSlice", "GroupView"]

NOBODY = ""
"""In place of a member's token: no member."""


@attrs.frozen
class GroupMember:
    """A process that is in a group, until it leaves or ``expires_in`` passes without a renewal.

    ``token`` identifies it: a process that joins again has another one. ``owner`` is its name, for people. ``renewals``
    is the number of times it has renewed its membership. ``drains``: it was asked to hand over its slices, and gets no
    others.
    """

    token: str
    owner: str
    since: datetime | None = None
    expires_in: timedelta = timedelta()
    renewals: int = 0
    drains: bool = False


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
