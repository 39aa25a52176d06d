"""A server with a data directory: started again, shut down, killed."""

from __future__ import annotations

import os
import random
import re
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable, Session
from cassandra.connection import ConnectionException
from keptbox import REPLICATION

import rscylla
from rscylla.embedded import RELEASES, EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, Version
from rscylla.embedded.durability import records


def test_each_write_waits_for_the_disk_only_when_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(records, "_sync", synced.append)
    for fsync, expected in ((False, 0), (True, 10)):
        with EmbeddedScylla(data_dir=tmp_path / str(fsync), fsync=fsync) as scylla:
            scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
            scylla.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
            synced.clear()
            for i in range(10):
                scylla.execute("INSERT INTO ks.t (k) VALUES (?)", [i])
            assert len(synced) == expected


def test_a_second_server_is_turned_away_until_the_first_one_stops(tmp_path: Path) -> None:
    refused = f"the data directory {tmp_path} is in use by another server"
    with EmbeddedScylla(data_dir=tmp_path):
        with pytest.raises(EmbeddedScyllaError, match=rf"{refused} \(process {os.getpid()}\)"):
            EmbeddedScylla(data_dir=tmp_path).start()
        with pytest.raises(EmbeddedScyllaError, match=refused):
            EmbeddedScyllaProcess(data_dir=tmp_path).start()
    with EmbeddedScyllaProcess(data_dir=tmp_path), pytest.raises(EmbeddedScyllaError, match=refused):
        EmbeddedScylla(data_dir=tmp_path).start()


def test_a_server_that_is_stopped_and_started_has_what_is_in_the_directory(tmp_path: Path) -> None:
    scylla = EmbeddedScylla(data_dir=tmp_path)
    with scylla:
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        scylla.execute("INSERT INTO ks.t (k) VALUES (1)")
    with EmbeddedScylla(data_dir=tmp_path) as other:
        other.execute("INSERT INTO ks.t (k) VALUES (2)")
    with scylla:
        assert sorted(row["k"] for row in scylla.execute("SELECT k FROM ks.t")) == [1, 2]
    shutil.rmtree(tmp_path)
    with scylla:
        assert scylla.execute("SELECT * FROM system_schema.tables WHERE keyspace_name = 'ks'") == []


def test_nodes_and_streams_are_those_of_before(tmp_path: Path) -> None:
    wanted = ("host_id, tokens FROM system.local", "peer, host_id, tokens FROM system.peers")
    streams = "time, range_end, streams FROM system_distributed.cdc_streams_descriptions_v2"
    with EmbeddedScylla(2, data_dir=tmp_path, vnodes=3, seed=5) as scylla:
        scylla.add_node()
        expected = [scylla.execute(f"SELECT {what}") for what in (*wanted, streams)]
    with EmbeddedScylla(data_dir=tmp_path) as scylla:
        assert [scylla.execute(f"SELECT {what}") for what in (*wanted, streams)] == expected
        assert scylla.contact_points == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


def test_what_was_written_into_a_system_table_stays(tmp_path: Path) -> None:
    """Clients may write into the tables that describe generations; a snapshot keeps that too."""
    table = "system_distributed.cdc_generation_timestamps"
    with EmbeddedScylla(data_dir=tmp_path, compact_bytes=2_000) as scylla:
        scylla.execute(f"INSERT INTO {table} (key, time) VALUES ('timestamps', 1)")
        expected = scylla.execute(f"SELECT * FROM {table}")
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        for k in range(100):
            scylla.execute("INSERT INTO ks.t (k) VALUES (?)", [k])
    assert list(tmp_path.glob("snapshot-*.rsc"))
    with EmbeddedScylla(data_dir=tmp_path) as scylla:
        assert scylla.execute(f"SELECT * FROM {table}") == expected
    assert len(expected) == 2


def test_an_upgrade_from_an_old_version_stays(tmp_path: Path) -> None:
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'"
    with EmbeddedScylla(data_dir=tmp_path, version="4.3") as scylla:
        before = scylla.execute(tables)
    with EmbeddedScylla(data_dir=tmp_path, version="4.3") as scylla:
        assert scylla.execute(tables) == before
        scylla.upgrade()
        after = scylla.execute(tables)
        times = scylla.execute("SELECT time FROM system_distributed.cdc_generation_timestamps")
    assert len(after) > len(before)
    with EmbeddedScylla(data_dir=tmp_path, version="4.3") as scylla:
        assert scylla.execute(tables) == after
        assert scylla.execute("SELECT time FROM system_distributed.cdc_generation_timestamps") == times
    with EmbeddedScylla(data_dir=tmp_path, version="4.4") as scylla:
        assert scylla.execute(tables) == after


@pytest.mark.parametrize(
    ("kept", "given", "said"),
    [
        ("5.4", "2025.1", r"has a cluster of version 5\.4, not 2025\.1; leave out the version"),
        ("4.4", "4.3", r"has a cluster of version 4\.4, not 4\.3; "),
        (None, "2025.1", r"has a cluster of version 2026\.3, not 2025\.1; "),
    ],
)
def test_a_directory_of_another_version_is_refused(
    tmp_path: Path, kept: Version | None, given: Version, said: str
) -> None:
    with EmbeddedScylla(data_dir=tmp_path, version=kept):
        pass
    server = EmbeddedScylla(data_dir=tmp_path, version=given)
    for _ in range(2):
        with pytest.raises(EmbeddedScyllaError, match=f"^the data directory {re.escape(str(tmp_path))} {said}"):
            server.start()
    with EmbeddedScylla(data_dir=tmp_path, version=kept) as scylla:  # nothing was lost
        assert scylla.execute("SELECT key FROM system.local WHERE key = 'local'") == [{"key": "local"}]


def test_tablets_are_refused_for_a_directory_whose_version_has_none(tmp_path: Path) -> None:
    with EmbeddedScylla(data_dir=tmp_path, version="5.4"):
        pass
    with pytest.raises(EmbeddedScyllaError, match=r"of version 5\.4, which has no tablets; leave them out"):
        EmbeddedScylla(data_dir=tmp_path, tablets=True).start()


def test_a_directory_is_of_its_own_version_and_takes_the_defaults_of_the_given_one(tmp_path: Path) -> None:
    version = "SELECT version FROM system.versions"
    with EmbeddedScylla(data_dir=tmp_path / "old", version="5.4") as scylla:
        expected = scylla.execute(version)
    with EmbeddedScylla(data_dir=tmp_path / "old") as scylla:
        assert scylla.execute(version) == expected
    with EmbeddedScylla(data_dir=tmp_path / "new") as scylla:
        newest = scylla.execute(version)
    with EmbeddedScylla(data_dir=tmp_path / "new", version=RELEASES[-1]) as scylla:
        assert scylla.execute(version) == newest
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION.replace('Simple', 'NetworkTopology')}")
        assert "tablets = {'enabled': true}" in scylla.execute("DESCRIBE KEYSPACE ks")[0]["create_statement"]


def test_a_cursor_continues_after_a_restart(tmp_path: Path) -> None:
    """Events keep their ids, and none is lost or repeated."""

    def read(scylla: EmbeddedScylla, after: str, limit: int | None = None) -> list[str]:
        session = scylla.connect()
        now = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
        client = rscylla.NewStream(session, "ks", "t")(after, rscylla.StreamLag(milliseconds=20), now)
        ids: list[str] = []
        try:
            while limit is None or len(ids) < limit:
                got = client.recv()
                if isinstance(got, rscylla.Event):
                    ids.append(got.id)
        except rscylla.HeadReached:
            pass
        finally:
            client.close()
        return ids

    def write(scylla: EmbeddedScylla, *keys: int) -> None:
        for k in keys:
            scylla.execute("INSERT INTO ks.t (k, v) VALUES (?, 'x')", [k])

    with EmbeddedScylla(data_dir=tmp_path, ring_delay=timedelta()) as scylla:
        scylla.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
        scylla.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
        write(scylla, *range(30))
        before = read(scylla, "")
        half = read(scylla, "", limit=12)
        assert half == before[:12]
    with EmbeddedScylla(data_dir=tmp_path) as scylla:
        assert read(scylla, "") == before
        assert read(scylla, half[-1]) == before[12:]
        write(scylla, *range(30, 40))
        rest = read(scylla, half[-1])
        assert rest[:18] == before[12:]
        assert len(rest) == 28


class Writer(threading.Thread):
    """Inserts rows numbered from ``first`` on, in batches of two tables, until the server dies; remembers answers."""

    def __init__(self, session: Session, first: int, step: int) -> None:
        super().__init__(daemon=True)
        self.first = self.tried = self.answered = first
        self._session = session
        self._step = step
        self._insert = session.prepare(
            "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (:k, :v); INSERT INTO ks.plain (k, v) VALUES (:k, :v)"
            " APPLY BATCH"
        )

    def run(self) -> None:
        while True:
            self.tried += self._step
            try:
                self._session.execute(self._insert, {"k": self.tried, "v": "x" * 100}, timeout=5)
            except (DriverException, NoHostAvailable, ConnectionException):
                return
            self.answered = self.tried


@pytest.mark.slow
def test_kill_9_while_writing_loses_no_answered_write(tmp_path: Path) -> None:
    """Every write that was answered is there, in its table and in the log; others are there wholly or not at all."""
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    dice = random.Random(seed)
    scylla = EmbeddedScyllaProcess(data_dir=tmp_path, compact_bytes=30_000)
    answered: set[int] = set()
    tried: set[int] = set()
    snapshots = set()
    for kill in range(6):
        scylla.start()
        session = scylla.connect()
        if not kill:
            session.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
            session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
            session.execute("CREATE TABLE ks.plain (k int PRIMARY KEY, v text)")
        check_kept(session, answered, tried)
        first = max(tried, default=0) + 1
        writers = [Writer(session, first + at, 3) for at in range(3)]
        for writer in writers:
            writer.start()
        assert not threading.Event().wait(dice.uniform(0.02, 0.6))
        scylla.kill()
        for writer in writers:
            writer.join(30)
            answered |= set(range(writer.first + 3, writer.answered + 1, 3))
            tried |= set(range(writer.first + 3, writer.tried + 1, 3))
        session.cluster.shutdown()
        snapshots |= {file.name for file in tmp_path.glob("snapshot-*.rsc")}
    with scylla:
        check_kept(scylla.connect(), answered, tried)
    assert len(answered) > 200
    assert snapshots
    print(f"answered {len(answered)}, tried {len(tried)}, snapshots {sorted(snapshots)}")


def check_kept(session: Session, answered: set[int], tried: set[int]) -> None:
    stored = [row.k for row in session.execute("SELECT k FROM ks.t")]
    logged = [row.k for row in session.execute("SELECT k FROM ks.t_scylla_cdc_log")]
    plain = [row.k for row in session.execute("SELECT k FROM ks.plain")]
    assert answered <= set(stored) <= tried
    assert sorted(stored) == sorted(logged) == sorted(plain)
