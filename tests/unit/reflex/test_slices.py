"""One consumer as several: names, streams and cursors of the slices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cursorstore import IntCursorCodec, MemoryCursorStore
from rscylla import Consumer, Spec, StreamLag, StreamToHead, run, slice_name, slice_specs
from rscylla.abc import StreamFunc
from rscylla.errors import ConfigError, HeadReached, RunError
from rscylla.event import Event, SimpleEvent
from rscylla.reflex import bootstrap, fast_and_sweep, slice_of
from rscylla.testing import FakeCursorStore, FakeStream


class Sliced:
    """Events of which each slice has those whose type leaves its index."""

    def __init__(self, count: int) -> None:
        self.events = [SimpleEvent(str(i + 1), type=i % count) for i in range(12)]
        self.asked: list[tuple[int, int]] = []

    def sliced(self, index: int, count: int) -> StreamFunc:
        self.asked.append((index, count))
        return FakeStream([e for e in self.events if e.type == index], supports_lag=True)


def test_each_slice_has_its_stream_its_name_and_its_cursor() -> None:
    stream, store = Sliced(3), FakeCursorStore()
    got: list[tuple[str, str]] = []

    def make(name: str) -> Consumer:
        return Consumer(name, lambda event, _: got.append((name, event.id)))

    specs = slice_specs("billing", 3, stream, store, make, StreamLag(seconds=30), StreamToHead())
    assert [s.name for s in specs] == ["billing[0/3]", "billing[1/3]", "billing[2/3]"]
    assert stream.asked == [(0, 3), (1, 3), (2, 3)]
    for spec in specs:
        with pytest.raises(HeadReached):
            run(spec)
    assert sorted(got, key=lambda pair: int(pair[1])) == [(f"billing[{i % 3}/3]", str(i + 1)) for i in range(12)]
    assert [store.get_cursor(s.name) for s in specs] == ["10", "11", "12"]


def test_a_process_may_run_some_of_them() -> None:
    specs = slice_specs("b", 4, Sliced(4), FakeCursorStore(), lambda n: Consumer(n, _nothing), only=[1, 3])
    assert [s.name for s in specs] == ["b[1/4]", "b[3/4]"]
    (whole,) = slice_specs("b", 1, Sliced(1), FakeCursorStore(), lambda n: Consumer(n, _nothing))
    assert isinstance(whole, Spec)
    assert whole.name == "b"


def _nothing(event: Event, _: object) -> None:
    """Consume nothing."""


@pytest.mark.parametrize(
    ("count", "only", "words"),
    [(0, None, "no slice"), (2, [], "no slice"), (2, [2], "slice must be"), (2, [-1], "slice must be")],
)
def test_what_makes_no_sense_is_refused(count: int, only: list[int] | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        slice_specs("b", count, Sliced(2), FakeCursorStore(), lambda n: Consumer(n, _nothing), only=only)


def test_two_slices_never_share_a_cursor() -> None:
    with pytest.raises(ConfigError, match="create it with the given name"):
        slice_specs("b", 2, Sliced(2), FakeCursorStore(), lambda _: Consumer("b", _nothing))


def test_names() -> None:
    assert [slice_of(slice_name("b", i, n)) for i, n in ((0, 1), (1, 3))] == [("b", 0, 1), ("b", 1, 3)]


class Numbered:
    """A stream of slices, of events 1 to 9, that goes on after a cursor."""

    supports_lag = True

    def __init__(self) -> None:
        self.opened: list[str] = []

    def sliced(self, index: int, count: int) -> Numbered:
        return self

    def head_cursor(self, lag: timedelta) -> str:
        return "9"

    def __call__(self, after: str, *options: Any, stop: Any = None) -> Any:
        self.opened.append(after)
        return FakeStream([SimpleEvent(str(n)) for n in range(1, 10)], supports_lag=True)(after, *options, stop=stop)


def cut(count: int, cursors: Mapping[str, str], **more: Any) -> tuple[Numbered, MemoryCursorStore, tuple[Spec, ...]]:
    stream, store = Numbered(), MemoryCursorStore(codec=IntCursorCodec(), cursors=cursors)
    more["registry"] = registry = CollectorRegistry()
    specs = slice_specs(
        "billing",
        count,
        stream,
        store,
        lambda name: Consumer(name, _nothing, registry=registry),
        StreamLag(seconds=30),
        StreamToHead(),
        **more,
    )
    return stream, store, specs


@pytest.mark.parametrize(
    ("count", "cursors", "command"),
    [
        (4, {"billing": "5"}, "reslice billing --from 1 --to 4` .* pass from_whole=True"),
        (4, {"billing[0/2]": "5", "billing[1/2]": "7"}, "reslice billing --from 2 --to 4`"),
        (1, {"billing[0/2]": "5", "billing[1/2]": "7"}, "reslice billing --from 2 --to 1`"),
    ],
)
@pytest.mark.parametrize("at_head", [False, True])
def test_a_consumer_that_is_cut_anew_does_not_begin_as_if_it_were_new(
    count: int, cursors: Mapping[str, str], command: str, at_head: bool
) -> None:
    stream, store, specs = cut(count, cursors)
    for spec in specs:
        with pytest.raises(RunError, match=command) as caught:
            run(bootstrap(spec) if at_head else spec)
        assert not caught.value.resumable
        assert store.find_cursor(spec.name) is None
    assert stream.opened == []


def test_slices_continue_at_the_cursor_of_the_whole_consumer_if_they_shall() -> None:
    stream, store, specs = cut(3, {"billing": "5"}, from_whole=True)
    for _ in range(2):
        for spec in specs:
            with pytest.raises(HeadReached):
                run(spec)
    assert stream.opened == ["5"] * 3 + ["9"] * 3
    assert [store.get_cursor(spec.name) for spec in specs] == ["9"] * 3


def test_lanes_of_slices_continue_at_the_cursor_of_the_whole_consumer_or_are_refused() -> None:
    for more in ({}, {"from_whole": True}):
        stream, store, _ = cut(3, {"billing": "5"})
        stream.key_slice = (1, 3)  # type: ignore[attr-defined]
        consumer = Consumer("billing[1/3]", _nothing, registry=CollectorRegistry())
        lanes = fast_and_sweep(stream, store, consumer, StreamToHead(), order=lambda text: int(text or 0), **more)
        for lane in lanes:
            with pytest.raises(HeadReached if more else RunError):
                run(lane)
        assert stream.opened == (["5", "5"] if more else [])


def test_other_consumers_and_cursors_that_were_set_make_no_slice_an_old_one() -> None:
    cursors = {"billing[eu]": "5", "billing[eu][0/4]": "5", "audit": "5", "billing[0/3][fast]": "5"}
    stream, store, specs = cut(2, cursors)
    with pytest.raises(HeadReached):
        run(specs[0])
    assert stream.opened == [""]
    store.set_cursor("billing", "8")
    store.reset_cursor("billing[1/2]", "", reason="all again")
    for spec in specs:
        with pytest.raises(HeadReached):
            run(spec)
    assert stream.opened == ["", "9", ""]
