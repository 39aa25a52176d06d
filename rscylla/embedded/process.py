"""The embedded server in a process of its own: for measuring, and for being killed.

The child is the module ``child``. The first line of its standard input has its options, each other line a command of
``control/commands.py``. Its standard output has one line when it is ready, then an answer for each command. The number
of the command is part of the answer, so an answer after its time-out is not taken for the next one. When the input
ends, as it does when the parent dies, the child stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from .control.commands import Commands, result_of
from .errors import EmbeddedScyllaError
from .options import ServerOptions
from .sessions import Sessions

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["EmbeddedScyllaProcess"]

_ENDED: Final = "the embedded server's process has ended; its standard error says why"

# glibc hands blocks of a page's size back to the kernel and faults them in again; this keeps them (server time / 3).
_MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(2 << 30)}


@attrs.define(eq=False, repr=False, slots=False)
class EmbeddedScyllaProcess(ServerOptions, Commands):
    """An embedded Scylla in a child process. A context manager; not thread-safe, but for `connect`, `kill` and
    `faults`.

    Args:
        start_timeout: Maximum time until the child listens, and for each answer of the child.
        tune_malloc: Let the child's allocator keep large blocks; no effect outside glibc.

    The other arguments are those of `EmbeddedScylla`, except ``clock``.
    """

    _nodes: int = 1
    start_timeout: timedelta = attrs.field(default=timedelta(seconds=30), kw_only=True)
    tune_malloc: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._timeout_s = self.start_timeout.total_seconds()
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._sessions = Sessions(self.users, self.tls)
        self._talking = threading.Lock()
        self._ready: dict[str, Any] = {}
        self._number = 0  # of the last command

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start the child and return when it listens.

        Raises:
            EmbeddedScyllaError: it is running already, could not start (the port is taken), or took too long.
        """
        if self._child is not None:
            raise EmbeddedScyllaError("the embedded server's process is running already")
        command = [sys.executable, "-m", "rscylla.embedded.child"]
        environment = dict(os.environ)
        # The child runs the same code as the parent, whichever way that was found.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if self.tune_malloc:
            environment |= _MALLOC
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
        )
        # A queue for each child, so that a late answer of an earlier one is not taken for an answer of this one.
        self._answers = queue.SimpleQueue()
        threading.Thread(target=self._read_answers, args=(self._child, self._answers), daemon=True).start()
        try:
            self._send(pickle.dumps({"nodes": self._nodes, **self.arguments()}).hex())
            self._number = 0  # of the line that says that the child listens
            self._ready = self._next_answer()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Close the sessions opened by `connect`, end the child and wait for it. Harmless when it does not run."""
        # First the sessions: drivers whose connections are cut would try to connect again.
        self._sessions.close()
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        try:
            # The end of its input tells the child to stop.
            child.stdin.close()
            child.wait(self._timeout_s)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            child.kill()
            child.wait()

    def kill(self) -> None:
        """End the child at once, as a crash would (SIGKILL). Sessions stay open, broken.

        Its data is gone, unless it has a ``data_dir``: then `start` brings back all that clients were told is written.
        """
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the child has not read the last command
            child.stdin.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------ use; for more, see `Commands`

    @property
    def port(self) -> int:
        """The port that all nodes listen on."""
        self._running()
        return int(self._ready["port"])

    @property
    def shard_aware_port(self) -> int | None:
        """The port of all nodes that gives a client the shard of its own port, see `EmbeddedScylla`; None for none."""
        self._running()
        port: int | None = self._ready["shard_aware_port"]
        return port

    @property
    def pid(self) -> int:
        return self._running().pid

    def connect(self, keyspace: str | None = None, **options: Any) -> Session:
        """Return a new scylla-driver session; `stop` closes it. ``options`` go to ``cassandra.cluster.Cluster``."""
        return self._sessions.connect(self.listening_nodes or self.contact_points, self.port, keyspace, options)

    # ------------------------------------------------------------ talking to the child

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            raise EmbeddedScyllaError("the embedded server's process is not running; call start()")
        return self._child

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        # One command at a time: the answer is the next line with its number.
        with self._talking:
            self._number += 1
            self._send(json.dumps({**command, "number": self._number}))
            return self._next_answer()

    def _send(self, line: str) -> None:
        stdin = self._running().stdin
        assert stdin is not None
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except OSError:
            raise EmbeddedScyllaError(_ENDED) from None

    def _next_answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        while answer.get("number") != self._number:
            try:
                line = self._answers.get(timeout=self._timeout_s)
            except queue.Empty:
                text = f"the embedded server's process did not answer in {self._timeout_s} s"
                raise EmbeddedScyllaError(text) from None
            if not line:
                self._answers.put("")  # for the next command as well, if the pipe still takes one
                raise EmbeddedScyllaError(_ENDED)
            answer = json.loads(line)
        return result_of(answer)

    @staticmethod
    def _read_answers(child: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
        """Hand lines over until the child ends; an empty string tells that."""
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                answers.put(line)
        answers.put("")
