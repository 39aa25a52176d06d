"""A server with a data directory: all of it is there again after a stop or a kill, and the directory does not grow."""

from __future__ import annotations

import contextlib
import random
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keptbox import REPLICATION, Kept, last_log

from rscylla.embedded import CqlError
from rscylla.embedded.durability import records
from rscylla.embedded.durability.datadir import DataDir
from rscylla.embedded.durability.durable import COMPACT_BYTES
from rscylla.embedded.durability.records import DataDirError
from rscylla.embedded.durability.statecodec import pack
from rscylla.embedded.storage.packed import cut_row
from rscylla.embedded.storage.partitions import TableStore

TABLETS = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': true}"


# ---------------------------------------------------------------- everything reads back


class History:
    """Random statements of every kind, from a seed, for a keyspace with vnodes and one with tablets."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.number = 0
        self.next: list[str] = []

    def first(self) -> Iterator[str]:
        for keyspace, replication in (("ks", REPLICATION), ("tab", TABLETS)):
            yield f"CREATE KEYSPACE {keyspace} WITH replication = {replication}"
            yield f"CREATE TYPE {keyspace}.p (x int, y text)"
            columns = "a int, b int, s text static, v text, m map<text, int>, l list<int>, w frozen<p>"
            yield (
                f"CREATE TABLE {keyspace}.t ({columns}, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC)"
                " AND cdc = {'enabled': true, 'preimage': 'full', 'postimage': true, 'ttl': 300}"
            )
            yield f"CREATE TABLE {keyspace}.plain (a int PRIMARY KEY, v text) WITH gc_grace_seconds = 30"
            keys = "a int, b frozen<p>, c frozen<map<p, int>>, v int, PRIMARY KEY (a, b, c)"
            yield f"CREATE TABLE {keyspace}.u ({keys}) WITH CLUSTERING ORDER BY (b DESC, c ASC)"

    def statement(self) -> str:
        if self.next:
            return self.next.pop()
        return self.dice.choices([self.write, self.batch, self.schema, self.drop], [60, 6, 3, 1])[0]()

    def drop(self) -> str:
        keyspace = self.dice.choice(["ks", "tab"])
        self.next = [s for s in self.first() if s.startswith(f"CREATE TABLE {keyspace}.t ")]
        return f"DROP TABLE {keyspace}.t"

    def batch(self) -> str:
        writes = [self.write() for _ in range(self.dice.randint(1, 4))]
        return f"BEGIN BATCH {'; '.join(writes)}; APPLY BATCH"

    def write(self) -> str:
        dice = self.dice
        keyspace = dice.choice(["ks", "tab"])
        a, b, n = dice.randrange(4), dice.randrange(6), dice.randrange(1000)
        key, part = self.value(), self.value()
        ttl = dice.choice(["", "", f" USING TTL {dice.randint(1, 200)}"])
        t = f"{keyspace}.t"
        return dice.choice(
            [
                f"INSERT INTO {t} (a, b, v, m, l) VALUES ({a}, {b}, 'v{n}', {{'x': {n}}}, [{n}, {a}]){ttl}",
                f"INSERT INTO {t} (a, b, w) VALUES ({a}, {b}, {{x: {n}, y: 'y'}}){ttl}",
                f"INSERT INTO {t} (a, s) VALUES ({a}, 's{n}'){ttl}",
                f"UPDATE {t}{ttl} SET m['k{b}'] = {n}, l = l + [{n}], s = null WHERE a = {a} AND b = {b}",
                f"UPDATE {t} SET m = m - {{'x'}}, v = null WHERE a = {a} AND b = {b}",
                f"DELETE FROM {t} WHERE a = {a} AND b = {b}",
                f"DELETE v, m['x'] FROM {t} WHERE a = {a} AND b = {b}",
                f"DELETE FROM {t} WHERE a = {a} AND b > {b} AND b <= {b + 2}",
                f"DELETE FROM {t} WHERE a = {a}",
                f"INSERT INTO {keyspace}.plain (a, v) VALUES ({n % 20}, 'p{n}'){ttl}",
                f"DELETE FROM {keyspace}.plain WHERE a = {n % 20}",
                f"INSERT INTO {keyspace}.u (a, b, c, v) VALUES ({a}, {key}, {{{part}: {b}}}, {n}){ttl}",
                f"DELETE FROM {keyspace}.u WHERE a = {a} AND b {dice.choice(['<', '>', '='])} {key}",
            ]
        )

    def value(self) -> str:
        """Return a value of the type, with some fields that it may have by now."""
        fields = [
            f"f{number}: {self.dice.randrange(2)}" for number in range(1, self.number + 1) if self.dice.random() < 0.2
        ]
        return f"{{{', '.join([f'x: {self.dice.randrange(3)}', *fields])}}}"

    def schema(self) -> str:
        dice = self.dice
        keyspace = dice.choice(["ks", "tab"])
        self.number += 1
        return dice.choice(
            [
                f"ALTER TABLE {keyspace}.t ADD c{self.number} int",
                f"ALTER TABLE {keyspace}.t DROP v",
                f"ALTER TABLE {keyspace}.t ADD v text",
                f"ALTER TYPE {keyspace}.p ADD f{self.number} int",
                f"ALTER TABLE {keyspace}.t WITH cdc = {{'enabled': {dice.choice(['true', 'false'])}, 'ttl': 200}}",
                f"ALTER TABLE {keyspace}.plain WITH comment = 'c{self.number}'",
                f"ALTER TABLE {keyspace}.t RENAME b TO b",
                f"CREATE TABLE {keyspace}.more{self.number} (k uuid PRIMARY KEY, v vector<float, 2>)",
                f"DROP TABLE IF EXISTS {keyspace}.more{dice.randint(1, self.number)}",
                f"TRUNCATE {keyspace}.{dice.choice(['t', 'plain', 't_scylla_cdc_log'])}",
                f"ALTER KEYSPACE ks WITH replication = {REPLICATION} AND durable_writes = false",
            ]
        )

    def apply(self, kept: Kept, statements: int) -> None:
        for _ in range(statements):
            try:
                kept.run(self.statement())
            except CqlError:
                continue  # what the schema does not allow just now; that must leave no trace either
            finally:
                kept.clock.advance(self.dice.choice([0.001, 0.001, 0.5, 8]))
            if self.dice.random() < 0.02:
                self.topology(kept)

    def topology(self, kept: Kept) -> None:
        cluster, dice = kept.cluster, self.dice
        what = dice.choice(["add", "remove", "generation", "split", "merge"])
        try:
            if what == "add":
                cluster.add_node(dice.choice([None, 6000]))
            elif what == "remove":
                cluster.remove_node(cluster.nodes[-1].index)
            elif what == "generation":
                cluster.new_generation()
            else:
                factor = 2 if what == "split" else 0.5
                cluster.tablets.resize("tab", "t", factor, kept.clock.now_us(), 6000)
        except ValueError:
            pass  # the last node stays, and so does the last tablet


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), compact_bytes=st.sampled_from([2_000, 20_000, COMPACT_BYTES]))
def test_any_history_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, seed: int, compact_bytes: int) -> None:
    path = tmp_path_factory.mktemp("data")
    kept = Kept(path, compact_bytes=compact_bytes)
    history = History(seed)
    for statement in history.first():
        kept.run(statement)
    for _ in range(3):
        history.apply(kept, 60)
        copied = Path(shutil.copytree(path, tmp_path_factory.mktemp("copy") / "data"))  # as a kill leaves it
        expected = kept.state()
        # A killed process has let go of its lock; this one has not, so the copy is looked at.
        killed = Kept(copied, kept.clock)
        assert killed.state() == expected
        killed.durable.close()
        kept.durable.close()
        kept = Kept(path, kept.clock, compact_bytes=compact_bytes)
        assert kept.state() == expected
    kept.durable.close()


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_kill_between_any_two_records_leaves_a_whole_state(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Each start of the log is a cluster of its own: bases with their logs, logs in tablets with their stream sets."""
    path = tmp_path_factory.mktemp("data")
    kept = Kept(path)
    history = History(seed)
    for statement in history.first():
        kept.run(statement)
    history.apply(kept, 60)
    kept.durable.close()
    whole = last_log(path).read_bytes()
    reader = records.RecordReader(last_log(path), 1)
    sizes = [reader.size for _ in reader]
    assert sizes[-1] == len(whole)
    for size in sizes:
        last_log(path).write_bytes(whole[:size])
        kept = Kept(path, kept.clock)
        for name in {"ks", "tab"} & set(kept.engine.schema.keyspaces):
            tables = kept.engine.schema.keyspaces[name].tables
            logs = {table.cdc_base for table in tables.values() if table.is_cdc_log}
            assert logs >= {n for n, table in tables.items() if table.cdc is not None and table.cdc.enabled}
            assert set(tables) == {place[1] for place in kept.engine.stores if place[0] == name}
            if name == "tab":
                assert {streams.table for streams in kept.cluster.tablets if streams.keyspace == name} == logs
        kept.durable.close()


ALTERED = {
    "field": "frozen<p>",
    "nested": "frozen<tuple<int, p>>",
    "key_of_a_map": "frozen<map<p, int>>",
    "element": "frozen<set<p>>",
}


@pytest.mark.parametrize("cql_type", ALTERED.values(), ids=ALTERED)
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_rows_whose_clustering_key_got_a_field_meanwhile_are_written_and_read_back(
    tmp_path: Path, cql_type: str, order: str
) -> None:
    old, new = "{x: 1}", "{x: 1, y: 'y'}"
    form = {"frozen<p>": "%s", "frozen<tuple<int, p>>": "(7, %s)", "frozen<map<p, int>>": "{%s: 1}"}.get(
        cql_type, "{%s}"
    )
    kept = Kept(tmp_path)
    kept.run(f"CREATE KEYSPACE ks WITH replication = {REPLICATION}")
    kept.run("CREATE TYPE ks.p (x int)")
    kept.run(
        f"CREATE TABLE ks.t (a int, c {cql_type}, v int, PRIMARY KEY (a, c)) WITH CLUSTERING ORDER BY (c {order})"
        " AND cdc = {'enabled': true, 'preimage': true}"
    )
    kept.run(f"INSERT INTO ks.t (a, c, v) VALUES (1, {form % old}, 1)")
    kept.run("ALTER TYPE ks.p ADD y text")
    for value, number in ((new, 2), ("{x: 0, y: 'y'}", 3), (new, 4), ("{x: 9, y: 'y'}", 5)):
        kept.run(f"INSERT INTO ks.t (a, c, v) VALUES (1, {form % value}, {number})")
    read = "SELECT v FROM ks.t WHERE a = 1"
    found = [int.from_bytes(row[4:8], "big") for row in kept.run(read)]
    assert found == ([3, 1, 4, 5] if order == "ASC" else [5, 4, 1, 3]), "a value without the field comes before others"
    kept.run(f"DELETE FROM ks.t WHERE a = 1 AND c > {form % new}")
    assert len(kept.run(read)) == 3
    expected = kept.state()
    kept = kept.reopened()
    assert kept.state() == expected
    kept.durable.close()


def test_a_write_that_cannot_be_applied_is_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    kept.create()
    kept.run("INSERT INTO ks.t (k, v) VALUES (1, 'a')")
    before, size = kept.state(), last_log(tmp_path).stat().st_size

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(TableStore, "append_record", fails)
        with pytest.raises(ZeroDivisionError):
            kept.run("INSERT INTO ks.t (k, v) VALUES (2, 'b')")
    assert last_log(tmp_path).stat().st_size == size
    kept.run("INSERT INTO ks.t (k, v) VALUES (3, 'c')")
    kept.run("DELETE FROM ks.t WHERE k = 3")
    kept = kept.reopened()
    assert [len(kept.run("SELECT * FROM ks.t")), len(before)] == [1, 4]
    kept.durable.close()


def test_a_record_that_cannot_be_replayed_is_named_and_can_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.create()
    for key in (1, 2):
        kept.run(f"INSERT INTO ks.t (k, v) VALUES ({key}, 'a')")
        kept.durable._append(pack(("write", [("ks", "gone", b"secret")], [])))
    expected = kept.state()
    kept.durable.close()
    told = r"log-000001\.rsc, record 5, cannot be replayed \(KeyError\): .* skip_broken=True .*--skip-broken"
    with pytest.raises(DataDirError, match=told) as caught:
        Kept(tmp_path, kept.clock)
    assert "secret" not in str(caught.value)
    kept = Kept(tmp_path, kept.clock, skip_broken=True)
    assert kept.state() == expected
    assert [r.message.split(", ")[1] for r in caplog.records if r.levelname == "ERROR"] == ["record 5", "record 7"]
    kept.run("INSERT INTO ks.t (k, v) VALUES (3, 'a')")
    expected = kept.state()
    kept.durable.close()
    kept = Kept(tmp_path, kept.clock)  # left out for good
    assert kept.state() == expected
    kept.durable.close()


def test_without_the_record_of_the_cluster_nothing_can_be_kept(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    assert list(directory.records()) == []
    directory.append(pack(("topology", {})))
    directory.close()
    for skip_broken in (False, True):
        with pytest.raises(
            DataDirError, match=r"record 1, cannot be replayed \(KeyError\): use the version that wrote it$"
        ):
            Kept(tmp_path, skip_broken=skip_broken)


def test_an_empty_server_and_one_with_only_a_schema_restart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    cluster = kept.cluster.state()
    kept = kept.reopened()
    assert kept.cluster.state() == cluster
    kept.create("k frozen<tuple<int, text>> PRIMARY KEY, v list<frozen<set<inet>>>")
    expected = kept.state()
    kept = kept.reopened()
    assert kept.state() == expected
    kept.run("DROP KEYSPACE ks")
    assert "ks" not in kept.reopened().engine.schema.keyspaces


def test_ttl_runs_on_while_the_server_is_down(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.create(cdc="{'enabled': true, 'ttl': 60}")
    kept.run("INSERT INTO t (k, v) VALUES (1, 'short') USING TTL 30")
    kept.run("INSERT INTO t (k, v) VALUES (2, 'long')")
    kept.clock.advance(29)
    kept = kept.reopened()
    assert len(kept.run("SELECT * FROM t")) == 2
    assert len(kept.run("SELECT * FROM t_scylla_cdc_log")) == 2
    kept.durable.close()
    kept.clock.advance(2)
    kept = kept.reopened()
    assert len(kept.run("SELECT * FROM t")) == 1
    kept.clock.advance(30)
    kept = kept.reopened()
    assert kept.run("SELECT * FROM t_scylla_cdc_log") == []
    assert kept.engine.stores["ks", "t_scylla_cdc_log"].partitions == {}


def test_what_a_client_was_refused_is_not_there_later(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.create()
    size = last_log(tmp_path).stat().st_size
    for statement in (
        "INSERT INTO t (k, v) VALUES (1, 'x') USING TIMESTAMP 1",  # too old for CDC
        "CREATE TABLE t (k int PRIMARY KEY)",
        "INSERT INTO t (k) VALUES ('text')",
        "UPDATE t SET v = 'x' WHERE k = 1 IF EXISTS",
    ):
        with contextlib.suppress(CqlError):
            assert kept.run(statement)  # an LWT that was not applied
    assert last_log(tmp_path).stat().st_size == size


# ---------------------------------------------------------------- snapshots


def test_a_server_that_runs_for_long_does_not_grow(tmp_path: Path) -> None:
    """A million bytes are written in all; what is live at any time is a small part of them."""
    kept = Kept(tmp_path, compact_bytes=50_000)
    kept.create(cdc="{'enabled': true, 'ttl': 10}")
    written, largest = 0, 0
    for i in range(3_000):
        kept.run(f"INSERT INTO t (k, v) VALUES ({i % 10}, '{'x' * 300}') USING TTL 10")
        kept.clock.advance(0.1)
        written += 600
        largest = max(largest, sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert written > 1_000_000
    assert largest < 400_000
    expected = kept.state()
    assert kept.reopened().state() == expected


@pytest.mark.slow
def test_large_partitions_are_kept_piece_by_piece_while_they_change(tmp_path: Path) -> None:
    """Rows come, go and expire before and behind the place that the snapshot has got to, and a log loses its form."""
    kept = Kept(tmp_path, compact_bytes=150_000)
    kept.create("a int, b int, v text, s text static, PRIMARY KEY (a, b)", "{'enabled': true, 'ttl': 20}")
    dice = random.Random(1)
    for i in range(3_000):
        b = dice.randrange(1_000)
        kept.run(
            dice.choice(
                [
                    f"INSERT INTO t (a, b, v, s) VALUES (1, {b}, 'v{i}', 's{i}')",
                    f"DELETE FROM t WHERE a = 1 AND b >= {b} AND b < {b + 3}",
                    f"INSERT INTO t (a, b, v) VALUES (1, {b}, 'v{i}') USING TTL {dice.randint(1, 9)}",
                ]
            )
        )
        kept.clock.advance(0.01)
        if i == 2_000:
            stream, time, seq, *_ = cut_row(kept.run("SELECT * FROM t_scylla_cdc_log LIMIT 1")[0])
            assert stream is not None
            assert time is not None
            assert seq == bytes(4)
            key = f'"cdc$stream_id" = 0x{stream.hex()} AND "cdc$time" = {uuid.UUID(bytes=time)}'
            kept.run(f"UPDATE t_scylla_cdc_log SET v = 'by hand' WHERE {key} AND \"cdc$batch_seq_no\" = 0")
    assert len(list(tmp_path.glob("snapshot-*.rsc"))) == 1
    log = kept.engine.stores["ks", "t_scylla_cdc_log"]
    assert max(len(partition) for partition in log.scan()) > 500
    assert len(kept.run("SELECT * FROM t")) > 200
    expected = kept.state()
    assert kept.reopened().state() == expected
