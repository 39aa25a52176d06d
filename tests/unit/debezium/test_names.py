"""Names of schemas and fields, as Debezium adjusts them for Avro."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from connectorcases import NOW_NS, cases, events_of, records_of

from rscylla.debezium import Emitter, Field, Schema, Settings, avro_schema
from rscylla.debezium.names import field_name, schema_name
from rscylla.errors import ConfigError

KEYSPACE = (
    "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
    "AND tablets = {'enabled': false};\n"
)


@pytest.mark.parametrize(
    ("text", "avro", "in_unicode", "field", "field_in_unicode"),
    [
        # What SchemaNameAdjuster of Debezium 2.7.4 made.
        ("demo.items.Key", "demo.items.Key", "demo.items.Key", "demo_items_Key", "demo_u002eitems_u002eKey"),
        ("Order Id", "Order_Id", "Order_u0020Id", "Order_Id", "Order_u0020Id"),
        ("1st", "_1st", "_u0031st", "_1st", "_u0031st"),
        ("a_b", "a_b", "a_u005fb", "a_b", "a_u005fb"),
        ("é", "_", "_u00e9", "_", "_u00e9"),
        ("-x", "_x", "_u002dx", "_x", "_u002dx"),
        ("\U0001f600x", "__x", "_ud83d_ude00x", "__x", "_ud83d_ude00x"),
        (
            "d-1.2k.t$.Key",
            "d_1.2k.t_.Key",
            "d_u002d1.2k.t_u0024.Key",
            "d_1_2k_t__Key",
            "d_u002d1_u002e2k_u002et_u0024_u002eKey",
        ),
        ("", "", "", "", ""),
    ],
)
def test_names(text: str, avro: str, in_unicode: str, field: str, field_in_unicode: str) -> None:
    assert (schema_name(text), schema_name(text, "avro_unicode")) == (avro, in_unicode)
    assert (field_name(text, "avro"), field_name(text, "avro_unicode")) == (field, field_in_unicode)
    assert field_name(text, "none") == text


def test_a_prefix_may_begin_with_a_digit() -> None:
    (heartbeat, *_) = cases()["scalars-legacy"].records(topic_prefix="1st-demo")
    assert heartbeat.key_schema is not None
    assert heartbeat.key_schema.name == "_1st_demo.lab.scalars.Key"


@pytest.mark.parametrize(
    ("mode", "names"), [("avro", ["Order_Id", "line_no"]), ("avro_unicode", ["Order_u0020Id", "line_u002dno"])]
)
def test_names_of_fields_are_adjusted_on_request(mode: Any, names: list[str]) -> None:
    for record in cases()["names-refused-capitals"].records(field_name_adjustment_mode=mode):
        for schema in (record.key_schema, record.value_schema):
            assert schema is None or avro_schema(schema)
        if record.topic == "demo.MixedCase.OrderLines":
            assert list(record.key) == names
            assert record.value is None or record.value["after"] is None or record.value["after"].keys() >= set(names)


def test_fields_of_types_are_adjusted_and_headers_are_not() -> None:
    schema = (
        'CREATE TYPE k.point ("X-1" int);\n'
        "CREATE TABLE k.t (\"p-k\" int PRIMARY KEY, u frozen<point>) WITH cdc = {'enabled': true, 'postimage': true};"
    )
    statement = 'INSERT INTO k.t ("p-k", u) VALUES (1, {"X-1": 2});'
    properties = {"topic.prefix": "p", "cdc.output.format": "advanced", "cdc.include.after": "full"}
    properties |= {"field.name.adjustment.mode": "avro"}
    properties |= {"cdc.include.primary-key.placement": "kafka-key,payload-after,kafka-headers"}
    (record,) = records_of(events_of(KEYSPACE + schema, statement), properties)
    assert (record.key, record.value["after"]) == ({"p_k": 1}, {"p_k": 1, "u": {"X_1": 2}})
    assert [h.key for h in record.headers] == ["pk.p-k"]


def test_columns_that_would_share_a_field_are_refused() -> None:
    schema = "CREATE TABLE k.t (id int PRIMARY KEY, \"a-b\" int, a_b int) WITH cdc = {'enabled': true};"
    (event,) = events_of(KEYSPACE + schema, "INSERT INTO k.t (id, a_b) VALUES (1, 2);")
    with pytest.raises(ConfigError, match=r"two columns of k\.t have the field 'a_b'"):
        Emitter(Settings(prefix="p", field_names="avro")).records(event, NOW_NS)
    assert Emitter(Settings(prefix="p", field_names="avro_unicode")).records(event, NOW_NS)


def names_in(schema: Schema | None) -> Iterator[str]:
    """Yield the names of a schema and of all within it."""
    if schema is not None:
        yield from filter(None, [schema.name])
        for part in (schema.items, *(f.schema for f in schema.fields)):
            yield from names_in(part)


@pytest.mark.parametrize(
    ("mode", "type_", "entry"),
    [
        ("none", "UDT_My Type", "MapEntry_INT_UDT_b_c é"),  # as the connector, whatever the mode
        ("avro", "UDT_My_Type", "MapEntry_INT_UDT_b_c__"),
        ("avro_unicode", "UDT_u005fMy_u0020Type", "MapEntry_u005fINT_u005fUDT_u005fb_u002dc_u0020_u00e9"),
    ],
)
def test_names_of_types_within_columns(mode: str, type_: str, entry: str) -> None:
    schema = (
        'CREATE TYPE k."My Type" (x int);\nCREATE TYPE k."b-c é" (x int);\n'
        'CREATE TABLE k.t (id int PRIMARY KEY, u frozen<"My Type">, m map<int, frozen<"b-c é">>) '
        "WITH cdc = {'enabled': true, 'postimage': true};"
    )
    properties = {"topic.prefix": "p-1", "cdc.output.format": "advanced", "cdc.include.after": "full"}
    properties |= {"schema.name.adjustment.mode": mode}
    events = events_of(KEYSPACE + schema, "INSERT INTO k.t (id, u, m) VALUES (1, {x: 1}, {1: {x: 2}});")
    (record,) = records_of(events, properties)
    table = "p_u002d1.k.t" if mode == "avro_unicode" else "p_1.k.t"
    assert {f"{table}.{type_}", f"{table}.{entry}", f"{table}.After"} <= set(names_in(record.value_schema))
    if mode == "none":
        with pytest.raises(ConfigError, match=r"Avro does not take; schema\.name\.adjustment\.mode=avro adjusts"):
            avro_schema(record.value_schema)  # type: ignore[arg-type]
    else:
        assert avro_schema(record.value_schema)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "of_column", ["frozen<same>", "list<frozen<same>>", "frozen<tuple<int, same>>", "frozen<outer>"]
)
def test_fields_of_a_type_that_would_share_a_name_are_refused(of_column: str) -> None:
    schema = (
        'CREATE TYPE k.same ("a$1" int, "a#1" text);\nCREATE TYPE k.outer (m map<int, frozen<same>>);\n'
        f"CREATE TABLE k.t (id int PRIMARY KEY, c {of_column}) WITH cdc = {{'enabled': true, 'postimage': true}};"
    )
    (event,) = events_of(KEYSPACE + schema, "INSERT INTO k.t (id) VALUES (1);")
    with pytest.raises(ConfigError, match="two fields of the type same have the name 'a_1'"):
        Emitter(Settings(prefix="p", output_format="advanced", field_names="avro")).records(event, NOW_NS)
    for mode in ("none", "avro_unicode"):
        assert Emitter(Settings(prefix="p", output_format="advanced", field_names=mode)).records(event, NOW_NS)


def test_a_struct_has_no_two_fields_of_one_name() -> None:
    with pytest.raises(ConfigError, match=r"two fields of p\.Row have the name 'a'"):
        Schema("struct", fields=tuple(Field(name, Schema("int32")) for name in ("a", "b", "a")), name="p.Row")
