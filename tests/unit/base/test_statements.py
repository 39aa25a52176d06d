"""Changes to statements: what each log row becomes, and what cannot be made again."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from fakelog import columns_of, integer

from rscylla import Operation
from rscylla import _timeuuid as tu
from rscylla.base.statements import UNSET, ChangeWriter, RowWriter, Write, remaining_ttl
from rscylla.cdc.log.table import BaseColumn, LoggedTable, Table
from rscylla.cdc.rows import Cells, Layout
from rscylla.errors import CannotReplicate

BASE = (
    ("pk", "partition_key", "int"),
    ("Ck", "clustering", "int"),
    ("d", "clustering", "int"),
    ("v", "regular", "int"),
    ("w", "regular", "int"),
    ("s", "static", "int"),
)
TABLE = LoggedTable(
    "shop",
    "t",
    log_id=None,  # type: ignore[arg-type]
    columns=[BaseColumn(n, k, at, t, n == "d") for at, (n, k, t) in enumerate(BASE)],
)
LAYOUT = Layout.of(columns_of(BASE), TABLE)
WRITER = ChangeWriter(LAYOUT, "shop", "copy", {"pk", "Ck", "d", "v", "w", "s"})


def row(operation: int = 1, **given: int | bool) -> Cells:
    raw = {n: b"\x01" if v is True else integer(v) for n, v in given.items()}
    raw["cdc$operation"] = operation.to_bytes(1, "big", signed=True)
    return tuple(raw.get(c.name.replace("cdc$deleted_", "no_")) for c in LAYOUT.columns)


def made(operation: Operation, cells: Cells, end: Cells | None = None, ttl: int = 0) -> list[tuple[str, list[object]]]:
    return [
        (w.cql, [int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in w.values])
        for w in WRITER.writes(operation, 7, ttl, cells, end)
    ]


def test_an_insert_makes_the_row_and_leaves_alone_what_it_does_not_name() -> None:
    [(cql, values)] = made(Operation.INSERT, row(pk=1, Ck=2, d=3, v=4), ttl=60)
    assert cql == ('INSERT INTO shop.copy (pk, "Ck", d, v, w) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?')
    assert values == [1, 2, 3, 4, UNSET, 7, 60]


def test_an_update_does_not_make_the_row() -> None:
    [(cql, values)] = made(Operation.UPDATE, row(pk=1, Ck=2, d=3, no_v=True, w=5))
    assert cql == 'UPDATE shop.copy USING TIMESTAMP ? AND TTL ? SET v = ?, w = ? WHERE pk = ? AND "Ck" = ? AND d = ?'
    assert values == [7, 0, None, 5, 1, 2, 3]


def test_static_columns_are_written_by_partition() -> None:
    assert made(Operation.UPDATE, row(pk=1, s=6)) == [
        ("UPDATE shop.copy USING TIMESTAMP ? AND TTL ? SET s = ? WHERE pk = ?", [7, 0, 6, 1])
    ]


def test_an_update_without_values_is_refused_because_the_log_had_only_keys() -> None:
    with pytest.raises(CannotReplicate, match=r"an update of shop\.t has no columns, because its log had only keys"):
        made(Operation.UPDATE, row(pk=1, Ck=2, d=3))


def test_an_update_whose_only_column_was_dropped_since_is_no_statement() -> None:
    layout = attrs.evolve(LAYOUT, table=attrs.evolve(TABLE, dropped_us=7))
    writer = ChangeWriter(layout, "shop", "copy", {c.name for c in TABLE.columns})
    assert writer.writes(Operation.UPDATE, 7, 0, row(pk=1, Ck=2, d=3)) == []
    with pytest.raises(CannotReplicate, match="only keys"):
        writer.writes(Operation.UPDATE, 8, 0, row(pk=1, Ck=2, d=3))


@pytest.mark.parametrize("operation", [Operation.ROW_DELETE, Operation.SERVICE_ROW_DELETE])
def test_deletes_of_rows(operation: Operation) -> None:
    [(cql, values)] = made(operation, row(pk=1, Ck=2, d=3))
    assert cql == 'DELETE FROM shop.copy USING TIMESTAMP ? WHERE pk = ? AND "Ck" = ? AND d = ?'
    assert values == [7, 1, 2, 3]


@pytest.mark.parametrize("operation", [Operation.PARTITION_DELETE, Operation.SERVICE_PARTITION_DELETE])
def test_deletes_of_partitions(operation: Operation) -> None:
    assert made(operation, row(pk=1)) == [("DELETE FROM shop.copy USING TIMESTAMP ? WHERE pk = ?", [7, 1])]


@pytest.mark.parametrize(
    ("start", "end", "where", "values"),
    [
        (row(6, pk=1, Ck=2), row(7, pk=1), ' AND "Ck" > ?', [2]),
        (row(5, pk=1), row(8, pk=1, Ck=2), ' AND "Ck" < ?', [2]),
        (row(5, pk=1, Ck=2), row(7, pk=1, Ck=2), ' AND "Ck" = ?', [2]),
        # d is declared DESC: its range starts at the greater end
        (row(6, pk=1, Ck=2, d=9), row(7, pk=1, Ck=2, d=3), ' AND "Ck" = ? AND d < ? AND d >= ?', [2, 9, 3]),
        (row(5, pk=1, Ck=2), row(8, pk=1, Ck=2, d=3), ' AND "Ck" = ? AND d > ?', [2, 3]),
        (
            row(6, pk=1, Ck=2, d=3),
            row(7, pk=1, Ck=5),
            ' AND ("Ck", d) > SCYLLA_CLUSTERING_BOUND (?, ?) AND ("Ck") <= SCYLLA_CLUSTERING_BOUND (?)',
            [2, 3, 5],
        ),
        (
            row(6, pk=1, Ck=2),
            row(7, pk=1, Ck=5, d=1),
            ' AND ("Ck") > SCYLLA_CLUSTERING_BOUND (?) AND ("Ck", d) <= SCYLLA_CLUSTERING_BOUND (?, ?)',
            [2, 5, 1],
        ),
        (  # a range that ends within what it leaves out is empty, and must not become another one
            row(6, pk=1, Ck=2),
            row(7, pk=1, Ck=2, d=3),
            ' AND ("Ck") > SCYLLA_CLUSTERING_BOUND (?) AND ("Ck", d) <= SCYLLA_CLUSTERING_BOUND (?, ?)',
            [2, 2, 3],
        ),
    ],
)
def test_ranges(start: Cells, end: Cells, where: str, values: list[int]) -> None:
    operation = Operation(int.from_bytes(start[LAYOUT.operation] or b"", "big"))
    [(cql, bound)] = made(operation, start, end)
    assert cql == "DELETE FROM shop.copy USING TIMESTAMP ? WHERE pk = ?" + where
    assert bound == [7, 1, *values]


def test_a_range_of_all_rows_leaves_the_static_ones() -> None:
    made_of = made(Operation.RANGE_START_INCLUSIVE, row(5, pk=1), row(7, pk=1))
    delete = "DELETE FROM shop.copy USING TIMESTAMP ? WHERE pk = ?"
    assert made_of == [(f'{delete} AND "Ck" <= ?', [7, 1, 0]), (f'{delete} AND "Ck" > ?', [7, 1, 0])]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (Operation.RANGE_START_INCLUSIVE, "one end of a deleted range of shop.t is not in the log"),
        (Operation.RANGE_END_EXCLUSIVE, "one end of a deleted range of shop.t is not in the log"),
        (Operation(42), "the operation UNKNOWN_42, which cannot be applied to another table"),
        (Operation.POSTIMAGE, "the operation POSTIMAGE"),
    ],
)
def test_what_cannot_be_made_again(operation: Operation, text: str) -> None:
    with pytest.raises(CannotReplicate, match=text) as caught:
        made(operation, row(pk=1, Ck=2))
    assert not caught.value.resumable


UDT = "org.apache.cassandra.db.marshal.UserType(shop,6f,7a:org.apache.cassandra.db.marshal.Int32Type)"
PLACES = "org.apache.cassandra.db.marshal.SetType(org.apache.cassandra.db.marshal.ShortType)"


@pytest.mark.parametrize("column", ["u", "cdc$deleted_elements_u"])
def test_a_field_that_is_not_known_is_never_left_out(column: str) -> None:
    base = (("pk", "partition_key", "int"), ("u", "regular", "p"))
    layout = Layout.of(
        columns_of(base, {"p": UDT, "elements:p": PLACES}),
        attrs.evolve(TABLE, columns=tuple(BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(base))),
    )
    values = {
        "pk": integer(1),
        "u": integer(4) + integer(8) + integer(4) + integer(9),  # two fields of four bytes; the type has one
        "cdc$deleted_elements_u": integer(1) + integer(2) + b"\x00\x01",
    }
    cells = tuple(values[c.name] if c.name in ("pk", column) else None for c in layout.columns)
    with pytest.raises(CannotReplicate, match="a field of the column 'u' that its type did not have"):
        ChangeWriter(layout, "shop", "copy", {"pk", "u"}).writes(Operation.UPDATE, 7, 0, cells)


def test_a_column_that_was_dropped_is_left_out() -> None:
    [write] = ChangeWriter(LAYOUT, "shop", "copy", {"pk", "Ck", "d", "v"}).writes(
        Operation.INSERT, 7, 0, row(pk=1, Ck=2, d=3, v=4, w=5)
    )
    assert write.cql.startswith('INSERT INTO shop.copy (pk, "Ck", d, v) VALUES')
    assert "<6>" in repr(write), "values are not shown"


@pytest.mark.parametrize(
    ("ttl", "age_s", "left"),
    [(0, 50, 0), (100, 0, 100), (100, 99, 1), (100, 100, 1), (100, 10**6, 1), (100, -1, 100), (100, -(10**6), 100)],
)
def test_what_is_left_of_a_ttl_is_never_more_than_the_whole_nor_nothing(ttl: int, age_s: int, left: int) -> None:
    assert remaining_ttl(ttl, 7, 7 + age_s * 1_000_000) == left


def test_a_ttl_is_counted_in_whole_seconds_of_age() -> None:
    assert (remaining_ttl(100, 0, 999_999), remaining_ttl(100, 0, 1_000_000)) == (100, 99)


MARSHAL = "org.apache.cassandra.db.marshal."
MAP = f"{MARSHAL}MapType({MARSHAL}Int32Type,{MARSHAL}Int32Type)"
INTS = f"{MARSHAL}SetType({MARSHAL}Int32Type)"


def test_a_map_that_is_overwritten_is_written_once() -> None:
    base = (("pk", "partition_key", "int"), ("m", "regular", "map<int, int>"))
    layout = Layout.of(
        columns_of(base, {"map<int, int>": MAP, "elements:map<int, int>": INTS}),
        attrs.evolve(TABLE, columns=tuple(BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(base))),
    )
    entries = b"".join(filter(None, map(integer, (1, 4, 7, 4, 8))))
    values = {"pk": integer(1), "m": entries, "cdc$deleted_m": b"\x01"}
    cells = tuple(values.get(c.name) for c in layout.columns)
    [write] = ChangeWriter(layout, "shop", "copy", {"pk", "m"}).writes(Operation.UPDATE, 7, 0, cells)
    assert write.cql == "UPDATE shop.copy USING TIMESTAMP ? AND TTL ? SET m = ? WHERE pk = ?"
    assert entries in write.values


def test_a_field_without_a_number_is_never_taken_for_the_last() -> None:
    base = (("pk", "partition_key", "int"), ("u", "regular", "p"))
    layout = Layout.of(
        columns_of(base, {"p": UDT, "elements:p": PLACES}),
        attrs.evolve(TABLE, columns=tuple(BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(base))),
    )
    none = b"".join(filter(None, map(integer, (1, -1))))
    values = {"pk": integer(1), "cdc$deleted_elements_u": none}
    cells = tuple(values.get(c.name) for c in layout.columns)
    with pytest.raises(CannotReplicate, match="that its type did not have"):
        ChangeWriter(layout, "shop", "copy", {"pk", "u"}).writes(Operation.UPDATE, 7, 0, cells)


PAIR = f"{MARSHAL}UserType(shop,6f,78:{MARSHAL}Int32Type,79:{MARSHAL}Int32Type)"
TIMES = f"{MARSHAL}SetType({MARSHAL}TimeUUIDType)"
PARTS = (
    ("pk", "partition_key", "int"),
    ("st", "regular", "set<int>"),
    ("m", "regular", "map<int, int>"),
    ("l", "regular", "list<int>"),
    ("u", "regular", "p"),
)
PARTS_LAYOUT = Layout.of(
    columns_of(
        PARTS,
        {
            "set<int>": INTS,
            "elements:set<int>": INTS,
            "map<int, int>": MAP,
            "elements:map<int, int>": INTS,
            "list<int>": f"{MARSHAL}MapType({MARSHAL}TimeUUIDType,{MARSHAL}Int32Type)",
            "elements:list<int>": TIMES,
            "p": PAIR,
            "elements:p": PLACES,
        },
    ),
    attrs.evolve(TABLE, columns=tuple(BaseColumn(n, k, 0, t, False) for n, k, t in PARTS)),
)
AT = bytes(6) + b"\x10" + bytes(9)
ELEMENT = "l[SCYLLA_TIMEUUID_LIST_INDEX(?)]"


def four(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def sized(*cells: bytes | None) -> bytes:
    return b"".join(four(-1) if cell is None else four(len(cell)) + cell for cell in cells)


def many(*cells: bytes, of: int = 1) -> bytes:
    """Return a collection of *cells*, *of* of which are an element."""
    return four(len(cells) // of) + sized(*cells)


ONE, TWO = four(11), four(22)


@pytest.mark.parametrize(
    ("logged", "assignments"),
    [
        ({"st": many(ONE)}, [("st = st + ?", [many(ONE)])]),
        ({"elements_st": many(ONE)}, [("st = st - ?", [many(ONE)])]),
        ({"m": many(ONE, TWO, of=2)}, [("m = m + ?", [many(ONE, TWO, of=2)])]),
        ({"elements_m": many(ONE)}, [("m = m - ?", [many(ONE)])]),
        (
            {"m": many(ONE, TWO, of=2), "elements_m": many(TWO)},
            [("m = m + ?", [many(ONE, TWO, of=2)]), ("m = m - ?", [many(TWO)])],
        ),
        ({"l": many(AT, ONE, of=2)}, [(f"{ELEMENT} = ?", [AT, ONE])]),
        ({"elements_l": many(AT)}, [(f"{ELEMENT} = ?", [AT, None])]),
        ({"u": sized(None, TWO)}, [("u.y = ?", [TWO])]),
        ({"elements_u": many(b"\x00\x01")}, [("u.y = ?", [None])]),
        ({"u": sized(ONE, None), "elements_u": many(b"\x00\x01")}, [("u.x = ?", [ONE]), ("u.y = ?", [None])]),
    ],
)
@pytest.mark.parametrize("operation", [Operation.INSERT, Operation.UPDATE])
def test_parts_of_collections_are_written_one_by_one(
    operation: Operation, logged: dict[str, bytes], assignments: list[tuple[str, list[bytes | None]]]
) -> None:
    values = {n.replace("elements_", "cdc$deleted_elements_"): value for n, value in logged.items()}
    writes = replayed(operation, values)
    if operation == Operation.INSERT:
        assert writes.pop(0).values[1:-2] == (UNSET,) * 4, "the row is made, and its columns are left alone"
    assert [(w.cql, list(w.values[2:])) for w in writes] == [
        (f"UPDATE shop.copy USING TIMESTAMP ? AND TTL ? SET {what} WHERE pk = ?", [*bound, ONE])
        for what, bound in assignments
    ]


@pytest.mark.parametrize(
    ("column", "logged", "whole", "parts"),
    [
        ("st", many(ONE), many(ONE), []),
        ("st", None, None, []),
        ("m", many(ONE, TWO, of=2), many(ONE, TWO, of=2), []),
        ("u", sized(ONE, None), sized(ONE, None), []),
        ("u", sized(None, None), None, []),
        ("l", None, None, []),
        ("l", many(AT, ONE, of=2), None, [(AT, ONE)]),
    ],
)
def test_what_is_overwritten_is_written_as_a_whole_and_the_elements_of_a_list_each_in_its_place(
    column: str, logged: bytes | None, whole: bytes | None, parts: list[tuple[bytes, bytes]]
) -> None:
    first, *rest = replayed(Operation.UPDATE, {column: logged, f"cdc$deleted_{column}": b"\x01"})
    assert dict(zip(["st", "m", "l", "u"], first.values[2:], strict=False)) == {
        **dict.fromkeys(["st", "m", "l", "u"], UNSET),
        column: whole,
    }
    assert [w.values[2:4] for w in rest] == parts


def replayed(operation: Operation, values: Mapping[str, bytes | None]) -> list[Write]:
    cells = tuple({"pk": ONE, **values}.get(c.name) for c in PARTS_LAYOUT.columns)
    return ChangeWriter(PARTS_LAYOUT, "shop", "copy", {"pk", "st", "m", "l", "u"}).writes(operation, 7, 0, cells)


# ---------------------------------------------------------------- rows


def list_of(*numbers: int) -> bytes:
    return len(numbers).to_bytes(4, "big") + b"".join(b"\0\0\0\4" + integer(n) for n in numbers)


def test_a_row_is_inserted_with_its_time_and_its_lists_element_by_element() -> None:
    kinds = (
        ("pk", "partition_key", "int"),
        ("ck", "clustering", "int"),
        ("v", "regular", "int"),
        ("l", "regular", "list<int>"),
        ("f", "regular", "frozen<list<int>>"),
        ("s", "static", "list<int>"),
    )
    table = Table("shop", "t", [BaseColumn(n, k, at, t) for at, (n, k, t) in enumerate(kinds)])
    names = ("l", "pk", "ck", "v", "f", "s")
    row_of = [list_of(7, 8), integer(1), integer(2), None, list_of(3), list_of(9)]
    writes = RowWriter(table, names, 1_000_000).writes(row_of)
    at = (1_000_000).to_bytes(8, "big")
    assert writes[0] == Write(
        "INSERT INTO shop.t (l, pk, ck, v, f, s) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
        (None, integer(1), integer(2), None, list_of(3), None, at),
    )
    element = "UPDATE shop.t USING TIMESTAMP ? SET {}[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ? WHERE {}"
    in_row, in_partition = element.format("l", "pk = ? AND ck = ?"), element.format("s", "pk = ?")
    assert [w.cql for w in writes[1:]] == [in_row, in_row, in_partition]
    assert [w.values[2:] for w in writes[1:]] == [
        (integer(7), integer(1), integer(2)),
        (integer(8), integer(1), integer(2)),
        (integer(9), integer(1)),
    ]
    ids = [w.values[1] for w in writes[1:3]]
    assert all(isinstance(i, bytes) and tu.ticks_to_us(tu.ticks_of(i)) == 1_000_000 for i in ids)
    assert ids == sorted(set(ids), key=tu.order_key), "in the order of the list"  # type: ignore[arg-type]
    assert RowWriter(table, names, 1_000_000).writes(row_of) == writes, "the same ids each time"


def test_a_row_without_a_value_in_its_list_deletes_it() -> None:
    table = Table("shop", "t", [BaseColumn("k", "partition_key", 0, "int"), BaseColumn("l", "regular", 0, "list<int>")])
    [write] = RowWriter(table, ("k", "l"), 7).writes([integer(1), None])
    assert write.values == (integer(1), None, (7).to_bytes(8, "big"))
