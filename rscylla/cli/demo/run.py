"""The work of the demo, without its display: a writer, a consumer that keeps crashing, a node that joins halfway."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore

from ..shared.names import time_of
from .check import Checker, Verdict

if TYPE_CHECKING:
    from rscylla.embedded import EmbeddedScyllaProcess

__all__ = ["Demo", "DemoPlan", "Snapshot"]

KEYSPACE = "shop"
TABLE = "orders"
CONSUMER = "billing"

_KEYSPACE_CQL = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}"
)
_TABLE_CQL = (
    f"CREATE TABLE {KEYSPACE}.{TABLE} (order_id int, line int, number int, status text, amount int, "
    "PRIMARY KEY (order_id, line)) WITH cdc = {'enabled': true}"
)
_INSERT = f"INSERT INTO {KEYSPACE}.{TABLE} (order_id, line, number, status, amount) VALUES (?, ?, ?, 'new', ?)"
_UPDATE = f"UPDATE {KEYSPACE}.{TABLE} SET number = ?, status = ? WHERE order_id = ? AND line = ?"
_DELETE = f"DELETE FROM {KEYSPACE}.{TABLE} WHERE order_id = ? AND line = ?"

_ROUND = 16
"""Concurrent writes, each to a different order, so that the writes of one order stay in sequence."""


@attrs.frozen
class DemoPlan:
    """How much the demo writes, and how often it fails.

    ``lag`` can be far below 30 s, because one server stamps all rows when it stores them, with the clock that the
    reader uses; on a real cluster, it must not. ``crash_every`` is the mean number of steps between forced crashes.
    """

    events: int = 8_000
    seed: int = 0
    orders: int = 300
    lag: timedelta = timedelta(milliseconds=500)
    fate: float = 0.01
    crash_every: int = 1_500
    switch: timedelta = timedelta(seconds=1)
    """Time from when a node joins until the new generation starts."""
    save_every: timedelta = timedelta(milliseconds=200)

    @property
    def rate(self) -> float:
        """Target rate of changes per second, for about nine seconds of writing; less time for a few changes."""
        return max(400.0, self.events / 9)

    @property
    def time_limit_s(self) -> float:
        """Time after which the demo gives up, in seconds."""
        return 120.0 + self.events / 100


@attrs.frozen
class Snapshot:
    """The progress of the demo. ``lag_s`` is the lag of the consumer in seconds; None before its first event."""

    verdict: Verdict
    lag_s: float | None
    nodes: int
    phase: str


class _Crash(Exception):
    """Simulates the death of the consumer's process."""


class _Mishaps:
    """A fate that also simulates a crash of the process, at the *crash_in*-th call of ``tempt``."""

    def __init__(self, fate: rscylla.Fate, crash_in: int, store: _MortalStore) -> None:
        self._fate = fate
        self._left = crash_in
        self._store = store

    def tempt(self, point: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            self._store.dead = True
            raise _Crash
        if not self._store.dead:
            self._fate.tempt(point)


class _MortalStore:
    """The cursor store of one process of the consumer. When the process dies, buffered cursors are lost."""

    def __init__(self, session: rscylla.Session, save_every: timedelta) -> None:
        table = ScyllaCursorStore(session, KEYSPACE, create=True)
        self._inner = BufferedCursorStore(table, interval=save_every, background=False)
        self.dead = False

    def get_cursor(self, consumer: str) -> str:
        return self._inner.get_cursor(consumer)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        if not self.dead:
            self._inner.set_cursor(consumer, cursor)

    def flush(self) -> None:
        if not self.dead:
            self._inner.flush()

    def close(self) -> None:
        if not self.dead:
            self._inner.close()


class Demo:
    """One demo on a running embedded server. ``run`` blocks; ``stop`` is thread-safe."""

    def __init__(self, scylla: EmbeddedScyllaProcess, plan: DemoPlan) -> None:
        self._scylla = scylla
        self._plan = plan
        self._checker = Checker()
        self._stop = rscylla.Stop()
        self._fate = rscylla.Fate(plan.fate, seed=plan.seed, per_point=dict.fromkeys(_ENGINE_POINTS, plan.fate / 10))
        self._random = random.Random(plan.seed)
        self._consumer = rscylla.Consumer(CONSUMER, self._consume, registry=CollectorRegistry())
        self._clock = rscylla.SystemClock()
        self._deletes: dict[tuple[int, int], int] = {}
        self._written_until_us: int | None = None
        self._consumer_stop = rscylla.Stop()
        self._failures: list[BaseException] = []
        self._ended_early = False
        self._phase = "starting"
        self._nodes = 1

    # ------------------------------------------------------------ control

    def snapshot(self) -> Snapshot:
        """Return the current progress."""
        return Snapshot(self._checker.verdict(), self._consumer.series.lag(), self._nodes, self._phase)

    def stop(self) -> None:
        """End the demo early."""
        self._ended_early = True
        self._stop.set()

    def run(self, tell: Callable[[Snapshot], None] = lambda now: None) -> Verdict:
        """Write, read, crash, and recover until everything is read; return the verdict. Calls *tell* every second.

        Raises:
            Stopped: ``stop`` was called.
            RscyllaError: an error occurred that the demo did not inject, or the time limit of the plan has passed.
        """
        with self._session() as session:
            for statement in (_KEYSPACE_CQL, _TABLE_CQL):
                session.execute(statement)
            threads = [
                threading.Thread(target=self._guarded, args=(work, session), name=f"rscylla-demo-{name}", daemon=True)
                for name, work in (("writer", self._write), ("consumer", self._read))
            ]
            for thread in threads:
                thread.start()
            deadline = self._clock.monotonic() + self._plan.time_limit_s
            try:
                for thread in threads:
                    while thread.is_alive() and self._clock.monotonic() < deadline:
                        thread.join(1.0)
                        tell(self.snapshot())
                late = any(thread.is_alive() for thread in threads)
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join(10.0)
        if self._ended_early:
            raise rscylla.Stopped
        if self._failures:
            raise self._failures[0]
        if late:
            raise rscylla.RscyllaError(
                f"the demo did not end within {self._plan.time_limit_s:g} s; is the machine very busy?"
            )
        return self._checker.verdict()

    @contextmanager
    def _session(self) -> Iterator[rscylla.Session]:
        session = rscylla.connect(self._scylla.contact_points, port=self._scylla.port)
        # The server stamps writes when it stores them, so no row can arrive behind the reader.
        session.use_client_timestamp = False
        try:
            yield session
        finally:
            session.cluster.shutdown()

    def _guarded(self, work: Any, session: rscylla.Session) -> None:
        """Run *work*. Save its error for ``run``, and then end the other thread."""
        try:
            work(session)
        except rscylla.Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - raised by run
            self._failures.append(error)
            self._stop.set()

    # ------------------------------------------------------------ writing

    def _write(self, session: rscylla.Session) -> None:
        """Write all changes: a node joins after half of them, and the last quarter waits for the new generation."""
        writer = _Writer(session, self._plan, self._checker, self._deletes, self._clock, self._stop)
        half, most = self._plan.events // 2, self._plan.events * 3 // 4
        self._phase = "writing"
        writer.write(half)
        self._scylla.add_node(self._plan.switch)
        switches = self._clock.monotonic() + self._plan.switch.total_seconds()
        self._nodes, self._phase = 2, "a node joins"
        writer.write(most)
        self._clock.wait(self._stop, switches - self._clock.monotonic())
        self._phase = "new generation"
        writer.write(self._plan.events)
        # The end is exclusive, and the last write may have a timestamp of this microsecond.
        self._written_until_us = self._clock.now_us() + 1
        self._phase = "reading the rest"
        self._consumer_stop.set()

    # ------------------------------------------------------------ reading

    def _read(self, session: rscylla.Session) -> None:
        """Run the consumer again after each crash, until it has read everything that was written."""
        while True:
            end = self._written_until_us
            try:
                self._live(session, end)
            except rscylla.HeadReached:
                return
            except rscylla.Stopped:
                self._stop.check()
                if end is None and self._written_until_us is None:
                    raise  # the demo did not request this stop
            except rscylla.RunError as error:
                if not isinstance(error.__cause__, _Crash | rscylla.errors.FateError):
                    raise

    def _live(self, session: rscylla.Session, end_us: int | None) -> None:
        """Simulate one process, with a new stream, store, and run. Always raises. Reads up to *end_us*, if given."""
        stop = rscylla.Stop()
        store = _MortalStore(session, self._plan.save_every)
        # An exponential distribution: a crash is equally likely at each step, however long ago the last one was.
        crash_in = 1 + int(self._random.expovariate(1 / self._plan.crash_every))
        until = [] if end_us is None else [rscylla.StreamUntil(time_of(end_us))]
        spec = rscylla.Spec(
            rscylla.NewStream(session, KEYSPACE, TABLE, progress_every=timedelta(seconds=1)),
            store,
            self._consumer,
            rscylla.StreamLag(self._plan.lag),
            *until,
            fate=_Mishaps(self._fate, crash_in, store),
        )
        # A separate stop for each process, so that the end of one does not end the next.
        forget = [self._stop.on_set(stop.set)]
        if end_us is None:
            forget.append(self._consumer_stop.on_set(stop.set))
        try:
            cursor = store.get_cursor(CONSUMER)
            self._checker.started(rscylla.EventID.parse(cursor).key if cursor else None)
            rscylla.run(spec, stop=stop)
        finally:
            for one in forget:
                one()

    def _consume(self, event: rscylla.Event, fate: rscylla.Fate) -> None:
        """Record a delivered change. Its number identifies it in its order; a delete, which has no number, is
        identified by the line, because lines are not reused."""
        assert isinstance(event, rscylla.ChangeEvent)
        order, line = event.key["order_id"], event.key["line"]
        written = event.change.after
        number = written["number"] if written is not None else self._deletes[order, line]
        self._checker.delivered(order, number, rscylla.EventID.parse(event.id).key)
        fate.tempt("consume")


_ENGINE_POINTS = ("after_recv", "after_consume", "before_set_cursor", "before_flush")


class _Writer:
    """Writes random changes of random orders at a steady rate. The changes of an order are numbered in sequence."""

    def __init__(
        self,
        session: rscylla.Session,
        plan: DemoPlan,
        checker: Checker,
        deletes: dict[tuple[int, int], int],
        clock: rscylla.Clock,
        stop: rscylla.Stop,
    ) -> None:
        self._session = session
        self._checker = checker
        self._deletes = deletes
        self._clock = clock
        self._stop = stop
        self._random = random.Random(plan.seed + 1)
        self._numbers = [0] * plan.orders
        self._lines: list[list[int]] = [[] for _ in range(plan.orders)]
        self._next_line = [0] * plan.orders
        self._prepared = {cql: session.prepare(cql) for cql in (_INSERT, _UPDATE, _DELETE)}
        self._pause_s = 1 / plan.rate
        self._done = 0
        self._begun = clock.monotonic()

    def write(self, until: int) -> None:
        """Write until *until* changes in total are confirmed."""
        while self._done < until:
            self._stop.check()
            count = min(_ROUND, until - self._done, len(self._numbers))
            orders = self._random.sample(range(len(self._numbers)), count)
            changes = [self._change(order) for order in orders]
            futures = [self._session.execute_async(*change) for change in changes]
            for order, future in zip(orders, futures, strict=True):
                # Recorded once confirmed: only a confirmed change can count as lost.
                future.result()
                self._checker.written(order, self._numbers[order])
            self._done += count
            early = self._begun + self._done * self._pause_s - self._clock.monotonic()
            if early > 0:
                self._clock.wait(self._stop, early)

    def _change(self, order: int) -> tuple[Any, tuple[Any, ...]]:
        """Return the statement and values of the next change of *order*."""
        self._numbers[order] += 1
        number, lines = self._numbers[order], self._lines[order]
        kind = self._random.random()
        if not lines or kind < 0.4:
            line = self._next_line[order]
            self._next_line[order] += 1
            lines.append(line)
            return self._prepared[_INSERT], (order, line, number, self._random.randrange(1, 500))
        index = self._random.randrange(len(lines))
        if kind < 0.85:
            status = self._random.choice(("paid", "packed", "sent"))
            return self._prepared[_UPDATE], (number, status, order, lines[index])
        line = lines.pop(index)
        self._deletes[order, line] = number  # recorded before it is sent, so that the reader always finds it
        return self._prepared[_DELETE], (order, line)
