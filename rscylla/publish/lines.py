"""``JsonLines``: the publisher to files of JSON lines and to the standard output."""

from __future__ import annotations

import json
import os
import threading
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

from ..abc import Message, PublishDone
from ..errors import ConfigError, PublishFailed

__all__ = ["JsonLines"]


class JsonLines:
    """Writes records as JSON lines; a ``Publisher``. Thread-safe.

    A line has the fields ``topic``, ``key``, ``value``, and, if there are any, ``headers`` (pairs) and ``partition``.
    Keys and values that are JSON are embedded as they are; others are in ``key_base64`` and ``value_base64``. Headers
    are text, or base64 as ``{"base64": ...}`` if they are not UTF-8.

    A record is acknowledged when the operating system has its line, which survives a crash of the process; with *sync*,
    when the disk has it.

    Args:
        to: The path of a file, to which lines are appended, or a binary stream, which the caller closes. A file may end
            in part of a line, from a crash; that part was not acknowledged, and is cut off.
        sync: Wait for the disk. Only for files.

    Raises:
        OSError: the file cannot be opened.
        ConfigError: *sync* is given with a stream.
    """

    def __init__(self, to: str | Path | BinaryIO, *, sync: bool = False) -> None:
        self._owned = isinstance(to, str | Path)
        if sync and not self._owned:
            raise ConfigError("JsonLines: sync= needs the path of a file")
        self._out: BinaryIO = _open(to) if isinstance(to, str | Path) else to
        self._sync = sync
        self._lock = threading.Lock()
        self._closed = False
        self._broken = False

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        """Write *messages*, and call *done*, before this returns.

        Raises:
            PublishFailed: a write failed. What was written may be incomplete; open the file again.
            ConfigError: the publisher is closed.
        """
        text = b"".join([_line(message) for message in messages])
        with self._lock:
            if self._closed:
                raise ConfigError("this JsonLines is closed; create another one")
            if self._broken:
                raise PublishFailed("an earlier write failed, so lines may be incomplete; open the file again")
            try:
                self._out.write(text)
                self._out.flush()
                if self._sync:
                    os.fsync(self._out.fileno())
            except OSError as error:
                self._broken = True
                raise PublishFailed(f"records cannot be written: {error}") from error
        done(None)

    def flush(self, timeout_s: float) -> bool:
        """Return True: each record is settled when ``publish`` returns."""
        return True

    def abandon(self) -> None:
        """Do nothing: no record waits."""

    def trouble(self) -> str:
        """Return ""."""
        return ""

    def close(self) -> None:
        """Close the file; a stream is left open."""
        with self._lock:
            if not self._closed and self._owned:
                self._out.close()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: str | Path) -> BinaryIO:
    """Open a file to append, and cut off what follows its last line."""
    out = Path(path).open("a+b")  # noqa: SIM115 - closed by close()
    try:
        end = out.seek(0, os.SEEK_END)
        kept = end
        while kept:
            start = max(0, kept - 65536)
            out.seek(start)
            found = out.read(kept - start).rfind(b"\n")
            if found >= 0:
                kept = start + found + 1
                break
            kept = start
        if kept < end:
            out.truncate(kept)
    except BaseException:
        out.close()
        raise
    return out


def _line(message: Message) -> bytes:
    parts = [f'"topic":{json.dumps(message.topic, ensure_ascii=False)}'.encode(errors="backslashreplace")]
    for name, value in (("key", message.key), ("value", message.value)):
        if value is None:
            parts.append(b'"%s":null' % name.encode())
        elif _is_json(value):
            parts.append(b'"%s":%s' % (name.encode(), value))
        else:
            parts.append(b'"%s_base64":"%s"' % (name.encode(), b64encode(value)))
    if message.headers:
        pairs = [[name, _header(value)] for name, value in message.headers]
        text = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
        parts.append(b'"headers":' + text.encode(errors="backslashreplace"))
    if message.partition is not None:
        parts.append(b'"partition":%d' % message.partition)
    return b"{" + b",".join(parts) + b"}\n"


def _is_json(value: bytes) -> bool:
    """Return whether *value* is JSON in one line."""
    if b"\n" in value or b"\r" in value:
        return False
    try:
        json.loads(value, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _header(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
