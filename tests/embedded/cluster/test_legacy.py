"""A cluster of 4.3: the one table that describes generations there, and the upgrade to 4.4 while it runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from enginebox import START_US

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, ManualClock
from rscylla.embedded.errors import InvalidRequest, SyntaxException
from rscylla.embedded.result import SchemaChange

REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
OLD = "SELECT time FROM system_distributed.cdc_streams_descriptions"
NEW = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
REWRITTEN = "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"


def times(scylla: EmbeddedScylla, cql: str) -> list[int]:
    """Return the listed generations as seconds after the start."""
    return sorted((row["time"] * 1000 - START_US) // 1_000_000 for row in scylla.execute(cql))


def old_cluster() -> EmbeddedScylla:
    return EmbeddedScylla(version="4.3", clock=ManualClock(START_US), seed=1)


def test_there_is_only_the_old_table() -> None:
    with old_cluster() as scylla:
        names = scylla.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'")
        assert names == [{"table_name": "cdc_streams_descriptions"}]
        assert times(scylla, OLD) == [0]
        (row,) = scylla.execute("SELECT * FROM system_distributed.cdc_streams_descriptions")
        assert set(row) == {"time", "expired", "streams"}
        assert row["expired"] is None
        assert len(row["streams"]) == 16, "all streams of the generation in one row"
        assert scylla.execute(REWRITTEN) == []
        with pytest.raises(InvalidRequest, match="unconfigured table cdc_generation_timestamps"):
            scylla.execute(NEW)


def test_writes_use_the_streams_that_are_described() -> None:
    with old_cluster() as scylla:
        scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE k.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
        for pk in range(20):
            scylla.execute("INSERT INTO k.t (pk) VALUES (?)", [pk])
        (row,) = scylla.execute("SELECT streams FROM system_distributed.cdc_streams_descriptions")
        used = {r["cdc$stream_id"] for r in scylla.execute("SELECT * FROM k.t_scylla_cdc_log")}
        assert used <= set(row["streams"])
        assert len(used) > 1


@pytest.mark.parametrize("version", ["4.3", "4.4"])
def test_old_versions_know_no_tablets(version: str) -> None:
    with EmbeddedScylla(version=version) as scylla:  # type: ignore[arg-type]
        with pytest.raises(SyntaxException, match="Unknown property 'tablets'"):
            scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION} AND tablets = {{'enabled': false}}")
        scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        with pytest.raises(SyntaxException, match="Unknown property 'tablets'"):
            scylla.execute("ALTER KEYSPACE k WITH tablets = {'enabled': false}")
        for table in ("system.cdc_timestamps", "system.cdc_streams", "system_schema.scylla_keyspaces"):
            with pytest.raises(InvalidRequest, match="unconfigured table"):
                scylla.execute(f"SELECT * FROM {table}")
        (described,) = scylla.execute("DESCRIBE KEYSPACE k")
        assert "tablets" not in described["create_statement"]


def test_a_fresh_cluster_of_4_4_has_no_old_table() -> None:
    with EmbeddedScylla(version="4.4") as scylla:
        assert len(scylla.execute(NEW)) == 1
        with pytest.raises(InvalidRequest, match="unconfigured table cdc_streams_descriptions"):
            scylla.execute(OLD)
        with pytest.raises(EmbeddedScyllaError, match=r"only a cluster of version 4\.3 can be upgraded"):
            scylla.upgrade()


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no imitation of version '3\.0'"):
        EmbeddedScylla(version="3.0")  # type: ignore[arg-type]


# ---------------------------------------------------------------- the upgrade


def test_an_upgrade_copies_all_and_says_so() -> None:
    with old_cluster() as scylla:
        scylla.add_node()
        scylla.new_generation(timedelta(seconds=100))
        assert times(scylla, OLD) == [0, 65, 100]
        scylla.upgrade()
        assert times(scylla, OLD) == times(scylla, NEW) == [0, 65, 100]
        assert scylla.execute(REWRITTEN) == [{"key": "rewritten"}]
        old = {row["time"]: set(row["streams"]) for row in scylla.execute(OLD.replace("time", "time, streams", 1))}
        for time, streams in old.items():
            rows = scylla.execute(
                "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?", [time]
            )
            assert set().union(*(row["streams"] for row in rows)) == streams
        with pytest.raises(EmbeddedScyllaError, match=r"only a cluster of version 4\.3"):
            scylla.upgrade()
        with pytest.raises(EmbeddedScyllaError, match="no rewriting of generations is held back"):
            scylla.finish_rewriting()


def test_rewriting_may_be_held_back_and_new_generations_go_to_the_new_tables() -> None:
    with old_cluster() as scylla:
        scylla.new_generation(timedelta(seconds=50))
        scylla.upgrade("held")
        assert times(scylla, OLD) == [0, 50]
        assert times(scylla, NEW) == [50]
        assert scylla.execute(REWRITTEN) == []
        scylla.new_generation(timedelta(seconds=80))
        assert times(scylla, OLD) == [0, 50]
        assert times(scylla, NEW) == [50, 80]
        scylla.finish_rewriting()
        assert times(scylla, NEW) == [0, 50, 80]
        assert scylla.execute(REWRITTEN) == [{"key": "rewritten"}]


def test_rewriting_may_be_switched_off() -> None:
    with old_cluster() as scylla:
        scylla.new_generation(timedelta(seconds=50))
        scylla.upgrade("disabled")
        assert times(scylla, NEW) == [50]
        scylla.new_generation(timedelta(seconds=80))
        assert (times(scylla, OLD), times(scylla, NEW)) == ([0, 50], [50, 80])
        with pytest.raises(EmbeddedScyllaError, match="no rewriting of generations is held back"):
            scylla.finish_rewriting()
        assert scylla.execute(REWRITTEN) == []
        with pytest.raises(EmbeddedScyllaError, match=r"only a cluster of version 4\.3"):
            scylla.upgrade("disabled")


def test_a_wrong_word_changes_nothing() -> None:
    with old_cluster() as scylla:
        with pytest.raises(EmbeddedScyllaError, match="must be 'done', 'held' or 'disabled', not 'later'"):
            scylla.upgrade("later")  # type: ignore[arg-type]
        scylla.upgrade()


def test_clients_are_notified_of_the_new_tables() -> None:
    with EmbeddedScylla(version="4.3") as scylla:
        session = scylla.connect()
        tables = session.cluster.metadata.keyspaces["system_distributed"].tables
        assert set(tables) == {"cdc_streams_descriptions"}
        told: list[SchemaChange] = []
        scylla._engine.schema_listeners.append(told.append)
        scylla.upgrade()
        assert [(each.change, each.keyspace, each.name) for each in told] == [
            ("CREATED", "system_distributed", "cdc_generation_timestamps"),
            ("CREATED", "system_distributed", "cdc_streams_descriptions_v2"),
        ]
        assert session.execute(NEW).one() is not None


def test_a_process_of_its_own_is_upgraded() -> None:
    with EmbeddedScyllaProcess(version="4.3") as scylla:
        session = scylla.connect()
        assert session.execute(OLD).one() is not None
        scylla.upgrade("held")
        assert session.execute(REWRITTEN).one() is None
        scylla.finish_rewriting()
        assert session.execute(REWRITTEN).one() is not None
        with pytest.raises(EmbeddedScyllaError, match=r"only a cluster of version 4\.3"):
            scylla.upgrade()


def test_what_the_tables_hold_is_kept_and_becomes_itself_again() -> None:
    with old_cluster() as scylla:
        scylla.upgrade("held")
        cluster = scylla._cluster
        with old_cluster() as other:
            other._cluster.descriptions.restore(cluster.descriptions.state())
            assert other._cluster.descriptions.content == cluster.descriptions.content
            other._cluster.finish_rewriting()
            assert other._cluster.descriptions.rewritten
        assert not cluster.descriptions.rewritten, "nothing is shared"


def test_a_data_directory_keeps_how_far_the_upgrade_is(tmp_path: Path) -> None:
    lists = [OLD, NEW, REWRITTEN]
    with EmbeddedScylla(version="4.3", data_dir=tmp_path / "data") as scylla:
        scylla.new_generation()
        scylla.upgrade("held")
        before = [scylla.execute(cql) for cql in lists]
    with EmbeddedScylla(data_dir=tmp_path / "data") as scylla:
        assert scylla.status()["version"] == "4.4"
        assert [scylla.execute(cql) for cql in lists] == before
        with pytest.raises(SyntaxException, match="Unknown property 'tablets'"):
            scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION} AND tablets = {{'enabled': false}}")
        scylla.finish_rewriting()
    with EmbeddedScylla(data_dir=tmp_path / "data") as scylla:
        assert scylla.execute(REWRITTEN) == [{"key": "rewritten"}]
