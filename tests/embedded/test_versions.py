"""What differs between the releases of Scylla that the server imitates, a test each: read in Scylla, not tried on one.

A fact's docstring has the releases and the commit or file in ``scylladb/scylladb``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, SyntaxException
from rscylla.embedded.versions import DIFFERENCES, NEWEST, RELEASES, Difference, Release, Version
from rscylla.embedded.wire.frame import HEADER, Opcode

NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
COLUMNS = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'system_schema' AND table_name = ?"


class Box(EngineBox):
    """An engine of one release, with a keyspace ``ks`` of vnodes in use."""

    def __init__(self, version: Version | None, *, tablets: bool | None = None) -> None:
        super().__init__()
        self.cluster = Cluster(1, clock=self.clock, seed=7, version=version, tablets=tablets)
        self.clock.advance(60)
        self.engine = Engine(self.cluster, self.clock)
        self.keyspace("ks", "false")

    def keyspace(self, name: str, tablets: str | None = None) -> None:
        clause = f" AND tablets = {{'enabled': {tablets}}}" if tablets and self.cluster.release.has("tablets") else ""
        self.run(f"CREATE KEYSPACE {name} WITH replication = {NETWORK}{clause}")

    def refused(self, cql: str, values: Sequence[Any] = ()) -> CqlError:
        with pytest.raises(CqlError) as caught:
            self.run(cql, values)
        return caught.value

    def log(self, table: str = "ks.t") -> list[dict[str, Any]]:
        return self.rows(f"SELECT * FROM {table}_scylla_cdc_log")


def since(first: Version) -> list[Any]:
    """Return each release, with whether it is *first* or later."""
    return [pytest.param(v, RELEASES.index(v) >= RELEASES.index(first), id=v) for v in RELEASES]


def releases(*, first: Version = "4.3", before: Version | None = None) -> list[Version]:
    end = len(RELEASES) if before is None else RELEASES.index(before)
    return list(RELEASES[RELEASES.index(first) : end])


# ---------------------------------------------------------------- the table of differences


def test_each_difference_is_there_once() -> None:
    assert len({each.what for each in DIFFERENCES}) == len(DIFFERENCES)
    assert {each.since for each in DIFFERENCES} < set(RELEASES)


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no imitation of version '5\.0'; give one of 4\.3, 4\.4, 5\.4, 6\.0"):
        EmbeddedScylla(version="5.0")  # type: ignore[arg-type]


def test_the_default_is_the_newest_release_whose_keyspaces_have_vnodes() -> None:
    assert (NEWEST.name, NEWEST.prefers_tablets) == (RELEASES[-1], False)
    assert Release(RELEASES[-1]).prefers_tablets
    with pytest.raises(KeyError):
        NEWEST.has("no such difference")


def test_the_docs_list_the_differences() -> None:
    page = (Path(__file__).parents[2] / "docs" / "embedded.md").read_text()
    rows = re.findall(r"^\| `(.+?)` \| (\d+\.\d) \| (.+) \|$", page, re.MULTILINE)
    assert [Difference(*row) for row in rows] == list(DIFFERENCES)


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_has_what_it_brought_and_what_older_ones_brought(version: Version) -> None:
    release = Release(version)
    assert [d.what for d in DIFFERENCES if release.has(d.what)] == [
        d.what for d in DIFFERENCES if RELEASES.index(d.since) <= RELEASES.index(version)
    ]


# ---------------------------------------------------------------- system tables


@pytest.mark.parametrize("fact", [d for d in DIFFERENCES if re.match(r"system\w*\.", d.what)], ids=lambda d: d.what)
def test_a_system_table_or_column_is_there_from_its_release_on(fact: Any) -> None:
    """Each by the source that the table of differences names."""
    place, _, column = fact.what.partition("/")
    keyspace, table = place.split(".")
    where = f"WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
    for version in RELEASES:
        box, has = Box(version), RELEASES.index(version) >= RELEASES.index(fact.since)
        known = box.column(f"SELECT column_name FROM system_schema.columns {where}")
        assert (column in known if column else bool(known)) is has, version
        select = f"SELECT {column or '*'} FROM {place}"
        if has:
            box.run(select)
        else:
            assert re.search("unconfigured table|Unrecognized name", str(box.refused(select))), version


def test_5_4_has_scylla_keyspaces_without_initial_tablets() -> None:
    """5.1 to 5.4 have the table for storage options; schema_tables.cc:265-275@5.4."""
    assert "storage_type" in Box("5.4").column(COLUMNS, ["scylla_keyspaces"])
    assert "initial_tablets" not in Box("5.4").column(COLUMNS, ["scylla_keyspaces"])
    assert "initial_tablets" in Box("6.0").column(COLUMNS, ["scylla_keyspaces"])


@pytest.mark.parametrize("version", releases(first="5.4"))
def test_system_versions_names_the_release_as_a_build_does(version: Version) -> None:
    """``V.R.P-0.<yyyymmdd>.<12 hex>``: SCYLLA-VERSION-GEN, release.cc:24."""
    (found,) = Box(version).column("SELECT version FROM system.versions")
    assert re.fullmatch(re.escape(version) + r"\.0-0\.\d{8}\.[0-9a-f]{12}", found)


@pytest.mark.parametrize("version", RELEASES)
def test_release_version_is_that_of_cassandra_everywhere(version: Version) -> None:
    """version.hh:26, in all releases."""
    assert Box(version).column("SELECT release_version FROM system.local") == ["3.0.8"]


# ---------------------------------------------------------------- keyspaces


@pytest.mark.parametrize(("version", "has"), since("6.0"))
def test_a_new_keyspace_has_tablets_from_6_0_on(version: Version, has: bool) -> None:
    """``enable_tablets`` in scylla.yaml:633@6.0, ``tablets_mode_for_new_keyspaces`` from 2025.1 on."""
    box = Box(version)
    box.keyspace("k")
    described = box.row("DESCRIBE KEYSPACE k")["create_statement"]
    assert ("tablets" in described) is has
    if has:
        initial = "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'k'"
        assert box.column(initial) == [0]


@pytest.mark.parametrize("version", releases(before="6.0"))
@pytest.mark.parametrize("statement", ["CREATE KEYSPACE k", "ALTER KEYSPACE ks"])
def test_the_property_tablets_is_unknown_before_6_0(version: Version, statement: str) -> None:
    """ks_prop_defs.cc@5.4."""
    refused = Box(version).refused(f"{statement} WITH replication = {NETWORK} AND tablets = {{'enabled': false}}")
    assert (type(refused), str(refused)) == (SyntaxException, "Unknown property 'tablets'")


@pytest.mark.parametrize(("version", "is_refused"), since("2026.2"))
@pytest.mark.parametrize("strategy", ["SimpleStrategy", "EverywhereStrategy"])
def test_other_strategies_need_a_clause_from_2026_2_on(version: Version, is_refused: bool, strategy: str) -> None:
    """Vnodes in silence before: ks_prop_defs.cc:228@2025.4; d18eb9479f."""
    factor = ", 'replication_factor': 1" if strategy == "SimpleStrategy" else ""
    create = f"CREATE KEYSPACE k WITH replication = {{'class': '{strategy}'{factor}}}"
    box = Box(version)
    if is_refused:
        refused = box.refused(create)
        assert (type(refused), str(refused)) == (ConfigError, f"{strategy} doesn't support tablet replication")
        create += " AND tablets = {'enabled': false}"
    box.run(create)
    assert "'enabled': true" not in box.row("DESCRIBE KEYSPACE k")["create_statement"]


def test_a_server_told_to_prefer_vnodes_takes_any_strategy() -> None:
    """As with ``tablets_mode_for_new_keyspaces: disabled``."""
    Box("2026.3", tablets=False).run(f"CREATE KEYSPACE k WITH replication = {SIMPLE}")
    assert "doesn't support" in str(Box(None, tablets=True).refused(f"CREATE KEYSPACE k WITH replication = {SIMPLE}"))


@pytest.mark.parametrize(("version", "has"), since("2025.4"))
@pytest.mark.parametrize("clause", ["{'replication_factor': 1}", "{}"])
def test_the_class_of_a_replication_is_optional_from_2025_4_on(version: Version, has: bool, clause: str) -> None:
    """bc8bb0873d, ca5adf2ac1."""
    create = f"CREATE KEYSPACE k WITH replication = {clause}"
    box = Box(version)
    if has:
        box.run(create)
    else:
        refused = box.refused(create)
        assert (type(refused), str(refused)) == (ConfigError, "Missing mandatory replication strategy class")


@pytest.mark.parametrize("version", RELEASES)
def test_what_the_docs_use_makes_a_keyspace_in_every_release(version: Version) -> None:
    """NetworkTopologyStrategy with a factor for all datacenters."""
    box = Box(version)
    box.keyspace("k")
    found = box.row("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'k'")["replication"]
    assert found == {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "datacenter1": "1"}


@pytest.mark.parametrize(("version", "has"), since("2026.1"))
def test_lists_of_racks_are_of_2026_1(version: Version, has: bool) -> None:
    """Tablets only; ks_prop_defs.cc@2026.1."""
    create = "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': ['rack1']}"
    box = Box(version)
    if has:
        box.run(create)
    else:
        assert isinstance(box.refused(create), ConfigError)


@pytest.mark.parametrize("version", releases(before="2026.1"))
def test_the_property_consistency_is_unknown_before_2026_1(version: Version) -> None:
    """ks_prop_defs.cc@2026.1."""
    refused = Box(version).refused(f"CREATE KEYSPACE k WITH replication = {NETWORK} AND consistency = 'eventual'")
    assert str(refused) == "Unknown property 'consistency'"


@pytest.mark.parametrize("version", releases(first="2026.1"))
@pytest.mark.parametrize("consistency", ["eventual", "local", "global"])
@pytest.mark.parametrize("statement", ["CREATE KEYSPACE k", "ALTER KEYSPACE ks"])
def test_the_property_consistency_needs_an_experimental_flag(
    version: Version, consistency: str, statement: str
) -> None:
    """data_dictionary.cc:246-258."""
    refused = Box(version).refused(f"{statement} WITH replication = {NETWORK} AND consistency = '{consistency}'")
    assert (type(refused), str(refused)) == (
        ConfigError,
        "The strongly_consistent_tables feature must be enabled to use a consistency option",
    )


@pytest.mark.parametrize("version", releases(first="6.0"))
def test_more_replicas_than_nodes_refuse_a_table_with_tablets(version: Version) -> None:
    """At CREATE TABLE, not at CREATE KEYSPACE: network_topology_strategy.cc:255."""
    box = Box(version)
    three = NETWORK.replace(": 1", ": 3")
    box.run(f"CREATE KEYSPACE k WITH replication = {three}")
    refused = box.refused("CREATE TABLE k.t (pk int PRIMARY KEY)")
    assert (type(refused), str(refused)) == (
        ConfigError,
        "Datacenter datacenter1 doesn't have enough token-owning nodes for replication_factor=3",
    )
    box.run(f"CREATE KEYSPACE v WITH replication = {three} AND tablets = {{'enabled': false}}")
    box.run("CREATE TABLE v.t (pk int PRIMARY KEY)")


@pytest.mark.parametrize(
    ("version", "plain", "initial"),
    [
        *[(version, None, None) for version in releases(before="6.0")],
        ("6.0", "{'initial': 0}", "{'initial': 8}"),
        ("2025.1", "{'enabled': true}", "{'initial': 8}"),
        *[(version, "{'enabled': true}", "{'enabled': true, 'initial': 8}") for version in releases(first="2025.4")],
    ],
)
def test_describe_shows_tablets_as_the_release_does(version: Version, plain: str | None, initial: str | None) -> None:
    """keyspace_metadata::describe of each release."""
    box = Box(version)
    box.keyspace("k")
    shown = {"k": plain}
    if initial:
        box.run(f"CREATE KEYSPACE i WITH replication = {NETWORK} AND tablets = {{'initial': 8}}")
        shown |= {"i": initial, "ks": "{'enabled': false}"}
    for name, option in shown.items():
        text = box.row(f"DESCRIBE KEYSPACE {name}")["create_statement"]
        assert re.findall(r"tablets = (.*);", text) == ([option] if option else [])


# ---------------------------------------------------------------- features with tablets


@pytest.mark.parametrize("version", releases(first="6.0"))
def test_a_log_in_a_keyspace_with_tablets_is_of_2025_4(version: Version) -> None:
    """log.cc:275@6.0, :285@2025.3; 1fc3273b27."""
    box = Box(version)
    box.keyspace("k", "true")
    create = "CREATE TABLE k.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}"
    if version in releases(first="2025.4"):
        box.run(create)
        assert len(box.column("SELECT timestamp FROM system.cdc_timestamps")) == 1
        return
    text = "Cannot create CDC log for a table k.t, because keyspace uses tablets. See issue #16317."
    assert (type(box.refused(create)), str(box.refused(create))) == (InvalidRequest, text)
    box.run("CREATE TABLE k.t (pk int PRIMARY KEY)")
    assert str(box.refused("ALTER TABLE k.t WITH cdc = {'enabled': true}")) == text


@pytest.mark.parametrize("version", releases(first="6.0"))
@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO k.t (pk, v) VALUES (1, 1) IF NOT EXISTS",
        "UPDATE k.t SET v = 2 WHERE pk = 1 IF v = 1",
        "BEGIN BATCH INSERT INTO k.t (pk, v) VALUES (1, 1) IF NOT EXISTS APPLY BATCH",
    ],
)
def test_conditional_writes_to_tables_with_tablets_are_of_2025_4(version: Version, write: str) -> None:
    """At execution: the table can be created; ab03badc15."""
    box = Box(version)
    box.keyspace("k", "true")
    box.run("CREATE TABLE k.t (pk int PRIMARY KEY, v int)")
    if version in releases(first="2025.4"):
        box.run(write)
        return
    assert str(box.refused(write)) == (
        "Cannot use LightWeight Transactions for table k.t: LWT is not yet supported with tablets"
    )
    assert box.rows("SELECT * FROM k.t") == []


@pytest.mark.parametrize("version", releases(first="6.0"))
def test_counters_in_a_keyspace_with_tablets_are_of_2026_1(version: Version) -> None:
    """9208b2f317. The server has no counters, and says that of the others."""
    box = Box(version)
    box.keyspace("k", "true")
    text = str(box.refused("CREATE TABLE k.c (pk int PRIMARY KEY, n counter)"))
    if version in releases(first="2026.1"):
        assert text == "counter tables are not supported by the embedded server"
    else:
        assert text == "Cannot use the 'counter' type for table k.c: Counters are not yet supported with tablets"


@pytest.mark.parametrize(("version", "has"), since("2025.4"))
def test_the_option_tablets_of_a_table_is_not_in_older_releases(version: Version, has: bool) -> None:
    """``tablets`` of scylla_tables, 2025.2."""
    box = Box(version)
    box.keyspace("k")
    create = "CREATE TABLE k.t (pk int PRIMARY KEY) WITH tablets = {'min_tablet_count': 8}"
    if has:
        box.run(create)
    else:
        assert str(box.refused(create)) == "Unknown property 'tablets'"


# ---------------------------------------------------------------- the protocol


@pytest.mark.parametrize("version", RELEASES)
def test_clients_are_offered_the_extensions_of_the_release(version: Version) -> None:
    """TABLETS_ROUTING_V1 6.0, SCYLLA_USE_METADATA_ID 2025.3 (086df24555), CLIENT_OPTIONS 2026.1, SCYLLA_HOST_ID
    2026.3.
    """
    with (
        EmbeddedScylla(version=version) as scylla,
        socket.create_connection((scylla.contact_points[0], scylla.port)) as client,
        client.makefile("rb") as answer,
    ):
        client.sendall(HEADER.pack(4, 0, 0, Opcode.OPTIONS, 0))
        *_, opcode, size = HEADER.unpack(answer.read(HEADER.size))
        offered = answer.read(size)
    assert opcode == Opcode.SUPPORTED
    named = [d for d in DIFFERENCES if re.fullmatch("[A-Z_0-9]+", d.what)]
    assert len(named) == 4
    for each in named:
        assert (each.what.encode() in offered) is (version in releases(first=each.since)), each.what
    assert b"SCYLLA_LWT_ADD_METADATA_MARK" in offered


# ---------------------------------------------------------------- the log


@pytest.mark.parametrize(("version", "outlives"), since("5.4"))
def test_a_log_goes_when_it_is_switched_off_before_5_1(version: Version, outlives: bool) -> None:
    """adda43edc7."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    box.run("INSERT INTO ks.t (pk) VALUES (1)")
    box.run("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    names = box.column("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'")
    assert ("t_scylla_cdc_log" in names) is outlives
    if not outlives:
        assert "unconfigured table" in str(box.refused("SELECT * FROM ks.t_scylla_cdc_log"))
    box.run("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    assert len(box.log()) == outlives


@pytest.mark.parametrize(("version", "must"), since("5.4"))
def test_an_alter_of_the_options_names_enabled_from_5_0_on(version: Version, must: bool) -> None:
    """5a8741a1ca."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY)")
    alter = "ALTER TABLE ks.t WITH cdc = {'ttl': '5'}"
    if must:
        assert str(box.refused(alter)) == 'Altering CDC options requires specifying "enabled" flag'
    else:
        box.run(alter)


@pytest.mark.parametrize(("version", "refuses"), since("5.4"))
@pytest.mark.parametrize(("written", "logged"), [("on", 1), ("OFF", 0)])
def test_preimage_is_neither_on_nor_off_from_5_0_on(version: Version, refuses: bool, written: str, logged: int) -> None:
    """033a75ff96."""
    box, options = Box(version), f"cdc = {{'enabled': true, 'preimage': '{written}'}}"
    box.run("CREATE TABLE ks.a (pk int PRIMARY KEY)")
    for statement in (
        f"CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH {options}",
        f"ALTER TABLE ks.a WITH {options}",
    ):
        if refuses:
            assert str(box.refused(statement)) == f'Invalid value for CDC option "preimage": {written.lower()}'
        else:
            box.run(statement)
    if not refuses:
        box.run("INSERT INTO ks.t (pk, v) VALUES (1, 1)")
        box.run("INSERT INTO ks.t (pk, v) VALUES (1, 2)")
        assert [row["cdc$operation"] for row in box.log()].count(0) == logged


@pytest.mark.parametrize(("version", "marks"), since("5.4"))
def test_a_preimage_marks_null_columns_from_4_6_on(version: Version, marks: bool) -> None:
    """b1650114eb."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY, a int, b int) WITH cdc = {'enabled': true, 'preimage': 'full'}")
    box.run("INSERT INTO ks.t (pk, a) VALUES (1, 1)")
    box.run("UPDATE ks.t SET a = 2 WHERE pk = 1")
    (preimage,) = [row for row in box.log() if row["cdc$operation"] == 0]
    assert (preimage["a"], preimage["b"], preimage["cdc$deleted_a"]) == (1, None, None)
    assert preimage["cdc$deleted_b"] is (True if marks else None)


@pytest.mark.parametrize(("version", "has"), since("2026.1"))
def test_the_delete_of_a_partition_of_one_row_has_a_preimage_from_2026_1_on(version: Version, has: bool) -> None:
    """2812e67f47."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': 'true'}")
    box.run("INSERT INTO ks.t (pk, v) VALUES (1, 7)")
    box.run("DELETE FROM ks.t WHERE pk = 1")
    found = sorted((row["cdc$operation"], row["v"]) for row in box.log())
    assert found == [*([(0, 7)] if has else []), (2, 7), (4, None)]


@pytest.mark.parametrize(("version", "takes"), since("6.0"))
def test_writes_into_the_generation_before_are_taken_for_five_seconds_from_6_0_on(
    version: Version, takes: bool
) -> None:
    """330a37b5c9."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    starts_us = box.cluster.new_generation(10_000).time_us
    box.clock.advance(12)
    late = f"INSERT INTO ks.t (pk) VALUES (1) USING TIMESTAMP {starts_us - 1_000_000}"
    if takes:
        box.run(late)
    else:
        assert "from the past" in str(box.refused(late))
    box.run(f"INSERT INTO ks.t (pk) VALUES (2) USING TIMESTAMP {starts_us + 1_000_000}")
    assert len(box.log()) == 1 + takes


@pytest.mark.parametrize(("version", "ahead"), since("2025.4"))
def test_a_column_leaves_the_log_five_seconds_ahead_in_newer_releases(version: Version, ahead: bool) -> None:
    """48298e38ab; so a column of the same name can be added only later."""
    box = Box(version)
    box.run("CREATE TABLE ks.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
    box.run("ALTER TABLE ks.t DROP v")
    box.clock.advance(1)
    if ahead:
        assert "dropped too recently" in str(box.refused("ALTER TABLE ks.t ADD v int"))
        box.clock.advance(5)
    box.run("ALTER TABLE ks.t ADD v int")
