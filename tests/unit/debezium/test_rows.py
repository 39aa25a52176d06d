"""Records of rows of a base table, for snapshots: with the schemas and the form of those of its changes."""

from __future__ import annotations

from typing import Any

import pytest
from connectorcases import NOW_NS, events_of

from rscylla.cdc.log.table import BaseColumn, Table
from rscylla.debezium import Emitter, Record, RowReader, Settings, transforms_of
from rscylla.driver.pages import Column
from rscylla.errors import MalformedData, MetadataError
from rscylla.types import Type

AT_US = 1_768_471_200_123_456
COLUMNS = (
    ("pk", "partition_key", 0, "int"),
    ("ck", "clustering", 0, "text"),
    ("a", "regular", 0, "text"),
    ("l", "regular", 0, "list<int>"),
    ("m", "regular", 0, "map<int, text>"),
    ("s", "static", 0, "int"),
)
TABLE = Table("k", "t", [BaseColumn(*column) for column in COLUMNS])  # type: ignore[arg-type]
READ = tuple(Column(c.name, c.type) for c in TABLE.columns)
ROW: dict[str, bytes | None] = {
    "pk": b"\0\0\0\1",
    "ck": b"x",
    "a": None,
    "l": bytes.fromhex("00000002 00000004 00000005 00000004 00000006"),
    "m": bytes.fromhex("00000001 00000004 00000001 00000001 61"),
    "s": b"\0\0\0\7",
}
SCHEMA = (
    "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
    "AND tablets = {'enabled': false};\n"
    "CREATE TABLE k.t (pk int, ck text, a text, l list<int>, m map<int, text>, s int static, PRIMARY KEY (pk, ck)) "
    "WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true};"
)
WRITES = "INSERT INTO k.t (pk, ck, l, m) VALUES (1, 'x', [5, 6], {1: 'a'});\nUPDATE k.t SET s = 7 WHERE pk = 1;"
ADVANCED: dict[str, Any] = {"output_format": "advanced", "after": "full"}


def cells(**more: bytes | None) -> tuple[bytes | None, ...]:
    row = ROW | more
    return tuple(row[column.name] for column in READ)


def read(settings: Settings, **more: Any) -> Record:
    record = Emitter(settings).reader(TABLE, READ).record(cells(), at_us=AT_US, now_ns=NOW_NS, **more)
    assert record is not None
    return record


def of_changes(settings: Settings) -> list[Record]:
    emitter = Emitter(settings)
    return [r for event in events_of(SCHEMA, WRITES) for r in emitter.records(event, NOW_NS)]


@pytest.mark.parametrize("placement", [None, ("kafka-key", "payload-key", "kafka-headers"), ("payload-after",)])
def test_a_row_is_like_the_change_that_wrote_it(placement: Any) -> None:
    settings = Settings(prefix="p", placement=placement, **ADVANCED)
    insert, static = of_changes(settings)
    for change, row in ((insert, read(settings)), (static, read(settings, static=True))):
        assert (row.topic, row.key, row.key_schema) == (change.topic, change.key, change.key_schema)
        assert (row.headers, row.value_schema) == (change.headers, change.value_schema)
        assert row.value["after"] == change.value["after"]
        assert list(row.value["after"]) == list(change.value["after"])
        assert (list(row.value), list(row.value["source"])) == (list(change.value), list(change.value["source"]))


def test_a_row_says_that_it_was_read() -> None:
    value = read(Settings(prefix="p", **ADVANCED)).value
    assert (value["op"], value["before"], value["ts_ms"], value["ts_us"]) == ("r", None, NOW_NS // 10**6, None)
    source = {name: value["source"][name] for name in ("snapshot", "ts_ms", "ts_us", "ts_ns", "table_name")}
    assert source == {
        "snapshot": "true",
        "ts_ms": AT_US // 1000,
        "ts_us": AT_US,
        "ts_ns": AT_US // 1000 * 10**6,
        "table_name": "t",
    }
    last = read(Settings(prefix="p", **ADVANCED), snapshot="last")
    assert last.value["source"]["snapshot"] == "last"


def test_the_row_is_whole_whatever_images_are_configured() -> None:
    value = read(Settings(prefix="p", output_format="advanced")).value
    after = {"a": None, "ck": "x", "l": [5, 6], "m": [{"key": 1, "value": "a"}], "pk": 1, "s": None}
    assert (value["after"], value["before"]) == (after, None)


def test_in_the_legacy_format_a_null_column_is_a_cell_of_null() -> None:
    settings = Settings(prefix="p")
    row, insert = read(settings), of_changes(settings)[0]
    assert row.value["after"] == {"a": {"value": None}, "ck": "x", "pk": 1, "s": None}
    assert (row.value_schema, row.key) == (insert.value_schema, insert.key)
    assert row.value["ts_ns"] == NOW_NS
    unwrap = transforms_of({"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"})
    assert unwrap(row).value == row.value["after"]  # type: ignore[union-attr]
    assert read(settings, static=True).value["after"] == {"a": None, "ck": None, "pk": 1, "s": {"value": 7}}


def test_rows_that_are_skipped_are_no_records() -> None:
    reader = Emitter(Settings(prefix="p", skipped="r")).reader(TABLE, READ)
    assert reader.record(cells(), at_us=AT_US, now_ns=NOW_NS) is None


def test_columns_that_are_not_of_the_table_are_left_out() -> None:
    token = Column("system.token(pk)", Type("bigint"))
    reader = Emitter(Settings(prefix="p", **ADVANCED)).reader(TABLE, (token, *READ))
    row = reader.record((bytes(8), *cells()), at_us=AT_US, now_ns=NOW_NS)
    assert row == read(Settings(prefix="p", **ADVANCED))


def test_a_cell_that_is_no_value_is_named() -> None:
    reader: RowReader = Emitter(Settings(prefix="p", **ADVANCED)).reader(TABLE, READ)
    with pytest.raises(MalformedData, match=r"^k\.t has bytes in column 'l'"):
        reader.record(cells(l=b"\1"), at_us=AT_US, now_ns=NOW_NS)


def test_rows_without_their_key_are_refused() -> None:
    with pytest.raises(MetadataError, match="'ck'"):
        Emitter(Settings(prefix="p")).reader(TABLE, [c for c in READ if c.name != "ck"])
