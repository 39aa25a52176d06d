"""``LaneWork``: what a lane of a projection does in one run: it applies events, and scans for a build."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from ..._retry import Backoff, retry
from ..._tokens import Slice, TokenRange
from ...abc import Run
from ...clock import Stop, fenced
from ...errors import EventStoreError, RscyllaError, Stopped
from ..abc import Built
from ..envelope import AggregateID, Envelope, EventRecord

if TYPE_CHECKING:
    from .projections import Projector

__all__ = ["LaneWork"]

log = logging.getLogger("rscylla.eventsourcing")

SAVE_S: Final = 5.0
"""How often the progress of a scan is saved."""

PATIENCE_S: Final = 1.0
"""How long a stop waits for the thread, if it does not apply an event."""

WAIT_S: Final = 0.02
TOO_LONG: Final = 3000
"""How often a lane looks whether its stream is open, and after how many times it says so."""

AFTER_FAILURE = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=30))


class LaneWork:
    """What a lane does in one run: it applies events, and its thread scans for the build that is being made.

    Args:
        part: the slice of the aggregates that the lane reads. A lane that is not named after it scans all of them, for
            nothing tells which lanes have the rest.
        stop: of the run, so of the lease that the lane runs under: checked right before each write.
    """

    def __init__(self, projector: Projector, lane: str, part: Slice, is_open: Callable[[], bool], stop: Stop) -> None:
        self.run_stop = stop
        """Of another run, once the lanes that share a consumer have begun one."""
        self._is_open = is_open
        self._projector = projector
        self._projection = projector.projection
        self._applier = projector.applier
        self._lane = lane
        self._slice = Slice(0, 1) if part.whole(lane) is None else part
        self._stop = Stop()
        self._guard = threading.Lock()  # of the fields below
        self._built = Built()
        self._left: dict[AggregateID, int] = {}  # versions that came too early, and are left to the scan
        self._scanning = 0  # the build that is scanned for
        self._retired: tuple[int, float] | None = None
        self._has_begun = False  # an event has come
        self._thread = threading.Thread(target=self._watch, name=f"rscylla-build-{lane}", daemon=True)

    def start(self) -> None:
        self.look()
        self._thread.start()

    def close(self) -> None:
        """End the thread. While it waits for the cluster, which may take minutes, it is left: it writes nothing."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                self._applier.settle()

    def _check(self) -> None:
        """Raise ``Stopped`` if the thread has to end, or this process may not write any more."""
        self._stop.check()
        self.run_stop.check()

    # ------------------------------------------------------------ events of the log

    def apply(self, envelope: Envelope[Any], run: Run) -> None:
        """Apply an event of the log to the builds that there are."""
        self._has_begun = True
        failed: Exception | None = None
        built = self._built
        # The one that queries read comes last: what it shows is still shown after the other has taken its place.
        for build in filter(None, (built.building, built.active)):
            try:
                self._apply(build, envelope, run)
            except Stopped:
                raise
            except Exception as error:  # noqa: BLE001 - raised below, after the other build
                if not self._is_gone(build):
                    failed = error
        if failed is not None:
            raise failed
        self._projector.applied()

    def _is_gone(self, build: int) -> bool:
        """Return whether *build* was given up, or replaced and dropped, and its tables with it."""
        built = self._projector.find_builds(fresh=True)
        return build not in (built.active, built.building)

    def _apply(self, build: int, envelope: Envelope[Any], run: Run) -> None:
        def check() -> None:
            run.stop.check()
            if build not in (self._built.active, self._built.building):
                raise EventStoreError(f"build {build} of projection {self._projector.name} is not made any more")

        self._applier.bring(
            build,
            envelope.record,
            check,
            envelope=envelope,
            missing=lambda shown: self._missing(build, envelope.record, shown, run),
        )

    def _missing(self, build: int, record: EventRecord, shown: int, run: Run) -> bool:
        """Return whether to apply the events between *shown* and *record* now, which came too early."""
        with self._guard:
            built, aggregate = self._built, record.aggregate
            if self._scanning == build:
                self._left[aggregate] = max(record.version, self._left.get(aggregate, 0))
                return False
        if build == built.building and not self._is_scanned(built):
            return True  # a replay of dead letters, beside the scan
        log.warning(
            "projection %s, build %d: event %d of %s came after %d; the events between are read from the store",
            *(self._projector.name, build, record.version, aggregate, shown),
        )
        run.count("version_gaps")
        return True

    # ------------------------------------------------------------ builds

    def look(self, *, fresh: bool = True, scans: bool = True) -> None:
        """Learn which builds there are. From the return on, events are applied to all of them."""
        built = self._projector.find_builds(fresh=fresh)
        now = self._built
        for build in (built.active, built.building):
            if build and build not in (now.active, now.building):
                self._projection.prepare(build)
        with self._guard:
            if built.building != self._scanning:
                self._scanning = built.building if scans and not self._is_scanned(built) else 0
                self._left.clear()
            self._built = built
        if built.active != now.active:
            self._projector.applied()

    def _await_stream(self) -> None:
        """Wait until the lane's stream is open: it may begin at the head, and the scan has to see all before that."""
        waited = 0
        while not (self._has_begun or self._is_open() or self._projector.clock.wait(self._stop, WAIT_S)):
            waited += 1
            if waited == TOO_LONG:
                log.warning(
                    'projection "%s": lane "%s" does not look after its builds until its stream is open, or an event '
                    "comes; if it is open, give the consumer the registry= of its Spec",
                    *(self._projector.name, self._lane),
                )

    def _watch(self) -> None:
        self._await_stream()
        while not self._stop.is_set():
            # Stopped: the run is over. The thread ends when the lane does: another one may share its consumer.
            with suppress(Stopped), fenced(self.run_stop):
                retry(
                    self._step,
                    backoff=AFTER_FAILURE,
                    clock=self._projector.clock,
                    stop=self._stop,
                    again=lambda error: not isinstance(error, Stopped),
                    waiting=self._failed,
                )
            self._projector.clock.wait(self._stop, self._projector.look_s)

    def _failed(self, error: Exception, failures: int, seconds: float) -> None:
        # The live build goes on: only the one that is being made waits.
        named = error if isinstance(error, RscyllaError) else type(error).__name__
        log.warning(
            'projection "%s": lane "%s" could not look after its builds (%s); again in %.3g s',
            *(self._projector.name, self._lane, named, seconds),
            exc_info=log.isEnabledFor(logging.DEBUG),
        )

    def _step(self) -> None:
        self._check()
        self.look(fresh=False)
        built = self._built
        if self._scanning:
            self._scan(built)
        if built.building and self._all_scanned(self._projector.find_builds(fresh=True)):
            self._check()
            if self._projector.builds.activate(self._projector.name, built.building):
                log.info('projection "%s": build %d is active', self._projector.name, built.building)
            self.look()
        self._drop_retired()

    def _drop_retired(self) -> None:
        retired, now = self._built.retired, self._projector.clock.monotonic()
        if not retired:
            self._retired = None
        elif self._retired is None or self._retired[0] != retired:
            self._retired = retired, now
        elif now - self._retired[1] >= self._projector.keep_s:
            self._applier.settle()  # what this lane was applying when it learned of the switch is done then
            self._check()
            self._projection.drop(retired)
            self._projector.builds.dropped(self._projector.name, retired)

    # ------------------------------------------------------------ scanning

    def _part(self) -> TokenRange:
        """Return the tokens of the lane's aggregates."""
        return self._slice.tokens

    def _rest(self, built: Built) -> TokenRange:
        part = self._part()
        return TokenRange(min(max(part.low, built.rest.get(self._lane, part.low)), part.high), part.high)

    def _is_scanned(self, built: Built) -> bool:
        return built.rest.get(self._lane) == self._part().high

    def _all_scanned(self, built: Built) -> bool:
        """Return whether all lanes that share the work with this one have scanned their parts."""
        consumer, count = self._slice.whole(self._lane) or "", self._slice.count
        lanes = (Slice(index, count) for index in range(count))
        return all(built.rest.get(each.name(consumer)) == each.tokens.high for each in lanes)

    def _scan(self, built: Built) -> None:
        build, part = built.building, self._rest(built)
        saved = self._projector.clock.monotonic()
        for page in self._projector.store.scan(part):
            self._check()
            for aggregate, records in itertools.groupby(page.records, lambda record: record.aggregate):
                self._apply_scanned(build, aggregate, records)
            now = self._projector.clock.monotonic()
            if page.rest is not None and now - saved >= SAVE_S:
                saved = now
                if not self._saved(build, page.rest.low) and self._is_gone(build):
                    return  # it was given up
        while True:
            with self._guard:
                left = next(iter(self._left), None)
                if left is None:
                    self._scanning = 0  # from now on, a version that is missing is missed
                    break
            self._catch_up(build, left)
        self._saved(build, part.high)

    def _saved(self, build: int, rest: int) -> bool:
        self._check()
        return self._projector.builds.scanned(self._projector.name, build, self._lane, rest)

    def _apply_scanned(self, build: int, aggregate: AggregateID, records: Iterable[EventRecord]) -> None:
        shown = 0
        for record in records:
            self._check()
            if record.version > shown:
                shown = self._applier.bring(build, record, self._check)
        # What the page was too old for has come by the log meanwhile.
        self._catch_up(build, aggregate)

    def _catch_up(self, build: int, aggregate: AggregateID) -> None:
        """Apply the events of *aggregate* that were left to the scan."""
        is_shown = True
        while left := self._left.get(aggregate, 0):
            with self._applier.exclusively(aggregate):  # so that no other one is left meanwhile
                if not is_shown or self._applier.shown(build, aggregate) >= self._left[aggregate]:
                    with self._guard:
                        del self._left[aggregate]
                    return
            is_shown = self._applier.fill(build, aggregate, left, self._check)
