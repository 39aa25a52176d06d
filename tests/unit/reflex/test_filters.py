"""Filters and their combinations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rscylla.errors import ConfigError, DeserializationError
from rscylla.event import Event, SimpleEvent
from rscylla.reflex import EventFilter, all_event_filters, any_event_filters, metadata_event_filter

EVENT = SimpleEvent("e1", metadata=b'{"amount":7}')


class Script:
    """Filters that return or raise given values and record the order of calls."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.asked: list[int] = []
        self.filters: list[EventFilter] = [self.filter(i, a) for i, a in enumerate(answers)]

    def filter(self, place: int, answer: bool | Exception) -> EventFilter:
        def wanted(event: Event) -> bool:
            self.asked.append(place)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return wanted


FIRST, SECOND = ValueError("first"), KeyError("second")


@pytest.mark.parametrize(
    ("answers", "outcome", "asked"),
    [
        ((), True, []),
        ((True, True), True, [0, 1]),
        ((True, False, True), False, [0, 1]),
        ((True, FIRST, True), FIRST, [0, 1]),
        ((False, FIRST), False, [0]),
    ],
)
def test_all_stops_at_the_first_refusal_or_error(
    answers: tuple[Any, ...], outcome: bool | Exception, asked: list[int]
) -> None:
    script = Script(*answers)
    assert outcome_of(all_event_filters(*script.filters)) == outcome
    assert script.asked == asked


@pytest.mark.parametrize(
    ("answers", "outcome", "asked"),
    [
        ((), False, []),
        ((False, False), False, [0, 1]),
        ((False, True, False), True, [0, 1]),
        ((FIRST, True), True, [0, 1]),
        ((FIRST, SECOND, False), SECOND, [0, 1, 2]),
        ((False, FIRST), FIRST, [0, 1]),
    ],
)
def test_any_takes_the_first_acceptance_even_after_errors_else_the_last_error(
    answers: tuple[Any, ...], outcome: bool | Exception, asked: list[int]
) -> None:
    script = Script(*answers)
    assert outcome_of(any_event_filters(*script.filters)) == outcome
    assert script.asked == asked


def outcome_of(wanted: EventFilter) -> bool | Exception:
    try:
        return wanted(EVENT)
    except (ValueError, KeyError) as error:
        return error


def test_metadata_is_decoded_for_the_filter() -> None:
    assert metadata_event_filter(json.loads, lambda data: data["amount"] > 5)(EVENT)
    assert not metadata_event_filter(json.loads, lambda data: data["amount"] > 7)(EVENT)


def test_metadata_that_cannot_be_decoded_keeps_its_cause() -> None:
    wanted = metadata_event_filter(json.loads, lambda data: True)
    with pytest.raises(DeserializationError, match="event e2") as caught:
        wanted(SimpleEvent("e2", metadata=b"not json 4711"))
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)
    assert "4711" not in str(caught.value)


def test_errors_of_the_data_filter_are_not_taken_for_decoding() -> None:
    with pytest.raises(KeyError):
        metadata_event_filter(json.loads, lambda data: data["missing"])(EVENT)


def test_no_event_is_empty_metadata() -> None:
    seen: list[bytes] = []
    wanted: Any = metadata_event_filter(lambda data: seen.append(data), lambda data: True)
    assert wanted(None)
    assert seen == [b""]


def test_missing_parts_are_refused_when_the_filter_is_made() -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match="deserialize is not callable"):
        metadata_event_filter(nothing, lambda data: True)
    with pytest.raises(ConfigError, match="wanted is not callable"):
        metadata_event_filter(json.loads, nothing)
    for combine in (all_event_filters, any_event_filters):
        with pytest.raises(ConfigError, match="is not an event filter"):
            combine(nothing)
