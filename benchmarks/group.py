"""What a group of processes costs and yields: 1, 2, and 4 members, beside one process without a group.

That one reads the table as one stream, and as the slices that a group has. All read the same log, in turns, with a
buffered store. They begin to read when the group is in balance. Each member takes its clocks at the event that ends a
third of its part of the rows, and at the one that ends nine tenths of it: rates and costs are of the rows between. What
comes before is the start. With ``--work``, the consumer spends that many microseconds of CPU time on each event. Then
the log is idle, and the server counts the queries.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from statistics import median
from typing import Any

import attrs
from peers.shapes import KEYSPACE, LAG, SHAPES, cpu_of, fill

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaMembership
from rscylla.embedded import EmbeddedScyllaProcess, Statements

SLICES = 64
EVERY_S = 0.1
PATIENCE_S = 300.0

ONE, SLICED = 0, -1
"""In place of a number of members: one process without a group, that reads one stream, or slices."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--work", type=int, nargs="+", default=[0, 100], help="microseconds of each event")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which the queries are counted")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        member(json.loads(args.member))
        return
    with EmbeddedScyllaProcess() as server:
        session = rscylla.connect([f"{server.contact_points[0]}:{server.port}"])
        log = fill(session, SHAPES["narrow"], args.rows, batch=10)
        numbers = count()
        for work_us in args.work:
            rows = log.changes if not work_us else log.changes // 2
            rounds: dict[int, list[Pass]] = {members: [] for members in (ONE, SLICED, *args.members)}
            for turn in range(args.rounds):
                for members in sorted(rounds, reverse=turn % 2 == 1):
                    rounds[members].append(drain(server, members, rows, work_us, next(numbers)))
            report(rounds, work_us)
        print(f"\nqueries a second, idle   {'log':>10}{'group':>10}{'cursors':>10}{'all, a member':>16}")
        for members in (ONE, SLICED, *args.members):
            idle(server, members, log.changes, args.idle, next(numbers))
        session.cluster.shutdown()


# ---------------------------------------------------------------- a member


class Gated(BufferedCursorStore):
    """Lets no lane begin before ``opened`` is set; a lane that may not yet can be stopped between its attempts."""

    opened = threading.Event()

    def get_cursor(self, consumer: str) -> str:
        if not self.opened.wait(0.25):
            raise rscylla.QueryTimeout("the others are not there yet")
        return super().get_cursor(consumer)


def member(about: dict[str, Any]) -> None:
    """Read as one member of a group, or alone, and print every now and then how much, until stdin ends."""
    logging.disable(logging.ERROR)  # lanes that may not begin yet fail
    session = rscylla.connect([about["host"]])
    stream = rscylla.NewStream(session, KEYSPACE, "narrow")
    work_s, seen = about["work_us"] / 1e6, count(1)
    total, taken = 0, {}
    marks = {about["rows"] // 3: "third", about["rows"] * 9 // 10: "end"}

    def consume(event: rscylla.Event, _run: object) -> None:
        nonlocal total
        if work_s:
            ends = time.thread_time() + work_s
            while time.thread_time() < ends:
                pass
        total = number = next(seen)  # of several lanes
        if number in marks:
            taken[marks[number]] = number, time.monotonic(), time.process_time()

    def consumer(name: str) -> rscylla.Consumer:
        return rscylla.Consumer(name, consume)

    membership = None
    pause = timedelta(milliseconds=10)
    restarts = rscylla.Restarts(most=None, backoff=rscylla.Backoff(initial=pause, maximum=pause))
    if about["group"]:
        membership = ScyllaMembership(session, KEYSPACE, about["group"], slices=SLICES, create=True)
        store = Gated(ScyllaCursorStore(session, KEYSPACE, create=True, lease=membership))
        group = rscylla.Group(membership, rscylla.group_lanes(about["consumer"], stream, store, consumer, LAG))
        service = rscylla.Service(group=group, restarts=restarts)
    else:
        store = Gated(ScyllaCursorStore(session, KEYSPACE, create=True))
        lanes = rscylla.group_lanes(about["consumer"], stream, store, consumer, LAG)
        specs = (
            [spec for index in range(SLICES) for spec in lanes(index, SLICES)]
            if about["sliced"]
            else [rscylla.Spec(stream, store, consumer(about["consumer"]), LAG)]
        )
        service = rscylla.Service(specs, restarts=restarts)
    print("ready", flush=True)
    sys.stdin.readline()
    with service:
        done = threading.Event()

        def listen() -> None:
            if sys.stdin.readline():
                store.opened.set()
                sys.stdin.read()
            done.set()

        threading.Thread(target=listen, daemon=True).start()
        while not done.wait(EVERY_S):
            held = SLICES if membership is None else len(membership.held())
            print(json.dumps({"events": total, "held": held, **taken}), flush=True)
    session.cluster.shutdown()


@attrs.frozen
class Pass:
    """``start_s``: until the balance; ``rate``: events a second; ``client_us``: CPU of a row; ``start_cpu_s``: once."""

    start_s: float
    rate: float
    client_us: float
    start_cpu_s: float


@attrs.frozen
class Taken:
    """The clocks of a member at one event: ``events`` that it has handled, monotonic seconds, and seconds of CPU."""

    events: int
    at: float
    cpu: float


class Members:
    """The processes that read one table, with what each said last."""

    def __init__(self, server: EmbeddedScyllaProcess, members: int, rows: int, work_us: int, number: int) -> None:
        about = {
            "host": f"{server.contact_points[0]}:{server.port}",
            "group": f"group{number}" if members > 0 else "",
            "sliced": members == SLICED,
            "rows": rows // max(1, members),
            "consumer": f"consumer{number}",
            "work_us": work_us,
        }
        command = [sys.executable, __file__, "--member", json.dumps(about)]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
            for _ in range(max(1, members))
        ]
        self.said: list[dict[str, Any]] = [{"events": 0, "held": 0} for _ in self.processes]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for at, process in enumerate(self.processes):
            threading.Thread(target=self._listen, args=(at, process), daemon=True).start()

    def _listen(self, at: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.said[at] = json.loads(line)

    def say(self, word: str) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

    @property
    def events(self) -> int:
        return sum(one["events"] for one in self.said)

    @property
    def balanced(self) -> bool:
        held = [one["held"] for one in self.said]
        return len(self.said) == 1 or (sum(held) == SLICES and max(held) - min(held) <= 1)

    @property
    def cpu(self) -> float:
        return sum(cpu_of(process.pid) for process in self.processes)

    def taken(self, what: str) -> list[Taken]:
        """Return the clocks of all members, once each has taken them."""
        self._wait(lambda: all(what in one for one in self.said), f"their {what}")
        return [Taken(*one[what]) for one in self.said]

    def until(self, events: int, *, balanced: bool = False) -> None:
        self._wait(lambda: self.events >= events and (not balanced or self.balanced), f"{events} events")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > ends:
                raise SystemExit(f"the members did not reach {what}: {self.said}")
            time.sleep(EVERY_S / 2)

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(60)


def drain(server: EmbeddedScyllaProcess, members: int, rows: int, work_us: int, number: int) -> Pass:
    """Return what reading nine of ten *rows* took."""
    with ExitStack() as stack:
        group = Members(server, members, rows, work_us, number)
        stack.callback(group.close)
        began = time.monotonic()
        group.say("join")
        group.until(0, balanced=True)
        balanced, idle_cpu = time.monotonic(), group.cpu
        group.say("read")
        third, end = group.taken("third"), group.taken("end")
        pairs = [(a, b, b.events - a.events) for a, b in zip(third, end, strict=True)]
        rate = sum(read / (b.at - a.at) for a, b, read in pairs)
        client = sum(b.cpu - a.cpu for a, b, _ in pairs) / sum(read for _, _, read in pairs)
        # What opening the lanes costs, once: all that the first third of the rows took beyond what the others take.
        start = sum(one.cpu for one in third) - idle_cpu - client * sum(one.events for one in third)
        return Pass(balanced - began, rate, 1e6 * client, start)


def report(rounds: dict[int, list[Pass]], work_us: int) -> None:
    """Print medians; ratios are the medians of those within the rounds."""
    head = f"{work_us} us of work an event"
    print(f"\n{head:<28}{'balance s':>10}{'events/s':>11}{'ratio':>8}{'client us':>11}{'ratio':>8}{'start CPU s':>13}")
    for members, passes in rounds.items():
        rate = median(one.rate / alone.rate for one, alone in zip(passes, rounds[ONE], strict=True))
        cost = median(one.client_us / alone.client_us for one, alone in zip(passes, rounds[ONE], strict=True))
        print(
            f"{name_of(members):<28}{median(one.start_s for one in passes):>10.1f}"
            f"{median(one.rate for one in passes):>11.0f}{rate:>8.2f}"
            f"{median(one.client_us for one in passes):>11.1f}{cost:>8.2f}"
            f"{median(one.start_cpu_s for one in passes):>13.2f}",
            flush=True,
        )


def name_of(members: int) -> str:
    if members > 0:
        return f"group of {members}"
    return "one process, no group" if members == ONE else f"{SLICES} slices, no group"


def idle(server: EmbeddedScyllaProcess, members: int, rows: int, seconds: float, number: int) -> None:
    """Print the queries a second of a log that nothing is written to, read to its head."""
    tables = ("narrow_scylla_cdc_log", "rscylla_groups", "rscylla_cursors")
    rules = [server.faults.delay(timedelta(0), Statements(table=table), times=None) for table in tables]
    with ExitStack() as stack:
        group = Members(server, members, rows, 0, number)
        stack.callback(group.close)
        group.say("join")
        group.say("read")
        group.until(rows, balanced=True)
        time.sleep(20)  # until all poll an idle log
        before = [rule.hits for rule in rules]
        time.sleep(seconds)
        rates = [(rule.hits - was) / seconds for rule, was in zip(rules, before, strict=True)]
    for rule in rules:
        rule.remove()
    shown = "".join(f"{rate:>10.2f}" for rate in rates)
    print(f"{name_of(members):<25}{shown}{sum(rates) / max(1, members):>16.2f}", flush=True)


if __name__ == "__main__":
    main()
