"""Preimages and postimages: which rows have one, which columns it shows, and how it follows several records."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from cdc_mutations import T, Write, cks, encoded_key, i, logged, single, table, wide

from rscylla.embedded.schema.tables import TableSchema
from rscylla.embedded.storage.mutation import Bound, Key
from rscylla.embedded.types import INT, ListType, MapType, SetType, UdtType


@attrs.define
class Stored:
    """A partition before the write, given as plain values by clustering value; checks what it is asked for."""

    base: TableSchema
    rows: dict[tuple[int, ...], dict[str, Any]] = attrs.field(factory=dict)
    static: dict[str, Any] = attrs.field(factory=dict)

    def row(self, key: Key) -> dict[str, Any] | None:
        found = self.rows.get(tuple(INT.decode(part) for part in key))
        return None if found is None else self._encoded(found, "regular")

    def static_row(self) -> dict[str, Any] | None:
        return self._encoded(self.static, "static") or None

    def _encoded(self, values: dict[str, Any], kind: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in values.items():
            column = self.base.by_name[name]
            assert column.kind == kind
            cql_type = column.type
            if not cql_type.is_multicell:
                out[name] = i(value)
            elif isinstance(cql_type, SetType):
                out[name] = {i(element): b"" for element in value}
            elif isinstance(cql_type, UdtType):
                types = dict(zip(cql_type.field_names, cql_type.field_types, strict=True))
                out[name] = {encoded_key(cql_type, f): types[f].encode(v) for f, v in value.items()}
            else:
                assert isinstance(cql_type, MapType | ListType)
                out[name] = {encoded_key(cql_type, key): i(element) for key, element in value.items()}
        return out


def one(write: Write, rows: dict[tuple[int, ...], dict[str, Any]] | None = None, **static: Any) -> list[dict[str, Any]]:
    """The rows of a write that makes one record, over a partition with these rows."""
    [(offset, found)] = logged(write, Stored(write.base, rows or {}, static))
    assert offset == 0
    return found


PRE = wide(preimage="true")
FULL = wide(preimage="full")
POST = wide(postimage=True)
BOTH = wide(preimage="true", postimage=True)

FULL_NULLS = {f"deleted_{n}": True for n in ("a", "b", "l", "m", "n", "st", "u", "v")}

# ---------------------------------------------------------------- preimage


def test_a_preimage_shows_the_columns_touched() -> None:
    rows = one(Write(PRE).update(1, v=5), {(1,): {"v": 4, "a": 3}})
    assert rows == [{"op": 0, "ck": 1, "v": 4}, {"op": 1, "ck": 1, "v": 5}]


def test_a_preimage_never_carries_the_ttl_of_the_write() -> None:
    rows = one(Write(PRE).using(ttl=60).update(1, v=5), {(1,): {"v": 4}})
    assert rows == [{"op": 0, "ck": 1, "v": 4}, {"op": 1, "ck": 1, "v": 5, "ttl": 60}]


def test_a_preimage_marks_a_null_column_as_deleted() -> None:
    rows = one(Write(PRE).update(1, v=5), {(1,): {"a": 3}})
    assert rows[0] == {"op": 0, "ck": 1, "deleted_v": True}


def test_a_row_that_was_not_there_has_no_preimage() -> None:
    assert one(Write(PRE).insert(1, v=5)) == [{"op": 2, "ck": 1, "v": 5}]


def test_an_insert_of_keys_over_a_row_has_a_preimage_of_keys() -> None:
    assert one(Write(PRE).insert(1), {(1,): {"v": 4}}) == [{"op": 0, "ck": 1}, {"op": 2, "ck": 1}]


def test_a_full_preimage_shows_every_column_of_its_kind() -> None:
    rows = one(Write(FULL).update(1, v=5), {(1,): {"v": 4, "a": 3}})
    nulls = {k: v for k, v in FULL_NULLS.items() if k not in ("deleted_v", "deleted_a")}
    assert rows[0] == {"op": 0, "ck": 1, "v": 4, "a": 3, **nulls}


def test_a_row_delete_has_a_preimage_of_all_columns() -> None:
    rows = one(Write(PRE).delete_row(1), {(1,): {"v": 4}})
    nulls = {k: v for k, v in FULL_NULLS.items() if k != "deleted_v"}
    assert rows == [{"op": 0, "ck": 1, "v": 4, **nulls}, {"op": 3, "ck": 1}]


def test_range_and_partition_deletes_have_no_preimage() -> None:
    stored = {(1,): {"v": 4}}
    assert one(Write(PRE).delete_range(Bound(cks(0)), Bound(cks(9))), stored) == [
        {"op": 5, "ck": 0},
        {"op": 7, "ck": 9},
    ]
    assert one(Write(PRE).delete_partition(), stored) == [{"op": 4}]


def test_a_partition_delete_of_a_table_without_clustering_columns_has_a_preimage() -> None:
    base = single(preimage="true")
    assert one(Write(base).delete_partition(), {(): {"v": 4}}) == [{"op": 0, "v": 4}, {"op": 4}]
    assert one(Write(base).delete_partition()) == [{"op": 4}]


def test_a_static_write_has_a_static_preimage_apart_from_the_row() -> None:
    rows = one(Write(PRE).static(s=2).update(1, v=5), {(1,): {"v": 4}}, s=1, sm={1: 1})
    assert rows == [
        {"op": 0, "s": 1},
        {"op": 0, "ck": 1, "v": 4},
        {"op": 1, "s": 2},
        {"op": 1, "ck": 1, "v": 5},
    ]


def test_no_static_preimage_when_no_static_value_was_there() -> None:
    assert one(Write(PRE).static(s=2), {(1,): {"v": 4}}) == [{"op": 1, "s": 2}]


def test_a_full_static_preimage_shows_all_static_columns() -> None:
    assert one(Write(FULL).static(s=2), {}, s=1)[0] == {"op": 0, "s": 1, "deleted_sm": True}


def test_collections_in_a_preimage_are_whole() -> None:
    stored = {(1,): {"m": {1: 1, 2: 2}, "st": {3, 4}, "l": {5: 5, 6: 6}, "u": {"x": 7}}}
    write = (
        Write(PRE)
        .edit(1, column="m", add={9: 9})
        .edit(1, column="st", remove=[3])
        .edit(1, column="l", add={8: 8})
        .edit(1, column="u", add={"y": "z"})
    )
    assert one(write, stored)[0] == {
        "op": 0,
        "ck": 1,
        "m": {1: 1, 2: 2},
        "st": frozenset({3, 4}),
        "l": {5: 5, 6: 6},
        "u": {"x": 7, "y": None},
    }


def test_preimages_of_a_batch_stand_before_all_changes_in_clustering_order() -> None:
    stored = {(1,): {"v": 1}, (2,): {"v": 2}, (3,): {"v": 3}}
    rows = one(Write(PRE).update(3, v=30).update(1, v=10), stored)
    assert [(r["op"], r["ck"]) for r in rows] == [(0, 1), (0, 3), (1, 1), (1, 3)]


def test_preimages_stand_in_clustering_order_where_the_changes_do_not() -> None:
    stored = {(1,): {"v": 1}, (2,): {"v": 2}}
    rows = one(Write(PRE).insert(2, v=20).using(ttl=60).update(1, v=10), stored)
    assert [(r["op"], r["ck"]) for r in rows] == [(0, 1), (0, 2), (2, 2), (1, 1)]


def test_an_empty_collection_was_null() -> None:
    assert one(Write(PRE).update(1, m={1: 1}), {(1,): {"m": {}}})[0] == {"op": 0, "ck": 1, "deleted_m": True}


def test_one_preimage_for_a_row_with_several_delta_rows() -> None:
    rows = one(Write(PRE).using(ttl=60).insert(1, v=5, a=None, m={1: 1}), {(1,): {"v": 4}})
    assert [r["op"] for r in rows] == [0, 2, 1, 1]
    assert rows[0] == {"op": 0, "ck": 1, "v": 4, "deleted_a": True, "deleted_m": True}


def test_the_read_names_the_columns_of_the_first_row_only() -> None:
    """As in Scylla: the second row's own column was not read and looks null, though it had a value."""
    stored = {(1,): {"v": 1, "a": 1}, (2,): {"v": 2, "a": 2}}
    rows = one(Write(PRE).update(1, v=10).update(2, a=20), stored)
    assert rows[:2] == [{"op": 0, "ck": 1, "v": 1}, {"op": 0, "ck": 2, "deleted_a": True}]


@pytest.mark.parametrize("also", ["row delete", "postimage", "full"])
def test_the_read_names_all_columns_when_more_is_asked(also: str) -> None:
    stored = {(1,): {"v": 1, "a": 1}, (2,): {"v": 2, "a": 2}, (3,): {"v": 3}}
    base = {"row delete": PRE, "postimage": BOTH, "full": FULL}[also]
    write = Write(base).update(1, v=10).update(2, a=20)
    if also == "row delete":
        write.delete_row(3)
    second = next(r for r in one(write, stored) if r["op"] == 0 and r["ck"] == 2)
    assert second["a"] == 2


# ---------------------------------------------------------------- postimage


def test_a_postimage_shows_the_whole_row_after_the_write() -> None:
    rows = one(Write(POST).update(1, v=5), {(1,): {"v": 4, "a": 3}})
    assert rows == [{"op": 1, "ck": 1, "v": 5}, {"op": 9, "ck": 1, "v": 5, "a": 3}]


def test_a_null_column_is_just_null_in_a_postimage() -> None:
    rows = one(Write(POST).update(1, v=None), {(1,): {"v": 4, "a": 3}})
    assert rows[1] == {"op": 9, "ck": 1, "a": 3}


def test_a_postimage_of_nulls_on_a_missing_row_has_keys_only() -> None:
    assert one(Write(POST).update(1, v=None))[1] == {"op": 9, "ck": 1}


def test_a_new_row_has_a_postimage() -> None:
    assert one(Write(POST).insert(1))[1] == {"op": 9, "ck": 1}


@pytest.mark.parametrize("how", ["row", "range", "partition"])
def test_deletes_have_no_postimage_and_take_that_of_rows_they_cover(how: str) -> None:
    write = Write(POST).insert(1, v=5)
    if how == "row":
        write.delete_row(1)
    elif how == "range":
        write.delete_range(Bound(cks(0)), Bound(cks(1)))
    else:
        write.delete_partition()
    assert 9 not in [row["op"] for row in one(write, {(1,): {"v": 4}})]


def test_a_range_delete_keeps_the_postimage_of_rows_beside_it() -> None:
    write = Write(POST).insert(1, v=5).delete_range(Bound(cks(1), inclusive=False), Bound(cks(9)))
    assert one(write)[-1] == {"op": 9, "ck": 1, "v": 5}


def test_postimages_stand_last_static_first_then_clustering_order() -> None:
    rows = one(Write(POST).insert(2, v=2).insert(1, v=1).static(s=3), {}, sm={1: 1})
    assert [(r["op"], r.get("ck")) for r in rows] == [(1, None), (2, 1), (2, 2), (9, None), (9, 1), (9, 2)]
    assert rows[3] == {"op": 9, "s": 3, "sm": {1: 1}}


def test_collections_in_a_postimage_have_the_edit_applied() -> None:
    stored = {(1,): {"m": {1: 1, 2: 2}, "n": {1: 1}, "st": {3}, "l": {5: 5, 6: 6}, "u": {"x": 7}}}
    write = (
        Write(POST)
        .edit(1, column="m", add={2: 20, 3: 30}, remove=[1])
        .update(1, n={4: 4})
        .edit(1, column="l", remove=[5])
        .edit(1, column="u", add={"y": "z"}, remove=["x"])
    )
    assert one(write, stored)[-1] == {
        "op": 9,
        "ck": 1,
        "m": {2: 20, 3: 30},
        "n": {4: 4},
        "st": frozenset({3}),
        "l": {6: 6},
        "u": {"x": None, "y": "z"},
    }


def test_removing_the_last_element_leaves_an_empty_value_in_the_postimage() -> None:
    write = Write(POST).edit(1, column="m", remove=[1]).edit(1, column="st", remove=[3])
    assert one(write, {(1,): {"m": {1: 1}}})[-1] == {"op": 9, "ck": 1, "m": {}}


def test_clearing_a_collection_leaves_null_and_clearing_a_udt_leaves_null_fields() -> None:
    write = Write(POST).update(1, m=None, u=None)
    assert one(write, {(1,): {"m": {1: 1}, "u": {"x": 1}}})[-1] == {"op": 9, "ck": 1, "u": {"x": None, "y": None}}


def test_a_collection_with_ttl_is_cleared_before_it_is_filled() -> None:
    """The log shows two rows for it; the postimage must not show the elements from before."""
    rows = one(Write(POST).using(ttl=60).update(1, m={2: 2}), {(1,): {"m": {1: 1}}})
    assert [r["op"] for r in rows] == [1, 1, 9]
    assert rows[2] == {"op": 9, "ck": 1, "m": {2: 2}}


def test_delta_keys_leaves_images_whole() -> None:
    base = table(*PRE.columns, preimage="true", postimage=True, delta="keys")
    assert one(Write(base).update(1, v=5), {(1,): {"v": 4, "a": 3}}) == [
        {"op": 0, "ck": 1, "v": 4},
        {"op": 1, "ck": 1},
        {"op": 9, "ck": 1, "v": 5, "a": 3},
    ]


# ---------------------------------------------------------------- several records


def test_a_later_record_sees_what_the_earlier_one_did() -> None:
    write = Write(BOTH).update(1, v=5).using(T + 1).update(1, v=6, a=7).using(T + 2).delete_row(1)
    records = logged(write, Stored(BOTH, {(1,): {"v": 4}}))
    nulls = {k: v for k, v in FULL_NULLS.items() if k not in ("deleted_v", "deleted_a")}
    # The mutation keeps the newer of two cells: v = 5 is overwritten before the log is made.
    assert records == [
        (
            1,
            [
                {"op": 0, "ck": 1, "v": 4, "deleted_a": True},
                {"op": 1, "ck": 1, "v": 6, "a": 7},
                {"op": 9, "ck": 1, "v": 6, "a": 7},
            ],
        ),
        (2, [{"op": 0, "ck": 1, "v": 6, "a": 7, **nulls}, {"op": 3, "ck": 1}]),
    ]


def test_the_state_is_carried_on_with_preimages_alone() -> None:
    write = Write(PRE).update(1, v=5).using(T + 1).update(1, a=7)
    records = logged(write, Stored(PRE, {(1,): {"v": 4}}))
    assert [rows[0] for _, rows in records] == [
        {"op": 0, "ck": 1, "v": 4},
        {"op": 0, "ck": 1, "deleted_a": True},
    ]
    appeared = logged(Write(PRE).insert(1, v=5).using(T + 1).update(1, a=7), Stored(PRE))
    assert [[row["op"] for row in rows] for _, rows in appeared] == [[2], [0, 1]]


def test_a_static_row_written_by_an_earlier_record_has_a_preimage_even_if_null() -> None:
    write = Write(PRE).static(s=None).using(T + 1).static(sm={1: 1})
    records = logged(write, Stored(PRE))
    assert records == [
        (0, [{"op": 1, "deleted_s": True}]),
        (1, [{"op": 0, "deleted_sm": True}, {"op": 1, "sm": {1: 1}, "deleted_sm": True}]),
    ]


def test_images_need_a_reader() -> None:
    with pytest.raises(ValueError, match="reader"):
        logged(Write(PRE).update(1, v=5))


def test_nothing_is_read_when_nothing_is_written() -> None:
    class Forbidden:
        def row(self, key: Key) -> None:
            raise AssertionError(key)

        def static_row(self) -> None:
            raise AssertionError("static")

    assert logged(Write(BOTH), Forbidden()) == []
    assert logged(Write(BOTH).delete_partition(), Forbidden()) == [(0, [{"op": 4}])]
    assert logged(Write(BOTH).delete_range(Bound(), Bound()), Forbidden()) == [(0, [{"op": 5}, {"op": 7}])]
