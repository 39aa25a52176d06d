"""The properties of a table: what is refused, and the form in which the schema shows what is accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, SyntaxException

STCS = "'class': 'SizeTieredCompactionStrategy'"
ICS = "'class': 'IncrementalCompactionStrategy'"
LCS = "'class': 'LeveledCompactionStrategy'"
TWCS = "'class': 'TimeWindowCompactionStrategy'"
LZ4 = "'sstable_compression': 'LZ4Compressor'"
PACKAGE = "org.apache.cassandra.io.compress."


@pytest.fixture
def box() -> EngineBox:
    return EngineBox()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("speculative_retry = 'none'", "NONE"),
        ("speculative_retry = 'Always'", "ALWAYS"),
        ("speculative_retry = '95percentile'", "95.0PERCENTILE"),
        ("speculative_retry = '10ms'", "10.00ms"),
        ("gc_grace_seconds = '17 or so'", 17),
        ("min_index_interval = 256 AND max_index_interval = 512", 256),
        ("memtable_flush_period_in_ms = 60000", 60000),
        ("bloom_filter_fp_chance = 1.0", 1.0),
        ("caching = {'keys': 'NONE'}", {"keys": "NONE", "rows_per_partition": "ALL"}),
        ("caching = {'enabled': 'false'}", {"keys": "ALL", "rows_per_partition": "ALL", "enabled": "false"}),
        ("caching = {}", {"keys": "ALL", "rows_per_partition": "ALL"}),
        ("""caching = '{"rows_per_partition": "7"}'""", {"keys": "ALL", "rows_per_partition": "7"}),
        ("compression = {}", {}),
        ("compression = {'sstable_compression': ''}", {}),
        (f"compression = {{{LZ4}}}", {"sstable_compression": PACKAGE + "LZ4Compressor"}),
        (
            f"compression = {{'sstable_compression': '{PACKAGE}SnappyCompressor', 'chunk_length_kb': 32}}",
            {"sstable_compression": PACKAGE + "SnappyCompressor", "chunk_length_in_kb": "32"},
        ),
        (
            "compression = {'sstable_compression': 'ZstdWithDictsCompressor', 'compression_level': 5}",
            {"sstable_compression": "ZstdWithDictsCompressor", "compression_level": "5"},
        ),
        (
            f"compression = {{{LZ4}, 'crc_check_chance': 0.5}}",
            {"sstable_compression": PACKAGE + "LZ4Compressor", "crc_check_chance": "0.500000"},
        ),
        ("compaction = {}", {"class": "IncrementalCompactionStrategy"}),
        (
            "compaction = {'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy'}",
            {"class": "LeveledCompactionStrategy"},
        ),
        (
            f"compaction = {{{STCS}, 'min_threshold': 7, 'cold_reads_to_omit': 0.5}}",
            {"class": "SizeTieredCompactionStrategy", "min_threshold": "7", "cold_reads_to_omit": "0.5"},
        ),
    ],
)
def test_properties_are_shown_in_canonical_form(box: EngineBox, option: str, value: Any) -> None:
    box.run("CREATE TABLE altered (pk int PRIMARY KEY)")
    box.run(f"CREATE TABLE created (pk int PRIMARY KEY) WITH {option}")
    box.run(f"ALTER TABLE altered WITH {option}")
    column = option.split()[0]
    for table in ("created", "altered"):
        where = f"keyspace_name = 'ks' AND table_name = '{table}'"
        assert box.column(f"SELECT {column} FROM system_schema.tables WHERE {where}") == [value]


@pytest.mark.parametrize(
    "option", ["read_repair_chance = 0.5", "dclocal_read_repair_chance = 'x'", "index_interval = 1"]
)
def test_obsolete_properties_have_no_effect(box: EngineBox, option: str) -> None:
    box.run(f"CREATE TABLE t (pk int PRIMARY KEY) WITH {option}")
    assert box.column("SELECT read_repair_chance FROM system_schema.tables WHERE keyspace_name = 'ks'") == [0.0]


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ("speculative_retry = 'often'", ConfigError, "cannot convert OFTEN to speculative_retry"),
        (
            "speculative_retry = '101percentile'",
            ConfigError,
            "PERCENTILE option 'speculative_retry': must be between 0.0 and 100.0",
        ),
        (
            "speculative_retry = '-1percentile'",
            ConfigError,
            "PERCENTILE option 'speculative_retry': must be between 0.0 and 100.0",
        ),
        ("speculative_retry = 'xms'", ConfigError, "cannot convert XMS to speculative_retry"),
        ("gc_grace_seconds = 2147483648", SyntaxException, "Invalid integer value 2147483648 for 'gc_grace_seconds'"),
        ("gc_grace_seconds = {'a': 1}", SyntaxException, "It should be a string"),
        ("comment = {'a': 'b'}", SyntaxException, "Invalid value for property 'comment'. It should be a string"),
        ("default_time_to_live = -1", ConfigError, "default_time_to_live cannot be smaller than 0, (default 0)"),
        ("default_time_to_live = 630720001", ConfigError, "must be less than or equal to 630720000 (got 630720001)"),
        ("paxos_grace_seconds = -1", ConfigError, "paxos_grace_seconds cannot be smaller than 0, (default 864000)"),
        ("min_index_interval = 0", ConfigError, "min_index_interval must be greater than 0"),
        ("max_index_interval = 100", ConfigError, "max_index_interval must be greater than min_index_interval"),
        ("memtable_flush_period_in_ms = 59999", ConfigError, "memtable_flush_period_in_ms must be 0 or greater than"),
        ("bloom_filter_fp_chance = 0", ConfigError, "larger than 6.71e-05 and less than or equal to 1.0 (got 0)"),
        ("bloom_filter_fp_chance = 'x'", SyntaxException, "Invalid double value x for 'bloom_filter_fp_chance'"),
        ("caching = {'keys': 'all'}", ConfigError, "Invalid key value: all"),
        ("caching = {'rows_per_partition': '-1'}", ConfigError, "Invalid key value: -1"),
        ("caching = {'rows': 'ALL'}", ConfigError, "Invalid caching option: rows"),
        ("compression = {'chunk_length_in_kb': 32}", ConfigError, "Missing sub-option 'sstable_compression'"),
        ("compression = {'sstable_compression': 'NoSuch'}", ConfigError, "Unknown sstable_compression: NoSuch"),
        (f"compression = {{{LZ4}, 'chunk_length_in_kb': 31}}", ConfigError, "must be a power of 2."),
        (f"compression = {{{LZ4}, 'chunk_length_in_kb': 0}}", ConfigError, "Invalid negative or null for chunk_length"),
        (f"compression = {{{LZ4}, 'chunk_length_in_kb': 256}}", ConfigError, "must be 128 or less."),
        (
            f"compression = {{{LZ4}, 'crc_check_chance': 2}}",
            ConfigError,
            "crc_check_chance must be between 0.0 and 1.0.",
        ),
        (
            f"compression = {{{LZ4}, 'compression_level': 2}}",
            ConfigError,
            "Unknown compression option 'compression_level'.",
        ),
        ("compaction = {'min_threshold': 4}", ConfigError, "Missing sub-option 'class' for the 'compaction' option."),
        ("compaction = {'class': 'NoSuch'}", ConfigError, "Unable to find compaction strategy class 'NoSuch'"),
        (
            f"compaction = {{{STCS}, 'tombstone_threshold': -0.4}}",
            ConfigError,
            "tombstone_threshold value (-0.4) must be",
        ),
        (f"compaction = {{{TWCS}, 'tombstone_threshold': 5.5}}", ConfigError, "must be between 0.0 and 1.0"),
        (
            f"compaction = {{{LCS}, 'tombstone_compaction_interval': -7}}",
            ConfigError,
            "value (-7000ms) must be positive",
        ),
        (
            f"compaction = {{{LCS}, 'unchecked_tombstone_compaction': 'maybe'}}",
            ConfigError,
            'unchecked_tombstone_compaction value (maybe) must be "true" or "false"',
        ),
        (f"compaction = {{{LCS}, 'enabled': 'certainly'}}", ConfigError, "enabled value (certainly) must be"),
        (f"compaction = {{{STCS}, 'min_sstable_size': -1}}", ConfigError, "value (-1) must be non negative"),
        (
            f"compaction = {{{STCS}, 'bucket_low': 0.0}}",
            ConfigError,
            "bucket_low value (0) must be between 0.0 and 1.0",
        ),
        (
            f"compaction = {{{ICS}, 'bucket_high': 0.7}}",
            ConfigError,
            "bucket_high value (0.7) must be greater than 1.0",
        ),
        (f"compaction = {{{STCS}, 'cold_reads_to_omit': 3.5}}", ConfigError, "must be between 0.0 and 1.0"),
        (
            f"compaction = {{{STCS}, 'min_threshold': 1}}",
            ConfigError,
            "min_threshold value (1) must be bigger or equal to 2",
        ),
        (
            f"compaction = {{{ICS}, 'space_amplification_goal': 2.2}}",
            ConfigError,
            "value (2.2) must be greater than 1.0",
        ),
        (
            f"compaction = {{{TWCS}, 'compaction_window_unit': 'SECONDS'}}",
            ConfigError,
            "Invalid window unit SECONDS for",
        ),
        (f"compaction = {{{TWCS}, 'compaction_window_size': -8}}", ConfigError, "value (-8) must be greater than 1"),
        (f"compaction = {{{TWCS}, 'timestamp_resolution': 'S'}}", ConfigError, "Invalid timestamp resolution S for"),
        (
            f"compaction = {{{LCS}, 'sstable_size_in_mb': -5}}",
            ConfigError,
            "sstable_size_in_mb value (-5) must be positive",
        ),
        (
            f"compaction = {{{LCS}, 'sstable_size_in_mb': 2147483648}}",
            SyntaxException,
            "Invalid integer value 2147483648 for 'sstable_size_in_mb'",
        ),
        (
            f"compaction = {{{LCS}, 'compaction_window_size': 4}}",
            ConfigError,
            'Invalid compaction strategy options {"compaction_window_size": "4"} for chosen strategy type',
        ),
        (f"compaction = {{{ICS}, 'cold_reads_to_omit': 0.5}}", ConfigError, "Invalid compaction strategy options"),
        (
            f"compaction = {{{TWCS}, 'compaction_window_unit': 'MINUTES'}} AND default_time_to_live = 86400",
            ConfigError,
            "can lead to 1440 windows",
        ),
        ("tombstone_gc = {'mode': 'never'}", ConfigError, "Invalid value for tombstone_gc option mode: never"),
        ("per_partition_rate_limit = {'max_reads_per_second': -1}", ConfigError, "per_partition_rate_limit"),
        ("per_partition_rate_limit = {'max_scans': 1}", ConfigError, "max_scans"),
        ("synchronous_updates = true", InvalidRequest, "only applicable to materialized views, not to base tables"),
    ],
)
def test_bad_properties_are_refused(box: EngineBox, option: str, error: type[CqlError], message: str) -> None:
    box.run("CREATE TABLE t (pk int PRIMARY KEY)")
    for statement in (f"CREATE TABLE x (pk int PRIMARY KEY) WITH {option}", f"ALTER TABLE t WITH {option}"):
        with pytest.raises(error, match=re.escape(message)):
            box.run(statement)
