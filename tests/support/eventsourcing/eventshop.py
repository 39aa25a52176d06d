"""A small shop for the tests: orders whose events have grown over time, and a customer's name in them."""

from __future__ import annotations

from typing import Any

import attrs

from rscylla.eventsourcing import Aggregate, EventTypes, PersonalData, personal, subject

__all__ = ["Pay", "Place", "Refused", "State", "orders"]


class Refused(Exception):
    """The order does not allow it."""


@attrs.frozen
class Placed:
    customer_id: str = subject()
    name: str = personal()
    amount: int = 0


@attrs.frozen
class Paid:
    amount: int


@attrs.frozen
class Place:
    customer_id: str
    name: str
    amount: int


@attrs.frozen
class Pay:
    amount: int


@attrs.frozen
class State:
    customer_id: str = subject(default="")
    name: str = personal(default="[forgotten]")
    open: int = 0
    payments: tuple[int, ...] = ()


def decide(state: State, command: Place | Pay) -> list[Any]:
    match command:
        case Place(customer_id, name, amount):
            if state.customer_id:
                raise Refused("the order is there already")
            return [Placed(customer_id, name, amount)]
        case Pay(amount):
            if amount > state.open:
                raise Refused(f"only {state.open} to pay")
            return [Paid(amount)] if amount else []


def evolve(state: State, event: Placed | Paid) -> State:
    match event:
        case Placed(customer_id, name, amount):
            return State(customer_id, name, amount)
        case Paid(amount):
            return attrs.evolve(state, open=state.open - amount, payments=(*state.payments, amount))


def orders(personal: PersonalData, *, state_schema: int = 1) -> Aggregate[State, Place | Pay, Any]:
    """Return the aggregate of orders."""
    events = EventTypes(personal=personal)
    events.register(Placed, schema=2)
    events.register(Paid, name="OrderPaid")
    events.upcaster("Placed", 1)(lambda data: {**data, "amount": data["price"]})
    return Aggregate("order", State(), decide, evolve, events, state_schema=state_schema)
