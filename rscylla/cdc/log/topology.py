"""The generations of a table's log, and the streams of each generation."""

from __future__ import annotations

import copy
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol, Self

import attrs

from ..._timeuuid import format_time
from ..._tokens import LAST, LEAST, token_of, vnode_of
from ...driver import ReadSession
from ...errors import MetadataError, NoStreams, QueryFailed

__all__ = [
    "Generation",
    "LegacyTopology",
    "Model",
    "Range",
    "TabletTopology",
    "Topology",
    "VnodeTopology",
    "generation_at",
    "schema_has",
    "topology_for",
]

log = logging.getLogger("rscylla")

Model = Literal["vnodes", "tablets"]

FIRST_SET_US = 10_000_000
"""The first stream set of a tablets table is at most this much older than its log; in Scylla, 5 s."""

_OLD = "cdc_streams_descriptions"
_NEW = "cdc_generation_timestamps"


@attrs.frozen
class Generation:
    """A set of streams that is in use from ``time`` (ms since the epoch) until the next generation's."""

    time: int

    @property
    def start_us(self) -> int:
        return self.time * 1000

    def __str__(self) -> str:
        return format_time(self.start_us)


class Topology(Protocol):
    """The generations of one table. Implementations are thread-safe.

    Generation times are read before stream sets: a set is complete once its time is visible.
    """

    model: Model
    """What the keys are divided by, and the streams with them."""

    owner: Literal["cluster", "table"]
    """Whether all tables of the cluster share the generations, or each table has its own."""

    forgets: bool
    """Whether a generation leaves the list when all its rows have expired."""

    def generations(self) -> tuple[Generation, ...]:
        """Return all generations, sorted by time. Blocks on queries."""

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        """Return the generation's stream ids in ascending order of token. Blocks on a query, unless they are cached.

        Raises:
            NoStreams: the set is empty, missing, or incomplete.
        """

    def using(self, session: ReadSession) -> Self:
        """Return the same topology, with what it knows; *session* is asked from now on."""

    def oldest_of(self, log_created_us: int) -> int | None:
        """Return the earliest possible start of a generation of a log created at *log_created_us*; None if unknown."""

    def vnodes(self, streams: Sequence[bytes]) -> int | None:
        """Return the number of vnodes of a generation's streams; None if the stream ids do not contain it."""

    def ranges(self, streams: Sequence[bytes]) -> Iterable[Range]:
        """Return the streams of a generation with the tokens that their keys may have, in ascending order of token."""


Range = tuple[Sequence[bytes], int, int]
"""Some streams, and the tokens of their keys: above the first number, up to the second; if both are equal, all."""


class _StreamSets:
    """Caches the last few stream sets; a reader goes through generations one after the other. Thread-safe."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._streams: dict[int, tuple[bytes, ...]] = {}

    def get(self, generation: Generation, read: Callable[[], Iterable[bytes]]) -> tuple[bytes, ...]:
        with self._lock:
            known = self._streams.get(generation.time)
        if known is not None:
            return known
        ids = {bytes(stream) for stream in read()}
        if not ids:
            raise NoStreams(
                f"the CDC generation of {generation} has no streams; its description may not have reached this "
                "replica yet, try again"
            )
        # Signed token order, which is the order of full scans and keeps the streams of a vnode together.
        found = tuple(sorted(ids, key=lambda s: (token_of(s), s)))
        with self._lock:
            self._streams[generation.time] = found
            while len(self._streams) > self._most:
                del self._streams[next(iter(self._streams))]
        return found


def _sorted(rows: Iterable[tuple[Any, ...]]) -> tuple[Generation, ...]:
    # Sorted here, because the tables are clustered newest first or not at all.
    return tuple(Generation(t) for t in sorted({row[0] for row in rows}))


def _whole(streams: list[bytes], generation: Generation) -> list[bytes]:
    """Return *streams* if they include all vnodes up to the highest, as a complete generation does.

    The rows of a generation are written before its time is listed, so rows are missing only if replicas lost them. To
    read without their streams would silently lose changes. Ids of an early form do not contain the vnode.

    Raises:
        NoStreams: the streams of some vnodes are missing.
    """
    vnodes = {vnode for stream in streams if (vnode := vnode_of(stream)) is not None}
    if vnodes and len(vnodes) <= max(vnodes):
        raise NoStreams(
            f"the CDC generation of {generation} lacks the streams of {max(vnodes) + 1 - len(vnodes)} of its "
            f"{max(vnodes) + 1} vnodes; try again, and if that does not help, repair the keyspace system_distributed"
        )
    return streams


def _closes(vnodes: list[tuple[int, set[int]]]) -> bool:
    """Return whether no vnodes are missing after the last one, as far as the tokens show it.

    The first vnode begins where the last one ends, and in Scylla one stream of a vnode has the first token after the
    preceding vnode. If that is true for all other vnodes, it must be true for the first one, too. If not, the tokens
    were chosen in another way and prove nothing. Source: Scylla ``cdc/generation.cc``, ``dht/i_partitioner.cc``.

    Args:
        vnodes: the last token of each vnode, and the tokens of its streams.
    """
    ring = sorted(vnodes, key=lambda vnode: vnode[0])
    begins = [_token_after(ring[i - 1][0]) in tokens for i, (_, tokens) in enumerate(ring)]
    return len(ring) < 2 or begins[0] or not all(begins[1:])


def _token_after(token: int) -> int:
    # No key has the smallest token, and no stream has the largest one.
    return token + 1 if token + 1 < LAST else LEAST + 1


class _ClusterTopology:
    """The common part of the topologies of vnode keyspaces, whose generations belong to the cluster.

    The token of a stream is the first token of one of a node's shards in the vnode, so any stream of a vnode may have
    any of its keys. The ids do not contain the start of a vnode, so its range is assumed to begin after the last stream
    token of the preceding vnode. Source: Scylla ``cdc/generation.cc``.
    """

    model: Model = "vnodes"
    owner: Literal["cluster", "table"] = "cluster"
    forgets = False
    _session: ReadSession

    def using(self, session: ReadSession) -> Self:
        same = copy.copy(self)
        same._session = session  # noqa: SLF001 - a copy of this object
        return same

    def oldest_of(self, log_created_us: int) -> int | None:
        return None

    def vnodes(self, streams: Sequence[bytes]) -> int | None:
        found = {vnode_of(stream) for stream in streams}
        return None if None in found else len(found)

    def ranges(self, streams: Sequence[bytes]) -> Iterable[Range]:
        vnodes: dict[int | None, list[bytes]] = {}
        for stream in streams:
            vnodes.setdefault(vnode_of(stream), []).append(stream)
        spans = _in_ring_order(vnodes)
        if spans is None:
            yield streams, 0, 0  # ids of an early form do not contain the vnode: any stream may have any key
            return
        for at, (members, _, _) in enumerate(spans):
            _, _, last_before = spans[at - 1]
            _, first_after, _ = spans[(at + 1) % len(spans)]
            yield members, last_before, first_after - 1


def _in_ring_order(vnodes: Mapping[int | None, Sequence[bytes]]) -> list[tuple[Sequence[bytes], int, int]] | None:
    """Return each vnode's streams with their first and last token, in ring order; None if they are not in order.

    The first vnode wraps around the end of the ring, so some of its tokens may be above all others.
    """
    if None in vnodes or len(vnodes) < 2:
        return None
    ranked = [vnodes[v] for v in sorted(v for v in vnodes if v is not None)]
    second = token_of(ranked[1][0])
    first = ranked[0]
    above = [s for s in first if token_of(s) >= second]
    ordered = [*above, *(s for s in first if token_of(s) < second)]
    spans = [(s, token_of(s[0]), token_of(s[-1])) for s in (ordered, *ranked[1:])]
    inner = spans[1:]
    rising = all(a[2] < b[1] for a, b in pairwise(inner))
    outside = all(token_of(s) < second for s in ordered[len(above) :]) and all(
        token_of(s) > inner[-1][2] for s in above
    )
    return spans if rising and outside else None


class VnodeTopology(_ClusterTopology):
    """Generations of a vnode keyspace of Scylla 4.4 and later: ``cdc_generation_timestamps``, and streams by vnode.

    Source: Scylla ``docs/dev/cdc.md``; tables of ``system_distributed``.
    """

    def __init__(self, session: ReadSession) -> None:
        self._session = session
        self._kept = _StreamSets()

    def generations(self) -> tuple[Generation, ...]:
        return _sorted(
            self._session.rows(
                "SELECT toUnixTimestamp(time) FROM system_distributed.cdc_generation_timestamps "
                "WHERE key = 'timestamps'",
                doing="reading the CDC generations",
            )
        )

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        return self._kept.get(generation, lambda: self._read(generation))

    def _read(self, generation: Generation) -> list[bytes]:
        rows = self._session.rows(
            "SELECT streams, range_end FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = %s",
            (generation.time,),
            doing="reading the streams of a CDC generation",
        )
        found = _whole([stream for row in rows for stream in row[0] or ()], generation)
        if not _closes([(end, {token_of(bytes(stream)) for stream in ids or ()}) for ids, end in rows]):
            raise NoStreams(
                f"the CDC generation of {generation} lacks the streams of its last vnodes; try again, and if that does "
                "not help, repair the keyspace system_distributed"
            )
        return found


class LegacyTopology(_ClusterTopology):
    """Generations of Scylla 4.3 in ``cdc_streams_descriptions``, also during and after the upgrade to 4.4.

    The upgrade creates the new tables and copies the old generations to them. ``system.cdc_local`` has the key
    ``rewritten`` when all are copied; from then on, only the new tables are read. Until then, both are read, because
    generations created in between are only in the new tables, and the copying can be switched off.
    """

    def __init__(self, session: ReadSession) -> None:
        self._session = session
        self._kept = _StreamSets()
        self._new = VnodeTopology(session)
        self._listed: frozenset[Generation] = frozenset()
        self._in_new: frozenset[Generation] = frozenset()
        self._has_moved = False

    def using(self, session: ReadSession) -> Self:
        same = super().using(session)
        same._new = self._new.using(session)  # noqa: SLF001 - a copy of this object
        return same

    def generations(self) -> tuple[Generation, ...]:
        if not self._has_moved:
            old = self._old_generations()
            if old is not None:
                return old
            log.info("the descriptions of the CDC generations have moved to the tables of Scylla 4.4")
            self._has_moved = True
        return self._new.generations()

    def _old_generations(self) -> tuple[Generation, ...] | None:
        """Return the generations of the old and new tables; None if only the new tables count."""
        described = _description_tables(self._session)
        if _OLD not in described:
            return None
        has_new = _NEW in described
        if has_new and self._is_rewritten():
            return None
        try:
            found = self._session.rows(
                f"SELECT toUnixTimestamp(time) FROM system_distributed.{_OLD}", doing="reading the CDC generations"
            )
        except QueryFailed:
            if _OLD in _description_tables(self._session):
                raise
            return None  # the table has just been removed, as operators may do after an upgrade
        newer = self._new.generations() if has_new else ()
        listed = _sorted([*found, *((g.time,) for g in newer)])
        self._in_new, self._listed = frozenset(newer), frozenset(listed)
        return listed

    def _is_rewritten(self) -> bool:
        return bool(
            self._session.rows(
                "SELECT key FROM system.cdc_local WHERE key = 'rewritten'",
                doing="asking whether the CDC generations were rewritten",
            )
        )

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        if not self._has_moved and generation not in self._listed:
            self.generations()  # listed by another process, and only the list shows which tables describe it
        if self._has_moved or generation in self._in_new:
            return self._new.streams(generation)
        try:
            return self._kept.get(generation, lambda: self._read(generation))
        except QueryFailed:
            if _OLD in _description_tables(self._session):
                raise
            return self._new.streams(generation)

    def _read(self, generation: Generation) -> list[bytes]:
        rows = self._session.rows(
            f"SELECT streams FROM system_distributed.{_OLD} WHERE time = %s",
            (generation.time,),
            doing="reading the streams of a CDC generation",
        )
        return _whole([stream for row in rows for stream in row[0] or ()], generation)


class TabletTopology:
    """Stream sets of one table in a tablets keyspace; each split or merge of its tablets creates a new set.

    The virtual tables ``system.cdc_timestamps`` and ``system.cdc_streams`` list a set as soon as it is decided, a
    minute before it is used, and drop it when its rows have expired. A stream has the last token of its tablet.
    Source: Scylla ``docs/dev/cdc.md``.
    """

    model: Model = "tablets"
    owner: Literal["cluster", "table"] = "table"
    forgets = True

    def __init__(self, session: ReadSession, keyspace: str, table: str) -> None:
        self._session = session
        self._table = (keyspace, table)
        self._kept = _StreamSets()

    def using(self, session: ReadSession) -> Self:
        same = copy.copy(self)
        same._session = session  # noqa: SLF001 - a copy of this object
        return same

    def generations(self) -> tuple[Generation, ...]:
        return _sorted(
            self._session.rows(
                "SELECT toUnixTimestamp(timestamp) FROM system.cdc_timestamps "
                "WHERE keyspace_name = %s AND table_name = %s",
                self._table,
                doing="reading the CDC stream sets",
            )
        )

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        return self._kept.get(generation, lambda: self._read(generation))

    def _read(self, generation: Generation) -> list[bytes]:
        # State 0 has all streams of the set; states 1 and 2 have those closed and opened since the preceding set.
        rows = self._session.rows(
            "SELECT stream_id FROM system.cdc_streams "
            "WHERE keyspace_name = %s AND table_name = %s AND timestamp = %s AND stream_state = 0",
            (*self._table, generation.time),
            doing="reading the streams of a CDC stream set",
        )
        return [row[0] for row in rows]

    def oldest_of(self, log_created_us: int) -> int | None:
        return log_created_us - FIRST_SET_US

    def vnodes(self, streams: Sequence[bytes]) -> int | None:
        return None

    def ranges(self, streams: Sequence[bytes]) -> Iterable[Range]:
        # The first tablet also gets the tokens above the last one; there are no keys with such tokens.
        for at, stream in enumerate(streams):
            yield [stream], token_of(streams[at - 1]), token_of(stream)


def topology_for(session: ReadSession, keyspace: str, table: str) -> Topology:
    """Return the topology of a table's streams, as the schema shows it. Blocks on queries.

    Raises:
        MetadataError: the cluster has no tables of CDC generations.
    """
    if schema_has(session, "scylla_keyspaces", "initial_tablets"):
        rows = session.rows(
            "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = %s",
            (keyspace,),
            doing=f"looking at keyspace {keyspace}",
        )
        if rows and rows[0][0] is not None:  # usually 0: the server chooses the number of tablets
            return TabletTopology(session, keyspace, table)
    described = _description_tables(session)
    if _OLD in described:
        return LegacyTopology(session)
    if _NEW in described:
        return VnodeTopology(session)
    raise MetadataError(
        f"the cluster has neither system_distributed.{_NEW} nor {_OLD}; check that it is ScyllaDB 4.3 or "
        "later, with CDC"
    )


def schema_has(session: ReadSession, table: str, column: str) -> bool:
    """Return whether *table* of ``system_schema`` has *column*, which not all versions of Scylla have. Blocks."""
    cql = (
        "SELECT column_name FROM system_schema.columns "
        "WHERE keyspace_name = 'system_schema' AND table_name = %s AND column_name = %s"
    )
    return bool(session.rows(cql, (table, column), doing="looking at the schema tables"))


def _description_tables(session: ReadSession) -> set[str]:
    rows = session.rows(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'",
        doing="looking for the CDC description tables",
    )
    return {row[0] for row in rows}


def generation_at(generations: Sequence[Generation], time_us: int) -> int:
    """Return the index of the generation in use at *time_us*; -1 if that is before the first one."""
    return bisect_right(generations, time_us, key=lambda g: g.start_us) - 1
