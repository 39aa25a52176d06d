"""What is shown of an order, in the event sourcing example."""

from __future__ import annotations

from datetime import timedelta

from event_sourcing.domain.orders import CancelCause, OrderCancelled, OrderStatus
from event_sourcing.views import OrderView
from orderstreams import DUE, START, STREAM, TEA, envelope, shown


def test_it_shows_the_order_and_the_times_of_its_events() -> None:
    view = shown(*STREAM)
    assert view == OrderView(
        "o1",
        "anna",
        OrderStatus.DELIVERED,
        (TEA, TEA),
        "EUR",
        total=1800,
        paid=1800,
        version=6,
        placed_at=START + timedelta(minutes=1),
        updated_at=START + timedelta(minutes=6),
        payment_due_at=None,
        carrier="DHL",
    )


def test_a_payment_is_due_while_it_is_awaited() -> None:
    cancelled = envelope(4, OrderCancelled(CancelCause.NOT_PAID, 0, "anna", "", ""))
    assert [view.payment_due_at for view in (shown(*STREAM[:2]), shown(*STREAM[:3]), shown(*STREAM[:4]))] == [
        None,
        DUE,
        None,
    ]
    view = shown(*STREAM[:3], cancelled)
    assert (view.status, view.payment_due_at, view.cancelled_because) == ("cancelled", None, "not paid in time")
