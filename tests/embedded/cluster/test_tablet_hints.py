"""The table property ``tablets``: what is accepted and shown, how many tablets it makes, and when they are resized."""

from __future__ import annotations

from pathlib import Path

import pytest
from enginebox import EngineBox

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.errors import ConfigError, CqlError, SyntaxException
from rscylla.embedded.schema.tables import Keyspace
from rscylla.embedded.schema.tablets import tablet_hints, tablets_for

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
CDC = "cdc = {'enabled': true}"
SECOND = 1_000_000


@pytest.fixture
def box() -> EngineBox:
    box = EngineBox()
    box.run(f"CREATE KEYSPACE tab WITH replication = {REPLICATION} AND tablets = {{'enabled': true}}")
    return box


def sets(box: EngineBox, table: str = "t") -> list[tuple[int, int]]:
    """Return of each listed stream set when it starts, in seconds from the present, and how many streams it has."""
    counts: dict[int, int] = {}
    for row in box.rows(
        "SELECT timestamp, stream_state FROM system.cdc_streams WHERE keyspace_name = 'tab' AND table_name = ?", [table]
    ):
        counts[row["timestamp"]] = counts.get(row["timestamp"], 0) + (row["stream_state"] == 0)
    return [((time * 1000 - box.clock.now_us()) // SECOND, count) for time, count in counts.items()]


# ---------------------------------------------------------------- what is accepted, and how it is shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("{'min_tablet_count': 100}", {"min_tablet_count": "100"}),
        (
            "{'min_tablet_count': '100', 'expected_data_size_in_gb': '50'}",
            {"expected_data_size_in_gb": "50", "min_tablet_count": "100"},
        ),
        ("{'expected_data_size_in_gb': '0', 'min_tablet_count': '100'}", {"min_tablet_count": "100"}),
        ("{'min_per_shard_tablet_count': 3.14}", {"min_per_shard_tablet_count": "3.14"}),
        ("{'min_per_shard_tablet_count': '2.0'}", {"min_per_shard_tablet_count": "2"}),
        (
            "{'max_tablet_count': 2, 'min_per_shard_tablet_count': '1e400'}",
            {"max_tablet_count": "2", "min_per_shard_tablet_count": "inf"},
        ),
        ("{'min_tablet_count': '7 or so'}", {"min_tablet_count": "7"}),
        ("{'min_tablet_count': 'many'}", None),
        ("{'max_tablet_count': 8, 'min_tablet_count': 8}", {"max_tablet_count": "8", "min_tablet_count": "8"}),
        ("{'pow2_count': 'Yes'}", {"pow2_count": "true"}),
        ("{}", None),
    ],
)
@pytest.mark.parametrize("how", ["CREATE", "ALTER"])
def test_hints_are_kept_and_shown(box: EngineBox, how: str, given: str, shown: dict[str, str] | None) -> None:
    if how == "CREATE":
        box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH tablets = {given}")
    else:
        box.run("CREATE TABLE tab.t (pk int PRIMARY KEY) WITH tablets = {'min_tablet_count': 3}")
        box.run(f"ALTER TABLE tab.t WITH tablets = {given}")
    box.run("ALTER TABLE tab.t WITH gc_grace_seconds = 42")
    query = "SELECT tablets FROM system_schema.scylla_tables WHERE keyspace_name = 'tab' AND table_name = 't'"
    assert box.column(query) == [shown]
    text = box.row("DESCRIBE TABLE tab.t")["create_statement"]
    if shown is None:
        assert "tablets" not in text
    else:
        assert f"\n    AND tablets = {shown}\n" in text
        box.run(text.replace("tab.t", "tab.again"))
        assert box.row("DESCRIBE TABLE tab.again")["create_statement"] == text.replace("tab.t", "tab.again")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("{'tablet_count': 1}", SyntaxException, "Unknown tablet hint 'tablet_count'"),
        ("'many'", SyntaxException, "Invalid value for property 'tablets'. It should be a map."),
        ("{'min_tablet_count': -1}", ConfigError, "Invalid value '-1' for min_tablet_count"),
        ("{'max_tablet_count': 0}", ConfigError, "Invalid value '0' for max_tablet_count"),
        ("{'max_tablet_count': 'x'}", ConfigError, "Invalid value '0' for max_tablet_count"),
        ("{'expected_data_size_in_gb': -2}", ConfigError, "Invalid value '-2' for expected_data_size_in_gb"),
        ("{'min_per_shard_tablet_count': -0.5}", ConfigError, "Invalid value '-0.5' for min_per_shard_tablet_count"),
        ("{'pow2_count': 'maybe'}", ConfigError, "Invalid value 'maybe' for pow2_count"),
        ("{'pow2_count': false}", ConfigError, "pow2_count cannot be set to false"),
        (
            "{'min_tablet_count': 5, 'max_tablet_count': 7}",
            ConfigError,
            r"Invalid tablet count range: min_tablet_count=5 \(effective: 8\) and max_tablet_count=7 \(effective: 4\)",
        ),
        ("{'min_tablet_count': 65537}", ConfigError, "at most 65536 tablets"),
    ],
)
def test_bad_hints_are_refused(box: EngineBox, given: str, error: type[CqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH tablets = {given}")
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC}")
    with pytest.raises(error, match=message):
        box.run(f"ALTER TABLE tab.t WITH tablets = {given}")
    assert sets(box) == [(-5, 2)]


def test_a_keyspace_of_vnodes_takes_no_hints(box: EngineBox) -> None:
    message = "tablet options cannot be used when tablets are disabled for the keyspace"
    hints = "tablets = {'min_tablet_count': 100}"
    with pytest.raises(ConfigError, match=message):
        box.run(f"CREATE TABLE t (pk int PRIMARY KEY) WITH {hints}")
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    with pytest.raises(ConfigError, match=message):
        box.run(f"ALTER TABLE t WITH {hints}")


# ---------------------------------------------------------------- how many tablets


@pytest.mark.parametrize(
    ("initial", "hints", "shards", "tablets"),
    [
        (0, {}, 1, 1),
        (0, {}, 2, 2),
        (0, {}, 6, 8),
        (1, {}, 8, 1),
        (3, {}, 8, 4),
        (4, {}, 1, 4),
        (5, {}, 1, 8),
        (0, {"min_tablet_count": 1}, 8, 1),
        (0, {"min_tablet_count": 5}, 2, 8),
        (16, {"min_tablet_count": 5}, 2, 16),
        (0, {"min_per_shard_tablet_count": 2.5}, 2, 8),
        (0, {"min_per_shard_tablet_count": 0.5}, 8, 4),
        (0, {"min_per_shard_tablet_count": 10.0, "max_tablet_count": 12}, 2, 8),
        (0, {"expected_data_size_in_gb": 50}, 2, 16),
        (0, {"expected_data_size_in_gb": 1}, 2, 2),
        (0, {"expected_data_size_in_gb": 10**9}, 2, 65536),
        (8, {"max_tablet_count": 3}, 2, 2),
    ],
)
def test_the_highest_count_asked_for_wins(initial: int, hints: dict[str, object], shards: int, tablets: int) -> None:
    keyspace = Keyspace("k", {"replication": {"class": "NetworkTopologyStrategy", "dc": "1"}}, initial)
    shown = tablet_hints("tablets", hints)
    for of_both in ([shown], [shown, {}], [{}, shown], [shown, shown]):
        assert tablets_for(keyspace, of_both, shards) == tablets


def test_the_hints_of_a_table_and_of_its_log_count_together() -> None:
    keyspace = Keyspace("k", {"replication": {"class": "NetworkTopologyStrategy", "dc": ["r1", "r2"]}}, 0)
    assert tablets_for(keyspace, [{"min_tablet_count": "2"}, {"min_tablet_count": "8"}], 2) == 8
    assert tablets_for(keyspace, [{"min_tablet_count": "16"}, {"max_tablet_count": "8"}], 2) == 8
    assert tablets_for(keyspace, [{"min_per_shard_tablet_count": "4"}, {}], 2) == 4, "two copies"


# ---------------------------------------------------------------- split and merge


def test_a_table_starts_with_what_it_asks_for(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC} AND tablets = {{'min_tablet_count': 12}}")
    assert sets(box) == [(-5, 16)]
    box.run("CREATE TABLE tab.later (pk int PRIMARY KEY) WITH tablets = {'min_tablet_count': 3}")
    box.run("ALTER TABLE tab.later WITH tablets = {'min_tablet_count': 8}")
    box.run(f"ALTER TABLE tab.later WITH {CDC}")
    assert sets(box, "later") == [(-5, 8)], "as if the log had been there before"


def test_altered_hints_split_and_merge_by_factors_of_two(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC}")
    box.run("ALTER TABLE tab.t WITH tablets = {'min_tablet_count': 9}")
    assert sets(box) == [(-5, 2), (65, 4), (70, 8), (75, 16)]
    box.clock.advance(400)
    for unchanged in ("gc_grace_seconds = 7", "tablets = {'min_tablet_count': '9'}", "cdc = {'enabled': false}", CDC):
        box.run(f"ALTER TABLE tab.t WITH {unchanged}")
    box.run("ALTER TABLE tab.t ADD v int")
    assert sets(box) == [(-405, 2), (-335, 4), (-330, 8), (-325, 16)]
    box.run("ALTER TABLE tab.t WITH tablets = {'min_tablet_count': 4}")
    assert sets(box)[3:] == [(-325, 16), (65, 8), (70, 4)]
    box.run("ALTER TABLE tab.t WITH tablets = {}")
    assert sets(box)[5:] == [(70, 4), (75, 2)], "after what is on its way"


def test_hints_of_the_log_resize_the_table(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC} AND tablets = {{'min_tablet_count': 2}}")
    for count in (4, 1):
        box.run(f"ALTER TABLE tab.t_scylla_cdc_log WITH tablets = {{'min_tablet_count': {count}}}")
    assert sets(box) == [(-5, 2), (65, 4), (70, 2)], "what the table itself asks for is the least"
    assert box.column("SELECT tablet_count FROM system.tablets WHERE keyspace_name = 'tab' ALLOW FILTERING") == [2] * 4


def test_a_split_by_hand_lasts_until_the_hints_change(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC}")
    box.cluster.tablets.resize("tab", "t", 2, box.clock.now_us(), 0)
    box.cluster.add_node()
    box.run("ALTER TABLE tab.t WITH comment = 'x'")
    assert [count for _, count in sets(box)] == [2, 4]
    box.run("ALTER TABLE tab.t WITH tablets = {'min_tablet_count': 2}")
    assert [count for _, count in sets(box)] == [2, 4, 2]


def test_initial_of_the_keyspace_counts_for_its_tables(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC}")
    box.run(f"CREATE TABLE tab.more (pk int PRIMARY KEY) WITH {CDC} AND tablets = {{'min_tablet_count': 8}}")
    box.run("ALTER KEYSPACE tab WITH tablets = {'initial': 4}")
    assert sets(box) == [(-5, 2), (65, 4)]
    assert sets(box, "more") == [(-5, 8)]
    box.run("ALTER KEYSPACE tab WITH durable_writes = false")
    assert sets(box) == [(-5, 2), (65, 4)]


def test_writes_go_to_the_set_of_their_time(box: EngineBox) -> None:
    box.run(f"CREATE TABLE tab.t (pk int PRIMARY KEY) WITH {CDC}")
    box.run("ALTER TABLE tab.t WITH tablets = {'min_tablet_count': 64}")
    for step in range(6):
        for pk in range(64):
            box.run(f"INSERT INTO tab.t (pk) VALUES ({pk + 64 * step})")
        box.clock.advance(5 if step else 65)
    listed = box.rows("SELECT * FROM system.cdc_streams")
    streams = {row["stream_id"]: row["timestamp"] for row in listed if row["stream_state"] == 0}
    used = box.rows('SELECT "cdc$stream_id" AS stream, pk FROM tab.t_scylla_cdc_log')
    steps = sorted(set(streams.values()))
    assert {(row["pk"] // 64, steps.index(streams[row["stream"]])) for row in used} == {(n, n) for n in range(6)}


def test_a_data_directory_keeps_the_hints_and_what_they_made(tmp_path: Path) -> None:
    listed = "SELECT * FROM system.cdc_streams"
    with EmbeddedScylla(tablets=True, data_dir=tmp_path / "data") as scylla:
        scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
        scylla.execute(f"CREATE TABLE k.t (pk int PRIMARY KEY) WITH {CDC} AND tablets = {{'min_tablet_count': 4}}")
        scylla.execute("ALTER TABLE k.t WITH tablets = {'min_tablet_count': 8}")
        before, described = scylla.execute(listed), scylla.execute("DESCRIBE TABLE k.t")
    with EmbeddedScylla(tablets=True, data_dir=tmp_path / "data") as scylla:
        assert (scylla.execute(listed), scylla.execute("DESCRIBE TABLE k.t")) == (before, described)
        scylla.execute("ALTER TABLE k.t WITH tablets = {'min_tablet_count': '8'}")
        assert scylla.execute(listed) == before
        scylla.execute("ALTER TABLE k.t WITH tablets = {'min_tablet_count': 16}")
        assert len(scylla.execute(listed)) == len(before) + 16 + 8 + 16


def test_a_snapshot_resizes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        with EmbeddedScylla(tablets=True, data_dir=tmp_path / "data", compact_bytes=1) as scylla:
            if not scylla.execute("SELECT * FROM system.tablets"):
                scylla.execute(f"CREATE KEYSPACE k WITH replication = {REPLICATION}")
                scylla.execute(f"CREATE TABLE k.t (pk int PRIMARY KEY) WITH {CDC}")
                for table, count in (("k.t_scylla_cdc_log", 8), ("k.t", 4)):
                    scylla.execute(f"ALTER TABLE {table} WITH tablets = {{'min_tablet_count': {count}}}")
            for pk in range(9):
                scylla.execute("INSERT INTO k.t (pk) VALUES (?)", [pk])
            assert len(scylla.execute("SELECT * FROM system.cdc_timestamps")) == 3
