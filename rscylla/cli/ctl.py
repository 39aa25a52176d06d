"""``rscylla serve ctl``: changes and breaks a server that ``rscylla serve`` runs, while it runs.

Its commands are methods of the embedded server's ``Commands`` and ``Faults``: ``_COMMANDS`` says what each of them
answers; its options and their defaults are the parameters of the method, in the words of ``_OPTIONS``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import attrs
import typer
from typer import Argument, Option

import rscylla
from rscylla.embedded import ControlClient, ControlUnavailable, Faults, Rule, Statements

from ..errors import ConfigError
from .shared.names import parse_table
from .shared.options import JsonOutput, TableArgument, command
from .shared.output import moment, show

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def ctl() -> None:
    """Control a server that `rscylla serve` runs on this machine: its nodes, streams, clock, and faults.

    Every command prints text, or one JSON object with --json.
    """


def _span(text: Any) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not a number of seconds") from None


# ---------------------------------------------------------------- options that are one parameter or several


@attrs.frozen
class _Server:
    """Which server is controlled."""

    port: Annotated[int, Option(min=1, max=65535, metavar="PORT", help="Port of the server's nodes.")] = 9042
    control: Annotated[
        Path | None, Option(metavar="PATH", help="Control socket of the server, if it was given a path.")
    ] = None

    @contextmanager
    def client(self) -> Iterator[ControlClient]:
        try:
            yield ControlClient.at_port(self.port) if self.control is None else ControlClient(self.control)
        except ControlUnavailable as error:
            raise rscylla.ConnectionFailed(str(error)) from error
        except ValueError as error:
            raise rscylla.ConfigError(str(error)) from error


@attrs.frozen
class _Table:
    """The table that is changed."""

    table: TableArgument

    def arguments(self) -> dict[str, Any]:
        name = parse_table(self.table)
        return {"keyspace": name.keyspace, "table": name.table}


@attrs.frozen
class _Place:
    """Which table or keyspace is met."""

    table: Annotated[
        str | None, Option(metavar="KS.TABLE", help="Only requests that name this table, which may be a CDC log.")
    ] = None
    keyspace: Annotated[
        str | None,
        Option(metavar="NAME", help="Only requests that name this keyspace; system keyspaces must be named."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        if self.table is None:
            return {"keyspace": self.keyspace, "table": None}
        if self.keyspace is not None:
            raise rscylla.ConfigError("--table names the keyspace, too; omit --keyspace")
        return _Table(self.table).arguments()


@attrs.frozen
class _On:
    """Which requests are met."""

    kind: Annotated[
        Literal["select", "insert", "update", "delete", "batch", "prepare", "other"] | None,
        Option(metavar="KIND", help="Only select, insert, update, delete, batch, prepare, or other."),
    ] = None
    place: _Place = attrs.field(factory=_Place)
    matching: Annotated[str | None, Option(metavar="REGEX", help="Only requests whose CQL matches, in any case.")] = (
        None
    )
    node: Annotated[str | None, Option(metavar="ADDRESS", help="Only requests to this node.")] = None
    later_pages: Annotated[bool, Option("--later-pages", help="Only requests for a second or later page.")] = False

    def arguments(self) -> dict[str, Any]:
        place = self.place.arguments()
        met = self.kind, place["keyspace"], place["table"], self.matching, self.node, self.later_pages
        try:
            return {"on": Statements(*met)}
        except ValueError as error:  # names the parameter
            raise ConfigError(f"--{error}") from error


@attrs.frozen
class _Times:
    """How many requests are met."""

    times: Annotated[
        int | None,
        Option(min=1, metavar="N", help="How many requests are met; default: 1; all for cut-pages, hold-writes."),
    ] = None
    always: Annotated[bool, Option("--always", help="All requests, until `clear` or `remove-rule`.")] = False

    def arguments(self) -> dict[str, Any]:
        if self.times is not None and self.always:
            raise rscylla.ConfigError("--times and --always exclude each other")
        # The methods of Faults have the defaults.
        return {"times": self.times} if self.always or self.times is not None else {}


@attrs.frozen
class _Pages:
    """How pages are cut."""

    rows: Annotated[int | None, Option(min=1, metavar="N", help="Rows of a page at most.")] = None
    empty: Annotated[bool, Option("--empty", help="Send empty pages before those with rows.")] = False

    def arguments(self) -> dict[str, Any]:
        if self.rows is None and not self.empty:
            raise rscylla.ConfigError("cut-pages requires --rows N, --empty, or both")
        return {"rows": self.rows, "empty": self.empty}


_FAULTS = ", ".join(get_args(get_type_hints(Faults.fail)["fault"]))

_OPTIONS: Mapping[str, Any] = {
    "on": _On,
    "table": _Place,
    "times": _Times,
    "address": Annotated[str, Argument(metavar="ADDRESS", help="Address of the node, such as 127.0.0.2.")],
    "by": Annotated[timedelta, Option(parser=_span, metavar="SECONDS", help="By how much.")],
    "seconds": Annotated[timedelta, Argument(parser=_span, metavar="SECONDS", help="By how much.")],
    "rule": Annotated[int, Argument(min=0, metavar="RULE", help="Number of the rule, as `status` shows it.")],
    "delay": Annotated[
        timedelta | None,
        Option(parser=_span, metavar="SECONDS", help="Time until the new streams start; default: as in ScyllaDB, 65."),
    ],
    "rewriting": Annotated[
        Literal["done", "held", "disabled"],
        Option(metavar="WHEN", help="Copy old generations: done (now), held (on finish-rewriting), or disabled."),
    ],
    "fault": Annotated[
        str, Argument(metavar="ERROR", help=f"One of {', '.join(get_args(get_type_hints(Faults.fail)['fault']))}.")
    ],
    "probability": Annotated[float, Option(metavar="P", help="Chance of each request to be met, up to 1.")],
    "seed": Annotated[int | None, Option(metavar="N", help="Makes the chance repeatable.")],
    "applied": Annotated[bool, Option("--applied", help="Carry the requests out all the same.")],
    "partway": Annotated[bool, Option("--partway", help="After half of the answer.")],
    "rows": _Pages,
}
"""The options of a parameter of ``Commands`` or ``Faults``, by its name."""

_WITHIN = ("keyspace", "empty")
"""Parameters that the options of another one stand for."""


# ---------------------------------------------------------------- commands


@attrs.frozen
class _Answer:
    """What a command prints: *text*, or the JSON object whose fields it names.

    *keys* says where each of these comes from: an argument, the ``result`` of the method, or the ``status`` after it.
    """

    text: str
    keys: Mapping[str, str] = attrs.field(factory=dict)


_NODE = {"address": "address"}
_STREAMS = _Answer(
    "{keyspace}.{table} has new streams from {time}", {"keyspace": "keyspace", "table": "table", "time": "result"}
)
_RULE = _Answer("rule {rule} was added", {"rule": "result"})

_ANSWERS: Mapping[str, _Answer] = {
    "add_node": _Answer("node {address} was added", {"address": "result"}),
    "remove_node": _Answer("node {address} was removed", _NODE),
    "new_generation": _Answer("a generation starts at {time}", {"time": "result"}),
    "split_tablets": _STREAMS,
    "merge_tablets": _STREAMS,
    "expire_rows": _Answer("{rows} rows were deleted", {"rows": "result"}),
    "upgrade": _Answer("the version is {version}", {"version": "status", "rewriting": "rewriting"}),
    "finish_rewriting": _Answer("all generations are in the new tables"),
    "stop_node": _Answer("node {address} is stopped", _NODE),
    "start_node": _Answer("node {address} is up", _NODE),
    "stall_node": _Answer("node {address} is stalled", _NODE),
    "slow_node": _Answer("node {address} is slow by {delay_s:g} s", _NODE | {"delay_s": "by"}),
    "resume_node": _Answer("node {address} answers as usual", _NODE),
    "skew_clock": _Answer("the clock of node {address} is off by {clock_skew_s:g} s", _NODE | {"clock_skew_s": "by"}),
    "clear": _Answer("all faults have ended"),
    "advance": _Answer("the time is {time}", {"time": "status"}),
    "deliver": _Answer("{delivered} writes were applied", {"delivered": "result"}),
    "hits": _Answer("rule {rule} has met {hits} requests", {"rule": "rule", "hits": "result"}),
    "remove_rule": _Answer("rule {rule} has ended", {"rule": "rule"}),
}
"""By name of the method. Methods of ``Faults`` that limit how many requests are met answer with a rule."""


def _advance(server: ControlClient, seconds: timedelta) -> None:
    """Advance the clock of a server that runs with --clock manual."""
    server.advance(seconds)


def _deliver(server: ControlClient) -> int:
    """Apply the writes that were held back."""
    return server.faults.deliver_held()


def _hits(server: ControlClient, rule: int) -> int:
    """Show how many requests a rule has met."""
    return server.faults.rule(rule).hits


def _remove_rule(server: ControlClient, rule: int) -> None:
    """End a rule."""
    server.faults.rule(rule).remove()


@app.command()
@command
def status(server: _Server, as_json: JsonOutput = False) -> None:
    """Show nodes, generations, tablets, and active faults."""
    with server.client() as client:
        found = client.status()
    show(found, "\n".join(_lines(found)), as_json=as_json, lines=True)


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"port {found['port']}, shard-aware port {found['shard_aware_port']}, time {found['time']}"]
    for node in found["nodes"]:
        skew = f", clock {node['clock_skew_s']:+g} s" if node["clock_skew_s"] else ""
        slow = f" by {node['delay_s']:g} s" if node["state"] == "slow" else ""
        lines.append(
            f"node {node['address']}: {node['state']}{slow}{skew}, {len(node['tokens'])} tokens, "
            f"connections by shard {node['connections']}"
        )
    lines += [f"generation {each['time']}: {each['streams']} streams" for each in found["generations"]]
    for each in found["tables"]:
        sets = ", ".join(f"{streams['streams']} from {streams['time']}" for streams in each["stream_sets"])
        lines.append(f"table {each['keyspace']}.{each['table']}: {each['tablets']} tablets; streams: {sets}")
    for rule in found["faults"]:
        times = "all" if rule["times"] is None else rule["times"]
        on = " ".join(f"{name}={value}" for name, value in rule["on"].items() if value)
        what = " ".join(part for part in (rule["action"], rule.get("fault"), on) if part)
        lines.append(f"rule {rule['rule']}: {what}; {rule['hits']} of {times} requests met")
    if found["held_writes"]:
        lines.append(f"{found['held_writes']} writes are held back")
    return lines


def _add(
    name: str, method: Callable[..., Any], answer: _Answer, on: Callable[[ControlClient], Any] = lambda server: server
) -> None:
    """Add a command that calls *method* of what *on* returns, and prints *answer*."""

    def body(*, server: _Server, as_json: bool, **given: Any) -> None:
        arguments: dict[str, Any] = {}
        with server.client() as client:
            for option, value in given.items():
                arguments |= value.arguments() if attrs.has(type(value)) else {option: value}
            known = {**arguments, "result": method(on(client), **arguments)}
            after = client.status() if "status" in answer.keys.values() else {}
        found = {
            key: after[key] if source == "status" else _shown(known[source]) for key, source in answer.keys.items()
        }
        show(found, answer.text.format(**found), as_json=as_json)

    body.__doc__ = _help(method)
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*_parameters(method), _parameter("server", _Server), _parameter("as_json", JsonOutput, False)]
    )
    app.command(name.replace("_", "-"))(command(body))


def _parameters(method: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of *method* with the types that make them options."""
    _, *parameters = inspect.signature(method).parameters.values()
    for each in parameters:
        if each.name not in _WITHIN:
            option = _Table if each.name == "table" and each.default is each.empty else _OPTIONS[each.name]
            yield _parameter(each.name, option, each.default)


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _help(method: Callable[..., Any]) -> str:
    """Return the first sentence of a docstring without what it returns, and with methods as their commands."""
    first = re.split(r"[,;] (?:see|return)\b|\.(?:\s|$)", inspect.getdoc(method) or "", maxsplit=1)[0]
    return re.sub(r"`+(\w+)`+", lambda name: f"`{_COMMANDS.get(name[1], name[1]).replace('_', '-')}`", f"{first}.")


def _shown(value: Any) -> Any:
    match value:
        case Rule():
            return value.number
        case timedelta():
            return value.total_seconds()
        case datetime():
            return moment(value)
    return value


_COMMANDS = {"deliver_held": "deliver"}
"""The commands of methods that have other names."""

_OWN: Mapping[str, Callable[..., Any]] = {each.__name__[1:]: each for each in (_advance, _deliver, _hits, _remove_rule)}

for _name, _answer in _ANSWERS.items():
    if hasattr(Faults, _name):
        _add(_name, getattr(Faults, _name), _answer, lambda server: server.faults)
    else:
        _add(_name, _OWN[_name] if _name in _OWN else getattr(ControlClient, _name), _answer)
for _name, _method in vars(Faults).items():
    if inspect.isfunction(_method) and "times" in inspect.signature(_method).parameters and not _name.startswith("_"):
        _add(_name, _method, _RULE, lambda server: server.faults)
