"""A command line under test, in this process or in one of its own, and an embedded server with a table to read."""

from __future__ import annotations

import itertools
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from typer.testing import CliRunner

import rscylla
from rscylla.cli.app import app
from rscylla.embedded import EmbeddedScylla

_numbers = itertools.count()


@attrs.frozen
class Ran:
    """What a command left: its exit code, and its standard output and error as lines."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out]

    @property
    def error(self) -> str:
        """The error line, after a check that there is one and no traceback."""
        lines = [line for line in self.err if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert not any("Traceback" in line for line in self.err)
        return lines[0]


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command line in this process, whose logs are at the end as they were."""
    for name in ("RSCYLLA_USERNAME", "RSCYLLA_PASSWORD", "RSCYLLA_DEBUG", "RSCYLLA_FATE"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str, **environment: str) -> Ran:
        result = CliRunner().invoke(app, list(arguments), env=environment)
        return Ran(result.exit_code, result.stdout.splitlines(), result.stderr.splitlines())

    levels = {name: logging.getLogger(name).level for name in ("rscylla", "cassandra")}
    yield command
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class Process:
    """A command line in a process of its own. ``line`` waits for its next line of standard output.

    *before* is Python that runs in it first.
    """

    def __init__(self, *arguments: str, before: str = "pass") -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", f"{before}; from rscylla.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip("\n"))

    def _read_err(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as lines:
            self.err.extend(line.rstrip("\n") for line in lines)

    def line(self) -> str:
        try:
            return self._lines.get(timeout=60)
        except queue.Empty:
            raise AssertionError(f"no line came; standard error: {self.err}") from None

    def end(self, signal: int | None = None) -> int:
        """Send *signal* if there is one, wait for the end, and return the exit code."""
        if signal is not None:
            self._child.send_signal(signal)
        code = self._child.wait(timeout=60)
        for reader in self._readers:
            reader.join(30)
        return code

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start command lines in processes of their own, which end with the test at the latest."""
    processes: list[Process] = []

    def command(*arguments: str, before: str = "pass") -> Process:
        processes.append(Process(*arguments, before=before))
        return processes[-1]

    yield command
    for process in processes:
        process.kill()


@attrs.frozen
class Shop:
    """A keyspace of a test's own on the embedded server, with a table of orders that has CDC."""

    keyspace: str
    session: rscylla.Session
    host: str

    @property
    def orders(self) -> str:
        return f"{self.keyspace}.orders"

    def insert(self, *ids: int) -> None:
        for order in ids:
            self.session.execute(f"INSERT INTO {self.orders} (id, status) VALUES ({order}, 'new')")

    def cql(self, statement: str) -> list[Any]:
        return list(self.session.execute(statement))


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(seed=1) as server:
        yield server


@pytest.fixture(scope="module")
def session(scylla: EmbeddedScylla) -> rscylla.Session:
    return scylla.connect()


@pytest.fixture
def shop(scylla: EmbeddedScylla, session: rscylla.Session) -> Shop:
    keyspace = f"shop{next(_numbers)}"
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.execute(
        f"CREATE TABLE {keyspace}.orders (id int PRIMARY KEY, status text, total int) "
        "WITH cdc = {'enabled': true, 'preimage': true}"
    )
    return Shop(keyspace, session, f"{scylla.contact_points[0]}:{scylla.port}")
