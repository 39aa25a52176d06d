"""One seed of the simulation of groups: processes that share slices, on a driven clock, in threads that take turns.

Each process has what a service has for its group: ``GroupWork`` with the keeper of its membership and the keeper of its
slices, a lane for each slice, a store of cursors under the membership, and a clock of its own. Beside them stand a
table of groups in memory, a database of cursors, and a log of writes whose streams change (``simulated_keylog.py``).
Processes join, leave, die, stand still, flap and drain, are cut off from the database with the results of their writes
unknown, and their clocks step; an operator changes the number of slices with ``reslice_group``, and may die over it.

The oracle: every write is delivered, in order for each key; only one process at a time may act on a key; what a process
has delivered is saved before it gives the slice away; a former holder saves nothing, so nothing is delivered that the
cursor is past; two lease times after the last disturbance the group is in balance, and stays as it is. In calm seeds,
one thing happens at a time, and no more slices move than that one asks for.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import cassandra
import memorygroups
from memorygroups import MemoryGroupTable, MemoryMembership
from prometheus_client import CollectorRegistry
from simulated_keylog import Cursors, KeyLog, Lane, Link, Write, in_turns
from turns import Host, Turns

import cursorstore.groups.group
from cursorstore import BufferedCursorStore, abort_reslice, reslice_group
from rscylla import ConfigError, Consumer, Group, QueryTimeout, Spec, StreamLag, slice_name
from rscylla._tokens import Slice
from rscylla.abc import CursorStore, GroupView
from rscylla.clock import Stop
from rscylla.reflex.telemetry.meters import meters_for
from rscylla.service import lease
from rscylla.service.groups import slicekeeper
from rscylla.service.groups.work import GroupWork
from rscylla.testing import ManualClock

__all__ = ["GROUP_KINDS", "GroupSimulation"]

TTL_S = 30.0
SETTLED_S = 2 * TTL_S
COUNTS = (4, 6, 8, 12)
"""Numbers of slices."""

MOST = 5
"""Processes at a time."""

GROUP_KINDS = (
    *("joined", "left", "killed", "frozen", "cut_off", "unknown", "clock_steps", "flapped", "drained", "resliced"),
    *("calm", "writes", "late", "delivered", "duplicates", "moves", "lapsed", "failed_runs", "slow", "buffered"),
    *("generations", "switched", "probed"),
    *("reslices_failed", "reslices_aborted", "reslices_repeated", "operators_killed"),
)
"""What has to happen at least once over many seeds."""

_METERS = meters_for(CollectorRegistry())


class GroupSimulation:
    """What one seed makes of a group. ``run`` returns the counts of what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.is_calm = seed % 4 == 0
        self.world = ManualClock()
        self.turns = Turns(self.world, random.Random(seed))
        self.counts = Counter[str]()
        self.log = KeyLog(self.world, self.dice)
        self.delivered: list[tuple[str, Write]] = []
        """By whom, and what."""
        self.seen: set[int] = set()
        """Times of writes that were delivered."""
        self.operator: Operator | None = None
        self.violations: list[Exception] = []
        self.processes: list[Process] = []
        self.started = 0
        self.moves = 0

    def run(self) -> Counter[str]:
        with ExitStack() as living:
            names = self.turns.primitives()
            living.enter_context(patch.object(lease, "threading", names["threading"]))
            living.enter_context(patch.object(cursorstore.groups.group, "threading", names["threading"]))
            living.enter_context(patch.object(memorygroups, "threading", names["threading"]))
            living.enter_context(patch.object(slicekeeper, "threading", names["threading"]))
            living.enter_context(patch.object(slicekeeper, "SimpleQueue", names["SimpleQueue"]))
            tokens = SimpleNamespace(uuid4=lambda: uuid.UUID(int=self.dice.getrandbits(128)))
            living.enter_context(patch.object(cursorstore.groups.group, "uuid", tokens))
            living.enter_context(in_turns(self.turns))
            living.callback(self._end)
            random.seed(self.seed)  # the back-off draws from the module's own
            self.count = self.dice.choice(COUNTS)
            self.table = MemoryGroupTable(self.world)
            self.cursors = Cursors(self)
            for _ in range(self.dice.randrange(1, 4)):
                self.join()
            self.counts["calm"] = self.is_calm
            (self._calm if self.is_calm else self._storm)()
        return self.counts

    def _end(self) -> None:
        self.turns.kill()
        self.turns.finish([])

    # ------------------------------------------------------------ what happens

    def _storm(self) -> None:
        steps: list[Callable[[], None]] = [self.join, self.leave, self.kill, self.freeze, self.cut_off, self.step_clock]
        steps += [self.flap, self.drain, self.reslice, self.kill_operator]
        for _ in range(self.dice.randrange(4, 14)):
            self._pass(self.dice.choice([0.0, 0.5, 3.0, 10.0, 40.0]) * self.dice.random())
            self.dice.choices(steps, [4, 3, 3, 3, 3, 1, 1, 1, 2, 1])[0]()
        self._mend()
        self._pass(SETTLED_S)
        self._check_settled()

    def _calm(self) -> None:
        """One thing happens at a time, and nothing fails."""
        self._pass(SETTLED_S)
        for _ in range(self.dice.randrange(2, 6)):
            self._check_settled()
            before, moved = self._view(), self.moves
            fit = [process for process in self.processes if process.token in self._fit()]
            step = self.dice.choice([self.join, self.leave, self.kill, self.drain] if len(fit) > 1 else [self.join])
            step()
            self._pass(SETTLED_S)
            after = self._view()
            held = Counter(one.holder for one in before.slices)
            asked = sum(held[member.token] for member in before.members if not _is_fit(after, member.token))
            came = sum(not _is_fit(before, member.token) for member in after.members if not member.drains)
            needed = asked + came * -(-after.count // len(self._fit()))
            assert self.moves - moved <= needed, (
                f"{step}: {self.moves - moved} moves, {needed} needed: {before} {after}"
            )
        self._check_settled()

    def _pass(self, seconds: float) -> None:
        """Let time pass, in which there are writes."""
        until = self.world.monotonic() + seconds
        while (left := until - self.world.monotonic()) > 0:
            if self.dice.random() < 0.7:
                for _ in range(self.dice.randrange(1, 12)):
                    self.counts["late"] += self.log.write()
                    self.counts["writes"] += 1
            if self.dice.random() < 0.05:
                self.counts["generations"] += self.log.new_streams()
            self.turns.sleep(min(left, self.dice.uniform(0.2, 8.0)))
            self._look_at_processes()

    def _look_at_processes(self) -> None:
        if self.violations:
            raise self.violations[0]
        for process in list(self.processes):
            if process.thread.has_ended:
                if process.thread.error is not None:
                    raise process.thread.error
                assert process.leaves
                self.processes.remove(process)
        if self.operator is not None and self.operator.has_ended():
            self.operator = None

    def join(self) -> None:
        if len(self.processes) < MOST:
            self.started += 1
            self.processes.append(Process(self, self.started))
            self.counts["joined"] += 1

    def _some(self) -> Process | None:
        return self.dice.choice(self.processes) if self.processes else None

    def leave(self) -> None:
        if process := self._some():
            process.leave()
            self.counts["left"] += 1

    def kill(self) -> None:
        if process := self._some():
            process.host.is_killed = True
            self.processes.remove(process)
            self.counts["killed"] += 1

    def freeze(self) -> None:
        if process := self._some():
            process.host.frozen_until = (
                self.world.monotonic() + self.dice.choice([3.0, 40.0, 90.0]) * self.dice.random()
            )
            self.counts["frozen"] += 1

    def cut_off(self) -> None:
        """Let the tables not answer one of the processes, or all of them."""
        chosen: list[Process | Operator] = [*self.processes, *([self.operator] if self.operator else [])]
        if chosen and self.dice.random() < 0.8:
            chosen = [self.dice.choice(chosen)]
        until = self.world.monotonic() + self.dice.choice([2.0, 15.0, 60.0]) * self.dice.random()
        for process in chosen:
            for link in self.dice.choice([process.links, process.links, process.links[:1], process.links[1:]]):
                link.cut_until = until
                link.applies = self.dice.choice([0.0, 0.5, 1.0])
            self.counts["cut_off"] += 1

    def step_clock(self) -> None:
        if process := self._some():
            process.clock.skew_us = int(self.dice.uniform(-100e6, 100e6))
            self.counts["clock_steps"] += 1

    def flap(self) -> None:
        for _ in range(3):
            self.join()
            self._pass(self.dice.uniform(0, 6))
            if self.processes:
                self.processes.pop().host.is_killed = True
                self.counts["flapped"] += 1
                self._pass(self.dice.uniform(0, 3))

    def drain(self) -> None:
        process = self._some()
        if process and process.token:
            drained = self.table.drain("g", process.token, self.dice.random() < 0.8)
            self.counts["drained"] += drained

    def reslice(self) -> None:
        """Let an operator change the number of slices, to what is under way if a former one has not finished."""
        if self.operator is None and self.table.names():
            view = self._view()
            new = view.next_count or self.dice.choice([count for count in COUNTS if count != view.count])
            self.counts["reslices_repeated"] += bool(view.next_count)
            self.operator = Operator(self, new, self.dice.choice([5.0, 100.0]))

    def kill_operator(self) -> None:
        """Let the operator die over what it does, and perhaps another one call it off."""
        if self.operator is not None:
            self.operator.host.is_killed = True
            self.operator = None
            self.counts["operators_killed"] += 1
        elif self.table.names() and self._view().next_count:
            abort_reslice(self.table, "g")
            self.counts["reslices_aborted"] += 1

    def _mend(self) -> None:
        for process in self.processes:
            process.host.frozen_until = 0.0
            for link in process.links:
                link.cut_until = 0.0
            process.clock.skew_us = int(self.dice.uniform(-5e5, 5e5))
        self._look_at_processes()
        if not any(process.token in self._fit() and not process.leaves for process in self.processes):
            if len(self.processes) == MOST:
                self.kill()
            self.join()
        while self.operator is not None or (self.table.names() and self._view().next_count):
            if self.operator is None:
                self.dice.choice([self.reslice, self.kill_operator])()
            else:
                for link in self.operator.links:
                    link.cut_until = 0.0
            self._pass(1.0)

    # ------------------------------------------------------------ the oracle

    def _fit(self) -> set[str]:
        return {member.token for member in self._view().members if not member.drains} if self.table.names() else set()

    def _view(self) -> GroupView:
        view = self.table.read("g")
        assert view is not None
        return view

    def holders(self, key_slice: Slice) -> list[Process]:
        """Return the processes that may act on a key of the slice now, by what they know themselves."""
        return [process for process in self.processes if process.may_act(key_slice)]

    def delivers(self, process: Process, lane: Lane, write: Write) -> None:
        holders = self.holders(lane.key_slice)
        assert holders in ([process], []), f"{process} acts on {lane.name}, and so may {holders}"
        assert write.id.key > self.cursors.saved(lane.name), f"{process} delivers what {lane.name} has saved: {write}"
        missing = [
            one for one in self.log.of_key[write.key] if one.time_us < write.time_us and one.time_us not in self.seen
        ]
        assert not missing, f"{process} delivers {write} before {missing}"
        self.counts["delivered"] += 1
        self.counts["duplicates"] += write.time_us in self.seen
        self.seen.add(write.time_us)
        self.delivered.append((process.name, write))

    def moved(self, slices: int) -> None:
        self.moves += slices
        self.counts["moves"] += slices

    def _check_settled(self) -> None:
        """The group is in balance, everything was delivered, and nothing moves any more."""
        self._look_at_processes()
        moved = self.moves
        self._check_balance()
        self.turns.sleep(SETTLED_S)
        self._check_balance()
        assert self.moves == moved, f"{self.moves - moved} moves in balance"
        lost = [write for write in self.log.writes if write.time_us not in self.seen]
        assert not lost, f"lost: {lost}"

    def _check_balance(self) -> None:
        view = self._view()
        there = {process.token for process in self.processes}
        assert {member.token for member in view.members} == there, f"members {view.members}, there are {there}"
        held = Counter(one.holder for one in view.slices)
        fit = [member.token for member in view.members if not member.drains]
        shares = [held[token] for token in fit]
        assert not fit or (sum(shares) == view.count and max(shares) - min(shares) <= 1), f"shares {held}: {view}"
        for index in range(view.count if fit else 0):
            (holder,) = self.holders(Slice(index, view.count))
            assert holder.token == view.slices[index].holder
            lanes = [lane for lane in holder.lanes if lane.key_slice == Slice(index, view.count)]
            assert any(lane.alive for lane in lanes), f"nobody reads slice {index}"


def _is_fit(view: GroupView, token: str) -> bool:
    member = view.member(token)
    return member is not None and not member.drains


class ProcessClock:
    """The clock of a process: its seconds are a little longer than others, and its wall clock is off by ``skew_us``.

    That clock is as slow as the other one: where only one of them is, the other ends a membership in time.
    """

    def __init__(self, world: ManualClock, turns: Turns, rate: float) -> None:
        self._world = world
        self._turns = turns
        self._rate = rate
        self.skew_us = 0

    def now_us(self) -> int:
        behind_us = int((1 - self._rate) * self._world.monotonic() * 1e6)
        return self._world.now_us() + self.skew_us - behind_us

    def monotonic(self) -> float:
        return self._world.monotonic() * self._rate

    def wait(self, stop: Stop, seconds: float) -> bool:
        return self._turns.wait(stop.is_set, max(0.0, seconds) / self._rate)


class Reach:
    """The table of groups as one process reaches it."""

    def __init__(self, simulation: GroupSimulation, link: Link) -> None:
        self._simulation = simulation
        self._dice = simulation.dice
        self._link = link
        self.check_saved: Callable[[Slice], None] = lambda key_slice: None
        self.token: Callable[[], str] = lambda: ""

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        simulation = self._simulation

        def act() -> Any:
            if name == "give":
                self.check_saved(Slice(args[3][0].index, args[1]))
            result = getattr(simulation.table, name)(*args, **options)
            if name in ("take", "give") and result:
                simulation.moved(len(args[3]))
            return result

        try:
            return self._link.call(act)
        except cassandra.OperationTimedOut as e:
            raise QueryTimeout("the table of groups did not answer") from e


class Operator:
    """A process that changes the number of slices, once."""

    def __init__(self, simulation: GroupSimulation, count: int, patience_s: float) -> None:
        self._simulation = simulation
        self._count = count
        self._patience = timedelta(seconds=patience_s)
        self.host = Host()
        self.links = Link(simulation), Link(simulation)
        self._clock = ProcessClock(simulation.world, simulation.turns, 1.0)
        self._table: Any = Reach(simulation, self.links[0])
        self._store = simulation.cursors.store(self.links[1], clock=self._clock)
        self._thread = simulation.turns.start(self._work, "operator", self.host)

    def _work(self) -> None:
        before = self._simulation.cursors.all()
        try:
            moved = reslice_group(self._table, "g", self._count, self._store, timeout=self._patience, clock=self._clock)
        except (QueryTimeout, ConfigError):
            self._simulation.counts["reslices_failed"] += 1
        else:
            self._simulation.counts["resliced"] += 1
            assert moved or not before, f"no cursor was moved: {before}"

    def has_ended(self) -> bool:
        if self._thread.has_ended and self._thread.error is not None:
            raise self._thread.error
        return bool(self._thread.has_ended)


class Process:
    """A process of the group."""

    def __init__(self, simulation: GroupSimulation, number: int) -> None:
        self.simulation = simulation
        self.name = f"p{number}"
        self.host = Host()
        self.leaves = False
        rate = 1.0 if simulation.is_calm else simulation.dice.uniform(0.85, 1.0)
        self.clock = ProcessClock(simulation.world, simulation.turns, rate)
        self.links = Link(simulation), Link(simulation)
        """The ways to the table of groups and to the cursors."""
        table: Any = Reach(simulation, self.links[0])
        table.check_saved = self._check_saved
        table.token = lambda: self.token
        self.membership = MemoryMembership("g", table, owner=self.name, slices=simulation.count, clock=self.clock)
        check = timedelta(seconds=simulation.dice.choice([0.0, 1.0, 10.0]))
        self.store: CursorStore
        self.store = simulation.cursors.store(self.links[1], lease=self.membership, epoch_check=check, clock=self.clock)
        if simulation.dice.random() < 0.5:
            span = timedelta(seconds=simulation.dice.choice([0.5, 5.0]))
            self.store = BufferedCursorStore(self.store, interval=span, background=False, clock=self.clock)
            simulation.counts["buffered"] += 1
        self.lanes: list[Lane] = []
        self.unsaved: dict[Slice, Write] = {}
        """By slice, what was delivered last, if the run that did so did not fail."""
        self._inbox: Any = simulation.turns.primitives()["SimpleQueue"]()
        self.thread = simulation.turns.start(self._supervise, self.name, self.host)

    def __repr__(self) -> str:
        return self.name

    @property
    def token(self) -> str:
        return self.membership.token

    def may_act(self, key_slice: Slice) -> bool:
        return bool(self.token) and any(one.overlaps(key_slice) for one in self.membership._holdings.slices)

    def leave(self) -> None:
        self.leaves = True
        self._inbox.put(lambda: self.work.leave())

    def _supervise(self) -> None:
        self.work = GroupWork(  # here, because threads are of the process that makes them
            Group(self.membership, self._specs),
            self.clock,
            _METERS,
            hire=self._hire,
            call=self._inbox.put,
            fixed=(),
            patience_s=1000.0,
            retire=self._retire,
        )
        self.work.start()
        while not self.leaves or self.work.workers or not self._inbox.empty():
            self._inbox.get()()
        while not self.work.has_left(0.5):
            while not self._inbox.empty():
                self._inbox.get()()

    def _specs(self, index: int, count: int) -> Sequence[Spec]:
        consumer = Consumer(slice_name("c", index, count), lambda _event, _fate: None, registry=None)
        unused: Any = None
        return [Spec(unused, unused, consumer, StreamLag(seconds=30), registry=CollectorRegistry())]

    def _hire(self, spec: Spec, _excused: object) -> Any:
        lane = Lane(self, spec, lambda: self._inbox.put(lambda: self.work.ended(lane)))  # type: ignore[arg-type]
        self.lanes.append(lane)
        return lane

    def _retire(self, lane: Any) -> None:
        self.lanes.remove(lane)

    def _check_saved(self, key_slice: Slice) -> None:
        """Called when the process gives a slice away."""
        write, name = self.unsaved.pop(key_slice, None), key_slice.name("c")
        saved = write is None or write.id.key <= self.simulation.cursors.saved(name)
        assert saved, f"{self} gives {name} away before it has saved that it has delivered {write}"
        assert not any(lane.alive for lane in self.lanes if lane.key_slice == key_slice), f"{self} still reads {name}"
