"""What the doctor says: each finding from the facts that lead to it, and the facts from what a cluster answers."""

from __future__ import annotations

import configparser
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unauthorized
from fakelog import NOW_US, SECOND, FakeLog, Host, log_time, stream_id
from hypothesis import example, given
from hypothesis import strategies as st

import rscylla
from rscylla._timeuuid import datetime_of
from rscylla.cdc.log.lifetimes import Lifetimes
from rscylla.cdc.log.query import LOG_SUFFIX
from rscylla.cdc.log.table import FIXED_COLUMNS, BaseColumn, LoggedTable
from rscylla.cdc.log.topology import VnodeTopology
from rscylla.doctor import finding, judges
from rscylla.doctor.finding import Facts, Finding, Node
from rscylla.doctor.judges import findings
from rscylla.errors import ConfigError, QueryTimeout, TableChanged, TableNotFound
from rscylla.event import EventID, LogMark
from rscylla.testing import ManualClock

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
GENERATION = NOW_US // 1000 - 5_000_000

COLUMNS = (
    BaseColumn("pk", "partition_key", 0, "int"),
    BaseColumn("ck", "clustering", 0, "text"),
    BaseColumn("s", "static", -1, "text"),
    BaseColumn("v", "regular", -1, "int"),
    BaseColumn("l", "regular", -1, "list<int>"),
    BaseColumn("m", "regular", -1, "map<int, text>"),
    BaseColumn("f", "regular", -1, "frozen<set<int>>"),
    BaseColumn("u", "regular", -1, "address"),
)
LOG_COLUMNS = {
    **dict.fromkeys(FIXED_COLUMNS, "any"),
    "pk": "int",
    "ck": "text",
    "s": "text",
    "v": "int",
    "l": "frozen<map<timeuuid, int>>",
    "m": "frozen<map<int, text>>",
    "f": "frozen<set<int>>",
    "u": "frozen<address>",
    **{f"cdc$deleted_{name}": "boolean" for name in "svlmfu"},
    **{f"cdc$deleted_elements_{name}": "any" for name in "lmu"},
}
TABLE = LoggedTable("ks", "t", COLUMNS, uuid.uuid4())
THREE = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
TWO_DCS = {"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "3"}

HEALTHY = Facts(
    TABLE,
    NOW_US,
    LOG_COLUMNS,
    replication=THREE,
    generations=(GENERATION,),
    streams=64,
    nodes=tuple(Node(f"n{i}", "dc1") for i in range(3)),
    lag_us=30 * SECOND,
    cursors={"billing": str(EventID(GENERATION, NOW_US - 60 * SECOND))},
    judged={"billing": Lifetimes.of(TABLE)},
    can_save=True,
)


def facts(**changes: Any) -> Facts:
    of_table = {
        name: changes.pop(name) for name in list(changes) if name in {a.name for a in attrs.fields(LoggedTable)}
    }
    return attrs.evolve(HEALTHY, table=attrs.evolve(TABLE, **of_table), **changes)


def of(check: str, found: tuple[Finding, ...]) -> list[Finding]:
    return [f for f in found if f.check == check]


def test_a_healthy_table_has_only_ok_findings() -> None:
    found = findings(HEALTHY)
    assert [f for f in found if f.severity != "ok"] == []
    assert all(f.what and not f.do and "\n" not in f.what for f in found)
    checks = ["cdc", "options", "log table", "permissions", "generations", "streams", "ttl", "lag", "consistency"]
    assert [f.check for f in found] == [*checks, "nodes", "clock", "cursor table", "cursor", "driver", "decoder"]


def cursor(us: int, generation: int = GENERATION) -> dict[str, str | None]:
    return {"billing": str(EventID(generation, us))}


def read_until(us: int, ttl_s: int | None, *, is_start: bool = False) -> dict[str, str | None]:
    mark = LogMark(TABLE.log_id.bytes, ttl_s=ttl_s, is_start=is_start)
    return {"billing": str(EventID(GENERATION, us, mark=mark))}


def ttls(ttl_s: int | None, *later: tuple[int, int]) -> dict[str, Lifetimes]:
    """Return what the reader says about a cursor that it accepts."""
    return {"billing": Lifetimes(((0, ttl_s), *later))}


def nodes(*given_: tuple[str, bool, int | None]) -> tuple[Node, ...]:
    return tuple(Node(f"n{i}", dc, up, skew) for i, (dc, up, skew) in enumerate(given_))


def without(name: str) -> dict[str, str]:
    return {k: v for k, v in LOG_COLUMNS.items() if k != name}


TWENTY_AHEAD = nodes(("dc1", True, -1), ("dc1", True, 20 * SECOND), ("dc1", True, None))
ONE_UP = nodes(("dc1", True, 0), ("dc1", False, None), ("dc1", False, None))

CASES: list[tuple[dict[str, Any], str, str, str]] = [
    # what is so, and of which check, how bad, and what is said
    ({"enabled": False}, "cdc", "error", "detached"),
    ({"delta": "keys"}, "options", "warn", "delta is 'keys'"),
    ({"log_columns": without("v")}, "log table", "error", "column 'v' is missing"),
    ({"log_columns": without("cdc$deleted_s")}, "log table", "error", "'cdc.deleted_s' is missing"),
    ({"log_columns": without("cdc$deleted_elements_l")}, "log table", "error", "'cdc.deleted_elements_l' is missing"),
    ({"log_columns": LOG_COLUMNS | {"cdc$deleted_elements_f": "any"}}, "log table", "error", "_f' is not the table's"),
    (
        {"log_columns": LOG_COLUMNS | {"f": "frozen<set<text>>"}},
        "log table",
        "error",
        "column 'f' is frozen<set<text>>",
    ),
    (
        {"log_columns": LOG_COLUMNS | {"u": "frozen<other>"}},
        "log table",
        "error",
        "'u' is frozen<other>, the table's is ad",
    ),
    ({"log_columns": without("cdc$end_of_batch")}, "log table", "error", "'cdc.end_of_batch' is missing"),
    ({"log_columns": LOG_COLUMNS | {"x": "int"}}, "log table", "error", "column 'x' is not the table's"),
    ({"log_columns": LOG_COLUMNS | {"v": "text"}}, "log table", "error", "column 'v' is text, the table's is int"),
    (
        {"log_columns": LOG_COLUMNS | {"l": "frozen<list<int>>"}},
        "log table",
        "error",
        "column 'l' is frozen<list<int>>",
    ),
    ({"log_columns": without("v"), "enabled": False}, "log table", "warn", "column 'v' is missing"),
    ({"partitioner": ""}, "log table", "error", "an ordinary table"),
    ({"compaction": "org.x.SizeTieredCompactionStrategy"}, "log table", "warn", "altered to SizeTieredCompaction"),
    ({"failed": {"log table": "no answer"}}, "log table", "error", "no answer"),
    ({"ttl_s": 0}, "ttl", "warn", "never expire"),
    ({"ttl_s": 60}, "ttl", "error", "live 1 min, less than twice the lag of 30 s"),
    ({"ttl_s": 100, "lag_us": None}, "ttl", "warn", "live 1 min 40 s"),
    ({"ttl_s": 600}, "ttl", "warn", "down for longer loses changes"),
    ({"lag_us": 29_999_999}, "lag", "warn", "below 30 s"),
    ({"generations": ()}, "generations", "error", "there is none"),
    (
        {"generations": (NOW_US // 1000 + 65_000,)},
        "generations",
        "error",
        "the first CDC generation starts in 1 min 5 s",
    ),
    (
        {"generations": (GENERATION, NOW_US // 1000 + 65_000)},
        "generations",
        "ok",
        "2 known.*next one starts in 1 min 5 s",
    ),
    ({"failed": {"generations": "no; grant it"}}, "generations", "error", "^no$"),
    ({"failed": {"streams": "has no streams"}}, "streams", "error", "has no streams"),
    ({"streams": 73_728, "queries": 1_024}, "streams", "warn", "events are delivered later"),
    (
        {"nodes": nodes(("dc1", True, 0), ("dc1", True, 0), ("dc1", False, None))},
        "nodes",
        "warn",
        "1 of 3 nodes down: n2",
    ),
    ({"nodes": nodes(("dc1", True, 0), ("dc1", True, 0), ("dc1", True, None))}, "nodes", "warn", "did not answer: n2"),
    (
        {"nodes": nodes(("dc1", True, -1_500_000), *[("dc1", True, 0)] * 2)},
        "clock",
        "warn",
        "n0 is -1.5 s different.*all events are delivered that much later",
    ),
    (
        {"nodes": nodes(("dc1", True, 2_000_000), *[("dc1", True, 0)] * 2)},
        "clock",
        "warn",
        r"\+2.0 s different.*delivered that much later",
    ),
    ({"nodes": nodes(("dc1", True, -31_000_000), *[("dc1", True, 0)] * 2)}, "clock", "error", "-31.0 s different"),
    (
        {"nodes": nodes(("dc1", True, 5_100_000), *[("dc1", True, 0)] * 2), "lag_us": 0},
        "clock",
        "error",
        "5.1 s different",
    ),
    ({"reads": "ONE"}, "consistency", "error", "reads at ONE, writes at QUORUM, replicas: 3 in dc1"),
    ({"reads": "LOCAL_ONE", "writes": "LOCAL_QUORUM"}, "consistency", "error", "R \\+ W is not more"),
    ({"reads": "ONE", "writes": "ALL"}, "consistency", "ok", "reads see all writes"),
    ({"reads": "LOCAL_QUORUM", "writes": "LOCAL_QUORUM"}, "consistency", "ok", "reads see all writes"),
    ({"nodes": ONE_UP}, "consistency", "error", "QUORUM in dc1 needs 2 replicas"),
    ({"failed": {"consistency": "timed out"}}, "consistency", "error", "timed out"),
    ({"replication": {"class": "NetworkTopologyStrategy", "dc1": "?"}}, "consistency", "warn", "cannot be read"),
    ({"failed": {"permissions": "may not; grant SELECT"}}, "permissions", "error", "may not"),
    ({"streams": None}, "permissions", "warn", "not checked"),
    ({"failed": {"consistency": "timed out"}}, "permissions", "warn", "not checked"),
    ({"failed": {"cursor table": "no cursor table"}, "can_save": False}, "cursor table", "error", "no cursor table"),
    ({"cursors": {"b": None}}, "cursor", "warn", "'b' has no cursor"),
    ({"cursors": {"b": ""}}, "cursor", "ok", "starts at the oldest row"),
    ({"cursors": cursor(NOW_US - 4_000 * SECOND), "judged": ttls(7_200)}, "cursor", "warn", "more than half"),
    ({"cursors": cursor(NOW_US - 3_600 * SECOND), "judged": ttls(7_200)}, "cursor", "ok", "1 h old"),
    ({"cursors": cursor(NOW_US + 5 * SECOND), "judged": ttls(7_200)}, "cursor", "ok", "'billing' is 0 s old"),
    ({"cursors": cursor(NOW_US - HOUR), "judged": ttls(0)}, "cursor", "ok", "1 h old"),
    ({"cursors": cursor(NOW_US - HOUR), "judged": {}}, "cursor", "warn", "'billing' is not checked"),
    (
        {"cursors": cursor(NOW_US - HOUR), "judged": {"billing": TableChanged("the log is another")}},
        "cursor",
        "error",
        "'billing': the log is another",
    ),
    (
        {"cursors": cursor(NOW_US - HOUR), "judged": {"billing": QueryTimeout("late; try again")}},
        "cursor",
        "warn",
        "'billing': late",
    ),
    (  # the TTL was lowered
        {"cursors": cursor(NOW_US - HOUR), "judged": ttls(86_400, (NOW_US - 60 * SECOND, 600))},
        "cursor",
        "ok",
        "1 h old",
    ),
    (  # the TTL was lowered, and rows written since then have expired
        {"cursors": cursor(NOW_US - HOUR), "judged": ttls(86_400, (NOW_US - HOUR // 2, 600))},
        "cursor",
        "error",
        "1 h old, and changes from .* to .* UTC are lost: they were logged with a TTL of 10 min",
    ),
    (  # by the clock of the fastest node
        {
            "cursors": cursor(NOW_US - HOUR),
            "judged": ttls(86_400, (NOW_US - 590 * SECOND, 600)),
            "nodes": TWENTY_AHEAD,
        },
        "cursor",
        "error",
        "are lost",
    ),
    (
        {"cursors": cursor(NOW_US - HOUR), "judged": ttls(None, (NOW_US - 60 * SECOND, 86_400))},
        "cursor",
        "warn",
        "1 h old, and the table was altered since, so the TTL of log rows of that time is not known",
    ),
    (
        {
            "cursors": read_until(NOW_US - HOUR, None, is_start=True),
            "judged": ttls(None, (NOW_US - 60 * SECOND, 86_400)),
        },
        "cursor",
        "ok",
        "1 h old",
    ),
    ({"driver": "3.28.0"}, "driver", "warn", "3.28.0 is outside"),
    ({"driver": "3.30"}, "driver", "warn", "3.30 is outside"),
    ({"driver": "3.29.12"}, "driver", "ok", "3.29.12"),
    ({}, "decoder", "ok", "by compiled code"),
    ({"decoder": "pure", "why_pure": "RSCYLLA_PURE is set"}, "decoder", "warn", "in Python.*RSCYLLA_PURE is set"),
    ({"failed": {"something": "else"}}, "something", "error", "else"),
]


@pytest.mark.parametrize(("changes", "check", "severity", "words"), CASES, ids=[f"{c[1]}-{c[3]}" for c in CASES])
def test_each_finding(changes: dict[str, Any], check: str, severity: str, words: str) -> None:
    found = [f for f in of(check, findings(facts(**changes))) if re.search(words, f.what)]
    assert len(found) == 1, findings(facts(**changes))
    assert found[0].severity == severity
    assert (found[0].do != "") == (severity != "ok")
    assert "\n" not in found[0].what + found[0].do


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"ttl_s": 3_600}, "ttl"),
        ({"queries": judges.MANY_QUERIES}, "streams"),
        ({"generations": (NOW_US // 1000,)}, "generations"),
        ({"compaction": "SizeTieredCompactionStrategy", "ttl_s": 0}, "log table"),
        ({"log_columns": {**LOG_COLUMNS, "f": "set<int>", "m": "map<int, text>"}}, "log table"),
        ({"replication": THREE | {"dc2": "0", "initial_tablets": "8"}}, "consistency"),
        ({"replication": {"class": "NetworkTopologyStrategy", "dc1": "['r1', 'r2', 'r3']"}}, "consistency"),
    ],
)
def test_what_is_right_at_a_bound_is_ok(changes: dict[str, Any], check: str) -> None:
    assert [f.severity for f in of(check, findings(facts(**changes)))] == ["ok"]


@pytest.mark.parametrize(
    ("skew_s", "lag_s", "severity"),
    [(30, 30, "error"), (29, 30, "warn"), (-30, None, "error"), (3, 1, "warn"), (5, 1, "error")],
)
def test_a_clock_is_an_error_once_its_skew_is_the_lag_or_what_nodes_refuse(
    skew_s: int, lag_s: int | None, severity: str
) -> None:
    lag_us = None if lag_s is None else lag_s * SECOND
    found = of("clock", findings(facts(nodes=nodes(("dc1", True, skew_s * SECOND)), lag_us=lag_us)))
    assert [f.severity for f in found] == [severity]


def test_only_data_centers_with_replicas_are_shown() -> None:
    (found,) = of("consistency", findings(facts(replication=THREE | {"dc2": "0", "initial_tablets": "8"}, reads="ONE")))
    assert found.what.endswith("replicas: 3 in dc1)")
    (found,) = of("consistency", findings(facts(replication={"class": "NetworkTopologyStrategy", "dc1": "[]"})))
    assert "cannot be read" in found.what


def test_a_cursor_from_before_its_generation_is_as_old_as_that() -> None:
    """Go rscylla writes such cursors."""
    (found,) = of("cursor", findings(facts(cursors=cursor(GENERATION * 1000 - HOUR))))
    assert found.what == f"'billing' is {judges._span(NOW_US - GENERATION * 1000)} old"


def test_the_current_generation_and_the_next_one_are_shown() -> None:
    times = [NOW_US // 1000 + seconds * 1000 for seconds in (-7_200, -3_600, 60, 120)]
    (found,) = of("generations", findings(facts(generations=tuple(times))))
    since = f"{datetime_of(times[1] * 1000):%Y-%m-%d %H:%M:%S}"
    assert found.what == f"4 known, the current one since {since} UTC, the next one starts in 1 min"
    (found,) = of("generations", findings(facts(generations=tuple(times[2:]))))
    assert "the first CDC generation starts in 1 min" in found.what


def test_a_node_that_is_down_is_not_said_to_be_silent_too() -> None:
    found = of("nodes", findings(facts(nodes=nodes(("dc1", False, None), ("dc1", True, 0)))))
    assert [f.what for f in found] == ["1 of 2 nodes down: n0"]


# ---------------------------------------------------------------- R + W > RF


def meet(reads: str, writes: str, replication: dict[str, str]) -> str:
    many = nodes(*[("dc1", True, 0)] * 4, *[("dc2", True, 0)] * 4)
    return of("consistency", findings(facts(reads=reads, writes=writes, replication=replication, nodes=many)))[
        0
    ].severity


@pytest.mark.parametrize(
    ("reads", "writes", "severity"),
    [
        ("QUORUM", "QUORUM", "ok"),
        ("QUORUM", "EACH_QUORUM", "ok"),
        ("LOCAL_QUORUM", "EACH_QUORUM", "ok"),
        ("LOCAL_QUORUM", "LOCAL_QUORUM", "warn"),
        ("LOCAL_QUORUM", "QUORUM", "error"),
        ("QUORUM", "LOCAL_QUORUM", "error"),
        ("LOCAL_ONE", "EACH_QUORUM", "error"),
        ("ALL", "ONE", "ok"),
        ("ALL", "ANY", "error"),
        ("ONE", "ALL", "ok"),
        ("THREE", "QUORUM", "ok"),
        ("TWO", "QUORUM", "error"),
    ],
)
def test_levels_over_two_data_centers(reads: str, writes: str, severity: str) -> None:
    assert meet(reads, writes, TWO_DCS) == severity


def test_replicas_of_each_strategy() -> None:
    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"}
    assert meet("QUORUM", "QUORUM", simple) == "ok"
    assert meet("ONE", "ONE", simple) == "error"
    assert meet("ONE", "ONE", {"class": "SimpleStrategy", "replication_factor": "1"}) == "ok"
    assert meet("ONE", "ONE", {"class": "LocalStrategy"}) == "ok"
    assert meet("ONE", "ONE", {"class": "EverywhereStrategy"}) == "error"
    racks = {"class": "NetworkTopologyStrategy", "dc1": "['r1', 'r2', 'r3']", "dc2": "0"}
    assert meet("ONE", "QUORUM", racks) == "error"
    assert meet("QUORUM", "QUORUM", racks) == "ok"


@example({"dc1": 1}, "TWO", "ANY")
@given(
    st.dictionaries(st.sampled_from(["dc1", "dc2"]), st.integers(1, 3), min_size=1),
    st.sampled_from(["ONE", "TWO", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"]),
    st.sampled_from(["ANY", "ONE", "TWO", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"]),
)
def test_levels_meet_when_all_their_sets_of_replicas_do(replicas: dict[str, int], reads: str, writes: str) -> None:
    """Against all sets of replicas, tried one by one."""
    everything = [(dc, i) for dc, n in replicas.items() for i in range(n)]

    def subsets(level: str, local: str) -> list[frozenset[tuple[str, int]]]:
        need = {"ANY": 0, "ONE": 1, "TWO": 2, "LOCAL_ONE": 1, "ALL": len(everything)}
        found = []
        for bits in range(1 << len(everything)):
            chosen = frozenset(r for i, r in enumerate(everything) if bits >> i & 1)
            there = {dc: sum(r[0] == dc for r in chosen) for dc in replicas}
            if level == "EACH_QUORUM":
                enough = all(there[dc] >= n // 2 + 1 for dc, n in replicas.items())
            elif level == "LOCAL_QUORUM":
                enough = there[local] >= replicas[local] // 2 + 1
            elif level == "LOCAL_ONE":
                enough = there[local] >= 1
            else:
                enough = len(chosen) >= min(len(everything), need.get(level, len(everything) // 2 + 1))
            found += [chosen] if enough else []
        return found

    def apart(write_dc: str, read_dc: str) -> bool:
        return any(not w & r for w in subsets(writes, write_dc) for r in subsets(reads, read_dc))

    expected = "ok"
    if any(apart(w, r) for w in replicas for r in replicas):
        expected = "error" if any(apart(dc, dc) for dc in replicas) else "warn"
    replication = {"class": "NetworkTopologyStrategy", **{dc: str(n) for dc, n in replicas.items()}}
    assert meet(reads, writes, replication) == expected


def test_the_tested_driver_is_what_setup_cfg_asks_for() -> None:
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).resolve().parents[3] / "setup.cfg")
    (asked,) = [line for line in setup["options"]["install_requires"].split() if line.startswith("scylla-driver")]
    low, high = (".".join(map(str, v)) for v in (finding.DRIVER_FROM, finding.DRIVER_BEFORE))
    assert asked == f"scylla-driver>={low},<{high}"


# ---------------------------------------------------------------- from a cluster's answers


class Cluster(FakeLog):
    """A log that answers what else the doctor asks. ``errors``: by part of the query."""

    consistency = 4
    quorum_at_least = 5

    def __init__(self) -> None:
        super().__init__(ManualClock(NOW_US))
        self.generation(NOW_US - HOUR, [stream_id(0), stream_id(5)])
        self.errors: dict[str, BaseException] = {}
        self.left_s: dict[int, list[tuple[int | None]]] | None = {}  # what is left of the row of a cursor, by level
        self.on_rows = lambda cql: next((e for part, e in self.errors.items() if part in cql), None)
        self.log_columns = {c.name: str(c.type) for c in self.columns}

    def nodes_of(self) -> list[tuple[str, str, bool]]:
        return [(n.endpoint, "dc1", True) for n in self.nodes]

    def rows(self, cql: str, values: Any = (), **options: Any) -> list[tuple[Any, ...]]:
        if 'SELECT TTL("cdc$operation")' in cql:
            assert values[0] == stream_id(0)
            if self.left_s is None:
                raise QueryTimeout("late")
            return list(self.left_s.get(options["consistency"], ()))
        return super().rows(cql, values, **options)

    def _schema(self, cql: str, given_: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if given_ == ("ks", "t" + LOG_SUFFIX) and "WRITETIME" not in cql:
            if "FROM system_schema.columns" in cql:
                return list(self.log_columns.items())
            if "partitioner" in cql:
                return [(finding.CDC_PARTITIONER,)]
            return [({"class": "TimeWindowCompactionStrategy"},)]
        if "replication" in cql:
            return [({"class": "SimpleStrategy", "replication_factor": "1"},)]
        if 'WHERE "cdc$stream_id" = %s LIMIT 1' in cql:
            assert given_ == (stream_id(0),)
            return []
        return super()._schema(cql, given_)


class _Session:
    """The cluster as ``ReadSession`` shows it, whose nodes are a method."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def nodes(self) -> list[tuple[str, str, bool]]:
        return self._cluster.nodes_of()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("rscylla.doctor.facts.ReadSession", lambda session, consistency: _Session(session))
    monkeypatch.setattr("rscylla.doctor.facts.decoder", lambda: "compiled")  # whatever runs these tests
    return Cluster()


def diagnose(cluster: Cluster, **options: Any) -> tuple[Finding, ...]:
    return rscylla.diagnose(cluster, "ks", "t", clock=cluster.clock, **options)  # type: ignore[arg-type]


def bad(found: tuple[Finding, ...]) -> dict[str, tuple[str, str]]:
    return {f.check: (f.severity, f.what) for f in found if f.severity != "ok"}


def test_a_healthy_cluster(cluster: Cluster) -> None:
    found = diagnose(cluster, lag=timedelta(seconds=30))
    assert bad(found) == {}
    assert "2 streams (vnodes), 1 query" in of("streams", found)[0].what


@pytest.mark.parametrize(
    ("query", "error", "check", "words"),
    [
        ("LIMIT 1", Unauthorized("User x has no SELECT permission"), "permissions", "the user has no permission"),
        ("LIMIT 1", OperationTimedOut("late"), "consistency", "late"),
        ("cdc_generation_timestamps WHERE", Unauthorized("no"), "generations", "reading the CDC generations"),
        ("cdc_streams_descriptions_v2 WHERE", Unauthorized("no"), "streams", "reading the streams"),
        ("partitioner", OperationTimedOut("late"), "log table", "reading the log's properties"),
        ("replication", Unauthorized("no"), "consistency", "replication"),
        ("now()", OperationTimedOut("late"), "nodes", "did not answer"),
    ],
)
def test_what_cannot_be_read_is_a_finding(
    cluster: Cluster, query: str, error: BaseException, check: str, words: str
) -> None:
    cluster.errors[query] = error
    found = bad(diagnose(cluster))
    assert words in found[check][1]


def test_a_missing_permission_is_reported_with_the_grant(cluster: Cluster) -> None:
    cluster.errors["LIMIT 1"] = Unauthorized("User x has no SELECT permission on <table ks.t>")
    (found,) = of("permissions", diagnose(cluster))
    assert found.severity == "error"
    assert found.do.startswith("grant SELECT on the base table and, ")
    assert "system.cdc_streams" in found.do


def test_a_table_without_streams_in_use(cluster: Cluster) -> None:
    cluster.generations = {NOW_US // 1000 + 60_000: [stream_id(0)]}
    found = bad(diagnose(cluster))
    assert found["generations"][0] == "error"
    assert found["permissions"] == ("warn", "not checked: the log could not be read")


def test_a_clock_that_is_off(cluster: Cluster) -> None:
    cluster.nodes = [attrs.evolve(cluster.nodes[0], skew_us=-40 * SECOND)]
    assert bad(diagnose(cluster))["clock"][0] == "error"


def test_facts_from_the_caller_are_judged_too(cluster: Cluster) -> None:
    found = bad(diagnose(cluster, cursors={"b": None}, failed={"cursor table": "no cursor table; create it"}))
    assert found["cursor"] == ("warn", "'b' has no cursor yet: it will start at the oldest row")
    assert found["cursor table"] == ("error", "no cursor table")


def row_of(cluster: Cluster, us: int, generation: int | None = None) -> str:
    (only,) = cluster.generations
    return str(EventID.row(generation or only, stream_id(0), log_time(us, 1), 0))


def test_a_cursor_of_a_log_that_was_dropped_is_an_error(cluster: Cluster) -> None:
    (generation,) = cluster.generations
    mark = LogMark(uuid.uuid4().bytes, ttl_s=86_400)
    found = bad(diagnose(cluster, cursors={"b": str(EventID(generation, NOW_US - 60 * SECOND, mark=mark))}))
    assert found["cursor"][0] == "error"
    assert "'b': the CDC log of ks.t was dropped and created again" in found["cursor"][1]


def test_a_cursor_of_a_forgotten_stream_set_is_judged_as_the_reader_does(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VnodeTopology, "forgets", True)
    (generation,) = cluster.generations
    start = str(EventID(generation - 1, generation * 1000))
    assert bad(diagnose(cluster, cursors={"b": start})) == {}, "its set ended there"
    found = bad(diagnose(cluster, cursors={"b": row_of(cluster, NOW_US - 60 * SECOND, generation - 1)}))
    assert found["cursor"][0] == "error"
    assert "'b': the cursor names the CDC generation of" in found["cursor"][1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("17", "the text is not a cursor"),
        (str(EventID(0, NOW_US - DAY)), "before the first CDC generation of this cluster"),
        (str(EventID(NOW_US // 1000 - 60_000, NOW_US - 60 * SECOND)), "names the CDC generation of"),
        (
            str(EventID(NOW_US // 1000 - 3_600_000, NOW_US - 700 * SECOND)),
            r"is older than what the log keeps \(600 s\)",
        ),
    ],
)
def test_a_cursor_that_the_reader_refuses_is_an_error(cluster: Cluster, text: str, words: str) -> None:
    cluster.ttl_s = 600
    (found,) = of("cursor", diagnose(cluster, cursors={"b": text}))
    assert found.severity == "error"
    assert re.search(words, found.what)
    assert found.do


def test_the_ttl_in_one_cursor_does_not_affect_another(cluster: Cluster) -> None:
    cluster.altered_us = NOW_US - 60 * SECOND
    (generation,) = cluster.generations
    known = EventID(generation, NOW_US - HOUR // 2, mark=LogMark(cluster.log_id.bytes, ttl_s=86_400))
    found = of(
        "cursor", diagnose(cluster, cursors={"a": str(known), "b": str(EventID(generation, NOW_US - HOUR // 2))})
    )
    assert [f.severity for f in found] == ["ok", "warn"]


@pytest.mark.parametrize("level", [Cluster.consistency, Cluster.quorum_at_least])
def test_the_row_of_a_cursor_shows_the_ttl_from_before_the_table_was_altered(cluster: Cluster, level: int) -> None:
    cluster.altered_us = NOW_US - 60 * SECOND
    at = row_of(cluster, NOW_US - 1_800 * SECOND)
    assert bad(diagnose(cluster, cursors={"b": at}))["cursor"][0] == "error"
    cluster.left_s = {level: [(86_400,)]}
    assert bad(diagnose(cluster, cursors={"b": at, "d": None}))["cursor"] == (
        "warn",
        "'d' has no cursor yet: it will start at the oldest row",
    )
    (first, *_) = of("cursor", diagnose(cluster, cursors={"b": at}))
    assert (first.severity, first.what) == ("ok", "'b' is 30 min old")


def test_a_row_that_cannot_be_looked_up_is_a_warning(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.altered_us = NOW_US - 60 * SECOND
    monkeypatch.setattr(cluster, "left_s", None)
    assert bad(diagnose(cluster, cursors={"b": row_of(cluster, NOW_US - 1_800 * SECOND)}))["cursor"][0] == "warn"


def test_cursors_are_not_checked_while_the_log_cannot_be_read(cluster: Cluster) -> None:
    cluster.errors["cdc_streams_descriptions_v2 WHERE"] = Unauthorized("no")
    assert bad(diagnose(cluster, cursors={"b": row_of(cluster, NOW_US)}))["cursor"] == ("warn", "'b' is not checked")


def test_the_first_reason_of_a_check_that_failed_is_shown(cluster: Cluster) -> None:
    cluster.errors["partitioner"] = OperationTimedOut("late")
    assert bad(diagnose(cluster, failed={"log table": "not even asked for"}))["log table"][1] == "not even asked for"


def test_a_system_table_that_is_missing_is_a_finding(cluster: Cluster) -> None:
    cluster.errors["replication"] = InvalidRequest("unconfigured table keyspaces")
    assert "keyspaces" in bad(diagnose(cluster))["consistency"][1]


def test_the_streams_are_those_of_the_current_generation(cluster: Cluster) -> None:
    cluster.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    cluster.generation(NOW_US + HOUR, [stream_id(n) for n in range(3)])
    assert "2 streams" in of("streams", diagnose(cluster))[0].what


def test_the_log_is_read_at_the_level_that_is_asked_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[Any] = []
    answer = cluster.rows

    def rows(cql: str, values: Any = (), **options: Any) -> Any:
        if "LIMIT 1" in cql:
            levels.append(options.get("consistency"))
        return answer(cql, values, **options)

    monkeypatch.setattr(cluster, "rows", rows)
    diagnose(cluster)
    assert levels == [cluster.consistency]


def test_clocks_are_judged_by_findings_alone_and_only_those_of_nodes_that_are_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.nodes = [Host("a", 40 * SECOND), Host("b", 50 * SECOND)]
    monkeypatch.setattr(cluster, "nodes_of", lambda: [("a", "dc1", True), ("b", "dc1", False)])
    (found,) = of("clock", diagnose(cluster))
    assert "node a" in found.what
    assert caplog.records == []


def test_a_table_without_a_log_is_the_only_finding(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = cluster._tables
    monkeypatch.setattr(cluster, "_tables", lambda given: [t for t in tables(given) if t[0] == "t"])
    (found,) = diagnose(cluster, cursors={"b": "17"})
    assert (found.check, found.severity, found.what) == ("cdc", "error", "table ks.t has no CDC log")
    assert found.do.startswith("enable it with ALTER TABLE ks.t")


def test_wrong_arguments_and_tables_are_errors(cluster: Cluster) -> None:
    with pytest.raises(TableNotFound):
        rscylla.diagnose(cluster, "ks", "u", clock=cluster.clock)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="consistency is 'EACH_QUORUM'"):
        diagnose(cluster, consistency="EACH_QUORUM")
    with pytest.raises(ConfigError, match="writes is 'most'"):
        diagnose(cluster, writes="most")
