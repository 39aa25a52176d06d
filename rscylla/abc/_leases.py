"""Who may act: leases, fences, and memberships in groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, runtime_checkable

from ..clock import Stop
from ._groups import GroupView

__all__ = ["Fence", "Fencing", "Lease", "Membership"]


class Fence(Protocol):
    """What a cursor store asks before it reads or saves a cursor. A ``Lease`` is one, for all cursors. Thread-safe."""

    @property
    def name(self) -> str:
        """What the epochs belong to: only fences of one name are compared."""

    @property
    def owner(self) -> str:
        """The name of this owner, for people."""

    @property
    def epoch(self) -> int:
        """The epoch of this owner, 0 before the first. Each new holder gets a higher one."""

    def held(self) -> bool:
        """Return whether this owner may act now. Sends no query; turns false before another owner can begin."""

    def outgrow(self, epoch: int) -> None:
        """Raise the epoch of this owner, who holds the fence, above *epoch*.

        Called by a store that finds epochs of this name which are not below that of the holder: the table in which they
        are counted was emptied, restored, or exchanged for another one. Sends a query; without effect if the epoch is
        above *epoch* already.

        Raises:
            LeaseLost: another owner holds the fence, whose epoch *epoch* may be.
            SourceError: the store did not answer; the next call finds out the result of this one.
        """


@runtime_checkable
class Fencing(Protocol):
    """Gives each consumer a fence of its own. A ``Membership`` does, by the slice in its name. Thread-safe."""

    def fence_of(self, consumer: str) -> Fence:
        """Return the fence of *consumer*, always the same while the process lives.

        Raises:
            ConfigError: the name is not that of a slice of the group.
        """


class Membership(Fencing, Protocol):
    """The membership of a process in a group that shares slices. Thread-safe. One object is one process.

    It decides nothing: the process joins, renews every ``renew_every`` seconds, looks every ``look_every`` seconds, and
    takes and gives slices as it finds right. Conditional writes see to it that each slice has one holder, and that a
    process whose membership has ended takes nothing and gives nothing. Who holds a slice may act on it while the
    ``held()`` of its fence is true.

    All methods but ``held`` and ``fence_of`` send queries, and raise ``SourceError`` if the store does not answer; the
    next ``look`` then finds out whether the call had its effect. Until then, slices that the call would have given are
    not held.
    """

    @property
    def name(self) -> str:
        """The name of the group."""

    @property
    def owner(self) -> str:
        """The name of this process, for people."""

    @property
    def token(self) -> str:
        """What the group knows this member by; ``NOBODY`` once its time is over. Each ``join`` makes a new one.

        Sends no query.
        """

    @property
    def renew_every(self) -> float:
        """Seconds from one ``renew`` to the next; short enough that some renewals may fail."""

    @property
    def look_every(self) -> float:
        """Seconds from one ``look`` to the next."""

    def join(self) -> None:
        """Become a member, without slices. The first member stores its number of slices, and the others use that.

        Raises:
            ConfigError: the group is new, and this process was given no number of slices.
            LeaseLost: the answer arrived after the time of the membership had ended; join again.
            SourceError: the store did not answer.
        """

    def announce(self, reads: Iterable[str], *, slices_stay: bool = False) -> None:
        """Have the next renewal tell the other members what this process reads on each of its slices. Sends no query.

        Args:
            reads: names that mean the same in all members: those of whole consumers, and of their tables.
            slices_stay: whether a cursor of them is in a store that keeps its number of slices.
        """

    def renew(self) -> None:
        """Extend the membership: its full duration starts again.

        Raises:
            LeaseLost: it had ended; nothing is held, and the process must join again.
            SourceError: the store did not answer; the membership lasts until it expires, so try again.
        """

    def drain(self) -> None:
        """Tell the others that this member is about to leave: views show it as one that drains, and it gets no slices.

        Raises:
            SourceError: the store did not answer; slices may come until this member has left.
        """

    def leave(self) -> None:
        """End the membership, so that others can take at once what this member has not given. Nothing is held then."""

    def look(self) -> GroupView:
        """Return the group, and begin to hold the slices that other members gave to this one.

        Slices whose hand-over failed are held again, in a new epoch.
        Slices that the view shows in the hands of others are no longer held.
        """

    def take(self, view: GroupView, indexes: Collection[int]) -> frozenset[int]:
        """Take slices that *view* shows as free, or with a holder that is not there; return those that are held now.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer.
        """

    def give(self, index: int, to: str) -> bool:
        """Hand slice *index* to the member *to*, or to ``NOBODY``; return whether it was still this member's to give.

        The work on the slice must have ended, with its cursors saved: from the call on, it is not held.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer.
        """

    def held(self) -> frozenset[int]:
        """Return the slices that this process may work on now. Sends no query."""


class Lease(Fence, Protocol):
    """Permission to work under a name, for one owner at a time, until it expires. Thread-safe.

    One object is one owner. It does not renew itself: the owner that acquired it calls ``renew`` every
    ``renew_every`` seconds, and stops working when ``held`` is false.
    """

    @property
    def name(self) -> str:
        """The name of the lease."""

    @property
    def owner(self) -> str:
        """The name of this owner, for people."""

    @property
    def epoch(self) -> int:
        """Fencing epoch of this owner's last acquisition, 0 before the first. Each new holder gets a higher one."""

    @property
    def renew_every(self) -> float:
        """Seconds from one ``renew`` to the next; short enough that some renewals may fail."""

    @property
    def trouble(self) -> str:
        """Why the lease may have no holder now; "" while this owner, or as far as it knows another, has it. No query.

        The readiness of a standby asks it.
        """

    def held(self) -> bool:
        """Return whether this owner may act now. Sends no query; turns false before another owner can acquire."""

    def try_acquire(self) -> bool:
        """Acquire the lease if it is free or expired, with a new epoch; return whether this owner holds it now.

        Raises:
            SourceError: the store did not answer. A later call finds out the result of this one.
        """

    def acquire(self, stop: Stop | None = None) -> int:
        """Stand by until the lease is acquired, and return its epoch. Temporary errors are retried.

        Raises:
            Stopped: *stop* was set first.
            RscyllaError: an error that a retry cannot fix.
        """

    def renew(self) -> None:
        """Extend the lease: its full duration starts again. Called by its holder.

        Raises:
            LeaseLost: the lease is no longer held, and must be acquired again.
            SourceError: the store did not answer; the lease is held until it expires, so try again.
        """

    def release(self) -> None:
        """Release the lease if it is held, so that others can acquire it at once. This owner no longer holds it.

        Raises:
            SourceError: the store did not answer; the lease expires by itself.
        """
