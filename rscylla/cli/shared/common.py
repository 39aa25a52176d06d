"""Shared by the commands: options, table names, exit codes, one-line errors, stopping, and the connection."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import Annotated, Any, ParamSpec

import attrs
import typer

import rscylla
from rscylla._visible import message_of

from .standard import expect_json, hide, output_error, say, unwritable

__all__ = [
    "CONNECTING",
    "DEFAULT_HOSTS",
    "Connection",
    "CursorTableName",
    "Exit",
    "Hosts",
    "JsonOutput",
    "Options",
    "Password",
    "PasswordFile",
    "TableArgument",
    "TableName",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "TlsNoCheckHostname",
    "Username",
    "connecting",
    "count",
    "credentials",
    "end_with",
    "grouped",
    "naming",
    "number",
    "parse_lag",
    "parse_table",
    "parse_time",
    "print_error",
    "quiet_logs",
    "reports_errors",
    "seconds",
    "stopping",
    "time_of",
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
        expect_json()
        say(rscylla.to_json({"error": type(cause).__name__, "message": text}))


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn an error of a command into one line and an exit code. Uses the command's parameter ``as_json``."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        quiet_logs()
        as_json = bool(kwargs.get("as_json"))
        if as_json:
            expect_json()
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


# ---------------------------------------------------------------- names, times, lags

_NAME = r'"(?:[^"]|"")+"|[A-Za-z][A-Za-z0-9_]*'
_TABLE = re.compile(rf"({_NAME})\.({_NAME})", re.ASCII)
_BARE = re.compile(r"[^\s\".]+\.[^\s\".]+")


@attrs.frozen
class TableName:
    """The table that the user named: stored names, without quotes. ``folded``: capitals became lower case."""

    keyspace: str
    table: str
    folded: bool = False


def parse_table(text: str) -> TableName:
    """Return the table that ``KEYSPACE.TABLE`` names, by the rules of CQL: unquoted names are folded to lower case.

    Raises:
        ConfigError: *text* is not such a name; the message says how to quote it.
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        if _BARE.fullmatch(text):
            keyspace, table = text.split(".")
            raise rscylla.ConfigError(
                f'{text!r} has characters that need quotes; write \'"{keyspace}"."{table}"\', '
                "including the single quotes for the shell"
            )
        raise rscylla.ConfigError(
            f"{text!r} does not name a table; write KEYSPACE.TABLE, such as shop.orders; names with capitals need "
            'double quotes, and single quotes for the shell: \'"Shop"."Orders"\''
        )
    keyspace, table = (_unquoted(name) for name in match.groups())
    bare = [name for name in match.groups() if not name.startswith('"')]
    return TableName(keyspace, table, folded=any(name != name.lower() for name in bare))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


@contextmanager
def naming(name: TableName) -> Iterator[None]:
    """Add to a ``TableNotFound`` of the block that unquoted names were converted to lower case, if they were."""
    try:
        yield
    except (rscylla.TableNotFound, rscylla.RunError) as error:
        cause = cause_of(error)
        if not name.folded or not isinstance(cause, rscylla.TableNotFound):
            raise
        raise rscylla.TableNotFound(
            f"{cause}; names without double quotes become lower case, and the shell removes double quotes; "
            'write \'"Shop"."Orders"\', including the single quotes'
        ) from error


def parse_time(text: str, *, option: str) -> datetime:
    """Return the aware time that *text* gives in ISO 8601.

    Raises:
        ConfigError: *text* is not a time, has no time zone, or is outside the calendar in UTC.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise rscylla.ConfigError(f"{option}: {text!r} is not a time; write it as 2026-11-21T10:00:00Z") from None
    if time.tzinfo is None:
        raise rscylla.ConfigError(f"{option}: {text!r} has no time zone; add Z for UTC, or +01:00")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise rscylla.ConfigError(f"{option}: {text!r} is outside the years 1 to 9999 in UTC") from None


def time_of(us: int) -> datetime:
    """Return the aware UTC time of *us* microseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def parse_lag(seconds: float | None, *, command: str) -> timedelta:
    """Return the lag that ``--lag`` gave.

    Raises:
        MissingLag: the option was not given.
        ConfigError: the lag is negative, infinite, or not a number.
    """
    if seconds is None:
        missing = rscylla.errors.MissingLag()
        text = (
            f"{command} needs --lag SECONDS; 30 or more is safe, because rows with timestamps from other clocks "
            "arrive late and a window read too early misses them"
        )
        missing.args = (text,)
        raise missing
    if not math.isfinite(seconds) or not 0 <= seconds <= 10**9:
        raise rscylla.ConfigError(f"--lag {seconds:g}: give a number of seconds, 0 or more")
    return timedelta(seconds=seconds)


def number(kind: type[int] | type[float], *, least: int | None = None, most: int | None = None) -> Callable[[Any], Any]:
    """Return a parser for an option that takes a number of *kind*, from *least* to *most*, both inclusive.

    It raises ``typer.BadParameter``, which names the option.
    """

    def parse(given: Any) -> Any:
        try:
            value = kind(given)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise typer.BadParameter(f"{given!r} is not {what}") from None
        if least is not None and most is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value} is out of range; give a number from {least} to {most}")
        if least is not None and value < least:
            raise typer.BadParameter(f"{value} is too low; give {least} or more")
        return value

    return parse


count = number(int, least=1)
seconds = number(float)


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


# ---------------------------------------------------------------- options


Hosts = Annotated[
    list[str],
    typer.Option("--host", metavar="HOST[:PORT]", help="A node to connect to; repeat for more.", show_default=True),
]
Username = Annotated[
    str | None,
    typer.Option("--username", envvar="RSCYLLA_USERNAME", show_default=False, help="User to log in as."),
]
Password = Annotated[
    str | None,
    typer.Option(
        "--password",
        envvar="RSCYLLA_PASSWORD",
        show_default=False,
        help="Password of the user; on a terminal, the command asks for it if omitted. Other users of this machine can "
        "see command lines: prefer the environment or --password-file.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="File whose first line is the password; overrides --password."
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", metavar="FILE", help="Use TLS; PEM file of the authority that signed the nodes' certificates."
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="PEM file of a client certificate, for nodes that require one."),
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="PEM file of the key of --tls-cert."),
]
TlsNoCheckHostname = Annotated[
    bool,
    typer.Option("--tls-no-check-hostname", help="Do not verify that a node's certificate names its address."),
]
TableArgument = Annotated[str, typer.Argument(metavar="KS.TABLE", help="The base table; quote names with capitals.")]
CursorTableName = Annotated[str, typer.Option("--store-table", metavar="NAME", help="Name of the cursor table.")]
JsonOutput = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object per line."),
]

DEFAULT_HOSTS = ["127.0.0.1:9042"]


@attrs.frozen
class Connection:
    """The connection options."""

    hosts: list[str]
    username: str | None
    password: str | None = attrs.field(repr=False)
    password_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_no_check_hostname: bool = False

    @contextmanager
    def session(self) -> Iterator[rscylla.Session]:
        """Connect, and shut the session's cluster down at the end."""
        if self.tls_no_check_hostname and self.tls_ca is None:
            raise rscylla.ConfigError("--tls-no-check-hostname requires --tls-ca, which turns TLS on")
        username, password = credentials(self.username, self.password, self.password_file)
        session = rscylla.connect(
            self.hosts,
            username=username,
            password=password,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_check_hostname=not self.tls_no_check_hostname,
        )
        try:
            yield session
        finally:
            session.cluster.shutdown()


# By name, in the order of the fields of ``Connection``: type and default.
CONNECTING: dict[str, tuple[Any, Any]] = {
    "host": (Hosts, DEFAULT_HOSTS),
    "username": (Username, None),
    "password": (Password, None),
    "password_file": (PasswordFile, None),
    "tls_ca": (TlsCa, None),
    "tls_cert": (TlsCert, None),
    "tls_key": (TlsKey, None),
    "tls_no_check_hostname": (TlsNoCheckHostname, False),
}


Options = Mapping[str, tuple[Any, Any]]
"""Options by name: type and default."""


def grouped(**groups: tuple[Callable[..., Any], Options]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace parameters of a command by groups of options.

    Each group is a function and its options; the command gets what the function makes of their values, in their order.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        used = [name for name in signature.parameters if name in groups]
        shown = [
            option
            for parameter in signature.parameters.values()
            for option in (_parameters(groups[parameter.name][1]) if parameter.name in groups else [parameter])
        ]

        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            made = {name: groups[name][0](*[given.pop(option) for option in groups[name][1]]) for name in used}
            command(**made, **given)

        wrapped.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {option.name: option.annotation for option in shown}
        return wrapped

    return decorate


def _parameters(options: Options) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]


# Adds the connection options to a command, which gets them as its parameter ``connection``.
connecting = grouped(connection=(Connection, CONNECTING))


def credentials(
    username: str | None, password: str | None, password_file: Path | None = None
) -> tuple[str | None, str | None]:
    """Return user name and password, or neither. If the password is missing, ask for it on a terminal.

    Args:
        password_file: overrides *password*.

    Raises:
        ConfigError: the user name or the password is missing, or the file cannot be read.
    """
    if password_file is not None:
        password = _first_line(password_file)
    if username is not None and password is None:
        if not sys.stdin.isatty():
            raise rscylla.ConfigError("--username requires a password; set RSCYLLA_PASSWORD or give --password-file")
        # On standard error, as standard output may be a pipe.
        asked: Any = typer.prompt("Password", hide_input=True, err=True)
        password = str(asked)
    if password is not None and username is None:
        raise rscylla.ConfigError("a password requires a user name; set RSCYLLA_USERNAME or give --username")
    return username, password


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig") as lines:
            password = lines.readline().rstrip("\r\n")
    except OSError as error:
        raise rscylla.ConfigError(f"the password file {str(file)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise rscylla.ConfigError(f"the password file {str(file)!r} is not UTF-8 text") from None
    if not password:
        raise rscylla.ConfigError(f"the password file {str(file)!r} has no password on its first line")
    return password
