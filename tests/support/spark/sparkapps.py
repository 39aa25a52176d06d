"""Spark applications as processes of their own, which tests kill with all that they started, and start again.

In a test::

    app = SparkApp(kill_spark.__file__, *arguments, evidence=tmp_path / "evidence")
    moments = [more_files(checkpoint / "commits"), at("merged")]
    app.run_until_done(random.Random(seed), kills=10, moments=moments)

In the program, where it may be killed by name: ``point("merged")``. The program is done when it ends with code 0.

Linux only: processes are found in ``/proc``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from maven import tied_to_us

__all__ = [
    "ALONE",
    "SPARK_GAVE_UP",
    "STARTS",
    "Moment",
    "SparkApp",
    "after",
    "at",
    "kill_session",
    "more_files",
    "point",
    "processes_of",
    "quick_environment",
    "wait_until",
]

ALONE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings of a session that shows nothing, and listens on loopback."""

SPARK_GAVE_UP = "Python worker failed to connect back"
"""Spark gives the process of a streaming source ten seconds to start, and this cannot be changed: on a busy machine it
takes several tries. An application that is started again goes on from its checkpoint."""

STARTS = 10
"""How often an application may end with ``SPARK_GAVE_UP``."""

PATIENCE_S = 900
_POINT = "RSCYLLA_KILL_AT"


def quick_environment() -> dict[str, str]:
    """Return the environment of Spark's processes that start often: this one, Java and Python that start sooner."""
    here = Path(__file__).parent
    own = [str(here / "spark_python"), str(here), str(here.parent)]
    paths = [*own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner and runs slower
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths))),
    }


# ---------------------------------------------------------------- processes


def processes_of(session: int) -> dict[int, str]:
    """Return the processes of a session, by pid their command lines: those of a leader and of all that it started.

    A group would not do, as the daemon of Spark's Python workers makes one of its own.
    """
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(stat.parent.name)] = (
                    (stat.parent / "cmdline").read_text("utf-8", "replace").replace("\0", " ")
                )
    return found


def kill_session(session: int) -> None:
    """Kill -9 all processes of a session, and wait until they are gone. The caller, if it is one, is the last."""
    own = os.getpid()
    kill: set[int] = set()

    def gone() -> bool:
        kill.update(found := processes_of(session).keys() - {own})
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(gone, "the processes of a session do not end", seconds=60, pause_s=0.005)
    if session == os.getsid(0):
        os.kill(own, signal.SIGKILL)


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str],
    *,
    seconds: float = PATIENCE_S,
    pause_s: float = 0.02,
) -> None:
    """Wait until *condition* holds.

    Raises:
        AssertionError: it did not within so many *seconds* of waiting; *what* says what is missing.
    """
    pause = threading.Event()
    for _ in range(int(seconds / pause_s)):
        if condition():
            return
        pause.wait(pause_s)
    raise AssertionError(what if isinstance(what, str) else what())


# ---------------------------------------------------------------- moments


@attrs.frozen
class Moment:
    """When an application is killed.

    ``arm`` is called before a start, and returns the condition under which it is killed; with ``point``, the
    application kills itself where it calls ``point`` of that name for the n-th time, drawn from *nth*.
    """

    name: str
    arm: Callable[[random.Random], Callable[[], bool]] = lambda _dice: lambda: False
    point: str = ""
    nth: tuple[int, int] = (1, 1)


def more_files(
    directory: Path, *, by: tuple[int, int] = (1, 3), are: Callable[[Path], bool] = lambda p: p.name.isdigit()
) -> Moment:
    """When *directory*, such as ``commits`` of a checkpoint, has so many more files than at the start.

    Those that count are numbered ones, or those of which *are* is true.
    """

    def count() -> int:
        return sum(map(are, directory.glob("*")))

    def arm(dice: random.Random) -> Callable[[], bool]:
        goal = count() + dice.randint(*by)
        return lambda: count() >= goal

    return Moment(f"{directory.name} +{by[0]}-{by[1]}", arm)


def after(seconds: tuple[float, float]) -> Moment:
    """When a random time has passed since the start, however far the application came."""

    def arm(dice: random.Random) -> Callable[[], bool]:
        passed = threading.Event()
        timer = threading.Timer(dice.uniform(*seconds), passed.set)
        timer.daemon = True
        timer.start()
        return passed.is_set

    return Moment(f"after {seconds[0]:g}-{seconds[1]:g} s", arm)


def at(name: str, *, nth: tuple[int, int] = (1, 1)) -> Moment:
    """When the application reaches a point for the n-th time, drawn from *nth*."""
    return Moment(f"at {name}", point=name, nth=nth)


_reached: Counter[str] = Counter()


def _said(name: str) -> str:
    """Return what an application prints before it kills itself at a point."""
    return f"<killed at {name}>"


def point(name: str) -> None:
    """A point of an application where it may be killed: with its JVM and all workers, before this returns."""
    _reached[name] += 1
    if os.environ.get(_POINT) == f"{name}:{_reached[name]}":
        print(_said(name), flush=True)
        kill_session(os.getsid(0))


# ---------------------------------------------------------------- applications


class SparkApp:
    """A program in Python that is started as a process of its own, any number of times. Not thread-safe.

    Args:
        program: the file; its directory and those of this file are on its path.
        evidence: directory that keeps what each run printed, ``run-001.log``, and ``kills.json``.
        environment: in addition to ``quick_environment``.
    """

    def __init__(
        self,
        program: str | Path,
        *arguments: str,
        evidence: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = [sys.executable, str(program), *arguments]
        self._environment = {"PYSPARK_PYTHON": sys.executable, **quick_environment(), **(environment or {})}
        self.evidence = evidence
        self.starts = 0
        self.kills: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the last run printed."""
        return self.evidence / f"run-{self.starts:03d}.log"

    @property
    def pid(self) -> int:
        """The process of the driver; its session has the same number."""
        assert self._process is not None
        return self._process.pid

    @contextmanager
    def running(self, *more: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the application with *more* arguments; at the end of the block, kill it with its JVM and workers."""
        self.starts += 1
        self.evidence.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                tied_to_us([*self._command, *more]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment | environment,
                start_new_session=True,
            )
        try:
            yield self._process
        finally:
            kill_session(self._process.pid)
            self._process.wait()

    def run(self, *more: str) -> None:
        """Run the application with *more* arguments to its end. It is started again where Spark gave up.

        Raises:
            AssertionError: it failed, or took longer than ``PATIENCE_S``.
        """
        for _ in range(STARTS):
            with self.running(*more) as process:
                wait_until(lambda p=process: p.poll() is not None, lambda: self.evidently("it does not end"))
            if self._is_done():
                return
        raise AssertionError(self.evidently("Spark gave up each time"))

    def run_until_done(
        self,
        dice: random.Random,
        *,
        kills: int,
        moments: Sequence[Moment],
        in_order: bool = False,
        last: Sequence[str] = (),
    ) -> Counter[str]:
        """Kill the application so many times, each at one of *moments*, then run it to its end.

        Each moment comes about equally often, in random order.

        Args:
            in_order: the moments come in the order given, as those of jobs that run one after the other.
            last: more arguments of the last run, which is not killed.

        Returns:
            How often it was killed at each moment.

        Raises:
            AssertionError: it failed, was done before that, or took longer than ``PATIENCE_S`` for a start.
        """
        chosen = [moments[i % len(moments)] for i in range(kills)]
        if not in_order:
            dice.shuffle(chosen)
        for moment in chosen:
            while not self._killed_at(moment, dice):
                assert self.starts < kills + STARTS, self.evidently("Spark gave up too often")
        self.run(*last)
        return Counter(self.kills)

    def evidently(self, what: str) -> str:
        """Return *what* with the evidence: how the application was killed, and the end of what it printed."""
        printed = self.log.read_text("utf-8", "replace")[-3000:] if self.log.exists() else ""
        return f"{what}; start {self.starts}, after kills {self.kills}; evidence is in {self.evidence}\n{printed}"

    def _killed_at(self, moment: Moment, dice: random.Random) -> bool:
        """Start the application and kill it; return False if Spark gave up before that."""
        condition = moment.arm(dice)
        environment = {_POINT: f"{moment.point}:{dice.randint(*moment.nth)}"} if moment.point else {}
        with self.running(**environment) as process:
            wait_until(
                lambda: condition() or process.poll() is not None,
                lambda: self.evidently(f"the moment {moment.name!r} does not come"),
            )
            ended = process.poll()
        # At a point, the driver is the last process to die; before that, its main thread may fail without the JVM.
        if ended is None or (moment.point and _said(moment.point) in self.log.read_text("utf-8", "replace")):
            self.kills.append(moment.name)
            (self.evidence / "kills.json").write_text(json.dumps(self.kills))
            return True
        assert not self._is_done(), self.evidently(f"it was done before the moment {moment.name!r}")
        return False

    def _is_done(self) -> bool:
        """Return whether the last run, which ended by itself, did all; it may be excused, see ``SPARK_GAVE_UP``."""
        assert self._process is not None
        code = self._process.returncode
        excused = SPARK_GAVE_UP in self.log.read_text("utf-8", "replace")
        assert code == 0 or excused, self.evidently(f"it ended with code {code}")
        return code == 0
