"""The options of the data source: parses and checks the text that Spark passes. The results can be pickled."""

from __future__ import annotations

import configparser
import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import attrs

from ..._timeuuid import format_time, parse_time
from ...cdc.arrow import Mode
from ...errors import ConfigError, InvalidCursor, MissingLag
from ...event import EventID
from ...types import Digits
from .optionnames import NAMES, as_written, known_options, renamed

__all__ = ["MOST_CPUS", "SAFE_LAG_S", "Connection", "Options", "Position", "duration"]

SAFE_LAG_S = 30

MOST_CPUS = 16
"""The option ``parallelism`` is at most this if it is not given."""


@attrs.frozen
class Position:
    """Where to start or end: ``"earliest"``, ``"latest"``, a time in microseconds since the epoch, or a cursor.

    ``option``: the option that says so, by the name that the user gave it.
    """

    name: str = ""
    time_us: int | None = None
    cursor: str = ""
    option: str = attrs.field(default="", eq=False)


@attrs.frozen
class Connection:
    """How to reach the cluster. Equal connections share a session in each process. ``repr`` hides the password.

    ``password_env`` and ``credentials_file`` are read in the process that opens the session, on each machine, so a plan
    contains no secret.
    """

    contact_points: tuple[str, ...]
    port: int = 9042
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=lambda p: "None" if p is None else "'***'")
    password_env: str | None = None
    credentials_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_check_hostname: bool = True
    local_dc: str | None = None
    consistency: str = "QUORUM"

    def credentials(self) -> tuple[str | None, str | None]:
        """Return user name and password.

        Raises:
            ConfigError: the variable is not set, or the file cannot be read.
        """
        if self.credentials_file is not None:
            return _from_file(self.credentials_file)
        if self.password_env is not None:
            password = os.environ.get(self.password_env)
            if password is None:
                raise ConfigError(
                    f"the environment variable {self.password_env}, which the option passwordEnv names, is not set in "
                    "this process; set it for the driver and for the executors (spark.executorEnv.*)"
                )
            return self.username, password
        return self.username, self.password


@attrs.frozen
class Options:
    """All options of one DataFrame or query. Times and spans are in microseconds."""

    connection: Connection
    keyspace: str
    table: str
    lag_us: int
    mode: Mode = "changes"
    start: Position = Position("earliest")
    end: Position = Position("latest")
    window_us: int | None = None
    windows_per_trigger: int | None = None
    rows_per_trigger: int | None = None
    streams_per_partition: int | None = None
    parallelism: int = 4
    page_size: int = 5_000
    fail_on_data_loss: bool = True
    fail_on_schema_change: bool = False
    columns: tuple[str, ...] = ()
    keep_dollar: bool = False
    digits: Mapping[str, Digits] = attrs.field(factory=dict)
    """By "varint" and "decimal", where they are decimals of Spark."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Return the parsed options that Spark passes.

        Raises:
            MissingLag: the lag is missing.
            ConfigError: an option is unknown, missing, or invalid.
        """
        options, written = known_options(renamed(given)), as_written(given)
        if not options:
            raise ConfigError(
                "format('scylla-cdc') got no options: Spark passes none for a table created with a list of columns, or "
                "with TBLPROPERTIES; omit both, or use CREATE TEMPORARY VIEW v USING `scylla-cdc` OPTIONS "
                "(contactPoints '…', keyspace '…', table '…', lag '30s')"
            )
        _check_together(options)
        if "lag" not in options:
            raise MissingLag("format('scylla-cdc')", name="option lag", example=".option('lag', '30s')")
        read = _OptionValues(options, written)
        parsed = cls(
            connection=_connection(read),
            keyspace=read.text("keyspace"),
            table=read.text("table"),
            lag_us=read.span("lag"),
            mode=cast("Mode", read.one_of("mode", ("changes", "log", "events"))),
            start=read.position("startingPosition", "earliest"),
            end=read.position("endingPosition", "latest"),
            window_us=read.span("windowSpan") if "windowspan" in options else None,
            windows_per_trigger=read.count("maxWindowsPerTrigger"),
            rows_per_trigger=read.count("maxRowsPerTrigger", 2**63 - 1),
            streams_per_partition=read.count("streamsPerPartition"),
            parallelism=read.count("parallelism") or _cpus(),
            page_size=read.count("pageSize") or 5_000,
            fail_on_data_loss=read.flag("failOnDataLoss", default=True),
            fail_on_schema_change=read.flag("failOnSchemaChange", default=False),
            columns=read.columns("columns"),
            keep_dollar=read.flag("keepDollar", default=False),
            digits=read.digits(),
        )
        if parsed.digits and parsed.mode == "events":
            raise ConfigError("options decimalAs and varintAs do not apply to mode events, which has JSON; omit them")
        if parsed.fail_on_schema_change and (parsed.columns or parsed.mode != "changes"):
            raise ConfigError("option failOnSchemaChange is for all columns of mode changes; omit it, or the others")
        if parsed.window_us == 0:
            raise ConfigError("option windowSpan must be longer than zero, such as 10s")
        if parsed.end.cursor or parsed.end.name == "earliest":
            raise ConfigError(f"option {parsed.end.option} must be latest or a time such as 2026-11-21T10:00:00Z")
        start_us = EventID.parse(parsed.start.cursor).exact_us if parsed.start.cursor else parsed.start.time_us
        if start_us is not None and parsed.end.time_us is not None and start_us > parsed.end.time_us:
            raise ConfigError(
                f"option {parsed.start.option} ({format_time(start_us)}) is after {parsed.end.option} "
                f"({format_time(parsed.end.time_us)}); swap them"
            )
        return parsed


def _cpus() -> int:
    # The process that plans has no session of Spark to ask for the executors' cores.
    return min(MOST_CPUS, max(2, os.cpu_count() or 2))


def _check_together(options: Mapping[str, str]) -> None:
    ways = [NAMES[n] for n in ("password", "passwordenv", "credentialsfile") if n in options]
    if len(ways) > 1:
        raise ConfigError(f"options {' and '.join(ways)} exclude each other; give one of them")
    if ("username" in options) != any(n in ways for n in ("password", "passwordEnv")):
        raise ConfigError("options username and password (or passwordEnv) go together; give both, or credentialsFile")
    of_tls = [name for name in ("tlsCert", "tlsKey", "tlsCheckHostname") if name.lower() in options]
    if of_tls and "tlsca" not in options:
        raise ConfigError(f"option {of_tls[0]} requires the option tlsCa, which turns TLS on")
    if ("tlscert" in options) != ("tlskey" in options):
        raise ConfigError("options tlsCert and tlsKey go together; give both or neither")


def _connection(read: _OptionValues) -> Connection:
    points = read.names("contactPoints")
    if not points:
        raise ConfigError(
            f"option {read.named('contactPoints')} is missing; give nodes of the cluster, such as 10.0.0.1,10.0.0.2"
        )
    return Connection(
        contact_points=points,
        port=read.count("port", 65_535) or 9042,
        username=read.maybe("username"),
        password=read.maybe("password"),
        password_env=read.maybe("passwordEnv"),
        credentials_file=read.maybe("credentialsFile"),
        tls_ca=read.maybe("tlsCa"),
        tls_cert=read.maybe("tlsCert"),
        tls_key=read.maybe("tlsKey"),
        tls_check_hostname=read.flag("tlsCheckHostname", default=True),
        local_dc=read.maybe("localDc"),
        consistency=(read.maybe("consistency") or "QUORUM").upper(),
    )


def _from_file(path: str) -> tuple[str, str]:
    """Return user name and password of a JSON object, or of a file like cqlshrc."""
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"the file {path!r} of option credentialsFile cannot be read: {type(e).__name__}") from e
    # The message does not show the invalid text, which may be part of a secret.
    found: Any = None
    try:
        if text.lstrip().startswith("{"):
            found = json.loads(text)
        else:
            # Without interpolation, which would take a % in a password for its own.
            ini = configparser.ConfigParser(interpolation=None)
            ini.read_string(text)
            sections = ("authentication", "PlainTextAuthProvider")
            found = next((ini[s] for s in sections if ini.has_option(s, "username")), None)
    except (ValueError, configparser.Error):
        found = None
    if found is None or not isinstance(found.get("username"), str) or not isinstance(found.get("password"), str):
        raise ConfigError(
            f"the file {path!r} of option credentialsFile has no username and password; write a JSON object "
            "with both, or a section [authentication] as in cqlshrc"
        )
    return found["username"], found["password"]


# ---------------------------------------------------------------- values


@attrs.frozen
class _OptionValues:
    """Reads the values of known options. ``written``: the names that the user gave them, see ``as_written``."""

    options: Mapping[str, str] = attrs.field(repr=False)
    written: Mapping[str, str]

    def named(self, name: str) -> str:
        """Return the name that the user gave the option *name*."""
        return self.written.get(name.lower(), name)

    def maybe(self, name: str) -> str | None:
        return self.options.get(name.lower())

    def text(self, name: str) -> str:
        found = self.maybe(name)
        if not found:
            raise ConfigError(f"option {self.named(name)} is missing; it is required")
        return found

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.maybe(name) or "").split(",") if part.strip())

    def columns(self, name: str) -> tuple[str, ...]:
        """Return names of columns; those in backticks may have commas, and spaces at their ends."""
        found = [match.groups() for match in _COLUMN.finditer(self.maybe(name) or "")]
        names = (plain.strip() if in_ticks is None else in_ticks.replace("``", "`") for in_ticks, plain in found)
        return tuple(n for n in names if n)

    def span(self, name: str) -> int:
        """Return microseconds."""
        found: timedelta = self._read(name, duration)
        return found // timedelta(microseconds=1)

    def count(self, name: str, most: int = 2**31 - 1) -> int | None:
        """Return a number from 1 to *most*: what the place that it goes to can take, the protocol of CQL or Spark."""
        found = self.maybe(name)
        if found is None:
            return None
        digits = found.strip().lstrip("0")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(most))
        if not is_number or int(digits) > most:
            raise ConfigError(f"option {self.named(name)} must be a whole number from 1 to {most}, not {found!r}")
        return int(digits)

    def flag(self, name: str, *, default: bool) -> bool:
        found = self.maybe(name)
        if found is None:
            return default
        if found.strip().lower() not in ("true", "false"):
            raise ConfigError(f"option {self.named(name)} must be true or false, not {found!r}")
        return found.strip().lower() == "true"

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        """Return the value; the default is the first of *values*."""
        found = (self.maybe(name) or values[0]).strip().lower()
        if found not in values:
            raise ConfigError(f"option {self.named(name)} must be one of {', '.join(sorted(values))}, not {found!r}")
        return found

    def digits(self) -> dict[str, Digits]:
        """Return the digits of the types that are numbers in Spark."""
        found = {kind: self._digits(f"{kind}As") for kind in ("varint", "decimal")}
        return {kind: digits for kind, digits in found.items() if digits is not None}

    def _digits(self, name: str) -> Digits | None:
        text = (self.maybe(name) or "string").strip().lower()
        match = _DECIMAL.fullmatch(text)
        if match is None and text != "string":
            raise ConfigError(
                f"option {self.named(name)} must be string or a decimal type such as {_EXAMPLES[name]}, not {text!r}"
            )
        if match is None:
            return None
        precision, scale = int(match[1]), int(match[2] or 0)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise ConfigError(
                f"option {self.named(name)}: {text} is no type of Spark: 1 to 38 digits, some of them decimal places"
            )
        return Digits(precision, scale)

    def position(self, name: str, default: str) -> Position:
        found: Position = self._read(name, _position) if self.maybe(name) is not None else Position(default)
        return attrs.evolve(found, option=self.named(name))

    def _read(self, name: str, parse: Callable[[str], Any]) -> Any:
        try:
            return parse(self.text(name))
        except (ValueError, OverflowError) as e:
            raise ConfigError(f"option {self.named(name)}: {e}") from e


MOST_DIGITS = 38
"""Digits of a decimal in Spark, and in Arrow's type of 128 bits."""

_EXAMPLES = {"decimalAs": "decimal(38,2)", "varintAs": "decimal(38,0)"}

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`\s*(?=,|$)|([^,]*))(?:,|$)")
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)", re.ASCII)

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_WORDS = {"microsecond": "us", "millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d"}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_ISO_SPAN = re.compile(r"p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?", re.ASCII)


def duration(text: str) -> timedelta:
    """Return a length of time: ``30s``, ``500 ms``, ``2 minutes``, ``PT30S``, or a number of seconds.

    Raises:
        ValueError: *text* is not a duration.

    >>> duration("500 ms"), duration("PT1M30S").total_seconds(), duration("30").total_seconds()
    (datetime.timedelta(microseconds=500000), 90.0, 30.0)
    """
    text = text.strip().lower()
    match = _SPAN.fullmatch(text)
    if match is not None:
        unit = match[2].removesuffix("s") if match[2].removesuffix("s") in _WORDS else match[2]
        size = _UNITS.get(_WORDS.get(unit, unit or "s"))
        if size is not None:
            return timedelta(microseconds=round(float(match[1]) * size))
    iso = _ISO_SPAN.fullmatch(text)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    raise ValueError(f"{text!r} is not a duration; write 30s, 500 ms, 2 minutes, PT30S, or a number of seconds")


def _position(text: str) -> Position:
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return Position(text.lower())
    if text.startswith("{"):
        try:
            EventID.parse(text)
        except InvalidCursor as e:
            raise ValueError(str(e)) from e
        return Position(cursor=text)
    try:
        return Position(time_us=parse_time(text))
    except ValueError as e:
        wrong = "must be earliest, latest, a time such as 2026-11-21T10:00:00Z, or a cursor (JSON)"
        raise ValueError(_incomplete(text) or wrong) from e


_ALMOST_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:([T ])(\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _incomplete(text: str) -> str:
    """Return what a time lacks that is written as for Spark or Delta Lake, and how to write it; "" for other text.

    >>> _incomplete("2026-11-21 10:00:00")
    "'2026-11-21 10:00:00' has no T and no zone; for UTC, write 2026-11-21T10:00:00Z"
    """
    match = _ALMOST_TIME.fullmatch(text)
    if match is None:
        return ""
    day, between, minute, second, zone = match.groups()
    whole = f"{day}T{minute or '00:00'}{second or ':00'}{zone or 'Z'}"
    try:
        parse_time(whole)
    except ValueError:  # there is no such day or hour
        return ""
    parts = {"time of day": minute, "T": between != " ", "seconds": second or not minute, "zone": zone}
    missing = " and ".join(f"no {name}" for name, has in parts.items() if not has)
    return f"{text!r} has {missing}; {'' if zone else 'for UTC, '}write {whole}"
