"""``SliceKeeper``: takes and gives the slices of a group for one process, as the balance of the group says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue

import attrs

from ..._tokens import Slice, slices_text
from ...abc import NOBODY, GroupView, Membership
from ...clock import Clock, Stop
from ...errors import LeaseLost
from ..lease import LeasedStop, is_unanswered
from .balance import Moves, balance

__all__ = ["Absentees", "Lifespans", "SliceKeeper"]

log = logging.getLogger("rscylla.service")

ALONE_S = 1.0
"""A slice that moves is the only one, unless its lanes take longer than this to end: then the next one moves, too."""

SOONER = 8
"""How much more often the group is looked at while slices move."""


@attrs.define
class _Tenure:
    """A slice whose lanes run here. ``asked_at``: when its lanes were asked to end. ``gone``: they have ended."""

    count: int
    signal: LeasedStop
    asked_at: float | None = None
    gone: bool = False


class Absentees:
    """Notices members that leave slices lying that are theirs to take: until they renew, they may be dead.

    Without this, free slices would wait for a dead member until it expires, and for a process that starts and dies
    repeatedly for ever.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._due: dict[tuple[int, int], tuple[str, float]] = {}  # by slice and epoch: who, and since when
        self._absent: dict[str, int] = {}  # the renewals of each when it was noticed

    def of(self, view: GroupView) -> frozenset[str]:
        """Return the members of *view* that are absent."""
        renewals = {member.token: member.renewals for member in view.members}
        self._absent = {token: seen for token, seen in self._absent.items() if renewals.get(token) == seen}
        return frozenset(self._absent)

    def note(self, view: GroupView, due: Mapping[int, str], token: str, now: float) -> bool:
        """Note which free slices are due to whom; return whether a member other than *token* is absent since now."""
        noticed = False
        last, self._due = self._due, {}
        for index, member in due.items():
            key = index, view.slices[index].epoch
            known, since = last.get(key, ("", now))
            self._due[key] = member, since = member, since if known == member else now
            there = view.member(member)
            if there is not None and member != token and now - since >= self._patience_s:
                self._absent[member] = there.renewals
                noticed = True
        return noticed


class Lifespans:
    """Remembers how long the membership of each member lasts, to tell who does not renew it.

    A member that has little of that time left has missed its renewals, and holds nothing any more by its own clocks.
    """

    def __init__(self) -> None:
        self._longest: Mapping[str, timedelta] = {}

    def note(self, view: GroupView) -> None:
        """Note how long the members of a new view have left."""
        longest = self._longest
        self._longest = {m.token: max(m.expires_in, longest.get(m.token, m.expires_in)) for m in view.members}

    def over(self, view: GroupView, age: timedelta) -> frozenset[str]:
        """Return the members of *view*, which is *age* old, that do not renew. Any thread."""
        longest = self._longest
        return frozenset(
            m.token for m in view.members if m.expires_in - age <= longest.get(m.token, m.expires_in) * LEFT
        )


LEFT = 0.25
"""Part of its time that a member which renews has at least left: the usual margin."""


class SliceKeeper:
    """Looks at a group again and again while this process is a member, in a thread of its own, for one membership.

    Slices come and go one by one: the lanes of a slice end before it is given away, and a slow one holds up no other.

    Args:
        term: set when the membership is over, which ends the keeper.
        come: called with the number of slices, and the stop signals of slices whose lanes are to start, by index.
        go: called with the index and the stop signal of a slice whose lanes have to end; ``gone`` answers.
        over: called with the keeper when it ends, and the error that ended it if there is one.
        renew: renews the membership soon.
        moved: called with the reason and the number of slices that came or went.
    """

    def __init__(
        self,
        membership: Membership,
        clock: Clock,
        term: Stop,
        *,
        come: Callable[[SliceKeeper, int, Mapping[int, LeasedStop]], None],
        go: Callable[[SliceKeeper, int, LeasedStop], None],
        over: Callable[[SliceKeeper, Exception | None], None],
        renew: Callable[[], None],
        moved: Callable[[str, int], None],
    ) -> None:
        self._membership = membership
        self._clock = clock
        self._term = term
        self._come = come
        self._go = go
        self._over = over
        self._renew = renew
        self._moved = moved
        self._absentees = Absentees(1.5 * membership.look_every)
        self.lifespans = Lifespans()
        self._tenures: dict[int, _Tenure] = {}
        self._targets: dict[int, str] = {}
        self._had = frozenset[int]()
        self._ended: SimpleQueue[LeasedStop] = SimpleQueue()
        self._wake = Stop()
        self._leaving = False
        self._told = False
        self._abandoned = False
        self._began_at = clock.monotonic()
        self._look_at = self._began_at
        self._settled = False
        self.view: GroupView | None = None
        """The last view of the group; None before the first."""
        self.viewed_at = 0.0
        """When the view was read, by the monotonic clock."""
        self._thread = threading.Thread(target=self._work, name="rscylla-group", daemon=True)
        term.on_set(self._look_now)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def gone(self, signal: LeasedStop) -> None:
        """Report that the lanes with this stop signal have ended, or were not started. Any thread."""
        self._ended.put(signal)
        self._look_now()

    def leave(self) -> None:
        """Take no more slices, hand all over to others as their lanes end, and end."""
        self._leaving = True
        self._look_now()

    def abandon(self) -> None:
        """End without waiting for lanes."""
        self._abandoned = True
        self._look_now()

    def join(self, seconds: float) -> bool:
        """Wait until the keeper has ended, at most *seconds* of real time; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ the keeper's thread

    def _look_now(self) -> None:
        self._wake.set()

    def _work(self) -> None:
        failure: Exception | None = None
        try:
            while not self._is_over():
                self._step()
                if not self._is_over():
                    self._clock.wait(self._wake, max(0.0, self._look_at - self._clock.monotonic()))
                    self._wake = Stop()  # what was reported before this is seen by the next step
                    if self._term.is_set():
                        self._wake.set()
        except LeaseLost as lost:
            log.warning("%s", lost)
            self._renew()
        except Exception as error:  # noqa: BLE001 - ends the service
            failure = error
        finally:
            if failure is None and not self._leaving and not self._abandoned:  # then the membership is over
                self._count(
                    "lost", {i for i, one in self._tenures.items() if one.asked_at is None or i in self._targets}
                )
            self._over(self, failure)

    def _is_over(self) -> bool:
        return self._abandoned or self._term.is_set() or (self._leaving and not self._tenures and self.view is not None)

    def _step(self) -> None:
        """Give what can be given; look, and do what the balance says."""
        try:
            while self._follow():
                pass
        except Exception as error:
            if not is_unanswered(error):
                raise
            log.warning('group "%s" does not answer: %s', self._membership.name, error)
            self._look_at = self._clock.monotonic() + self._membership.look_every
            if self._leaving and all(tenure.gone for tenure in self._tenures.values()):
                self._abandoned = True  # what was not handed over is free when this process has left

    def _follow(self) -> bool:
        """Do one round; return whether another has to follow at once."""
        if self._leaving and not self._told:
            # Or others that leave, too, would give slices to this process, and this one to them, until one has left.
            self._membership.drain()
            self._told = True
        self._hand_over()
        membership, now = self._membership, self._clock.monotonic()
        view = membership.look()
        self.lifespans.note(view)
        self.view, self.viewed_at = view, now
        token = membership.token
        me = view.member(token)
        if me is None:
            self._renew()  # finds out that the membership is over
            self._look_at = now + membership.look_every
            return False
        held = self._held(view)
        self._drop_lost(view, held)
        ending = [index for index, tenure in self._tenures.items() if tenure.asked_at is not None]
        absent = self._absentees.of(view) - {token}
        plan = balance(view, token, leaving=self._leaving, absent=absent, first=ending)
        if self._absentees.note(view, plan.due, token, now):
            return True
        self._count("received", held - self._had)
        again = False
        if plan.take and not self._leaving:
            before = held
            membership.take(view, plan.take)
            held = self._held(view)
            self._count("taken", held - before)
            again = held != before
        self._targets = dict(plan.give)
        again |= self._give_idle(held)
        self._had = self._held(view)
        self._start(view.count, held)
        self._end_lanes(plan, everything=self._leaving or bool(view.next_count))
        if not me.renewals and not self._settled and now - self._began_at >= membership.look_every:
            self._settled = True  # a process that has lived for two looks does not flap
            self._renew()
        self._look_at = now + self._pause_s(view, plan, settled=me.renewals > 0)
        return again

    def _held(self, view: GroupView) -> frozenset[int]:
        """Return the slices that are held, out of those of *view*."""
        return frozenset(index for index in self._membership.held() if index < view.count)

    def _drop_lost(self, view: GroupView, held: frozenset[int]) -> None:
        for index, tenure in self._tenures.items():
            if index not in held or tenure.count != view.count or tenure.signal.is_set():
                if tenure.asked_at is None and not self._leaving:
                    self._count("lost", {index})
                self._ask(index, tenure)

    def _hand_over(self) -> None:
        """Give the slices whose lanes have ended to whom the last plan named."""
        ended = set()
        with suppress(Empty):
            while True:
                ended.add(self._ended.get_nowait())
        for tenure in self._tenures.values():
            # By the signal: lanes of the same slice may have been started again since they were reported.
            tenure.gone = tenure.gone or tenure.signal in ended
        held = self._membership.held()
        for index, tenure in list(self._tenures.items()):
            if tenure.gone:
                to = self._targets.get(index)
                if index in held and to is not None and self.view is not None and tenure.count == self.view.count:
                    self._give(index, to)
                del self._tenures[index]

    def _give_idle(self, held: frozenset[int]) -> bool:
        """Give slices that never had lanes here, such as those that another member gave too much."""
        idle = [index for index in self._targets if index in held and index not in self._tenures]
        for index in idle:
            self._give(index, self._targets[index])
        return bool(idle)

    def _give(self, index: int, to: str) -> None:
        if self._membership.give(index, to):
            self._count(self._why(), {index}, to)

    def _why(self) -> str:
        view = self.view
        me = view and view.member(self._membership.token)
        if self._leaving:
            return "left"
        if view and view.next_count:
            return "resliced"
        return "drained" if me and me.drains else "given"

    def _start(self, count: int, held: frozenset[int]) -> None:
        chosen = sorted(index for index in held if index not in self._tenures and index not in self._targets)
        signals = {}
        for index in chosen:
            name = Slice(index, count).name(self._membership.name)
            signals[index] = LeasedStop(self._membership.fence_of(name))
            self._tenures[index] = _Tenure(count, signals[index])
        if signals:
            self._come(self, count, signals)

    def _end_lanes(self, plan: Moves, *, everything: bool) -> None:
        """Ask lanes to end whose slices are to be given: one slice after the other, unless *everything* goes."""
        now = self._clock.monotonic()
        for index, _ in plan.give:
            tenure = self._tenures.get(index)
            if tenure is None:
                continue
            if tenure.asked_at is None:
                self._ask(index, tenure)
            if not everything and now - (tenure.asked_at or now) < ALONE_S:
                return

    def _ask(self, index: int, tenure: _Tenure) -> None:
        if tenure.asked_at is None:
            tenure.asked_at = self._clock.monotonic()
            self._go(self, index, tenure.signal)

    def _pause_s(self, view: GroupView, plan: Moves, *, settled: bool) -> float:
        every = self._membership.look_every
        soon = every / SOONER
        if any(tenure.asked_at is not None for tenure in self._tenures.values()):
            return soon
        if plan.lacks and settled:
            return 2 * soon
        holders = {one.holder for one in view.slices} - {NOBODY, self._membership.token}
        left_s = min((one.expires_in.total_seconds() for one in view.members if one.token in holders), default=every)
        return min(every, max(soon, left_s))

    def _count(self, why: str, indexes: frozenset[int] | set[int], to: str = NOBODY) -> None:
        if indexes:
            self._moved(why, len(indexes))
            member = self.view and self.view.member(to)
            text = (_GAVE if member else _LET_GO).get(why, why)
            to_whom = f" to {member.owner}" if member else ""
            log.info('group "%s": %s %s%s', self._membership.name, text, slices_text(indexes), to_whom)


_LET_GO = {"taken": "took", "left": "let go of", "drained": "let go of", "resliced": "let go of"}
_GAVE = dict.fromkeys(("given", "left", "drained", "resliced"), "handed over")
"""What the log says of moves, by reason."""
