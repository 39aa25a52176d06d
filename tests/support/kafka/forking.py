"""Processes of the command line that start in no time: forks of a process that has imported everything.

Tests that kill processes dozens of times use them. All of them end with the process that made them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from maven import tied_to_us

__all__ = ["Fork", "Forking"]

PROGRAM = """
import ctypes, os, signal, sys
import cursorstore, rscylla.cli, rscylla.kafka, rscylla.cli.kafka_run, rscylla.service, prometheus_client
for line in sys.stdin:
    what, *given = line.rstrip().split("\\t")
    if what == "wait":
        print(os.waitstatus_to_exitcode(os.waitpid(int(given[0]), 0)[1]), flush=True)
        continue
    log, *arguments = given
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0), os.dup2(out, 1), os.dup2(out, 2)
    sys.argv = ["rscylla", *arguments]
    code = 1
    try:
        rscylla.cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
"""


class Fork:
    """A process; see ``subprocess.Popen``."""

    def __init__(self, owner: Forking, pid: int) -> None:
        self.pid = pid
        self._owner = owner
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """End it as kill -9 does, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it ends, and return its exit code; negative: the signal that ended it."""
        if self._code is None:
            self._code = int(self._owner.ask("wait", str(self.pid)))
        return self._code

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        if self._code is None and Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            return None
        return self.wait()


class Forking:
    """Starts processes of the command line. A context manager; not thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            tied_to_us([sys.executable, "-c", PROGRAM]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, log: Path, *arguments: str) -> Fork:
        """Start ``rscylla`` with *arguments*; what it prints goes to the end of *log*."""
        return Fork(self, int(self.ask("start", str(log), *arguments)))

    def ask(self, *what: str) -> str:
        given: Any = self._process.stdin
        given.write("\t".join(what) + "\n")
        given.flush()
        answer: Any = self._process.stdout
        return str(answer.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
