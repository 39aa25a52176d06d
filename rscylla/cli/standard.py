"""Standard input, output and error as a command finds them: closed, full, or in an encoding that lacks characters."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import rscylla

__all__ = ["escaped", "expect_json", "output_error", "prepare", "say", "unwritable", "write"]

_ESCAPE = "rscylla-escape"


def prepare() -> None:
    """Open what is closed and let no character be unwritable. Called once, before anything else opens a file.

    A closed standard output is opened so that writing to it fails: whoever asked for output must learn that there is
    none. Left closed, its descriptor would become that of the next socket.
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
        encoding, by_line = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), encoding, _ESCAPE, line_buffering=by_line)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=_ESCAPE)


class _Output(io.TextIOWrapper):
    """Standard output that remembers why it could not be written: an OSError may as well come from elsewhere."""

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


def expect_json() -> None:
    """Make JSON readable as UTF-8: where a stream has another encoding, everything beyond ASCII is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="ascii", errors=_ESCAPE)


def escaped(text: str) -> str:
    r"""Return *text* with its characters beyond ASCII as JSON escapes.

    >>> escaped("é")
    '\\u00e9'
    """
    return json.dumps(text)[1:-1]


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return escaped(error.object[error.start : error.end]), error.end


codecs.register_error(_ESCAPE, _escape)


def write(text: str) -> None:
    """Write a line to standard output, at once."""
    _write(sys.stdout, text)


def say(text: str) -> None:
    """Write a line to standard error. That nobody can read it is no reason to fail."""
    with contextlib.suppress(OSError, ValueError):
        _write(sys.stderr, text)


def _write(stream: TextIO, text: str) -> None:
    # Not typer.echo: in an ASCII terminal it writes UTF-8, and in others what the encoding lacks is an error.
    stream.write(text + "\n")
    stream.flush()


def unwritable() -> OSError | None:
    """Return why standard output could not be written, None if it could; nothing more is written to it then."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    failure: OSError | None = getattr(sys.stdout, "failure", None)
    if failure is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # it is flushed once more at the end
        os.close(null)
    return failure


def output_error(error: OSError) -> rscylla.RscyllaError:
    """Return what a user is told of output that cannot be written."""
    return rscylla.RscyllaError(f"the output cannot be written: {error.strerror or type(error).__name__}")
