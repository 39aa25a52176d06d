"""The balance of a group: from a view of it, which slices a member takes, and which it gives to whom. Pure functions.

All members see the same group, so each computes the moves of all members, and makes its own. Views that differ in time
lead to moves that the next view makes good, and the conditional writes of the store reject what is no longer true.

The moves are the fewest that lead to fair shares. Shares stay the same while the members make their moves, so no slice
moves twice: a larger share belongs to a member that has one already, or else to the oldest, and not to who has more at
the moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

import attrs

from ...abc import NOBODY, GroupMember, GroupView

__all__ = ["Moves", "balance", "shares"]

_NONE: Mapping[int, str] = MappingProxyType({})


@attrs.frozen
class Moves:
    """What a member does now to bring the group into balance.

    ``take``: the free slices that it takes. ``give``: each slice that it gives away, and the member that gets it, or
    ``NOBODY``; the first one first. ``due``: for each free slice, the member that takes it. ``lacks``: how many slices
    the member waits for that others hold.
    """

    take: tuple[int, ...] = ()
    give: tuple[tuple[int, str], ...] = ()
    due: Mapping[int, str] = _NONE
    lacks: int = 0


def balance(
    view: GroupView,
    token: str,
    *,
    leaving: bool = False,
    absent: Collection[str] = (),
    first: Collection[int] = (),
) -> Moves:
    """Return the moves of the member *token*.

    - Each member gets a fair share, and the shares differ by at most one slice. Free slices go first to who lacks most.
      Members that still lack slices then get them from members that have more than their share.
    - A member that drains or leaves has no share, and gives all its slices away: to others, or else to nobody.
    - A member that has never renewed its membership gets slices that are free, or that have to move anyway, but none
      from a member that may keep them: a process that starts and dies repeatedly moves nothing.
    - While the number of slices is being changed, nobody takes a slice, and all are given to nobody.

    Args:
        leaving: whether the member is about to leave; the view does not show that.
        absent: members that do not do their part, and may be dead. They keep what they have, and get nothing.
        first: slices of this member that it gives away before others, such as those whose lanes have ended.
    """
    mine = [one.index for one in view.slices if one.holder == token]
    mine.sort(key=lambda index: (index not in first, -index))
    if view.next_count:
        return Moves(give=tuple((index, NOBODY) for index in mine))
    group = _Group.of(view, token if leaving else NOBODY, absent)
    free = [one.index for one in view.slices if view.holder(one.index) is None]
    lacks = {member: group.shares[member] - group.has[member] for member in group.shares}
    # Slices that have to move: a member that has too few gets them, whether it has renewed its membership or not.
    due = dict(zip(free, _by_need(lacks, len(free)), strict=False))
    give: list[tuple[str, str]] = []
    for giver in group.unfit:
        found = list(_by_need(lacks, group.has[giver]))
        found += [NOBODY] * (group.has[giver] - len(found))
        give += [(giver, to) for to in found]
    settled = {member: lack for member, lack in lacks.items() if lack < 0 or group.members[member].renewals}
    for giver in [member for member in settled if settled[member] < 0]:
        for to in _by_need(settled, -settled[giver]):
            give.append((giver, to))
            settled[giver] += 1
    return Moves(
        take=tuple(index for index, to in due.items() if to == token),
        give=tuple(zip(mine, [to for giver, to in give if giver == token], strict=False)),
        due=due,
        lacks=max(0, lacks.get(token, 0)),
    )


def shares(view: GroupView, *, leaving: str = NOBODY, absent: Collection[str] = ()) -> dict[str, int]:
    """Return how many slices each member of *view* has when the group is in balance, by token.

    Members that drain, the one that is *leaving*, and *absent* ones are left out.
    """
    return _Group.of(view, leaving, absent).shares


@attrs.frozen
class _Group:
    """A view with its slices counted. ``unfit`` members have to give all slices away."""

    members: dict[str, GroupMember]
    has: dict[str, int]
    shares: dict[str, int]
    unfit: tuple[str, ...]

    @classmethod
    def of(cls, view: GroupView, leaving: str, absent: Collection[str]) -> _Group:
        members = {member.token: member for member in view.members}
        has = dict.fromkeys(members, 0)
        for one in view.slices:
            if one.holder in has:
                has[one.holder] += 1
        unfit = tuple(token for token in members if members[token].drains or token == leaving)
        fit = [token for token in members if token not in unfit and token not in absent]
        kept = sum(has[token] for token in members if token not in unfit and token in absent)
        return cls(members, has, dict(_shares(fit, has, view.count - kept)), unfit)


def _shares(members: Iterable[str], has: Mapping[str, int], count: int) -> Iterator[tuple[str, int]]:
    fit = list(members)
    if not fit:
        return
    least, larger = divmod(count, len(fit))
    by_claim = sorted(fit, key=lambda token: has[token] <= least)  # stable: then the oldest
    for place, token in enumerate(by_claim):
        yield token, least + (place < larger)


def _by_need(lacks: dict[str, int], most: int) -> Iterator[str]:
    """Return up to *most* members that lack slices, who lacks most first; each counts as one slice less."""
    for _ in range(most):
        token = max(lacks, key=lambda one: lacks[one], default=NOBODY)
        if token == NOBODY or lacks[token] <= 0:
            return
        lacks[token] -= 1
        yield token
