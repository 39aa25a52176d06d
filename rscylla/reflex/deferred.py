"""``Deferred``: the base class of consumers that finish an event after ``consume`` returns."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..abc import Consumer as ConsumerLike
from ..abc import Run
from ..errors import ConfigError
from ..event import Event
from .consumer import Consumer
from .inflight import InFlight
from .wrapper import Wrapper

__all__ = ["Collecting", "CollectingWork", "Deferred", "Work"]


class Work(Protocol):
    """The events that such a consumer has in progress in one run."""

    @property
    def in_flight(self) -> InFlight:
        """The events taken from the stream, in order."""

    def drain(self) -> None:
        """Finish and commit everything. Raises ``Stopped`` if the run ends first."""

    def close(self) -> None:
        """Start no further event, wait for those in progress, and commit nothing after that."""


W = TypeVar("W", bound=Work)


class Deferred(Wrapper, Generic[W]):
    """Opens separate work for each run, so that leftovers of an earlier run cannot affect a later one."""

    def __init__(self, inner: ConsumerLike) -> None:
        super().__init__(inner)
        self._begins = threading.Lock()
        self._work: W | None = None

    @abstractmethod
    def open(self, run: Run) -> W:
        """Return the work of *run*, which is starting."""

    @property
    def work(self) -> W:
        """The work of the current run.

        Raises:
            ConfigError: there is none, because a wrapper around this consumer did not pass ``begin`` on.
        """
        if self._work is None:
            raise ConfigError(
                f'consumer "{self.name}" finishes events later, so it must be the consumer of the Spec; put its '
                "wrappers inside it"
            )
        return self._work

    def begin(self, run: Run) -> None:
        with self._begins:  # two runs may begin at the same time
            if self._work is not None:
                raise ConfigError(
                    f'consumer "{self.name}": it is already in a run, and the unfinished events of the two runs would '
                    "be mixed; create a consumer for each run"
                )
            self._work = self.open(run)

    def progress(self, cursor: str | Event) -> None:
        self.work.in_flight.progress(cursor)

    def drain(self) -> None:
        self.work.drain()

    def stop(self) -> None:
        work, self._work = self._work, None  # first, so that the next run can begin after an interrupted close
        if work is not None:
            work.close()
        super().stop()


class CollectingWork(Work, Protocol):
    """Work of which several events are one part."""

    def put(self, events: Sequence[Event], /) -> None:
        """Take *events*, at least one. Waits for room; raises ``Stopped`` if the run ends first."""


C = TypeVar("C", bound=CollectingWork)


class _Collector(Consumer):
    """Filters and measures events that are counted as consumed when they are done."""

    _outcome = None


class Collecting(Deferred[C]):
    """Takes events together. The cursor also moves past those that are filtered out."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._collector = _Collector(name, self._collect, **options)
        super().__init__(self._collector)
        self._collected = False

    def consume(self, event: Event, run: Run) -> None:
        self._collected = False
        self._inner.consume(event, run)
        if not self._collected:
            self.progress(event)

    def consume_chunk(self, events: Sequence[Event], run: Run) -> None:
        with self.series.collecting(events):
            self.work.put(events)

    def _collect(self, event: Event, run: Run) -> None:
        self._collected = True
        self.work.put((event,))
