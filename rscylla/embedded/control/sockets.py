"""The Unix socket on which a running server takes commands (``commands.py``), and its client.

A server on port P listens on ``P.sock`` in a directory of its user's, so that a client finds it by the port alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from ..errors import ControlUnavailable, EmbeddedScyllaError
from ..wire.accepting import stop_accepting
from .commands import Commands, result_of

__all__ = ["ControlClient", "ControlSocket", "control_path"]

_LINE_MOST: Final = 1024 * 1024  # bytes of a command
_SUFFIX: Final = ".sock"


def control_path(port: int) -> Path:
    """Return the path of the control socket of a server on *port*, unless it was given another one."""
    return _directory() / f"{port}{_SUFFIX}"


def _directory() -> Path:
    return Path(tempfile.gettempdir()) / f"rscylla-{os.getuid()}"


class ControlSocket:
    """A listening control socket at *path*. Opened and closed on the server's loop; *answer* runs on other threads.

    Only the user who runs the server can connect. A socket that a killed server left behind is replaced; those in the
    directory of `control_path` are removed by the next server that opens one there.
    """

    def __init__(self, path: Path, answer: Callable[[bytes], str]) -> None:
        self.path = path
        self._answer = answer
        self._listening: asyncio.Server | None = None
        self._inode: int | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen. Raises EmbeddedScyllaError if another server listens there, or the path cannot be used."""
        try:
            listener = _bound(self.path)
            self._inode = self.path.lstat().st_ino
            self._listening = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_MOST)
        except OSError as error:
            raise EmbeddedScyllaError(
                f"cannot open the control socket {str(self.path)!r}: {error.strerror or error}; choose another path"
            ) from error

    async def close(self) -> None:
        """Stop listening, hang up on the clients, and remove the socket. Harmless if it is not open."""
        if self._listening is None:
            return
        await stop_accepting([self._listening])
        self._listening.close()
        self._listening = None
        for client in list(self._clients):
            client.close()
        with contextlib.suppress(OSError):
            # Not that of another server, if somebody removed ours.
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            # A line that is cut off or too long is no command: the client has gone, or is none.
            with contextlib.suppress(OSError, ValueError):
                while (line := await reader.readline()).endswith(b"\n"):
                    # On another thread: commands wait for this loop, which does the work.
                    reply = await asyncio.to_thread(self._answer, line)
                    writer.write(reply.encode())
                    await writer.drain()
        finally:
            self._clients.discard(writer)
            writer.close()


def _bound(path: Path) -> socket.socket:
    """Return a socket that is bound to *path* and not yet listening: nobody connects before the mode is set."""
    if path.parent == _directory():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _check_private(path.parent, EmbeddedScyllaError)
    import fcntl  # POSIX only, as are the sockets; a client needs none of it

    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    bound = socket.socket(socket.AF_UNIX)
    try:
        # Two servers that find the same stale socket must not both take its place. Under the lock, a socket that
        # refuses clients is a dead one, not one that is bound and about to listen.
        fcntl.flock(parent, fcntl.LOCK_EX)
        if path.parent == _directory():
            _remove_dead(path)
        if path.is_socket():
            if _is_alive(path):
                raise EmbeddedScyllaError(f"another server uses the control socket {str(path)!r}; choose another path")
            path.unlink()
        _at(path, bound.bind)
        path.chmod(0o600)
        bound.listen()
    except BaseException:
        bound.close()
        raise
    finally:
        os.close(parent)
    return bound


def _check_private(directory: Path, refusal: type[EmbeddedScyllaError]) -> None:
    """Raise *refusal* unless the directory is one that only this user can fill or empty."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise refusal(
            f"{str(directory)!r} must be a directory that only its owner can use; remove it, or choose another path "
            "for the control socket"
        )


def _remove_dead(but: Path) -> None:
    """Remove the control sockets beside *but* that killed servers left behind. Called under the directory's lock."""
    for path in _sockets():
        # One that cannot be probed or removed is in nobody's way.
        with contextlib.suppress(OSError):
            if path != but and not _is_alive(path):
                path.unlink()


def _sockets() -> list[Path]:
    return [path for path in sorted(_directory().glob(f"*{_SUFFIX}")) if path.is_socket()]


def _is_alive(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)  # a server that is stopped by a signal takes no more clients after some
        try:
            _at(path, probe.connect)
        except ConnectionRefusedError:
            return False
        except TimeoutError:
            return True
    return True


def _at(path: Path, act: Callable[[str], None]) -> None:
    """Bind or connect to *path*. Raises OSError, also for a path that is too long for a socket."""
    try:
        act(str(path))
    except OSError as error:
        if error.errno is None:  # raised by Python, before the system is asked
            raise OSError(0, "the path is too long for a Unix socket") from error
        raise


class ControlClient(Commands):
    """Controls a server in another process that has a control socket. Thread-safe; each call connects anew.

    Args:
        path: The control socket; `at_port` finds that of a server by its port.
        timeout: Maximum time until the server answers a command.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self.path = Path(path)
        self._timeout_s = timeout.total_seconds()

    @classmethod
    def at_port(cls, port: int, *, timeout: timedelta = timedelta(seconds=30)) -> ControlClient:
        """Return the client of the server that was started with ``control=True`` and listens on *port*.

        Its commands raise `ControlUnavailable` if others than this user can use the directory of the socket.
        """
        return cls(control_path(port), timeout=timeout)

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(self._timeout_s)
            try:
                if self.path.parent == _directory():
                    # Else another user could have put a server there.
                    _check_private(self.path.parent, ControlUnavailable)
                _at(self.path, connection.connect)
            except (FileNotFoundError, ConnectionRefusedError):
                text = f"no server listens on the control socket {str(self.path)!r}{_others()}"
                raise ControlUnavailable(text) from None
            except OSError as error:
                raise ControlUnavailable(
                    f"the control socket {str(self.path)!r} cannot be used: {error.strerror or error}"
                ) from error
            try:
                connection.sendall(json.dumps(command).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    line = lines.readline()
            except TimeoutError:
                raise ControlUnavailable(f"the server did not answer in {self._timeout_s:g} s") from None
            except OSError as error:
                raise ControlUnavailable(f"the server hung up: {error.strerror or error}") from error
        if not line.endswith(b"\n"):
            raise ControlUnavailable("the server stopped before it answered")
        return result_of(json.loads(line))


def _others() -> str:
    """Return what a user may want to know: the ports of the servers that do listen."""
    alive: list[str] = []
    for path in _sockets():
        with contextlib.suppress(OSError):
            alive += [path.stem] if _is_alive(path) else []
    return f"; there are servers on port {', '.join(alive)}" if alive else ""
