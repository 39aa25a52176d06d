"""Builds and timers in memory: what ``ScyllaBuilds`` and ``ScyllaTimers`` keep in tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import attrs

from rscylla.clock import Clock, SystemClock
from rscylla.eventsourcing import Built, Timer
from rscylla.eventsourcing.timers.stores import FIRED, WAITING


class MemoryBuilds:
    """Builds in memory, for tests. Implements ``BuildStore``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Built] = {}

    def find_builds(self, projection: str) -> Built:
        with self._lock:
            return self._found.setdefault(projection, Built(building=1, last=1))

    def begin_build(self, projection: str, build: int) -> bool:
        return self._change(
            projection,
            lambda now: not now.building and not now.retired and now.last < build,
            lambda now: attrs.evolve(now, building=build, last=build, rest={}),
            lambda now: now.building == build,
        )

    def scanned(self, projection: str, build: int, lane: str, rest: int) -> bool:
        return self._change(
            projection,
            lambda now: now.building == build,
            lambda now: attrs.evolve(now, rest={**now.rest, lane: rest}),
        )

    def activate(self, projection: str, build: int) -> bool:
        return self._change(
            projection,
            lambda now: now.building == build,
            lambda now: Built(build, 0, now.active, now.last),
            lambda now: now.active == build,
        )

    def dropped(self, projection: str, build: int) -> bool:
        def drop(now: Built) -> Built:
            if now.retired == build:
                return attrs.evolve(now, retired=0)
            return attrs.evolve(now, building=0, rest={})

        return self._change(
            projection, lambda now: build in (now.retired, now.building), drop, lambda now: now.active != build
        )

    def _change(
        self,
        projection: str,
        allowed: Callable[[Built], bool],
        change: Callable[[Built], Built],
        done: Callable[[Built], bool] = lambda now: False,
    ) -> bool:
        with self._lock:
            now = self._found.setdefault(projection, Built(building=1, last=1))
            if allowed(now):
                self._found[projection] = change(now)
                return True
            return done(now)


@attrs.define
class _Kept:
    timer: Timer
    state: Literal["waiting", "fired", "cancelled"] = "waiting"
    owner: str = ""
    until: float = 0.0


class MemoryTimers:
    """Timers that live as long as this object, for tests. Implements ``TimerStore``. Thread-safe.

    Timers that were fired or cancelled are remembered for good.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._timers: dict[str, _Kept] = {}

    def schedule(self, timer: Timer) -> bool:
        with self._lock:
            kept = self._timers.setdefault(timer.id, _Kept(timer))
            return kept.state == WAITING and kept.timer == timer

    def cancel(self, timer_id: str) -> bool:
        with self._lock:
            kept = self._timers.get(timer_id)
            if kept is None or kept.state == FIRED or (kept.state == WAITING and self._claimed(kept)):
                return False
            kept.state = "cancelled"
            return True

    def due(self, now: datetime, limit: int) -> Sequence[Timer]:
        with self._lock:
            waiting = [k.timer for k in self._timers.values() if k.state == WAITING and k.timer.due <= now]
        return sorted(waiting, key=lambda timer: timer.due)[:limit]

    def claim(self, timer: Timer, owner: str, duration: timedelta) -> bool:
        with self._lock:
            kept = self._timers.get(timer.id)
            if kept is None or kept.state != WAITING or kept.timer.due != timer.due:
                return False
            if self._claimed(kept) and kept.owner != owner:
                return False
            kept.owner, kept.until = owner, self._clock.monotonic() + duration.total_seconds()
            return True

    def finish(self, timer: Timer) -> None:
        with self._lock:
            kept = self._timers.get(timer.id)
            if kept is not None and kept.state == WAITING:
                kept.state = "fired"

    def waiting(self) -> list[Timer]:
        """Return the timers that are neither fired nor cancelled, by time."""
        with self._lock:
            found = [kept.timer for kept in self._timers.values() if kept.state == WAITING]
        return sorted(found, key=lambda timer: timer.due)

    def _claimed(self, kept: _Kept) -> bool:
        return bool(kept.owner) and self._clock.monotonic() < kept.until
