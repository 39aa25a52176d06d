"""What is read of a base table: its columns, its options, and the times of their changes."""

from __future__ import annotations

import pytest
from fakelog import NOW_US, SECOND, FakeLog, pack_options
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.query import LOG_SUFFIX
from rscylla.cdc.table import LOG_DROP_AHEAD_US, _cdc_options, read_table
from rscylla.errors import MetadataError


@given(st.dictionaries(st.text(), st.text(), max_size=6))
def test_options_are_read_as_scylla_packs_them(options: dict[str, str]) -> None:
    packed = pack_options(**options)
    assert _cdc_options(packed) == options


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), min_size=1, max_size=3), st.data())
def test_options_that_are_cut_are_refused(options: dict[str, str], data: st.DataObject) -> None:
    packed = pack_options(**options)
    with pytest.raises(MetadataError, match="cannot be read"):
        _cdc_options(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_no_options_are_none() -> None:
    assert _cdc_options(None) is None


def test_a_table_is_read_with_its_keys_in_order(clock: object) -> None:
    base = (("b", "clustering", "int"), ("a", "partition_key", "int"), ("s", "static", "text"), ("v", "regular", "int"))
    log = FakeLog(clock, base=base, ttl_s=7)  # type: ignore[arg-type]
    table = read_table(log, "ks", "t")  # type: ignore[arg-type]
    assert (table.ttl_s, table.enabled, table.log_id) == (7, True, log.log_id)
    assert [c.name for c in (*table.partition_key, *table.clustering_key)] == ["a", "b"]


def test_a_table_is_looked_up_among_its_own_and_not_all_of_its_keyspace(log: FakeLog) -> None:
    read_table(log, "ks", "t")  # type: ignore[arg-type]
    (asked,) = [cql for cql in log.metadata if "system_schema.tables" in cql]
    assert "table_name IN" in asked


@pytest.mark.parametrize("per_ms", [1, 1000], ids=["milliseconds", "microseconds, as Scylla"])
def test_the_time_of_a_rename_is_told_in_either_unit(log: FakeLog, per_ms: int) -> None:
    at_ms = NOW_US // 1000
    name = log.table + LOG_SUFFIX
    log.dropped = [
        (name, "gone", "int", (at_ms + 9000) * per_ms),
        (name, "cdc$deleted_gone", "boolean", (at_ms + 9000) * per_ms),
        (name, "ck", "int", at_ms * per_ms),
        (log.table, "gone", "int", at_ms * per_ms),
    ]
    table = read_table(log, log.keyspace, log.table)  # type: ignore[arg-type]
    assert table.dropped == (("gone", "int"),)
    assert table.renamed_us is not None
    assert 0 <= table.renamed_us + LOG_DROP_AHEAD_US - at_ms * 1000 < 1000
    assert table.may_lack_keys(at_ms * 1000 - SECOND)
    assert not table.may_lack_keys(at_ms * 1000 + SECOND)
    assert "renamed at 20" in table.lost_keys
