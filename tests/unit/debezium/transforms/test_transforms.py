"""The two transforms, and chains of them."""

from __future__ import annotations

from typing import Any

import pytest
from connectorcases import cases

from rscylla.debezium import (
    ExtractChangedRecordState,
    ExtractNewRecordState,
    Field,
    FlattenColumns,
    Header,
    Record,
    RegexRouter,
    Schema,
    transforms_of,
    unknown_options,
)
from rscylla.errors import ConfigError

UNWRAP = "com.scylladb.cdc.debezium.connector.transforms.ScyllaExtractNewRecordState"
FLATTEN = "com.scylladb.cdc.debezium.connector.transforms.ScyllaFlattenColumns"
CONNECT = "org.apache.kafka.connect.transforms."
PREDICATES = f"{CONNECT}predicates."


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """An insert, updates, a delete, its tombstone, an update, and so on, in the legacy format with preimages."""
    bare = {"transforms": ""}
    return list(cases()["smt-unwrap-legacy"].records(**bare))


def chain(**properties: str) -> Any:
    return transforms_of({name.replace("_", "."): value for name, value in properties.items()})


def test_no_transforms_leave_records_as_they_are(records: list[Record]) -> None:
    assert transforms_of({})(records[0]) is records[0]


def test_flattened_rows_have_the_values_of_cells(records: list[Record]) -> None:
    flat = FlattenColumns()(records[1])
    assert flat.value["after"]["qty"] == 5
    assert flat.value["op"] == "u"
    assert flat.value_schema is not None
    assert flat.value_schema.field("after").field("qty") == Schema("int32")  # type: ignore[union-attr]
    assert records[1].value["after"]["qty"] == {"value": 5}
    assert FlattenColumns()(flat) == flat


def test_a_udt_of_one_field_value_is_flattened_but_not_unwrapped() -> None:
    udt = Schema("struct", fields=(Field("value", Schema("int32")),), name="p.k.t.UDT_amount")
    row = Schema("struct", fields=(Field("u", udt),), name="p.k.t.After")
    envelope = Schema("struct", fields=(Field("before", row), Field("after", row)), name="p.k.t.Envelope")
    record = Record("t", None, None, envelope, {"before": None, "after": {"u": {"value": 5}}})
    assert FlattenColumns()(record).value == {"before": None, "after": {"u": 5}}
    unwrapped = ExtractNewRecordState()(record)
    assert unwrapped is not None
    assert unwrapped.value == {"u": {"value": 5}}


@pytest.mark.parametrize(
    ("mode", "ops"),
    [
        ("drop", ["c", "u", "u", "c", "u"]),
        ("tombstone", ["c", "u", "u", "c", None, "u", None]),
        ("rewrite", ["c", "u", "u", "c", "d", "u", "d"]),
        ("rewrite-with-tombstone", ["c", "u", "u", "c", "d", "tombstone", "u", "d", "tombstone"]),
    ],
)
def test_modes_of_deletes(records: list[Record], mode: Any, ops: list[str | None]) -> None:
    unwrap = ExtractNewRecordState(deletes=mode, add_fields=["op"])
    found = [r for r in map(unwrap, records) if r is not None]
    seen = ["tombstone" if r.value_schema is None else r.value and r.value["__op"] for r in found]
    assert seen == ops


def test_fields_and_headers_are_added(records: list[Record]) -> None:
    unwrap = ExtractNewRecordState(
        add_fields=["source.ts_us:at_us", "table_name", "transaction.id", "nothing"],
        fields_prefix="_",
        add_headers=["op", "snapshot"],
    )
    record = unwrap(records[0])
    assert record is not None
    assert record.value["_at_us"] == 1768471201001003
    assert record.value["_table_name"] == "items"
    assert record.value["_transaction_id"] is None
    assert "_nothing" not in record.value
    assert [(h.key, h.value, h.schema.optional) for h in record.headers] == [
        ("__op", "c", True),
        ("__snapshot", "false", True),
    ]
    assert [f.name for f in record.value_schema.fields] == list(record.value)  # type: ignore[union-attr]


def test_a_field_that_is_added_has_no_default(records: list[Record]) -> None:
    record = ExtractNewRecordState(add_fields=["snapshot"], add_headers=["snapshot"])(records[0])
    assert record is not None
    assert record.value["__snapshot"] == "false"
    (header,) = record.headers
    assert record.value_schema.field("__snapshot") == header.schema  # type: ignore[union-attr]
    assert (header.schema.name, header.schema.default, header.schema.optional) == ("io.debezium.data.Enum", None, True)


def test_a_tombstone_that_stays_says_that_it_is_of_a_delete(records: list[Record]) -> None:
    unwrap = ExtractNewRecordState(deletes="rewrite-with-tombstone", add_headers=["op", "db"])
    tombstone = next(r for r in records if r.value is None)
    found = unwrap(tombstone)
    assert found is not None
    assert found.headers == (Header("__op", Schema("string", optional=False), "d"),)


OP, DB = (Header(name, Schema("string"), value) for name, value in (("__op", "d"), ("__db", "shop")))
"""What ``add.headers`` makes of an envelope."""
OF_TOMBSTONE = Header("__op", Schema("string", optional=False), "d")
HEADED = {
    "transforms.t.type": UNWRAP,
    "transforms.t.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "transforms.t.add.headers": "op,db",
}


def headers_of_deletes(**properties: str) -> list[tuple[Header, ...]]:
    """Return the headers of each delete, and of its tombstone, of a case with a chain of transforms."""
    made = cases()["smt-unwrap-legacy"].records(**{"transforms": "t"} | HEADED | properties)
    deletes = [r.headers for r in made if r.value is None or r.value.get("__deleted", "true") == "true"]
    assert len(deletes) == 4
    return deletes


def test_a_tombstone_has_the_headers_that_were_added_to_its_delete() -> None:
    assert headers_of_deletes() == [(OP, DB), (OP, DB, OF_TOMBSTONE)] * 2


def test_a_tombstone_has_them_in_the_first_predicate_already() -> None:
    more = {"transforms": "f,t", "transforms.f.type": f"{CONNECT}Filter", "transforms.f.predicate": "p"}
    more |= {"predicates": "p", "predicates.p.type": f"{PREDICATES}HasHeaderKey", "predicates.p.name": "__db"}
    made = list(cases()["smt-unwrap-legacy"].records(**HEADED | more))
    assert not [r for r in made if r.value is None]
    assert (OP, DB) in [r.headers for r in made]


@pytest.mark.parametrize(
    "first",
    [{"type": FLATTEN}, {"type": f"{CONNECT}RegexRouter", "regex": ".*", "replacement": "$0"}],
    ids=["flatten", "route"],
)
def test_a_transform_that_makes_another_record_of_the_delete_ends_what_they_share(first: dict[str, str]) -> None:
    more = {f"transforms.a.{name}": value for name, value in first.items()} | {"transforms": "a,t"}
    assert headers_of_deletes(**more) == [(OP, DB), (OF_TOMBSTONE,)] * 2


def test_a_delete_that_is_dropped_leaves_its_headers_to_its_tombstone() -> None:
    older = {"transforms.t.delete.tombstone.handling.mode": "", "transforms.t.drop.tombstones": "false"}
    made = list(cases()["smt-unwrap-legacy"].records(transforms="t", **HEADED | older))
    assert [r.headers for r in made if r.value is None] == [(OP, DB, OF_TOMBSTONE)] * 2


def test_a_column_of_the_name_of_the_mark_of_deletes_is_refused() -> None:
    row = Schema("struct", fields=(Field("__deleted", Schema("string")),), name="p.k.t.After")
    envelope = Schema("struct", fields=(Field("before", row), Field("after", row)), name="p.k.t.Envelope")
    record = Record("t", None, None, envelope, {"before": None, "after": {"__deleted": "mine"}})
    with pytest.raises(ConfigError, match="have a column '__deleted' already"):
        ExtractNewRecordState(deletes="rewrite")(record)


def test_a_struct_is_added_whole_but_the_transaction_which_is_always_null(records: list[Record]) -> None:
    record = ExtractNewRecordState(add_fields=["source", "transaction"], add_headers=["source"])(records[0])
    assert record is not None
    assert record.value["__source"] == records[0].value["source"]
    assert record.value["__transaction"] is None
    source, transaction = (record.value_schema.field(n) for n in ("__source", "__transaction"))  # type: ignore[union-attr]
    assert source is not None
    assert source.optional
    assert source.fields == records[0].value_schema.field("source").fields  # type: ignore[union-attr]
    assert transaction == Schema("struct", name="event.block", version=1)
    assert record.headers == (Header("__source", source, records[0].value["source"]),)


def test_two_fields_of_one_name_are_refused(records: list[Record]) -> None:
    with pytest.raises(ConfigError, match=r"add\.fields makes a second field '__op'"):
        ExtractNewRecordState(add_fields=["op", "id:op"])(records[0])


LISTED = Schema("array", items=Schema("string"), name="gone")


def gone(record: Record, *names: str) -> Record:
    return record._replace(headers=(Header("gone", LISTED, list(names)),))


def test_fields_that_a_header_lists_are_left_out(records: list[Record]) -> None:
    drop = ExtractNewRecordState(drop_header="gone", add_fields=["op"])
    found = drop(gone(records[1], "name", "__op", "nothing"))
    assert found is not None
    assert list(found.value) == [f.name for f in found.value_schema.fields] == ["at", "ck", "pk", "price", "qty"]  # type: ignore[union-attr]
    assert found.key == records[1].key
    assert drop(gone(records[1], "nothing")) == ExtractNewRecordState(add_fields=["op"])(gone(records[1], "nothing"))
    assert list(drop(records[1]).value) == ["at", "ck", "name", "pk", "price", "qty", "__op"]  # type: ignore[union-attr]


def test_fields_are_left_out_of_the_key_too_if_so_asked(records: list[Record]) -> None:
    found = ExtractNewRecordState(drop_header="gone", drop_from_key=True)(gone(records[1], "ck"))
    assert found is not None
    assert found.key == {"pk": 7}
    assert found.key_schema == Schema(
        "struct", fields=(Field("pk", Schema("int32")),), name="demo.shop.items.Key", optional=False
    )
    assert "ck" not in found.value


def test_a_required_field_is_left_out_only_if_schemas_may_become_incompatible() -> None:
    row = Schema("struct", fields=(Field("a", Schema("int32", optional=False)), Field("b", Schema("int32"))), name="r")
    envelope = Schema("struct", fields=(Field("before", row), Field("after", row)), name="p.k.t.Envelope")
    record = gone(Record("t", None, None, envelope, {"before": None, "after": {"a": 1, "b": 2}}), "a", "b")
    assert ExtractNewRecordState(drop_header="gone")(record).value == {"a": 1}  # type: ignore[union-attr]
    assert ExtractNewRecordState(drop_header="gone", drop_optional=False)(record).value == {}  # type: ignore[union-attr]


def test_a_header_without_a_list_is_refused(records: list[Record]) -> None:
    with pytest.raises(ConfigError, match=r"drop\.fields\.header\.name is '__op', a header that has no list"):
        ExtractNewRecordState(drop_header="__op", add_headers=["op"])(records[0])


def test_what_did_not_change_is_left_out_by_both_transforms() -> None:
    properties = {
        "transforms": "c,u",
        "transforms.c.type": "io.debezium.transforms.ExtractChangedRecordState",
        "transforms.c.header.changed.name": "changed",
        "transforms.c.header.unchanged.name": "same",
        "transforms.u.type": UNWRAP,
        "transforms.u.cdc.output.format": "advanced",
        "transforms.u.drop.fields.header.name": "same",
    }
    update = next(r for r in cases()["smt-unwrap-advanced"].records(transforms="") if r.value["op"] == "u")
    found = transforms_of(properties)(update)
    assert found is not None
    before, after = update.value["before"], update.value["after"]
    assert found.value == {name: value for name, value in after.items() if value != before[name]}
    assert [(h.key, h.value) for h in found.headers] == [
        ("changed", list(found.value)),
        ("same", [name for name in after if name not in found.value]),
    ]


def test_only_records_with_both_images_say_what_changed(records: list[Record]) -> None:
    say = ExtractChangedRecordState(changed="changed")
    for record in records:
        both = record.value is not None and None not in (record.value["before"], record.value["after"])
        assert [h.key for h in say(record).headers] == ["changed"] * both


def test_numbers_that_java_tells_apart_differ() -> None:
    row = Schema("struct", fields=(Field("a", Schema("float64")), Field("b", Schema("float64"))), name="r")
    envelope = Schema("struct", fields=(Field("before", row), Field("after", row)), name="p.k.t.Envelope")
    images = {"before": {"a": float("nan"), "b": 0.0}, "after": {"a": float("nan"), "b": -0.0}}
    (header,) = ExtractChangedRecordState(changed="c")(Record("t", None, None, envelope, images)).headers
    assert header.value == ["b"]


def test_options_that_are_not_known_have_no_effect_and_are_named(records: list[Record]) -> None:
    properties = {"transforms": "t", "transforms.t.type": UNWRAP, "transforms.t.drop.tombstone": "true"}
    assert transforms_of(properties)(records[0]) == ExtractNewRecordState()(records[0])
    assert unknown_options(properties | {"transforms.t.predicate": "p"}) == ["transforms.t.drop.tombstone"]


def test_a_record_without_an_envelope_passes(records: list[Record]) -> None:
    once = ExtractNewRecordState()(records[0])
    assert once is not None
    assert ExtractNewRecordState()(once) == once


def test_routing_takes_text_only(records: list[Record]) -> None:
    assert ExtractNewRecordState(route_by_field="ck")(records[0]).topic == "a"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="'qty', no text"):
        ExtractNewRecordState(route_by_field="qty")(records[0])
    with pytest.raises(ConfigError, match=r"'no', which records of demo\.shop\.items lack"):
        ExtractNewRecordState(route_by_field="no")(records[0])


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"type": f"{PREDICATES}RecordIsTombstone"}, True),
        ({"type": f"{PREDICATES}TopicNameMatches", "pattern": ".*items"}, False),
        ({"type": f"{PREDICATES}TopicNameMatches", "pattern": "items"}, True),
        ({"type": f"{PREDICATES}HasHeaderKey", "name": "h"}, True),
    ],
)
def test_a_transform_applies_where_its_predicate_holds(
    records: list[Record], options: dict[str, str], kept: bool
) -> None:
    properties = {"transforms": "f", "transforms.f.type": FLATTEN, "transforms.f.predicate": "p"}
    properties |= {f"predicates.p.{name}": value for name, value in options.items()}
    assert (transforms_of(properties)(records[0]) is records[0]) is kept
    negated = transforms_of(properties | {"transforms.f.negate": "true"})
    assert (negated(records[0]) is records[0]) is not kept


@pytest.mark.parametrize(
    ("regex", "replacement", "topic"),
    [
        (r"demo\.(.*)\.(.*)", "$1-$2", "shop-items"),
        (r"(?<first>\w+)\..*", "${first}.all", "demo.all"),
        (r"demo", "other", "demo.shop.items"),  # not the whole name
        (r"(.)(.)(.*)", "$11$0", "d1demo.shop.items"),
        (r".*", r"\$1\\", "$1\\"),
    ],
)
def test_topics_are_routed_as_java_replaces(records: list[Record], regex: str, replacement: str, topic: str) -> None:
    properties = {"transforms": "r", "transforms.r.type": f"{CONNECT}RegexRouter"}
    properties |= {"transforms.r.regex": regex, "transforms.r.replacement": replacement}
    assert transforms_of(properties)(records[0]) == records[0]._replace(topic=topic)
    assert unknown_options(properties) == []


def test_a_filter_drops_what_its_predicate_holds_for(records: list[Record]) -> None:
    properties = {
        "transforms": "f",
        "transforms.f.type": f"{CONNECT}Filter",
        "transforms.f.predicate": "p",
        "predicates.p.type": f"{PREDICATES}RecordIsTombstone",
    }
    apply = transforms_of(properties)
    assert [apply(r) for r in records] == [None if r.value is None else r for r in records]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"transforms": "t"}, "transforms.t.type is missing"),
        ({"transforms": "t", "transforms.t.type": "org.example.X"}, "transforms.t.type is org.example.X; known are"),
        (
            {"transforms": "t", "transforms.t.type": UNWRAP, "transforms.t.drop.fields.from.key": "x"},
            "drop.fields.from.key is 'x', which is neither",
        ),
        (
            {"transforms": "t", "transforms.t.type": UNWRAP, "transforms.t.delete.handling.mode": "keep"},
            "is one of drop",
        ),
        (
            {"transforms": "t", "transforms.t.type": UNWRAP, "transforms.t.drop.tombstones": "1"},
            "drop.tombstones is '1', which is neither true nor false",
        ),
        (
            {"transforms": "t", "transforms.t.type": UNWRAP, "transforms.t.add.fields": "a:b:c"},
            "'a:b:c' is not a field",
        ),
        ({"transforms": "t", "transforms.t.type": FLATTEN, "transforms.t.predicate": "p"}, "predicates.p needs a type"),
        (
            {
                "transforms": "t",
                "transforms.t.type": FLATTEN,
                "transforms.t.predicate": "p",
                "predicates.p.type": f"{PREDICATES}TopicNameMatches",
                "predicates.p.pattern": "(",
            },
            "predicates.p.pattern is no regular expression",
        ),
        ({"transforms": "t", "transforms.t.type": f"{CONNECT}RegexRouter"}, "RegexRouter needs regex"),
        (
            {
                "transforms": "t",
                "transforms.t.type": f"{CONNECT}RegexRouter",
                "transforms.t.regex": "a(b)",
                "transforms.t.replacement": "$2",
            },
            "replacement is '.2', which 'a.b.' has no group for",
        ),
        (
            {
                "transforms": "t",
                "transforms.t.type": f"{CONNECT}RegexRouter",
                "transforms.t.regex": "a",
                "transforms.t.replacement": "5$",
            },
            "stands for nothing",
        ),
    ],
)
def test_what_is_not_possible_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        transforms_of(properties)


def test_the_mode_is_one_that_is_known() -> None:
    with pytest.raises(ConfigError, match="the mode of deletes is 'keep'"):
        ExtractNewRecordState(deletes="keep")  # type: ignore[arg-type]


def test_debeziums_own_transform_leaves_cells(records: list[Record]) -> None:
    properties = {"transforms": "t", "transforms.t.type": "io.debezium.transforms.ExtractNewRecordState"}
    found = transforms_of(properties)(records[0])
    assert found is not None
    assert found.value["qty"] == {"value": 3}


def test_a_chain_ends_where_a_record_is_dropped(records: list[Record]) -> None:
    both = {"transforms": "u,f", "transforms.u.type": UNWRAP, "transforms.f.type": FLATTEN}
    apply = transforms_of(both)
    assert apply(next(r for r in records if r.value is None)) is None


def test_a_topic_that_is_named_by_a_row_is_told_by_no_error(records: list[Record]) -> None:
    route = ExtractNewRecordState(route_by_field="ck")
    for router in (lambda record: record, RegexRouter("(.*)", "x.$1")):
        routed = router(route(records[0]))  # type: ignore[arg-type]
        assert routed.topic in ("a", "x.a")
        again = records[0]._replace(topic=routed.topic)
        for field in ("qty", "no"):
            with pytest.raises(ConfigError, match="records of a topic that is named by a row"):
                ExtractNewRecordState(route_by_field=field)(again)
    assert type(RegexRouter("(.*)", "x.$1")(records[0]).topic) is str
