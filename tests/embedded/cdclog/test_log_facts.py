"""All that a mutation says is in the log, once, and nothing else."""

from __future__ import annotations

import struct
from typing import Any

from cdc_mutations import LogRow, T, Write, log_of, log_rows, logged, wide
from hypothesis import given
from hypothesis import strategies as st

from rscylla.embedded.storage.mutation import Cell
from rscylla.embedded.types import INT, SetType

WIDE = wide()


def atoms_of_mutation(write: Write) -> set[tuple[Any, ...]]:
    """Everything a mutation of the wide table says, one fact at a time: (row, fact, timestamp, ttl)."""
    out: set[tuple[Any, ...]] = set()
    rows = [(("ck", INT.decode(key[0])), row) for key, row in write.mutation.rows.items()]
    if write.mutation.static_row is not None:
        rows.append((("static", None), write.mutation.static_row))
    for where, row in rows:
        if row.marker is not None:
            out.add((where, "marker", row.marker.timestamp, row.marker.ttl))
        if row.tombstone is not None:
            out.add((where, "deleted", row.tombstone, 0))
        for name, cell in row.cells.items():
            if isinstance(cell, Cell):
                what = "null" if cell.value is None else INT.decode(cell.value)
                out.add((where, name, what, cell.timestamp, cell.ttl))
                continue
            if cell.tombstone is not None:
                out.add((where, name, "cleared", cell.tombstone + 1, 0))
            for key, element in cell.cells.items():
                what = "null" if element.value is None else element.value
                out.add((where, name, key, what, element.timestamp, element.ttl))
    if write.mutation.partition_tombstone is not None:
        out.add(("partition", write.mutation.partition_tombstone))
    return out


def atoms_of_log(rows: list[LogRow]) -> list[tuple[Any, ...]]:
    """The same facts, read back from log rows."""
    log = log_of(WIDE)
    out: list[tuple[Any, ...]] = []
    for row in rows:
        stamp = row.timestamp
        values = row.values
        [operation] = values["cdc$operation"]
        ttl = struct.unpack(">q", values["cdc$ttl"])[0] if "cdc$ttl" in values else 0
        if operation == 4:
            out.append(("partition", stamp))
            continue
        where = ("ck", INT.decode(values["ck"])) if "ck" in values else ("static", None)
        if operation == 2:
            out.append((where, "marker", stamp, ttl))
        if operation == 3:
            out.append((where, "deleted", stamp, 0))
        for column in (*WIDE.static_columns, *WIDE.regular_columns):
            name = column.name
            value = values.get(name)
            if not column.type.is_multicell:
                if value is not None:
                    out.append((where, name, INT.decode(value), stamp, ttl))
                if "cdc$deleted_" + name in values:
                    out.append((where, name, "null", stamp, 0))
                continue
            if "cdc$deleted_" + name in values:
                out.append((where, name, "cleared", stamp, 0))
            gone = values.get("cdc$deleted_elements_" + name)
            if gone is not None:
                keys = log.by_name["cdc$deleted_elements_" + name].type
                assert isinstance(keys, SetType)
                out += [(where, name, key, "null", stamp, 0) for key in keys.split(gone)]
            if value is None:
                continue
            kind = log.by_name[name].type
            if kind.name == "frozen<pair>":
                fields = enumerate(kind.split(value))  # type: ignore[attr-defined]
                out += [(where, name, n.to_bytes(2, "big"), f, stamp, ttl) for n, f in fields if f is not None]
            elif isinstance(kind, SetType):
                out += [(where, name, key, b"", stamp, ttl) for key in kind.split(value)]
            else:
                out += [(where, name, *pair, stamp, ttl) for pair in kind.split(value)]  # type: ignore[attr-defined]
    return out


small = st.integers(0, 2)


maps = st.one_of(st.none(), st.dictionaries(small, small, max_size=2))


assignments = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), small),
        "v": st.one_of(st.none(), small),
        "m": maps,
        "l": maps,
        "st": st.one_of(st.none(), st.sets(small)),
        "u": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"x": st.one_of(st.none(), small)})),
    },
)


statements = st.one_of(
    st.tuples(st.just("insert"), small, assignments),
    st.tuples(st.just("update"), small, assignments),
    st.tuples(st.just("edit"), small, st.sampled_from(["m", "st", "l"]), st.sets(small), st.sets(small)),
    st.tuples(st.just("static"), st.one_of(st.none(), small), maps),
    st.tuples(st.just("delete_row"), small),
    st.tuples(st.just("delete_collection"), small, st.sampled_from(["m", "l", "u"])),
    st.tuples(st.just("delete_partition")),
)


stamps = st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.sampled_from([0, 0, 60, 90]))


def apply(write: Write, statement: tuple[Any, ...]) -> None:
    kind, *rest = statement
    if kind in ("insert", "update"):
        getattr(write, kind)(rest[0], **rest[1])
    elif kind == "edit":
        ck, column, add, remove = rest
        added = add if column == "st" else dict.fromkeys(add, 1)
        write.edit(ck, column=column, add=added, remove=remove - add)
    elif kind == "static":
        write.static(s=rest[0], sm=rest[1])
    elif kind == "delete_collection":
        write.delete_collection(rest[0], column=rest[1])
    else:
        getattr(write, kind)(*rest)


@given(st.lists(st.tuples(stamps, statements), max_size=6))
def test_every_fact_of_a_mutation_is_logged_once_and_nothing_else(batch: list[Any]) -> None:
    write = Write(WIDE)
    for (offset, ttl), statement in batch:
        apply(write.using(T + offset, ttl), statement)
    seeds = iter(range(1000))
    rows = log_rows(write.mutation, log_of(WIDE), lambda _: bytes(16), lambda: next(seeds), None)
    found = atoms_of_log(rows)
    assert len(found) == len(set(found))
    assert set(found) == atoms_of_mutation(write)
    records = {row.time: row.timestamp for row in rows}
    assert sorted(set(records.values())) == list(records.values()), "a record for each timestamp, ascending"
    logged(write)
