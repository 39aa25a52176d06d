"""How events are stored: their names, their schemas, and how those of yesterday are read today."""

from __future__ import annotations

from typing import Any

from rscylla.eventsourcing import Aggregate, EventTypes, PersonalData

from .domain import customers, orders

__all__ = ["Customers", "Orders", "aggregates", "event_types"]

Orders = Aggregate[orders.Order, orders.OrderCommand, orders.OrderEvent]
Customers = Aggregate[customers.Customer, customers.CustomerCommand, customers.CustomerEvent]


def event_types(personal: PersonalData) -> EventTypes:
    """Return the types of all events. The name of a class is what is stored: renamed, it keeps its old one here."""
    types = EventTypes(personal=personal)
    types.register(orders.OrderCreated, schema=2)
    for event in (*orders.EVENTS, *customers.EVENTS):
        if event is not orders.OrderCreated:
            types.register(event)

    @types.upcaster("OrderCreated", 1)
    def _(data: dict[str, Any]) -> dict[str, Any]:
        # The first shop sold in one country, and its events did not say so.
        return {**data, "currency": "EUR"}

    return types


def aggregates(types: EventTypes) -> tuple[Orders, Customers]:
    """Return both kinds of aggregates."""
    return (
        Aggregate(orders.NAME, orders.INITIAL, orders.decide, orders.evolve, types),
        Aggregate(customers.NAME, customers.INITIAL, customers.decide, customers.evolve, types),
    )
