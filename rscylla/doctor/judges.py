"""Judges from facts whether a table's CDC log can be read, now and later. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import attrs

from .._timeuuid import datetime_of
from ..cdc.log import log_columns, type_named
from ..errors import RscyllaError
from ..event import EventID
from ..options import SAFE_LAG
from ..types import Type
from .finding import (
    CDC_PARTITIONER,
    DRIVER_BEFORE,
    DRIVER_FROM,
    SECOND,
    Facts,
    Finding,
    Judgement,
    Severity,
    error,
    ok,
    warn,
)
from .replicas import consistency

__all__ = ["findings"]

SKEW_BOUND_US = 1 * SECOND
"""Larger differences of node clocks are reported: windows end by the slowest clock, so it delays all events."""

LEEWAY_US = 5 * SECOND
"""A node refuses writes with timestamps further ahead of its clock. Source: Scylla ``cdc/metadata.cc``."""

MANY_QUERIES = 200
"""With more queries per poll, a poll takes longer than a second: the default of ``Limits.head_queries_per_s``."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return the findings about *facts*, at least one for each check."""
    found = []
    for check, judge in _JUDGES.items():
        said = [_failed(facts.failed[check])] if check in facts.failed else judge(facts)
        found += [Finding(check, *one) for one in said]
    return (*found, *(Finding(check, *_failed(why)) for check, why in facts.failed.items() if check not in _JUDGES))


_DO_FAILED = "check that the nodes are up, and that this user has SELECT on the tables named here"


def _failed(why: str) -> Judgement:
    what, _, do = why.partition("; ")
    return error(what, do or _DO_FAILED)


# ---------------------------------------------------------------- the table


def _cdc(facts: Facts) -> Iterator[Judgement]:
    table = facts.table
    if table.enabled:
        shown = f"delta {table.delta}, preimage {table.preimage}, postimage {table.postimage}"
        yield ok(f"CDC of {table.full_name} is enabled ({shown})")
    else:
        yield error(
            f"CDC of {table.full_name} is switched off: the log is detached and gets no new rows, so changes are lost",
            f"ALTER TABLE {table.full_name} WITH cdc = {{'enabled': true}}, and repeat all other CDC options",
        )


def _options(facts: Facts) -> Iterator[Judgement]:
    if facts.table.delta == "keys":
        yield warn(
            "delta is 'keys': events say which rows changed, not what was written",
            "set 'delta': 'full', unless consumers look the rows up",
        )
    else:
        yield ok("deltas are full")


def _log_table(facts: Facts) -> Iterator[Judgement]:
    if facts.partitioner != CDC_PARTITIONER:
        yield error(
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
        yield severity, f"the log does not fit its table: {'; '.join(problems[:3])}", do
    elif facts.compaction.rpartition(".")[2] != "TimeWindowCompactionStrategy" and facts.ttl_us:
        yield warn(
            f"the log was altered to {facts.compaction.rpartition('.')[2]}, which drops expired rows late",
            "ALTER TABLE the log back to TimeWindowCompactionStrategy",
        )
    else:
        yield ok("the log's columns are those of the table")


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


def _ttl(facts: Facts) -> Iterator[Judgement]:
    ttl, lag = facts.ttl_us, facts.assumed_lag_us
    if not ttl:
        yield warn("log rows never expire, so the log grows without limit", "set the CDC option 'ttl'")
    elif ttl <= 2 * lag:
        yield error(
            f"log rows live {_span(ttl)}, less than twice the lag of {_span(lag)}: they expire before they are read",
            "make the CDC option 'ttl' much longer than the lag",
        )
    elif ttl < 3600 * SECOND:
        yield warn(
            f"log rows live {_span(ttl)}: a consumer that is down for longer loses changes",
            "make the CDC option 'ttl' longer than the longest outage",
        )
    else:
        yield ok(f"log rows live {_span(ttl)}")


def _lag(facts: Facts) -> Iterator[Judgement]:
    if facts.lag_us is None:
        return
    if facts.lag_us < SAFE_LAG.total_seconds() * SECOND:
        yield warn(
            f"a lag of {_span(facts.lag_us)} is below 30 s: rows that arrive later are missed",
            "use 30 s or more, unless one clock stamps all writes",
        )
    else:
        yield ok(f"the lag is {_span(facts.lag_us)}")


# ---------------------------------------------------------------- generations


def _generations(facts: Facts) -> Iterator[Judgement]:
    started = [g for g in facts.generations if g * 1000 <= facts.now_us]
    coming = [g for g in facts.generations if g * 1000 > facts.now_us]
    if not started:
        what = (
            f"the first CDC generation starts in {_span(coming[0] * 1000 - facts.now_us)}"
            if coming
            else "there is none"
        )
        yield error(
            f"no CDC generation is in use: {what}; writes to the table fail",
            "wait for it, or create one with nodetool checkAndRepairCdcStreams",
        )
        return
    what = (
        f"{len(facts.generations)} known, the current one since {datetime_of(started[-1] * 1000):%Y-%m-%d %H:%M:%S} UTC"
    )
    if coming:
        what += f", the next one starts in {_span(coming[0] * 1000 - facts.now_us)}"
    yield ok(what)


def _streams(facts: Facts) -> Iterator[Judgement]:
    if facts.streams is not None:
        queries = "1 query" if facts.queries == 1 else f"{facts.queries} queries"
        what = f"{facts.streams} streams ({facts.model}), {queries} per poll"
        if facts.queries > MANY_QUERIES:
            do = "share the table between processes with key_slice=, or allow more with Limits(head_queries_per_s=)"
            yield warn(f"{what}: events are delivered later than the lag and poll interval suggest", do)
        else:
            yield ok(what)


# ---------------------------------------------------------------- nodes


def _nodes(facts: Facts) -> Iterator[Judgement]:
    down = sorted(node.address for node in facts.nodes if not node.is_up)
    mute = sorted(node.address for node in facts.nodes if node.is_up and node.skew_us is None)
    for names, what in ((down, "down"), (mute, "up, but did not answer")):
        if names:
            do = "restart them; until then, fewer replicas answer"
            yield warn(f"{len(names)} of {len(facts.nodes)} nodes {what}: {', '.join(names)}", do)
    if not down and not mute:
        yield ok(f"{len(facts.nodes)} of {len(facts.nodes)} nodes up")


def _clocks(facts: Facts) -> Iterator[Judgement]:
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
        yield severity, what, "check NTP on both machines"
    if all(abs(skew) <= SKEW_BOUND_US for _, skew in known):
        worst = max((abs(skew) for _, skew in known), default=0)
        yield ok(f"{len(known)} node clocks are within {worst / 1000:.0f} ms of this machine's")


def _driver(facts: Facts) -> Iterator[Judgement]:
    version = tuple(int(part) for part in re.findall(r"\d+", facts.driver)[:3])
    tested = f"{'.'.join(map(str, DRIVER_FROM))} up to, not including, {'.'.join(map(str, DRIVER_BEFORE))}"
    if DRIVER_FROM <= version < DRIVER_BEFORE:
        yield ok(f"scylla-driver {facts.driver}")
    else:
        yield warn(
            f"scylla-driver {facts.driver} is outside the versions that rscylla is tested with",
            f"install one from {tested}",
        )


def _decoder(facts: Facts) -> Iterator[Judgement]:
    if facts.decoder == "compiled":
        yield ok("log pages are decoded by compiled code")
    else:
        yield warn(
            f"log pages are decoded in Python, which takes several times as long: {facts.why_pure}",
            "unset RSCYLLA_PURE, or install a C compiler and then rscylla again",
        )


# ---------------------------------------------------------------- permissions, cursors


def _permissions(facts: Facts) -> Iterator[Judgement]:
    if facts.streams is None or "consistency" in facts.failed:
        yield warn("not checked: the log could not be read", "fix the other errors first")
    else:
        yield ok("the log and the description of its streams can be read")


def _cursor_table(facts: Facts) -> Iterator[Judgement]:
    if facts.can_save:
        yield ok("cursors can be read and saved")


def _cursors(facts: Facts) -> Iterator[Judgement]:
    for consumer, cursor in facts.cursors.items():
        yield _cursor(facts, consumer, cursor)


def _cursor(facts: Facts, consumer: str, text: str | None) -> Judgement:
    if text is None:
        return warn(
            f"{consumer!r} has no cursor yet: it will start at the oldest row",
            "check the name, or set one with `rscylla cursor set`",
        )
    if not text:
        return ok(f"{consumer!r} starts at the oldest row")
    judged = facts.judged.get(consumer)
    if judged is None:
        return warn(f"{consumer!r} is not checked", "fix the other errors first")
    if isinstance(judged, RscyllaError):
        what, _, do = str(judged).partition("; ")
        severity: Severity = "warn" if judged.resumable else "error"
        return severity, f"{consumer!r}: {what}", do or "reset it with `rscylla cursor reset`"
    cursor, lifetimes = EventID.parse(text), judged
    at_us = max(cursor.exact_us, cursor.generation * 1000)
    age = facts.now_us - at_us
    gap = next(lifetimes.gaps_after(at_us, facts.latest_us), None)
    if gap is not None:
        start, end = (f"{datetime_of(us):%Y-%m-%d %H:%M:%S}" for us in (gap.start_us, gap.end_us))
        return error(
            f"{consumer!r} is {_span(age)} old, and changes from {start} to {end} UTC are lost: they were logged with "
            f"a TTL of {_span((gap.ttl_s or 0) * SECOND)}",
            "repair the consumer's data, then reset its cursor",
        )
    if lifetimes.is_unknown_at(cursor):
        return warn(
            f"{consumer!r} is {_span(age)} old, and the table was altered since, so the TTL of log rows of that time "
            "is not known",
            "if that TTL was shorter than the cursor is old, repair the consumer's data, then reset its cursor",
        )
    ttl_us = (lifetimes.ttl_at(at_us) or 0) * SECOND
    if ttl_us and age > ttl_us // 2:
        return warn(
            f"{consumer!r} is {_span(age)} old: more than half of what log rows of that time live ({_span(ttl_us)})",
            "check that the consumer runs and keeps up, or make the CDC option 'ttl' longer",
        )
    return ok(f"{consumer!r} is {_span(max(0, age))} old")


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


_JUDGES: Mapping[str, Callable[[Facts], Iterator[Judgement]]] = {
    "cdc": _cdc,
    "options": _options,
    "log table": _log_table,
    "permissions": _permissions,
    "generations": _generations,
    "streams": _streams,
    "ttl": _ttl,
    "lag": _lag,
    "consistency": consistency,
    "nodes": _nodes,
    "clock": _clocks,
    "cursor table": _cursor_table,
    "cursor": _cursors,
    "driver": _driver,
    "decoder": _decoder,
}
"""By check, in the order in which findings are shown."""
