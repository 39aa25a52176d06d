"""Aggregates as deciders: two pure functions, one that decides about commands and one that applies events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from cursorstore.table import check_name

from .codec import calling
from .envelope import AggregateID
from .types import EventTypes

__all__ = ["Aggregate"]

S = TypeVar("S")
C = TypeVar("C")
E = TypeVar("E")

_INITIAL: Any = object()
"""Not None, which a state may be."""


@attrs.frozen
class Aggregate(Generic[S, C, E]):
    """A kind of aggregate.

    Args:
        name: The type in its ids.
        initial: The state before the first event. States are values: they are not changed.
        decide: Returns the events that a command leads to in a state, none if it changes nothing. It refuses by raising
            an error of the application, which the caller of the command gets. Pure: it may be called several times.
        evolve: Returns the state after an event. Pure, and total: what happened cannot be refused.
        events: The types of the events.
        state_type: The type of states, for snapshots, such as ``dict[int, Seat]`` or ``Draft | Placed``; default: the
            class of the initial one.
        state_schema: The number of the state's class, for snapshots: give it the next one when the class or ``evolve``
            changes, and older snapshots are not used any more.
    """

    name: str
    initial: S
    decide: Callable[[S, C], Iterable[E]]
    evolve: Callable[[S, E], S]
    events: EventTypes
    state_type: Any = attrs.field(default=attrs.Factory(lambda self: type(self.initial), True), kw_only=True)
    state_schema: int = attrs.field(default=1, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_name("the name of an aggregate", self.name)

    def id(self, id: str) -> AggregateID:  # noqa: A002 - as in AggregateID
        """Return the identity of the aggregate of this kind with that id."""
        return AggregateID(self.name, id)

    def after(self, events: Iterable[E], state: S = _INITIAL) -> S:
        """Return the state after *events*, from the initial one or *state*."""
        found = self.initial if state is _INITIAL else state
        for event in events:
            found = calling(partial(self.evolve, found, event), event)
        return found
