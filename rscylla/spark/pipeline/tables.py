"""Shared by tables that are kept up to date: which changes they lack, and which of their cells must be kept."""

from __future__ import annotations

import json
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ... import _timeuuid as tu
from ...cdc import PlannedWindow
from ...errors import ConfigError
from ...event import EventID, cursor_key
from ..source.shape import ColumnShape, Shape
from .cells import quoted, with_columns, written_names
from .latest import NEVER, is_static, unexpired, with_partition

__all__ = ["changes_after", "check_begins", "check_same_log", "purged", "shape_json", "shape_of"]


def changes_after(changes: DataFrame, window: PlannedWindow, cursor: str, known: Shape, name: str) -> DataFrame | None:
    """Return the *changes* of *window* that a table lacks after its cursor *cursor*; None if there are none.

    Args:
        known: the shape of the table.
        name: its name, for errors.

    Raises:
        ConfigError: a window in between is missing, the changes are of another log, or the table has another primary
            key.
    """
    check_same_log(cursor, window.end, name)
    at, start = EventID.parse(cursor), EventID.parse(window.start)
    if cursor_key(window.end) <= at.key:
        return None
    _check_same(known, Shape.of(changes), name)
    # They adjoin at the end of a generation, which is where the next one starts.
    if start.key > at.key and (start.is_row or start.exact_us != at.exact_us):
        raise ConfigError(
            f"the table {name} ends at {tu.format_time(at.exact_us)}, but the window begins at "
            f"{tu.format_time(start.exact_us)}: apply the windows in between, or create the table again"
        )
    return changes.where(F.unix_micros("cdc_timestamp") >= at.exact_us) if start.key < at.key else changes


def check_begins(window: PlannedWindow, name: str) -> None:
    """Raise ``ConfigError`` if *window* cannot be the first of the table *name*, as windows before it were applied.

    A window that begins at a row, where a service stopped, can be: that is somebody's choice.
    """
    start = EventID.parse(window.start)
    if start.mark is not None and not start.mark.is_start:
        raise ConfigError(
            f"the table {name} has no rows yet, but the window begins at {tu.format_time(start.exact_us)}, where the "
            "cursor was saved, so that the table would lack the changes before; restore the table, or reset the "
            "cursor, or fill the table with start_from and continue at its cursor"
        )


def check_same_log(cursor: str, other: str, name: str) -> None:
    """Raise ``ConfigError`` if both cursors say of which log they are, and it is not the same.

    Args:
        cursor: that of the table *name*.
        other: that of the changes.
    """
    mark, others = EventID.parse(cursor).mark, EventID.parse(other).mark
    if mark is not None and others is not None and mark.log != others.log:
        raise ConfigError(
            f"the table {name} has the changes of another log than these: check that both belong to the same base "
            "table; if that was dropped and created again, or its CDC disabled and enabled, create the table again"
        )


def shape_json(shape: Shape) -> list[dict[str, Any]]:
    """Return *shape* as a JSON value."""
    return [
        {
            "name": c.name,
            "kind": c.kind,
            "type": c.cql,
            "descending": c.descending,
            "dropped_us": c.dropped_us,
            "spark": json.loads(c.type.json()),
        }
        for c in (*shape.keys, *shape.values)
    ]


def shape_of(stored: list[dict[str, Any]]) -> Shape:
    """Return the shape from the result of ``shape_json``."""
    fields = [{"name": c["name"], "type": c["spark"], "nullable": True, "metadata": {}} for c in stored]
    types = StructType.fromJson({"type": "struct", "fields": fields}).fields
    return Shape.by_kind(
        [
            ColumnShape(c["name"], c["kind"], c["type"], field.dataType, c["descending"], c["dropped_us"])
            for c, field in zip(stored, types, strict=True)
        ]
    )


def _check_same(known: Shape, given: Shape, name: str) -> None:
    """Raise ``ConfigError`` unless both have the same primary key; *name* is the name of the table."""
    keys = [[(c.name, c.kind, c.cql) for c in shape.keys] for shape in (known, given)]
    if keys[0] != keys[1]:
        raise ConfigError(
            f"the table {name} has a different primary key from these changes; check that it belongs "
            "to the same base table"
        )


# ---------------------------------------------------------------- what is worth keeping


def purged(cells: DataFrame, shape: Shape, second: Column, *, flag: str | None = None) -> DataFrame:
    """Return merged *cells* without deletes, the cells that they hide, and cells that have expired by *second*.

    Rows without remaining cells are omitted; with *flag*, they stay, and this column says whether cells remain.
    """
    frame = with_partition(cells, shape)
    covered = F.col("cdc$covered")

    def alive(floor: Column, cell: Column) -> Column:
        return (cell["t"] > floor) & unexpired(cell, second) & ~cell["dead"]

    marker = F.col("cdc$marker")
    kept = {"cdc$marker": F.when((marker["t"] > covered) & unexpired(marker, second), marker)}
    no_time = F.lit(None).cast("bigint")
    done = {"cdc$row_deleted": no_time, "cdc$partition_deleted": no_time}
    done["cdc$ranges"] = F.lit(None).cast(cells.schema["cdc$ranges"].dataType)
    for column in shape.values:
        static = column.kind == "static" and bool(shape.clustering)
        here = is_static(shape) if static else F.lit(True)  # each row has a copy of its partition's static cells
        floor = F.col("cdc$partition_deleted") if static else covered
        if column.form != "value":
            gone = f"cdc$gone_{column.name}"
            done[gone] = no_time
            floor = F.greatest(floor, F.coalesce(quoted(gone), F.lit(NEVER)))
        for name in written_names(column):
            cell = F.col(quoted(name))
            if column.form in ("value", "udt"):
                kept[name] = F.when(here & alive(floor, cell), cell)
            else:
                elements = F.filter(cell, partial(alive, floor))
                kept[name] = F.when(here & (F.size(elements) > 0), elements)
    # Not in one step: within a lambda, Spark resolves a name to the column that the same step creates.
    found = with_columns(with_columns(frame, kept), done)
    left = reduce(lambda a, b: a | b, (F.col(quoted(n)).isNotNull() for n in kept))
    names = [F.col(quoted(n)) for n in cells.columns]
    return found.where(left).select(*names) if flag is None else found.select(*names, left.alias(flag))
