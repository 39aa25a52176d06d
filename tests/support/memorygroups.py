"""Groups in memory, for members in one process: their table, and memberships."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta

import attrs

from cursorstore.groups.group import SLICES, _Membership
from cursorstore.groups.rows import Move, Standing, member_of, moved, view_of
from cursorstore.leases.term import DEFAULT_TTL
from rscylla._tokens import Slice
from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.clock import Clock, SystemClock

__all__ = ["MemoryGroupTable", "MemoryMembership"]


class MemoryGroupTable:
    """Groups in memory, for members in one process. They do what a ``ScyllaGroupTable`` does.

    Memberships expire by *clock*. A test may override its methods to delay or lose answers.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._groups)

    def read(self, name: str, *, serial: bool = False) -> GroupView | None:
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                return None
            members = (_member(group, token, left) for token, left in self._left(group))
            return view_of(name, group.count, group.planned, members, group.slices)

    def found(self, name: str, count: int) -> bool:
        with self._lock:
            return self._groups.setdefault(name, fresh := _Group(count)) is fresh

    def add(self, name: str, standing: Standing) -> bool:
        with self._lock:
            return self._write(name, standing)

    def keep(self, name: str, standing: Standing) -> bool:
        with self._lock:
            return self._is_there(name, standing.token) and self._write(name, standing)

    def drop(self, name: str, token: str) -> bool:
        with self._lock:
            there = self._is_there(name, token)
            if there:
                del self._groups[name].members[token]
            return there

    def take(self, name: str, count: int, standing: Standing, moves: Sequence[Move], gone: str) -> bool:
        with self._lock:
            group = self._groups[name]
            return (
                (group.count, group.planned) == (count, 0)
                and not self._is_there(name, gone)
                and self._swap(name, count, standing, moves)
            )

    def give(self, name: str, count: int, standing: Standing, moves: Sequence[Move]) -> bool:
        with self._lock:
            return self._swap(name, count, standing, moves)

    def drain(self, name: str, token: str, drains: bool) -> bool:
        with self._lock:
            there = self._is_there(name, token)
            if there:
                (self._groups[name].drains.add if drains else self._groups[name].drains.discard)(token)
            return there

    def plan(self, name: str, count: int, was: int, planned: int) -> bool:
        with self._lock:
            group = self._groups[name]
            if (group.count, group.planned) != (count, was):
                return False
            group.planned = planned
            return True

    def recount(self, name: str, count: int, planned: int) -> bool:
        with self._lock:
            group = self._groups[name]
            if (group.count, group.planned) != (count, planned):
                return False
            group.count, group.planned = planned, 0
            return True

    def _left(self, group: _Group) -> Iterator[tuple[str, float]]:
        now = self.clock.monotonic()
        return ((token, until - now) for token, (_, until) in group.members.items() if until > now)

    def _is_there(self, name: str, token: str) -> bool:
        group = self._groups.get(name)
        return group is not None and any(token == there for there, _ in self._left(group))

    def _write(self, name: str, standing: Standing) -> bool:
        self._groups[name].members[standing.token] = standing, self.clock.monotonic() + standing.ttl_s
        return True

    def _swap(self, name: str, count: int, standing: Standing, moves: Sequence[Move]) -> bool:
        slices = self._groups[name].slices
        last = {Slice(m.index, count): slices.get(Slice(m.index, count), GroupSlice(m.index)) for m in moves}
        if not self._is_there(name, standing.token) or any(
            s.epoch != m.epoch for s, m in zip(last.values(), moves, strict=True)
        ):
            return False
        slices.update((of, moved(s, m)) for (of, s), m in zip(last.items(), moves, strict=True))
        return self._write(name, standing)


class MemoryMembership(_Membership):
    """A membership in a group of a ``MemoryGroupTable``, for tests of services. It works like ``ScyllaMembership``.

    The members of a group share *table* and, unless *clock* is given, its clock: with a driven clock, memberships
    expire when the test says so. Without *table*, the member is alone.
    """

    def __init__(
        self,
        name: str,
        table: MemoryGroupTable | None = None,
        *,
        owner: str | None = None,
        slices: int | None = SLICES,
        ttl: timedelta = DEFAULT_TTL,
        margin: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        table = table or MemoryGroupTable(clock)
        super().__init__(table, name, owner, slices, ttl, margin, clock or table.clock)


@attrs.define(eq=False)
class _Group:
    """A group in memory. ``members``: what each wrote last, and until when it counts, by token."""

    count: int
    planned: int = 0
    members: dict[str, tuple[Standing, float]] = attrs.field(factory=dict)
    drains: set[str] = attrs.field(factory=set)
    slices: dict[Slice, GroupSlice] = attrs.field(factory=dict)


def _member(group: _Group, token: str, left_s: float) -> GroupMember:
    standing, _ = group.members[token]
    told = standing.owner, standing.since, left_s, standing.renewals, token in group.drains, standing.reads
    return member_of(token, *told)
