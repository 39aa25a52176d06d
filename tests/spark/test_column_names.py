"""Names of columns and fields that a table cannot hold are refused by name before anything is created; without Java."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from odd_names import ODD_NAMES, OF_DELTA, OF_ICEBERG, OF_PARQUET
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StructField, StructType

from rscylla.cdc.log.table import BaseColumn
from rscylla.errors import ConfigError
from rscylla.spark.sinks.columnnames import check_columns, needs_mapping
from rscylla.spark.source.shape import Shape

INT = IntegerType()


@attrs.frozen
class Played:
    """The part of a session that says whether names have a case."""

    case_sensitive: str = "false"

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.sql.caseSensitive": self.case_sensitive}


def struct(*names: str) -> StructType:
    return StructType([StructField(name, INT) for name in names])


DEPTHS = [
    lambda *names: struct(*names),
    lambda *names: ArrayType(struct(*names)),
    lambda *names: MapType(struct(*names), INT),
    lambda *names: MapType(INT, struct(*names)),
    lambda *names: StructType([StructField("inner", ArrayType(struct(*names)))]),
]


def shape_with(type_: DataType = INT, *more: str, key: str = "id") -> Shape:
    columns: list[tuple[BaseColumn, DataType]] = [
        (BaseColumn(key, "partition_key", 0, "int", descending=False), INT),
        (BaseColumn("c", "regular", 0, "frozen<u>", descending=False), type_),
        *((BaseColumn(name, "regular", 0, "int", descending=False), INT) for name in more),
    ]
    return Shape.from_columns(columns)


def check(shape: Shape, of_format: str, case_sensitive: str = "false") -> None:
    spark: Any = Played(case_sensitive)
    check_columns(spark, shape, of_format)


@pytest.mark.parametrize("of_format", ["delta", "iceberg", "parquet", "hudi"])
def test_odd_names_are_taken_at_every_depth(of_format: str) -> None:
    for depth in DEPTHS:
        check(shape_with(depth(*ODD_NAMES, *OF_ICEBERG, *OF_DELTA, *OF_PARQUET), *ODD_NAMES), of_format)


@pytest.mark.parametrize("depth", DEPTHS)
def test_fields_that_differ_in_case_only_are_refused_where_case_is_ignored(depth: Any) -> None:
    shape = shape_with(depth("Ä", "ä"))
    for of_format in ("parquet", "iceberg"):
        with pytest.raises(ConfigError, match=r"names 'Ä' and 'ä' differ only in case, .*caseSensitive to true"):
            check(shape, of_format)
        check(shape, of_format, case_sensitive="true")
    with pytest.raises(ConfigError, match=r"names 'Ä' and 'ä' differ only in case, which Delta Lake ignores"):
        check(shape, "delta", case_sensitive="true")


@pytest.mark.parametrize(
    ("of_format", "title", "name"),
    [
        *(("iceberg", "Iceberg", name) for name in (*OF_ICEBERG, "_FILE")),
        *(("delta", "Delta Lake", name) for name in (*OF_DELTA, *OF_PARQUET)),
        *(("parquet", "Parquet", name) for name in OF_PARQUET),
    ],
)
def test_columns_that_a_format_has_itself_are_refused(of_format: str, title: str, name: str) -> None:
    refused = f"the column '{name}' cannot be in a table of {title}, which has one of this name itself; use another"
    for shape in (shape_with(INT, name), shape_with(INT, key=name)):
        with pytest.raises(ConfigError, match=refused):
            check(shape, of_format, case_sensitive="true")
        for other, names in (("delta", OF_DELTA + OF_PARQUET), ("iceberg", OF_ICEBERG), ("parquet", OF_PARQUET)):
            if name.lower() not in names:
                check(shape, other)


PAIRS = [("1", "_1"), ("#", "_x23"), ("a.b", "a_x2Eb"), ("😀", "_xD83D_xDE00"), ("e\u0301", "e_x301"), ("٣", "_٣")]


@pytest.mark.parametrize("pair", PAIRS)
def test_names_that_are_one_in_files_of_iceberg_are_refused(pair: tuple[str, str]) -> None:
    one, other = sorted(pair)
    refused = re.escape(f"the names {one!r} and {other!r} are both {pair[1]!r} in files of Iceberg; use a Parquet")
    for shape in (shape_with(INT, one, other), *(shape_with(depth(one, other)) for depth in DEPTHS)):
        with pytest.raises(ConfigError, match=refused):
            check(shape, "iceberg")
        for of_format in ("delta", "parquet"):
            check(shape, of_format)


@pytest.mark.parametrize("character", " ,;{}()\n\t=")
def test_delta_lake_maps_names_with_these_characters_at_any_depth(character: str) -> None:
    assert needs_mapping(f"a{character}b", INT)
    assert all(needs_mapping("c", depth("a", f"b{character}")) for depth in DEPTHS)
    assert not any(needs_mapping("a.b", depth("#", "`")) for depth in DEPTHS)
