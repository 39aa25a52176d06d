"""The read models of the event sourcing example, on the embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from event_sourcing.domain.orders import OrderCreated, OrderItem, OrderStatus
from event_sourcing.tables import BUCKETS, OrderProjection, OrderTables
from event_sourcing.views import OrderView
from orderstreams import START, STREAM, envelope, shown

import rscylla
from rscylla.embedded import EmbeddedScylla
from rscylla.eventsourcing import AggregateID

EVERY = list(OrderStatus)


@pytest.fixture(scope="module")
def session() -> Iterator[rscylla.Session]:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        yield session


@pytest.fixture
def tables(session: rscylla.Session) -> Iterator[OrderTables]:
    tables = OrderTables(session, "shop", 7)
    tables.create()
    yield tables
    tables.drop()


def test_an_order_is_found_by_its_id_its_customer_and_its_state(tables: OrderTables) -> None:
    for number, one in enumerate(STREAM, 1):
        tables.apply(one)
        view = shown(*STREAM[:number])
        assert tables.find("o1") == view
        assert tables.of_customer("anna", 10) == [view]
        assert tables.in_states(EVERY, 10) == [view]
        assert tables.in_states([view.status], 10) == [view]
        assert tables.in_states(set(EVERY) - {view.status}, 10) == []
    assert tables.find("o2") is None
    assert tables.of_customer("bert", 10) == []


def test_the_newest_orders_come_first(tables: OrderTables) -> None:
    for number in range(1, 12):
        created = OrderCreated(f"c{number % 2}", (OrderItem("tea", 1, 1),), "EUR")
        tables.apply(envelope(1, created, f"o{number}", START + timedelta(hours=number)))
    assert [view.order_id for view in tables.in_states(EVERY, 5)] == ["o11", "o10", "o9", "o8", "o7"]
    assert [view.order_id for view in tables.of_customer("c1", 3)] == ["o11", "o9", "o7"]


def test_events_that_come_again_change_nothing(tables: OrderTables) -> None:
    """Also after later ones, as a crash before the cursor was saved has it."""
    for one in (*STREAM[:4], *STREAM[:4]):
        tables.apply(one)
    assert tables.in_states(EVERY, 10) == [shown(*STREAM[:4])]


class Dying(OrderTables):
    """Ends before its last write, that of the row of the order."""

    def _upsert(self, kind: str, view: OrderView) -> Any:
        if kind == "order_views":
            raise SystemExit
        return super()._upsert(kind, view)


def test_a_crash_between_two_writes_is_made_good_when_the_event_comes_again(
    tables: OrderTables, session: rscylla.Session
) -> None:
    for one in STREAM[:3]:
        tables.apply(one)
    with pytest.raises(SystemExit):
        Dying(session, "shop", 7).apply(STREAM[3])
    assert tables.find("o1") == shown(*STREAM[:3])
    tables.apply(STREAM[3])
    assert tables.in_states(EVERY, 10) == [shown(*STREAM[:4])] == tables.of_customer("anna", 10)


def test_a_write_that_arrives_late_replaces_nothing(tables: OrderTables, session: rscylla.Session) -> None:
    """A process that stalls in ``apply``, and is thought dead, may finish after another has gone on."""
    other = OrderTables(session, "shop", 7)
    for one in STREAM[:2]:
        tables.apply(one)
    stale = other.find("o1")
    for one in STREAM[2:]:
        tables.apply(one)
    other.find = lambda order_id: stale  # type: ignore[method-assign]  # it had read before the others wrote
    other.apply(STREAM[2])
    found = tables.find("o1")
    assert found == shown(*STREAM)
    assert tables.of_customer("anna", 10) == [found]


def test_a_state_is_spread_over_partitions(tables: OrderTables, session: rscylla.Session) -> None:
    for number in range(40):
        tables.apply(envelope(1, OrderCreated("anna", (OrderItem("tea", 1, 1),), "EUR"), order=f"o{number}"))
    rows = session.execute("SELECT bucket FROM shop.orders_by_status_7")
    assert {row.bucket for row in rows} == set(range(BUCKETS))


def test_builds_do_not_touch_each_other(session: rscylla.Session) -> None:
    projection = OrderProjection(session, "shop")
    order, customer = STREAM[0].aggregate, AggregateID("customer", "o1")
    for build in (1, 2):
        projection.prepare(build)
        projection.prepare(build)
        assert projection.version(build, order) == 0
    projection.apply(1, STREAM[0])
    for one in STREAM:
        projection.apply(2, one)
    assert [projection.version(build, order) for build in (1, 2)] == [1, len(STREAM)]
    assert projection.version(2, customer) == 0
    projection.drop(2)
    projection.drop(2)
    assert projection.tables(1).in_states(EVERY, 10) == [shown(STREAM[0])]
    projection.prepare(2)
    assert projection.tables(2).in_states(EVERY, 10) == []


def test_events_of_customers_are_not_for_this_read_model(session: rscylla.Session) -> None:
    projection = OrderProjection(session, "shop")
    projection.prepare(3)
    record = attrs.evolve(STREAM[0].record, aggregate=AggregateID("customer", "anna"))
    projection.apply(3, attrs.evolve(STREAM[0], record=record))
    assert projection.tables(3).in_states(EVERY, 10) == []
