"""Stream options: what they take, and how they fold."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rscylla.errors import ConfigError
from rscylla.options import SAFE_LAG, StreamFromHead, StreamLag, StreamOptions, StreamToHead, StreamUntil, resolve

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_nothing_given_is_nothing_set() -> None:
    assert resolve([]) == StreamOptions(lag=None, from_head=False, to_head=False, until=None)


def test_options_set_their_field() -> None:
    given: list[Any] = [StreamLag(seconds=30), StreamFromHead(), StreamToHead(), StreamUntil(NOON)]
    assert resolve(given) == StreamOptions(timedelta(seconds=30), True, True, NOON)


def test_a_later_option_of_a_kind_wins() -> None:
    assert resolve([StreamLag(seconds=1), StreamToHead(), StreamLag(seconds=60)]).lag == timedelta(seconds=60)


@pytest.mark.parametrize(
    ("lag", "seconds"),
    [
        (StreamLag(timedelta(seconds=30)), 30),
        (StreamLag(seconds=30), 30),
        (StreamLag(minutes=1, seconds=30, milliseconds=500), 90.5),
        (StreamLag(timedelta(seconds=1), seconds=1), 2),
        (StreamLag(timedelta()), 0),
        (StreamLag(seconds=0), 0),
    ],
)
def test_lags_add_up(lag: StreamLag, seconds: float) -> None:
    assert lag.lag == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((), {}, "requires a duration"),
        ((30,), {}, "requires a timedelta"),
        (("30s",), {}, "requires a timedelta"),
        ((), {"seconds": -1}, "must not be negative"),
        ((timedelta(seconds=-1),), {}, "must not be negative"),
        ((), {"seconds": "30"}, "its parts must be numbers"),
        ((), {"seconds": float("nan")}, "its parts must be numbers"),
        ((), {"minutes": float("inf")}, "its parts must be numbers"),
        ((), {"seconds": 10**20}, "at most some years"),
    ],
)
def test_lags_that_make_no_sense_are_refused(arguments: tuple[Any, ...], keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        StreamLag(*arguments, **keywords)


def test_until_needs_a_time_zone() -> None:
    with pytest.raises(ConfigError, match="StreamUntil: a datetime without time zone"):
        StreamUntil(datetime(2026, 11, 21))
    with pytest.raises(ConfigError, match=r"requires an aware datetime.* not '2026"):
        StreamUntil("2026-11-21T10:00:00Z")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 30, "lag", timedelta(seconds=30)])
def test_an_object_that_is_not_an_option_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is not a stream option; use StreamLag"):
        resolve([StreamToHead(), wrong])


def test_options_are_values() -> None:
    options: list[Any] = [
        StreamLag(seconds=30),
        StreamFromHead(),
        StreamToHead(),
        StreamUntil(NOON),
        resolve([StreamToHead()]),
    ]
    for option in options:
        assert pickle.loads(pickle.dumps(option)) == option
        with pytest.raises(AttributeError):
            option.lag = timedelta(days=1)
    assert len(set(options)) == 5


def test_thirty_seconds_are_safe() -> None:
    assert timedelta(seconds=30) == SAFE_LAG
