"""What is read of a base table: its columns, its options, and the times of their changes."""

from __future__ import annotations

import uuid
from typing import Any

import attrs
import pytest
from cassandra import InvalidRequest
from fakelog import NOW_US, SECOND, FakeLog, pack_options
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.log.query import LOG_SUFFIX
from rscylla.cdc.log.same import reread_table
from rscylla.cdc.log.table import (
    LOG_DROP_AHEAD_US,
    BaseColumn,
    Table,
    _cdc_options,
    dropped_columns,
    log_columns,
    read_base_table,
    read_table,
)
from rscylla.errors import MetadataError, QueryFailed
from rscylla.types import Type


@given(st.dictionaries(st.text(), st.text(), max_size=6))
def test_options_are_read_as_scylla_packs_them(options: dict[str, str]) -> None:
    packed = pack_options(**options)
    assert _cdc_options(packed) == options


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), min_size=1, max_size=3), st.data())
def test_options_that_are_cut_are_refused(options: dict[str, str], data: st.DataObject) -> None:
    packed = pack_options(**options)
    with pytest.raises(MetadataError, match="cannot be read"):
        _cdc_options(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_no_options_are_none() -> None:
    assert _cdc_options(None) is None


def test_a_table_is_read_with_its_keys_in_order(clock: object) -> None:
    base = (("b", "clustering", "int"), ("a", "partition_key", "int"), ("s", "static", "text"), ("v", "regular", "int"))
    log = FakeLog(clock, base=base, ttl_s=7)  # type: ignore[arg-type]
    table = read_table(log, "ks", "t")  # type: ignore[arg-type]
    assert (table.ttl_s, table.enabled, table.log_id) == (7, True, log.log_id)
    assert [c.name for c in (*table.partition_key, *table.clustering_key)] == ["a", "b"]


def test_a_table_is_looked_up_without_reading_its_whole_keyspace(log: FakeLog) -> None:
    read_table(log, "ks", "t")  # type: ignore[arg-type]
    (asked,) = [cql for cql in log.metadata if "system_schema.tables" in cql]
    assert "table_name IN" in asked


BESIDE = ("views", "indexes", "system_schema")


def asked_of(log: FakeLog, since: int) -> list[str]:
    """Return the tables of the schema that were read after *since* queries; its own name for its own columns."""
    asked = log.metadata[since:]
    return [
        "system_schema" if "'system_schema'" in cql else cql.split(" FROM system_schema.")[1].split()[0]
        for cql in asked
    ]


@pytest.mark.parametrize("has_option", [False, True])
def test_the_tablet_options_of_a_table_are_read_where_the_schema_has_them(log: FakeLog, has_option: bool) -> None:
    answer = log.rows

    def rows(cql: str, values: Any = (), **more: Any) -> Any:
        if "'system_schema'" in cql:
            return [("tablets",)] if has_option and tuple(values) == ("scylla_tables", "tablets") else []
        if "FROM system_schema.scylla_tables" in cql:
            assert has_option, "a version that lacks the column refuses the query"
            return [({"min_tablet_count": "8"},)]
        return answer(cql, values, **more)

    without = read_table(log, "ks", "t")  # type: ignore[arg-type]
    log.rows = rows  # type: ignore[method-assign, assignment]
    assert (read_table(log, "ks", "t").digest == without.digest) is not has_option  # type: ignore[arg-type]


def test_a_failure_to_read_the_tablet_options_is_no_table_without_them(log: FakeLog) -> None:
    log.on_rows = lambda cql: InvalidRequest("no") if "'system_schema'" in cql else None
    with pytest.raises(QueryFailed, match=r"looking at the schema tables: .*no"):
        read_table(log, "ks", "t")  # type: ignore[arg-type]


def test_what_only_a_statement_on_the_table_changes_is_read_again_after_one(log: FakeLog) -> None:
    log.altered_us = NOW_US - SECOND
    known = read_table(log, "ks", "t")  # type: ignore[arg-type]
    first = asked_of(log, 0)
    assert set(BESIDE) < set(first)
    count = len(log.metadata)
    again = reread_table(log, known)  # type: ignore[arg-type]
    assert again == known
    assert asked_of(log, count) == [name for name in first if name not in BESIDE]
    log.altered_us = NOW_US
    count = len(log.metadata)
    altered = reread_table(log, again)  # type: ignore[arg-type]
    assert asked_of(log, count) == first
    assert (altered.digest, altered.beside) == (known.digest, known.beside)


def test_an_index_shows_in_the_digest(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    known = read_table(log, "ks", "t")  # type: ignore[arg-type]
    answer = log.rows

    def rows(cql: str, values: Any = None, **more: Any) -> Any:
        return [("by_v", {"target": "v"})] if "system_schema.indexes" in cql else answer(cql, values, **more)

    monkeypatch.setattr(log, "rows", rows)
    log.altered_us = NOW_US
    assert reread_table(log, known).digest != known.digest  # type: ignore[arg-type]


def test_a_new_log_of_the_same_age_is_read_as_a_whole(log: FakeLog) -> None:
    known = attrs.evolve(read_table(log, "ks", "t"), log_id=uuid.uuid4())  # type: ignore[arg-type]
    count = len(log.metadata)
    read_table(log, "ks", "t", known=known)  # type: ignore[arg-type]
    assert set(BESIDE) < set(asked_of(log, count))


@pytest.mark.parametrize("per_ms", [1, 1000], ids=["milliseconds", "microseconds, as Scylla"])
def test_the_time_of_a_rename_is_read_in_either_unit(log: FakeLog, per_ms: int) -> None:
    at_ms = NOW_US // 1000
    name = log.table + LOG_SUFFIX
    log.dropped = [
        (name, "gone", "int", (at_ms + 9000) * per_ms),
        (name, "cdc$deleted_gone", "boolean", (at_ms + 9000) * per_ms),
        (name, "ck", "int", at_ms * per_ms),
        (log.table, "gone", "int", at_ms * per_ms),
    ]
    table = read_table(log, log.keyspace, log.table)  # type: ignore[arg-type]
    assert table.dropped == (("gone", "int"),)
    assert table.renamed_us is not None
    assert 0 <= table.renamed_us + LOG_DROP_AHEAD_US - at_ms * 1000 < 1000
    assert table.may_lack_keys(at_ms * 1000 - SECOND)
    assert not table.may_lack_keys(at_ms * 1000 + SECOND)
    assert "renamed at 20" in table.lost_keys


class Session:
    """Has one answer."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = list(rows)

    def rows(self, cql: str, values: Any, *, doing: str) -> list[tuple[Any, ...]]:
        assert "FROM system_schema.dropped_columns" in cql
        assert (values, doing) == (("ks", "t"), "looking up columns of ks.t")
        return self._rows


def test_the_drop_time_of_a_column_is_read_in_milliseconds_or_microseconds() -> None:
    session = Session(("a", 1_763_719_200_000), ("b", 1_763_719_200_000_123))
    assert dropped_columns(session, "ks", "t") == {  # type: ignore[arg-type]
        "a": 1_763_719_200_000_999,
        "b": 1_763_719_200_000_123,
    }


class Schema:
    """Has the columns of a table, in no order."""

    def __init__(self, *columns: tuple[str, str, int, str, str]) -> None:
        self._columns = list(columns)

    def rows(self, cql: str, values: Any, *, doing: str) -> list[tuple[Any, ...]]:
        assert "FROM system_schema.columns" in cql
        assert values == ("ks", "t")
        return self._columns


def test_key_columns_come_first_and_in_their_order_whatever_their_names() -> None:
    table = read_base_table(
        Schema(  # type: ignore[arg-type]
            ("v", "regular", -1, "int", "none"),
            ("a", "clustering", 1, "int", "desc"),
            ("b", "clustering", 0, "int", "asc"),
            ("s", "static", -1, "int", "none"),
            ("m", "partition_key", 1, "int", "none"),
            ("n", "partition_key", 0, "int", "none"),
        ),
        "ks",
        "t",
    )
    assert table is not None
    assert [c.name for c in table.columns] == ["n", "m", "b", "a", "s", "v"]
    assert [c.name for c in table.key] == ["n", "m", "b", "a"]
    assert [c.name for c in table.columns if c.descending] == ["a"]


def test_a_table_that_is_not_there_is_none() -> None:
    assert read_base_table(Schema(), "ks", "t") is None  # type: ignore[arg-type]


class Told(FakeLog):
    """A cluster with the given tables: name, id, packed options."""

    def __init__(self, clock: Any, *tables: tuple[str, uuid.UUID, bytes | None], table: str = "t") -> None:
        super().__init__(clock, table=table)
        self._told = tables

    def _tables(self, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        _, *names = given
        return [(n, i, {"cdc": o} if o else {}, 7) for n, i, o in self._told if n in names]


def test_options_that_are_not_set_have_the_defaults_of_scylla(clock: Any) -> None:
    log_id = uuid.uuid4()
    log = Told(clock, ("t", uuid.uuid4(), pack_options(a="b")), ("t" + LOG_SUFFIX, log_id, None))
    table = read_table(log, "ks", "t")  # type: ignore[arg-type]
    assert (table.enabled, table.ttl_s, table.preimage, table.postimage, table.delta) == (
        False,
        86_400,
        "false",
        "false",
        "full",
    )
    assert (table.log_id, table.altered_us) == (log_id, 7)


def test_a_base_table_may_be_named_like_the_log_of_another(clock: Any) -> None:
    name = "t" + LOG_SUFFIX
    log_id = uuid.uuid4()
    on = pack_options(enabled="true")
    log = Told(clock, ("t", uuid.uuid4(), None), (name, uuid.uuid4(), on), (name + LOG_SUFFIX, log_id, None))
    assert read_table(log, "ks", name).log_id == log_id  # type: ignore[arg-type]


def test_of_several_renames_the_last_one_counts_also_to_a_name_that_another_column_had(log: FakeLog) -> None:
    name = log.table + LOG_SUFFIX
    log.dropped = [
        (name, "first", "int", NOW_US - 50 * SECOND),
        (name, "cdc$deleted_reused", "boolean", NOW_US - 40 * SECOND),  # a column that was dropped long ago
        (name, "reused", "int", NOW_US),  # a key column that had got its name
        (name, "second", "int", NOW_US - 20 * SECOND),
    ]
    table = read_table(log, log.keyspace, log.table)  # type: ignore[arg-type]
    assert table.renamed_us == NOW_US - LOG_DROP_AHEAD_US


def test_key_columns_come_in_their_order_whatever_their_names(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [
        ("a", "clustering", 1, "int", "asc"),
        ("b", "clustering", 0, "int", "desc"),
        ("m", "partition_key", 1, "int", "none"),
        ("n", "partition_key", 0, "int", "none"),
    ]
    answer = log.rows

    def rows(cql: str, *given: Any, **named: Any) -> Any:
        return columns if "FROM system_schema.columns" in cql else answer(cql, *given, **named)

    monkeypatch.setattr(log, "rows", rows)
    table = read_table(log, "ks", "t")  # type: ignore[arg-type]
    assert [c.name for c in table.partition_key] == ["n", "m"]
    assert [(c.name, c.descending) for c in table.clustering_key] == [("b", True), ("a", False)]


class Typed(Schema):
    """Has user-defined types, too."""

    asked = 0

    def rows(self, cql: str, values: Any, *, doing: str) -> list[tuple[Any, ...]]:
        if "FROM system_schema.types" not in cql:
            return super().rows(cql, values, doing=doing)
        self.asked += 1
        assert values == ("ks",)
        return [
            ("outer", ["i", "n"], ["frozen<inner>", "int"]),
            ("inner", ["Z"], ["list<text>"]),
            ("other", None, None),
        ]


def test_types_of_columns_have_their_fields_and_are_read_if_there_are_any() -> None:
    key = ("k", "partition_key", 0, "frozen<inner>", "none")
    session = Typed(key, ("l", "regular", -1, "list<frozen<outer>>", "none"), ("o", "regular", -1, "outer", "none"))
    table = read_base_table(session, "ks", "t")  # type: ignore[arg-type]
    assert table is not None
    inner = Type("udt", (Type("list", (Type("text"),), frozen=True),), ("Z",), "inner", frozen=True)
    outer = Type("udt", (inner, Type("int")), ("i", "n"), "outer")
    frozen = attrs.evolve(outer, frozen=True)
    assert {c.name: c.type for c in table.columns} == {"k": inner, "l": Type("list", (frozen,)), "o": outer}
    assert session.asked == 1
    plain = Typed(("k", "partition_key", 0, "int", "none"))
    read_base_table(plain, "ks", "t")  # type: ignore[arg-type]
    assert plain.asked == 0


def test_the_column_of_a_compact_table_that_holds_nothing_is_none() -> None:
    session = Schema(("k", "partition_key", 0, "int", "none"), ("value", "regular", -1, "empty", "none"))
    table = read_base_table(session, "ks", "t")  # type: ignore[arg-type]
    assert table is not None
    assert [c.name for c in table.columns] == ["k"]


def column(name: str, kind: str, text: str) -> BaseColumn:
    return BaseColumn(name, kind, 0, text)


def test_cells_of_columns() -> None:
    """What is one cell has a time of its own; of the key nothing has one."""
    many = {"list<int>", "set<int>", "map<int, int>", "addr"}
    one = {"int", "frozen<list<int>>", "frozen<addr>", "frozen<tuple<int>>", "vector<float, 2>", "counter", "new<int>"}
    for text in many | one:
        for kind in ("regular", "static"):
            assert column("c", kind, text).is_multicell == (text in many)
            assert column("c", kind, text).has_cell == (text in one)
        for kind in ("partition_key", "clustering"):
            assert not column("c", kind, text).is_multicell
            assert not column("c", kind, text).has_cell


def test_the_log_of_a_table() -> None:
    table = Table(
        "ks",
        "t",
        [
            column("k", "partition_key", "frozen<list<int>>"),
            column("l", "regular", "list<frozen<set<int>>>"),
            column("m", "static", "map<int, text>"),
            column("s", "regular", "set<uuid>"),
            column("u", "regular", "addr"),
            column("v", "regular", "vector<float, 2>"),
        ],
    )
    fixed = ["cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$ttl", "cdc$end_of_batch"]
    own = {name: str(type_) for name, type_ in log_columns(table).items() if name not in fixed}
    assert own == {
        "k": "frozen<list<int>>",
        **{f"cdc$deleted_{name}": "boolean" for name in "lmsuv"},
        "l": "frozen<map<timeuuid, frozen<set<int>>>>",
        "cdc$deleted_elements_l": "frozen<set<timeuuid>>",
        "m": "frozen<map<int, text>>",
        "cdc$deleted_elements_m": "frozen<set<int>>",
        "s": "frozen<set<uuid>>",
        "cdc$deleted_elements_s": "frozen<set<uuid>>",
        "u": "frozen<addr>",
        "cdc$deleted_elements_u": "frozen<set<smallint>>",
        "v": "vector<float, 2>",
    }
