"""Windows as Arrow: the rows of a service's windows, with its cursor, for pandas, Polars and DuckDB."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import histories
import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla._timeuuid import datetime_of
from rscylla.abc import BatchProgress
from rscylla.driver.pages import Page
from rscylla.driver.session import ReadSession
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess
from rscylla.reflex import batch_metrics_for
from rscylla.testing import ManualClock

pytestmark = pytest.mark.arrow
pa = pytest.importorskip("pyarrow", reason="pip install 'rscylla[arrow]'")

LAG = rscylla.StreamLag(seconds=30)
TO_HEAD = rscylla.StreamToHead()
NAME = "report"
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
TABLE = "CREATE TABLE ks.t (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true, 'ttl': 3600}"
OPERATION = {"changes": "cdc_operation", "events": "type", "log": "cdc_operation"}
MODES = ("changes", "events", "log")
WORKER = Path(__file__).resolve().parents[1] / "support" / "soaks" / "kill_arrow.py"


@attrs.define
class World:
    """A server on a driven clock with a table, a stream, and a store."""

    scylla: EmbeddedScylla
    clock: ManualClock
    session: rscylla.Session
    store: Any = attrs.field(factory=MemoryCursorStore)
    written: int = 0

    def execute(self, *statements: str) -> None:
        for cql in statements:
            self.session.execute(cql)

    def write(self, count: int, *, every: float = 0.0) -> None:
        for _ in range(count):
            self.execute(f"INSERT INTO ks.t (pk, ck, v) VALUES ({self.written % 7}, {self.written}, {self.written})")
            self.written += 1
            self.clock.advance(every)

    def stream(self, **settings: Any) -> rscylla.Stream:
        return rscylla.NewStream(self.session, "ks", "t", clock=self.clock, consistency="ONE", **settings)

    def windows(self, *options: Any, stream: dict[str, Any] | None = None, **more: Any) -> rscylla.cdc.ArrowWindows:
        return rscylla.windows_as_arrow(self.stream(**stream or {}), self.store, NAME, LAG, *options, **more)

    def expected(self, mode: str) -> Any:
        """Return the whole log up to the head as the windows of a service show it."""
        tables: list[Any] = []
        consumer = rscylla.windows("expected", lambda window, _: tables.append(window.to_arrow(mode)))
        spec = rscylla.Spec(self.stream(), MemoryCursorStore(), consumer, LAG, TO_HEAD, clock=self.clock)
        with pytest.raises(rscylla.HeadReached):
            rscylla.run(spec)
        return pa.concat_tables(tables, promote_options="permissive")


@pytest.fixture(params=["vnodes", "tablets"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, tablets=request.param == "tablets", seed=5) as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE ks WITH replication = {NETWORK}")
        session.execute(TABLE)
        yield World(scylla, clock, session)


only_vnodes = pytest.mark.parametrize("world", ["vnodes"], indirect=True)


def switch(world: World) -> None:
    """Start a new generation ten seconds from now, and go past it."""
    if world.stream().describe().topology.model == "tablets":
        world.scylla.split_tablets("ks", "t", timedelta(seconds=10))
    else:
        world.scylla.new_generation(timedelta(seconds=10))
    world.clock.advance(11)


def numbers(found: Any) -> list[int]:
    """Return the values written, of changes."""
    return [row["v"] for row in found.table().column("cdc_values").to_pylist()]


# ---------------------------------------------------------------- the same rows


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cdc", [histories.DELTAS, histories.IMAGES])
def test_random_histories_have_the_rows_of_a_service_in_its_order(world: World, seed: int, cdc: str) -> None:
    dice = random.Random(seed)
    world.execute("DROP TABLE ks.t")
    histories.create(world.session.execute, "ks", "t", cdc)
    for number, cql in enumerate(histories.statements(seed, "ks.t", 120)):
        world.execute(cql)
        world.clock.advance(dice.choice([0, 0, 0.4, 7]))
        if number == 60:
            switch(world)
    world.clock.advance(31)
    for mode in MODES:
        world.store = MemoryCursorStore()
        longest = timedelta(seconds=dice.choice([20, 90, 3600]))
        tables = [
            rows.table()
            for _, rows in world.windows(
                TO_HEAD,
                mode=mode,
                shortest=timedelta(seconds=1),
                longest=longest,
                stream={"limits": rscylla.Limits(page_size=dice.choice([3, 50]), window_rows=dice.choice([20, 500]))},
            )
        ]
        found, expected = pa.concat_tables(tables), world.expected(mode)
        assert found.num_rows > 100
        assert found.schema == expected.schema
        if mode == "log":
            by_place = [("cdc_stream_id", "ascending"), ("cdc_time", "ascending"), ("cdc_batch_seq_no", "ascending")]
            found, expected = found.sort_by(by_place), expected.sort_by(by_place)
        assert found.to_pylist() == expected.to_pylist()


def test_each_pass_over_a_window_has_the_same_rows(world: World) -> None:
    world.write(50, every=1)
    world.clock.advance(31)
    for _, rows in world.windows(TO_HEAD):
        first = [batch.to_pylist() for batch in rows]
        assert [batch.to_pylist() for batch in rows] == first
        assert rows.table().to_pylist() == rows.reader().read_all().to_pylist() == [*chain(*first)]


def test_columns_are_those_asked_for_in_their_order(world: World) -> None:
    world.write(5)
    world.clock.advance(31)
    [(_, rows)] = [w for w in world.windows(TO_HEAD, columns=["ck", "cdc_operation"]) if w[1].table().num_rows]
    assert rows.schema.names == ["ck", "cdc_operation"]
    assert rows.table().to_pydict() == {"ck": [0, 1, 2, 3, 4], "cdc_operation": ["insert"] * 5}


def test_a_quiet_table_has_empty_windows_with_their_columns(world: World) -> None:
    world.clock.advance(300)
    found = list(world.windows(TO_HEAD))
    assert found
    for _, rows in found:
        assert list(rows) == []
        assert rows.table().num_rows == 0
        assert rows.table().schema.names[:2] == rows.schema.names[:2]
    assert world.store.get_cursor(NAME) == found[-1][1].cursor


# ---------------------------------------------------------------- the cursor


def test_the_cursor_moves_when_the_next_window_is_asked_for(world: World) -> None:
    world.write(60, every=1)
    world.clock.advance(31)
    loop = world.windows(TO_HEAD, longest=timedelta(seconds=20))
    first, rows = next(loop)
    rows.table()
    assert world.store.get_cursor(NAME) == ""
    second, rows = next(loop)
    assert world.store.get_cursor(NAME) == first.end
    batch = next(iter(rows))
    del loop
    again, same = next(world.windows(TO_HEAD, longest=timedelta(seconds=20)))
    assert (again.name, again) == (second.name, second)
    assert same.table().slice(0, batch.num_rows).to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("max_rows", [None, 8])
def test_a_window_that_comes_again_has_the_name_of_its_start_and_may_end_elsewhere(
    world: World, max_rows: int | None
) -> None:
    parts: dict[str, list[int]] = {}  # a sink that replaces what it has of the same start
    ends: dict[str, set[str]] = {}
    for run in range(6):
        world.write(20, every=1)
        world.clock.advance(31)
        for done, (window, rows) in enumerate(world.windows(TO_HEAD, max_rows=max_rows)):
            parts[window.start_name] = numbers(rows)
            ends.setdefault(window.start_name, set()).add(window.name)
            if done == run % 3 and run < 5:
                break
    assert sorted(chain(*parts.values())) == list(range(world.written)), "nothing is lost or doubled"
    assert max(map(len, ends.values())) > 1, "a window that ended elsewhere"


def test_each_window_that_is_done_is_told_to_the_metrics(world: World) -> None:
    world.write(60, every=1)
    world.clock.advance(31)
    metrics = batch_metrics_for(CollectorRegistry())
    seen = []
    for window, _ in world.windows(TO_HEAD, longest=timedelta(seconds=20), on_done=metrics):
        seen.append(window)
        assert metrics.query(NAME).batches == len(seen) - 1
    assert metrics.query(NAME).batches == len(seen) > 1
    assert f"query {NAME}, batch {seen[-1].name}: " in metrics.query(NAME).line()


def test_a_window_saved_before_a_break_is_done(world: World) -> None:
    world.write(60, every=1)
    world.clock.advance(31)
    with world.windows(TO_HEAD, longest=timedelta(seconds=20)) as loop:
        window, _ = next(loop)
        loop.save()
    assert world.store.get_cursor(NAME) == window.end
    assert list(loop) == []


def test_a_service_and_arrow_hand_a_consumer_to_each_other(world: World) -> None:
    seen: list[int] = []

    def serve(count: int | None) -> None:
        """Run the service until it has seen *count* changes more, or all."""
        end = None if count is None else len(seen) + count

        def consume(event: rscylla.Event, _: rscylla.Fate) -> None:
            if len(seen) == end:
                raise RuntimeError("enough")
            assert event.change is not None
            seen.append(event.change.key["ck"])

        consumer = rscylla.Consumer(NAME, consume, registry=None)
        spec = rscylla.Spec(world.stream(prefetch=0), world.store, consumer, LAG, TO_HEAD, clock=world.clock)
        with pytest.raises(rscylla.HeadReached if end is None else rscylla.RunError):
            rscylla.run(spec)

    def columns() -> None:
        for _, rows in world.windows(TO_HEAD):
            seen.extend(numbers(rows))

    for work in (lambda: serve(3), columns, lambda: serve(4), columns, lambda: serve(None), columns):
        world.write(10, every=0.1)
        if world.written == 30:
            switch(world)
        world.clock.advance(31)
        work()
    world.clock.advance(31)
    columns()
    assert seen == list(range(world.written)), "each once, in the order of writing"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_9_repeats_a_window_with_the_same_rows_and_loses_none(tmp_path: Path) -> None:
    dice = random.Random(16)
    with EmbeddedScyllaProcess() as scylla:
        session = scylla.connect()
        session.execute(f"CREATE KEYSPACE shop WITH replication = {NETWORK}")
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
        insert = session.prepare("INSERT INTO shop.orders (id, n) VALUES (?, ?)")
        for n in range(1500):
            session.execute(insert, (n % 50, n))
        until = rscylla.SystemClock().now_us()
        out = tmp_path / "rows"
        command = [sys.executable, str(WORKER), f"{scylla.contact_points[0]}:{scylla.port}", str(out), str(until)]
        kills = 6
        for kill in range(kills + 1):
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert worker.stdout is not None
            if kill < kills:
                for _ in range(dice.randrange(1, 12)):
                    assert worker.stdout.readline(), "it must still be running when it is killed"
                worker.send_signal(signal.SIGKILL)
            worker.stdout.read()
            worker.stdout.close()
            assert worker.wait(60) == (0 if kill == kills else -signal.SIGKILL)
    passes: dict[str, list[list[int]]] = {}
    for line in out.read_text().splitlines():
        window, attempt, *values = line.split()
        found = passes.setdefault(window, [])
        if attempt == "begin":
            found.append([])
        else:
            found[-1] += map(int, [attempt, *values])
    whole = [found[-1] for _, found in sorted(passes.items())]
    assert [*chain(*whole)] == list(range(1500)), "the last pass over each window has all of its rows"
    for found in passes.values():
        assert all(found[-1][: len(rows)] == rows for rows in found), "the same rows again"
    assert max(map(len, passes.values())) > 1


# ---------------------------------------------------------------- bounds


@only_vnodes
def test_windows_with_a_limit_of_rows_are_read_once_and_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(300, every=1)
    world.clock.advance(31)
    found = list(world.windows(TO_HEAD, max_rows=40))
    sent: list[Any] = []
    monkeypatch.setattr(ReadSession, "send", lambda *args, **_: sent.append(args))
    assert all(rows.table().num_rows <= 40 for _, rows in found)
    assert [*chain(*(numbers(rows) for _, rows in found))] == list(range(300))
    assert sent == []


@only_vnodes
def test_a_burst_that_no_window_can_divide_is_returned_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rscylla.cdc.arrow.columnar.ROWS_A_BATCH", 4)
    at = world.clock.now_us()
    inserts = (f"INSERT INTO ks.t (pk, ck, v) VALUES (1, {n}, {n}) USING TIMESTAMP {at}; " for n in range(20))
    world.execute(f"BEGIN UNLOGGED BATCH {''.join(inserts)} APPLY BATCH")
    world.clock.advance(31)
    told: list[BatchProgress] = []
    found = [rows for _, rows in world.windows(TO_HEAD, max_rows=5, on_done=told.append)]
    assert [rows.table().num_rows for rows in found if rows.table().num_rows] == [20]
    assert [batch.rows for batch in told if batch.rows] == [20]


@only_vnodes
@pytest.mark.parametrize("mode", ["changes", "log"])
def test_memory_is_bounded_by_the_limits_and_not_by_the_window(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    world.write(600, every=0.1)
    world.clock.advance(31)
    alive: weakref.WeakSet[Page] = weakref.WeakSet()
    most = 0
    send = ReadSession.send

    def counted(self: ReadSession, *args: Any, on_page: Any, **more: Any) -> None:
        def count(page: Page) -> None:
            nonlocal most
            alive.add(page)
            most = max(most, sum(page.row_count for page in list(alive)))
            on_page(page)

        send(self, *args, on_page=count, **more)

    monkeypatch.setattr(ReadSession, "send", counted)
    monkeypatch.setattr("rscylla.cdc.arrow.spanbatches.ROWS_A_BATCH", 5)
    limits = rscylla.Limits(page_size=5, in_flight=2, window_rows=100)
    rows = 0
    for _, found in world.windows(TO_HEAD, mode=mode, stream={"limits": limits}):
        rows += sum(batch.num_rows for batch in found)
    assert rows == 600
    assert most <= (6 * 5 if mode == "log" else 100 + 6 * 5)


@only_vnodes
def test_a_pass_that_is_given_up_leaves_nothing_running(world: World) -> None:
    world.write(300, every=0.1)
    world.clock.advance(31)
    limits = rscylla.Limits(page_size=5, in_flight=2)
    _, rows = next(world.windows(TO_HEAD, mode="log", stream={"limits": limits}))
    batches = iter(rows)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in rows) == 300


# ---------------------------------------------------------------- what changes


def test_columns_that_come_and_go_are_those_of_the_table_when_a_window_is_planned(world: World) -> None:
    world.write(3)
    world.clock.advance(20)
    loop = world.windows(shortest=timedelta(seconds=5), longest=timedelta(seconds=15))
    names, values = [], []
    statements = iter(
        [
            ["ALTER TABLE ks.t ADD w text", "INSERT INTO ks.t (pk, ck, v, w) VALUES (1, 100, 100, 'new')"],
            *[[]] * 4,  # until the row is behind the lag
            ["ALTER TABLE ks.t DROP v"],
        ]
    )
    for _, rows in loop:
        table = rows.table()
        names.append([field.name for field in rows.schema.field("cdc_values").type])
        values += table.column("cdc_values").to_pylist()
        todo = next(statements, None)
        if todo is None:
            break
        world.execute(*(todo or []))
        world.clock.advance(15)
    assert names[0] == ["v"]
    assert names[-1] == ["w"]
    assert ["v", "w"] in names
    assert {"v": 100, "w": "new"} in values


def test_a_column_that_is_dropped_while_a_window_is_read_is_null(world: World) -> None:
    world.write(40, every=0.1)
    world.clock.advance(31)
    loop = world.windows(TO_HEAD, columns=["ck", "v"], mode="log", stream={"limits": rscylla.Limits(page_size=3)})
    [rows] = [rows for _, rows in loop if rows.table().num_rows]
    world.execute("ALTER TABLE ks.t DROP v")
    found = rows.table()
    assert found.schema == rows.schema
    assert sorted(found.column("ck").to_pylist()) == list(range(40))
    assert found.column("v").null_count == 40


def test_a_column_of_another_type_is_an_error_that_moves_no_cursor(world: World) -> None:
    world.write(10, every=0.1)
    world.clock.advance(31)
    _, rows = next(world.windows())
    world.execute("ALTER TABLE ks.t DROP v")
    world.clock.advance(6)
    world.execute("ALTER TABLE ks.t ADD v text")
    with pytest.raises(rscylla.errors.SchemaChanged, match=r"column 'v' of ks\.t is .* type text, but .* type int in"):
        rows.table()
    assert world.store.get_cursor(NAME) == ""
    assert pa.types.is_string(next(world.windows())[1].table().schema.field("cdc_values").type.field("v").type)


def test_a_table_that_is_dropped_while_a_window_is_read_is_an_error(world: World) -> None:
    world.write(10)
    world.clock.advance(31)
    _, rows = next(world.windows())
    world.execute("DROP TABLE ks.t")
    with pytest.raises(rscylla.TableNotFound):
        rows.table()


@only_vnodes
def test_a_table_that_is_created_again_while_a_window_is_read_is_an_error(world: World) -> None:
    world.write(10)
    world.clock.advance(31)
    _, rows = next(world.windows())
    world.execute(
        "DROP TABLE ks.t",
        TABLE,
    )
    world.clock.advance(100)
    with pytest.raises(rscylla.TableChanged, match="dropped and created again"):
        rows.table()


def test_keys_that_the_log_has_lost_are_an_error_unless_they_may_be(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.set_cursor(NAME, world.stream().cursor_at(datetime_of(world.clock.now_us())))
    world.write(3)
    world.clock.advance(5)
    world.execute("ALTER TABLE ks.t RENAME ck TO cc", "INSERT INTO ks.t (pk, cc, v) VALUES (1, 50, 50)")
    world.clock.advance(60)
    cursor = world.store.get_cursor(NAME)
    with pytest.raises(rscylla.TableChanged, match="repair the consumer's data, then reset its cursor"):
        numbers(next(world.windows(TO_HEAD))[1])
    assert world.store.get_cursor(NAME) == cursor
    assert [*chain(*(numbers(rows) for _, rows in world.windows(TO_HEAD, on_expired="oldest")))] == [50]
    assert "no longer has the keys" in caplog.text


def test_keys_that_are_lost_after_a_window_was_planned_are_an_error(world: World) -> None:
    world.store.set_cursor(NAME, world.stream().cursor_at(datetime_of(world.clock.now_us())))
    world.write(3)
    world.clock.advance(60)
    _, rows = next(world.windows(TO_HEAD))
    for old, new in (("ck", "other"), ("other", "ck")):
        world.execute(f"ALTER TABLE ks.t RENAME {old} TO {new}")
        world.clock.advance(10)  # Scylla lets no column come back at once
    with pytest.raises(rscylla.TableChanged, match=r"a key column of ks\.t was renamed at .*no longer has the keys"):
        rows.table()


@only_vnodes
def test_rows_that_expire_before_they_are_read_are_an_error_unless_they_may(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(1)
    world.clock.advance(31)
    list(world.windows(TO_HEAD))
    world.write(10)
    world.clock.advance(31)
    cursor = world.store.get_cursor(NAME)
    _, rows = next(world.windows(TO_HEAD))
    _, forgiven = next(world.windows(TO_HEAD, on_expired="oldest"))
    world.clock.advance(3600)
    with pytest.raises(rscylla.CursorExpired, match="fell behind what the log keeps") as caught:
        rows.table()
    assert caught.value.gap_from >= datetime_of(rows.window.start_us)
    assert caught.value.gap_to <= datetime_of(rows.window.end_us)
    assert world.store.get_cursor(NAME) == cursor
    assert forgiven.table().num_rows == 0
    assert "changes may be lost" in caplog.text


@only_vnodes
def test_rows_that_expire_after_they_were_read_are_not_lost(world: World) -> None:
    """A window is read in parts, which may take longer than its first rows have left."""
    world.clock.advance(31)
    list(world.windows(TO_HEAD))
    began_us = world.clock.now_us()
    world.write(100, every=30)
    world.clock.advance(31)
    limits = {"limits": rscylla.Limits(window_rows=25, in_flight=1)}
    _, rows = next(world.windows(TO_HEAD, stream=limits))
    assert rows.window.end_us - rows.window.start_us > 3_000_000_000
    count = 0
    for batch in rows:
        count += batch.num_rows
        world.clock.advance(20 * batch.num_rows)
    assert count == 100
    assert world.clock.now_us() > began_us + 3_600_000_000, "the first rows have expired by now"


# ---------------------------------------------------------------- other libraries


@pytest.fixture
def all_types(world: World) -> World:
    world.execute("DROP TABLE ks.t")
    histories.create(world.session.execute, "ks", "t", histories.IMAGES)
    for cql in histories.statements(3, "ks.t", 150):
        world.execute(cql)
    world.clock.advance(31)
    return world


@only_vnodes
@pytest.mark.parametrize("mode", MODES)
def test_polars_takes_columns_of_all_types(all_types: World, mode: str) -> None:
    pl = pytest.importorskip("polars")
    for _, rows in all_types.windows(TO_HEAD, mode=mode):
        frame, table = pl.DataFrame(rows), rows.table()
        assert frame.shape == table.shape
        assert frame.columns == table.column_names
        for column in (table.column_names[0], OPERATION[mode]):
            assert sorted(frame[column].to_list(), key=str) == sorted(table.column(column).to_pylist(), key=str)


@only_vnodes
@pytest.mark.parametrize("mode", MODES)
def test_duckdb_takes_columns_of_all_types(all_types: World, mode: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    for _, changes in all_types.windows(TO_HEAD, mode=mode):
        with duckdb.connect() as database:
            found = database.sql("SELECT * FROM changes")
            assert found.columns == changes.schema.names
            assert len(found.fetchall()) == changes.table().num_rows
            [(operations,)] = database.sql(f"SELECT count(DISTINCT {OPERATION[mode]}) FROM changes").fetchall()
            assert operations == len(changes.table().column(OPERATION[mode]).unique())


@only_vnodes
@pytest.mark.parametrize("mode", MODES)
def test_pandas_takes_columns_of_all_types(all_types: World, mode: str) -> None:
    pytest.importorskip("pandas")
    for _, rows in all_types.windows(TO_HEAD, mode=mode):
        frame = rows.to_pandas(timestamp_as_object=True)
        assert frame.shape == rows.table().shape
        assert list(frame.columns) == rows.schema.names


@only_vnodes
def test_arrow_itself_takes_the_stream(world: World) -> None:
    world.write(5)
    world.clock.advance(31)
    for _, rows in world.windows(TO_HEAD):
        assert pa.table(rows) == rows.table()
        assert pa.schema(rows) == rows.schema


@only_vnodes
@pytest.mark.parametrize("mode", ["changes", "log"])
def test_decimals_and_varints_are_numbers_if_asked(world: World, mode: str) -> None:
    world.execute(
        "DROP TABLE ks.t",
        "CREATE TABLE ks.t (pk varint PRIMARY KEY, v decimal, l frozen<list<decimal>>) WITH cdc = {'enabled': true}",
        "INSERT INTO ks.t (pk, v, l) VALUES (12345678901234567890123, 1.5, [2.25, 3])",
    )
    world.clock.advance(31)
    price, count = pa.decimal128(20, 3), pa.decimal128(30)

    def values(**types: Any) -> tuple[list[Any], list[Any]]:
        [rows] = [rows.table() for _, rows in world.windows(TO_HEAD, mode=mode, on_expired="oldest", **types)]
        world.store = MemoryCursorStore()
        columns = rows if mode == "log" else pa.Table.from_struct_array(rows.column("cdc_values"))
        found = [rows.column("pk"), columns.column("v"), columns.column("l")]
        return [column.type for column in found], [column[0].as_py() for column in found]

    number = 12345678901234567890123
    types, row = values(decimal_as=price, varint_as=count)
    assert types == [count, price, pa.list_(price)]
    assert row == [number, Decimal("1.5"), [Decimal("2.25"), 3]]
    assert values(decimal_as=price)[1] == [str(number), Decimal("1.5"), [Decimal("2.25"), 3]]
    assert values()[1] == [str(number), "1.5", ["2.25", "3"]]
    with pytest.raises(rscylla.errors.SourceError, match=r"read such numbers with more digits, or as text"):
        values(decimal_as=pa.decimal128(5, 1))


# ---------------------------------------------------------------- arguments


@only_vnodes
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "rows"}, "mode must be 'changes', 'log' or 'events', not 'rows'"),
        ({"columns": ["pk", "w"]}, r"mode changes of ks\.t has no column 'w'; use columns of cdc_stream_id, cdc_time"),
        ({"columns": []}, "columns must be different names of columns, at least one, or None for all"),
        ({"columns": ["pk", "ck", "pk"]}, r"columns must be different names .* not \['pk', 'ck', 'pk'\]"),
        ({"columns": "pk"}, "columns must be different names .* not 'pk'"),
        ({"on_expired": "newest"}, "on_expired must be 'raise' or 'oldest', not 'newest'"),
        ({"longest": 60}, r"longest must be a timedelta, such as timedelta\(minutes=1\), not 60"),
        ({"shortest": 1.5}, r"shortest must be a timedelta, .* not 1\.5"),
        ({"max_rows": 0}, "max_rows must be a whole number of at least 1, or None, not 0"),
        ({"stream": {"key_slice": (0, 2)}}, "a whole table"),
        (
            {"decimal_as": "decimal(38,2)"},
            r"decimal_as must be a type such as .*128\(38, 2\), .* not 'decimal\(38,2\)'",
        ),
        ({"varint_as": pa.decimal128(3, 4)}, r"varint_as must be a type .*, with no more decimal places than digits"),
        ({"varint_as": pa.decimal256(50)}, r"varint_as must be a type such as"),
        ({"varint_as": pa.decimal128(38), "mode": "events"}, "do not apply to mode events, which has JSON"),
    ],
)
def test_wrong_arguments_are_reported_at_once(world: World, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=message):
        world.windows(**arguments)


@only_vnodes
def test_a_name_that_was_forgotten_is_what_the_error_is_about(world: World) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"^name must be the name of the cursor .*, not StreamLag\("):
        rscylla.windows_as_arrow(world.stream(), world.store, LAG, TO_HEAD)  # type: ignore[arg-type]


@only_vnodes
def test_without_pyarrow_one_line_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rscylla.cdc.arrow", None)
    with pytest.raises(rscylla.ConfigError, match=r"requires pyarrow and numpy; pip install 'rscylla\[arrow\]'"):
        world.windows()


@only_vnodes
def test_a_store_in_scylla_keeps_the_cursor(world: World) -> None:
    world.store = ScyllaCursorStore(world.session, "ks", create=True)
    world.write(5)
    world.clock.advance(31)
    [*_, (window, _)] = list(world.windows(TO_HEAD))
    assert ScyllaCursorStore(world.session, "ks").get_cursor(NAME) == window.end
