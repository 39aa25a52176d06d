"""``system.clients`` and ``system.protocol_servers``: who is connected to a node, and where it listens."""

from __future__ import annotations

import pytest
from cassandra.cluster import ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from enginebox import EngineBox
from waiting import eventually

from rscylla.embedded import EmbeddedScylla

SHARDS = 3


@pytest.mark.parametrize("users", [None, {"ann": "secret"}])
def test_a_node_lists_its_clients(users: dict[str, str] | None) -> None:
    with EmbeddedScylla(2, shards=SHARDS, users=users) as scylla:
        only_one = ExecutionProfile(WhiteListRoundRobinPolicy(["127.0.0.1"]))
        session = scylla.connect(execution_profiles={"one": only_one})
        eventually(lambda: all(set(pool._connections) == set(range(SHARDS)) for pool in session.get_pools()))
        found = [row._asdict() for row in session.execute("SELECT * FROM system.clients", execution_profile="one")]
        nodes = scylla.status()["nodes"]
        for shard, count in enumerate(nodes[0]["connections"]):
            assert sum(row["shard_id"] == shard for row in found) == count
        assert [row["port"] for row in found] == sorted({row["port"] for row in found})
        for row in found:
            assert row["client_options"]["DRIVER_NAME"] == row["driver_name"] == "ScyllaDB Python Driver"
            assert row["client_options"]["CQL_VERSION"] == "3.3.1"
            del row["port"], row["client_options"], row["shard_id"], row["driver_version"]
        assert found[0] == {
            "address": "127.0.0.1",
            "client_type": "cql",
            "connection_stage": "READY",
            "driver_name": "ScyllaDB Python Driver",
            "hostname": None,
            "protocol_version": 4,
            "scheduling_group": "sl:default",
            "ssl_cipher_suite": None,
            "ssl_enabled": False,
            "ssl_protocol": None,
            "username": "anonymous" if users is None else "ann",
        }
        count = "SELECT COUNT(*) FROM system.clients WHERE address = '127.0.0.1'"
        before = session.execute(count, execution_profile="one").one()[0]
        other = scylla.connect()
        assert session.execute(count, execution_profile="one").one()[0] > before
        other.cluster.shutdown()
        eventually(lambda: session.execute(count, execution_profile="one").one()[0] == before)


def test_a_node_lists_where_it_listens() -> None:
    with EmbeddedScylla() as scylla:
        assert scylla.execute("SELECT * FROM system.protocol_servers") == [
            {
                "name": "native",
                "listen_addresses": [f"127.0.0.1:{scylla.port}", f"127.0.0.1:{scylla.shard_aware_port}"],
                "protocol": "cql",
                "protocol_version": "3.3.1",
            }
        ]
        assert scylla.execute("SELECT * FROM system.clients") == []
        scylla.faults.stop_node("127.0.0.1")
        assert scylla.execute("SELECT * FROM system.protocol_servers") == []


def test_an_engine_without_a_wire_has_no_clients() -> None:
    box = EngineBox()
    assert box.rows("SELECT * FROM system.clients") == box.rows("SELECT * FROM system.protocol_servers") == []
