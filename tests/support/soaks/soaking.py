"""A cluster under load, and what happens to it and to the processes of a service, for tests that break both."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.abc import CursorRecord
from rscylla.embedded import EmbeddedScyllaError, EmbeddedScyllaProcess

KEYS = 30
PATIENCE_S = 180


@contextmanager
def shop() -> Iterator[EmbeddedScyllaProcess]:
    """Yield a cluster of three nodes, in a process of its own, with the table shop.orders."""
    with EmbeddedScyllaProcess(3, ring_delay=timedelta(milliseconds=100)) as server:
        session = server.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
        yield server


class Writer(threading.Thread):
    """Writes numbered changes; each is tried until the database confirms it, so its number may be written twice.

    That holds for the last one, too: a write whose outcome is not known would be neither expected nor unexpected. Who
    holds the lock ``writing`` keeps it from writing.
    """

    def __init__(self, scylla: EmbeddedScyllaProcess, keyspace: str = "shop", every_s: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.writing = threading.Lock()
        self._every_s = every_s
        self.stop = rscylla.Stop()
        self._never = rscylla.Stop()
        self.written = 0
        self._session = scylla.connect()
        # Stamped where they are written: then no row is late, however slow the machine is.
        self._session.use_client_timestamp = False
        self._session.default_timeout = 2
        self._insert = self._session.prepare(f"INSERT INTO {keyspace}.orders (id, n) VALUES (?, ?)")

    def run(self) -> None:
        while not self.stop.wait(self._every_s):
            with self.writing:
                while not self._confirmed():
                    pass
                self.written += 1

    def _confirmed(self) -> bool:
        try:
            self._session.execute(self._insert, (self.written % KEYS, self.written))
        except (DriverException, NoHostAvailable, ConnectionException, OSError):
            self._never.wait(0.005)
            return False
        return True


class Watcher(threading.Thread):
    """Reads the saved cursors of all consumers all the time, and tells which of them went back.

    A new holder opens an epoch at the cursor that it has read, and goes on at the one that the former holder has saved
    meanwhile: until then, the new epoch shows the cursor at which it was opened.
    """

    def __init__(self, scylla: EmbeddedScyllaProcess) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.regressions: list[str] = []
        self.moves = 0
        self._store = ScyllaCursorStore(scylla.connect(), "shop", create=True)
        self._last: dict[str, CursorRecord] = {}
        self._opened: dict[str, CursorRecord] = {}

    def run(self) -> None:
        while not self.stop.wait(0.02):
            try:
                records = self._store.list_cursors()
            except rscylla.RscyllaError:
                continue  # that node is away just now
            for record in records:
                self._see(record)

    def _see(self, record: CursorRecord) -> None:
        name = record.consumer
        last = self._last.setdefault(name, record)
        opened = self._opened.setdefault(name, record)
        if record.takeover and record.epoch > opened.epoch:
            opened = self._opened[name] = record
        key, before = rscylla.cursor_key(record.cursor), rscylla.cursor_key(last.cursor)
        self.moves += key > before
        if key >= before:
            self._last[name] = record
        elif (record.epoch, record.cursor) != (opened.epoch, opened.cursor):
            after = f"{last.cursor} of epoch {last.epoch}"
            self.regressions.append(f"{name}: {record.cursor} of epoch {record.epoch} after {after}")


class Replicas:
    """The processes of a service: so many at a time of *program*, whose arguments are hosts, *out* and *arguments*."""

    def __init__(self, scylla: EmbeddedScyllaProcess, program: Path, out: Path, count: int, *arguments: object) -> None:
        hosts = ",".join(f"{host}:{scylla.port}" for host in scylla.contact_points)
        self._command = [sys.executable, str(program), hosts, str(out), *map(str, arguments)]
        self._errors = (out.parent / "errors").open("ab")
        self.count = count
        self.running: list[subprocess.Popen[bytes]] = []
        self.ended: dict[int, int] = {}
        """The exit codes of those that have ended by themselves and are not excused, by process."""
        self._excused: set[int] = set()

    def fill(self) -> None:
        """Start the missing processes; report one that has ended by itself."""
        for replica in list(self.running):
            if replica.poll() is not None:
                if not self._is_excused(replica):
                    self.ended[replica.pid] = replica.returncode
                self.running.remove(replica)
        while len(self.running) < self.count:
            self.running.append(subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=self._errors))

    def excuse(self) -> None:
        """Let those that run now give up, at any time: what they read was altered, which they see when they read."""
        self._excused.update(replica.pid for replica in self.running)

    def code(self, replica: subprocess.Popen[bytes]) -> int:
        """Return the exit code of *replica* when it has ended: 0 if it gave up and is excused."""
        code = replica.wait(PATIENCE_S)
        return 0 if self._is_excused(replica) else code

    def _is_excused(self, replica: subprocess.Popen[bytes]) -> bool:
        return replica.returncode == 1 and replica.pid in self._excused

    def kill(self, replica: subprocess.Popen[bytes]) -> None:
        replica.kill()
        replica.wait()
        self.running.remove(replica)

    def end(self) -> list[int]:
        """Stop all as an operator would; return their exit codes."""
        for replica in self.running:
            replica.send_signal(signal.SIGCONT)
            replica.terminate()
        return [self.code(replica) for replica in self.running]

    def close(self) -> None:
        for replica in self.running:
            with suppress(ProcessLookupError):
                replica.kill()
            replica.wait()
        self._errors.close()


class Chaos:
    """Causes one fault after another, and ends most of them again. *pause_s* is more than a lease lasts."""

    def __init__(
        self, scylla: EmbeddedScyllaProcess, replicas: Replicas, out: Path, dice: random.Random, *, pause_s: float
    ) -> None:
        self._scylla = scylla
        self._replicas = replicas
        self._out = out
        self._pause_s = pause_s
        self._dice = dice
        self._never = rscylla.Stop()
        self.counts: Counter[str] = Counter()

    def strike(self) -> None:
        self._cause(*[self.kill_worker] * 3, self.kill_any, *[self.pause_worker] * 2, *self._faults)
        self._replicas.fill()

    def strike_cluster(self) -> None:
        """Leave the processes alone."""
        self._cause(*self._faults)

    @property
    def _faults(self) -> tuple[Callable[[], None], ...]:
        return self.stop_node, self.stall_node, self.cut_connections, self.refuse, self.new_streams

    def _cause(self, *actions: Callable[[], None]) -> None:
        action = self._dice.choice(actions)
        action()
        self.counts[action.__name__] += 1

    def worker(self) -> subprocess.Popen[bytes] | None:
        """Return the replica that delivered last."""
        lines = read(self._out)
        found = [r for r in self._replicas.running if lines and r.pid == int(lines[-1][0])]
        return found[0] if found else None

    def kill_worker(self) -> None:
        self._replicas.kill(self.worker() or self._dice.choice(self._replicas.running))

    def kill_any(self) -> None:
        self._replicas.kill(self._dice.choice(self._replicas.running))

    def pause_worker(self) -> None:
        """Past its lease, so that another takes over before it wakes up."""
        replica = self.worker() or self._dice.choice(self._replicas.running)
        replica.send_signal(signal.SIGSTOP)
        self._never.wait(self._pause_s)
        replica.send_signal(signal.SIGCONT)

    def stop_node(self) -> None:
        node = self._dice.choice(self._scylla.contact_points)
        self._scylla.faults.stop_node(node)
        self._never.wait(self._dice.uniform(0.5, 3))
        self._scylla.faults.start_node(node)

    def stall_node(self) -> None:
        node = self._dice.choice(self._scylla.contact_points)
        self._scylla.faults.stall_node(node)
        self._never.wait(self._dice.uniform(0.5, 3))
        self._scylla.faults.resume_node(node)

    def cut_connections(self) -> None:
        with self._scylla.faults.drop_connection(probability=0.3, seed=self._dice.randrange(1000), times=None):
            self._never.wait(self._dice.uniform(0.2, 2))

    def refuse(self) -> None:
        fault = self._dice.choice(["unavailable", "overloaded", "read_timeout", "write_timeout"])
        with self._scylla.faults.fail(fault, probability=0.3, seed=self._dice.randrange(1000), times=None):
            self._never.wait(self._dice.uniform(0.2, 2))

    def new_streams(self) -> None:
        with suppress(EmbeddedScyllaError):  # the last ones have not begun yet
            self._scylla.new_generation(timedelta(seconds=2))


def read(out: Path) -> list[list[str]]:
    return [line.split("\t") for line in out.read_text().splitlines()] if out.exists() else []


def await_progress(out: Path) -> None:
    """Wait until something more was delivered: what is broken next is to meet a service at work."""
    before = len(read(out))
    await_true(lambda: len(read(out)) > before, "nothing is delivered any more")


def await_true(condition: Callable[[], bool], what: str, why: Callable[[], str] = str) -> None:
    never, clock = rscylla.Stop(), rscylla.SystemClock()
    deadline = clock.monotonic() + PATIENCE_S
    while not condition():
        if clock.monotonic() > deadline:
            pytest.fail(f"{what} {why()}")
        never.wait(0.1)
