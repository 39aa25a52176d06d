"""What the connector loses, refuses, or loops over: the differences that docs/debezium.md lists, one by one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from connectorcases import cases, events_of, records_of
from logcells import LAYOUT, cells

from rscylla.cdc.rows.changes import Change
from rscylla.debezium import DIFFERENCES, Emitter, JsonConverter, Record, Settings
from rscylla.debezium.settings import CONNECTOR_VERSION
from rscylla.errors import ConfigError, MalformedData, MetadataError
from rscylla.publish import DebeziumMessages

PAGE = (Path(__file__).parents[3] / "docs" / "debezium.md").read_text()
KEYSPACE = (
    "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
    "AND tablets = {'enabled': false};\n"
)
IMAGES = "WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
ADVANCED = {"topic.prefix": "p", "cdc.output.format": "advanced", "cdc.include.before": "full"}
ADVANCED |= {"cdc.include.after": "full"}
LEGACY = {"topic.prefix": "p"}


def produced(schema: str, statements: str, properties: dict[str, str]) -> list[tuple[Any, Any]]:
    """Return keys and values as JSON has them."""
    converter = JsonConverter(schemas=False)
    found = []
    for record in records_of(events_of(KEYSPACE + schema, statements), properties):
        key, value = converter.key(record), converter.value(record)
        found.append((key and json.loads(key), value and json.loads(value)))
    return found


def row_with(operation: int | None) -> Change:
    """Return a change of one row of the log; None: its operation has expired."""
    row = cells({"op": operation or 0, "ck": 1}, LAYOUT.columns)
    if operation is None:
        row[LAYOUT.operation] = None
    return Change(LAYOUT, tuple(row))


def of_case(name: str, **more: str) -> list[Record]:
    return list(cases()[name].records(**more))


def test_the_page_has_a_row_for_each_option() -> None:
    assert set(re.findall(r"\| `rscylla\.like\.connector=([a-z-]+)` \|", PAGE)) == set(DIFFERENCES)


def test_a_change_without_a_preimage_comes_at_once_and_with_its_own_time() -> None:
    records = [r for r in of_case("images-both-full") if r.key == {"pk": 2} and r.value is not None]
    update, insert, _ = (r.value for r in records)
    assert (update["op"], update["before"], update["after"]) == ("u", None, {"a": 5, "b": None, "pk": 2})
    assert update["source"]["ts_us"] == 1768471276076228
    assert (insert["op"], insert["before"]["a"], insert["after"]["a"]) == ("c", None, 5)


def test_a_batch_that_writes_and_deletes_a_row_is_two_records() -> None:
    key = {"grp": 1, "id": 3}
    records = [r.value for r in of_case("batches-advanced-full") if r.key == key and r.value is not None]
    assert [(v["op"], v["source"]["ts_us"]) for v in records[1:]] == [("c", 1768471204004012), ("d", 1768471204004012)]


def test_the_first_write_of_a_static_row_comes_at_once() -> None:
    record = next(r for r in of_case("keys-advanced-full-placements") if r.key["kind"] is None)
    assert (record.value["op"], record.value["before"], record.value["after"]["note"]) == ("u", None, "shared")
    assert record.value["source"]["ts_us"] == 1768471201001003


@pytest.mark.parametrize("name", ["placement-after-headers", "placement-payload-key-only"])
def test_records_without_a_key_are_no_error(name: str) -> None:
    assert {JsonConverter(schemas=schemas).key(r) for r in of_case(name) for schemas in (False, True)} == {None}


def test_an_unknown_operation_is_not_dropped_in_silence() -> None:
    emitter = Emitter(Settings(prefix="p"))
    with pytest.raises(MetadataError, match="the operation 77, which this rscylla does not know"):
        emitter.records(row_with(77), 0)
    image, expired = row_with(9), row_with(None)
    assert [emitter.records(change, 0) for change in (image, expired)] == [[], []]


@pytest.mark.parametrize("output_format", ["legacy", "advanced"])
def test_a_cell_that_is_no_value_is_named(output_format: Any) -> None:
    change = row_with(2)
    row = list(change.raw_rows[0])
    row[LAYOUT.keys[1].index] = b"\x01"
    with pytest.raises(MalformedData) as raised:
        Emitter(Settings(prefix="p", output_format=output_format)).records(Change(LAYOUT, tuple(row)), 0)
    assert (raised.value.table, raised.value.column) == (LAYOUT.table.full_name, LAYOUT.keys[1].name)


def test_a_restart_within_a_batch_loses_nothing() -> None:
    case = cases()["restart-mid-batch-legacy"]
    lost = next(line for line in case.ours() if line.key == '{"grp":1,"id":3}')
    assert lost not in case.recorded("first.jsonl") + case.recorded()


@pytest.mark.parametrize(("options", "expected"), [({}, [0, 3, 1, 2, 4, 5]), ("list-order", [3, 1, 2, 4, 5, 0])])
def test_a_list_is_in_its_order(options: Any, expected: list[int]) -> None:
    more = {"rscylla_like_connector": options} if options else {}
    assert of_case("collections-advanced-full", **more)[2].value["after"]["l"] == expected


def test_without_a_placement_records_have_keys() -> None:
    records = of_case("placement-unset")
    assert records[0].key == {"pk": 7, "ck": "a"}
    assert records[0].value["after"]["pk"] == 7
    as_connector = of_case("placement-unset", rscylla_like_connector="null-keys")
    assert (as_connector[0].key, as_connector[0].key_schema) == (None, None)
    assert "pk" not in as_connector[0].value["after"]


def test_deletes_of_ranges_and_partitions_are_records() -> None:
    schema = f"CREATE TABLE k.t (a int, b int, c blob, v int, PRIMARY KEY (a, b, c)) {IMAGES};"
    statements = "DELETE FROM k.t WHERE a = 1 AND b > 2 AND b <= 9;\nDELETE FROM k.t WHERE a = 1;"
    events = events_of(KEYSPACE + schema, statements)
    ranged, partition = records_of(events, ADVANCED)
    assert ranged.key == partition.key == {"a": 1, "b": None, "c": None}
    assert (ranged.value["op"], ranged.value["before"], ranged.value["after"]) == ("d", None, None)
    assert {h.key: h.value for h in ranged.headers} == {
        "cdc.delete": "range",
        "cdc.range.start": '{"b":2}',
        "cdc.range.start.inclusive": "false",
        "cdc.range.end": '{"b":9}',
        "cdc.range.end.inclusive": "true",
    }
    assert [(h.key, h.value) for h in partition.headers] == [("cdc.delete", "partition")]
    assert list(records_of(events, ADVANCED | {"rscylla.like.connector": "silent-deletes"})) == []
    legacy = next(records_of(events, LEGACY))
    assert legacy.value["before"] == {"a": 1, "b": None, "c": None, "v": None}


def test_a_blob_in_a_header_is_base64() -> None:
    headers = {h.key: h.value for r in of_case("keys-advanced-none-headers") for h in r.headers}
    assert headers["pk.p_blob"] == "Af8="


def test_images_are_those_that_the_log_has() -> None:
    """The connector refuses to start for such tables: images that are asked for are missing, or full."""
    records = of_case("images-refused-none")
    assert [r.value["after"] for r in records if r.value is not None] == [None] * 28
    assert {r.topic for r in records if r.value is not None and r.value["before"] is not None} == {"demo.img.pre"}
    whole = {"a": 10, "b": "x", "c": [1, 2], "ck": 1, "pk": 1}
    assert of_case("images-refused-preimage-full")[1].value["before"] == whole


def test_names_with_capitals_are_as_others() -> None:
    """The connector does not find such tables."""
    records = of_case("names-refused-capitals")
    assert {r.topic for r in records} == {"demo.MixedCase.OrderLines", "demo.MixedCase.2nd_table"}
    assert records[0].key == {"Order Id": 1, "line-no": 2}
    assert records[0].key_schema.name == "demo.MixedCase.OrderLines.Key"  # type: ignore[union-attr]


def test_keys_of_maps_tuples_and_udts() -> None:
    schema = (
        'CREATE TYPE k.point ("X" int, y text);\n'
        "CREATE TABLE k.t (m frozen<map<int, text>>, t tuple<int, text>, u frozen<point>, l frozen<list<int>>, v int, "
        f"PRIMARY KEY (m, t, u, l)) {IMAGES};"
    )
    statement = """INSERT INTO k.t (m, t, u, l, v) VALUES ({1: 'a'}, (2, 'b'), {"X": 3, y: 'c'}, [4], 5);"""
    ((key, value),) = produced(schema, statement, ADVANCED)
    assert key == {
        "m": [{"key": 1, "value": "a"}],
        "l": [4],
        "t": {"field_0": 2, "field_1": "b"},
        "u": {"X": 3, "y": "c"},
    }
    assert value["after"] == {**key, "v": 5}
    ((key, value),) = produced(schema, statement, LEGACY)
    assert (key, value["after"]) == ({}, {"v": {"value": 5}})


def test_vectors() -> None:
    schema = f"CREATE TABLE k.t (id int PRIMARY KEY, v vector<float, 3>) {IMAGES};"
    statement = "INSERT INTO k.t (id, v) VALUES (1, [0.1, 2, -1e10]);"
    ((_, value),) = produced(schema, statement, ADVANCED)
    assert value["after"] == {"id": 1, "v": [0.1, 2.0, -1e10]}
    ((_, value),) = produced(schema, statement, LEGACY)
    assert value["after"] == {"id": 1, "v": {"value": [0.1, 2.0, -1e10]}}


@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "PRIMARY KEY (id, ck)"])
def test_a_row_that_expired_is_deleted(key: str) -> None:
    schema = f"CREATE TABLE k.t (id int, ck int, v int, gone timestamp TTL, {key}) {IMAGES};"
    statements = "INSERT INTO k.t (id, ck, v, gone) VALUES (1, 2, 3, '2026-01-15 10:00:00Z');\n-- clock 60\n-- expire"
    _, delete, tombstone = produced(schema, statements, ADVANCED)
    assert (delete[1]["op"], delete[1]["before"]["v"]) == ("d", 3)
    assert tombstone == (delete[0], None)
    assert delete[0] == ({"id": 1, "ck": 2} if "ck" in key else {"id": 1})


def test_an_event_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="granularity='change'"):
        Emitter(Settings(prefix="p")).records(object(), 0)  # type: ignore[arg-type]


def test_the_version_is_that_of_the_connector_unless_it_is_set() -> None:
    assert of_case("windows")[0].value["source"]["version"] == CONNECTOR_VERSION
    assert of_case("windows", rscylla_source_version="2.0.3")[0].value["source"]["version"] == "2.0.3"


def test_a_plan_is_made_once_for_a_layout() -> None:
    first, *others = of_case("windows")
    of_topic = [r for r in others if r.topic == first.topic and r.value is not None]
    assert of_topic
    assert all(r.value_schema is first.value_schema for r in of_topic)


def test_a_payload_key_does_not_hide_a_field_of_the_envelope() -> None:
    with pytest.raises(ConfigError, match="payload-key-name is 'op'"):
        of_case("placement-payload-key-only", **{"cdc.include.primary-key.payload-key-name": "op"})


@pytest.mark.parametrize("images", ["", ", 'preimage': true, 'postimage': true"])
def test_the_legacy_format_does_not_say_that_columns_are_untouched_where_the_log_has_only_keys(images: str) -> None:
    schema = f"CREATE TABLE k.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'delta': 'keys'{images}}}"
    for statement in ("INSERT INTO k.t (pk, v) VALUES (1, 2)", "UPDATE k.t SET v = 3 WHERE pk = 1"):
        with pytest.raises(ConfigError, match=r"k\.t has only keys .*cdc\.output\.format=advanced, or ALTER"):
            produced(schema, statement, LEGACY)
        ((key, value),) = produced(schema, statement, ADVANCED)
        assert (key["pk"], value["op"]) == (1, statement[0].lower().replace("i", "c"))


@pytest.mark.parametrize(
    "given",
    [
        LEGACY,
        LEGACY | {"experimental.preimages.enabled": "true"},
        *(
            ADVANCED | {"cdc.include.before": before, "cdc.include.after": after}
            for before, after in [("only-updated", "none"), ("none", "only-updated"), ("full", "full")]
        ),
    ],
)
def test_an_update_that_does_not_say_what_it_touched_is_refused_where_all_would_look_untouched(
    given: dict[str, str],
) -> None:
    images = "'enabled': true, 'preimage': true, 'postimage': true"
    statements = (
        "INSERT INTO k.t (pk, v) VALUES (1, 2)",
        f"ALTER TABLE k.t WITH cdc = {{{images}, 'delta': 'keys'}}",
        "UPDATE k.t SET v = 3 WHERE pk = 1",
        f"ALTER TABLE k.t WITH cdc = {{{images}, 'delta': 'full'}}",
        "UPDATE k.t SET l = [1] WHERE pk = 1",
    )
    schema = f"{KEYSPACE}CREATE TABLE k.t (pk int PRIMARY KEY, v int, l list<int>) WITH cdc = {{{images}}}"
    events = events_of(schema, "\n".join(statements))
    messages = DebeziumMessages(given)
    for event in (events[0], events[2]):
        assert messages(event)
    with pytest.raises(MetadataError, match=r"an update of k\.t does not say which columns it touched"):
        messages(events[1])
    assert DebeziumMessages(ADVANCED | {"cdc.include.before": "none"})(events[1])


@pytest.mark.parametrize(
    ("given", "said"), [(LEGACY, 1), (LEGACY | {"experimental.preimages.enabled": "true"}, 1), (ADVANCED, 0)]
)
def test_inserts_that_may_lack_values_are_told_once(
    given: dict[str, str], said: int, caplog: pytest.LogCaptureFixture
) -> None:
    statements = (
        "INSERT INTO k.t (pk, v) VALUES (1, 2)",
        "INSERT INTO k.t (pk, v) VALUES (2, 2)",
        "ALTER TABLE k.t WITH cdc = {'enabled': true, 'delta': 'full'}",
        "INSERT INTO k.t (pk) VALUES (3)",
        "INSERT INTO k.t (pk, v) VALUES (4, 2)",
    )
    schema = f"{KEYSPACE}CREATE TABLE k.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true, 'delta': 'keys'}}"
    messages = DebeziumMessages(given)
    events = events_of(schema, "\n".join(statements))
    for event in events[2:]:
        assert messages(event)
    assert not caplog.records
    for event in events:
        assert messages(event)
    assert [r.getMessage()[:35] for r in caplog.records] == ["an insert of k.t has only its key, "] * said
