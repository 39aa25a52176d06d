"""``Lanes``: what a connector reads, publishes, and saves: a lane for each table, or for each slice of one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from .._tokens import Slice
from ..abc import CursorStore, Message, Publisher, flush_cursor
from ..cdc import Stream
from ..cdc.read import Limits
from ..clock import Clock
from ..driver import Session
from ..errors import ConfigError, MalformedData, MetadataError, TableNotFound
from ..event import Event
from ..options import StreamLag, StreamOption, StreamToHead
from ..publish import DeadLetter, DebeziumMessages, Messages, publishing
from ..reflex import Spec, metrics_for, take_along
from .config.properties import Properties
from .cursors.scylla import Stores, closed
from .cursors.store import KafkaCursorStore
from .letters import letter_of
from .producer.topics import is_topic
from .snapshots.snapshot import Mode, Snapshots, snapshot_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["LAG", "Lanes", "TableKey", "consumer_name"]

log = logging.getLogger("rscylla.kafka")

TableKey = tuple[str, str]
"""Keyspace and name of a base table."""

LAG: Final = "scylla.confidence.window.size"
MAX_BYTES: Final = 64 << 20
LEAST_BYTES: Final = 1 << 20


def consumer_name(properties: Properties, keyspace: str, table: str) -> str:
    """Return the name under which the cursor of a table is kept."""
    return f"{properties.text('topic.prefix')}.{keyspace}.{table}"


@attrs.define(eq=False)
class Lanes:
    """Makes lanes as *properties* say, of a process alone or of a slice of a group. Thread-safe but for ``exactly``.

    ``exactly``, ``prepare``: in exactly-once mode, the store of cursors, and what creates topics.

    Raises:
        ConfigError: a property is wrong.
    """

    properties: Properties
    session: Session
    stores: Stores
    to_head: bool
    on_snapshot: Callable[[str, float, int], None] | None
    registry: CollectorRegistry | None
    clock: Clock
    exactly: KafkaCursorStore | None = None
    prepare: Callable[[str], None] | None = None
    _start: Callable[[Stream], str] = attrs.field(init=False)
    _lag: timedelta = attrs.field(init=False)
    _begun: set[str] = attrs.field(factory=set, init=False)
    """The lanes that have begun once. If their cursors are lost, they do not begin at the start again."""

    def __attrs_post_init__(self) -> None:
        self._lag = timedelta(milliseconds=self.properties.number(LAG))
        self._start = self._start_of(self.properties.text("rscylla.start"))
        DebeziumMessages(self.properties)  # raises what is wrong with them
        self._dead_letter()

    def store(self, keyspace: str) -> CursorStore:
        """Return the store of the cursors of the tables of *keyspace*."""
        return self.stores.of(keyspace) if self.exactly is None else self.exactly

    def close(self) -> None:
        """Save what is not saved yet; what cannot be saved is logged."""
        self.stores.close()
        if self.exactly is not None:
            closed(self.exactly)

    def stream(self, key: TableKey) -> Stream:
        """Return the stream of a table's changes. Slices of it share their readers."""
        properties = self.properties
        size = properties.number("scylla.query.options.fetch.size")
        return Stream(
            self.session,
            *key,
            consistency=properties.text("scylla.consistency.level").upper(),
            on_expired="oldest" if properties.text("rscylla.on.expired").lower() == "oldest" else "raise",
            limits=Limits(page_size=size) if size else Limits(),
        )

    def lane(self, key: TableKey, stream: Stream, publisher: Publisher, part: Slice, *, is_first: bool) -> Spec:
        """Return what a process runs for a slice of a table.

        Args:
            is_first: whether the table, with this log, was there when the connector began.
        """
        name, store, exactly = part.name(consumer_name(self.properties, *key)), self.store(key[0]), self.exactly
        stream = stream if part.count == 1 else stream.sliced(part.index, part.count)
        if exactly is not None:
            publisher = exactly.publisher(name, prepare=self.prepare)
        snapshots = self._snapshots(publisher, part)
        # A snapshot begins where the changes do; and a table that comes later is new: all of its changes are wanted.
        start = self._start if is_first and snapshots.mode == "never" else None
        consumer = publishing(name, self._messages(name), publisher, **self._bounds(part))
        options: list[StreamOption] = [StreamLag(self._lag)]
        if self.to_head:
            options.append(StreamToHead())
        begin = partial(self._begin, store, key, name, stream, start)
        return Spec(snapshots.lane(stream, store, name, begin), store, consumer, *options, registry=self.registry)

    def _begin(
        self,
        store: CursorStore,
        key: TableKey,
        name: str,
        stream: Stream,
        start: Callable[[Stream], str] | None,
    ) -> str:
        """Set the cursor of a lane that has none, and return it: that of at-least-once mode, or the start.

        Called by the lane, so that all of them begin their sessions at once: one must not wait for what another left.
        """
        cursor = "" if self.exactly is None else self._taken(self.exactly, key, name, stream)
        if not cursor and start is not None and name not in self._begun and (cursor := start(stream)):
            store.set_cursor(name, cursor)
            flush_cursor(store, name)  # a later crash must not move the start
        self._begun.add(name)
        return cursor

    def _taken(self, store: KafkaCursorStore, key: TableKey, name: str, stream: Stream) -> str:
        """Take the cursors of a lane over from ScyllaDB into Kafka, if it has none there; return that of changes."""
        if store.find_cursor(name) is not None:
            return ""
        kept = self.stores.scylla(key[0])
        try:
            take_along(kept, name, stream.key_slice, from_whole=False)
            for each in (snapshot_name(name, stream.key_slice), name):
                record = kept.find_cursor(each)
                if record is not None and record.cursor:
                    log.info("%s continues in exactly-once mode where its cursor in ScyllaDB is", each)
                    store.reset_cursor(each, record.cursor, reason="taken from the table of cursors in ScyllaDB")
        except TableNotFound:
            pass  # it was never used
        return store.get_cursor(name)

    def _bounds(self, part: Slice) -> dict[str, Any]:
        """Return the options of ``publishing`` for a slice."""
        properties = self.properties
        max_bytes = properties.number("max.queue.size.in.bytes") or MAX_BYTES
        return {
            "max_unacknowledged": properties.number("max.queue.size"),
            "max_bytes": max(max_bytes // part.count, LEAST_BYTES),
            "dead_letter": self._dead_letter(),
            "registry": self.registry,
        }

    def _snapshots(self, publisher: Publisher, part: Slice) -> Snapshots:
        properties = self.properties
        rows = properties.number("rscylla.snapshot.rows.per.second")
        return Snapshots(
            properties,
            publisher,
            cast("Mode", properties.snapshot_mode),
            self._lag,
            # Slices share the limit of their table.
            rows_per_s=max(1.0, rows / part.count) if rows else None,
            poll=timedelta(milliseconds=properties.number("signal.poll.interval.ms")),
            on_progress=self.on_snapshot,
            options=self._bounds(part),
        )

    def _start_of(self, start: str) -> Callable[[Stream], str]:
        """Return what returns the cursor at which a first start begins; "" is the oldest change."""
        lookback = self.properties.number("scylla.initial.lookback.ms")
        if start == "head":
            return lambda stream: stream.head_cursor(self._lag)
        if start != "oldest":
            try:
                time = datetime.fromisoformat(start)
            except ValueError:
                raise ConfigError(
                    f"rscylla.start is {start!r}; it is oldest, head, or a time such as 2026-11-23T10:00:00Z"
                ) from None
            time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return lambda stream: stream.cursor_at(time)
        if lookback:
            back = timedelta(milliseconds=lookback)
            return lambda stream: stream.cursor_at(datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC) - back)
        return lambda stream: ""

    def _messages(self, consumer: str) -> Messages:
        messages = DebeziumMessages(self.properties, clock=self.clock)
        if self.properties.text("event.processing.failure.handling.mode").lower() == "fail":
            return messages
        count = metrics_for(self.registry).consumer(consumer).count

        def tolerant(event: Event) -> list[Message]:
            try:
                return messages(event)
            except (MalformedData, MetadataError) as error:  # of the change itself: whatever else is wrong may pass
                log.warning("event %s becomes no record: %s", event.id, error)
                count("given_up")
                return []

        return tolerant

    def _dead_letter(self) -> DeadLetter | None:
        if self.properties.text("errors.tolerance").lower() != "all":
            return None
        topic = self.properties.text("errors.deadletterqueue.topic.name")
        if topic and not is_topic(topic):
            raise ConfigError(f"errors.deadletterqueue.topic.name is {topic!r}, which Kafka does not take as a topic")

        def dead(message: Message, why: str) -> Message | None:
            log.warning("a record is passed over: %s", why)
            return letter_of(message, topic, why) if topic else None

        return dead
