"""Shapes of tables from columns and from schemas: the kind of each column, and names that Spark cannot distinguish."""

from __future__ import annotations

import uuid
from typing import Any

import attrs
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rscylla.cdc.log.table import BaseColumn, LoggedTable
from rscylla.errors import ConfigError
from rscylla.spark.source.shape import CQL, ColumnShape, Shape, metadata_of

TEXT, INT = StringType(), IntegerType()
UDT = StructType([StructField("f", INT), StructField("g", INT)])


def column(name: str, kind: str, cql: str = "int", position: int = 0, *, descending: bool = False) -> BaseColumn:
    return BaseColumn(name, kind, position, cql, descending)


@attrs.frozen
class Frame:
    """The part of a DataFrame that ``Shape.of`` reads."""

    schema: StructType
    case_sensitive: str = "false"

    @property
    def columns(self) -> list[str]:
        return self.schema.names  # type: ignore[no-any-return]

    @property
    def sparkSession(self) -> Frame:
        return self

    @property
    def conf(self) -> Frame:
        return self

    def get(self, name: str) -> str:
        assert name == "spark.sql.caseSensitive"
        return self.case_sensitive


def frame(keys: list[tuple[BaseColumn, DataType]], values: list[tuple[BaseColumn, DataType]], **more: Any) -> Frame:
    def field(c: BaseColumn, type_: DataType) -> StructField:
        return StructField(c.name, type_, metadata=metadata_of(c))

    names = [("cdc_operation", TEXT), ("cdc_timestamp", TimestampType()), ("cdc_ttl", INT)]
    names += [("cdc_touched", ArrayType(TEXT)), ("cdc_deleted", ArrayType(TEXT))]
    inner = StructType([field(*value) for value in values])
    fields = [StructField(*name) for name in names] + [field(*key) for key in keys]
    return Frame(StructType([*fields, StructField("cdc_values", inner)]), **more)


ID = column("id", "partition_key"), INT


def test_a_shape_has_its_keys_in_the_order_of_the_table_and_its_values_by_kind() -> None:
    keys = [
        (column("d", "clustering", "timestamp", 1, descending=True), TimestampType()),
        (column("c", "clustering", "int", 0), INT),
        (column("b", "partition_key", "int", 1), INT),
        (column("a", "partition_key", "text", 0), TEXT),
    ]
    values = [(column("s", "static"), INT), (column("v", "regular"), INT)]
    for shape in (Shape.of(frame(keys, values)), Shape.from_columns([*keys, *values])):
        assert shape.key_names == ["a", "b", "c", "d"]
        assert [c.descending for c in shape.clustering] == [False, True]
        assert [c.name for c in shape.statics] == ["s"]
        assert [c.name for c in shape.regulars] == ["v"]
        assert [c.cql for c in shape.keys] == ["text", "int", "int", "timestamp"]


def test_a_shape_of_columns_knows_when_those_of_their_names_were_dropped() -> None:
    columns = [(column("id", "partition_key"), INT), (column("s", "static"), INT), (column("v", "regular"), INT)]
    assert [c.dropped_us for c in Shape.from_columns(columns, {"v": 7, "gone": 8}).values] == [None, 7]


@pytest.mark.parametrize(
    ("kind", "cql", "type_", "form"),
    [
        ("regular", "int", INT, "value"),
        ("regular", "set<int>", ArrayType(INT), "set"),
        ("static", "list<int>", ArrayType(INT), "list"),
        ("regular", "map<int, int>", MapType(INT, INT), "map"),
        ("regular", "frozen<map<int, int>>", MapType(INT, INT), "value"),
        ("regular", "frozen<addr>", UDT, "value"),
        ("regular", "addr", UDT, "udt"),
        ("regular", "tuple<int, int>", UDT, "value"),
        ("regular", "duration", UDT, "value"),
        ("regular", "vector<float, 3>", ArrayType(INT), "value"),
        ("regular", "map", UDT, "udt"),  # a type may be called so
        ("clustering", "frozen<set<int>>", ArrayType(INT), "value"),
        ("partition_key", "addr", UDT, "value"),
    ],
)
def test_how_a_column_can_be_written_follows_from_its_type(kind: str, cql: str, type_: DataType, form: str) -> None:
    assert ColumnShape("x", kind, cql, type_).form == form


CASES: list[tuple[list[Any], list[Any], str]] = [
    ([ID], [(column("a", "regular"), INT), (column("A", "regular"), INT)], "'a' and 'A'"),
    ([ID], [(column("ID", "regular"), INT)], "'id' and 'ID'"),
    ([ID, (column("Id", "clustering"), INT)], [], "'id' and 'Id'"),
    ([(column("CDC_Operation", "partition_key"), INT)], [], "'cdc_operation' and 'CDC_Operation'"),
    ([ID, (column("Inclusive", "clustering"), INT)], [], "'Inclusive' and 'inclusive'"),
    (
        [ID],
        [(column("u", "regular", "addr"), StructType([StructField("f", INT), StructField("F", INT)]))],
        "'f' and 'F'",
    ),
]


@pytest.mark.parametrize(("keys", "values", "names"), CASES)
def test_names_that_differ_only_in_case_are_refused_unless_spark_is_case_sensitive(
    keys: list[Any], values: list[Any], names: str
) -> None:
    with pytest.raises(ConfigError, match=f"the names {names} differ only in case, .* spark.sql.caseSensitive to true"):
        Shape.of(frame(keys, values))
    for told in ("true", "True", " TRUE "):  # Spark takes each of them, and returns it as it was set
        assert Shape.of(frame(keys, values, case_sensitive=told)).partition


def test_names_that_are_never_side_by_side_may_be_alike() -> None:
    frozen = StructType([StructField("f", INT), StructField("F", INT)])
    values = [
        (column("CDC_Operation", "regular"), INT),
        (column("u", "regular", "frozen<addr>"), frozen),
        (column("f", "regular"), INT),
    ]
    assert len(Shape.of(frame([ID], values)).values) == 3


def test_a_frame_that_has_no_changes_is_refused() -> None:
    whole = frame([ID], [(column("v", "regular"), INT)]).schema
    for name in ("cdc_operation", "cdc_timestamp", "cdc_ttl", "cdc_touched", "cdc_deleted"):
        less = StructType([f for f in whole.fields if f.name != name])
        with pytest.raises(ConfigError, match=f"no column '{name}'; read it with"):
            Shape.of(Frame(less))
    without_key = StructType([f for f in whole.fields if f.name != "id"])
    with pytest.raises(ConfigError, match="no column of the partition key"):
        Shape.of(Frame(without_key))
    plain = StructType([StructField(f.name, f.dataType) for f in whole.fields])
    with pytest.raises(ConfigError, match="the schema of column 'id' lacks its CQL type"):
        Shape.of(Frame(plain))
    assert CQL in whole["id"].metadata


def test_the_order_of_the_key_is_that_of_the_table_and_not_that_of_names() -> None:
    keys = [("z", "partition_key", 0), ("a", "partition_key", 1), ("y", "clustering", 0), ("b", "clustering", 1)]
    shape = Shape.of(frame([(column(n, kind, position=at), INT) for n, kind, at in sorted(keys)], []))  # type: ignore[arg-type]
    assert shape.key_names == ["z", "a", "y", "b"]


LOGGED = (
    column("p", "partition_key"),
    column("q", "partition_key", position=1),
    column("c", "clustering"),
    column("v", "regular"),
    column("l", "regular", "list<int>"),
)


def logged(*columns: BaseColumn, delta: str = "full") -> LoggedTable:
    return LoggedTable("k", "t", columns, log_id=uuid.uuid1(), delta=delta)


def changes_of(table: LoggedTable, *, lacks: str = "") -> StructType:
    """Return the schema of the changes of *table*, as the data source makes it, without one column."""
    types = {"int": INT, "list<int>": ArrayType(INT)}
    keys = [StructField(c.name, INT, metadata=metadata_of(c, None, table)) for c in table.key]
    values = [
        StructField(c.name, types[c.type_text], metadata=metadata_of(c, None, table))
        for c in table.of_kind("static", "regular")
    ]
    names = ("operation", "timestamp", "ttl", "touched", "deleted", "added", "removed", "range")
    others = [StructField(f"cdc_{name}", TEXT) for name in names]
    fields = [*keys, *others, StructField("cdc_values", StructType(values))]
    return StructType([field for field in fields if field.name != lacks])


@pytest.mark.parametrize("columns", [LOGGED, LOGGED[:2], LOGGED[:4]])
def test_changes_with_all_columns_have_a_shape(columns: tuple[BaseColumn, ...]) -> None:
    table = logged(*columns)
    shape = Shape.of_schema(changes_of(table))
    assert [c.name for c in (*shape.keys, *shape.values)] == [c.name for c in table.columns]


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("q", "has 2 of the 3 columns of the primary key: p, c; keep all of them"),
        ("c", "has 2 of the 3 columns of the primary key: p, q; keep all of them"),
        ("cdc_values", "has no column 'cdc_values'"),
        ("cdc_range", "has no column 'cdc_range'"),
        ("cdc_added", "has no column 'cdc_added'"),
        ("cdc_removed", "has no column 'cdc_removed'"),
    ],
)
def test_changes_that_lack_a_column_are_refused(lacks: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Shape.of_schema(changes_of(logged(*LOGGED), lacks=lacks))


def test_a_log_that_has_only_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="has the keys of what was written, and no values"):
        Shape.of_schema(changes_of(logged(*LOGGED, delta="keys")))
