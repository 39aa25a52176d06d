"""What a table of groups keeps and can do: the contract between memberships and their storage."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import attrs

from rscylla._tokens import Slice
from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.errors import ConfigError

from ..cursors.codec import moment
from ..table import check_name

__all__ = [
    "MOST_SLICES",
    "GroupRows",
    "Move",
    "Standing",
    "check_count",
    "check_group",
    "member_of",
    "moved",
    "packed",
    "view_of",
]


MOST_SLICES = 4096
"""A view has all slices, and a process looks every few seconds."""


@attrs.frozen
class Standing:
    """What a member writes of itself. ``token`` identifies it; everything expires after ``ttl_s``.

    ``reads``: what it reads, by ``packed``; None until that is known.
    """

    token: str
    owner: str
    since: str
    renewals: int
    ttl_s: int
    reads: bytes | None = None


@attrs.frozen
class Move:
    """A new holder of slice ``index``, if the slice still has ``epoch``; ``next`` is its epoch then, a higher one."""

    index: int
    epoch: int
    next: int
    holder: str
    owner: str
    since: str
    before: str
    why: str


class GroupRows(Protocol):
    """A table of groups. Thread-safe. Each write is atomic, and returns whether its conditions held.

    All methods raise ``SourceError`` if the storage does not answer: whether a write was applied is then known from a
    *serial* ``read``, and even after that it may still be applied as long as its conditions hold.
    """

    def names(self) -> list[str]:
        """Return the names of all groups, sorted."""

    def read(self, name: str, *, serial: bool = False) -> GroupView | None:
        """Return the group; None if it has never had a member."""

    def found(self, name: str, count: int) -> bool:
        """Store the group with *count* slices, unless it is there."""

    def add(self, name: str, standing: Standing) -> bool:
        """Add a member."""

    def keep(self, name: str, standing: Standing) -> bool:
        """Write what a member tells of itself again, if it is still there."""

    def drop(self, name: str, token: str) -> bool:
        """Remove a member if it is still there."""

    def take(self, name: str, count: int, standing: Standing, moves: Sequence[Move], gone: str) -> bool:
        """As ``give``, and only if the group has *count* slices and shall keep them, and member *gone* is not there."""

    def give(self, name: str, count: int, standing: Standing, moves: Sequence[Move]) -> bool:
        """Do all *moves* and ``keep``, or nothing: each slice of *count* must have its epoch, and the member exist."""

    def drain(self, name: str, token: str, drains: bool) -> bool:
        """Ask a member to hand over its slices, or no longer, if it is there."""

    def plan(self, name: str, count: int, was: int, planned: int) -> bool:
        """Set the next count to *planned*, 0 for none, if the group has *count* slices and the next count *was*."""

    def recount(self, name: str, count: int, planned: int) -> bool:
        """Set the number of slices to *planned* if it is *count*, and *planned* is its next count."""


def member_of(
    token: str, owner: str, since: str, left_s: float, renewals: int, drains: bool, reads: bytes | None
) -> GroupMember:
    """Return a member as a table has it."""
    return GroupMember(token, owner, moment(since), timedelta(seconds=left_s), renewals, drains, *_unpacked(reads))


def packed(names: Iterable[str], slices_stay: bool = False) -> bytes:
    """Return what a member tells in few bytes: each look reads that of all members, and many are alike."""
    return zlib.compress(json.dumps([sorted(names), slices_stay]).encode())


def _unpacked(told: bytes | None) -> tuple[frozenset[str] | None, bool]:
    """Return what was packed; None for names that are not there, or that another release packs in another way."""
    try:
        if told is not None:
            names, slices_stay = json.loads(zlib.decompress(told))
            return frozenset(names), slices_stay is True
    except (zlib.error, ValueError, TypeError):
        pass
    return None, False


def view_of(
    name: str, count: int, planned: int, members: Iterable[GroupMember], slices: Mapping[Slice, GroupSlice]
) -> GroupView:
    """Return the view of a group with the slices of *count* that were ever held."""
    return GroupView(
        name,
        count,
        planned,
        tuple(sorted(members, key=lambda member: (member.since is None, member.since, member.token))),
        tuple(slices.get(Slice(index, count)) or GroupSlice(index) for index in range(count)),
    )


def moved(last: GroupSlice, move: Move) -> GroupSlice:
    """Return a slice after *move*."""
    return GroupSlice(last.index, move.next, move.holder, move.owner, moment(move.since), move.before, move.why)


def check_group(name: str) -> None:
    """Raise ``ConfigError`` if *name* cannot be the name of a group."""
    check_name("a group's name", name)


def check_count(count: int) -> None:
    """Raise ``ConfigError`` if a group cannot have *count* slices."""
    if type(count) is not int or not 0 < count <= MOST_SLICES:
        raise ConfigError(f"a group has 1 to {MOST_SLICES} slices, not {count!r}")
