"""An order: created, confirmed, paid, shipped, delivered; or cancelled on the way.

An event has no time of its own: its envelope says when it was recorded, and a replay does not change that. The one time
in here, ``payment_due_at``, is a promise to the customer, made when the order is confirmed.

What people write, such as a reason, and what leads to a person, such as a tracking number, is sealed with the key of
the customer, and forgotten with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import assert_never

import attrs

from rscylla.eventsourcing import personal, subject

from .rules import RuleBroken

__all__ = [
    "EVENTS",
    "INITIAL",
    "NAME",
    "CancelCause",
    "CancelOrder",
    "CancelUnpaidOrder",
    "ConfirmOrder",
    "CreateOrder",
    "DeliverOrder",
    "Order",
    "OrderCancelled",
    "OrderCommand",
    "OrderConfirmed",
    "OrderCreated",
    "OrderDelivered",
    "OrderEvent",
    "OrderItem",
    "OrderItemsUpdated",
    "OrderPaid",
    "OrderShipped",
    "OrderStatus",
    "PayOrder",
    "ShipOrder",
    "UpdateItems",
    "decide",
    "evolve",
]

NAME = "order"
"""The aggregate type, as it is stored."""

MAX_ITEMS = 100
"""Bounds the size of an event: a CDC log and a broker copy all of it."""


class OrderStatus(StrEnum):
    CREATED = "created"
    CONFIRMED = "confirmed"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class CancelCause(StrEnum):
    """Why an order was cancelled, for everybody; the words of whoever asked for it are personal."""

    ASKED = "on request"
    NOT_PAID = "not paid in time"


@attrs.frozen
class OrderItem:
    """A position of an order. The price is that of one piece, in the smallest unit of the order's currency."""

    product_id: str
    quantity: int
    unit_price: int


# ---------------------------------------------------------------- commands


@attrs.frozen
class CreateOrder:
    customer_id: str
    items: tuple[OrderItem, ...]
    currency: str = "EUR"


@attrs.frozen
class UpdateItems:
    """Replace the items of an order that is not confirmed yet."""

    items: tuple[OrderItem, ...]
    reason: str = ""


@attrs.frozen
class ConfirmOrder:
    payment_due_at: datetime


@attrs.frozen
class PayOrder:
    amount: int
    reference: str


@attrs.frozen
class ShipOrder:
    carrier: str
    tracking_number: str


@attrs.frozen
class DeliverOrder:
    signed_by: str = ""


@attrs.frozen
class CancelOrder:
    reason: str = ""
    cancelled_by: str = ""


@attrs.frozen
class CancelUnpaidOrder:
    """Cancel the order if it waits for its payment; sent by a timer, which may be late. Else, nothing happens."""


OrderCommand = (
    CreateOrder | UpdateItems | ConfirmOrder | PayOrder | ShipOrder | DeliverOrder | CancelOrder | CancelUnpaidOrder
)


# ---------------------------------------------------------------- events


@attrs.frozen
class OrderCreated:
    customer_id: str
    items: tuple[OrderItem, ...]
    currency: str


@attrs.frozen
class OrderItemsUpdated:
    items: tuple[OrderItem, ...]
    customer_id: str = subject()
    reason: str = personal(placeholder="")


@attrs.frozen
class OrderConfirmed:
    payment_due_at: datetime


@attrs.frozen
class OrderPaid:
    """``reference`` is the id of the payment at the provider: accounts are kept, whoever is forgotten."""

    amount: int
    reference: str


@attrs.frozen
class OrderShipped:
    carrier: str
    customer_id: str = subject()
    tracking_number: str = personal(placeholder="")


@attrs.frozen
class OrderDelivered:
    """Without a name, nothing personal is written."""

    customer_id: str = subject()
    signed_by: str = personal(placeholder="")


@attrs.frozen
class OrderCancelled:
    """``refund``: what was paid and goes back, in the order's currency."""

    cause: CancelCause
    refund: int
    customer_id: str = subject()
    reason: str = personal(placeholder="")
    cancelled_by: str = personal(placeholder="")


OrderEvent = (
    OrderCreated | OrderItemsUpdated | OrderConfirmed | OrderPaid | OrderShipped | OrderDelivered | OrderCancelled
)

EVENTS = (
    OrderCreated,
    OrderItemsUpdated,
    OrderConfirmed,
    OrderPaid,
    OrderShipped,
    OrderDelivered,
    OrderCancelled,
)


# ---------------------------------------------------------------- state


@attrs.frozen
class Order:
    """What the rules need to know of an order. What people want to see of it is the work of a read model.

    Without a status, there is no order yet.
    """

    customer_id: str = subject(default="")
    items: tuple[OrderItem, ...] = ()
    currency: str = ""
    status: OrderStatus | None = None
    paid: int = 0
    tracking_number: str = personal(default="", placeholder="")

    @property
    def total(self) -> int:
        """The price of all items, in the smallest unit of the currency."""
        return total(self.items)


INITIAL = Order()
"""The state before the first event."""


def total(items: Sequence[OrderItem]) -> int:
    """Return the price of *items*."""
    return sum(item.quantity * item.unit_price for item in items)


def evolve(order: Order, event: OrderEvent) -> Order:
    """Return the order after *event*. Pure and total: what happened is not judged again."""
    if isinstance(event, OrderCreated):
        return Order(event.customer_id, event.items, event.currency, OrderStatus.CREATED)
    if order.status is None:
        raise ValueError(f"{type(event).__name__} is the first event of an order; its stream is damaged")
    match event:
        case OrderItemsUpdated(items=items):
            return attrs.evolve(order, items=items)
        case OrderConfirmed():
            return attrs.evolve(order, status=OrderStatus.CONFIRMED)
        case OrderPaid(amount=amount):
            return attrs.evolve(order, status=OrderStatus.PAID, paid=order.paid + amount)
        case OrderShipped(tracking_number=number):
            return attrs.evolve(order, status=OrderStatus.SHIPPED, tracking_number=number)
        case OrderDelivered():
            return attrs.evolve(order, status=OrderStatus.DELIVERED)
        case OrderCancelled(refund=refund):
            return attrs.evolve(order, status=OrderStatus.CANCELLED, paid=order.paid - refund)
        case _:
            assert_never(event)


# ---------------------------------------------------------------- decisions


def decide(order: Order, command: OrderCommand) -> Sequence[OrderEvent]:
    """Return what happens because of *command*; nothing, if it asks for what is already so.

    Raises:
        RuleBroken: the order may not do that now.
    """
    if isinstance(command, CreateOrder):
        return _created(order, command)
    if order.status is None:
        raise RuleBroken("not_found", "there is no such order")
    match command:
        case UpdateItems(items=items, reason=reason):
            _must_be(order, OrderStatus.CREATED, "not_open", "the items of an order can change until it is confirmed")
            _check_items(items)
            return () if items == order.items else (OrderItemsUpdated(items, order.customer_id, reason),)
        case ConfirmOrder(payment_due_at=due):
            if order.status is OrderStatus.CONFIRMED:
                raise RuleBroken("already_confirmed", "the order is already confirmed")
            _must_be(order, OrderStatus.CREATED, "not_open", "only a new order can be confirmed")
            return (OrderConfirmed(due),)
        case PayOrder():
            return _paid(order, command)
        case ShipOrder(carrier=carrier, tracking_number=number):
            if order.status is OrderStatus.CREATED:
                raise RuleBroken("not_confirmed", "an order must be confirmed before it is shipped")
            if order.status is OrderStatus.CONFIRMED:
                raise RuleBroken("not_paid", "an order must be paid before it is shipped")
            _must_be(order, OrderStatus.PAID, "already_shipped", "an order is shipped once")
            _check_text("carrier", carrier)
            _check_text("tracking_number", number)
            return (OrderShipped(carrier, order.customer_id, number),)
        case DeliverOrder(signed_by=name):
            if order.status is OrderStatus.DELIVERED:
                raise RuleBroken("already_delivered", "the order is already delivered")
            _must_be(order, OrderStatus.SHIPPED, "not_shipped", "an order must be shipped before it is delivered")
            return (OrderDelivered(order.customer_id, name),)
        case CancelOrder(reason=reason, cancelled_by=who):
            _must_not_be_cancelled(order)
            if order.status is OrderStatus.DELIVERED:
                raise RuleBroken("already_delivered", "an order that is delivered comes back as a return")
            return (OrderCancelled(CancelCause.ASKED, order.paid, order.customer_id, reason, who),)
        case CancelUnpaidOrder():
            if order.status is not OrderStatus.CONFIRMED:
                return ()
            return (OrderCancelled(CancelCause.NOT_PAID, 0, order.customer_id, "", ""),)
        case _:
            assert_never(command)


def _created(order: Order, command: CreateOrder) -> Sequence[OrderEvent]:
    if order.status is not None:
        raise RuleBroken("already_exists", "there is an order with this id already")
    _check_text("customer_id", command.customer_id)
    _check_items(command.items)
    if len(command.currency) != 3 or not (command.currency.isascii() and command.currency.isupper()):
        raise RuleBroken("invalid_currency", "a currency has three capital letters, such as EUR")
    return (OrderCreated(command.customer_id, command.items, command.currency),)


def _paid(order: Order, command: PayOrder) -> Sequence[OrderEvent]:
    if order.status is OrderStatus.CREATED:
        raise RuleBroken("not_confirmed", "an order must be confirmed before it is paid")
    _must_be(order, OrderStatus.CONFIRMED, "already_paid", "an order is paid once")
    if command.amount != order.total:
        raise RuleBroken("wrong_amount", f"the order costs {order.total}, not {command.amount}")
    _check_text("reference", command.reference)
    return (OrderPaid(command.amount, command.reference),)


def _must_be(order: Order, status: OrderStatus, code: str, text: str) -> None:
    _must_not_be_cancelled(order)
    if order.status is not status:
        raise RuleBroken(code, f"{text}; this one is {order.status}")


def _must_not_be_cancelled(order: Order) -> None:
    if order.status is OrderStatus.CANCELLED:
        raise RuleBroken("already_cancelled", "the order is cancelled")


def _check_items(items: Sequence[OrderItem]) -> None:
    if not items:
        raise RuleBroken("no_items", "an order has at least one item")
    if len(items) > MAX_ITEMS:
        raise RuleBroken("too_many_items", f"an order has at most {MAX_ITEMS} items")
    for item in items:
        _check_text("product_id", item.product_id)
        if item.quantity < 1:
            raise RuleBroken("invalid_quantity", f"a quantity is at least 1, not {item.quantity}")
        if item.unit_price < 0:
            raise RuleBroken("invalid_price", f"a price is not negative, as {item.unit_price} is")


def _check_text(name: str, text: str) -> None:
    if not text.strip():
        raise RuleBroken(f"no_{name}", f"{name} is empty")
