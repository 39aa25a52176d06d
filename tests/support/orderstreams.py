"""The events of an order of the event sourcing example, as a projection gets them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from event_sourcing.domain.orders import (
    OrderConfirmed,
    OrderCreated,
    OrderDelivered,
    OrderEvent,
    OrderItem,
    OrderItemsUpdated,
    OrderPaid,
    OrderShipped,
)
from event_sourcing.views import OrderView, advance

from rscylla.eventsourcing import AggregateID, Envelope, EventRecord

__all__ = ["DUE", "START", "STREAM", "TEA", "envelope", "shown"]

TEA = OrderItem("tea", 2, 450)
START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
DUE = START + timedelta(minutes=30)

PATH: Sequence[OrderEvent] = (
    OrderCreated("anna", (TEA,), "EUR"),
    OrderItemsUpdated((TEA, TEA), "anna", ""),
    OrderConfirmed(DUE),
    OrderPaid(1800, "pay-1"),
    OrderShipped("DHL", "anna", "JD01"),
    OrderDelivered("anna", "A. Berg"),
)


def envelope(version: int, event: OrderEvent, order: str = "o1", at: datetime | None = None) -> Envelope[OrderEvent]:
    at = at or START + timedelta(minutes=version)
    record = EventRecord(
        AggregateID("order", order), version, uuid.UUID(int=version), type(event).__name__, 1, "{}", at
    )
    return Envelope(event, record)


STREAM = [envelope(version, event) for version, event in enumerate(PATH, 1)]


def shown(*envelopes: Envelope[OrderEvent]) -> OrderView:
    view: OrderView | None = None
    for one in envelopes:
        view = advance(view, one)
    assert view is not None
    return view
