"""Where tablets are, as drivers are told (``tablets-routing-v1``), and the mark of conditional statements."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra.cqltypes import Int32Type, ListType, LongType, TupleType, UUIDType
from enginebox import EngineBox
from waiting import eventually

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.result import RowsResult, VoidResult
from rscylla.embedded.storage.tokens import MIN_TOKEN, murmur3_token

NODES = 3
SHARDS = 2
PAYLOAD: Any = TupleType.apply_parameters(
    [LongType, LongType, ListType.apply_parameters([TupleType.apply_parameters([UUIDType, Int32Type])])]
)


class Box(EngineBox):
    """An engine with tables in a tablets keyspace: two replicas of each of eight tablets."""

    def __init__(self) -> None:
        super().__init__(NODES)
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"
        self.run(f"CREATE KEYSPACE tab WITH replication = {replication} AND tablets = {{'initial': 8}}")
        self.run("CREATE TABLE tab.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
        self.run("CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck))")

    def routing(self, text: str, values: list[Any], node: int = 0, shard: int | None = 0) -> Any:
        """Return the payload that comes with a result as the driver reads it: first token, last token, replicas."""
        result = self.run(text, values, node=node, shard=shard)
        assert isinstance(result, RowsResult | VoidResult)
        return None if result.routing is None else PAYLOAD.from_binary(result.routing, 4)


@pytest.fixture(scope="module")
def box() -> Box:
    return Box()


WRITE = "INSERT INTO tab.t (pk, ck, v) VALUES (?, 1, 1)"


@pytest.mark.parametrize("pk", range(20))
def test_who_asks_elsewhere_is_told_the_tablet_and_who_asks_a_replica_is_not(box: Box, pk: int) -> None:
    places = [(node, shard) for node in range(NODES) for shard in range(SHARDS)]
    told = {place: box.routing(WRITE, [pk], *place) for place in places}
    (first, last, replicas), *others = [each for each in told.values() if each is not None]
    assert all(other == (first, last, replicas) for other in others)
    assert first < murmur3_token(pk.to_bytes(4, "big")) <= last
    assert (last - first, (last + 1 - MIN_TOKEN) % (1 << 61)) in [(1 << 61, 0), ((1 << 61) - 1, 0)]
    hosts = {node.host_id: node.index for node in box.cluster.nodes}
    assert len({host for host, _ in replicas}) == 2
    assert {place for place in places if told[place] is None} == {(hosts[host], shard) for host, shard in replicas}


def test_all_shards_of_all_nodes_hold_tablets(box: Box) -> None:
    held = set()
    for pk in range(200):
        for place in ((0, 0), (0, 1)):
            held |= set((box.routing(WRITE, [pk], *place) or (0, 0, ()))[2])
    assert held == {(node.host_id, shard) for node in box.cluster.nodes for shard in range(SHARDS)}


def test_what_clients_are_told_follows_the_cluster_and_the_table() -> None:
    box = Box()
    box.run("CREATE TABLE tab.plain (pk int PRIMARY KEY, v int)")

    def replicas(table: str) -> set[Any]:
        told = [box.routing(f"SELECT * FROM tab.{table} WHERE pk = ?", [pk], 0, 5) for pk in range(100)]
        return {host for _, _, replicas in told for host, _ in replicas}

    hosts = {node.host_id for node in box.cluster.nodes}
    assert replicas("t") == replicas("plain") == hosts
    added = box.cluster.add_node()
    assert replicas("t") == replicas("plain") == {*hosts, added.host_id}
    box.cluster.remove_node(0)
    assert len(box.cluster.nodes) == NODES
    first, last, _ = box.routing(WRITE, [1], 1, 5)
    box.cluster.tablets.resize("tab", "t", 2, box.clock.now_us())
    half_first, half_last, _ = box.routing(WRITE, [1], 1, 5)
    assert round((last - first) / (half_last - half_first), 6) == 2


@pytest.mark.parametrize("drop", ["DROP TABLE going.t", "DROP KEYSPACE going"])
def test_where_the_tablets_of_a_dropped_table_were_is_forgotten(box: Box, drop: str) -> None:
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    box.run(f"CREATE KEYSPACE IF NOT EXISTS going WITH replication = {replication} AND tablets = {{'initial': 4}}")
    box.run("CREATE TABLE going.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    for text, key in (
        ("INSERT INTO going.t (pk) VALUES (?)", 1),
        ('SELECT * FROM going.t_scylla_cdc_log WHERE "cdc$stream_id" = ?', bytes(16)),
    ):
        assert [box.routing(text, [key], node, 5) for node in range(NODES)]
    known = set(box.cluster._routes)
    box.run(drop)
    assert known - set(box.cluster._routes) == {("going", "t"), ("going", "t_scylla_cdc_log")}


@pytest.mark.parametrize(
    ("text", "values", "is_told"),
    [
        ("SELECT * FROM tab.t WHERE pk = ?", [1], True),
        ("UPDATE tab.t SET v = 1 WHERE pk = ? AND ck = 1", [1], True),
        ("UPDATE tab.t SET v = 1 WHERE pk = ? AND ck = 1 IF v = 1", [1], True),
        ("DELETE FROM tab.t WHERE pk = ?", [1], True),
        ('SELECT * FROM tab.t_scylla_cdc_log WHERE "cdc$stream_id" = ?', [bytes(16)], True),
        ("SELECT * FROM tab.t WHERE pk = 1", [], False),
        ("SELECT * FROM tab.t WHERE pk IN ?", [[1]], False),
        ("SELECT * FROM tab.t WHERE pk = ?", [None], False),
        ("SELECT * FROM tab.t", [], False),
        ("SELECT * FROM ks.t WHERE pk = ?", [1], False),
        ("SELECT * FROM system.local WHERE key = ?", ["local"], False),
    ],
)
def test_statements_whose_key_is_of_markers_are_looked_at(box: Box, text: str, values: Any, is_told: bool) -> None:
    told = [box.routing(text, values, node, shard) for node in range(NODES) for shard in range(SHARDS)]
    assert sum(each is not None for each in told) == (NODES * SHARDS - 2 if is_told else 0)
    assert box.routing(text, values, shard=None) is None, "this client did not ask to be told"


def test_a_driver_learns_all_tablets_and_then_asks_their_replicas() -> None:
    with EmbeddedScylla(NODES, shards=SHARDS, tablets=True, seed=1) as scylla:
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {replication} AND tablets = {{'initial': 8}}")
        scylla.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        session = scylla.connect()
        # A request whose shard has no connection yet goes by another one.
        eventually(lambda: all(set(pool._connections) == set(range(SHARDS)) for pool in session.get_pools()))
        write = session.prepare("INSERT INTO ks.t (pk, v) VALUES (?, 1)")
        read = session.prepare("SELECT * FROM ks.t WHERE pk = ?")

        def payloads(statement: Any) -> int:
            futures = [session.execute_async(statement, (pk,)) for pk in range(100)]
            return sum(1 for future in futures if future.result() and future.custom_payload)

        def learnt() -> int:
            return len(session.cluster.metadata._tablets._tablets["ks", "t"])

        # One after the other: what one answer says is known to the next request.
        for pk in range(100):
            session.execute(write, (pk,))
        assert learnt() == 8
        assert payloads(read) == payloads(write) == 0
        scylla.split_tablets("ks", "t")
        for pk in range(100):
            session.execute(read, (pk,))
        assert payloads(read) == 0


def test_conditional_statements_are_marked() -> None:
    with EmbeddedScylla() as scylla:
        scylla.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v int)")
        session = scylla.connect("ks")
        insert = "INSERT INTO t (pk, v) VALUES (?, ?)"
        marked = {
            "SELECT * FROM t WHERE pk = ?": False,
            insert: False,
            f"{insert} IF NOT EXISTS": True,
            "UPDATE t SET v = 1 WHERE pk = ? IF v = 2": True,
            "DELETE FROM t WHERE pk = ? IF EXISTS": True,
            f"BEGIN BATCH {insert} APPLY BATCH": False,
            f"BEGIN BATCH {insert} IF NOT EXISTS APPLY BATCH": True,
        }
        assert {text: session.prepare(text).is_lwt() for text in marked} == marked
