"""``rscylla serve ctl``: changes and breaks a server that ``rscylla serve`` runs, while it runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

import rscylla
from rscylla.embedded import ControlClient, ControlUnavailable, Rule, Statements

from .shared.failures import reports_errors
from .shared.names import parse_table
from .shared.options import JsonOutput, TableArgument, count, grouped, number
from .shared.output import json_line, moment
from .shared.standard import write

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def ctl() -> None:
    """Control a server that `rscylla serve` runs on this machine: its nodes, streams, clock, and faults.

    Every command prints text, or one JSON object with --json.
    """


_seconds = number(float, least=-(10**9), most=10**9)

Answer = tuple[dict[str, Any], str]
"""What a command prints: the JSON object, or the text."""

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the node, such as 127.0.0.2.")]
Delay = Annotated[
    float | None,
    typer.Option(
        parser=_seconds, metavar="SECONDS", help="Time until the new streams start; default: as in ScyllaDB, 65."
    ),
]
By = Annotated[float, typer.Option(parser=_seconds, metavar="SECONDS", help="By how much.")]
Applied = Annotated[bool, typer.Option("--applied", help="Carry the requests out all the same.")]
RuleNumber = Annotated[
    int, typer.Argument(parser=number(int, least=0), metavar="RULE", help="Number of the rule, as `status` shows it.")
]


# ---------------------------------------------------------------- groups of options


def _client(port: int, control: Path | None) -> ControlClient:
    return ControlClient.at_port(port) if control is None else ControlClient(control)


_SERVER = {
    "port": (
        Annotated[
            int,
            typer.Option(parser=number(int, least=1, most=65535), metavar="PORT", help="Port of the server's nodes."),
        ],
        9042,
    ),
    "control": (
        Annotated[
            Path | None,
            typer.Option("--control", metavar="PATH", help="Control socket of the server, if it was given a path."),
        ],
        None,
    ),
}


def _statements(
    kind: Any, of_table: str | None, keyspace: str | None, matching: str | None, node: str | None, later_pages: bool
) -> Statements:
    table = None
    if of_table is not None:
        if keyspace is not None:
            raise rscylla.ConfigError("--table names the keyspace, too; omit --keyspace")
        name = parse_table(of_table)
        keyspace, table = name.keyspace, name.table
    try:
        return Statements(kind, keyspace, table, matching, node, later_pages)
    except ValueError as error:
        raise rscylla.ConfigError(f"--{error}") from error


_TABLE = Annotated[
    str | None,
    typer.Option("--table", metavar="KS.TABLE", help="Only requests that name this table, which may be a CDC log."),
]
_KEYSPACE = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only requests that name this keyspace; system keyspaces must be named."),
]
_ON = {
    "kind": (
        Annotated[
            Literal["select", "insert", "update", "delete", "batch", "prepare", "other"] | None,
            typer.Option(metavar="KIND", help="Only select, insert, update, delete, batch, prepare, or other."),
        ],
        None,
    ),
    "of_table": (_TABLE, None),
    "keyspace": (_KEYSPACE, None),
    "matching": (
        Annotated[str | None, typer.Option(metavar="REGEX", help="Only requests whose CQL matches, in any case.")],
        None,
    ),
    "node": (Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only requests to this node.")], None),
    "later_pages": (
        Annotated[bool, typer.Option("--later-pages", help="Only requests for a second or later page.")],
        False,
    ),
}


def _times(times: int | None, always: bool) -> dict[str, Any]:
    if times is not None and always:
        raise rscylla.ConfigError("--times and --always exclude each other")
    # The methods of Faults have the defaults.
    return {"times": times} if always or times is not None else {}


_TIMES = {
    "times": (
        Annotated[
            int | None,
            typer.Option(
                parser=count,
                metavar="N",
                help="How many requests are met; default: 1; all for cut-pages, hold-writes.",
            ),
        ],
        None,
    ),
    "always": (Annotated[bool, typer.Option("--always", help="All requests, until `clear` or `remove-rule`.")], False),
}


def _limits(times: int | None, always: bool, probability: float, seed: int | None) -> dict[str, Any]:
    return {**_times(times, always), "probability": probability, "seed": seed}


_LIMITS = {
    **_TIMES,
    "probability": (
        Annotated[float, typer.Option(parser=_seconds, metavar="P", help="Chance of each request to be met, up to 1.")],
        1.0,
    ),
    "seed": (
        Annotated[int | None, typer.Option(parser=number(int), metavar="N", help="Makes the chance repeatable.")],
        None,
    ),
}


def _place(of_table: str | None, keyspace: str | None) -> dict[str, Any]:
    on = _statements(None, of_table, keyspace, None, None, False)
    return {"keyspace": on.keyspace, "table": on.table}


_expanded = grouped(
    server=(_client, _SERVER),
    on=(_statements, _ON),
    limits=(_limits, _LIMITS),
    times=(_times, _TIMES),
    place=(_place, {"of_table": (_TABLE, None), "keyspace": (_KEYSPACE, None)}),
)


def command(body: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add a command of the function's name; its parameters may be the groups of options above."""
    signature = inspect.signature(body, eval_str=True)
    as_json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOutput)

    @functools.wraps(body)
    def shown(*, as_json: bool, **given: Any) -> None:
        try:
            found, text = body(**given)
        except ControlUnavailable as error:
            raise rscylla.ConnectionFailed(str(error)) from error
        except ValueError as error:
            raise rscylla.ConfigError(str(error)) from error
        write(json_line(found) if as_json else text, lines=not as_json)

    shown.__signature__ = signature.replace(  # type: ignore[attr-defined]
        # By keyword: groups without a default may follow parameters with one.
        parameters=[*(each.replace(kind=as_json.kind) for each in signature.parameters.values()), as_json],
        return_annotation=None,
    )
    app.command(body.__name__.replace("_", "-"))(reports_errors(_expanded(cast("Callable[..., None]", shown))))
    return body


def _delta(delay: float | None) -> timedelta | None:
    return None if delay is None else timedelta(seconds=delay)


# ---------------------------------------------------------------- the cluster


@command
def status(server: ControlClient) -> Answer:
    """Show nodes, generations, tablets, and active faults."""
    found = server.status()
    return found, "\n".join(_lines(found))


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


@command
def add_node(server: ControlClient, delay: Delay = None) -> Answer:
    """Add a node; a new CDC generation starts after the delay."""
    address = server.add_node(_delta(delay))
    return {"address": address}, f"node {address} was added"


@command
def remove_node(server: ControlClient, address: Address) -> Answer:
    """Remove a node."""
    server.remove_node(address)
    return {"address": address}, f"node {address} was removed"


@command
def new_generation(server: ControlClient, delay: Delay = None) -> Answer:
    """Start a CDC generation with the current nodes."""
    time = server.new_generation(_delta(delay))
    return {"time": moment(time)}, f"a generation starts at {moment(time)}"


@command
def split_tablets(server: ControlClient, name: TableArgument, delay: Delay = None) -> Answer:
    """Split each tablet of a table in two; its new streams start after the delay."""
    return _resized(server.split_tablets, name, delay)


@command
def merge_tablets(server: ControlClient, name: TableArgument, delay: Delay = None) -> Answer:
    """Merge the tablets of a table two by two; its new streams start after the delay."""
    return _resized(server.merge_tablets, name, delay)


def _resized(resize: Callable[..., datetime], name: str, delay: float | None) -> Answer:
    parsed = parse_table(name)
    time = resize(parsed.keyspace, parsed.table, _delta(delay))
    found = {"keyspace": parsed.keyspace, "table": parsed.table, "time": moment(time)}
    return found, f"{parsed.keyspace}.{parsed.table} has new streams from {found['time']}"


@command
def upgrade(
    server: ControlClient,
    rewriting: Annotated[
        Literal["done", "held", "disabled"],
        typer.Option(metavar="WHEN", help="Copy old generations: done (now), held (on finish-rewriting), or disabled."),
    ] = "done",
) -> Answer:
    """Upgrade a server of version 4.3 to 4.4."""
    server.upgrade(rewriting)
    return {"version": "4.4", "rewriting": rewriting}, "the version is 4.4"


@command
def finish_rewriting(server: ControlClient) -> Answer:
    """Copy the generations that `upgrade --rewriting held` omitted."""
    server.finish_rewriting()
    return {}, "all generations are in the new tables"


@command
def expire_rows(server: ControlClient) -> Answer:
    """Delete the rows whose TTL column says that they have expired."""
    rows = server.expire_rows()
    return {"rows": rows}, f"{rows} rows were deleted"


@command
def advance(
    server: ControlClient,
    by: Annotated[float, typer.Argument(parser=_seconds, metavar="SECONDS", help="By how much.")],
) -> Answer:
    """Advance the clock of a server that runs with --clock manual."""
    server.advance(timedelta(seconds=by))
    time = server.status()["time"]
    return {"time": time}, f"the time is {time}"


# ---------------------------------------------------------------- nodes with faults


@command
def stop_node(server: ControlClient, address: Address) -> Answer:
    """Disconnect a node's clients and close its ports."""
    server.faults.stop_node(address)
    return {"address": address}, f"node {address} is stopped"


@command
def start_node(server: ControlClient, address: Address) -> Answer:
    """Let a stopped node listen again."""
    server.faults.start_node(address)
    return {"address": address}, f"node {address} is up"


@command
def stall_node(server: ControlClient, address: Address) -> Answer:
    """Let a node accept requests, but answer none until `resume-node`."""
    server.faults.stall_node(address)
    return {"address": address}, f"node {address} is stalled"


@command
def slow_node(server: ControlClient, address: Address, by: By) -> Answer:
    """Let a node take longer for each request until `resume-node`."""
    server.faults.slow_node(address, timedelta(seconds=by))
    return {"address": address, "delay_s": by}, f"node {address} is slow by {by:g} s"


@command
def resume_node(server: ControlClient, address: Address) -> Answer:
    """End `stall-node` and `slow-node`."""
    server.faults.resume_node(address)
    return {"address": address}, f"node {address} answers as usual"


@command
def skew_clock(server: ControlClient, address: Address, by: By) -> Answer:
    """Set a node's clock ahead, behind (negative), or right (0)."""
    server.faults.skew_clock(address, timedelta(seconds=by))
    return {"address": address, "clock_skew_s": by}, f"the clock of node {address} is off by {by:g} s"


# ---------------------------------------------------------------- requests with faults


def _added(rule: Rule) -> Answer:
    return {"rule": rule.number}, f"rule {rule.number} was added"


@command
def fail(
    server: ControlClient,
    fault: Annotated[str, typer.Argument(metavar="ERROR", help="Such as read_timeout, overloaded, or unprepared.")],
    on: Statements,
    limits: dict[str, Any],
    applied: Applied = False,
) -> Answer:
    """Answer requests with an error: unavailable, read_timeout, write_timeout, read_failure, write_failure, overloaded,
    bootstrapping, unprepared, rate_limit, server_error, invalid, or unauthorized."""
    return _added(server.faults.fail(cast("Any", fault), on, applied=applied, **limits))


@command
def no_answer(server: ControlClient, on: Statements, limits: dict[str, Any], applied: Applied = False) -> Answer:
    """Do not answer requests."""
    return _added(server.faults.no_answer(on, applied=applied, **limits))


@command
def delay(server: ControlClient, by: By, on: Statements, limits: dict[str, Any]) -> Answer:
    """Answer requests later."""
    return _added(server.faults.delay(timedelta(seconds=by), on, **limits))


@command
def drop_connection(
    server: ControlClient,
    on: Statements,
    limits: dict[str, Any],
    partway: Annotated[bool, typer.Option("--partway", help="After half of the answer.")] = False,
) -> Answer:
    """Cut the connections that requests come by."""
    return _added(server.faults.drop_connection(on, partway=partway, **limits))


@command
def cut_pages(
    server: ControlClient,
    on: Statements,
    limits: dict[str, Any],
    rows: Annotated[int | None, typer.Option(parser=count, metavar="N", help="Rows of a page at most.")] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Send empty pages before those with rows.")] = False,
) -> Answer:
    """Answer SELECTs with shorter pages than requested."""
    if rows is None and not empty:
        raise rscylla.ConfigError("cut-pages requires --rows N, --empty, or both")
    return _added(server.faults.cut_pages(rows, on, empty=empty, **limits))


@command
def replay_writes(server: ControlClient, place: dict[str, Any], times: dict[str, Any]) -> Answer:
    """Log writes twice, as a repeated Paxos round does."""
    return _added(server.faults.replay_writes(**place, **times))


@command
def hold_writes(server: ControlClient, place: dict[str, Any], times: dict[str, Any]) -> Answer:
    """Acknowledge writes, but apply them only at `deliver`."""
    return _added(server.faults.hold_writes(**place, **times))


@command
def deliver(server: ControlClient) -> Answer:
    """Apply the writes that were held back."""
    delivered = server.faults.deliver_held()
    return {"delivered": delivered}, f"{delivered} writes were applied"


@command
def hits(server: ControlClient, rule: RuleNumber) -> Answer:
    """Show how many requests a rule has met."""
    met = server.faults.rule(rule).hits
    return {"rule": rule, "hits": met}, f"rule {rule} has met {met} requests"


@command
def remove_rule(server: ControlClient, rule: RuleNumber) -> Answer:
    """End a rule."""
    server.faults.rule(rule).remove()
    return {"rule": rule}, f"rule {rule} has ended"


@command
def clear(server: ControlClient) -> Answer:
    """End all faults, start stopped nodes, and apply the writes that were held back."""
    server.faults.clear()
    return {}, "all faults have ended"
