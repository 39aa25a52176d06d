"""Whole windows of a stream: the same events as one by one, the same rows as columns, and the cursor after them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, FakeLog, stream_id

import rscylla
from rscylla.errors import ConfigError, HeadReached

HEAD_US = NOW_US - 30 * SECOND
LAG = rscylla.StreamLag(seconds=30)
END = {"cdc$end_of_batch": b"\x01"}


@pytest.fixture
def written(log: FakeLog) -> FakeLog:
    """Forty seconds with an update, its preimage, and an insert each."""
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1), stream_id(2)])
    for n in range(40):
        us = HEAD_US - 90 * SECOND + n * SECOND
        for seq, (operation, value) in enumerate(((0, n - 1), (1, n))):
            log.write(us, at=n, low=n, seq=seq, ck=1, v=value, **{"cdc$operation": operation}, **END if seq else {})
        log.write(us + 1, at=n, ck=2, v=n, **END)
    return log


def stream_of(log: FakeLog, **options: Any) -> rscylla.Stream:
    return rscylla.NewStream(
        log, "ks", "t", clock=log.clock, prefetch=0, limits=rscylla.Limits(window_rows=20), **options
    )  # type: ignore[arg-type]


def until_head(receive: Callable[[], Any]) -> list[Any]:
    found = []
    try:
        while True:
            found.append(receive())
    except HeadReached:
        return found


def whole(client: Any) -> Any:
    """Return the next window with all of its events made, or a ``Progress``."""
    taken = client.take()
    assert isinstance(taken, rscylla.Progress) or len(taken) > 0
    return taken


def by_windows(client: Any) -> tuple[list[Any], list[str]]:
    """Return the windows, and the cursors of what came between and after them."""
    items = until_head(partial(whole, client))
    windows = [item for item in items if not isinstance(item, rscylla.Progress)]
    return windows, [item.cursor for item in items if isinstance(item, rscylla.Progress)]


def by_recv(client: Any) -> list[Any]:
    return [item for item in until_head(client.recv) if isinstance(item, rscylla.Event)]


@pytest.mark.parametrize("granularity", ["change", "row"])
@pytest.mark.parametrize("start", [0, 1, 7, 60])
def test_windows_have_the_events_that_come_one_by_one(written: FakeLog, granularity: Any, start: int) -> None:
    stream = stream_of(written, granularity=granularity)
    ids = ["", *(event.id for event in by_recv(stream("", LAG, rscylla.StreamToHead())))]
    windows, _ = by_windows(stream(ids[start], LAG, rscylla.StreamToHead()))
    assert [event.id for window in windows for event in window] == ids[start + 1 :]
    assert len(windows) > 1
    for window in windows:
        assert len(window) == len(list(window))
        assert window[0] is next(iter(window))
        assert window[-1].id == list(window)[-1].id


def test_a_stream_continues_right_after_the_cursor_of_a_window(written: FakeLog) -> None:
    stream = stream_of(written)
    windows, _ = by_windows(stream("", LAG, rscylla.StreamToHead()))
    for number, window in enumerate(windows):
        rest, _ = by_windows(stream(window.cursor, LAG, rscylla.StreamToHead()))
        assert [e.id for w in rest for e in w] == [e.id for w in windows[number + 1 :] for e in w]


@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.arrow
def test_a_window_is_a_table_in_each_mode(written: FakeLog, start: int) -> None:
    pytest.importorskip("pyarrow")
    stream = stream_of(written)
    events = by_recv(stream("", LAG, rscylla.StreamToHead()))
    first = events[start - 1].id if start else ""
    windows, _ = by_windows(stream(first, LAG, rscylla.StreamToHead()))
    changes = [row for window in windows for row in window.to_arrow().to_pylist()]
    assert [(row["cdc_operation"], row["ck"], row["cdc_values"]["v"]) for row in changes] == [
        (event.operation.name.lower(), event.key["ck"], event.change.values["v"]) for event in events[start:]
    ]
    assert [(row["cdc_before"] or {}).get("v") for row in changes] == [
        (event.change.before or {}).get("v") for event in events[start:]
    ]
    ids = [row["id"] for window in windows for row in window.to_arrow("events").to_pylist()]
    assert ids == [event.id for event in events[start:]]
    log_rows = [row for window in windows for row in window.to_arrow("log").to_pylist()]
    rows = by_recv(stream_of(written, granularity="row")(first, LAG, rscylla.StreamToHead()))
    assert [(row["cdc_operation"], row["v"]) for row in log_rows] == [(e.operation, e.row["v"]) for e in rows]
    with pytest.raises(ConfigError, match="mode"):
        windows[0].to_arrow("rows")


@pytest.mark.arrow
def test_the_rest_of_a_window_follows_events_that_came_one_by_one(written: FakeLog) -> None:
    stream = stream_of(written)
    ids = [event.id for event in by_recv(stream("", LAG, rscylla.StreamToHead()))]
    client = stream("", LAG, rscylla.StreamToHead())
    taken = [item.id for item in (client.recv() for _ in range(5)) if isinstance(item, rscylla.Event)]
    windows, _ = by_windows(client)
    assert [*taken, *(event.id for window in windows for event in window)] == ids
    pytest.importorskip("pyarrow")
    rows = [row for window in windows for row in window.to_arrow("log").to_pylist()]
    assert sum(row["cdc_operation"] > 0 for row in rows) == len(ids) - len(taken)


def test_the_watermark_follows_when_the_next_window_is_asked_for(written: FakeLog) -> None:
    client = stream_of(written)("", LAG, rscylla.StreamToHead())
    while isinstance(window := whole(client), rscylla.Progress):
        pass
    assert client.status().watermark_us <= window[-1].timestamp_us
    client.take()
    assert client.status().watermark_us > window[-1].timestamp_us


@pytest.mark.usefixtures("second_event_breaks")
def test_a_window_whose_events_cannot_be_made_is_not_passed_over(written: FakeLog) -> None:
    client = stream_of(written)("", LAG, rscylla.StreamToHead())
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            until_head(partial(whole, client))


def test_a_chunk_that_is_left_is_taken_again(written: FakeLog) -> None:
    expected = [event.id for event in by_recv(stream_of(written)("", LAG, rscylla.StreamToHead()))]
    client = stream_of(written)("", LAG, rscylla.StreamToHead())
    got = []

    def receive() -> None:
        client.take()  # nothing of it is read
        item = client.recv()
        if isinstance(item, rscylla.Event):
            got.append(item.id)
        if not isinstance(chunk := client.take(), rscylla.Progress):
            got.append(next(iter(chunk)).id)

    until_head(receive)
    assert got == expected


@pytest.mark.arrow
def test_the_events_of_a_table_are_delivered_with_it(written: FakeLog) -> None:
    pytest.importorskip("pyarrow")
    expected = [event.id for event in by_recv(stream_of(written)("", LAG, rscylla.StreamToHead()))]
    client = stream_of(written)("", LAG, rscylla.StreamToHead())

    def table() -> list[str]:
        taken = client.take()
        return [] if isinstance(taken, rscylla.Progress) else taken.to_arrow("events")["id"].to_pylist()

    taken = until_head(table)
    assert [name for names in taken for name in names] == expected


def test_an_interrupt_while_events_are_counted_loses_none(written: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [event.id for event in by_recv(stream_of(written)("", LAG, rscylla.StreamToHead()))]
    client = stream_of(written)("", LAG, rscylla.StreamToHead())
    while isinstance(chunk := client.take(), rscylla.Progress):
        pass
    true, left = chunk._step.events, 3

    def interrupted() -> Any:
        for number, event in enumerate(true):
            yield event
            if number == left:
                raise KeyboardInterrupt

    monkeypatch.setattr(chunk, "_step", SimpleNamespace(events=interrupted()))
    with pytest.raises(KeyboardInterrupt):
        len(chunk)
    monkeypatch.setattr(chunk, "_step", SimpleNamespace(events=true))
    assert [event.id for event in chunk] == expected[: len(chunk)]
    assert len(chunk) > left


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_what_is_taken_together_is_what_comes_one_by_one_also_if_some_of_it_is_left(
    written: FakeLog, limit: int
) -> None:
    def named(item: Any) -> str:
        return str(item.cursor if isinstance(item, rscylla.Progress) else item.id)

    def opened() -> Any:
        return stream_of(written, progress_every=timedelta(0))("", LAG, rscylla.StreamToHead())

    several, mixed = opened(), opened()
    got = [named(one) for taken in until_head(lambda: _items(several.take(), 1000)) for one in taken]
    left = [named(one) for taken in until_head(lambda: _items(mixed.take(), limit)) for one in taken]
    one_by_one = [named(item) for item in until_head(opened().recv)]
    assert got == left == one_by_one


def _items(taken: Any, limit: int) -> list[Any]:
    return [taken] if isinstance(taken, rscylla.Progress) else list(islice(taken, limit))
