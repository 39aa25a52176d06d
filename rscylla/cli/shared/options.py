"""Options that several commands take, and commands that get some of their options together, as one object."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_type_hints

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore
from rscylla.abc import CursorAdmin, CursorStore

from .failures import reports_errors

__all__ = [
    "Connection",
    "CursorTableName",
    "JsonOutput",
    "Lag",
    "Login",
    "OnExpired",
    "OperableStore",
    "Store",
    "StoreName",
    "TableArgument",
    "command",
    "load",
    "own_store",
]


TableArgument = Annotated[str, Argument(metavar="KS.TABLE", help="The base table; quote names with capitals.")]
CursorTableName = Annotated[str, Option("--store-table", metavar="NAME", help="Name of the cursor table.")]
JsonOutput = Annotated[bool, Option("--json", help="Print one JSON object per line.")]
Lag = Annotated[
    float | None,
    Option(metavar="SECONDS", help="Required: pass a change on once it is this old; 30 or more is safe."),
]
OnExpired = Annotated[
    Literal["raise", "oldest"],
    Option(help="If the cursor is older than the log: end with an error, or warn and continue at the oldest row."),
]


# ---------------------------------------------------------------- commands


def command(body: Callable[..., None]) -> Callable[..., None]:
    """Make a command of *body* whose errors are one line and an exit code.

    A parameter whose type is an attrs class stands for the options that the fields of the class are, which may be such
    classes, too; the command gets an object of them.
    """
    parameters = inspect.signature(body, eval_str=True).parameters

    @functools.wraps(body)
    def wrapped(**given: Any) -> None:
        body(**{name: _value(name, each.annotation, given) for name, each in parameters.items()})

    shown = [o for name, each in parameters.items() for o in _options(name, each.annotation, each.default)]
    wrapped.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {option.name: option.annotation for option in shown}
    return reports_errors(wrapped)


def _fields(kind: Any) -> dict[str, tuple[Any, Any]] | None:
    """Return type and default of the options that *kind* stands for, by name; None if it is the type of one."""
    if not (isinstance(kind, type) and attrs.has(kind)):
        return None
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: (hints[field.name], field.default) for field in attrs.fields(kind)}


def _options(name: str, kind: Any, default: Any) -> Iterator[inspect.Parameter]:
    fields = _fields(kind)
    if fields is None:
        given = inspect.Parameter.empty if default is attrs.NOTHING else default
        # By keyword: groups without a default may follow parameters with one.
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=kind)
    else:
        for one, (its, value) in fields.items():
            yield from _options(one, its, value)


def _value(name: str, kind: Any, given: dict[str, Any]) -> Any:
    fields = _fields(kind)
    if fields is None:
        return given[name]
    return kind(**{one: _value(one, its, given) for one, (its, _) in fields.items()})


# ---------------------------------------------------------------- the connection


@attrs.frozen
class Login:
    """The options that say who logs in."""

    username: Annotated[
        str | None, Option(envvar="RSCYLLA_USERNAME", show_default=False, help="User to log in as.")
    ] = None
    password: Annotated[
        str | None,
        Option(
            envvar="RSCYLLA_PASSWORD",
            show_default=False,
            help="Password of the user; on a terminal, the command asks for it if omitted. Other users of this machine "
            "can see command lines: prefer the environment or --password-file.",
        ),
    ] = attrs.field(default=None, repr=False)
    password_file: Annotated[
        Path | None, Option(metavar="FILE", help="File whose first line is the password; overrides --password.")
    ] = None

    def credentials(self) -> tuple[str | None, str | None]:
        """Return user name and password, or neither. If the password is missing, ask for it on a terminal.

        Raises:
            ConfigError: the user name or the password is missing, or the file cannot be read.
        """
        username, password = self.username, self.password
        if self.password_file is not None:
            password = _first_line(self.password_file)
        if username is not None and password is None:
            if not sys.stdin.isatty():
                raise rscylla.ConfigError(
                    "--username requires a password; set RSCYLLA_PASSWORD or give --password-file"
                )
            # On standard error, as standard output may be a pipe.
            password = str(typer.prompt("Password", hide_input=True, err=True))
        if password is not None and username is None:
            raise rscylla.ConfigError("a password requires a user name; set RSCYLLA_USERNAME or give --username")
        return username, password


DEFAULT_HOSTS = ["127.0.0.1:9042"]


@attrs.frozen
class Connection:
    """The connection options."""

    hosts: Annotated[
        list[str], Option("--host", metavar="HOST[:PORT]", help="A node to connect to; repeat for more.")
    ] = DEFAULT_HOSTS
    login: Login = attrs.field(factory=Login)
    tls_ca: Annotated[
        Path | None,
        Option(metavar="FILE", help="Use TLS; PEM file of the authority that signed the nodes' certificates."),
    ] = None
    tls_cert: Annotated[
        Path | None, Option(metavar="FILE", help="PEM file of a client certificate, for nodes that require one.")
    ] = None
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="PEM file of the key of --tls-cert.")] = None
    tls_no_check_hostname: Annotated[
        bool, Option("--tls-no-check-hostname", help="Do not verify that a node's certificate names its address.")
    ] = False

    @contextmanager
    def session(self) -> Iterator[rscylla.Session]:
        """Connect, and shut the session's cluster down at the end."""
        if self.tls_no_check_hostname and self.tls_ca is None:
            raise rscylla.ConfigError("--tls-no-check-hostname requires --tls-ca, which turns TLS on")
        username, password = self.login.credentials()
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


# ---------------------------------------------------------------- the cursor


StoreName = Annotated[
    str | None,
    Option(
        "--store",
        metavar="KEYSPACE",
        help="Keyspace of the cursor table, as stored; or MODULE:FUNCTION, which returns a store of your own.",
    ),
]


class OperableStore(CursorStore, CursorAdmin, Protocol):
    """A cursor store that operators can use."""


@attrs.frozen
class Store:
    """The options that say where a command that follows changes keeps its cursor."""

    store: StoreName = None
    store_table: CursorTableName = DEFAULT_TABLE

    def opened(self, session: rscylla.Session, keyspace: str, *, create: bool) -> OperableStore:
        """Return the store; its table is in *keyspace* unless an option says otherwise."""
        own = own_store(self.store)
        # Not by its truth: an empty store of the user's own may have a length.
        if own is not None:
            return own
        return ScyllaCursorStore(session, self.store or keyspace, self.store_table, create=create)


def own_store(name: str | None) -> OperableStore | None:
    """Return the cursor store that the function ``module:function`` returns; None if *name* is a keyspace, or None.

    Raises:
        ConfigError: there is no such function, or it returns an object that is not an ``OperableStore``.
    """
    if name is None or ":" not in name:
        return None
    factory = load(name, option="--store", example="billing.stores:open_store")
    if not callable(factory):
        raise rscylla.ConfigError(f"--store {name} is not a function; name a function that returns a cursor store")
    store: OperableStore = factory()
    # Checked here, so that the command does not fail halfway.
    lacking = [
        method
        for protocol in (CursorStore, CursorAdmin)
        for method in vars(protocol)
        if not method.startswith("_") and not callable(getattr(store, method, None))
    ]
    if lacking:
        raise rscylla.ConfigError(
            f"--store {name}: the returned object of type {type(store).__name__} lacks these methods of "
            f"rscylla.abc.CursorStore and CursorAdmin: {', '.join(lacking)}"
        )
    return store


def load(name: str, *, option: str, example: str) -> Any:
    """Return the object that ``module:name`` names. The working directory is searched, too.

    Raises:
        ConfigError: there is no such object.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise rscylla.ConfigError(f"{option} {name}: write it as MODULE:FUNCTION, such as {example}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as python -m does
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise rscylla.ConfigError(f"{option} {name}: {error}; check the name and the working directory") from error
    return found
