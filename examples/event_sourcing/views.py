"""What people see of an order, and how an event changes it. Pure: ``tables`` keeps the result."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

import attrs

from rscylla.eventsourcing import Envelope

from .domain.orders import (
    INITIAL,
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

__all__ = ["OrderView", "advance"]


@attrs.frozen
class OrderView:
    """An order as its events up to ``version`` tell it. Times are those of the events, so a rebuild keeps them.

    Nothing personal is in it: a read model is a copy, which forgetting a customer does not reach.
    """

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
    cancelled_because: str = ""


def advance(view: OrderView | None, envelope: Envelope[OrderEvent]) -> OrderView:
    """Return the view after the event, which is the next one after those that *view* has."""
    event = envelope.event
    # The rules of how an order changes are in one place; a view adds what only people want to know.
    known = INITIAL if view is None else Order(view.customer_id, view.items, view.currency, view.status, view.paid)
    order = evolve(known, event)
    assert order.status is not None
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
            cancelled_because=view.cancelled_because,
        )
    match event:
        case OrderConfirmed(payment_due_at=due):
            return attrs.evolve(changed, payment_due_at=due)
        case OrderPaid():
            return attrs.evolve(changed, payment_due_at=None)
        case OrderShipped(carrier=carrier):
            return attrs.evolve(changed, carrier=carrier)
        case OrderCancelled(cause=cause):
            return attrs.evolve(changed, payment_due_at=None, cancelled_because=cause.value)
        case OrderCreated() | OrderItemsUpdated() | OrderDelivered():
            return changed
        case _:
            assert_never(event)
