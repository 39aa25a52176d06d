"""``KafkaCursorStore``: cursors in a compacted topic, written by the transaction that has the records before them.

A record of the topic is a cursor: its key names the consumer and the epoch, its value has the cursor, when and by whom
it was written, and why the epoch was opened. So compaction keeps the last cursor of each epoch: the audit trail.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from cursorstore import CursorCodec, EventCursorCodec, MemoryCursorStore

from ..._timeuuid import datetime_of
from ...abc import CursorRecord, Fence, Fencing, Message
from ...clock import Clock, Stop, SystemClock, bounded
from ...errors import ConfigError, CursorConflict, LeaseLost, PublishFailed
from ..producer.transactions import ANSWER_S, TransactionalPublisher
from .records import last_of, message_of, record_of

__all__ = ["CURSOR_TOPIC", "KafkaCursorStore"]

log = logging.getLogger("rscylla.kafka")

CURSOR_TOPIC: Final = "rscylla_cursors"
PARTITIONS: Final = 25
SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Small segments, so that little is read at a start: the last segment of a partition is never compacted.
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}

LOOK_S: Final = 5.0
AGAIN_S: Final = 0.1

MOVED: Final = frozenset(
    (
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART),
        *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
        KafkaError._NOENT,  # noqa: SLF001 - librdkafka's own: no partition that is asked for has a leader
    )
)
"""Errors of a partition that has just been created, has another leader, or has none for a moment."""

CLIENT: Final = ("bootstrap.", "security.", "sasl.", "ssl.", "socket.", "client.", "reconnect.", "broker.", "log_level")
"""What of a producer's configuration other clients take, too."""


@attrs.define(eq=False)
class _Lane:
    """The consumers whose cursors are in the transactions of one publisher.

    ``sessions`` has the session in which each consumer last read its cursor. Cursors are kept in ``memory`` while the
    session lasts in which they were read, ``read_in``: nobody else can write them without ending it.
    """

    publisher: TransactionalPublisher
    names: tuple[str, ...]
    lock: threading.RLock = attrs.field(factory=threading.RLock)
    memory: MemoryCursorStore = attrs.field(factory=MemoryCursorStore)
    sessions: dict[str, int] = attrs.field(factory=dict)
    committed: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    read_in: int = 0

    @property
    def is_current(self) -> bool:
        """Whether ``memory`` has the cursors of the session that there is."""
        session = self.publisher.session
        return session != 0 and session == self.read_in


class KafkaCursorStore:
    """Keeps cursors in a topic of Kafka; a ``CursorStore`` and ``CursorAdmin``. Thread-safe.

    ``publisher(consumer)`` is what the consumer publishes with: its cursor is written by the same transactions as its
    records. Who reads a cursor by ``get_cursor`` begins a session: from then on, a process that worked with the same
    cursor before cannot commit any more, neither records nor cursors.

    The topic is created if it does not exist, with 25 partitions. Their number stays: it says where a cursor is.

    Args:
        config: Of the producers, by the names of librdkafka.
        topic: Where cursors are; several connectors may share it.
        interval: How long a transaction stays open, at most.
        replication: Of the topic when it is created; −1: as the broker does.
        codec: The kind of the cursors.
        lease: If given, cursors are read and saved only while it, or the fence that it has for a consumer, is held.
        together: Returns the consumers that publish in the same transactions as a consumer, it included, in an order
            that does not depend on which of them is given. All processes must agree about it: the first name is that of
            the transactions, by which a reset fences who works with the cursor. Default: each consumer is alone.
        stop: Ends waits for Kafka.

    Raises:
        ConfigError: librdkafka refuses the configuration, or the topic is not compacted.
    """

    slices_stay = True
    """A reslice is no transaction with the records of all slices, so the number of slices cannot be changed."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str = CURSOR_TOPIC,
        *,
        interval: timedelta = timedelta(seconds=1),
        replication: int = -1,
        codec: CursorCodec | None = None,
        lease: Fence | Fencing | None = None,
        together: Callable[[str], Sequence[str]] | None = None,
        stop: Stop | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._config = dict(config)
        self._client = {name: value for name, value in config.items() if name.startswith(CLIENT)}
        self._topic = topic
        self._interval = interval
        self._replication = replication
        self._codec = codec or EventCursorCodec()
        self._lease = lease
        self._together = together
        self._stop = stop or Stop()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._partitions = 0
        self._closed = False

    def publisher(self, consumer: str, *, prepare: Callable[[str], None] | None = None) -> TransactionalPublisher:
        """Return what *consumer* publishes with, always the same; the store closes it.

        Raises:
            ConfigError: as for ``KafkaPublisher``.
        """
        _check(consumer)
        names = (consumer,) if self._together is None else tuple(self._together(consumer))
        with self._lock:
            if self._closed:
                raise ConfigError("this KafkaCursorStore is closed; create another one")
            found = self._lanes.get(consumer)
            if found is None:
                transactions = f"rscylla-{self._topic}/{names[0]}"  # no topic has a slash, so no two are one
                made = partial(TransactionalPublisher, self._config, transactions, interval=self._interval)
                lane: list[_Lane] = []  # what the publisher asks is made after it
                found = _Lane(
                    made(
                        cursors=lambda: self._pending(lane[0]),
                        committed=lambda sent: self._committed(lane[0], sent),
                        doubted=lambda: self._begin_again(lane[0]),
                        prepare=prepare,
                    ),
                    names,
                )
                lane.append(found)
                for name in names:
                    self._lanes[name] = found
            return found.publisher

    # ------------------------------------------------------------ as a store

    def get_cursor(self, consumer: str) -> str:
        """Return the cursor, and begin a session unless this process has one for it. Blocks for a moment.

        Raises:
            PublishFailed: Kafka does not answer, or the transaction of another lane stays open.
            LeaseLost: the lease is not held.
            ConfigError: partitions were added to the topic, so the cursor is not where it belongs.
        """
        lane = self._lane(consumer)
        with lane.lock, lane.publisher.in_use():
            self._check_lease(consumer)
            self._begin(lane)
            lane.sessions[consumer] = lane.publisher.session
            return lane.memory.get_cursor(consumer)

    def set_cursor(self, consumer: str, cursor: str) -> None:
        lane = self._usable(consumer)
        lane.memory.set_cursor(consumer, cursor)
        if not lane.publisher.moved():
            raise self._ended(consumer, lane)

    def flush_cursor(self, consumer: str) -> None:
        """Commit the transaction of *consumer*, with its records and its cursor."""
        self._lane(consumer).publisher.commit()

    def flush(self) -> None:
        """Commit all transactions; raise the first error after all were tried."""
        errors = []
        for lane in self._all():
            try:
                lane.publisher.commit()
            except (PublishFailed, LeaseLost) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def close(self) -> None:
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        try:
            self.flush()
        finally:
            for lane in self._all():
                lane.publisher.close()

    # ------------------------------------------------------------ for operators

    def find_cursor(self, consumer: str) -> CursorRecord | None:
        """Return the record of *consumer*; None if it never had a cursor."""
        _check(consumer)
        lane = self._lanes.get(consumer)
        if lane is not None and lane.is_current:
            return lane.memory.find_cursor(consumer)
        history = self.cursor_history(consumer)
        return history[0] if history else None

    def list_cursors(self) -> list[CursorRecord]:
        found = {record.consumer: record for record in sorted(self._read(), key=lambda record: record.epoch)}
        for lane in self._all():
            if lane.is_current:
                found |= {record.consumer: record for record in lane.memory.list_cursors()}
        return [found[name] for name in sorted(found)]

    def cursor_history(self, consumer: str) -> list[CursorRecord]:
        """Return the last cursor of each epoch of *consumer*, the newest epoch first: the audit trail of resets."""
        _check(consumer)
        lane = self._lanes.get(consumer)
        if lane is not None and lane.is_current:
            return lane.memory.cursor_history(consumer)
        mine = [record for record in self._read((consumer,)) if record.consumer == consumer]
        return sorted(mine, key=lambda record: -record.epoch)

    def reset_cursor(self, consumer: str, cursor: str, *, reason: str) -> None:
        """Set the cursor, in a transaction of its own. A process that works with it is fenced, and reads it again.

        Raises:
            PublishFailed, LeaseLost: the cursor is not set, or Kafka did not say that it is.
        """
        lane = self._lane(consumer)
        self._codec.encode(cursor)
        with lane.lock, lane.publisher.in_use():
            if lane.publisher.session:
                lane.publisher.commit()  # so that the history shows how far the consumer had come
            self._begin(lane)
            lane.memory.reset_cursor(consumer, cursor, reason=reason)
            lane.publisher.moved()
            lane.publisher.commit()
            if any(record.consumer == consumer for record in self._unsaved(lane)):
                raise self._ended(consumer, lane)  # what ended the session was told to another thread

    # ------------------------------------------------------------ lanes

    def _lane(self, consumer: str) -> _Lane:
        _check(consumer)
        lane = self._lanes.get(consumer)
        if lane is None:
            self.publisher(consumer)
            lane = self._lanes[consumer]
        return lane

    def _all(self) -> list[_Lane]:
        with self._lock:
            return list({id(lane): lane for lane in self._lanes.values()}.values())

    def _usable(self, consumer: str) -> _Lane:
        """Return the lane of *consumer* if it may save cursors in the session that there is."""
        lane = self._lane(consumer)
        if self._closed:
            raise ConfigError("this KafkaCursorStore is closed; create another one")
        known = lane.sessions.get(consumer)
        if known is None:
            self.get_cursor(consumer)
        elif known != lane.publisher.session:
            raise self._ended(consumer, lane)
        self._check_lease(consumer)
        return lane

    @staticmethod
    def _ended(consumer: str, lane: _Lane) -> CursorConflict:
        """Return, or raise, why the session of *consumer* is over."""
        lane.publisher.check()
        return CursorConflict(
            f"the session in which consumer {consumer!r} read its cursor has ended; read the cursor again"
        )

    def _check_lease(self, consumer: str) -> None:
        lease = self._lease
        if lease is None:
            return
        fence = lease.fence_of(consumer) if isinstance(lease, Fencing) else lease
        if not fence.held():
            raise LeaseLost(
                f"the lease {fence.name!r} is not held, so the cursor of {consumer!r} is not this process's"
            )

    def _begin(self, lane: _Lane) -> None:
        """Begin a session of *lane*, and read its cursors, unless this was done. Called with its lock held.

        A session that began without that, because something was published first, has no cursors, and ends.
        """
        if lane.is_current:
            return
        self._ensure()
        lane.publisher.begin(self._stop)
        try:
            # After the session began: what a predecessor committed is complete, and no more can come.
            history = [r for r in self._read(lane.names, is_complete=True) if r.consumer in lane.names]
            if not any(r.consumer == lane.names[0] for r in history):
                self._check_elsewhere(lane.names[0])
        except BaseException:
            lane.publisher.spoil(PublishFailed("the cursors could not be read"))
            raise
        lane.memory = MemoryCursorStore(codec=self._codec, history=history, clock=self._clock)
        lane.committed = last_of(history, lane.names)
        lane.read_in = lane.publisher.session

    def _begin_again(self, lane: _Lane) -> bool:
        """Begin by another producer within the session; return whether the cursors in Kafka are what it committed."""
        for name in lane.sessions:
            self._check_lease(name)
        lane.publisher.begin_again(self._stop)
        return lane.committed == last_of(self._read(lane.names, is_complete=True), lane.names)

    def _check_elsewhere(self, consumer: str) -> None:
        """Raise ``ConfigError`` if *consumer* has a cursor in another partition than its own, where it has none."""
        if any(record.consumer == consumer for record in self._read(is_complete=True)):
            raise ConfigError(
                f"the cursor of {consumer!r} is not in partition {self._partition(consumer)} of topic {self._topic}, "
                f"as it would be if that always had {self._partitions} partitions; set what list_cursors() returns by "
                "reset_cursor() of a KafkaCursorStore with another topic, and use that"
            )

    def _pending(self, lane: _Lane) -> list[Message]:
        """Return the cursors that moved. Called right before a commit, which may be one of another thread."""
        return [self._message(record) for record in self._unsaved(lane)] if lane.is_current else []

    @staticmethod
    def _unsaved(lane: _Lane) -> list[CursorRecord]:
        records = lane.memory.list_cursors()
        return [r for r in records if lane.committed.get(r.consumer) != (r.epoch, r.cursor)]

    def _committed(self, lane: _Lane, sent: Sequence[Message]) -> None:
        for message in sent:
            record = record_of(message.key, message.value)
            if record is not None:
                lane.committed[record.consumer] = record.epoch, record.cursor

    def _message(self, record: CursorRecord) -> Message:
        at = record.updated_at or datetime_of(self._clock.now_us())
        return message_of(record, at, self._topic, self._partition(record.consumer))

    def _partition(self, consumer: str) -> int:
        return zlib.crc32(consumer.encode()) % self._partitions

    # ------------------------------------------------------------ the topic

    def _ensure(self) -> None:
        """Create the topic unless it exists, and look at it, once."""
        with self._lock:
            if self._partitions:
                return
            admin = self._admin()
            try:
                known = self._asked(lambda: admin.list_topics(timeout=ANSWER_S)).topics.get(self._topic)
                if known is not None or not self._create(admin):
                    self._check_policy(admin)
                while known is None or not known.partitions:  # until the broker that is asked knows it, too
                    self._pause()
                    known = self._asked(lambda: admin.list_topics(timeout=ANSWER_S)).topics.get(self._topic)
            except KafkaException as error:
                raise PublishFailed(f"the topic {self._topic} of cursors: {error.args[0].str()}") from error
            except TimeoutError as error:
                raise PublishFailed(f"the topic {self._topic} of cursors: Kafka does not answer") from error
            self._partitions = len(known.partitions)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return the answer of Kafka. A stop does not wait for it, nor do those who wait for the lock."""
        return bounded(ask, stop=self._stop)

    def _admin(self) -> Any:
        """Return another client each time: one that is kept has old leaders of partitions after a broker restarts."""
        return AdminClient(self._client)

    def _create(self, admin: Any) -> bool:
        """Create the topic; return False if it is there."""
        new = NewTopic(self._topic, PARTITIONS, self._replication, config=SETTINGS)
        try:
            made = admin.create_topics([new], request_timeout=ANSWER_S)[self._topic]
            self._asked(lambda: made.result(ANSWER_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _pause(self) -> None:
        self._clock.wait(self._stop, AGAIN_S)
        self._stop.check()

    def _check_policy(self, admin: Any) -> None:
        try:
            resource = ConfigResource(ResourceType.TOPIC, self._topic)
            [settings] = admin.describe_configs([resource], request_timeout=LOOK_S).values()
            policy = self._asked(lambda: settings.result(2 * LOOK_S))["cleanup.policy"].value
        except (KafkaException, KeyError, TimeoutError) as error:
            log.info("the settings of topic %s are not known: %s", self._topic, error)
            return
        if "delete" in policy:
            raise ConfigError(
                f"the topic {self._topic} has cleanup.policy={policy}, so cursors would be deleted after a while; "
                "alter it to compact, or name another topic"
            )

    def _read(self, consumers: Collection[str] = (), *, is_complete: bool = False) -> list[CursorRecord]:
        """Return the last cursor of each epoch, of the partitions of *consumers*; of all without any.

        With *is_complete*, transactions that others have open in these partitions are waited for, since what follows
        them is hidden until they end.
        """
        self._ensure()
        wanted = {self._partition(name) for name in consumers} or set(range(self._partitions))
        left = self._ends(wanted) if is_complete else dict.fromkeys(wanted, 0)
        found: dict[tuple[str, int], CursorRecord] = {}
        own = {"group.id": "rscylla", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self._client, **own, "isolation.level": "read_committed", "fetch.wait.max.ms": 50})
        deadline = self._clock.monotonic() + ANSWER_S
        try:
            consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in left])
            while left:
                self._stop.check()
                if self._clock.monotonic() > deadline:
                    raise PublishFailed(
                        f"the topic {self._topic} of cursors cannot be read to its end within {ANSWER_S:g} s; Kafka "
                        "does not answer, or another transaction stays open"
                    )
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        record = record_of(message.key(), message.value())
                        if record is not None:
                            found[record.consumer, record.epoch] = record
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        partition = message.partition() or 0
                        if (message.offset() or 0) >= left.get(partition, 0):
                            left.pop(partition, None)
                    elif error.fatal():
                        raise PublishFailed(f"the topic {self._topic} of cursors cannot be read: {error.str()}")
        finally:
            consumer.close()
        return list(found.values())

    def _ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return where partitions end, with what is hidden in transactions that are open."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._topic, p): latest for p in partitions}
        level = IsolationLevel.READ_UNCOMMITTED
        deadline = self._clock.monotonic() + ANSWER_S
        while True:
            admin = self._admin()
            try:
                futures = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
                found = {at.partition: self._asked(partial(future.result, ANSWER_S)) for at, future in futures.items()}
                return {partition: end.offset for partition, end in found.items()}
            except TimeoutError as error:
                raise PublishFailed(f"the topic {self._topic} of cursors: Kafka does not answer") from error
            except KafkaException as error:
                if error.args[0].code() not in MOVED or self._clock.monotonic() > deadline:
                    raise PublishFailed(f"the topic {self._topic} of cursors: {error.args[0].str()}") from error
            self._pause()


def _check(consumer: str) -> None:
    if not isinstance(consumer, str) or not consumer:
        raise ConfigError("a consumer's name must be text that is not empty")
