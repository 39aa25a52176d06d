"""JSON in CQL: SELECT JSON, INSERT JSON and what it puts into the log, toJson, fromJson, every type's encoding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from enginebox import EngineBox
from hypothesis import given
from hypothesis import strategies as st

from rscylla.embedded.errors import CqlError, InvalidRequest
from rscylla.embedded.types import (
    BLOB,
    INT,
    NATIVE_TYPES,
    TEXT,
    VARINT,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
)
from rscylla.embedded.types.jsontext import from_json, read_json, to_json

WIDE = """CREATE TABLE t (
    pk int, ck int, v int, w text, s int STATIC, m map<int, text>, l list<int>, u pair, f frozen<set<int>>,
    PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}"""


@pytest.fixture
def box() -> EngineBox:
    box = EngineBox()
    box.run("CREATE TYPE pair (x int, y text)")
    box.run(WIDE)
    return box


# ---------------------------------------------------------------- encodings

VALUES: list[tuple[str, str, str]] = [
    ("ascii", '"a\\"b"', '"a\\"b"'),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("bigint", '"12"', "12"),
    ("blob", '"0x00ff"', '"0x00ff"'),
    ("boolean", "true", "true"),
    ("boolean", '" TRUE "', "true"),
    ("date", '"2026-11-21"', '"2026-11-21"'),
    ("decimal", "1.05", "1.05"),
    ("decimal", '"12"', "12"),
    ("decimal", "1E-10000", "1E-10000"),
    ("double", "1.5", "1.5"),
    ("double", "2", "2"),
    ("duration", '"1y2mo3d4h5m6s7ms8us9ns"', '"1y2mo3d4h5m6s7ms8us9ns"'),
    ("duration", '"-90m"', '"-1h30m"'),
    ("float", "0.1", "0.1"),
    ("inet", '"127.0.0.1"', '"127.0.0.1"'),
    ("int", "12.0", "12"),
    ("int", "1.2e3", "1200"),
    ("smallint", "-1", "-1"),
    ("text", '"grün\\n"', '"grün\\n"'),
    ("time", '"10:00:05.000000001"', '"10:00:05.000000001"'),
    ("timestamp", '"2026-11-21 10:00:05.123+0000"', '"2026-11-21 10:00:05.123Z"'),
    ("timestamp", "5", '"1970-01-01 00:00:00.005Z"'),
    ("timeuuid", '"13814000-1dd2-11b2-8080-808080808080"', '"13814000-1dd2-11b2-8080-808080808080"'),
    ("tinyint", "127", "127"),
    ("uuid", '"00000000-0000-4000-8000-000000000001"', '"00000000-0000-4000-8000-000000000001"'),
    ("varint", "123456789012345678901234567890", "123456789012345678901234567890"),
]


@pytest.mark.parametrize(("kind", "given_text", "text"), VALUES)
def test_native_values(kind: str, given_text: str, text: str) -> None:
    cql_type = NATIVE_TYPES[kind]
    encoded = from_json(cql_type, read_json(given_text))
    assert to_json(cql_type, encoded) == text
    assert from_json(cql_type, read_json(text)) == encoded


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_varint_has_any_number_of_digits(quote: str) -> None:
    assert to_json(VARINT, from_json(VARINT, read_json(quote + "9" * 5000 + quote))) == "9" * 5000


def test_every_native_type_has_an_example() -> None:
    assert {kind for kind, _, _ in VALUES} == {*NATIVE_TYPES} - {"counter", "varchar"}


PAIR = UdtType("ks", "pair", ("x", "y"), (INT, TEXT))


@pytest.mark.parametrize(
    ("cql_type", "text"),
    [
        (ListType(INT), "[1, 2, 1]"),
        (SetType(TEXT), '["a", "b"]'),
        (MapType(TEXT, INT), '{"a": 1, "b": 2}'),
        (MapType(INT, ListType(INT)), '{"1": [2], "3": []}'),
        (MapType(NATIVE_TYPES["uuid"], INT), '{"00000000-0000-4000-8000-000000000001": 1}'),
        (MapType(BLOB, INT), '{"0xff": 1}'),
        (MapType(ListType(INT, frozen=True), INT), '{"[1, 2]": 3}'),
        (TupleType((INT, TEXT)), '[1, "x"]'),
        (TupleType((INT, TEXT)), '[null, "x"]'),
        (PAIR, '{"x": 1, "y": null}'),
        (ListType(PAIR.freeze()), '[{"x": 1, "y": "z"}]'),
    ],
)
def test_composed_values(cql_type: Any, text: str) -> None:
    encoded = from_json(cql_type, read_json(text))
    assert to_json(cql_type, encoded) == text
    assert isinstance(json.loads(text), list | dict)


def test_what_json_cannot_hold_is_null() -> None:
    double = NATIVE_TYPES["double"]
    assert to_json(double, double.encode(float("nan"))) == to_json(double, double.encode(float("inf"))) == "null"
    assert to_json(INT, None) == to_json(INT, b"") == "null"
    assert to_json(TEXT, b"") == '""'


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers(-5, 5))))
def test_maps_round_trip(value: dict[str, list[int]]) -> None:
    cql_type = MapType(TEXT, ListType(INT, frozen=True))
    encoded = cql_type.encode(value)
    text = to_json(cql_type, encoded)
    assert json.loads(text) == value
    assert from_json(cql_type, read_json(text)) == encoded


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1.5"),
        ("int", "2147483648"),
        ("int", '"x"'),
        ("int", "true"),
        ("int", "[1]"),
        ("int", "1e5000"),
        ("text", "1"),
        ("boolean", "1"),
        ("blob", '"ff"'),
        ("blob", '"0xf"'),
        ("uuid", "1"),
        ("timestamp", '"yesterday"'),
        ("timeuuid", '"00000000-0000-4000-8000-000000000001"'),
        ("double", "NaN"),
        ("decimal", '"x"'),
        ("inet", '"nowhere"'),
    ],
)
def test_values_that_are_not_of_the_type(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        from_json(NATIVE_TYPES[kind], read_json(text))


@pytest.mark.parametrize(
    ("cql_type", "text"),
    [
        (ListType(INT), "[null]"),
        (MapType(TEXT, INT), '{"a": null}'),
        (MapType(INT, INT), '{"a": 1}'),
        (SetType(INT), "{}"),
        (MapType(TEXT, INT), "[]"),
        (TupleType((INT,)), "[1, 2]"),
        (PAIR, '{"z": 1}'),
    ],
)
def test_composed_values_that_are_not_of_the_type(cql_type: Any, text: str) -> None:
    with pytest.raises(InvalidRequest):
        from_json(cql_type, read_json(text))


# ---------------------------------------------------------------- reading


def test_select_json_gives_each_row_as_one_document(box: EngineBox) -> None:
    box.run('CREATE TABLE k (id int PRIMARY KEY, "Name" text, n int)')
    box.run("INSERT INTO k (id, \"Name\") VALUES (1, 'ann')")
    assert box.rows("SELECT JSON * FROM k") == [{"[json]": '{"id": 1, "\\"Name\\"": "ann", "n": null}'}]
    assert box.column('SELECT JSON id AS key, n AS "N" FROM k') == ['{"key": 1, "\\"N\\"": null}']
    assert box.column("SELECT JSON count(*) FROM k") == ['{"count": 1}']
    assert box.column("SELECT JSON DISTINCT id FROM k") == ['{"id": 1}']
    assert box.column("SELECT toJson(n), id FROM k") == ["null"]


def test_select_json_pages(box: EngineBox) -> None:
    for ck in range(5):
        box.run("INSERT INTO t (pk, ck, l) VALUES (1, ?, [1])", [ck])
    pages = box.pages("SELECT JSON ck, l FROM t", page_size=2)
    documents = [[row["[json]"] for row in page] for page in pages]
    assert documents[0] == ['{"ck": 0, "l": [1]}', '{"ck": 1, "l": [1]}']
    assert [json.loads(text)["ck"] for page in documents for text in page] == [0, 1, 2, 3, 4]


def test_the_log_reads_as_json(box: EngineBox) -> None:
    box.run("INSERT INTO t (pk, ck, v) VALUES (1, 2, 3)")
    (text,) = box.column('SELECT JSON pk, ck, v, "cdc$operation", "cdc$deleted_v" FROM t_scylla_cdc_log')
    assert json.loads(text) == {"pk": 1, "ck": 2, "v": 3, "cdc$operation": 2, "cdc$deleted_v": None}


# ---------------------------------------------------------------- writing, and the log of it

NULLS = {f"deleted_{name}": True for name in ("f", "l", "m", "u", "v", "w")}
U_NULL = {"x": None, "y": None}


def without(*names: str) -> dict[str, bool]:
    return {key: value for key, value in NULLS.items() if key.removeprefix("deleted_") not in names}


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        # Omitted columns are nulls: they are logged as deleted.
        ("""'{"pk": 1, "ck": 2, "v": 3}'""", [{"operation": 2, "ck": 2, "v": 3, "u": U_NULL} | without("v")]),
        (
            """'{"pk": 1, "ck": 2, "v": 3}' DEFAULT NULL""",
            [{"operation": 2, "ck": 2, "v": 3, "u": U_NULL} | without("v")],
        ),
        ("""'{"pk": 1, "ck": 2, "v": 3}' DEFAULT UNSET""", [{"operation": 2, "ck": 2, "v": 3}]),
        ("""'{"pk": 1, "ck": 2}' DEFAULT UNSET""", [{"operation": 2, "ck": 2}]),
        ("""'{"pk": 1, "ck": 2, "v": null}' DEFAULT UNSET""", [{"operation": 2, "ck": 2, "deleted_v": True}]),
        ("""'{"PK": 1, "\\"ck\\"": 2}' DEFAULT UNSET""", [{"operation": 2, "ck": 2}]),
        (
            """'{"pk": 1, "ck": 2, "m": {"3": "x"}, "u": {"x": 4}, "f": [6, 5]}' DEFAULT UNSET""",
            [
                {
                    "operation": 2,
                    "ck": 2,
                    "m": {3: "x"},
                    "deleted_m": True,
                    "u": {"x": 4, "y": None},
                    "deleted_u": True,
                    "f": frozenset({5, 6}),
                }
            ],
        ),
        (
            """'{"pk": 1, "ck": 2, "v": 3, "w": null}' DEFAULT UNSET USING TTL 60""",
            [{"operation": 2, "ck": 2, "v": 3, "ttl": 60}, {"operation": 1, "ck": 2, "deleted_w": True}],
        ),
        # A quirk of Scylla: static columns of the document are not written.
        ("""'{"pk": 1, "ck": 2, "s": 9}' DEFAULT UNSET""", [{"operation": 2, "ck": 2}]),
    ],
)
def test_insert_json_in_the_log(box: EngineBox, statement: str, rows: list[dict[str, Any]]) -> None:
    box.run(f"INSERT INTO t JSON {statement}")
    log = box.log()
    assert log.pop(-1) == {**rows[-1], "pk": 1, "end_of_batch": True}
    assert log == [{**row, "pk": 1} for row in rows[:-1]]


def test_insert_json_takes_a_bound_document(box: EngineBox) -> None:
    prepared = box.engine.prepare("INSERT INTO t JSON ?", "ks")
    assert [(spec.name, spec.type.name) for spec in prepared.variables] == [("[json]", "text")]
    for ck in (1, 2):
        box.run("INSERT INTO t JSON ?", [json.dumps({"pk": 1, "ck": ck, "l": [ck, ck]})])
    assert box.rows("SELECT ck, l FROM t") == [{"ck": 1, "l": [1, 1]}, {"ck": 2, "l": [2, 2]}]


def test_insert_json_in_batches_and_conditions(box: EngineBox) -> None:
    box.run(
        """BEGIN BATCH INSERT INTO t JSON '{"pk": 1, "ck": 1}' DEFAULT UNSET;
        INSERT INTO t JSON '{"pk": 1, "ck": 2}' DEFAULT UNSET; APPLY BATCH"""
    )
    assert [(row["operation"], row["ck"]) for row in box.log()] == [(2, 1), (2, 2)]
    insert = """INSERT INTO t JSON '{"pk": 1, "ck": 3, "v": 4}' DEFAULT UNSET IF NOT EXISTS"""
    assert [box.row(insert)["[applied]"] for _ in range(2)] == [True, False]


def test_from_json_is_accepted_as_a_value(box: EngineBox) -> None:
    box.run("INSERT INTO t (pk, ck, m) VALUES (1, fromJson('2'), fromJson(?))", ['{"3": "x"}'])
    box.run("UPDATE t SET v = fromJson('5') WHERE pk = fromJson('1') AND ck = 2")
    assert box.rows("SELECT ck, v, m, toJson(m) AS j FROM t") == [{"ck": 2, "v": 5, "m": {3: "x"}, "j": '{"3": "x"}'}]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("""INSERT INTO t JSON '{"pk": 1}'""", "Missing mandatory PRIMARY KEY part ck"),
        ("""INSERT INTO t JSON '{"pk": null, "ck": 1}'""", "Missing mandatory PRIMARY KEY part pk"),
        ("""INSERT INTO t JSON '{"pk": 1, "ck": 1, "x": 1}'""", "JSON values map contains unrecognized column: x"),
        ("""INSERT INTO t JSON '{"pk": 1, "ck": 1, "v": "x"}'""", "Error decoding JSON value of type int"),
        ("""INSERT INTO t JSON '{"pk": 1,'""", "Could not decode JSON string"),
        ("""INSERT INTO t JSON '[1]'""", "Could not decode JSON string as a map"),
        ("INSERT INTO t JSON '" + "[" * 100_000 + "'", "Could not decode JSON string"),
        ("SELECT toJson(?) FROM t", "only valid when its argument type is known"),
        ("SELECT toJson(pk, ck) FROM t", "accepts 1 argument only"),
        ("SELECT fromJson(pk) FROM t", "can only be called if receiver type is known"),
    ],
)
def test_refusals(box: EngineBox, statement: str, message: str) -> None:
    with pytest.raises(CqlError, match=message):
        box.run(statement)
    assert box.log() == []


def test_a_null_document_is_refused(box: EngineBox) -> None:
    with pytest.raises(InvalidRequest, match="Got null for INSERT JSON values"):
        box.run("INSERT INTO t JSON ?", [None])


def test_a_document_that_was_read_can_be_written(box: EngineBox) -> None:
    kinds = {f"c_{kind}": kind for kind in NATIVE_TYPES if kind not in ("counter", "varchar")}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    for name in ("a", "b"):
        box.run(
            f"CREATE TABLE {name} (id int PRIMARY KEY, {columns}, l list<duration>, m map<uuid, blob>, u pair,"
            " t tuple<date, inet>, v vector<float, 2>)"
        )
    for number, (kind, text, _) in enumerate(VALUES):
        box.run(f"INSERT INTO a (id, c_{kind}) VALUES (?, fromJson(?))", [number, text])
    box.run(
        "INSERT INTO a (id, l, m, u, t, v) VALUES (99, [1d, 2h], {00000000-0000-4000-8000-000000000001: 0xff},"
        " {x: 1, y: 'z'}, ('2026-11-21', '::1'), [0.5, 1])"
    )
    for document in box.column("SELECT JSON * FROM a"):
        box.run("INSERT INTO b JSON ?", [document])
    assert box.rows("SELECT * FROM b") == box.rows("SELECT * FROM a")
    assert len(box.rows("SELECT * FROM b")) == len(VALUES) + 1


def test_rows_of_a_log_that_lie_together_are_json_one_by_one(box: EngineBox) -> None:
    box.run("CREATE TABLE logged (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    for ck in range(3):
        box.run("INSERT INTO logged (pk, ck) VALUES (1, ?)", [ck])
    rows = box.rows("SELECT JSON * FROM logged_scylla_cdc_log")
    assert [json.loads(row["[json]"])["ck"] for row in rows] == [0, 1, 2]
