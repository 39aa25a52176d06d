"""A small domain for the tests of what runs: counters that are added to, and a view of them in memory."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from rscylla import _timeuuid as tu
from rscylla._letters import KeptEvent
from rscylla.event import EventID, Operation
from rscylla.eventsourcing import AggregateID, Envelope, EventRecord, EventTypes, MemoryEventStore
from rscylla.testing import FakeStream

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

TYPES = EventTypes()


@TYPES.register
@attrs.frozen
class Added:
    amount: int


def counter(name: str) -> AggregateID:
    return AggregateID("counter", name)


class Shop:
    """A store in memory whose appends also come out of a stream, as those of a table come out of its log."""

    def __init__(self) -> None:
        self.store = MemoryEventStore()
        self.stream = FakeStream()
        self._ticks = itertools.count()

    def add(self, name: str, *amounts: int, told: bool = True, data: str | None = None, kind: str = "Added") -> int:
        """Append an event for each amount; return the version. With *told* false, the stream does not deliver them."""
        aggregate = counter(name)
        head = self.store.head(aggregate)
        records = [
            EventRecord(
                *(aggregate, head + n, uuid.uuid4(), kind, 1),
                json.dumps({"amount": amount}) if data is None else data,
                NOON,
                correlation_id="c",
                causation_id="cause",
                user="me",
                metadata={"k": "v"},
            )
            for n, amount in enumerate(amounts, 1)
        ]
        self.store.append(records)
        if told:
            self.tell(*records)
        return head + len(records)

    def tell(self, *records: EventRecord) -> None:
        """Let the stream deliver *records*, and the change of the static column."""
        for record in records:
            self.stream.append(*(change_of(record, next(self._ticks), head=head) for head in (True, False)))


def change_of(record: EventRecord, tick: int = 0, *, head: bool = False, **more: Any) -> KeptEvent:
    """Return the change of the event table that an append of *record* leads to; with *head*, the one of ``head``."""
    key: dict[str, Any] = {"aggregate_id": record.aggregate.id, "aggregate_type": record.aggregate.type}
    after: dict[str, Any] = {"head": record.version}
    if not head:
        key["version"] = record.version
        after = {
            "event_id": str(record.event_id),
            "event_type": record.type,
            "event_schema": record.schema,
            "data": record.data,
            "at": tu.format_time(tu.us_of(record.at)),
            "correlation_id": record.correlation_id,
            "causation_id": record.causation_id,
            "user": record.user,
            "metadata": dict(record.metadata),
        }
    operation = Operation.UPDATE if head else Operation.INSERT
    change = {"operation": operation.name, "key": key, "before": None, "after": after, **more}
    at = NOON + timedelta(microseconds=2 * tick + (not head))
    row = uuid.UUID(int=record.event_id.int ^ head)
    return KeptEvent(_id(at, row), 0, json.dumps(key), at, json.dumps(change).encode())


def _id(at: datetime, row: uuid.UUID) -> str:
    ticks = tu.us_to_ticks(tu.us_of(at))
    time = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
    return str(EventID.row(0, row.bytes, time.to_bytes(8, "big") + b"\x80" * 8, 0))


class Totals:
    """A projection in memory: the sum and the version of each counter, by build. ``calls`` is what was applied."""

    name = "totals"

    def __init__(self) -> None:
        self.builds: dict[int, dict[AggregateID, tuple[int, int]]] = {}
        self.calls: list[tuple[int, AggregateID, int]] = []
        self.dropped: list[int] = []
        self._lock = threading.Lock()

    def prepare(self, build: int) -> None:
        self.builds.setdefault(build, {})

    def version(self, build: int, aggregate: AggregateID) -> int:
        return self.builds[build].get(aggregate, (0, 0))[0]

    def apply(self, build: int, envelope: Envelope[Any]) -> None:
        version, total = self.builds[build].get(envelope.aggregate, (0, 0))
        assert envelope.version == version + 1
        with self._lock:
            self.calls.append((build, envelope.aggregate, envelope.version))
        self.builds[build][envelope.aggregate] = envelope.version, total + envelope.event.amount

    def drop(self, build: int) -> None:
        self.dropped.append(build)
        self.builds.pop(build, None)

    def totals(self, build: int) -> dict[str, int]:
        return {aggregate.id: total for aggregate, (_, total) in self.builds[build].items()}


def totals_of(store: MemoryEventStore, names: Iterable[str]) -> dict[str, int]:
    """Return the sums that the store's events lead to."""
    sums = {name: sum(json.loads(r.data)["amount"] for r in store.read(counter(name))) for name in names}
    return {name: total for name, total in sums.items() if store.head(counter(name))}
