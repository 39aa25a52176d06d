"""Stores in memory, for unit tests of applications. They do what the stores in Scylla do."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import attrs

from .._tokens import LEAST, TokenRange
from ..clock import Clock, SystemClock
from ..errors import SubjectForgotten
from .abc import Built, ScanPage, Timer
from .envelope import AggregateID, EventRecord, Snapshot
from .store.bounds import Bounds, conflict, content
from .timers.stores import FIRED, WAITING

__all__ = ["MemoryBuilds", "MemoryEventStore", "MemorySnapshotStore", "MemorySubjectKeys", "MemoryTimers"]

_PAGE = 100


class MemoryEventStore:
    """Events in memory. Implements ``EventStore``. Thread-safe. For tests: nothing is kept when the process ends."""

    def __init__(self, *, max_events: int = Bounds().events, max_bytes: int = Bounds().bytes) -> None:
        self._bounds = Bounds(max_events, max_bytes)
        self._lock = threading.Lock()
        self._events: dict[AggregateID, list[EventRecord]] = {}

    def append(self, records: Sequence[EventRecord]) -> None:
        aggregate, expected = self._bounds.check(records)
        with self._lock:
            events = self._events.setdefault(aggregate, [])
            if len(events) == expected:
                events.extend(records)
                return
            there = list(map(content, events[expected : expected + len(records)]))
            actual = len(events)
        if there != list(map(content, records)):
            raise conflict(aggregate, expected, actual)

    def read(self, aggregate: AggregateID, after: int = 0) -> Iterator[EventRecord]:
        with self._lock:
            found = self._events.get(aggregate, [])[max(0, after) :]
        yield from found

    def head(self, aggregate: AggregateID) -> int:
        with self._lock:
            return len(self._events.get(aggregate, []))

    def scan(self, within: TokenRange = TokenRange(), /) -> Iterator[ScanPage]:  # noqa: B008 - a value
        with self._lock:
            events = {token: list(found) for key, found in self._events.items() if _in(token := _token(key), within)}
        page: list[EventRecord] = []
        for token in sorted(events):
            page += events[token]
            if len(page) >= _PAGE:
                yield ScanPage(page, TokenRange(token, within.high))
                page = []
        yield ScanPage(page, None)


def _in(token: int, within: TokenRange) -> bool:
    return within.low < token <= within.high


def _token(aggregate: AggregateID) -> int:
    key = f"{len(aggregate.type)} {aggregate}".encode("utf-8", "surrogatepass")
    # The least one belongs to no key, as in Scylla, for ranges exclude their lower end.
    return max(
        LEAST + 1, int.from_bytes(hashlib.blake2b(key, digest_size=8, usedforsecurity=False).digest(), signed=True)
    )


class MemorySnapshotStore:
    """Snapshots in memory. Implements ``SnapshotStore``. Thread-safe. For tests."""

    def __init__(self) -> None:
        self._snapshots: dict[AggregateID, Snapshot] = {}

    def get_snapshot(self, aggregate: AggregateID) -> Snapshot | None:
        return self._snapshots.get(aggregate)

    def put_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshots[snapshot.aggregate] = snapshot


class MemorySubjectKeys:
    """Keys of subjects in memory. Implements ``SubjectKeys``. Thread-safe. For tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, bytes] = {}

    def find_key(self, subject: str) -> bytes | None:
        return self._keys.get(subject) or None

    def make_key(self, subject: str) -> bytes:
        with self._lock:
            key = self._keys.setdefault(subject, secrets.token_bytes(32))
        if not key:
            raise SubjectForgotten("the subject was forgotten; nothing personal of it can be written any more")
        return key

    def forget(self, subject: str) -> None:
        with self._lock:
            self._keys[subject] = b""


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
