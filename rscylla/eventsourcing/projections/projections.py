"""``Projector``: keeps a projection up to date from the log of the event table, and rebuilds it while it is live.

A lane applies each event to the active build and, if there is one, to the build that is being made beside it. For that
build, it scans the store at the same time, in a thread of its own; the two never work on one aggregate at once. The
lane begins to apply events to the new build before it begins to scan. So an event is either in the store when the scan
comes to its aggregate, or the lane applies it later; there is no second reader of the log, and no moment to hit. When
all lanes have scanned their parts, the new build is at the very point of the active one, and takes its place.

Whether an event was applied is known by the version of its aggregate that the build shows, which is asked each time.
One that was is skipped. One that comes too early is left to the scan while there is one; otherwise versions are
missing, which is logged and counted, and the missing events are read from the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..._tokens import Slice
from ...abc import Run
from ...clock import Clock, Stop, SystemClock
from ...errors import ConfigError
from ...event import Event
from ...reflex import Consumer
from ..abc import BuildStore, Built, EventStore, Projection
from ..envelope import AggregateID, Envelope, EventRecord
from ..reading import record_of
from .applying import Applier
from .lanework import LaneWork

__all__ = ["Projector"]


class Projector:
    """Keeps *projection* up to date. One object serves all lanes of a process. Thread-safe.

    ::

        orders = Projector(OrderView(session), store, types.decode, ScyllaBuilds(session, "shop", create=True))
        lanes = rscylla.group_lanes("orders", stream, cursors, orders.consumer, StreamLag(seconds=30))

    A new projection has no active build until its first one is complete. Its consumer may start at the head
    (``rscylla.reflex.bootstrap``): the scan, which begins after the stream was opened, finds all earlier events. For
    the same reason, a lane whose cursor has expired may be reset to the head if a rebuild follows.

    Args:
        store: Where the events are: for scans, and for events that are missing.
        decode: Such as ``EventTypes.decode``. Its errors are those of the consumer, for dead letters.
        builds: Where it is kept which build is active.
        look_every: How often a lane looks for a build to make.
        keep_retired: How long the build that was active before is kept, for queries and lanes that still use it.
        clock: The clock of waits.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        projection: Projection,
        store: EventStore,
        decode: Callable[[EventRecord], Envelope[Any]],
        builds: BuildStore,
        *,
        look_every: timedelta = timedelta(seconds=1),
        keep_retired: timedelta = timedelta(minutes=1),
        clock: Clock | None = None,
    ) -> None:
        if look_every <= timedelta() or keep_retired < timedelta():
            raise ConfigError("Projector: look_every must be more than zero, and keep_retired not below it")
        self.projection = projection
        self.store = store
        self.decode = decode
        self.builds = builds
        self.look_s = look_every.total_seconds()
        self.keep_s = keep_retired.total_seconds()
        self.clock = clock or SystemClock()
        self.applier = Applier(projection, store, decode)
        self._changed = threading.Condition()
        self._found: tuple[float, Built] | None = None

    @property
    def name(self) -> str:
        """The name of the projection."""
        return self.projection.name

    def consumer(self, name: str | None = None, **options: Any) -> Consumer:
        """Return a consumer of the event table's stream, for one lane. Thread-safe, as ``concurrent`` needs it.

        Put it into ``dead_letter(..., park=parking_key)`` to go on after events that cannot be applied.

        Args:
            name: Its name, with the slice if it is the lane of one; default: the name of the projection.
            options: As for ``rscylla.Consumer``.
        """
        return _Projecting(self, name or self.name, **options)

    def active(self) -> int:
        """Return the build that queries read; 0 until the first one is complete. Known for *look_every*."""
        return self.find_builds().active

    def find_builds(self, *, fresh: bool = False) -> Built:
        """Return the builds, as they were *look_every* ago or later; with *fresh*, as they are now."""
        known, now = self._found, self.clock.monotonic()
        if fresh or known is None or now - known[0] >= self.look_s:
            known = self._found = now, self.builds.find_builds(self.name)
        return known[1]

    def rebuild(self) -> int:
        """Ask the lanes to make a new build; return its number. One that is being made already is that one.

        Raises:
            ConfigError: the build that was active before is not dropped yet; try again later.
            Others: those of the store of builds.
        """
        now = self.builds.find_builds(self.name)
        build = now.building or now.last + 1
        if not now.building and not self.builds.begin_build(self.name, build):
            now = self.builds.find_builds(self.name)
            if now.building != build:
                raise ConfigError(
                    f"projection {self.name}: build {now.retired} was active before, and is not dropped yet; try again "
                    "in a minute"
                )
        return build

    def abandon(self, build: int) -> bool:
        """Give up the build that is being made, and drop it; return whether it was being made."""
        now = self.builds.find_builds(self.name)
        if now.building != build or not now.active or not self.builds.dropped(self.name, build):
            return False
        self.projection.drop(build)
        return True

    def wait_for(self, aggregate: AggregateID, version: int, timeout: timedelta, *, stop: Stop | None = None) -> int:
        """Wait until the active build shows *version* of *aggregate*; return the version that it shows. Blocks.

        So a request reads what its command wrote. A lane in this process wakes it at once; otherwise it asks the build
        again and again, at most every half second.

        Raises:
            TimeoutError: the build did not get there in time.
            Stopped: *stop* was set.
        """
        deadline = self.clock.monotonic() + timeout.total_seconds()
        pause = 0.01
        while True:
            build = self.active()
            shown = self.projection.version(build, aggregate) if build else 0
            if shown >= version:
                return shown
            if stop is not None:
                stop.check()
            left = deadline - self.clock.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"projection {self.name} shows version {shown} of {aggregate}, and not {version}, after "
                    f"{timeout.total_seconds():g} s"
                )
            with self._changed:
                self._changed.wait(min(pause, left))
            pause = min(pause * 2, 0.5)

    def applied(self) -> None:
        """Wake those who wait for a version."""
        with self._changed:
            self._changed.notify_all()


class _Projecting(Consumer):
    """The consumer of one lane. While it runs, a thread of its own looks after the builds."""

    def __init__(self, projector: Projector, name: str, **options: Any) -> None:
        super().__init__(name, self._apply_event, **options)
        self._projector = projector
        self._work: LaneWork | None = None
        self._run: Run | None = None

    def run_begins(self, run: Run) -> None:
        self._run = run
        if self._work is not None:
            self._work.run_stop = run.stop

    def reset(self) -> None:
        super().reset()
        self.stop()
        if self._run is None:
            raise self._not_told("run_begins")
        part = Slice.of(self._run.key_slice)
        # Before the cursor is read, so that no event is applied without knowing the builds.
        self._work = LaneWork(self._projector, self.name, part, lambda: self.series.is_open, self._run.stop)
        self._work.start()

    def _not_told(self, method: str) -> ConfigError:
        return ConfigError(
            f'consumer "{self.name}": {method} was not called in its run; a wrapper around it has to pass run_begins, '
            "reset, and stop on to it"
        )

    def stop(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.close()

    def _apply_event(self, event: Event, run: Run) -> None:
        record = record_of(event)
        if record is None:
            return
        work = self._work
        if work is None:  # called directly, such as by a replay of dead letters
            if getattr(run, "client", None) is not None:  # a run that reads a stream
                raise self._not_told("reset")
            work = LaneWork(self._projector, self.name, Slice(0, 1), lambda: True, run.stop)
            work.look(scans=False)
        work.apply(self._projector.decode(record), run)
