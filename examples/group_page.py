"""A group of processes on one machine, and the page that shows it; on an embedded server.

    python examples/group_page.py

With ``--member`` this is one of the other processes of the group. It ends when its standard input does, so none of
them outlives the first.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaMembership
from rscylla.embedded import EmbeddedScyllaProcess

KEYSPACE, TABLE, GROUP = "shop", "orders", "orders"

SLICES = 24
OTHERS = ("stockholm", "porto")
"""The names of the other processes of the group; one is killed from time to time, and started again."""

_TTL = timedelta(seconds=8)
"""Short, so that one sees how the others take over."""

_LAG = rscylla.StreamLag(milliseconds=500)
"""Safe here, because one server stamps all rows with the clock that the readers use; on a cluster, use 30 s or more."""

_UNLUCKY = 13
"""No order of this amount can be billed: it becomes a dead letter."""

_ACT_S, _AWAY_S, _NODES = 25.0, 12.0, 5
"""Every so often something happens: a process dies, for so long, or a node joins, up to so many."""


def show_group(seed: int | None, seconds: int | None, port: int, stop: rscylla.Stop, *, as_json: bool) -> None:
    """Run the group until *stop* is set, or for *seconds*.

    Raises:
        RscyllaError: the port is in use, or a thread failed.
    """
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    with (
        EmbeddedScyllaProcess(seed=seed) as scylla,
        _connected(scylla) as session,
        ExitStack() as stack,
    ):
        _create(session)
        service = _service(session, "lisbon", port)
        stack.enter_context(service)
        others = _Others(scylla)
        stack.callback(others.close)
        failures: list[BaseException] = []
        stack.callback(stop.set)  # so that no thread outlives the session
        threads = [
            threading.Thread(target=_guarded, args=(work, stop, failures), name=name, daemon=True)
            for name, work in (
                ("writer", lambda: _write(session, random.Random(seed), stop)),
                ("events", lambda: _act(scylla, others, stop)),
            )
        ]
        for thread in threads:
            thread.start()
        _show("http://{}:{}/".format(*service.address or ("127.0.0.1", port)), as_json=as_json)
        stop.wait(seconds)
        stop.set()
        for thread in threads:
            thread.join(10.0)
    if failures:
        raise failures[0]


def _show(url: str, *, as_json: bool) -> None:
    """Print *url*, and open it if there is a display."""
    print(json.dumps({"url": url}) if as_json else f"{url}  (Ctrl-C ends it)", flush=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def _guarded(work: Callable[[], None], stop: rscylla.Stop, failures: list[BaseException]) -> None:
    """Run *work*. Keep its error, and end all."""
    try:
        work()
    except rscylla.Stopped:
        return
    except BaseException as error:  # noqa: BLE001 - raised by show_group
        if not stop.is_set():
            failures.append(error)
        stop.set()


# ---------------------------------------------------------------- a member of the group


@contextmanager
def _connected(scylla: EmbeddedScyllaProcess) -> Iterator[rscylla.Session]:
    with _session(scylla.contact_points[0], scylla.port) as session:
        yield session


@contextmanager
def _session(host: str, port: int) -> Iterator[rscylla.Session]:
    session = rscylla.connect([host], port=port)
    session.use_client_timestamp = False  # the server stamps writes, so no row can arrive behind the readers
    try:
        yield session
    finally:
        session.cluster.shutdown()


def _create(session: rscylla.Session) -> None:
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (id int PRIMARY KEY, amount int, status text) WITH cdc = {{'enabled': true}}"
    )


def _service(session: rscylla.Session, owner: str, port: int | None) -> rscylla.Service:
    """Return the service of the member *owner*: two consumers of one table."""
    member = ScyllaMembership(session, KEYSPACE, GROUP, owner=owner, slices=SLICES, ttl=_TTL, create=True)
    store = BufferedCursorStore(ScyllaCursorStore(session, KEYSPACE, create=True, lease=member))
    letters = ScyllaDeadLetters(session, KEYSPACE, create=True)
    stream = rscylla.NewStream(session, KEYSPACE, TABLE, progress_every=timedelta(seconds=1))
    backoff = rscylla.Backoff(initial=timedelta(milliseconds=10))

    def billing(name: str) -> rscylla.abc.Consumer:
        return rscylla.dead_letter(rscylla.Consumer(name, _bill), letters, retries=1, backoff=backoff)

    def audit(name: str) -> rscylla.abc.Consumer:
        return rscylla.Consumer(name, lambda event, run: None)

    lanes = [
        rscylla.group_lanes(name, stream, store, make, _LAG) for name, make in (("billing", billing), ("audit", audit))
    ]
    return rscylla.Service(group=rscylla.Group(member, *lanes), port=port, dead_letters=letters)


def _bill(event: rscylla.Event, run: rscylla.Run) -> None:
    assert isinstance(event, rscylla.ChangeEvent)
    if (event.change.after or {}).get("amount") == _UNLUCKY:
        raise ValueError(f"an order of {_UNLUCKY} cannot be billed")


class _Others:
    """The other processes of the group. ``kill`` and ``start`` are for one thread; ``close`` ends all that are left."""

    def __init__(self, scylla: EmbeddedScyllaProcess) -> None:
        self._where = [scylla.contact_points[0], str(scylla.port)]
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._closed = False

    def start(self, name: str) -> None:
        with self._lock:
            if not self._closed:
                command = [sys.executable, __file__, "--member", *self._where, name]
                self._processes[name] = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._ended(self._processes[name])

    def close(self) -> None:
        """Let all processes hand over their slices and end."""
        with self._lock:
            self._closed = True
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        for process in self._processes.values():
            self._ended(process)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _member(host: str, port: str, owner: str) -> None:
    """Be a member of the group until standard input ends."""
    with _session(host, int(port)) as session, _service(session, owner, None):
        sys.stdin.read()


# ---------------------------------------------------------------- what happens to it


def _write(session: rscylla.Session, dice: random.Random, stop: rscylla.Stop) -> None:
    """Write orders, now more and now fewer."""
    clock = rscylla.SystemClock()
    insert = session.prepare(f"INSERT INTO {KEYSPACE}.{TABLE} (id, amount, status) VALUES (?, ?, 'new')")
    for second in range(1_000_000):
        began = clock.monotonic()
        rate = int(90 + 70 * math.sin(second / 15))
        for future in [
            session.execute_async(insert, (dice.randrange(100_000), dice.randrange(2_000))) for _ in range(rate)
        ]:
            future.result()
        clock.wait(stop, max(0.0, 1.0 - (clock.monotonic() - began)))
        stop.check()


def _act(scylla: EmbeddedScyllaProcess, others: _Others, stop: rscylla.Stop) -> None:
    """Start the other processes, and then let something happen from time to time."""
    clock, nodes = rscylla.SystemClock(), 1
    for name in OTHERS:
        others.start(name)
    for turn in range(1_000_000):
        clock.wait(stop, _ACT_S)
        stop.check()
        if turn % 2 == 0 and nodes < _NODES:
            nodes += 1
            scylla.add_node(timedelta(seconds=2))
            continue
        name = OTHERS[turn // 2 % len(OTHERS)]
        others.kill(name)
        clock.wait(stop, _AWAY_S)
        stop.check()
        others.start(name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show a group of processes on a web page, until Ctrl-C.")
    parser.add_argument("--port", type=int, default=0, help="port of the page; 0: any free port")
    parser.add_argument("--seconds", type=int, help="end after so many seconds")
    parser.add_argument("--seed", type=int, help="write the orders of this seed; default: a random one")
    parser.add_argument("--json", action="store_true", help="say the address as JSON")
    parser.add_argument("--member", nargs=3, metavar=("HOST", "PORT", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # Nodes join and processes die on purpose, and a short lag is safe here.
    logging.getLogger("rscylla").setLevel(logging.ERROR)
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    if arguments.member:
        _member(*arguments.member)
        return
    stop = rscylla.Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        show_group(arguments.seed, arguments.seconds, arguments.port, stop, as_json=arguments.json)
    except rscylla.RscyllaError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
