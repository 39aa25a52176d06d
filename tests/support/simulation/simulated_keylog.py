"""What the groups of the simulation work on: a log of keys, their cursors, and the lanes of slices.

Writes go to streams, which change with each generation, and some are seen late. They are read by what a stream decides
with, ``Source``, ``Follower`` and ``part_of``; only pages and rows are left out. Cursors are event ids, which
``ScyllaCursorStore`` keeps in a database in memory.
"""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import attrs
import cassandra
from cassandra.query import tuple_factory
from fake_scylla import FakeScylla, FakeSession
from turns import Turns

from cursorstore import ScyllaCursorStore, table
from cursorstore.cursors import buffered, scylla
from rscylla import QueryTimeout, RscyllaError, Stopped, StreamLag
from rscylla._timeuuid import min_timeuuid
from rscylla._tokens import LAST, LEAST, Slice, slice_at, token_of
from rscylla.abc import flush_cursor
from rscylla.cdc.log import same as same_room
from rscylla.cdc.log import source as source_room
from rscylla.cdc.log.resume import resume
from rscylla.cdc.log.source import Source
from rscylla.cdc.log.table import LoggedTable
from rscylla.cdc.log.topology import Generation, TabletTopology
from rscylla.cdc.log.walk import LogWindow, Probe, Read, Switch, Wait, Width
from rscylla.cdc.read.follow import Follower
from rscylla.cdc.read.slices import Part, part_of
from rscylla.clock import Stop
from rscylla.errors import LeaseLost
from rscylla.event import EventID
from rscylla.options import resolve
from rscylla.testing import ManualClock

__all__ = ["KEYS", "Cursors", "KeyLog", "Lane", "Link", "Write", "in_turns"]

T = TypeVar("T")

KEYS = 120
LAG_S = 5.0
LATEST_S = 4.5
"""How late a write may be seen; the rest of the lag is for clocks that disagree."""

PROGRESS_S = 10.0
TABLE = LoggedTable("ks", "t", (), uuid.UUID(int=0, version=4))


@attrs.frozen
class Write:
    """A write of a key, with its own time, and where in the log it is."""

    key: int
    time_us: int
    id: EventID


def token_of_key(key: int) -> int:
    return ((2 * key + 1) << 64) // (2 * KEYS) + LEAST


class KeyLog:
    """All writes, in the streams of their generations. It is the session with which a ``Source`` reads its metadata."""

    def __init__(self, world: ManualClock, dice: random.Random) -> None:
        self._world = world
        self._dice = dice
        self._streams: dict[int, tuple[bytes, ...]] = {}
        self._times = set[int]()
        self._of_stream: dict[tuple[int, bytes], list[Write]] = defaultdict(list)
        self.of_key: dict[int, list[Write]] = defaultdict(list)
        self.writes: list[Write] = []
        self._announce(world.now_us() // 1000 - 60_000)

    def new_streams(self) -> bool:
        """Announce another generation, unless the last one has not begun yet; return whether one was announced."""
        now = self._world.now_us() // 1000
        begun = max(self._streams) < now
        if begun:
            self._announce(now + int(self._dice.uniform(5_000, 15_000)))
        return begun

    def _announce(self, time: int) -> None:
        ends = {self._dice.randint(LEAST, LAST) for _ in range(self._dice.choice([0, 1, 3, 6]))}
        ends.add(LAST)
        self._streams[time] = tuple(
            end.to_bytes(8, "big", signed=True) + self._dice.randbytes(8) for end in sorted(ends)
        )

    def write(self) -> bool:
        """Write a key; return whether it is seen late."""
        late_us = int(self._dice.uniform(0, LATEST_S) * 1e6) if self._dice.random() < 0.3 else 0
        time_us = self._world.now_us() - late_us
        while time_us in self._times:
            time_us += 1
        self._times.add(time_us)
        key = self._dice.randrange(KEYS)
        generation = max(time for time in self._streams if time * 1000 <= time_us)
        stream = next(s for s in self._streams[generation] if token_of(s) >= token_of_key(key))
        raw = min_timeuuid(time_us).bytes[:8] + len(self.writes).to_bytes(8, "big")
        write = Write(key, time_us, EventID.row(generation, stream, raw, 0))
        self.writes.append(write)
        self.of_key[key].append(write)
        self._of_stream[generation, stream].append(write)
        return late_us > 0

    def found(self, window: LogWindow, stream: bytes) -> list[Write]:
        """Return what of a window is in *stream* now."""
        of_stream = self._of_stream[window.generation, stream]
        return [write for write in of_stream if window.start_us <= write.time_us < window.end_us]

    def newest_us(self) -> int:
        return max((write.time_us for write in self.writes[-20:]), default=0)

    # ------------------------------------------------------------ as a session

    def until(self, _stop: Stop) -> KeyLog:
        return self

    def hosts(self) -> list[Any]:
        return [SimpleNamespace(endpoint="node")]

    def rows(self, cql: str, values: tuple[Any, ...] = (), **_: Any) -> list[tuple[Any]]:
        if "cdc_timestamps" in cql:
            return [(time,) for time in self._streams]
        if "cdc_streams" in cql:
            return [(stream,) for stream in self._streams[values[-1]]]
        assert "system.local" in cql
        return [(self._world.now_us() // 1000,)]


@contextmanager
def in_turns(turns: Turns) -> Iterator[None]:
    """Let streams read a ``KeyLog``, and let the threads that use stores of cursors take turns."""
    threading = turns.primitives()["threading"]
    known, slot = scylla._Known, buffered._Slot
    with ExitStack() as living:
        for room in (table, scylla, buffered):
            living.enter_context(patch.object(room, "threading", threading))
        living.enter_context(patch.object(scylla, "_Known", lambda: known(lock=threading.RLock())))
        living.enter_context(patch.object(buffered, "_Slot", lambda: slot(writing=threading.Lock())))
        living.enter_context(patch.object(source_room, "topology_for", TabletTopology))
        for room in (source_room, same_room):
            living.enter_context(patch.object(room, "read_table", lambda *_, **__: TABLE))
        yield


class Link:
    """The way of one process to the database: late, or cut. What fails may have been done."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self.cut_until = 0.0
        self.applies = 0.0

    def call(self, act: Callable[[], T]) -> T:
        simulation, dice = self._simulation, self._simulation.dice
        simulation.turns.check()
        self._travel()
        is_cut = simulation.world.monotonic() < self.cut_until
        if is_cut and dice.random() >= self.applies:
            raise cassandra.OperationTimedOut
        result = act()
        self._travel()
        if is_cut:
            simulation.counts["unknown"] += 1
            raise cassandra.OperationTimedOut
        return result

    def _travel(self) -> None:
        if not self._simulation.is_calm and self._simulation.dice.random() < 0.2:
            self._simulation.turns.sleep(
                self._simulation.dice.choice([0.01, 0.2, 2.0]) * self._simulation.dice.random()
            )


class _LinkedSession:
    def __init__(self, session: FakeSession, link: Link) -> None:
        self._session = session
        self._link = link
        self.prepare = session.prepare

    def execute(self, *statement: Any) -> Any:
        return self._link.call(lambda: self._session.execute(*statement))


class Cursors:
    """The table of cursors, and what the oracle knows of it."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self._database = FakeScylla(["ks"])
        self._store = ScyllaCursorStore(self._database.session(tuple_factory), "ks", create=True)
        self._highest: dict[str, tuple[int, bytes]] = {}

    def store(self, link: Link, **options: Any) -> _Store:
        session: Any = _LinkedSession(self._database.session(tuple_factory), link)
        return _Store(session, "ks", create=True, cursors=self, **options)

    def all(self) -> dict[str, str]:
        return {record.consumer: record.cursor for record in self._store.list_cursors()}

    def saved(self, consumer: str) -> tuple[int, bytes]:
        """Return the key of the cursor that counts. Only a reset may have moved it back."""
        record = self._store.find_cursor(consumer)
        saved = key_of("" if record is None else record.cursor)
        before = self._highest.get(consumer, saved)
        assert saved >= before, f"the cursor of {consumer} went back from {before} to {saved}"
        self._highest[consumer] = saved
        return saved

    def was_reset(self, consumer: str) -> None:
        self._highest.pop(consumer, None)


class _Store(ScyllaCursorStore):
    def __init__(self, *given: Any, cursors: Cursors, **options: Any) -> None:
        super().__init__(*given, **options)
        self._cursors = cursors

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        self._cursors.was_reset(consumer)
        super().reset_cursor(consumer, cursor, reason=reason)


def key_of(cursor: str) -> tuple[int, bytes]:
    return EventID.parse(cursor).key if cursor else (-1, b"")


class Lane:
    """Runs the consumer of a slice, again and again until it is stopped."""

    def __init__(self, process: Any, spec: Any, ended: Callable[[], None]) -> None:
        self.spec = spec
        self.name = name = spec.name
        self.alive = False
        self._process = process
        self._simulation = process.simulation
        self._turns: Turns = self._simulation.turns
        self._log: KeyLog = self._simulation.log
        self._ended = ended
        self.key_slice = Slice.of(spec.key_slice)
        self.fence = process.membership.fence_of(name)
        self._pace = self._simulation.dice.choice([0, 0, 0.05, 1.0])

    def start(self, signal: Stop) -> None:
        self.alive = True
        self._turns.start(partial(self._work, signal), self.name)

    def _work(self, signal: Stop) -> None:
        try:
            while not signal.is_set():
                self._try(signal)
        except Exception as e:  # noqa: BLE001 - raised by the simulation
            self._simulation.violations.append(e)
        finally:
            self.alive = False
            self._ended()

    def _try(self, signal: Stop) -> None:
        """Do what a run does, and what its service does when it fails."""
        try:
            try:
                self._run(signal)
            except RscyllaError:
                with suppress(RscyllaError):
                    flush_cursor(self._process.store, self.name)
                raise
            flush_cursor(self._process.store, self.name)
        except Stopped:
            return
        except (LeaseLost, QueryTimeout) as e:
            self._process.unsaved.pop(self.key_slice, None)  # it comes again
            self._simulation.counts["lapsed" if isinstance(e, LeaseLost) else "failed_runs"] += 1
            self._turns.wait(signal.is_set, 0.1 + self._simulation.dice.random())

    def _run(self, signal: Stop) -> None:
        store, clock = self._process.store, self._process.clock
        session: Any = self._log
        cursor = store.get_cursor(self.name)
        source = Source(session, "ks", "t", clock, signal)
        start = resume(source, cursor, "raise")
        options = resolve([StreamLag(seconds=LAG_S)])
        width = Width.within(20, 10_000, us=self._simulation.dice.choice([10_000, 1_000_000, 60_000_000]))
        follower = Follower(source, start, options, width, "raise", promised=cursor != "")
        after = start.position if start.is_row else b""
        part = self._part(source, follower.walk.generation)
        saved_at = clock.monotonic()
        while not signal.is_set():
            step = follower.next()
            match step:
                case Switch():
                    follower.walk = follower.walk.switched(step)
                    part, after, saved_at = self._part(source, step.generation), b"", 0.0
                    self._simulation.counts["switched"] += 1
                case Probe():
                    rows = self._rows(part, step.window)
                    follower.walk = follower.walk.probed(step, rows[0].time_us if rows else None)
                    self._simulation.counts["probed"] += 1
                case Read():
                    rows = self._rows(part, step.window)
                    follower.walk = follower.walk.read(step, len(rows))
                    for write in rows:
                        if write.id.position > after and not self._deliver(write, signal):
                            return
                case Wait():
                    follower.walk = follower.walk.waited()
            if clock.monotonic() - saved_at >= PROGRESS_S and follower.walk.at_us > start.exact_us:
                store.set_cursor(self.name, str(follower.point(follower.walk)))
                saved_at = clock.monotonic()
            if follower.walk.at_head:
                self._await_more(signal)

    def _part(self, source: Source, generation: Generation) -> Part:
        return part_of(source.streams(generation), [self.key_slice], source.topology.ranges)

    def _rows(self, part: Part, window: LogWindow) -> list[Write]:
        """Read a window, stream after stream, in order, without the rows of other slices."""
        rows: list[Write] = []
        for stream in part.streams:
            if self._turns.chance(0.02):
                self._turns.pause()
            rows += self._log.found(window, stream)
        own = self.key_slice
        return sorted((w for w in rows if _owner(part, w) == own.index), key=lambda w: w.id.position)

    def _deliver(self, write: Write, signal: Stop) -> bool:
        """Pass a write to the consumer and save the cursor; return False if the lane was stopped before."""
        if self._turns.chance(0.1):
            self._simulation.counts["slow"] += self._pace > 0
            self._turns.sleep(self._pace)
        if signal.is_set():
            return False
        self._simulation.delivers(self._process, self, write)
        self._process.unsaved[self.key_slice] = write
        if self._turns.chance(0.2):
            self._turns.pause()
        self._process.store.set_cursor(self.name, str(write.id))
        return True

    def _await_more(self, signal: Stop) -> None:
        known = len(self._log.writes)
        if self._log.newest_us() + (LAG_S + 1) * 1e6 > self._process.clock.now_us():
            self._turns.wait(signal.is_set, 1.0)
        else:
            self._turns.wait(lambda: signal.is_set() or len(self._log.writes) > known, 2 * PROGRESS_S)


def _owner(part: Part, write: Write) -> int:
    stream = write.id.stream_id
    return slice_at(token_of_key(write.key), part.count) if stream in part.shared else part.only[stream]
