"""Options that several commands take: numbers, tables, output, and the connection."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

import rscylla

__all__ = [
    "CONNECTING",
    "Connection",
    "CursorTableName",
    "JsonOutput",
    "Options",
    "Password",
    "PasswordFile",
    "TableArgument",
    "Username",
    "connecting",
    "count",
    "credentials",
    "grouped",
    "number",
    "seconds",
]


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
