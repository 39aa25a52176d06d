"""The embedded server in a process of its own: for measuring, and for being killed.

The child is ``python -m rscylla.embedded --control``. It speaks JSON lines: one when it is ready, then one answer for
each command on its standard input, with the command's number: an answer that comes after its time-out is nobody's.
When that input ends, as it does when the parent dies, the child stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from .cluster.descriptions import Rewriting, Version
from .errors import EmbeddedScyllaError
from .faults.rules import Faults
from .sessions import Sessions
from .wire.tls import Tls

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["USERS_VARIABLE", "EmbeddedScyllaProcess"]

USERS_VARIABLE: Final = "RSCYLLA_EMBEDDED_USERS"
"""Environment variable with the users as a JSON object: a command line would show the passwords to everyone."""

_ENDED: Final = "the embedded server's process has ended; its standard error says why"

# glibc hands blocks of a page's size back to the kernel and faults them in again; this keeps them (server time / 3).
_MALLOC: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(2 << 30)}


class EmbeddedScyllaProcess:
    """An embedded Scylla in a child process. A context manager; not thread-safe, but for `connect`, `kill` and
    `faults`.

    Args:
        nodes, port, shards, vnodes, users, tls, seed, ring_delay, tablets, version, data_dir, fsync, compact_bytes:
            as in `EmbeddedScylla`.
        start_timeout: How long the child may take until it listens.
        tune_malloc: Let the child's allocator keep large blocks; no effect outside glibc.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int = 0,
        shards: int = 2,
        vnodes: int = 8,
        users: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        seed: int | None = None,
        ring_delay: timedelta = timedelta(seconds=30),
        tablets: bool = False,
        version: Version | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        fsync: bool = False,
        compact_bytes: int | None = None,
        start_timeout: timedelta = timedelta(seconds=30),
        tune_malloc: bool = True,
    ) -> None:
        self._arguments: dict[str, int | str] = {
            "nodes": nodes,
            "port": port,
            "shards": shards,
            "vnodes": vnodes,
            "ring-delay-ms": _milliseconds(ring_delay),
        }
        if seed is not None:
            self._arguments["seed"] = seed
        self._tls = tls
        if tls is not None:
            self._arguments |= {"tls-cert": str(tls.certificate.absolute()), "tls-key": str(tls.key.absolute())}
            if tls.client_ca is not None:
                self._arguments["tls-ca"] = str(tls.client_ca.absolute())
        if tablets:
            self._arguments["tablets"] = 1
        if version is not None:
            self._arguments["scylla-version"] = version
        if data_dir is not None:
            self._arguments["data-dir"] = os.fspath(data_dir)
            self._arguments["fsync"] = int(fsync)
        if compact_bytes is not None:
            self._arguments["compact-bytes"] = compact_bytes
        self._users = dict(users) if users is not None else None
        self._timeout_s = start_timeout.total_seconds()
        self._tune_malloc = tune_malloc
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._sessions = Sessions()
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
        command = [sys.executable, "-m", "rscylla.embedded", "--control"]
        for name, value in self._arguments.items():
            command += [f"--{name}", str(value)]
        environment = dict(os.environ)
        # The child runs the same code as the parent, whichever way that was found.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if self._tune_malloc:
            environment |= _MALLOC
        if self._users is not None:
            environment[USERS_VARIABLE] = json.dumps(self._users)
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
        )
        # A queue for each child: what an earlier one still says is nobody's.
        self._answers = queue.SimpleQueue()
        threading.Thread(target=self._read_answers, args=(self._child, self._answers), daemon=True).start()
        try:
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

    # ------------------------------------------------------------ use

    @property
    def contact_points(self) -> list[str]:
        """Addresses of the nodes, without those that were removed."""
        self._running()
        return list(self._ready["contact_points"])

    @property
    def port(self) -> int:
        """The port that all nodes listen on."""
        self._running()
        return int(self._ready["port"])

    @property
    def pid(self) -> int:
        return self._running().pid

    def connect(self, keyspace: str | None = None, **options: Any) -> Session:
        """Return a new scylla-driver session; `stop` closes it. ``options`` go to ``cassandra.cluster.Cluster``."""
        if self._tls is not None and "ssl_context" not in options:
            options["ssl_context"] = self._tls.client_context()
        return self._sessions.connect(self.contact_points, self.port, self._users, keyspace, options)

    def add_node(self, delay: timedelta | None = None) -> str:
        """Let a node join, see `EmbeddedScylla.add_node`; return its address."""
        return str(self._command("add_node", delay)["address"])

    def remove_node(self, address: str) -> None:
        """Let a node leave, see `EmbeddedScylla.remove_node`."""
        self._command("remove_node", address=address)

    def new_generation(self, delay: timedelta | None = None) -> None:
        """Start a new CDC generation, see `EmbeddedScylla.new_generation`."""
        self._command("new_generation", delay)

    def expire_rows(self) -> int:
        """Delete the rows that have expired by their table's TTL column; return how many there were."""
        return int(self._command("expire_rows")["rows"])

    def split_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> None:
        """Split each tablet of a table in two, see `EmbeddedScylla.split_tablets`."""
        self._command("split_tablets", delay, keyspace=keyspace, table=table)

    def merge_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> None:
        """Merge the tablets of a table two by two, see `EmbeddedScylla.merge_tablets`."""
        self._command("merge_tablets", delay, keyspace=keyspace, table=table)

    def upgrade(self, rewriting: Rewriting = "done") -> None:
        """Go from 4.3 to 4.4, see `EmbeddedScylla.upgrade`."""
        self._command("upgrade", rewriting=rewriting)

    def finish_rewriting(self) -> None:
        """Copy the generations that an upgrade has held back, see `EmbeddedScylla.finish_rewriting`."""
        self._command("finish_rewriting")

    @property
    def faults(self) -> Faults:
        """What can go wrong with this cluster, see `EmbeddedScylla.faults`."""
        return Faults(lambda name, arguments: self._command("fault", call=name, arguments=arguments).get("result"))

    # ------------------------------------------------------------ talking to the child

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            raise EmbeddedScyllaError("the embedded server's process is not running; call start()")
        return self._child

    def _command(self, name: str, delay: timedelta | None = None, **arguments: Any) -> dict[str, Any]:
        if delay is not None:
            arguments["delay_ms"] = _milliseconds(delay)
        # One command at a time: the answer is the next line with its number.
        with self._talking:
            stdin = self._running().stdin
            assert stdin is not None
            self._number += 1
            try:
                stdin.write(json.dumps({"command": name, "number": self._number, **arguments}) + "\n")
                stdin.flush()
            except OSError:
                raise EmbeddedScyllaError(_ENDED) from None
            answer = self._next_answer()
        self._ready["contact_points"] = answer["contact_points"]
        return answer

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
        if "error" in answer:
            # The same kind of error as EmbeddedScylla raises.
            raise (ValueError if answer.get("is_value_error") else EmbeddedScyllaError)(answer["error"])
        return answer

    @staticmethod
    def _read_answers(child: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
        """Hand lines over until the child ends; an empty string tells that."""
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                answers.put(line)
        answers.put("")


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
