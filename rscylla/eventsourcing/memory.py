"""Stores in memory, for unit tests of applications. They do what the stores in Scylla do."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator, Sequence

from .._tokens import LEAST, TokenRange
from ..errors import SubjectForgotten
from .abc import ScanPage
from .envelope import AggregateID, EventRecord, Snapshot
from .store.bounds import Bounds, conflict, content

__all__ = ["MemoryEventStore", "MemorySnapshotStore", "MemorySubjectKeys"]

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
