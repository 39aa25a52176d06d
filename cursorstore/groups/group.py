"""Groups: processes that share slices, each with a membership that expires like a lease.

The row of a member expires by TTL. Each slice has an epoch, which grows with each holder and never expires. One
conditional write moves slices: it also renews the row of the member that writes, if it is still there, so a member
whose membership has ended moves nothing. To take a slice from another member, the write also requires that the row of
that member is gone. So a slice has one holder, whose membership lasts at least as long as the holder believes
(``_term.py``).

The answer to a write may be lost. A serial read tells what was applied by then, but a write that is still on its way
may be applied after it. That is harmless for a slice that is taken. A slice whose hand-over is in doubt is not held
until ``look`` has raised its epoch, so that the hand-over can no longer be applied. Sources: those of ``lease.py``.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby

import attrs

from rscylla._tokens import FAST, Slice, slice_named
from rscylla.abc import NOBODY, Fence, GroupSlice, GroupView
from rscylla.clock import Clock
from rscylla.errors import ConfigError, ConnectionFailed, LeaseLost, QueryTimeout

from ..cursors.codec import format_us
from ..leases.term import Holder
from .fence import Holdings, SliceFence
from .rows import MOST_SLICES, Move, Standing, check_count, check_group, moved, packed
from .table import ScyllaGroupTable

__all__ = ["SLICES"]

_log = logging.getLogger("rscylla.cursorstore")

SLICES = 64
"""Slices of a group unless it is told otherwise."""

_LOOK_EVERY = 2.0
"""Seconds between looks, at most: a look is one read, of one partition."""

_AT_ONCE = 16
"""Slices that one write takes, at most."""

_REGROWN = "its epochs were lost"
"""Why a slice has an epoch that is not the next one."""

_UNKNOWN = (QueryTimeout, ConnectionFailed)
"""Errors of a write that may have been applied."""


class _Membership(Holder):
    """The common part of all memberships."""

    def __init__(
        self,
        rows: ScyllaGroupTable,
        name: str,
        owner: str | None,
        slices: int | None,
        ttl: timedelta,
        margin: timedelta | None,
        clock: Clock | None,
    ) -> None:
        check_group(name)
        if slices is not None:
            check_count(slices)
        super().__init__("a membership", name, owner, ttl, margin, clock)
        self.look_every = min(_LOOK_EVERY, self.renew_every)
        """Seconds between calls of ``look``."""
        self._rows = rows
        self._slices = slices
        self._holdings = Holdings(self._term)
        self._lock = threading.Lock()  # held over queries; held() does not wait for them
        self._token = NOBODY
        self._since = ""
        self._renewals = 0
        self._reads: bytes | None = None  # what this process reads
        self._unsure = False  # a write may have been applied, or not
        self._names: Mapping[str, str] = {}  # of the members of the last view, by token
        self._counts: frozenset[int] = frozenset()  # numbers of slices that the group has had
        self._differs = False  # from the group's number of slices, which was told
        self._giving: dict[Slice, int] = {}  # epochs of hand-overs whose result is not known
        self._fences: dict[str, SliceFence] = {}

    def __repr__(self) -> str:
        state = f"holds {len(self.held())} slices" if self._term.runs() else "no member"
        return f"<{type(self).__name__} {self.name!r} of {self.owner}: {state}>"

    @property
    def token(self) -> str:
        """What the group knows this member by, "" once its time is over. Each ``join`` makes a new one. No query."""
        return self._token if self._term.runs() else NOBODY

    def held(self) -> frozenset[int]:
        """Return the slices that this process may work on now. Sends no query."""
        return frozenset(s.index for s in self._holdings.slices) if self._term.runs() else frozenset()

    def fence_of(self, consumer: str) -> Fence:
        """Return the fence of the slice that *consumer* is of, or a lane of it, by its name.

        Raises:
            ConfigError: the name is not that of a slice of the group.
        """
        fence = self._fences.get(consumer)
        if fence is None:
            key_slice = self._slice_of(consumer)
            fence = SliceFence(self.name, self.owner, key_slice, self._holdings, partial(self._outgrow, key_slice))
            fence = self._fences.setdefault(consumer, fence)
        return fence

    def _slice_of(self, consumer: str) -> Slice:
        known = self._counts or frozenset({self._slices or SLICES})
        # Until it has joined, this process does not know the number of slices, and holds none.
        counts = self._counts or range(1, MOST_SLICES + 1)
        sliced = [slice_named(name, counts) for name in (consumer, consumer.removesuffix(FAST))]
        found = next((part for part in sliced if part is not None and part.count > 1), None)
        if found is None and 1 in known:
            found = Slice(0, 1)
        if found is not None:
            return found
        numbers = " or ".join(map(str, sorted(known)))
        raise ConfigError(
            f"consumer {consumer!r} has no slice of group {self.name!r}, which has {numbers} slices; consumers of the "
            f"group are named like {Slice(0, max(known)).name('NAME')!r}. Give other consumers a "
            "cursor store without this membership"
        )

    def join(self) -> None:
        """Become a member, without slices; the first member of a group stores the number of slices.

        Raises:
            ConfigError: the group has no number of slices, and this process was not given one.
            LeaseLost: the answer arrived after the time of the membership had ended; join again.
            SourceError: the store did not answer.
        """
        with self._lock:
            if self._term.runs():
                return
            self._forget()
            view = self._founded()
            token, self._since, self._renewals = str(uuid.uuid4()), format_us(self._clock.now_us()), 0
            self._token = token
            began = self._term.now()
            try:
                self._rows.add(self.name, self._standing())
            except _UNKNOWN as e:
                _log.info("group %r: the result of joining is unknown (%s); reading it", self.name, type(e).__name__)
                self._token = NOBODY
                found = self._rows.read(self.name, serial=True)
                if found is None or found.member(token) is None:
                    raise
                self._token = token
            except BaseException:
                self._token = NOBODY
                raise
            self._term.extend(began)
            if not self._term.runs():
                raise self._lost("the answer arrived after its time had ended")
            self._learn(view)
            # Once, and not to a process that has seen the group with its number: that one was changed by an operator.
            if self._slices is not None and self._slices not in self._counts and not self._differs:
                self._differs = True
                _log.warning(
                    "group %r has %d slices, not the %d that %s was given; the number of the group counts",
                    *(self.name, view.count, self._slices, self.owner),
                )
            _log.info("group %r: %s has joined", self.name, self.owner)

    def _founded(self) -> GroupView:
        """Return the group, stored first if it is new."""
        view = self._rows.read(self.name)
        if view is None:
            if self._slices is None:
                raise ConfigError(f"group {self.name!r} does not exist yet; give its number of slices with slices=")
            failed: Exception | None = None
            try:
                self._rows.found(self.name, self._slices)
            except _UNKNOWN as e:
                failed = e
            view = self._rows.read(self.name, serial=True)
            if view is None:
                raise failed or QueryTimeout(f"group {self.name!r} could not be stored; try again")
        return view

    def announce(self, reads: Iterable[str], *, slices_stay: bool = False) -> None:
        """Have the next renewal tell the others what this process reads on each of its slices. No query."""
        self._reads = packed(reads, slices_stay)

    def renew(self) -> None:
        """Extend the membership: its full duration starts again.

        Raises:
            LeaseLost: it had ended; nothing is held. Join again.
            SourceError: the store did not answer; the membership lasts until it expires, so try again.
        """
        with self._lock:
            self._check()
            began = self._term.now()
            self._renewals += 1
            if not self._rows.keep(self.name, self._standing()):
                raise self._lost("it expired, or its row was changed manually")
            self._extend(began)

    def drain(self) -> None:
        """Tell the others that this member is about to leave: views show it as one that drains, and it gets no slices.

        Raises:
            SourceError: the store did not answer; slices may come until this member has left.
        """
        with self._lock:
            if self._token != NOBODY:
                self._rows.drain(self.name, self._token, True)

    def leave(self) -> None:
        """End the membership, so that others can take its slices at once. Nothing is held from the call on.

        Raises:
            SourceError: the store did not answer; the membership expires by itself.
        """
        with self._lock:
            token = self._token
            self._forget()
            if token != NOBODY and self._rows.drop(self.name, token):
                _log.info("group %r: %s has left", self.name, self.owner)

    def look(self) -> GroupView:
        """Return the group, and begin to hold the slices that other members gave to this one.

        Raises:
            ConfigError: the group does not exist yet.
            SourceError: the store did not answer.
        """
        with self._lock:
            view = self._read()
            return self._reclaimed(view) if self._giving else view

    def take(self, view: GroupView, indexes: Collection[int]) -> frozenset[int]:
        """Take slices that *view* shows as free, or with a holder that is not there; return those that are held now.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer.
        """
        with self._lock:
            self._check()
            self._learn(view)
            wanted = [view.slices[index] for index in sorted(set(indexes))]
            if not view.next_count:
                free = [s for s in wanted if s.holder != self._token and view.member(s.holder) is None]
                for gone, batch in _batches(free):
                    self._take(view.count, gone, batch)
            held = self._holdings.slices if self._term.runs() else {}
            return frozenset(s.index for s in wanted if Slice(s.index, view.count) in held)

    def give(self, index: int, to: str) -> bool:
        """Hand slice *index* to the member *to*, or to ``NOBODY``; return whether it was still this member's to give.

        Raises:
            LeaseLost: the membership has ended.
            SourceError: the store did not answer; the slice is not held until ``look`` finds out.
        """
        with self._lock:
            self._check()
            mine = {**self._giving, **self._holdings.slices}
            key_slice = next((s for s in mine if s.index == index), None)
            if key_slice is None:
                return False
            epoch = mine[key_slice]
            self._giving[key_slice] = epoch
            self._holdings.set({s: e for s, e in self._holdings.slices.items() if s != key_slice})
            why = "handed over" if to != NOBODY else "let go"
            move = self._move(index, epoch, to, self._names.get(to, ""), self.owner, why)
            began = self._term.now()
            failed: Exception | None = None
            try:
                if self._rows.give(self.name, key_slice.count, self._standing(), [move]):
                    self._giving.pop(key_slice)
                    self._extend(began)
                    return True
            except _UNKNOWN as e:
                failed = e
            self._settle("giving slice", [index], failed)
            # While this member is there, only its own writes change the epoch.
            if key_slice not in self._giving:
                return True
            raise failed or QueryTimeout(f"giving slice {index} of group {self.name!r} was refused; look again")

    def _outgrow(self, key_slice: Slice, epoch: int) -> None:
        """Raise the epoch of a slice that is held above *epoch*; see ``Fence.outgrow``.

        The conditional write shows that this process holds the slice, so the epoch that was found is none of a later
        holder: it is from before the table was emptied or restored.
        """
        with self._lock:
            self._check()
            own = self._holdings.slices.get(key_slice)
            if own is not None and own > epoch:
                return
            failed: Exception | None = None
            if own is not None:
                move = self._move(key_slice.index, own, self._token, self.owner, self.owner, _REGROWN, above=epoch)
                began = self._term.now()
                try:
                    if self._rows.give(self.name, key_slice.count, self._standing(), [move]):
                        self._holdings.set({**self._holdings.slices, key_slice: move.next})
                        self._extend(began)
                        _log.warning(
                            "group %r: slice %d continues with epoch %d, above one that was found with a cursor: rows "
                            "of the group were deleted or restored, or it is in another table than before",
                            *(self.name, key_slice.index, move.next),
                        )
                        return
                except _UNKNOWN as e:
                    failed = e
                self._settle("raising the epoch of slice", [key_slice.index], failed)
            if self._holdings.slices.get(key_slice, 0) <= epoch:
                name = key_slice.name(self.name)
                raise failed or LeaseLost(f"{self.owner} does not hold slice {name!r}; another member took it")

    def _take(self, count: int, gone: str, batch: Sequence[GroupSlice]) -> None:
        why = "was free" if gone == NOBODY else "holder gone"
        moves = [self._move(s.index, s.epoch, self._token, self.owner, s.owner or s.before, why) for s in batch]
        began = self._term.now()
        failed: Exception | None = None
        try:
            if self._rows.take(self.name, count, self._standing(), moves, gone):
                self._holdings.set({**self._holdings.slices, **{Slice(m.index, count): m.next for m in moves}})
                self._extend(began)
                return
        except _UNKNOWN as e:
            failed = e
        # If the driver retries, its first attempt may make the second one fail, so a refusal is checked, too.
        self._settle("taking slices", [m.index for m in moves], failed)

    def _settle(self, doing: str, indexes: Sequence[int], failed: Exception | None) -> None:
        """Find out what a write did whose answer was a refusal or did not come."""
        if failed:
            _log.info(
                "group %r: the result of %s %s is unknown (%s); reading it",
                *(self.name, doing, ", ".join(map(str, indexes)), type(failed).__name__),
            )
        self._unsure = True
        self._read()
        if self._token == NOBODY:
            raise self._lost("it expired, or its row was changed manually")

    def _read(self) -> GroupView:
        view = self._rows.read(self.name, serial=self._unsure)
        if view is None:
            if self._token != NOBODY:
                self._forget()
            raise ConfigError(f"group {self.name!r} does not exist; no process has joined it yet")
        self._unsure = False
        self._note(view)
        return view

    def _reclaimed(self, view: GroupView) -> GroupView:
        """Return *view* with the slices held again whose hand-over was not applied, in an epoch in which it cannot be.

        Errors are left to the next look: until then, the slices are not held.
        """
        for key_slice, epoch in list(self._giving.items()):
            if not self._term.runs():
                break
            move = self._move(key_slice.index, epoch, self._token, self.owner, self.owner, "hand-over failed")
            began = self._term.now()
            try:
                done = self._rows.give(self.name, key_slice.count, self._standing(), [move])
            except _UNKNOWN:
                self._unsure = True
                continue
            if done:
                self._giving.pop(key_slice)
                self._holdings.set({**self._holdings.slices, key_slice: move.next})
                self._term.extend(began)
                slices = list(view.slices)
                slices[key_slice.index] = moved(slices[key_slice.index], move)
                view = attrs.evolve(view, slices=tuple(slices))
            else:
                self._unsure = True
        return view

    def _learn(self, view: GroupView) -> None:
        self._counts |= {view.count, view.next_count or view.count}

    def _note(self, view: GroupView) -> None:
        """Hold what *view* shows as held by this member, and nothing else."""
        self._learn(view)
        self._names = {member.token: member.owner for member in view.members}
        if self._token == NOBODY:
            return
        if view.member(self._token) is None and self._term.begun:
            _log.warning("group %r: %s is no longer a member", self.name, self.owner)
            self._forget()
            return
        mine = {Slice(s.index, view.count): s.epoch for s in view.slices if s.holder == self._token}
        self._giving = {s: epoch for s, epoch in self._giving.items() if mine.get(s) == epoch}
        self._holdings.set({s: epoch for s, epoch in mine.items() if s not in self._giving})

    def _forget(self) -> None:
        # The slices first: none of them may still be there when a new membership begins.
        self._holdings.set({})
        self._giving = {}
        self._term.end()
        self._token = NOBODY

    def _check(self) -> None:
        if not self._term.runs():
            raise self._lost("it was not renewed in time" if self._term.begun else "it has not joined, or has left")

    def _extend(self, began: tuple[float, int]) -> None:
        self._term.extend(began)
        if not self._term.runs():
            raise self._lost("the answer arrived after its time had ended")

    def _lost(self, why: str) -> LeaseLost:
        self._forget()
        return LeaseLost(
            f"{self.owner} is no member of group {self.name!r}: {why}; stop the work on its slices, and join again"
        )

    def _standing(self) -> Standing:
        return Standing(self._token, self.owner, self._since, self._renewals, self._term.ttl_s, self._reads)

    def _move(
        self, index: int, epoch: int, to: str, owner: str, before: str, why: str, *, above: int | None = None
    ) -> Move:
        """Return a move to the next epoch, or to the one above *above*."""
        after = (epoch if above is None else above) + 1
        return Move(index, epoch, after, to, owner, format_us(self._clock.now_us()), before, why)


def _batches(slices: Iterable[GroupSlice]) -> Iterator[tuple[str, Sequence[GroupSlice]]]:
    """Yield slices that one write can take, and the member that must be gone for that, ``NOBODY`` if none.

    Slices that were never held are apart, so that few different statements are prepared.
    """
    for (gone, _), group in groupby(sorted(slices, key=_kind), key=_kind):
        batch = list(group)
        for first in range(0, len(batch), _AT_ONCE):
            yield gone, batch[first : first + _AT_ONCE]


def _kind(key_slice: GroupSlice) -> tuple[str, bool]:
    return key_slice.holder, not key_slice.epoch
