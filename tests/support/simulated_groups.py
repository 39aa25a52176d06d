"""One seed of the simulation of groups: processes that share slices, on a driven clock, in threads that take turns.

Each process has what a service has for its group: ``GroupWork`` with the keeper of its membership and the keeper of its
slices, a lane for each slice, and a clock of its own. Beside them stand a table of groups in memory, a log of writes by
key, and a store of cursors with the fences of a real one. Processes join, leave, die, stand still, flap and drain, are
cut off from the table with the results of their writes unknown, and their clocks step; the number of slices changes.

The oracle: every write is delivered, in order for each key; only one process at a time may act on a slice; what a
process has delivered is saved before it gives the slice away; a former holder saves nothing; two lease times after the
last disturbance the group is in balance, and stays as it is. In calm seeds, one thing happens at a time, and no more
slices move than that one asks for.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import cassandra
from prometheus_client import CollectorRegistry
from turns import Host, Turns

import cursorstore.group
from cursorstore import MemoryGroupTable, MemoryMembership
from rscylla import ConfigError, Consumer, Group, LeaseLost, QueryTimeout, Spec, StreamLag, slice_name
from rscylla._groups import GroupView
from rscylla.clock import Stop
from rscylla.reflex._meters import meters_for
from rscylla.reflex.service import _lease, _slicekeeper
from rscylla.reflex.service._groupwork import GroupWork
from rscylla.testing import ManualClock

__all__ = ["GROUP_KINDS", "GroupSimulation"]

TTL_S = 30.0
SETTLED_S = 2 * TTL_S
KEYS = 120
COUNTS = (4, 6, 8, 12)
"""Numbers of slices; each divides the number of keys."""

MOST = 5
"""Processes at a time."""

GROUP_KINDS = (
    *("joined", "left", "killed", "frozen", "cut_off", "unknown", "clock_steps", "flapped", "drained", "resliced"),
    *("reslices_aborted", "calm", "writes", "delivered", "duplicates", "moves", "saves_refused", "lapsed", "slow"),
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
        self.log: list[int] = []
        """The key of each write."""
        self.seen: dict[int, int] = {}
        """By key, the last write that was delivered."""
        self.saved: dict[tuple[int, int], tuple[int, int]] = {}
        """By slice and number of slices: the epoch of who saved last, and where the next one begins."""
        self.violations: list[Exception] = []
        self.processes: list[Process] = []
        self.started = 0
        self.moves = 0

    def run(self) -> Counter[str]:
        with ExitStack() as living:
            names = self.turns.primitives()
            living.enter_context(patch.object(_lease, "threading", names["threading"]))
            living.enter_context(patch.object(cursorstore.group, "threading", names["threading"]))
            living.enter_context(patch.object(_slicekeeper, "threading", names["threading"]))
            living.enter_context(patch.object(_slicekeeper, "SimpleQueue", names["SimpleQueue"]))
            tokens = SimpleNamespace(uuid4=lambda: uuid.UUID(int=self.dice.getrandbits(128)))
            living.enter_context(patch.object(cursorstore.group, "uuid", tokens))
            living.callback(self._end)
            random.seed(self.seed)  # the back-off draws from the module's own
            self.count = self.dice.choice(COUNTS)
            self.table = MemoryGroupTable(self.world)
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
        steps += [self.flap, self.drain, self.reslice]
        for _ in range(self.dice.randrange(4, 14)):
            self._pass(self.dice.choice([0.0, 0.5, 3.0, 10.0, 40.0]) * self.dice.random())
            self.dice.choices(steps, [4, 3, 3, 3, 3, 1, 1, 1, 0.7])[0]()
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
            needed = asked + came * -(-self.count // len(self._fit()))
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
                    self.log.append(self.dice.randrange(KEYS))
                    self.counts["writes"] += 1
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
        """Let the table not answer one of the processes, or all of them."""
        chosen = self.processes if self.dice.random() < 0.2 else [p for p in [self._some()] if p]
        until = self.world.monotonic() + self.dice.choice([2.0, 15.0, 60.0]) * self.dice.random()
        for process in chosen:
            process.table.cut_until = until
            process.table.applies = self.dice.choice([0.0, 0.5, 1.0])
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
        """Change the number of slices, as an operator does, who may also give up."""
        new = self.dice.choice([count for count in COUNTS if count != self.count])
        if not self.processes or not self.table.names() or not self.table.plan("g", self.count, 0, new):
            return
        patience = self.world.monotonic() + self.dice.choice([5.0, 100.0])
        while any(self._view().holder(index) for index in range(self.count)):
            if self.world.monotonic() > patience:
                self.table.plan("g", self.count, new, 0)
                self.counts["reslices_aborted"] += 1
                return
            self._pass(1.0)
        for index in range(new):
            keys = [key for key in range(KEYS) if key * new // KEYS == index]
            starts = [self.saved.get((key * self.count // KEYS, self.count), (0, 0))[1] for key in keys]
            epoch, _ = self.saved.get((index, new), (0, 0))
            self.saved[index, new] = epoch, min(starts)
        assert self.table.recount("g", self.count, new)
        self.count = new
        self.counts["resliced"] += 1

    def _mend(self) -> None:
        for process in self.processes:
            process.host.frozen_until = 0.0
            process.table.cut_until = 0.0
        self._look_at_processes()
        if not any(process.token in self._fit() and not process.leaves for process in self.processes):
            if len(self.processes) == MOST:
                self.kill()
            self.join()

    # ------------------------------------------------------------ the oracle

    def _fit(self) -> set[str]:
        return {member.token for member in self._view().members if not member.drains} if self.table.names() else set()

    def _view(self) -> GroupView:
        view = self.table.read("g")
        assert view is not None
        return view

    def holders(self, index: int, count: int) -> list[Process]:
        """Return the processes that may act on a slice now, by what they know themselves."""
        name = slice_name("c", index, count)
        return [process for process in self.processes if process.may_act(name)]

    def delivers(self, process: Process, index: int, count: int, at: int) -> None:
        holders = self.holders(index, count)
        assert holders in ([process], []), f"{process} acts on slice {index}, and so may {holders}"
        key = self.log[at]
        missing = [i for i in range(self.seen.get(key, -1) + 1, at) if self.log[i] == key]
        assert not missing, f"{process} delivers write {at} of key {key} before {missing}"
        self.counts["delivered"] += 1
        self.counts["duplicates"] += at <= self.seen.get(key, -1)
        self.seen[key] = max(at, self.seen.get(key, -1))

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
        lost = [at for at, key in enumerate(self.log) if at > self.seen.get(key, -1)]
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
            (holder,) = self.holders(index, view.count)
            assert holder.token == view.slices[index].holder
            assert any(lane.alive for lane in holder.lanes if lane.index == index), f"nobody reads slice {index}"


def _is_fit(view: GroupView, token: str) -> bool:
    member = view.member(token)
    return member is not None and not member.drains


class ProcessClock:
    """The clock of a process: its wall clock is off by ``skew_us``, and its seconds are a little longer than others."""

    def __init__(self, world: ManualClock, turns: Turns, rate: float) -> None:
        self._world = world
        self._turns = turns
        self._rate = rate
        self.skew_us = 0

    def now_us(self) -> int:
        return self._world.now_us() + self.skew_us

    def monotonic(self) -> float:
        return self._world.monotonic() * self._rate

    def wait(self, stop: Stop, seconds: float) -> bool:
        return self._turns.wait(stop.is_set, max(0.0, seconds) / self._rate)


class Reach:
    """The table as one process reaches it: late, or not at all. A write that fails may have been applied."""

    def __init__(self, simulation: GroupSimulation) -> None:
        self._simulation = simulation
        self._dice = simulation.dice
        self.cut_until = 0.0
        self.applies = 0.0
        self.unsaved: Callable[[int], object] = lambda index: None
        self.token: Callable[[], str] = lambda: ""

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        simulation, dice = self._simulation, self._dice
        method = getattr(simulation.table, name)
        self._travel()
        is_cut = simulation.world.monotonic() < self.cut_until
        if is_cut and dice.random() >= self.applies:
            raise _timed_out()
        if name == "give":
            assert not self.unsaved(args[3][0].index), f"slice {args[3][0].index} is given before it is saved"
        result = method(*args, **options)
        if name in ("take", "give") and result:
            simulation.moved(len(args[3]))
        self._travel()
        if is_cut:
            simulation.counts["unknown"] += 1
            raise _timed_out()
        return result

    def _travel(self) -> None:
        if not self._simulation.is_calm and self._dice.random() < 0.2:
            self._simulation.turns.sleep(self._dice.choice([0.01, 0.2, 2.0]) * self._dice.random())


def _timed_out() -> QueryTimeout:
    error = QueryTimeout("the table of groups did not answer")
    error.__cause__ = cassandra.OperationTimedOut()
    return error


class Process:
    """A process of the group."""

    def __init__(self, simulation: GroupSimulation, number: int) -> None:
        self.simulation = simulation
        self.name = f"p{number}"
        self.host = Host()
        self.leaves = False
        rate = 1.0 if simulation.is_calm else simulation.dice.uniform(0.85, 1.0)
        self.clock = ProcessClock(simulation.world, simulation.turns, rate)
        self.table = Reach(simulation)
        self.table.unsaved = self._unsaved
        self.table.token = lambda: self.token
        table: Any = self.table
        self.membership = MemoryMembership("g", table, owner=self.name, slices=simulation.count, clock=self.clock)
        self.lanes: list[Lane] = []
        self._inbox: Any = simulation.turns.primitives()["SimpleQueue"]()
        self.thread = simulation.turns.start(self._supervise, self.name, self.host)

    def __repr__(self) -> str:
        return self.name

    @property
    def token(self) -> str:
        return self.membership.token

    def may_act(self, name: str) -> bool:
        try:
            return self.membership.fence_of(name).held()
        except ConfigError:
            return False  # it has yet to see that the number of slices is another

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
        lane = Lane(self, spec.name, lambda: self._inbox.put(lambda: self.work.ended(lane)))  # type: ignore[arg-type]
        self.lanes.append(lane)
        return lane

    def _retire(self, lane: Any) -> None:
        self.lanes.remove(lane)

    def _unsaved(self, index: int) -> bool:
        return any(lane.unsaved for lane in self.lanes if lane.index == index and lane.fence.held())


class Lane:
    """Delivers the writes of a slice, one after the other."""

    def __init__(self, process: Process, name: str, ended: Callable[[], None]) -> None:
        self.name = name
        self.alive = False
        self.unsaved = False
        self._process = process
        self._simulation = process.simulation
        self._ended = ended
        index, _, count = name.removeprefix("c[").removesuffix("]").partition("/")
        self.index, self._count = int(index), int(count)
        self.fence = process.membership.fence_of(name)
        self._at = 0
        self._every = self._simulation.dice.choice([1, 1, 5])  # events of a save
        self._pace = self._simulation.dice.choice([0, 0, 0.05, 1.0])

    def start(self, signal: Stop) -> None:
        self.alive = True
        self._simulation.turns.start(partial(self._run, signal), self.name)

    def _run(self, signal: Stop) -> None:
        try:
            self._at = self._load()
            self._follow(signal)
            self._save()
        except LeaseLost:
            self._simulation.counts["lapsed"] += 1
            self._simulation.turns.wait(signal.is_set)
        except Exception as e:  # noqa: BLE001 - raised by the simulation
            self._simulation.violations.append(e)
        finally:
            self.unsaved = False
            self.alive = False
            self._ended()

    def _follow(self, signal: Stop) -> None:
        turns, simulation = self._simulation.turns, self._simulation
        unsaved = 0
        while True:
            turns.wait(lambda: signal.is_set() or self._next() is not None)
            if turns.chance(0.1):
                simulation.counts["slow"] += self._pace > 0
                turns.sleep(self._pace)
            at = self._next()
            if signal.is_set():
                return
            if at is None:
                continue
            simulation.delivers(self._process, self.index, self._count, at)
            self._at = at + 1
            self.unsaved = True
            unsaved += 1
            if turns.chance(0.2):
                turns.pause()
            if unsaved >= self._every:
                self._save()
                unsaved = 0

    def _next(self) -> int | None:
        log = self._simulation.log
        for at in range(self._at, len(log)):
            if log[at] * self._count // KEYS == self.index:
                return at
            self._at = at + 1
        return None

    def _load(self) -> int:
        """Return where to go on, and let no former holder move it from now on."""
        self._check()
        epoch, at = self._simulation.saved.get((self.index, self._count), (0, 0))
        self._simulation.saved[self.index, self._count] = max(epoch, self.fence.epoch), at
        return at

    def _save(self) -> None:
        self._check()
        epoch, key, at = self.fence.epoch, (self.index, self._count), self._at
        if self._simulation.turns.chance(0.2):
            self._simulation.turns.pause()  # the write is on its way
        now, before = self._simulation.saved.get(key, (0, 0))
        if epoch < now:
            self._simulation.counts["saves_refused"] += 1
            raise LeaseLost(f"{self.name} is saved by a later holder")
        assert at >= before, f"{self.name} goes back from {before} to {at}"
        self._simulation.saved[key] = epoch, at
        self.unsaved = False

    def _check(self) -> None:
        if not self.fence.held():
            self.unsaved = False
            self._simulation.counts["saves_refused"] += 1
            raise LeaseLost(f"{self.name} is not held")
