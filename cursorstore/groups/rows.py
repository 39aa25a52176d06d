"""What a table of groups keeps: values of its rows, for memberships and their storage."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from datetime import timedelta

import attrs

from rscylla._tokens import Slice
from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.errors import ConfigError

from ..cursors.codec import moment
from ..table import check_name

__all__ = [
    "MOST_SLICES",
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
            if not isinstance(names, list):
                raise TypeError(names)
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
