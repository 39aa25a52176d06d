"""What people see of an order, and how an event changes it. Pure: ``tables`` keeps the result."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

import attrs

from rscylla.eventsourcing import Envelope

from .domain.orders import (
    Order,
    OrderCancelled,
    OrderConfirmed,
    OrderCreated,
    OrderDelivered,
    OrderEvent,
    OrderItem,
    OrderItemsUpdated,
    OrderPaid,
    OrderShipped,
    OrderStatus,
    evolve,
)

__all__ = ["EventsMissing", "OrderView", "advance"]


class EventsMissing(Exception):
    """An event came before the one that precedes it, which is a dead letter or was never read.

    This event becomes a dead letter, too: replay them in order, and nothing has overtaken anything.
    """


@attrs.frozen
class OrderView:
    """An order as its events up to ``version`` tell it. Times are those of the events, so a rebuild keeps them."""

    order_id: str
    customer_id: str
    status: OrderStatus
    items: tuple[OrderItem, ...]
    currency: str
    total: int
    paid: int
    version: int
    placed_at: datetime
    updated_at: datetime
    payment_due_at: datetime | None = None
    carrier: str = ""
    tracking_number: str = ""
    cancelled_because: str = ""


def advance(view: OrderView | None, envelope: Envelope[OrderEvent]) -> OrderView | None:
    """Return the view after the event; None if the event is in *view* already, because it came again.

    Raises:
        EventsMissing: *view* lacks an earlier event.
    """
    seen = 0 if view is None else view.version
    if envelope.version <= seen:
        return None
    if envelope.version > seen + 1:
        raise EventsMissing(
            f"{envelope.aggregate}: event {envelope.version} came after event {seen}; replay the dead letters of this "
            "consumer, or rebuild the read model"
        )
    event = envelope.event
    # The rules of how an order changes are in one place; a view adds what only people want to know.
    known = None if view is None else Order(view.customer_id, view.items, view.currency, view.status, view.paid)
    order = evolve(known, event)
    assert order is not None
    changed = OrderView(
        envelope.aggregate.id,
        order.customer_id,
        order.status,
        order.items,
        order.currency,
        order.total,
        order.paid,
        envelope.version,
        placed_at=envelope.at if view is None else view.placed_at,
        updated_at=envelope.at,
    )
    if view is not None:
        changed = attrs.evolve(
            changed,
            payment_due_at=view.payment_due_at,
            carrier=view.carrier,
            tracking_number=view.tracking_number,
            cancelled_because=view.cancelled_because,
        )
    match event:
        case OrderConfirmed(payment_due_at=due):
            return attrs.evolve(changed, payment_due_at=due)
        case OrderPaid():
            return attrs.evolve(changed, payment_due_at=None)
        case OrderShipped(carrier=carrier, tracking_number=number):
            return attrs.evolve(changed, carrier=carrier, tracking_number=number)
        case OrderCancelled(reason=reason):
            return attrs.evolve(changed, payment_due_at=None, cancelled_because=reason)
        case OrderCreated() | OrderItemsUpdated() | OrderDelivered():
            return changed
        case _:
            assert_never(event)
