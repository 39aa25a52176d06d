"""One consumer as several: names, streams and cursors of the slices."""

from __future__ import annotations

import pytest

from rscylla import Consumer, Spec, StreamLag, StreamToHead, run, slice_name, slice_of, slice_specs
from rscylla.abc import StreamFunc
from rscylla.errors import ConfigError, HeadReached
from rscylla.event import Event, SimpleEvent
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
