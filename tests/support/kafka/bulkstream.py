"""A fake stream whose client returns the events that are there in chunks."""

from __future__ import annotations

from rscylla.abc import EventTuple
from rscylla.clock import Stop
from rscylla.event import Event, Progress
from rscylla.options import StreamOption
from rscylla.testing import FakeStream
from rscylla.testing.fakes import FakeStreamClient


class BulkStream(FakeStream):
    """A stream whose client returns chunks; ``taken`` is how many events each had."""

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> FakeStreamClient:
        self.taken: list[int] = []
        return BulkClient(self, super().__call__(after, *options, stop=stop))


class BulkClient(FakeStreamClient):
    def __init__(self, stream: BulkStream, same: FakeStreamClient) -> None:
        vars(self).update(vars(same))
        self._bulk = stream

    def take(self) -> EventTuple | Progress:
        item = self.recv()
        if isinstance(item, Progress):
            return item
        found = [item]
        while isinstance(self._peek(), Event):
            found.append(self.recv())  # type: ignore[arg-type]
        self._bulk.taken.append(len(found))
        return EventTuple(found)
