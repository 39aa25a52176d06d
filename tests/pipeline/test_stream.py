"""The stream over a driver session and TCP. Runs on a real cluster too; see docs/cluster.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla.cdc.rows import Bound

LAG = rscylla.StreamLag(milliseconds=200)

Stream = rscylla.Stream


def collect(
    stream: Stream, after: str = "", *options: rscylla.options.StreamOption, limit: int | None = None
) -> list[rscylla.Event]:
    """Return the events after *after* up to now, at most *limit*."""
    until = [] if any(isinstance(o, rscylla.StreamUntil | rscylla.StreamToHead) for o in options) else [until_now()]
    client = stream(after, LAG, *options, *until)
    events: list[rscylla.Event] = []
    try:
        while limit is None or len(events) < limit:
            got = client.recv()
            if isinstance(got, rscylla.Event):
                events.append(got)
    except rscylla.HeadReached:
        pass
    finally:
        client.close()
    return events


def until_now() -> rscylla.StreamUntil:
    return rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))


@pytest.fixture
def orders(session: rscylla.Session, keyspace: str) -> Stream:
    session.execute(
        f"CREATE TABLE {keyspace}.orders (pk int, ck int, v text, s text static, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    return rscylla.NewStream(session, keyspace, "orders")


@pytest.fixture
def run_cql(session: rscylla.Session, keyspace: str) -> Callable[..., Any]:
    return lambda cql, *values: session.execute(cql.replace("orders", f"{keyspace}.orders", 1), values or None)


def describe(event: rscylla.Event) -> tuple[Any, ...]:
    assert isinstance(event, rscylla.ChangeEvent)
    return event.operation.name, dict(event.key), event.change.after


def test_changes_of_every_kind(orders: Stream, run_cql: Callable[..., Any]) -> None:
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 1, 'a')")
    run_cql("UPDATE orders SET v = null WHERE pk = 1 AND ck = 1")
    run_cql("UPDATE orders SET s = 'x' WHERE pk = 1")
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 2, 'b') USING TTL 3600")
    run_cql("DELETE FROM orders WHERE pk = 1 AND ck = 1")
    run_cql("DELETE FROM orders WHERE pk = 1 AND ck > 1 AND ck <= 7")
    run_cql("DELETE FROM orders WHERE pk = 1")
    events = collect(orders)
    assert [describe(e) for e in events] == [
        ("INSERT", {"pk": 1, "ck": 1}, {"v": "a"}),
        ("UPDATE", {"pk": 1, "ck": 1}, {"v": None}),
        ("UPDATE", {"pk": 1}, {"s": "x"}),
        ("INSERT", {"pk": 1, "ck": 2}, {"v": "b"}),
        ("ROW_DELETE", {"pk": 1, "ck": 1}, None),
        ("RANGE_START_EXCLUSIVE", {"pk": 1}, None),
        ("PARTITION_DELETE", {"pk": 1}, None),
    ]
    assert events[3].change is not None
    assert events[3].change.ttl == 3600
    change = events[5].change
    assert isinstance(change, rscylla.Change)
    assert change.range == (Bound({"ck": 1}, inclusive=False), Bound({"ck": 7}, inclusive=True))
    assert json.loads(events[0].metadata)["after"] == {"v": "a"}
    assert [e.foreign_id for e in events[:3]] == ['{"ck":1,"pk":1}', '{"ck":1,"pk":1}', '{"pk":1}']


def test_images_are_joined_to_their_change(session: rscylla.Session, keyspace: str) -> None:
    session.execute(
        f"CREATE TABLE {keyspace}.orders (pk int PRIMARY KEY, v text, w text) "
        "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
    )
    session.execute(f"INSERT INTO {keyspace}.orders (pk, v, w) VALUES (1, 'a', 'b')")
    session.execute(f"UPDATE {keyspace}.orders SET v = 'c' WHERE pk = 1")
    first, second = collect(rscylla.NewStream(session, keyspace, "orders"))
    assert first.change is not None
    assert second.change is not None
    assert (first.change.before, first.change.after) == (None, {"v": "a", "w": "b"})
    assert (second.change.before, second.change.after) == ({"v": "a", "w": "b"}, {"v": "c", "w": "b"})
    rows = collect(rscylla.NewStream(session, keyspace, "orders", granularity="row"))
    assert [int(r.type) for r in rows] == [2, 9, 0, 1, 9]


def test_a_stream_resumes_right_after_any_of_its_events(orders: Stream, run_cql: Callable[..., Any]) -> None:
    for i in range(40):
        run_cql("INSERT INTO orders (pk, ck, v) VALUES (%s, %s, 'x')", i % 5, i)
    run_cql("DELETE FROM orders WHERE pk = 1 AND ck > 3")
    ids = [e.id for e in collect(orders)]
    assert len(set(ids)) == 41
    for i in range(0, 41, 5):
        assert [e.id for e in collect(orders, ids[i])] == ids[i + 1 :]


def test_ids_are_the_same_for_every_way_of_reading(
    session: rscylla.Session, orders: Stream, run_cql: Callable[..., Any]
) -> None:
    for i in range(60):
        run_cql("INSERT INTO orders (pk, ck, v) VALUES (%s, %s, 'x')", i % 7, i)
    ids = [e.id for e in collect(orders)]
    small = rscylla.NewStream(
        session,
        orders.keyspace,
        "orders",
        streams_per_query=1,
        prefetch=0,
        limits=rscylla.Limits(page_size=3, in_flight=2, window_rows=5),
    )
    assert [e.id for e in collect(small)] == ids
    rows = rscylla.NewStream(session, orders.keyspace, "orders", granularity="row")
    assert [e.id for e in collect(rows)] == ids


def test_cursor_at_a_time_and_the_head(orders: Stream, run_cql: Callable[..., Any]) -> None:
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 1, 'before')")
    between = collect(orders)[-1].timestamp + timedelta(microseconds=1)
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 2, 'after')")
    assert [describe(e)[2] for e in collect(orders, orders.cursor_at(between))] == [{"v": "after"}]
    assert len(collect(orders, orders.cursor_at())) == 2
    assert len(collect(orders, orders.cursor_at(datetime(2020, 1, 1, tzinfo=UTC)))) == 2
    head = orders.head_cursor(timedelta(0))
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 3, 'later')")
    assert [describe(e)[2] for e in collect(orders, head)] == [{"v": "later"}]


def test_from_head_returns_its_position_before_any_event(orders: Stream, run_cql: Callable[..., Any]) -> None:
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 1, 'before')")
    client = orders("", rscylla.StreamLag(milliseconds=0), rscylla.StreamFromHead())
    try:
        first = client.recv()
        assert isinstance(first, rscylla.Progress)
        run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 2, 'after')")
    finally:
        client.close()
    assert [describe(e)[2] for e in collect(orders, first.cursor)] == [{"v": "after"}]


def test_names_that_need_quotes(session: rscylla.Session, keyspace: str) -> None:
    session.execute(
        f'CREATE TABLE {keyspace}."OrderTable" ("Key" int, "select" int, "cdc$x" text, PRIMARY KEY ("Key", "select")) '
        "WITH cdc = {'enabled': true}"
    )
    session.execute(f'INSERT INTO {keyspace}."OrderTable" ("Key", "select", "cdc$x") VALUES (1, 2, \'v\')')
    (event,) = collect(rscylla.NewStream(session, keyspace, "OrderTable"))
    assert describe(event) == ("INSERT", {"Key": 1, "select": 2}, {"cdc$x": "v"})


def test_a_column_added_while_reading(orders: Stream, session: rscylla.Session, run_cql: Callable[..., Any]) -> None:
    run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, 1, 'a')")
    first = collect(orders)[0]
    session.execute(f"ALTER TABLE {orders.keyspace}.orders ADD extra int")
    run_cql("INSERT INTO orders (pk, ck, v, extra) VALUES (1, 2, 'b', 7)")
    assert [describe(e)[2] for e in collect(orders, first.id)] == [{"v": "b", "extra": 7}]


# ---------------------------------------------------------------- bad input: one clear line, and the cursor stays


def refused(stream: Stream, *options: rscylla.options.StreamOption, cursor: str = "") -> rscylla.RunError:
    """Run a consumer that cannot start and return the error; its saved cursor does not change."""
    store = MemoryCursorStore()
    if cursor:
        store.reset_cursor("c", cursor, reason="test")
    before = store.get_cursor("c")
    consumer = rscylla.Consumer("c", lambda _event, _fate: pytest.fail("consumed"))
    with pytest.raises(rscylla.RunError) as caught:
        rscylla.run(rscylla.Spec(stream, store, consumer, *options))
    assert store.get_cursor("c") == before
    assert "\n" not in str(caught.value)
    return caught.value


def test_unknown_table(session: rscylla.Session, keyspace: str) -> None:
    error = refused(rscylla.NewStream(session, keyspace, "nope"), LAG)
    assert isinstance(error.__cause__, rscylla.TableNotFound)
    assert "has no table nope" in str(error)
    error = refused(rscylla.NewStream(session, "nope", "nope"), LAG)
    assert "there is no keyspace nope" in str(error)


def test_unknown_table_points_out_the_name_in_other_case(session: rscylla.Session, orders: Stream) -> None:
    error = refused(rscylla.NewStream(session, orders.keyspace, "Orders"), LAG)
    assert f"did you mean {orders.keyspace}.orders?" in str(error)


def test_cdc_not_enabled(session: rscylla.Session, keyspace: str) -> None:
    session.execute(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY)")
    error = refused(rscylla.NewStream(session, keyspace, "plain"), LAG)
    assert isinstance(error.__cause__, rscylla.errors.CDCDisabled)
    assert f"ALTER TABLE {keyspace}.plain WITH cdc = {{'enabled': true}}" in str(error)


def test_missing_lag(orders: Stream) -> None:
    error = refused(orders)
    assert isinstance(error.__cause__, rscylla.errors.MissingLag)
    assert not error.resumable


def test_expired_cursor(session: rscylla.Session, orders: Stream) -> None:
    yesterday = datetime.now(UTC) - timedelta(hours=25)
    ms = int(yesterday.timestamp() * 1000)
    error = refused(orders, LAG, cursor=str(rscylla.EventID(ms, ms * 1000)))
    expired = error.__cause__
    assert isinstance(expired, rscylla.CursorExpired)
    assert abs(expired.gap_from - yesterday) < timedelta(seconds=1)
    assert datetime.now(UTC) - timedelta(hours=24, seconds=5) < expired.gap_to < datetime.now(UTC)


def test_cursor_of_another_cluster(orders: Stream) -> None:
    ms = int(datetime.now(UTC).timestamp() * 1000)
    error = refused(orders, LAG, cursor=str(rscylla.EventID(ms + 12_345, ms * 1000)))
    assert isinstance(error.__cause__, rscylla.errors.InvalidCursor)


def test_server_not_there() -> None:
    with pytest.raises(rscylla.ConnectionFailed, match="no node answered"):
        rscylla.connect(["127.0.0.1:1"], connect_timeout_s=2)


# ---------------------------------------------------------------- with a consumer and a store


def test_a_consumer_continues_where_it_stopped(
    session: rscylla.Session, orders: Stream, run_cql: Callable[..., Any]
) -> None:
    seen: list[int] = []

    def consume(event: rscylla.Event, _fate: rscylla.Fate) -> None:
        seen.append(event.key["ck"])
        if len(seen) == 3:
            raise RuntimeError("the third time everything fails")

    for i in range(5):
        run_cql("INSERT INTO orders (pk, ck, v) VALUES (1, %s, 'x')", i)
    until = until_now()

    def attempt() -> None:
        store = ScyllaCursorStore(session, orders.keyspace, create=True)
        rscylla.run(rscylla.Spec(orders, store, rscylla.Consumer("c", consume), LAG, until))

    with pytest.raises(rscylla.RunError) as caught:
        attempt()
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(rscylla.HeadReached):
        attempt()
    assert seen == [0, 1, 2, 2, 3, 4]
    with pytest.raises(rscylla.HeadReached):
        attempt()
    assert seen == [0, 1, 2, 2, 3, 4]
