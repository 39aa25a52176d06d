"""Event filters and how to combine them.

A filter is any callable that takes an event and returns whether the consumer wants it. It must be fast and do no I/O;
an error from it ends the run, because it is not known whether the event was wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..errors import ConfigError, DeserializationError, is_resumable
from ..event import Event

__all__ = ["EventFilter", "all_event_filters", "any_event_filters", "metadata_event_filter"]

EventFilter = Callable[[Event], bool]
"""Returns whether an event is wanted."""

T = TypeVar("T")


def all_event_filters(*filters: EventFilter) -> EventFilter:
    """Return a filter that accepts the events that all of *filters* accept.

    The first rejection or error decides, and later filters are not called. Without filters, it accepts every event.
    """
    _check(filters)

    def wanted(event: Event) -> bool:
        return all(accepts(event) for accepts in filters)

    return wanted


def any_event_filters(*filters: EventFilter) -> EventFilter:
    """Return a filter that accepts the events that any of *filters* accepts.

    The first acceptance decides, even after errors of earlier filters. If none accepts and some failed, the last
    error is raised. Without filters, it accepts no event.
    """
    _check(filters)

    def wanted(event: Event) -> bool:
        failure: Exception | None = None
        for accepts in filters:
            try:
                if accepts(event):
                    return True
            except Exception as error:  # noqa: BLE001 - a later filter may still accept; the last error is raised
                failure = error
        if failure is not None:
            raise failure
        return False

    return wanted


def metadata_event_filter(deserialize: Callable[[bytes], T], wanted: Callable[[T], bool]) -> EventFilter:
    """Return a filter that decodes an event's metadata and calls *wanted* with the result.

    Errors of *wanted* pass through unchanged.

    Raises:
        ConfigError: one of the two is not callable.
        DeserializationError: (from the filter) *deserialize* failed; its error is the cause.
    """
    for role, function in (("deserialize", deserialize), ("wanted", wanted)):
        if not callable(function):
            raise ConfigError(f"metadata_event_filter: {role} is not callable; pass a function")

    def accepts(event: Event | None) -> bool:
        try:
            data = deserialize(event.metadata if event is not None else b"")
        except Exception as error:
            raise DeserializationError(
                f"the metadata of event {event.id if event is not None else None} could not be decoded "
                f"({type(error).__name__}); check that the deserializer of the filter matches the stream",
                resumable=is_resumable(error),
            ) from error
        return wanted(data)

    return accepts


def _check(filters: tuple[EventFilter, ...]) -> None:
    for accepts in filters:
        if not callable(accepts):
            raise ConfigError(f"{accepts!r} is not an event filter; pass a function from an event to a bool")
