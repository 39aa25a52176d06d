"""The child of an `EmbeddedScyllaProcess`: a server until its standard input ends, or SIGINT or SIGTERM."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

from .control.commands import answer, refusal
from .errors import EmbeddedScyllaError
from .facade import EmbeddedScylla

__all__ = ["main"]

STDOUT = 1


def main() -> int:
    """Serve until told to stop. Prints one JSON line when listening. Returns the exit code: 0, or 1 on failure."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # Collect less often: millions of stored cells are not garbage, and this process holds little else.
    gc.set_threshold(50_000, 20, 50)
    # Here, not on the command line, which would show passwords to everyone.
    options = pickle.loads(bytes.fromhex(sys.stdin.readline()))
    # A socket, not an Event: a signal that comes just before the main thread blocks on a lock would not wake it.
    woken, stop = socket.socketpair()
    stop.setblocking(False)
    signal.set_wakeup_fd(stop.fileno())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        scylla = EmbeddedScylla(**options).start()
    except (EmbeddedScyllaError, ValueError) as error:
        _say({"number": 0, **refusal(error)})
        return 1
    with scylla:
        _say({"number": 0, "port": scylla.port, "shard_aware_port": scylla.shard_aware_port})
        # A daemon: a read from standard input cannot be cut short when a signal ends the process.
        threading.Thread(target=_obey, args=(scylla, stop), daemon=True).start()
        woken.recv(1)
    return 0


def _obey(scylla: EmbeddedScylla, stop: socket.socket) -> None:
    """Carry out the commands of the parent process until it closes the pipe; then wake the main thread."""
    for line in sys.stdin:
        _write(answer(scylla, line))
    with contextlib.suppress(OSError):  # a signal came first
        stop.send(b"\0")


def _say(line: Mapping[str, Any]) -> None:
    _write(json.dumps(line) + "\n")


def _write(text: str) -> None:
    # Not to sys.stdout: Python aborts if it ends while a daemon thread has the lock of its buffer.
    left = text.encode()
    while left:
        left = left[os.write(STDOUT, left) :]


if __name__ == "__main__":
    sys.exit(main())
