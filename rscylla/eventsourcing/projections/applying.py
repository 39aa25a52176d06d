"""``Applier``: applies events to the builds of a projection, each one after the one that the build shows.

What was applied is known by the version that the build itself shows, which is asked before each event. Nothing is
remembered, for others write, too: a replay of dead letters, another process, or a late write of one that was paused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...errors import VersionGap
from ..abc import EventStore, Projection
from ..codec import calling
from ..envelope import AggregateID, Envelope, EventRecord

__all__ = ["Applier"]

LOCKS: Final = 64
"""Aggregates share so many locks: those that share one wait for each other, for one event at most."""

UNKEPT: Final = 10_000
"""How many aggregates without versions in a build are remembered."""


class Applier:
    """Applies events to builds, one of an aggregate at a time. Thread-safe: lanes and replays of a process share it.

    Args:
        projection: what has the builds.
        store: where events are read that a build lacks.
        decode: makes the envelope of a record.
    """

    def __init__(
        self, projection: Projection, store: EventStore, decode: Callable[[EventRecord], Envelope[Any]]
    ) -> None:
        self._projection = projection
        self._store = store
        self._decode = decode
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        self._guard = threading.Lock()
        self._unkept: OrderedDict[tuple[int, AggregateID], None] = OrderedDict()

    def bring(
        self,
        build: int,
        record: EventRecord,
        check: Callable[[], None],
        *,
        envelope: Envelope[Any] | None = None,
        missing: Callable[[int], bool] = lambda shown: True,
    ) -> int:
        """Apply an event to *build*, unless it shows it already, and first those between that are in the store.

        Return the version that *build* shows then.

        Args:
            check: Called right before each write; raises if this process may not write any more.
            envelope: The event of *record*, if it is decoded already.
            missing: Called with the version that *build* shows if events between are missing, while no other event of
                the aggregate is applied here; returns whether to apply them.

        Raises:
            VersionGap: the store lacks an event.
        """
        aggregate = record.aggregate
        with self.exclusively(aggregate):
            shown = self._next(build, record, check, envelope)
            if record.version > shown + 1 and not missing(shown):
                return shown
        if record.version > shown + 1:
            self.fill(build, aggregate, record.version, check)
            with self.exclusively(aggregate):
                shown = self._next(build, record, check, envelope)
        if record.version > shown + 1:
            raise VersionGap(
                f"build {build} of projection {self._projection.name} went back to version {shown} of {aggregate}; let "
                "each write carry the version of its event, so that an older one never replaces a newer one",
                expected=shown + 1,
                actual=record.version,
            )
        return max(shown, record.version)

    def fill(self, build: int, aggregate: AggregateID, version: int, check: Callable[[], None]) -> bool:
        """Apply the events of *aggregate* that *build* lacks, up to *version* at least, from the store.

        Return whether *build* shows *version* then. It does not if the projection keeps no versions of the aggregate.

        Raises:
            VersionGap: the store lacks an event.
        """
        before, same = -1, 0
        while (shown := self.shown(build, aggregate)) < version:
            before, same = shown, same + 1 if shown == before else 0
            if same == 2:  # it was applied twice, and is not shown
                self._keeps_none(build, aggregate)
            for record in self._following(aggregate, shown, version):
                with self.exclusively(aggregate):
                    found = self._next(build, record, check)
                if found < record.version - 1:  # the last one is overwritten, or not kept
                    break
            if (build, aggregate) in self._unkept:
                return False
        return True

    def shown(self, build: int, aggregate: AggregateID) -> int:
        """Return the version of *aggregate* that *build* shows."""
        return self._projection.version(build, aggregate)

    def exclusively(self, aggregate: AggregateID) -> threading.Lock:
        """Return the lock under which no event of *aggregate* is applied here."""
        return self._locks[hash(aggregate) % LOCKS]

    def settle(self) -> None:
        """Wait until every event is done that is being applied here."""
        for lock in self._locks:
            with lock:
                pass

    def _next(
        self, build: int, record: EventRecord, check: Callable[[], None], envelope: Envelope[Any] | None = None
    ) -> int:
        """Apply an event if it is the next one; return the version before it that *build* shows. The lock is held."""
        shown = self.shown(build, record.aggregate)
        if shown < record.version - 1 and (build, record.aggregate) in self._unkept:
            shown = record.version - 1
        if shown == record.version - 1:
            envelope = envelope or self._decode(record)
            check()
            calling(lambda: self._projection.apply(build, envelope), envelope.event)
        return shown

    def _following(self, aggregate: AggregateID, after: int, version: int) -> Iterator[EventRecord]:
        """Yield the events after *after*, up to *version* at least."""
        for record in self._store.read(aggregate, after):
            if record.version != after + 1:
                break
            yield record
            after = record.version
        else:
            if after >= version:
                return
        raise VersionGap(
            f"the store lacks event {after + 1} of {aggregate}, but there is event {version}; read with a consistency "
            "that sees all writes",
            expected=after + 1,
            actual=version,
        )

    def _keeps_none(self, build: int, aggregate: AggregateID) -> None:
        with self._guard:
            self._unkept[build, aggregate] = None
            if len(self._unkept) > UNKEPT:
                self._unkept.popitem(last=False)
