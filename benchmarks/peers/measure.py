"""Runs readers in turn over one log, each in a process of its own, and keeps what each pass cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any, Self

import attrs

from .shapes import KEYSPACE, Log, cpu_of, peak_mb_of

HERE = Path(__file__).resolve().parent
PASS_S = 900.0
PURE = "@pure"
"""Ends the name of a reader that is to run without the compiled decoder."""


class Disagreement(Exception):
    """A reader returned other rows than were written, or other values than another reader."""


@attrs.frozen
class Pass:
    """What one pass cost: microseconds for each row of the log, and seconds."""

    client_us: float
    server_us: float
    wall_s: float


@attrs.frozen
class Cost:
    """The passes of a reader over one log with one kind of work, a pass a round, and the memory it took."""

    reader: str
    kind: str
    passes: tuple[Pass, ...]
    peak_mb: float

    @property
    def client_us(self) -> tuple[float, float, float]:
        """The median of the client's microseconds a row, the least, and the most."""
        found = [p.client_us for p in self.passes]
        return median(found), min(found), max(found)

    @property
    def server_us(self) -> float:
        return median(p.server_us for p in self.passes)

    @property
    def wall_s(self) -> float:
        return median(p.wall_s for p in self.passes)

    def ratio_to(self, other: Cost) -> float:
        """Return the median of the ratios round by round: both met the machine at about the same time."""
        return median(a.client_us / b.client_us for a, b in zip(self.passes, other.passes, strict=True))

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["reader"], fields["kind"], tuple(Pass(**p) for p in fields["passes"]), fields["peak_mb"])


@attrs.frozen
class Contestant:
    """A reader as a command that takes HOST PORT KEYSPACE. ``of_changes``: see ``readers.Reader``."""

    name: str
    command: tuple[str, ...]
    kinds: tuple[str, ...]
    of_changes: bool


def in_python(name: str, kinds: tuple[str, ...], of_changes: bool) -> Contestant:
    return Contestant(name, (sys.executable, "-m", "peers.readers", name.removesuffix(PURE)), kinds, of_changes)


class Running:
    """A contestant's process. One pass at a time."""

    def __init__(self, who: Contestant, host: str, port: int, errors: Any) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])}
        environment["RSCYLLA_PURE"] = "1" if who.name.endswith(PURE) else ""
        self.who, self._errors = who, errors
        self.process = subprocess.Popen(
            [*who.command, host, str(port), KEYSPACE],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def read(self, log: Log, kind: str) -> dict[str, Any]:
        """Return the answer to a pass.

        Raises:
            SystemExit: the process ended, or took longer than ``PASS_S``.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        deadline = threading.Timer(PASS_S, self.process.kill)
        deadline.start()
        try:
            self.process.stdin.write(f"{log.table} {kind} {log.rows} {log.since_ms}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        finally:
            deadline.cancel()
        if not answer:
            self.process.wait()
            self._errors.seek(0)
            raise SystemExit(f"{self.who.name} ended in a pass over {log.table}: {self._errors.read()[-2000:]}")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextmanager
def started(who: Contestant, host: str, port: int) -> Iterator[Running]:
    with TemporaryFile("w+") as errors:  # a pipe would hold it up when full
        running = Running(who, host, port, errors)
        try:
            yield running
        finally:
            with running.process as process:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def compare(work: Sequence[tuple[Contestant, str]], log: Log, warm: Log, rounds: int, server: Any) -> list[Cost]:
    """Return the cost of each pass of *work*, from *rounds* rounds over *log* after one over *warm*, which warms up.

    In a round each contestant makes its passes, one for each kind; every other round goes backward.

    Raises:
        Disagreement: see there.
    """
    host, port = server.contact_points[0], server.port
    passes: dict[tuple[str, str], list[Pass]] = {(who.name, kind): [] for who, kind in work}
    checks: dict[tuple[str, str, bool], tuple[str, int]] = {}
    with ExitStack() as stack:
        contestants = {who.name: who for who, _ in work}
        running = {name: stack.enter_context(started(who, host, port)) for name, who in contestants.items()}
        for number in range(rounds + 1):
            read = log if number else warm
            for who, kind in work if number % 2 else reversed(work):
                before = cpu_of(server.pid)
                answer = running[who.name].read(read, kind)
                child = cpu_of(server.pid) - before
                _check(who, kind, answer, read, checks)
                if number:
                    client_us, server_us = 1e6 * answer["cpu_s"] / log.rows, 1e6 * child / log.rows
                    passes[who.name, kind].append(Pass(client_us, server_us, answer["wall_s"]))
        peaks = {name: peak_mb_of(each.process.pid) for name, each in running.items()}
    return [Cost(name, kind, tuple(found), peaks[name]) for (name, kind), found in passes.items()]


def _check(
    who: Contestant,
    kind: str,
    answer: Mapping[str, Any],
    log: Log,
    checks: dict[tuple[str, str, bool], tuple[str, int]],
) -> None:
    wanted = log.changes if who.of_changes else log.rows
    if answer["rows"] != wanted:
        raise Disagreement(f"{who.name}: {answer['rows']} read from {log.table}, {wanted} expected")
    first, check = checks.setdefault((log.table, kind, who.of_changes), (who.name, answer["check"]))
    if answer["check"] != check:
        raise Disagreement(f"{log.table}, {kind}: {first} found {check}, {who.name} {answer['check']}")
