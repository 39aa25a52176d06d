"""A fake stream whose client also returns several events at once."""

from __future__ import annotations

from rscylla.clock import Stop
from rscylla.event import Event, Progress
from rscylla.options import StreamOption
from rscylla.testing import FakeStream
from rscylla.testing.fakes import FakeStreamClient


class BulkStream(FakeStream):
    """A stream whose client also returns several events at once; ``taken`` is how many, each time."""

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> FakeStreamClient:
        self.taken: list[int] = []
        return BulkClient(self, super().__call__(after, *options, stop=stop))


class BulkClient(FakeStreamClient):
    def __init__(self, stream: BulkStream, same: FakeStreamClient) -> None:
        vars(self).update(vars(same))
        self._bulk = stream

    def recv_many(self, limit: int) -> list[Event] | Progress:
        assert limit > 0
        item = self.recv()
        if isinstance(item, Progress):
            return item
        found = [item]
        while len(found) < limit and isinstance(self._peek(), Event):
            found.append(self.recv())  # type: ignore[arg-type]
        self._bulk.taken.append(len(found))
        return found
