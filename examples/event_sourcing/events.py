"""How events are stored: their names, their schemas, and how those of yesterday are read today."""

from __future__ import annotations

from typing import Any

from rscylla.eventsourcing import Aggregate, EventTypes, PersonalData

from .domain import customers, orders

__all__ = ["Customers", "Orders", "aggregates", "event_types"]

Orders = Aggregate[orders.Order, orders.OrderCommand, orders.OrderEvent]
Customers = Aggregate[customers.Customer, customers.CustomerCommand, customers.CustomerEvent]

SECOND = (orders.OrderCreated, orders.OrderItemsUpdated, orders.OrderShipped, orders.OrderCancelled)
"""Events whose schema is the second one."""

FREE_TEXTS = ("reason", "cancelled_by", "tracking_number")
"""What the first shop stored in the clear in events of orders."""


def event_types(personal: PersonalData) -> EventTypes:
    """Return the types of all events. The name of a class is what is stored: renamed, it keeps its old one here."""
    types = EventTypes(personal=personal)
    for event in (*orders.EVENTS, *customers.EVENTS):
        types.register(event, schema=2 if event in SECOND else 1)

    @types.upcaster("OrderCreated", 1)
    def _(data: dict[str, Any]) -> dict[str, Any]:
        # The first shop sold in one country, and its events did not say so.
        return {**data, "currency": "EUR"}

    @types.upcaster("OrderCancelled", 1)
    def _(data: dict[str, Any]) -> dict[str, Any]:
        is_late = data["reason"] == orders.CancelCause.NOT_PAID
        return {**without_texts(data), "cause": orders.CancelCause.NOT_PAID if is_late else orders.CancelCause.ASKED}

    def without_texts(data: dict[str, Any]) -> dict[str, Any]:
        # They were in the clear. Nobody is told them any more.
        return {**data, "customer_id": "", **{name: "" for name in FREE_TEXTS if name in data}}

    for event in (orders.OrderItemsUpdated, orders.OrderShipped):
        types.upcaster(event.__name__, 1)(without_texts)
    return types


def aggregates(types: EventTypes) -> tuple[Orders, Customers]:
    """Return both kinds of aggregates."""
    return (
        Aggregate(orders.NAME, orders.INITIAL, orders.decide, orders.evolve, types),
        Aggregate(customers.NAME, customers.INITIAL, customers.decide, customers.evolve, types),
    )
