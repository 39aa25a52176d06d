"""``windows``: what a consumer of whole windows gets, what is saved, and what its metrics count."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.abc import Window
from rscylla.errors import ConfigError, FateError, HeadReached, RunError
from rscylla.testing import FakeStream

LAG = rscylla.StreamLag(seconds=30)


class FakeWindow(list[rscylla.Event]):
    cursor = ""

    def to_arrow(self, mode: str = "changes") -> Any:
        raise NotImplementedError


def test_a_stream_without_windows_is_refused() -> None:
    consumer = rscylla.windows("columns", lambda window, run: None, registry=CollectorRegistry())
    with pytest.raises(RunError, match="returns no windows") as caught:
        rscylla.run(rscylla.Spec(FakeStream([]), MemoryCursorStore(), consumer, rscylla.StreamToHead()))
    assert isinstance(caught.value.__cause__, ConfigError)


@pytest.mark.parametrize("option", ["filter_types", "event_filter", "recover"])
def test_options_for_single_events_are_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        rscylla.windows("columns", lambda window, run: None, **{option: None})


def test_nothing_can_be_wrapped_around_it() -> None:
    consumer = rscylla.windows("columns", lambda window, run: None, registry=CollectorRegistry())
    with pytest.raises(ConfigError, match="whole windows"):
        rscylla.reflex.best_effort(consumer)
    with pytest.raises(ConfigError, match="whole windows"):
        consumer.consume(rscylla.SimpleEvent("e1"), rscylla.Run("columns"))


def test_it_serves_no_two_lanes() -> None:
    consumer = rscylla.windows("columns", lambda window, run: None, registry=CollectorRegistry())
    with pytest.raises(ConfigError, match="deliver single events"):
        rscylla.fast_and_sweep(FakeStream([], supports_lag=True), MemoryCursorStore(), consumer)


class WindowClient:
    """Returns the given items, then ends at the head."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def recv(self) -> Any:
        raise AssertionError("a consumer of windows gets no single events")

    def take(self) -> Any:
        if not self._items:
            raise HeadReached
        return self._items.pop(0)

    def status(self) -> rscylla.abc.StreamStatus:
        return rscylla.abc.StreamStatus()

    def close(self) -> None: ...


def window(first: int, count: int) -> FakeWindow:
    made = FakeWindow(rscylla.SimpleEvent(str(n)) for n in range(first, first + count))
    made.cursor = f"after {first + count - 1}"
    return made


class Saved:
    """A store that notes what is saved."""

    def __init__(self) -> None:
        self.cursors: list[str] = []

    def get_cursor(self, consumer: str) -> str:
        return ""

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self.cursors.append(cursor)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def driven(
    items: list[Any], fn: Any, *, store: Saved | None = None, fate: Any = None
) -> tuple[Saved, Any, BaseException]:
    store, consumer = store or Saved(), rscylla.windows("columns", fn, registry=CollectorRegistry())
    with pytest.raises((RunError, HeadReached)) as caught:
        rscylla.run(
            rscylla.Spec(
                lambda after, *options, stop=None: WindowClient(items),  # type: ignore[misc, arg-type]
                store,
                consumer,
                fate=fate,
            )
        )
    return store, consumer, caught.value


def test_each_window_is_saved_once_after_the_function_returned() -> None:
    seen: list[Any] = []

    def handle(given: Window, run: rscylla.Run) -> None:
        assert run.event is given[0]
        seen.append((len(given), list(store.cursors)))

    store = Saved()
    _, consumer, _ = driven([window(0, 3), rscylla.Progress("idle", 5), window(3, 2)], handle, store=store)
    assert store.cursors == ["after 2", "idle", "after 4"]
    assert seen == [(3, []), (2, ["after 2", "idle"])]
    assert consumer.series.counts["consumed"] == 5
    assert consumer.series.samples("latency")[0][-1] == ("+Inf", 2.0)


def test_an_error_saves_nothing_of_the_window_and_names_its_first_event() -> None:
    def handle(given: Window, run: Any) -> None:
        if given[0].id == "3":
            raise ValueError

    store, consumer, error = driven([window(0, 3), window(3, 2)], handle)
    assert store.cursors == ["after 2"]
    assert isinstance(error, RunError)
    assert (error.stage, error.event_id) == ("consume", "3")
    assert (consumer.series.counts["consumed"], consumer.series.counts["errors"]) == (3, 1)
    assert consumer.series.activity.longest() == (0.0, None)


class NotedFate:
    """Notes where it is tempted, and strikes at one point."""

    def __init__(self, strikes_at: str) -> None:
        self.strikes_at = strikes_at
        self.points: list[str] = []

    def tempt(self, point: str = "") -> None:
        self.points.append(point)
        if point == self.strikes_at:
            raise FateError


@pytest.mark.parametrize(
    ("point", "saved"),
    [("after_recv", []), ("after_consume", []), ("before_set_cursor", []), ("before_flush", ["after 2"])],
)
def test_fate_strikes_a_window_where_it_strikes_an_event(point: str, saved: list[str]) -> None:
    fate = NotedFate(point)
    store, _, _ = driven([window(0, 3)], lambda given, run: None, fate=fate)
    assert store.cursors == saved
    way = ["after_recv", "after_consume", "before_set_cursor", "before_flush"]
    assert fate.points == [*way[: way.index(point)], point, *way[way.index(point) + 1 :][-1:]]
