"""What is altered between the plan of a read and the read ends it, or changes nothing: no value is lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from sparkreader import OF_BOTH_KINDS, Query, World, planned, rows_of

import rscylla
from rscylla._timeuuid import format_time
from rscylla.errors import CDCDisabled, ConfigError, CursorExpired, SchemaChanged, TableChanged
from rscylla.spark import history, latest, spark_errors
from rscylla.spark.source.source import StreamReader

OF_TYPE = {
    "a": "frozen<addr>",
    "b": "addr",
    "l": "list<frozen<addr>>",
    "m": "map<frozen<addr>, int>",
    "n": "map<int, frozen<map<int, frozen<addr>>>>",
    "o": "frozen<outer>",
    "t": "tuple<int, frozen<addr>>",
}
VALUES_OF = {
    "a": "{street: 'x'}",
    "b": "{street: 'x'}",
    "l": "[{street: 'x'}]",
    "m": "{{street: 'x'}: 1}",
    "n": "{1: {2: {street: 'x'}}}",
    "o": "{inner: {street: 'x'}}",
    "t": "(1, {street: 'x'})",
}


@pytest.mark.parametrize(("mode", "more"), [("changes", {}), ("changes", {"failOnSchemaChange": True}), ("log", {})])
@pytest.mark.parametrize("name", OF_TYPE)
@pytest.mark.parametrize("world", ["tablets"], indirect=True)
def test_a_field_that_is_renamed_while_a_query_runs_ends_it(
    world: World, name: str, mode: str, more: dict[str, Any]
) -> None:
    world.session.execute("CREATE TYPE ks.addr (street text)")
    world.session.execute("CREATE TYPE ks.outer (inner frozen<addr>)")
    world.session.execute(f"ALTER TABLE ks.t ADD c {OF_TYPE[name]}")
    world.session.execute(f"INSERT INTO ks.t (pk, ck, c) VALUES (1, 1, {VALUES_OF[name]})")
    query = Query(world, world.stream(mode=mode, **more))
    world.clock.advance(60)
    assert query.run_batch()
    before = query.rows
    world.session.execute("ALTER TYPE ks.addr RENAME street TO road")
    world.session.execute(f"INSERT INTO ks.t (pk, ck, c) VALUES (1, 2, {VALUES_OF[name].replace('street', 'road')})")
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"field 'street' of '.*c.*' is called 'road' in the table") as raised:
        query.run_batch()
    assert raised.value.resumable
    query.restart(world.stream(mode=mode, **more))
    assert query.run_batch()
    assert repr(query.rows[-1]).replace("road", "street").count("'x'") == repr(before[-1]).count("'x'") > 0


@pytest.mark.parametrize("mode", ["changes", "log"])
@pytest.mark.parametrize(
    ("renames", "after"),
    [("ck TO cc", "(pk, cc, v) VALUES (1, 50, 5)"), ("pk TO p", "(p, ck, v) VALUES (1, 50, 5)")],
)
@OF_BOTH_KINDS
def test_a_key_column_that_is_renamed_while_a_query_runs_ends_it(
    world: World, mode: str, renames: str, after: str
) -> None:
    world.write(1)
    query = Query(world, world.stream(mode=mode))
    world.clock.advance(60)
    assert query.run_batch()
    world.session.execute(f"ALTER TABLE ks.t RENAME {renames}")
    world.clock.advance(30)
    world.session.execute(f"INSERT INTO ks.t {after}")
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"ks\.t has a key without the column '.k', which was renamed"):
        query.run_batch()
    query.restart(world.stream(mode=mode))
    assert query.run_batch()
    assert query.rows[-1][renames.split()[-1]] in (1, 50)


def rename_and_back(world: World) -> None:
    """Give a key column another name, and its own one again: the log has other columns, with the same names."""
    for old, new in (("ck", "other"), ("other", "ck")):
        world.session.execute(f"ALTER TABLE ks.t RENAME {old} TO {new}")
        world.clock.advance(10)  # Scylla lets no column come back at once


def test_rows_whose_keys_are_lost_after_a_batch_was_planned_are_an_error(world: World) -> None:
    start = format_time(world.clock.now_us())
    world.write(3)
    world.clock.advance(60)
    reader, partitions = planned(world, startingPosition=start)
    rename_and_back(world)
    with pytest.raises(TableChanged, match=r"a key column of ks\.t was renamed at .*no longer has the keys"):
        rows_of(reader, partitions)


def test_key_columns_that_change_names_with_each_other_end_a_query(world: World) -> None:
    world.session.execute(
        "CREATE TABLE ks.two (pk int, a int, b int, PRIMARY KEY (pk, a, b)) WITH cdc = {'enabled': true}"
    )
    query = Query(world, world.stream(table="two"))
    world.clock.advance(60)
    query.run_batch()
    for renames in ("a TO c", "b TO a", "c TO b"):
        world.session.execute(f"ALTER TABLE ks.two RENAME {renames}")
        world.clock.advance(30)
    world.session.execute("INSERT INTO ks.two (pk, b, a) VALUES (1, 2, 3)")
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"column 'a' of ks\.two is a clustering column number 2 of the type int"):
        query.run_batch()


@pytest.mark.parametrize(
    ("first", "second"),
    [("frozen<list<int>>", "frozen<set<int>>"), ("text", "uuid"), ("set<int>", "frozen<set<int>>"), ("int", "text")],
)
def test_a_column_that_comes_back_as_another_one_ends_a_query(world: World, first: str, second: str) -> None:
    world.session.execute(f"ALTER TABLE ks.t ADD c {first}")
    query = Query(world, world.stream())
    world.clock.advance(60)
    query.run_batch()
    world.session.execute("ALTER TABLE ks.t DROP c")
    world.clock.advance(30)
    world.session.execute(f"ALTER TABLE ks.t ADD c {second}")
    world.write(1)
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"column '.*c' (of ks\.t )?is .* but .* in the schema of the DataFrame"):
        query.run_batch()


def test_a_schema_by_hand_does_not_hide_that_a_key_column_was_renamed(world: World) -> None:
    struct = StructType.fromJson(
        {
            "type": "struct",
            "fields": [{"name": n, "type": "integer", "nullable": True, "metadata": {}} for n in ("pk", "ck")],
        }
    )
    reader = world.source().streamReader(schema=struct)
    assert isinstance(reader, StreamReader)
    query = Query(world, reader)
    world.clock.advance(60)
    query.run_batch()
    world.session.execute("ALTER TABLE ks.t RENAME ck TO cc")
    world.clock.advance(30)
    world.session.execute("INSERT INTO ks.t (pk, cc, v) VALUES (1, 50, 5)")
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"ks\.t has no column 'ck' any more, which was renamed"):
        query.run_batch()


@pytest.mark.parametrize("read", [latest, history])
def test_updates_of_a_time_when_the_log_had_only_keys_are_an_error(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: Callable[..., dict[str, str]], read: Any
) -> None:
    table = f"{vnodes}.t"
    session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int, w int) WITH cdc = {{'enabled': true}}")
    session.execute(f"UPDATE {table} SET w = 1 WHERE id = 1")
    session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'delta': 'keys'}}")
    session.execute(f"UPDATE {table} SET v = 2 WHERE id = 1")
    session.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'delta': 'full'}}")
    session.execute(f"UPDATE {table} SET v = 3 WHERE id = 2")
    changes = spark.read.format("scylla-cdc").options(**options(vnodes, "t")).load()
    with pytest.raises(ConfigError, match="an update has no columns, so the log had the keys"), spark_errors():
        read(changes).collect()


def test_updates_whose_only_column_was_dropped_since_change_nothing(
    spark: SparkSession, session: rscylla.Session, vnodes: str, options: Callable[..., dict[str, str]]
) -> None:
    table = f"{vnodes}.t"
    session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int, w int) WITH cdc = {{'enabled': true}}")
    session.execute(f"UPDATE {table} SET w = 1 WHERE id = 1")
    session.execute(f"INSERT INTO {table} (id, v) VALUES (2, 3)")
    session.execute(f"ALTER TABLE {table} DROP w")
    changes = spark.read.format("scylla-cdc").options(**options(vnodes, "t")).load()
    assert [tuple(row) for row in latest(changes).collect()] == [(2, 3)]


def run_all(query: Query) -> None:
    while query.run_batch():
        pass


def go_off_and_on(world: World, again: str = "'enabled': true, 'ttl': 3600") -> None:
    world.clock.advance(5)
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    world.write(1)
    world.clock.advance(5)
    world.session.execute(f"ALTER TABLE ks.t WITH cdc = {{{again}}}")
    world.clock.advance(5)


@pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe")
@pytest.mark.parametrize("lag", ["0s", "30s"])
@pytest.mark.parametrize("restarts", [True, False])
@OF_BOTH_KINDS
def test_a_query_does_not_pass_over_a_time_when_cdc_was_off(world: World, lag: str, restarts: bool) -> None:
    query = Query(world, world.stream(lag=lag, startingPosition=format_time(world.clock.now_us())))
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    go_off_and_on(world)
    world.write(1)
    world.clock.advance(60)
    for _ in range(2):
        if restarts:
            query.restart(world.stream(lag=lag))
        with pytest.raises(CursorExpired, match="switching CDC off and on: changes of that time may be lost") as caught:
            run_all(query)
        assert caught.value.gap_from < caught.value.gap_to
    query.restart(world.stream(lag=lag, failOnDataLoss=False))
    run_all(query)
    assert [row["ck"] for row in query.rows] == [0, 2]
    query.restart(world.stream(lag=lag))
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()


@pytest.mark.filterwarnings("ignore:the lag of 0 s is unsafe")
@pytest.mark.parametrize("lag", ["0s", "30s"])
@OF_BOTH_KINDS
def test_a_query_of_a_table_whose_cdc_is_off_ends_behind_what_was_logged(world: World, lag: str) -> None:
    query = Query(world, world.stream(lag=lag))
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    world.write(1)
    world.clock.advance(5)
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
    world.write(1)
    world.clock.advance(60)
    for _ in range(2):
        with pytest.raises(CDCDisabled, match=r"CDC of ks\.t is switched off since .* failOnDataLoss"):
            run_all(query)
        assert [row["ck"] for row in query.rows] == [0, 1]
        query.restart(world.stream(lag=lag))
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'postimage': true}")
    world.write(1)
    world.clock.advance(60)
    query.restart(world.stream(lag=lag))
    with pytest.raises(CursorExpired, match="was switched off between"):
        run_all(query)
    query.restart(world.stream(lag=lag, failOnDataLoss=False))
    run_all(query)
    assert [row["ck"] for row in query.rows] == [0, 1, 3]


def test_a_time_when_the_log_had_only_keys_is_a_gap_of_a_query(world: World) -> None:
    query = Query(world, world.stream())
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 3600, 'delta': 'keys'}")
    world.write(1)
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 3600, 'delta': 'full'}")
    world.clock.advance(60)
    with pytest.raises(CursorExpired):
        run_all(query)


@pytest.mark.parametrize("what", ["ADD w int", "WITH comment = 'x'", "WITH cdc = {'enabled': true, 'ttl': 7200}"])
def test_what_else_is_altered_is_no_gap_of_a_query(world: World, what: str) -> None:
    query = Query(world, world.stream())
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    world.session.execute(f"ALTER TABLE ks.t {what}")
    world.write(1)
    world.clock.advance(60)
    query.restart(world.stream())
    assert query.run_batch()
    assert len(query.rows) == 2


@OF_BOTH_KINDS
def test_the_cursor_of_a_batch_says_that_cdc_was_on(world: World) -> None:
    stream = rscylla.NewStream(world.session, "ks", "t", clock=world.clock)
    cursor = stream.cursor_at()
    world.clock.advance(60)
    world.write(1)
    world.clock.advance(60)
    assert len(world.batch(startingPosition=cursor)) == 1
    go_off_and_on(world)
    world.clock.advance(60)
    with pytest.raises(CursorExpired, match="switching CDC off and on"):
        world.batch(startingPosition=cursor)
    assert len(world.batch(startingPosition=cursor, failOnDataLoss=False)) == 1


def test_a_query_ends_when_the_log_gets_only_keys(world: World) -> None:
    query = Query(world, world.stream())
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    world.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 3600, 'delta': 'keys'}")
    world.write(1)
    world.clock.advance(60)
    with pytest.raises(SchemaChanged, match=r"the log of ks\.t has delta 'keys' now, and had 'full' when"):
        query.run_batch()
    query.restart(world.stream())
    assert query.run_batch()


def test_a_start_with_the_wrong_table_leaves_the_checkpoint_as_it_is(world: World) -> None:
    world.session.execute("CREATE TABLE ks.other (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
    query = Query(world, world.stream())
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    ends = list(query.ends)
    world.clock.advance(60)
    query.restart(world.stream(table="other"))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"the checkpoint belongs to a different CDC log than ks\.other"):
            query.run_batch()
        assert query.ends == ends
    query.restart(world.stream())
    world.write(1)
    world.clock.advance(60)
    assert query.run_batch()
    assert [row["ck"] for row in query.rows] == [0, 1]
