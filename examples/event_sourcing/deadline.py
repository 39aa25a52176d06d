"""``PaymentDeadline``: an order that is not paid in time is cancelled.

A process manager: two pure functions. When an order is confirmed, a timer is set, in a table, so that it outlives any
process. When the order is paid or cancelled, the timer is cancelled. When the timer fires, the order is told so, and
decides: a payment that came at the last moment is not undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rscylla.eventsourcing import Action, AggregateID, CancelTimer, Envelope, Send, SetTimer, Timer

from .domain.orders import NAME, CancelUnpaidOrder, OrderCancelled, OrderConfirmed, OrderPaid

__all__ = ["PaymentDeadline"]


class PaymentDeadline:
    """A ``ProcessManager``. An order is confirmed once, so its id names the timer."""

    name = "payment-deadline"

    def react(self, envelope: Envelope[Any], /) -> Iterable[Action]:
        match envelope.event:
            case OrderConfirmed(payment_due_at=due):
                return (SetTimer(envelope.aggregate.id, due),)
            case OrderPaid() | OrderCancelled():
                return (CancelTimer(envelope.aggregate.id),)
            case _:
                return ()

    def fire(self, timer: Timer, /) -> Iterable[Action]:
        return (Send(AggregateID(NAME, timer.id), CancelUnpaidOrder()),)
