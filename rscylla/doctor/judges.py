"""Judges from facts whether a table's CDC log can be read, now and later. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Literal

import attrs

from .._timeuuid import datetime_of
from ..cdc.log import Lifetimes, LoggedTable, Model, log_columns, type_named
from ..errors import RscyllaError
from ..event import EventID
from ..options import SAFE_LAG
from ..types import Type

__all__ = ["Facts", "Finding", "Node", "Severity", "findings"]

Severity = Literal["ok", "warn", "error"]

SECOND = 1_000_000

DRIVER_FROM, DRIVER_BEFORE = (3, 29, 2), (3, 30)
"""Versions of scylla-driver that rscylla is tested with; ``setup.cfg`` requires the same."""

SKEW_BOUND_US = 1 * SECOND
"""Larger differences of node clocks are reported: windows end by the slowest clock, so it delays all events."""

LEEWAY_US = 5 * SECOND
"""A node refuses writes with timestamps further ahead of its clock. Source: Scylla ``cdc/metadata.cc``."""

MANY_QUERIES = 200
"""With more queries per poll, a poll takes longer than a second: the default of ``Limits.head_queries_per_s``."""

CDC_PARTITIONER = "com.scylladb.dht.CDCPartitioner"


@attrs.frozen
class Finding:
    """The result of one check: ``what`` was found, and what to ``do`` about it ("" if nothing)."""

    check: str
    severity: Severity
    what: str
    do: str = ""


@attrs.frozen
class Node:
    """A node as the driver sees it. ``skew_us``: its clock minus this machine's; None if it did not answer."""

    address: str
    dc: str
    is_up: bool = True
    skew_us: int | None = 0


@attrs.frozen
class Facts:
    """The facts that the checks judge. ``failed`` has the reason of each check whose facts could not be read.

    ``log_columns``: types by name. ``generations``: times in ms, ascending. ``streams``: how many streams the current
    generation has, None if not read; ``queries``: how many one poll needs. ``cursors``: by consumer; None for a
    consumer without a cursor. ``judged``: what the reader says about each cursor: the lifetimes of the rows after it,
    or the error that refuses it. ``why_pure``: why the decoder is not the compiled one. ``can_save``: whether the
    caller has checked that cursors can be read and saved.
    """

    table: LoggedTable
    now_us: int
    log_columns: Mapping[str, str]
    partitioner: str = CDC_PARTITIONER
    compaction: str = "TimeWindowCompactionStrategy"
    replication: Mapping[str, str] = attrs.field(factory=dict)
    model: Model = "vnodes"
    generations: tuple[int, ...] = ()
    streams: int | None = None
    queries: int = 1
    nodes: tuple[Node, ...] = ()
    lag_us: int | None = None
    reads: str = "QUORUM"
    writes: str = "QUORUM"
    driver: str = ".".join(map(str, DRIVER_FROM))
    decoder: str = "compiled"
    why_pure: str = ""
    cursors: Mapping[str, str | None] = attrs.field(factory=dict)
    judged: Mapping[str, Lifetimes | RscyllaError] = attrs.field(factory=dict)
    can_save: bool = False
    failed: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def ttl_us(self) -> int:
        """TTL of log rows; 0 for none."""
        return self.table.ttl_s * SECOND

    @property
    def latest_us(self) -> int:
        """The time on the fastest node, by whose clock rows may expire."""
        return self.now_us + max((node.skew_us for node in self.nodes if node.skew_us is not None), default=0)

    @property
    def assumed_lag_us(self) -> int:
        return int(SAFE_LAG.total_seconds()) * SECOND if self.lag_us is None else self.lag_us


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return the findings about *facts*, at least one for each check."""
    found = [finding for check in _CHECKS for finding in check(facts)]
    reported = {finding.check for finding in found}
    return (*found, *(f for check in facts.failed if check not in reported for f in _failed(facts, check)))


_DO_FAILED = "check that the nodes are up, and that this user has SELECT on the base table and the tables named here"


def _failed(facts: Facts, check: str) -> Iterator[Finding]:
    if check in facts.failed:
        what, _, do = facts.failed[check].partition("; ")
        yield Finding(check, "error", what, do or _DO_FAILED)


# ---------------------------------------------------------------- the table


def _cdc(facts: Facts) -> Iterator[Finding]:
    table = facts.table
    if table.enabled:
        shown = f"delta {table.delta}, preimage {table.preimage}, postimage {table.postimage}"
        yield Finding("cdc", "ok", f"CDC of {table.full_name} is enabled ({shown})")
    else:
        yield Finding(
            "cdc",
            "error",
            f"CDC of {table.full_name} is switched off: the log is detached and gets no new rows, so changes are lost",
            f"ALTER TABLE {table.full_name} WITH cdc = {{'enabled': true}}, and repeat all other CDC options",
        )
    if table.delta == "keys":
        yield Finding(
            "options",
            "warn",
            "delta is 'keys': events say which rows changed, not what was written",
            "set 'delta': 'full', unless consumers look the rows up",
        )
    else:
        yield Finding("options", "ok", "deltas are full")


def _log_table(facts: Facts) -> Iterator[Finding]:
    if "log table" in facts.failed:
        yield from _failed(facts, "log table")
        return
    if facts.partitioner != CDC_PARTITIONER:
        yield Finding(
            "log table",
            "error",
            f"the table with the log's name is an ordinary table (partitioner {facts.partitioner or 'default'})",
            "rename or drop it, then enable CDC",
        )
        return
    problems = list(_column_problems(facts))
    if problems:
        do = (
            "drop the log while CDC is off, then enable it; or undo the change"
            if facts.table.enabled
            else "enable CDC, which recreates the log's columns from the table"
        )
        severity: Severity = "error" if facts.table.enabled else "warn"
        yield Finding("log table", severity, f"the log does not fit its table: {'; '.join(problems[:3])}", do)
    elif facts.compaction.rpartition(".")[2] != "TimeWindowCompactionStrategy" and facts.ttl_us:
        yield Finding(
            "log table",
            "warn",
            f"the log was altered to {facts.compaction.rpartition('.')[2]}, which drops expired rows late",
            "ALTER TABLE the log back to TimeWindowCompactionStrategy",
        )
    else:
        yield Finding("log table", "ok", "the log's columns are those of the table")


def _column_problems(facts: Facts) -> Iterator[str]:
    """Yield the differences between the columns of the log and those that its base table requires."""
    wanted, types = log_columns(facts.table), {c.name: c.type_text for c in facts.table.columns}
    for name, type_ in wanted.items():
        has = facts.log_columns.get(name)
        if has is None:
            yield f"column {name!r} is missing"
        elif name in types and not _is_type(has, type_):
            yield f"column {name!r} is {has}, the table's is {types[name]}"
    yield from (f"column {name!r} is not the table's" for name in sorted(set(facts.log_columns) - wanted.keys()))


def _is_type(text: str, type_: Type) -> bool:
    """Return whether *text*, the type of a column of the log, is *type_*, ignoring whether it is frozen."""
    found = type_named(text)
    return str(attrs.evolve(found, frozen=type_.frozen)) == str(type_)


def _ttl(facts: Facts) -> Iterator[Finding]:
    ttl, lag = facts.ttl_us, facts.assumed_lag_us
    if not ttl:
        yield Finding(
            "ttl", "warn", "log rows never expire, so the log grows without limit", "set the CDC option 'ttl'"
        )
    elif ttl <= 2 * lag:
        yield Finding(
            "ttl",
            "error",
            f"log rows live {_span(ttl)}, less than twice the lag of {_span(lag)}: they expire before they are read",
            "make the CDC option 'ttl' much longer than the lag",
        )
    elif ttl < 3600 * SECOND:
        yield Finding(
            "ttl",
            "warn",
            f"log rows live {_span(ttl)}: a consumer that is down for longer loses changes",
            "make the CDC option 'ttl' longer than the longest outage",
        )
    else:
        yield Finding("ttl", "ok", f"log rows live {_span(ttl)}")


def _lag(facts: Facts) -> Iterator[Finding]:
    if facts.lag_us is None:
        return
    if facts.lag_us < SAFE_LAG.total_seconds() * SECOND:
        yield Finding(
            "lag",
            "warn",
            f"a lag of {_span(facts.lag_us)} is below 30 s: rows that arrive later are missed",
            "use 30 s or more, unless one clock stamps all writes",
        )
    else:
        yield Finding("lag", "ok", f"the lag is {_span(facts.lag_us)}")


# ---------------------------------------------------------------- generations


def _generations(facts: Facts) -> Iterator[Finding]:
    if "generations" in facts.failed:
        yield from _failed(facts, "generations")
        return
    started = [g for g in facts.generations if g * 1000 <= facts.now_us]
    coming = [g for g in facts.generations if g * 1000 > facts.now_us]
    if not started:
        what = (
            f"the first CDC generation starts in {_span(coming[0] * 1000 - facts.now_us)}"
            if coming
            else "there is none"
        )
        yield Finding(
            "generations",
            "error",
            f"no CDC generation is in use: {what}; writes to the table fail",
            "wait for it, or create one with nodetool checkAndRepairCdcStreams",
        )
        return
    what = (
        f"{len(facts.generations)} known, the current one since {datetime_of(started[-1] * 1000):%Y-%m-%d %H:%M:%S} UTC"
    )
    if coming:
        what += f", the next one starts in {_span(coming[0] * 1000 - facts.now_us)}"
    yield Finding("generations", "ok", what)


def _streams(facts: Facts) -> Iterator[Finding]:
    if "streams" in facts.failed:
        yield from _failed(facts, "streams")
    elif facts.streams is not None:
        queries = "1 query" if facts.queries == 1 else f"{facts.queries} queries"
        what = f"{facts.streams} streams ({facts.model}), {queries} per poll"
        if facts.queries > MANY_QUERIES:
            do = "share the table between processes with key_slice=, or allow more with Limits(head_queries_per_s=)"
            yield Finding(
                "streams", "warn", f"{what}: events are delivered later than the lag and poll interval suggest", do
            )
        else:
            yield Finding("streams", "ok", what)


# ---------------------------------------------------------------- nodes


def _nodes(facts: Facts) -> Iterator[Finding]:
    down = sorted(node.address for node in facts.nodes if not node.is_up)
    mute = sorted(node.address for node in facts.nodes if node.is_up and node.skew_us is None)
    for names, what in ((down, "down"), (mute, "up, but did not answer")):
        if names:
            do = "restart them; until then, fewer replicas answer"
            yield Finding("nodes", "warn", f"{len(names)} of {len(facts.nodes)} nodes {what}: {', '.join(names)}", do)
    if not down and not mute:
        yield Finding("nodes", "ok", f"{len(facts.nodes)} of {len(facts.nodes)} nodes up")


def _clocks(facts: Facts) -> Iterator[Finding]:
    known = [(node.address, node.skew_us) for node in facts.nodes if node.skew_us is not None]
    bound = max(facts.assumed_lag_us, LEEWAY_US)
    for address, skew in known:
        if abs(skew) <= SKEW_BOUND_US:
            continue
        severity: Severity = "error" if abs(skew) >= bound else "warn"
        effect = (
            "all events are delivered that much later, and from 5 s on it refuses writes stamped by other clocks"
            if skew < 0
            else "the changes that it stamps are delivered that much later"
        )
        what = f"the clock of node {address} is {skew / SECOND:+.1f} s different from this machine's: {effect}"
        yield Finding("clock", severity, what, "check NTP on both machines")
    if all(abs(skew) <= SKEW_BOUND_US for _, skew in known):
        worst = max((abs(skew) for _, skew in known), default=0)
        yield Finding("clock", "ok", f"{len(known)} node clocks are within {worst / 1000:.0f} ms of this machine's")


def _driver(facts: Facts) -> Iterator[Finding]:
    version = tuple(int(part) for part in re.findall(r"\d+", facts.driver)[:3])
    tested = f"{'.'.join(map(str, DRIVER_FROM))} up to, not including, {'.'.join(map(str, DRIVER_BEFORE))}"
    if DRIVER_FROM <= version < DRIVER_BEFORE:
        yield Finding("driver", "ok", f"scylla-driver {facts.driver}")
    else:
        yield Finding(
            "driver",
            "warn",
            f"scylla-driver {facts.driver} is outside the versions that rscylla is tested with",
            f"install one from {tested}",
        )


def _decoder(facts: Facts) -> Iterator[Finding]:
    if facts.decoder == "compiled":
        yield Finding("decoder", "ok", "log pages are decoded by compiled code")
    else:
        yield Finding(
            "decoder",
            "warn",
            f"log pages are decoded in Python, which takes several times as long: {facts.why_pure}",
            "unset RSCYLLA_PURE, or install a C compiler and then rscylla again",
        )


# ---------------------------------------------------------------- replicas


def _consistency(facts: Facts) -> Iterator[Finding]:
    if "consistency" in facts.failed:
        yield from _failed(facts, "consistency")
        return
    replicas = _replicas(facts)
    if not replicas:
        yield Finding("consistency", "warn", "the replication of the keyspace cannot be read", "check it manually")
        return
    yield _overlap(facts, replicas)
    yield from _enough_nodes(facts, replicas)


def _overlap(facts: Facts, replicas: Mapping[str, int]) -> Finding:
    """Return whether each read sees each acknowledged write: R + W > RF, by data center."""
    shown = ", ".join(f"{n} in {dc}" if dc else str(n) for dc, n in sorted(replicas.items()))
    levels = f"reads at {facts.reads}, writes at {facts.writes}, replicas: {shown}"
    pairs = [
        (w, r)
        for w, r in product(replicas, repeat=2)
        if not _must_meet(_least(facts.writes, replicas, w), _least(facts.reads, replicas, r), replicas)
    ]
    if not pairs:
        return Finding("consistency", "ok", f"reads see all writes ({levels})")
    apart = [(w, r) for w, r in pairs if w != r]
    if len(apart) == len(pairs):
        return Finding(
            "consistency",
            "warn",
            f"reads in {apart[0][1]} may not see what was just written in {apart[0][0]} ({levels})",
            "read or write at QUORUM, or keep a lag that is longer than replication between the data centers takes",
        )
    return Finding(
        "consistency",
        "error",
        f"reads can miss writes permanently: R + W is not more than the number of replicas ({levels})",
        "read the log at QUORUM (consistency=) and write at QUORUM, or LOCAL_QUORUM for both in one data center",
    )


def _enough_nodes(facts: Facts, replicas: Mapping[str, int]) -> Iterator[Finding]:
    """Yield an error for the first data center in which fewer nodes are up than a read needs."""
    for dc in sorted(replicas):
        mins, total = _least(facts.reads, replicas, dc)
        up = {d: min(n, sum(node.is_up for node in facts.nodes if d in ("", node.dc))) for d, n in replicas.items()}
        if facts.nodes and (sum(up.values()) < total or any(up[d] < n for d, n in mins.items())):
            yield Finding(
                "consistency",
                "error",
                f"{facts.reads}{f' in {dc}' if dc else ''} needs {total} replicas, and too few nodes are up",
                "bring nodes back, or lower the keyspace's replication factor to the number of available nodes",
            )
            return


def _replicas(facts: Facts) -> dict[str, int]:
    """Return the replicas by data center; "" if the strategy has none. Empty if they cannot be determined."""
    kind = facts.replication.get("class", "").rpartition(".")[2]
    if kind == "LocalStrategy":
        return {"": 1}
    if kind == "EverywhereStrategy":
        return {"": max(1, len(facts.nodes))}
    texts = {k: v for k, v in facts.replication.items() if k != "class" and not k.startswith("initial_")}
    if kind == "SimpleStrategy":
        texts = {"": texts.get("replication_factor", "")}
    found = {dc: _factor(text) for dc, text in texts.items()}
    return {} if None in found.values() else {dc: n for dc, n in found.items() if n}


def _factor(text: str) -> int | None:
    """Return a replication factor, given as a number or as a list of the racks that have a replica each."""
    if text.strip().isdigit():
        return int(text)
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        return len([rack for rack in inner[1:-1].split(",") if rack.strip()])
    return None


def _least(level: str, replicas: Mapping[str, int], local: str) -> tuple[dict[str, int], int]:
    """Return the minimum number of replicas that take part, by data center and in total."""
    total = sum(replicas.values())
    if level in ("LOCAL_ONE", "LOCAL_QUORUM"):
        n = 1 if level == "LOCAL_ONE" else replicas[local] // 2 + 1
        return {local: n}, n
    if level in ("ALL", "EACH_QUORUM"):
        each = {dc: n if level == "ALL" else n // 2 + 1 for dc, n in replicas.items()}
        return each, sum(each.values())
    return {}, {"ANY": 0, "ONE": 1, "TWO": 2, "THREE": 3}.get(level, total // 2 + 1)


def _must_meet(
    write: tuple[dict[str, int], int], read: tuple[dict[str, int], int], replicas: Mapping[str, int]
) -> bool:
    """Return whether a write and a read always have a replica in common."""
    if any(write[0].get(dc, 0) + read[0].get(dc, 0) > n for dc, n in replicas.items()):
        return True
    # At most all replicas take part: a node refuses TWO with a single replica, or reads that replica.
    total = sum(replicas.values())
    return min(write[1], total) + min(read[1], total) > total


# ---------------------------------------------------------------- permissions, cursors


def _permissions(facts: Facts) -> Iterator[Finding]:
    yield from _failed(facts, "permissions")
    if "permissions" in facts.failed:
        return
    if facts.streams is None or "consistency" in facts.failed:
        yield Finding("permissions", "warn", "not checked: the log could not be read", "fix the other errors first")
    else:
        yield Finding("permissions", "ok", "the log and the description of its streams can be read")


def _cursor_table(facts: Facts) -> Iterator[Finding]:
    yield from _failed(facts, "cursor table")
    if facts.can_save:
        yield Finding("cursor table", "ok", "cursors can be read and saved")


def _cursors(facts: Facts) -> Iterator[Finding]:
    for consumer, cursor in facts.cursors.items():
        yield _cursor(facts, consumer, cursor)


def _cursor(facts: Facts, consumer: str, text: str | None) -> Finding:
    if text is None:
        return Finding(
            "cursor",
            "warn",
            f"{consumer!r} has no cursor yet: it will start at the oldest row",
            "check the name, or set one with `rscylla cursor set`",
        )
    if not text:
        return Finding("cursor", "ok", f"{consumer!r} starts at the oldest row")
    judged = facts.judged.get(consumer)
    if judged is None:
        return Finding("cursor", "warn", f"{consumer!r} is not checked", "fix the other errors first")
    if isinstance(judged, RscyllaError):
        what, _, do = str(judged).partition("; ")
        severity: Severity = "warn" if judged.resumable else "error"
        return Finding("cursor", severity, f"{consumer!r}: {what}", do or "reset it with `rscylla cursor reset`")
    cursor, lifetimes = EventID.parse(text), judged
    at_us = max(cursor.exact_us, cursor.generation * 1000)
    age = facts.now_us - at_us
    gap = next(lifetimes.gaps_after(at_us, facts.latest_us), None)
    if gap is not None:
        start, end = (f"{datetime_of(us):%Y-%m-%d %H:%M:%S}" for us in (gap.start_us, gap.end_us))
        return Finding(
            "cursor",
            "error",
            f"{consumer!r} is {_span(age)} old, and changes from {start} to {end} UTC are lost: they were logged with "
            f"a TTL of {_span((gap.ttl_s or 0) * SECOND)}",
            "repair the consumer's data, then reset its cursor",
        )
    if lifetimes.is_unknown_at(cursor):
        return Finding(
            "cursor",
            "warn",
            f"{consumer!r} is {_span(age)} old, and the table was altered since, so the TTL of log rows of that time "
            "is not known",
            "if that TTL was shorter than the cursor is old, repair the consumer's data, then reset its cursor",
        )
    ttl_us = (lifetimes.ttl_at(at_us) or 0) * SECOND
    if ttl_us and age > ttl_us // 2:
        return Finding(
            "cursor",
            "warn",
            f"{consumer!r} is {_span(age)} old: more than half of what log rows of that time live ({_span(ttl_us)})",
            "check that the consumer runs and keeps up, or make the CDC option 'ttl' longer",
        )
    return Finding("cursor", "ok", f"{consumer!r} is {_span(max(0, age))} old")


def _span(us: int) -> str:
    """Return a duration as text for people, in at most two units.

    >>> _span(86_400_000_000), _span(5_400_000_000), _span(1_500_000)
    ('1 d', '1 h 30 min', '1.5 s')
    """
    if us < 60 * SECOND:
        return f"{us / SECOND:.3g} s"
    seconds = us // SECOND
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        n, seconds = divmod(seconds, size)
        if n:
            parts.append(f"{n} {unit}")
    return " ".join(parts[:2])


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _cdc,
    _log_table,
    _permissions,
    _generations,
    _streams,
    _ttl,
    _lag,
    _consistency,
    _nodes,
    _clocks,
    _cursor_table,
    _cursors,
    _driver,
    _decoder,
)
