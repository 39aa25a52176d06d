"""Standard input, output, and error of a command, in UTF-8: each may be closed or full.

What is written may have any text in it, of rows, of servers, of errors: control characters, which a terminal would
obey, are written as their codes.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, TextIO, cast

import rscylla
from rscylla._visible import visible

__all__ = [
    "binary_output",
    "hide",
    "output_error",
    "prepare",
    "say",
    "unwritable",
    "visible",
    "write",
]


def prepare() -> None:
    """Open closed streams, and write UTF-8, whatever the locale says. Called once, before anything else opens a file.

    A closed standard output is opened for reading only, so that writing to it fails: the caller must learn that there
    is no output. If it stayed closed, the next socket would get its descriptor.
    """
    for number, (name, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)),
    ):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.set_inheritable(os.open(os.devnull, flags), True)  # the lowest free number is this one
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as we live
    if isinstance(sys.stdout, io.TextIOWrapper):
        by_line = sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), "utf-8", "backslashreplace", line_buffering=by_line)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


class _Output(io.TextIOWrapper):
    """Standard output that records the error of a failed write, because an OSError may also come from elsewhere."""

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        with self._watched():
            return super().write(text)

    def flush(self) -> None:
        with self._watched():
            super().flush()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            raise


def write(text: str, *, lines: bool = False) -> None:
    """Write a line to standard output, or *lines*, as they are visible, and flush it."""
    _write(sys.stdout, visible(text, lines=lines))


def say(text: str, *, lines: bool = False) -> None:
    """Write a line to standard error, or *lines*, as they are visible, without what is hidden. Never fails."""
    with contextlib.suppress(OSError, ValueError):
        _write(sys.stderr, visible(_hiding(text), lines=lines))


def binary_output() -> BinaryIO:
    """Return standard output for bytes. On a terminal, lines of UTF-8 are as they are visible."""
    return cast("BinaryIO", _Visible(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer)


class _Visible:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: bytes) -> int:
        self._out.write(visible(data.decode("utf-8", "surrogateescape"), lines=True).encode())
        return len(data)

    def flush(self) -> None:
        self._out.flush()


def _as_it_is(text: str) -> str:
    return text


_hiding: Callable[[str], str] = _as_it_is


def hide(hiding: Callable[[str], str] = _as_it_is) -> None:
    """Pass what goes to standard error through *hiding* from now on: errors, logs, tracebacks. Without it, nothing."""
    global _hiding
    _hiding = hiding


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


def unwritable() -> OSError | None:
    """Return the error of a failed write to standard output, or None. After an error, output is discarded."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    failure: OSError | None = getattr(sys.stdout, "failure", None)
    if failure is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # Python flushes it once more at exit
        os.close(null)
    return failure


def output_error(error: OSError) -> rscylla.RscyllaError:
    """Return the error for output that cannot be written."""
    return rscylla.RscyllaError(f"cannot write the output: {error.strerror or type(error).__name__}")
