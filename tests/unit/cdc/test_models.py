"""Which model a table's streams follow, and how each is read: vnodes, the old table of 4.3 and its upgrade, tablets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from cassandra import InvalidRequest
from fakelog import stream_id

from rscylla.cdc.log.topology import Generation, LegacyTopology, TabletTopology, Topology, VnodeTopology, topology_for
from rscylla.driver import session as driver
from rscylla.errors import MetadataError, NoStreams, QueryFailed

OLD, NEW, V2 = "cdc_streams_descriptions", "cdc_generation_timestamps", "cdc_streams_descriptions_v2"


CLOSED = stream_id(77)
"""A stream that the set before had, and the next one has no more: the table lists it, too."""


@attrs.define
class Cluster:
    """Replaces ``ReadSession``. ``old`` and ``new``: streams by generation; None if the table does not exist.

    ``initial_tablets``: by keyspace; None if the schema has no such column.
    """

    old: dict[int, list[bytes]] | None = None
    new: dict[int, list[bytes]] | None = None
    tablets: dict[tuple[str, str], dict[int, list[bytes]]] = attrs.Factory(dict)
    initial_tablets: dict[str, int | None] | None = None
    rewritten: bool = False
    asked: list[str] = attrs.Factory(list)

    def columns(self) -> list[tuple[str, str]]:
        """Return some columns of ``system_schema``. Scylla 5.1 to 5.4 have the table without ``initial_tablets``."""
        of_tablets = [] if self.initial_tablets is None else [("scylla_keyspaces", "initial_tablets")]
        return [("scylla_keyspaces", "storage_type"), *of_tablets]

    def rows(self, cql: str, values: Iterable[Any] = (), *, doing: str, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append(cql)
        given = tuple(values)
        if "keyspace_name = 'system_schema'" in cql:
            return [given] if given in self.columns() else []
        if "keyspace_name = 'system_distributed'" in cql:
            return [(OLD,)] * (self.old is not None) + [(NEW,), (V2,)] * (self.new is not None)
        if "scylla_keyspaces" in cql:
            if ("scylla_keyspaces", "initial_tablets") not in self.columns():
                raise driver.translate(InvalidRequest("Unrecognized name initial_tablets"), doing)
            known = self.initial_tablets or {}
            return [(known[given[0]],)] if given[0] in known else []
        if "cdc_local" in cql:
            return [("rewritten",)] * self.rewritten
        if "system.cdc_timestamps" in cql:
            return [(t,) for t in self.tablets.get(given, {})]
        if "system.cdc_streams" in cql:
            closed = [] if "stream_state = 0" in cql else [(CLOSED,)]
            return closed + [(s,) for s in self.tablets.get(given[:2], {}).get(given[2], ())]
        of = self.new if NEW in cql or V2 in cql else self.old
        if of is None:
            raise driver.translate(InvalidRequest("unconfigured table"), doing)
        if NEW in cql or not given:
            return [(t,) for t in of]
        if given[0] not in of:
            return []
        return [(set(of[given[0]]), 0)] if V2 in cql else [(set(of[given[0]]),)]


A, B, C = ([stream_id(n, n, salt) for n in range(3)] for salt in range(3))


@pytest.mark.parametrize(
    ("cluster", "model"),
    [
        (Cluster(new={}), VnodeTopology),
        (Cluster(old={}), LegacyTopology),
        (Cluster(old={}, new={}), LegacyTopology),
        (Cluster(new={}, initial_tablets={}), VnodeTopology),
        (Cluster(new={}, initial_tablets={"ks": None}), VnodeTopology),
        (Cluster(new={}, initial_tablets={"other": 0}), VnodeTopology),
        (Cluster(new={}, initial_tablets={"ks": 0}), TabletTopology),
        (Cluster(new={}, initial_tablets={"ks": 8}), TabletTopology),
    ],
)
def test_the_schema_decides_the_model(cluster: Cluster, model: type) -> None:
    assert type(topology_for(cluster, "ks", "t")) is model  # type: ignore[arg-type]


def test_a_cluster_that_describes_no_generations_is_refused() -> None:
    with pytest.raises(MetadataError, match="neither"):
        topology_for(Cluster(), "ks", "t")  # type: ignore[arg-type]


def of(topology: LegacyTopology | TabletTopology) -> dict[int, tuple[bytes, ...]]:
    """Return all streams of the topology, by generation."""
    return {g.time: topology.streams(g) for g in topology.generations()}


# ---------------------------------------------------------------- 4.3 and its upgrade


def test_the_old_table_lists_generations_in_any_order() -> None:
    cluster = Cluster(old={30: B, 10: A})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]
    assert topology.generations() == (Generation(10), Generation(30))
    assert of(topology) == {10: tuple(A), 30: tuple(B)}
    asked = len(cluster.asked)
    topology.streams(Generation(10))
    assert len(cluster.asked) == asked, "a set of streams is read once"


def test_until_all_is_rewritten_both_tables_count_and_then_only_the_new() -> None:
    cluster = Cluster(old={10: A, 20: B})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]
    assert list(of(topology)) == [10, 20]
    cluster.new = {20: B}  # the upgraded cluster begins to copy
    assert list(of(topology)) == [10, 20]
    cluster.new[30] = C  # a node joins: its generation is in the new tables only
    assert of(topology) == {10: tuple(A), 20: tuple(B), 30: tuple(C)}
    cluster.new[10] = A
    cluster.rewritten = True
    assert of(topology) == {10: tuple(A), 20: tuple(B), 30: tuple(C)}
    cluster.old = None
    cluster.asked.clear()
    assert list(of(topology)) == [10, 20, 30]
    assert not any(OLD + " " in cql or "system_schema" in cql for cql in cluster.asked), "it is not looked at again"


def test_while_there_are_no_new_tables_the_old_one_counts_whatever_is_said_of_rewriting() -> None:
    topology = LegacyTopology(Cluster(old={10: A}, rewritten=True))  # type: ignore[arg-type]
    assert of(topology) == {10: tuple(A)}


def test_a_generation_of_the_old_table_that_lacks_vnodes_is_an_error() -> None:
    topology = LegacyTopology(Cluster(old={10: [A[0], A[2]]}))  # type: ignore[arg-type]
    with pytest.raises(NoStreams, match="lacks the streams of 1 of its 3 vnodes"):
        topology.streams(Generation(10))


def test_where_rewriting_is_switched_off_new_generations_are_found_all_the_same() -> None:
    cluster = Cluster(old={10: A, 20: B}, new={20: B, 30: C})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]
    assert of(topology) == {10: tuple(A), 20: tuple(B), 30: tuple(C)}


def test_the_old_table_may_go_between_a_look_and_the_next() -> None:
    cluster = Cluster(old={10: A}, new={10: A})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]
    topology.generations()
    cluster.old = None
    assert of(topology) == {10: tuple(A)}


def test_the_old_table_may_go_between_a_look_and_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(old={10: A}, new={10: A})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]

    def remove(*_: Any) -> bool:
        cluster.old = None
        return False

    monkeypatch.setattr(topology, "_is_rewritten", remove)
    assert topology.generations() == (Generation(10),)


def test_the_old_table_may_go_between_the_list_and_the_streams() -> None:
    cluster = Cluster(old={10: A, 20: B}, new={20: B})
    topology = LegacyTopology(cluster)  # type: ignore[arg-type]
    assert [g.time for g in topology.generations()] == [10, 20]
    cluster.old, cluster.new = None, {10: A, 20: B}
    assert topology.streams(Generation(10)) == tuple(A)


def test_an_error_of_an_existing_table_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(old={10: A})
    rows = cluster.rows

    def failing(cql: str, *args: Any, doing: str, **_: Any) -> Any:
        if OLD in cql:
            raise driver.translate(InvalidRequest("no"), doing)
        return rows(cql, *args, doing=doing)

    monkeypatch.setattr(Cluster, "rows", lambda self, *args, **kw: failing(*args, **kw))
    with pytest.raises(QueryFailed):
        LegacyTopology(cluster).generations()  # type: ignore[arg-type]


# ---------------------------------------------------------------- tablets


def test_stream_sets_of_tablets_are_the_tables_own() -> None:
    cluster = Cluster(tablets={("ks", "t"): {20: B, 10: A}, ("ks", "u"): {15: C}})
    topology = TabletTopology(cluster, "ks", "t")  # type: ignore[arg-type]
    assert of(topology) == {10: tuple(A), 20: tuple(B)}
    assert of(TabletTopology(cluster, "ks", "u")) == {15: tuple(C)}  # type: ignore[arg-type]
    del cluster.tablets["ks", "t"][10]
    assert topology.generations() == (Generation(20),)
    assert topology.streams(Generation(10)) == tuple(A), "what is being read is kept"


def test_few_sets_are_kept_however_often_tablets_are_split() -> None:
    cluster = Cluster(tablets={("ks", "t"): dict.fromkeys(range(100), A)})
    topology = TabletTopology(cluster, "ks", "t")  # type: ignore[arg-type]
    of(topology)
    asked = len(cluster.asked)
    for ms in (99, 98, 97, 96):
        topology.streams(Generation(ms))
    assert len(cluster.asked) == asked
    topology.streams(Generation(95))
    assert len(cluster.asked) == asked + 1


def test_a_set_that_is_gone_is_an_error() -> None:
    topology = TabletTopology(Cluster(), "ks", "t")  # type: ignore[arg-type]
    assert topology.generations() == ()
    with pytest.raises(NoStreams):
        topology.streams(Generation(10))


@pytest.mark.parametrize(
    ("topology", "owner", "forgets", "oldest_us", "vnodes"),
    [
        (VnodeTopology(Cluster()), "cluster", False, None, 2),  # type: ignore[arg-type]
        (LegacyTopology(Cluster()), "cluster", False, None, 2),  # type: ignore[arg-type]
        (TabletTopology(Cluster(), "ks", "t"), "table", True, 50_000_000, None),  # type: ignore[arg-type]
    ],
    ids=["vnodes", "legacy", "tablets"],
)
def test_stream_sets_of_tablets_are_the_tables_own_and_generations_of_vnodes_the_clusters(
    topology: Topology, owner: str, forgets: bool, oldest_us: int | None, vnodes: int | None
) -> None:
    assert (topology.owner, topology.forgets) == (owner, forgets)
    assert topology.oldest_of(60_000_000) == oldest_us
    assert topology.vnodes([stream_id(1, 0), stream_id(2, 0), stream_id(3, 1)]) == vnodes
    assert topology.vnodes([b"\x00" * 16]) is None
