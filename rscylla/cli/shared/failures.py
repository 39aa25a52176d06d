"""How a command ends: exit codes, errors as one line, logs on standard error, and stopping."""

from __future__ import annotations

import functools
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import ParamSpec

import typer

import rscylla
from rscylla._visible import message_of

from .standard import hide, output_error, say, unwritable

__all__ = [
    "Exit",
    "catch_strays",
    "cause_of",
    "end_with",
    "exit_code_of",
    "print_error",
    "quiet_logs",
    "reports_errors",
    "stopping",
]

P = ParamSpec("P")

DEBUG = "RSCYLLA_DEBUG"
"""Environment variable: when set and not 0, unexpected errors show their traceback, and all log lines are shown."""


class Exit:
    """Exit codes, as ``rscylla --help`` and ``docs/cli.md`` list them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONNECTION = 3
    TABLE = 4
    CURSOR = 5
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    # The first that fits counts: QueryFailed is a SourceError, too.
    (rscylla.ConfigError, Exit.USAGE),
    (rscylla.errors.CursorError, Exit.CURSOR),
    (rscylla.errors.MetadataError, Exit.TABLE),
    (rscylla.errors.QueryFailed, Exit.TABLE),
    (rscylla.errors.SourceError, Exit.CONNECTION),
)


def cause_of(error: BaseException) -> BaseException:
    """Return the error that a run failed with; return any other error unchanged."""
    while isinstance(error, rscylla.RunError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for *error*."""
    cause = cause_of(error)
    if isinstance(cause, KeyboardInterrupt | rscylla.Stopped):
        return Exit.INTERRUPTED
    return next((code for kind, code in _CODES if isinstance(cause, kind)), Exit.FAILED)


def debugging() -> bool:
    return os.environ.get(DEBUG, "0") not in ("", "0")


_HINTS = ((rscylla.CursorExpired, "on the command line: --on-expired oldest"),)

_ARGUMENT = re.compile(r"\btls_(?:ca|cert|key|check_hostname=False)")
"""Arguments of ``rscylla.connect`` in the messages of the library; the command line has options for them."""


def _option(argument: re.Match[str]) -> str:
    name = argument[0].replace("check_hostname=False", "no_check_hostname")
    return f"--{name.replace('_', '-')}"


def print_error(error: BaseException, *, as_json: bool) -> None:
    """Write *error* to standard error: one line, and with *as_json* a line with a JSON object after it."""
    cause = cause_of(error)
    text = _ARGUMENT.sub(_option, " ".join(str(cause).split()))
    if not isinstance(cause, rscylla.RscyllaError) and not _is_operational(cause):
        text = _unexpected(type(cause))
    text += next((f" ({hint})" for kind, hint in _HINTS if isinstance(cause, kind)), "")
    say(f"error: {text}")
    if as_json:
        say(rscylla.to_json({"error": type(cause).__name__, "message": text}))


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn an error of a command into one line and an exit code. Uses the command's parameter ``as_json``."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        quiet_logs()
        as_json = bool(kwargs.get("as_json"))
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost edge: nothing is above
            raise typer.Exit(end_with(error, as_json=as_json)) from None
        finally:
            hide()

    return wrapped


def end_with(error: BaseException, *, as_json: bool) -> int:
    """Report the error that ended a command; return the exit code. A closed output pipe is not a failure."""
    if isinstance(error, OSError) and (failure := unwritable()) is not None:
        if isinstance(failure, BrokenPipeError):
            return Exit.DONE
        error = output_error(failure)
    if debugging():
        say(traceback.format_exc().rstrip(), lines=True)
    code = exit_code_of(error)
    if code != Exit.INTERRUPTED:
        print_error(error, as_json=as_json)
    return code


def _is_operational(error: BaseException) -> bool:
    """Return whether *error* is not ours but has a message for users: from the embedded server, or from an import."""
    embedded = sys.modules.get("rscylla.embedded")
    known = (ModuleNotFoundError, *((embedded.EmbeddedScyllaError,) if embedded is not None else ()))
    return isinstance(error, known)


# ---------------------------------------------------------------- logs


_SERVER = "rscylla.embedded"
"""Logger of the embedded server. Its error messages refer clients to the traceback in the log."""


class _StderrHandler(logging.Handler):
    """Shows log lines as ``warning: ...`` on standard error. Only the error that ends a command is ``error: ...``."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(record.levelno, logging.WARNING)
        message, args, why = message_of(record)
        more = "" if args is None else f" (not formatted, {why}; arguments: {', '.join(args)})"
        say(f"{logging.getLevelName(level).lower()}: {message}{more}")
        if record.exc_info and (debugging() or record.name == _SERVER):
            say("".join(traceback.format_exception(*record.exc_info)).rstrip(), lines=True)


_handler = _StderrHandler()


def quiet_logs(level: int = logging.WARNING) -> None:
    """Show log lines of rscylla from *level* on, and none of the driver, whose errors come as ours; see ``DEBUG``."""
    names = {"rscylla": level, "cassandra": logging.CRITICAL}
    for name, threshold in names.items():
        logger = logging.getLogger(name)
        _handler.setLevel(logging.NOTSET)
        if _handler not in logger.handlers:
            logger.addHandler(_handler)
        logger.setLevel(logging.DEBUG if debugging() else threshold)


def catch_strays() -> None:
    """Say of what nobody catches, in any thread, and of what others log, what this command says of its own."""
    logging.lastResort = _handler
    sys.excepthook = _stray
    threading.excepthook = lambda ended: _stray(ended.exc_type, ended.exc_value, ended.exc_traceback)
    sys.unraisablehook = lambda found: _stray(found.exc_type, found.exc_value, found.exc_traceback)


def _stray(kind: type[BaseException], error: BaseException | None, where: TracebackType | None) -> None:
    say(f"warning: {_unexpected(kind)}")
    if debugging():
        say("".join(traceback.format_exception(kind, error, where)).rstrip(), lines=True)


def _unexpected(kind: type[BaseException]) -> str:
    """Return what is said of an error of another library: its text may have values of rows, so only the kind."""
    return f"unexpected {kind.__name__}; set {DEBUG}=1 to see the traceback"


# ---------------------------------------------------------------- stopping


@contextmanager
def stopping() -> Iterator[rscylla.Stop]:
    """Provide a stop signal that SIGINT and SIGTERM set; a second SIGINT raises ``KeyboardInterrupt``."""
    stop = rscylla.Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can handle signals
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        # The second Ctrl-C must stop a command that does not react to the first one.
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
