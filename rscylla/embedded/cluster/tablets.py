"""Stream sets of tables in tablets keyspaces: one stream for each tablet, a whole new set after a split or merge.

Owned by the server's loop thread; nothing here locks. Source: Scylla ``cdc/metadata.cc``, ``cdc/generation.cc``.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from ..errors import InvalidRequest, ServerError
from ..schema.replication import MOST_TABLETS
from ..schema.tables import LOG_SUFFIX, Keyspace, TableSchema
from ..schema.tablets import tablets_for
from ..storage.tokens import MIN_TOKEN
from .generation import stream_id
from .timewindow import LEEWAY_US, window_message

__all__ = ["StreamSet", "TableStreams", "TabletStreams", "last_tokens"]

_COLLECT_EVERY_US: Final = 60_000_000  # as often as Scylla
_TOKENS: Final = 1 << 64


def last_tokens(tablets: int) -> tuple[int, ...]:
    """Return the last token of each of ``tablets`` (a power of two) equal parts of the ring, ascending."""
    return tuple(MIN_TOKEN + (at + 1) * (_TOKENS // tablets) - 1 for at in range(tablets))


@attrs.frozen
class StreamSet:
    """The streams of a table from ``time_ms`` (since the epoch) on, in order of token, each at its tablet's last."""

    time_ms: int
    streams: tuple[bytes, ...]
    _ends: tuple[int, ...] = attrs.field(repr=False, eq=False)

    @classmethod
    def make(cls, time_ms: int, tablets: int, random_bits: Callable[[], int]) -> StreamSet:
        ends = last_tokens(tablets)
        return cls(time_ms, tuple(stream_id(end, 0, random_bits()) for end in ends), ends)

    def stream_of(self, token: int) -> bytes:
        """Return the stream of the tablet that holds this base token."""
        return self.streams[bisect_left(self._ends, token)]


@attrs.define
class TableStreams:
    """The stream sets of one table, ascending by time, never empty.

    ``log_id`` is the id of its log. ``ttl_s`` is that of the base's CDC options, 0 for none. ``initial`` of
    the keyspace and ``hints`` of the table and its log are what the number of tablets was last worked out from.
    """

    keyspace: str
    table: str
    log_id: uuid.UUID
    ttl_s: int
    sets: list[StreamSet]
    initial: int | None
    hints: list[dict[str, str]]

    @property
    def tablets(self) -> int:
        """The number of tablets since the last split or merge, also where its streams are not yet in use."""
        return len(self.sets[-1].streams)

    def stream_for(self, token: int, timestamp_us: int, now_us: int) -> bytes:
        """Return the stream id for a record; arguments and errors as for ``Cluster.stream_for``."""
        if timestamp_us > now_us + LEEWAY_US:
            raise InvalidRequest(window_message("future", timestamp_us, now_us))
        at = bisect_right(self.sets, timestamp_us, key=lambda each: each.time_ms * 1000) - 1
        if at < 0:
            raise ServerError(
                f"cdc::metadata::get_stream: could not find any CDC streams for table {self.log_id} for timestamp "
                f"{timestamp_us}."
            )
        return self.sets[at].stream_of(token)

    def changes(self) -> Iterator[tuple[StreamSet, int, tuple[bytes, ...]]]:
        """Yield (set, state, streams) as ``system.cdc_streams`` has them: 0 current, 1 closed, 2 opened."""
        # Nothing comes before the oldest set, so it is listed as opened in full.
        before: tuple[bytes, ...] = ()
        for each in self.sets:
            known = frozenset(before)
            yield each, 0, each.streams
            yield each, 1, tuple(stream for stream in before if stream not in frozenset(each.streams))
            yield each, 2, tuple(stream for stream in each.streams if stream not in known)
            before = each.streams


class TabletStreams:
    """The stream sets of all tables that have a CDC log in a tablets keyspace.

    Args:
        ring_delay_ms: A new set starts twice this and five seconds after it is made.
        shards: Shards of the whole cluster: what a keyspace without ``initial`` takes its number of tablets from.
        random_bits: Gives the random part of stream ids, 38 bits or more.

        changed: Called after every change of any set.

    ``version`` changes with every change of any set.
    """

    def __init__(
        self,
        *,
        ring_delay_ms: int,
        shards: Callable[[], int],
        random_bits: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._delay_ms = 2 * ring_delay_ms + LEEWAY_US // 1000
        self._shards = shards
        self._random_bits = random_bits
        self._changed = changed
        self._tables: dict[tuple[str, str], TableStreams] = {}
        self._collected_us: int | None = None
        self.version = 0

    def __iter__(self) -> Iterator[TableStreams]:
        return iter(self._tables.values())

    def of(self, keyspace: str, table: str) -> TableStreams | None:
        """Return the sets of a base table; None where it has no log, or its keyspace has vnodes."""
        return self._tables.get((keyspace, table))

    def count(self, keyspace: Keyspace, table: TableSchema) -> int:
        """Return the number of tablets of a table in a tablets keyspace; a log has those of its base."""
        name = table.cdc_base or table.name
        known = self.of(keyspace.name, name)
        return known.tablets if known else self._wanted(keyspace, name)

    def _wanted(self, keyspace: Keyspace, table: str) -> int:
        return tablets_for(keyspace, _hints(keyspace, table), self._shards())

    # ------------------------------------------------------------ following the schema

    def table_changed(self, keyspace: Keyspace, table: TableSchema, now_us: int) -> None:
        """Follow a new or altered table: a log's first set is made with it, the base's TTL decides how long it stays.

        Its time is five seconds ago, so that writes of clients whose clocks are behind find their streams.
        """
        if keyspace.tablets is None:
            return
        place = (keyspace.name, table.cdc_base or table.name)
        base = keyspace.tables.get(place[1])
        known = self._tables.get(place)
        # CDC that is switched off and on again goes on with the log's streams.
        if known is not None and (not table.is_cdc_log or known.log_id == table.id):
            self._follow(known, keyspace, table, now_us)
        elif table.is_cdc_log:
            ttl_s = base.cdc.ttl if base is not None and base.cdc is not None else 0
            count = self._wanted(keyspace, place[1])
            first = StreamSet.make((now_us - LEEWAY_US) // 1000, count, self._random_bits)
            self._tables[place] = TableStreams(
                *place, table.id, ttl_s, [first], keyspace.tablets, _hints(keyspace, place[1])
            )
            self._notify()

    def _follow(self, streams: TableStreams, keyspace: Keyspace, altered: TableSchema, now_us: int) -> None:
        """Follow an altered table, log or keyspace: one doubling or halving after the other, as Scylla resizes tables.

        Only what was altered counts: a node that joins, or a split by hand, is no reason to resize.
        """
        ttl_s = streams.ttl_s if altered.cdc is None else altered.cdc.ttl
        # Only of the altered one: at the start, the other may not be there yet.
        hints = list(streams.hints)
        hints[altered.is_cdc_log] = altered.options.get("tablets", {})
        asked = (keyspace.tablets, hints)
        has_new_hints = asked != (streams.initial, streams.hints)
        if not has_new_hints and ttl_s == streams.ttl_s:
            return
        streams.ttl_s, (streams.initial, streams.hints) = ttl_s, asked
        wanted = tablets_for(keyspace, hints, self._shards()) if has_new_hints else streams.tablets
        while (count := streams.tablets) != wanted:
            # Each is in use for some time before the next.
            start_ms = max(now_us // 1000 + self._delay_ms, streams.sets[-1].time_ms + LEEWAY_US // 1000)
            self._append(streams, start_ms, count * 2 if count < wanted else count // 2)
        self._notify()

    def table_dropped(self, table: TableSchema) -> None:
        """Follow a dropped table: the sets go with the log."""
        place = (table.keyspace, table.cdc_base or "")
        known = self._tables.get(place)
        if table.is_cdc_log and known is not None and known.log_id == table.id:
            del self._tables[place]
            self._notify()

    # ------------------------------------------------------------ split, merge, garbage

    def resize(self, keyspace: str, table: str, factor: float, now_us: int, delay_ms: int | None = None) -> StreamSet:
        """Split (``factor`` 2) or merge (0.5) all tablets of a table; return the new set.

        It starts at ``now + 2 * ring_delay + 5 s``, or ``delay_ms`` after now; in any case after the set before it.
        With a delay of less than five seconds, writes stamped ahead of the server's clock may lie behind the start.

        Raises:
            ValueError: There is no such table with a log and tablets, or the number of tablets is not possible.
        """
        streams = self.of(keyspace, table)
        if streams is None:
            raise ValueError(f"{keyspace}.{table} is no table with a CDC log in a keyspace with tablets")
        count = int(streams.tablets * factor)
        if not 1 <= count <= MOST_TABLETS:
            raise ValueError(f"{keyspace}.{table} cannot have {count} tablets, only 1 to {MOST_TABLETS}")
        if delay_ms is None:
            delay_ms = self._delay_ms
        elif delay_ms < 0:
            raise ValueError(f"a stream set cannot start in the past; the delay is {delay_ms} ms")
        # At least the next millisecond: records of the present one are already in the old streams.
        time_ms = max(now_us // 1000 + max(delay_ms, 1), streams.sets[-1].time_ms + 1)
        self._append(streams, time_ms, count)
        self._notify()
        return streams.sets[-1]

    def _append(self, streams: TableStreams, time_ms: int, tablets: int) -> None:
        # All ids are new, as in Scylla, even those of tablets that stay as they are.
        streams.sets.append(StreamSet.make(time_ms, tablets, self._random_bits))

    def collect(self, now_us: int) -> None:
        """Drop the sets whose rows have all expired, if the last look at that is a minute ago.

        A set goes once its successor's time is the TTL ago: by the TTL of now, whatever rows were written with.
        """
        # "0 <=": a clock that was set back must not put the next look off.
        if self._collected_us is not None and 0 <= now_us - self._collected_us < _COLLECT_EVERY_US:
            return
        self._collected_us = now_us
        for streams in self:
            if not streams.ttl_s:
                continue
            oldest_ms = (now_us - streams.ttl_s * 1_000_000) // 1000
            gone = sum(1 for each in streams.sets[1:] if each.time_ms <= oldest_ms)
            if gone:
                del streams.sets[:gone]
                self._notify()

    # ------------------------------------------------------------ keeping

    def state(self) -> list[Any]:
        """Return all sets as plain values, for ``restore``."""
        return [
            (
                *(t.keyspace, t.table, t.log_id.bytes, t.ttl_s, [(s.time_ms, s.streams) for s in t.sets]),
                *(t.initial, t.hints),
            )
            for t in self
        ]

    def restore(self, state: list[Any]) -> None:
        """Become what ``state`` was taken of; ``changed`` is not called. Known logs then keep their sets."""
        self._tables = {
            (keyspace, table): TableStreams(
                keyspace,
                table,
                uuid.UUID(bytes=log_id),
                ttl_s,
                [StreamSet(time_ms, tuple(streams), last_tokens(len(streams))) for time_ms, streams in sets],
                initial,
                list(hints),
            )
            for keyspace, table, log_id, ttl_s, sets, initial, hints in state
        }
        self.version += 1

    def _notify(self) -> None:
        self.version += 1
        self._changed()


def _hints(keyspace: Keyspace, table: str) -> list[dict[str, str]]:
    """Return the hints of a base table and of its log."""
    tables = (keyspace.tables.get(name) for name in (table, table + LOG_SUFFIX))
    return [{} if each is None else each.options.get("tablets", {}) for each in tables]
