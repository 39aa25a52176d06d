"""The CQL columns behind a DataFrame of changes: key, static, or regular, and how their parts can be written.

The data source writes this information into the metadata of the schema's fields, which stays with a DataFrame, even
through Parquet files. Fields of the primary key carry it at the top, the others in ``cdc_values``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from ...cdc.log import BaseColumn, LoggedTable
from ...errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CQL", "ColumnShape", "Shape", "columns_in", "delta_of", "ignores_case", "metadata_of", "names_within"]

CQL = "cql"
"""Key of a field's metadata: an object with type, kind, position, descending."""

Form = Literal["value", "set", "map", "list", "udt"]

_PREFIX = "cdc_"
_NEVER_US = -(1 << 63)

INCLUSIVE = "inclusive"
"""The field of the bound of a range beside those for the clustering key."""


def metadata_of(column: BaseColumn, dropped_us: int | None = None, table: LoggedTable | None = None) -> dict[str, Any]:
    """Return the metadata of the field for *column*; *dropped_us*: when one of its name was dropped last.

    With *table*, that of a key column says what else a DataFrame of the table's changes must have.
    """
    return {
        CQL: {
            "type": column.type_text,
            "kind": column.kind,
            "position": column.position,
            "descending": column.descending,
            **({} if dropped_us is None else {"dropped_us": dropped_us}),
            **({"table": _of_table(table)} if table is not None and column.in_key else {}),
        }
    }


def _of_table(table: LoggedTable) -> dict[str, Any]:
    counts = {kind: len(table.of_kind(kind)) for kind in ("partition_key", "clustering", "static", "regular")}
    return {"columns": counts, "delta": table.delta, "dropped_us": table.dropped_us}


def columns_in(schema: StructType) -> list[BaseColumn]:
    """Return the columns of the base table that the fields of *schema*, in any mode, have the metadata of."""
    found = {}
    for field in schema.fields:
        inner = field.dataType.fields if isinstance(field.dataType, StructType) else ()
        for each in (field, *inner):
            if (stored := each.metadata.get(CQL)) is not None:
                found[each.name] = BaseColumn(each.name, stored["kind"], int(stored["position"]), stored["type"])
    return list(found.values())


def _told_of_table(schema: StructType) -> Mapping[str, Any] | None:
    """Return what the metadata of a key column in *schema* has of the table."""
    return next((f.metadata[CQL]["table"] for f in schema.fields if "table" in f.metadata.get(CQL, {})), None)


def delta_of(schema: StructType) -> str:
    """Return the option ``delta`` that the log had when *schema* was made, "" if that is not known."""
    return str((_told_of_table(schema) or {}).get("delta", ""))


@attrs.frozen
class ColumnShape:
    """A column of the base table: its CQL type and the type that it has in Spark.

    ``dropped_us``: when a column of this name was dropped last, as a write time; what was written until then is gone.
    ``base``: the same without Spark. ``form`` is "value" for what is written as a whole, else "set", "map", "list" or
    "udt" for one that is not frozen.
    """

    name: str
    kind: str
    cql: str
    type: DataType = attrs.field(eq=False)
    descending: bool = False
    dropped_us: int | None = attrs.field(default=None, eq=False)

    base: BaseColumn = attrs.field(init=False, eq=False, repr=False)
    form: Form = attrs.field(init=False, eq=False, repr=False)

    @base.default
    def _base(self) -> BaseColumn:
        return BaseColumn(self.name, self.kind, 0, self.cql, self.descending)

    @form.default
    def _form(self) -> Form:
        return self.base.type.kind if self.base.is_multicell else "value"  # type: ignore[return-value]


@attrs.frozen
class Shape:
    """The columns of a table, by what they are. ``values`` are the static and regular ones.

    ``lost_us``: when a column was dropped last, or before all times; an update from before may have no column any more.
    """

    partition: tuple[ColumnShape, ...]
    clustering: tuple[ColumnShape, ...]
    values: tuple[ColumnShape, ...]
    lost_us: int = attrs.field(default=_NEVER_US, eq=False)

    @property
    def keys(self) -> tuple[ColumnShape, ...]:
        return self.partition + self.clustering

    @property
    def key_names(self) -> list[str]:
        return [c.name for c in self.keys]

    @property
    def statics(self) -> tuple[ColumnShape, ...]:
        return tuple(c for c in self.values if c.kind == "static")

    @property
    def regulars(self) -> tuple[ColumnShape, ...]:
        return tuple(c for c in self.values if c.kind == "regular")

    @classmethod
    def of(cls, df: DataFrame) -> Shape:
        """Return the shape of the table whose changes are in *df*.

        Raises:
            ConfigError: *df* was not read with ``mode=changes``, or a step in between dropped the fields' metadata, or
                names differ only in case and Spark does not distinguish them.
        """
        shape = cls.of_schema(df.schema)
        if ignores_case(df.sparkSession):
            shape.check_names(df.columns)
        return shape

    @classmethod
    def of_schema(cls, schema: StructType) -> Shape:
        """Return the shape by the *schema* of a DataFrame of changes; names are not checked.

        Raises:
            ConfigError: as for ``of``, but for names.
        """
        fields = {f.name: f for f in schema.fields}
        for needed in ("cdc_operation", "cdc_timestamp", "cdc_ttl", "cdc_touched", "cdc_deleted"):
            if needed not in fields:
                raise ConfigError(
                    f"the DataFrame has no column {needed!r}; read it with format('scylla-cdc') and mode 'changes'"
                )
        keys = [f for f in schema.fields if not f.name.startswith(_PREFIX) or CQL in f.metadata]
        positions = {f.name: int(f.metadata[CQL]["position"]) if CQL in f.metadata else 0 for f in keys}
        shapes = sorted(map(_shape_of, keys), key=lambda s: positions[s.name])
        values = fields["cdc_values"].dataType if "cdc_values" in fields else StructType()
        assert isinstance(values, StructType)
        shape = cls.by_kind([*shapes, *map(_shape_of, values.fields)])
        if not shape.partition:
            raise ConfigError("the DataFrame has no column of the partition key; keep the key columns when selecting")
        told = _told_of_table(schema)
        if told is None:  # the fields were made elsewhere
            return shape
        _check_whole(shape, told, fields)
        return attrs.evolve(shape, lost_us=told.get("dropped_us") or _NEVER_US)

    def check_names(
        self,
        columns: Sequence[str] = (),
        *,
        stored: bool = False,
        advice: str = "Spark ignores; set spark.sql.caseSensitive to true",
    ) -> None:
        """Check that Spark can distinguish the names of the table, of its UDTs, and *columns*, ignoring case.

        Args:
            stored: also the fields of types that are frozen, which Spark does not look at unless it stores them.

        Raises:
            ConfigError: two of them differ only in case.
        """
        of_table = [c.name for c in (*self.keys, *self.values)]
        bound = [*(c.name for c in self.clustering), INCLUSIVE] if self.clustering else []
        of_types = [c.type.fieldNames() for c in self.values if isinstance(c.type, StructType) and c.form == "udt"]
        if stored:
            of_types = [names for c in (*self.keys, *self.values) for names in names_within(c.type)]
        for names in (of_table, bound, columns, *of_types):
            known: dict[str, str] = {}
            for name in names:
                other = known.setdefault(name.lower(), name)
                if other != name:
                    raise ConfigError(f"the names {other!r} and {name!r} differ only in case, which {advice}")

    @classmethod
    def from_columns(
        cls, columns: list[tuple[BaseColumn, DataType]], dropped: Mapping[str, int] | None = None
    ) -> Shape:
        """Return the shape of a table by its columns and their types in Spark; *dropped*: of ``dropped_columns``."""
        ordered = sorted(columns, key=lambda pair: (pair[0].position if pair[0].in_key else 0, pair[0].name))
        times = dropped or {}
        return cls.by_kind(
            [ColumnShape(c.name, c.kind, c.type_text, t, c.descending, times.get(c.name)) for c, t in ordered]
        )

    @classmethod
    def by_kind(cls, columns: Sequence[ColumnShape]) -> Shape:
        """Return the shape of a table with *columns*; those of each kind are in their order."""
        return cls(
            tuple(c for c in columns if c.kind == "partition_key"),
            tuple(c for c in columns if c.kind == "clustering"),
            tuple(c for c in columns if c.kind in ("static", "regular")),
        )


def ignores_case(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.caseSensitive")).strip().lower() != "true"


def names_within(type_: DataType) -> Iterator[list[str]]:
    """Yield the names of the fields of each struct in *type_*, at any depth."""
    match type_:
        case StructType():
            yield type_.names
            for field in type_.fields:
                yield from names_within(field.dataType)
        case ArrayType():
            yield from names_within(type_.elementType)
        case MapType():
            yield from names_within(type_.keyType)
            yield from names_within(type_.valueType)


def _shape_of(field: StructField) -> ColumnShape:
    stored = field.metadata.get(CQL)
    if stored is None:
        raise ConfigError(
            f"the schema of column {field.name!r} lacks its CQL type (metadata {CQL!r}), because a previous step "
            "dropped it; pass the DataFrame of the data source, which you may filter"
        )
    descending, dropped_us = bool(stored.get("descending", False)), stored.get("dropped_us")
    return ColumnShape(field.name, stored["kind"], stored["type"], field.dataType, descending, dropped_us)


def _check_whole(shape: Shape, told: Mapping[str, Any], columns: Collection[str]) -> None:
    """Raise ``ConfigError`` if *columns* do not say all about each change, by what the metadata *told* of the table."""
    counts = told["columns"]
    if (len(shape.partition), len(shape.clustering)) != (counts["partition_key"], counts["clustering"]):
        raise ConfigError(
            f"the DataFrame has {len(shape.keys)} of the {counts['partition_key'] + counts['clustering']} columns "
            f"of the primary key: {', '.join(shape.key_names)}; keep all of them when selecting, and in the option "
            "columns"
        )
    forms = {c.form for c in shape.values}
    needed = {
        "cdc_values": counts["static"] + counts["regular"] > 0,
        "cdc_range": bool(shape.clustering),
        "cdc_removed": bool(forms - {"value"}),
        "cdc_added": "list" in forms,
    }
    for name, is_needed in needed.items():
        if is_needed and name not in columns:
            raise ConfigError(
                f"the DataFrame has no column {name!r}, which is part of the changes; keep it when selecting, and "
                "in the option columns"
            )
    if told["delta"] == "keys":
        raise ConfigError(
            "the log of these changes has the keys of what was written, and no values (delta: 'keys'); ALTER TABLE "
            "… WITH cdc = {'enabled': true, 'delta': 'full'}, and use the changes that are written from then on"
        )
