"""Offsets of the Java connector, as Kafka Connect keeps them, and the cursors that continue after them.

Connect keeps an offset for each source partition. The connector has one partition for each task of a generation: a
vnode of it, or in a tablets keyspace one of its streams, or all of them at once (vnode 0, before 2.1). The offset
of a task is the window that it reads, and the last change of it that was delivered.

A task reads a window stream after stream, so the last change says nothing about the other streams: only a task with a
single stream is past the changes before it, all others are at the start of their window. A cursor is one position for
all streams, so it is the lowest of the positions of the tasks. Nothing is lost; what the tasks that were ahead had
delivered after it is delivered again.

A tablet that a connector has not read since it was upgraded across 2.1 is where the task of all streams was: its offset
stays beside those of the tablets. An offset in the future, by the clocks of the nodes, was made by a fast clock; it
counts as 30 s ago, a time up to which changes are settled.

Source: ``SourceInfo``, ``ScyllaOffsetContextLoader`` and ``TabletTaskOffsetMigration`` of scylla-cdc-source-connector;
``Driver3MultiReader``, ``TaskId`` and ``TaskAction`` of scylla-cdc-java; Connect's ``FileOffsetBackingStore``,
``KafkaOffsetBackingStore`` and ``OffsetStorageWriter``; the Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import attrs
import confluent_kafka as kafka

from ... import _timeuuid as tu
from ..._tokens import vnode_of
from ...cdc import Stream
from ...cdc.log import Generation, Source, Topology, resume
from ...errors import ConfigError, CursorError, InvalidCursor
from ...options import SAFE_LAG

__all__ = ["Entries", "Takeover", "TaskOffset", "connectors_of", "offsets_of", "read_file", "read_topic", "take_over"]

Entries = Mapping[bytes, bytes | None]
"""What a store of offsets holds: JSON of connector and partition, and JSON of the offset; None if it was deleted."""


# ---------------------------------------------------------------- the two stores


def read_file(path: Path) -> Entries:
    """Return the offsets in a file of Connect's standalone mode, ``offset.storage.file.filename``.

    Raises:
        ConfigError: the file cannot be read, or is no such file.
    """
    try:
        return dict(_SerializedMap(path.read_bytes()).entries())
    except OSError as e:
        raise ConfigError(f"the offset file {str(path)!r} cannot be read: {e.strerror}") from e
    except (ValueError, IndexError, struct.error) as e:
        raise ConfigError(
            f"{str(path)!r} is not an offset file of Kafka Connect: give the file that the worker's property "
            "offset.storage.file.filename names"
        ) from e


class _SerializedMap:
    """A ``HashMap<byte[], byte[]>`` as Java serializes it, and nothing else."""

    _HEADER: Final = (
        b"\xac\xed\x00\x05"  # magic, version
        b"sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03"  # object of a class that writes itself
        b"\x00\x02F\x00\x0aloadFactorI\x00\x09thresholdxp"  # its two fields; no superclass
    )
    _BYTES: Final = b"r\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00xp"
    _FIRST_HANDLE: Final = 0x7E0000
    _NULL, _REFERENCE, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x75, 0x77, 0x78

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        # What may be referred to: the class of the map and the map come first, then the class of byte[] and the arrays.
        self._known: list[bytes | None] = [None, None]

    def entries(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys and values. Raises ``ValueError`` and others for whatever else the data is."""
        self._expect(self._HEADER)
        self._at += 8  # load factor and threshold
        self._expect(bytes((self._BLOCK, 8)))
        _, size = self._unpack(">ii")
        for _ in range(size):
            key, value = self._value(), self._value()
            if key is not None:
                yield key, value
        self._expect(bytes((self._END,)))

    def _value(self) -> bytes | None:
        (kind,) = self._unpack(">B")
        if kind == self._NULL:
            return None
        if kind == self._REFERENCE:
            return self._known[self._handle()]
        if kind != self._ARRAY:
            raise ValueError("a value that is no array of bytes")
        if len(self._known) == 2:
            self._expect(self._BYTES)
            self._known.append(None)
        else:
            self._expect(bytes((self._REFERENCE,)))
            if self._handle() != 2:
                raise ValueError("an array of something else than bytes")
        (size,) = self._unpack(">i")
        raw = self._take(size)
        self._known.append(raw)
        return raw

    def _handle(self) -> int:
        (handle,) = self._unpack(">I")
        if handle < self._FIRST_HANDLE:
            raise ValueError("a reference to nothing")
        return int(handle - self._FIRST_HANDLE)

    def _expect(self, what: bytes) -> None:
        if self._take(len(what)) != what:
            raise ValueError("something else than a map of bytes")

    def _unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise ValueError("the data ends too early")
        self._at += size
        return found


TOPIC_TIMEOUT_S: Final = 60.0


def read_topic(topic: str, config: Mapping[str, Any]) -> Entries:
    """Return the offsets in a topic of Connect's distributed mode, ``offset.storage.topic``. Blocks.

    Args:
        config: properties of librdkafka, with ``bootstrap.servers``.

    Raises:
        ConfigError: a property is wrong, or there is no such topic.
        CursorError: the topic could not be read to its end.
    """
    # Offsets of connectors with exactly-once support are written in transactions.
    fixed = {"group.id": "rscylla", "enable.auto.commit": False, "enable.partition.eof": True}
    fixed |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    try:
        consumer = kafka.Consumer({**config, **fixed})
    except (kafka.KafkaException, ValueError, TypeError) as e:
        raise ConfigError(f"the properties of the Kafka client are not accepted: {_reason(e)}") from e
    found: dict[bytes, bytes | None] = {}
    try:
        known = consumer.list_topics(topic, TOPIC_TIMEOUT_S).topics[topic].partitions
        if not known:
            raise ConfigError(
                f"there is no topic {topic!r}; give the one that the worker's property offset.storage.topic names"
            )
        consumer.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in known])
        unread = set(known)
        while unread:
            message = consumer.poll(TOPIC_TIMEOUT_S)
            if message is None:
                raise CursorError(f"the topic {topic!r} could not be read to its end; check the brokers")
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                if isinstance(key, bytes):
                    found[key] = value if isinstance(value, bytes) else None
            elif error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - so it is named
                unread.discard(message.partition())
            elif error.fatal() or not error.retriable():
                raise CursorError(f"the topic {topic!r} could not be read: {error.str()}")
    except kafka.KafkaException as e:
        raise CursorError(f"the topic {topic!r} could not be read: {_reason(e)}") from e
    finally:
        consumer.close()
    return found


def _reason(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


# ---------------------------------------------------------------- offsets of tasks


TABLET_TASKS: Final = 1 << 22
"""The number of the task of a table's first stream, in releases that read each tablet in a task of its own."""


@attrs.frozen
class TaskOffset:
    """Where a task of the connector is: times in microseconds since the epoch.

    ``window_us`` and ``window_end_us``: the window that it reads. ``change_us``: time of the last change in it that was
    delivered, None if there is none. ``task``: the vnode; in a tablets keyspace 0 for all streams, or ``TABLET_TASKS``
    and more for each of them.
    """

    keyspace: str
    table: str
    generation: Generation
    task: int
    window_us: int
    window_end_us: int
    change_us: int | None

    @property
    def name(self) -> tuple[str, str]:
        return self.keyspace, self.table


def connectors_of(entries: Entries) -> list[str]:
    """Return the names of the connectors that have offsets, sorted."""
    return sorted({name for name, _, _ in _parsed(entries)})


def offsets_of(entries: Entries, connector: str) -> list[TaskOffset]:
    """Return the offsets of a connector.

    Raises:
        CursorError: it has none.
        InvalidCursor: they are not those of the Scylla CDC source connector.
    """
    found = [_offset(partition, offset) for name, partition, offset in _parsed(entries) if name == connector]
    if not found:
        names = ", ".join(map(repr, connectors_of(entries)))
        raise CursorError(
            f"the connector {connector!r} has no offsets there; "
            + (f"there are those of {names}" if names else "there are none of any connector")
        )
    return found


def _parsed(entries: Entries) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield connector, partition, and offset. What is not of this form belongs to something else."""
    for key, value in entries.items():
        if value is None:
            continue
        try:
            name, partition = json.loads(key)
            offset = json.loads(value)
        except (ValueError, TypeError):
            continue
        if isinstance(name, str) and isinstance(partition, dict) and isinstance(offset, dict):
            yield name, partition, offset


def _offset(partition: Mapping[str, Any], offset: Mapping[str, Any]) -> TaskOffset:
    try:
        change = offset.get("change_id_time")
        return TaskOffset(
            str(partition["keyspace_name"]),
            str(partition["table_name"]),
            Generation(int(partition["generation_start"])),
            int(partition["vnode_id"]),
            _us_of(offset["window_start"]),
            _us_of(offset["window_end"]),
            None if change is None else _us_of(change),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as e:
        raise InvalidCursor(
            "an offset of the connector is not one of the Scylla CDC source connector, whose partitions have "
            "keyspace_name, table_name, generation_start, and vnode_id; check the name of the connector"
        ) from e


def _us_of(text: str) -> int:
    raw = uuid.UUID(text).bytes
    if raw[6] >> 4 != 1:  # the bounds of windows have the bytes of no variant, so UUID does not know their version
        raise ValueError("no timeuuid")
    return tu.ticks_to_us(tu.ticks_of(raw))


# ---------------------------------------------------------------- the cursor


@attrs.frozen
class Takeover:
    """The cursor that continues where a connector stopped reading a table, and what it means.

    ``time_us``: its time; changes from then on are delivered. ``reached_us``: changes up to this time, of some keys,
    may have been delivered by the connector and come again. ``tasks``: how many tasks the generation has; ``known``:
    how many of them had an offset. Times are microseconds since the epoch. ``ahead_us``: by how many microseconds the
    latest offset is ahead of the clocks of the nodes; if it is, a fast clock made the connector read changes too early.
    """

    keyspace: str
    table: str
    cursor: str
    generation: Generation
    time_us: int
    reached_us: int
    tasks: int
    known: int
    ahead_us: int = 0


def take_over(stream: Stream, offsets: Iterable[TaskOffset]) -> Takeover:
    """Return the cursor with which *stream* continues where the connector stopped. Blocks on small queries.

    Args:
        offsets: of the connector; those of other tables are left out.

    Raises:
        CursorError: there are none of the table of the stream.
        InvalidCursor: they are of generations, vnodes or streams that the table does not have.
        CursorExpired: changes that the connector had not delivered have expired.
        Others: as for opening the stream.
    """
    source, table = stream.describe(), str(stream)
    mine = [offset for offset in offsets if offset.name == (stream.keyspace, stream.table)]
    if not mine:
        raise CursorError(f"the connector has no offsets of {table}; check its property scylla.table.names")
    now_us = source.node_clocks.slowest_us()
    generation, end, tasks, given = _unfinished(mine, source, table, now_us)
    states = _by_task(given, tasks)
    time_us = generation.start_us
    if len(states) == len(tasks):
        lowest = min(_possible(_reached_us(state, tasks[task]), now_us) for task, state in states.items())
        time_us = max(time_us, lowest if end is None else min(lowest, end.start_us))
    # A task without an offset has read nothing: what expired meanwhile was not delivered by the connector either.
    if len(states) < len(tasks) and time_us < source.safe_start_us():
        cursor = source.oldest()
    else:
        cursor = source.read_until(generation, time_us)
        resume(source, str(cursor), "raise")
    reached_us = max((_furthest_us(state, tasks.get(task, 0)) for task, state in given.items()), default=0)
    return Takeover(
        source.table.keyspace,
        source.table.name,
        str(cursor),
        Generation(cursor.generation),
        cursor.exact_us,
        max(cursor.exact_us, min(reached_us, source.now_us())),
        len(tasks),
        len(states),
        max(0, max(offset.window_us for offset in mine) - source.now_us()),
    )


def _unfinished(
    offsets: Sequence[TaskOffset], source: Source, table: str, now_us: int
) -> tuple[Generation, Generation | None, Mapping[int, int], Mapping[int, TaskOffset]]:
    """Return the first generation that the connector has not read to its end, the one after it, its tasks, each with
    the number of its streams, and their offsets.
    """
    found: dict[Generation, dict[int, TaskOffset]] = {}
    for offset in offsets:
        found.setdefault(offset.generation, {})[offset.task] = offset
    generations = source.generations
    newest = max(found, key=lambda generation: generation.time)
    if newest not in generations:
        raise InvalidCursor(
            f"the connector has offsets of {table} for the CDC generation of {newest}, which this cluster does not "
            "have; check that they are of this cluster and of this table, not of one that was dropped since"
        )
    first = next(i for i, g in enumerate(generations) if g in found)
    while first and generations[first].start_us > _possible(generations[first].start_us, now_us):
        first -= 1
    for generation, end in zip_longest(generations[first:], generations[first + 1 :]):
        given = found.get(generation, {})
        tasks = _tasks(source.topology, source.streams(generation), given.values())
        states = _by_task(given, tasks)
        if strange := sorted(set(states) - set(tasks)):
            raise InvalidCursor(
                f"the connector has an offset of {table} for vnode {strange[0]}, but the CDC generation of "
                f"{generation} has {len(tasks)}; check that the offsets are of this cluster"
            )
        # As the connector decides whether a generation is done.
        windows = [_possible(state.window_us, now_us) for state in states.values()]
        if end is None or len(states) < len(tasks) or min(windows) <= end.start_us:
            return generation, end, tasks, given
    raise AssertionError("the last generation has no end")


def _possible(time_us: int, now_us: int) -> int:
    """Return *time_us*, or what counts instead: by *now_us*, no task has read anything that is later."""
    return time_us if time_us <= now_us else now_us - SAFE_LAG // timedelta(microseconds=1)


def _by_task(given: Mapping[int, TaskOffset], tasks: Mapping[int, int]) -> Mapping[int, TaskOffset]:
    """Return the offset of each of *tasks*: of a tablet without one, that of all tablets, from before 2.1."""
    whole = given.get(0)
    if whole is None or 0 in tasks:
        return given
    own = {task: offset for task, offset in given.items() if task}
    return {task: attrs.evolve(whole, task=task, change_us=None) for task in tasks} | own


def _reached_us(offset: TaskOffset, streams: int) -> int:
    """Return the time up to which a task has delivered all changes of its streams; those at the time itself may lack.

    The connector may stop within the changes of one time, so they are read again.
    """
    if streams > 1 or offset.change_us is None:
        return offset.window_us
    return max(offset.window_us, offset.change_us)


def _furthest_us(offset: TaskOffset, streams: int) -> int:
    """Return the time up to which a task may have delivered changes of some of its streams."""
    if offset.change_us is None:
        return offset.window_us
    return offset.change_us if streams == 1 else offset.window_end_us


def _tasks(topology: Topology, streams: Sequence[bytes], offsets: Iterable[TaskOffset]) -> Mapping[int, int]:
    """Return the tasks that the connector has for *streams*, each with the number of its streams."""
    if topology.vnodes(streams) is not None:
        return Counter(vnode for stream in streams if (vnode := vnode_of(stream)) is not None)
    if any(offset.task >= TABLET_TASKS for offset in offsets):
        return {TABLET_TASKS + number: 1 for number in range(len(streams))}
    return {0: len(streams)}
