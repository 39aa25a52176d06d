"""Which generations and streams there are, what the table looks like, and what time the nodes think it is."""

from __future__ import annotations

import logging
import struct
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import attrs

from .._streamid import token_of, vnode_of
from .._timeuuid import datetime_of, format_time, ticks_of, ticks_to_us
from ..clock import Clock
from ..errors import CDCDisabled, MetadataError, NoStreams, QueryFailed, SourceError, TableNotFound
from .driver import LogSession
from .query import LOG_SUFFIX, quote_name

__all__ = [
    "BaseColumn",
    "Generation",
    "LegacyTopology",
    "Model",
    "NodeClocks",
    "TableInfo",
    "TabletTopology",
    "Topology",
    "VnodeTopology",
    "dropped_us",
    "read_log_id",
    "read_table",
    "topology_for",
]

log = logging.getLogger("rscylla")

DEFAULT_TTL_S = 86_400

SAMPLE_TIMEOUT_S = 2.0
"""A node that takes longer to tell its time is left out: reading must not wait for one that hangs."""

Model = Literal["vnodes", "tablets"]

_OLD = "cdc_streams_descriptions"
_NEW = "cdc_generation_timestamps"

_U32 = struct.Struct("<I")


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
    """What the table's streams follow."""

    forgets: bool
    """Whether generations whose rows have all expired leave the list."""

    def generations(self) -> tuple[Generation, ...]:
        """Read all generations from the cluster, sorted by time. Blocks."""

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
        """Return the generation's stream ids in ascending order of token. Read once, then kept. Blocks.

        Raises:
            NoStreams: the set is empty or not there.
        """


class _Kept:
    """The stream sets read last, by generation: a reader goes through them one after the other. Thread-safe."""

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
    # Sorted here: the tables are clustered newest first or not at all, and no order is to be relied on.
    return tuple(Generation(t) for t in sorted({row[0] for row in rows}))


def _whole(streams: list[bytes], generation: Generation) -> list[bytes]:
    """Return *streams* if they are of all vnodes up to the highest, as those of a generation are.

    The rows of a generation are written before its time is listed, so that this holds unless replicas lost some:
    reading on without those streams would lose their changes in silence. Ids of an early form name no vnode.

    Raises:
        NoStreams: those of some vnodes are missing.
    """
    vnodes = {vnode_of(stream) for stream in streams}
    known = {v for v in vnodes if v is not None}
    if known == vnodes and known and len(known) <= max(known):
        raise NoStreams(
            f"the CDC generation of {generation} lacks the streams of {max(known) + 1 - len(known)} of its "
            f"{max(known) + 1} vnodes; try again, and if that does not help, repair the keyspace system_distributed"
        )
    return streams


def _closes(vnodes: list[tuple[int, set[int]]]) -> bool:
    """Return whether no vnodes are missing behind the last one, as far as that can be told.

    The first vnode begins where the last one ends, and Scylla gives one of a vnode's streams the first token behind the
    vnode before. If that holds for all other vnodes, it has to hold for the first one, too; if it does not, the tokens
    were chosen in another way and tell nothing. Source: Scylla ``cdc/generation.cc``, ``dht/i_partitioner.cc``.

    Args:
        vnodes: the last token of each, and the tokens of its streams.
    """
    ring = sorted(vnodes, key=lambda vnode: vnode[0])
    begins = [_token_after(ring[i - 1][0]) in tokens for i, (_, tokens) in enumerate(ring)]
    return len(ring) < 2 or begins[0] or not all(begins[1:])


def _token_after(token: int) -> int:
    return token + 1 if token + 1 < 2**63 - 1 else 1 - 2**63  # the smallest token is no key's, the largest no stream's


class VnodeTopology:
    """Generations of a vnode keyspace, Scylla 4.4 and later: ``cdc_generation_timestamps`` and the streams by vnode.

    Source: Scylla ``docs/dev/cdc.md``; tables of ``system_distributed``.
    """

    model: Model = "vnodes"
    forgets = False

    def __init__(self, session: LogSession) -> None:
        self._session = session
        self._kept = _Kept()

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


class LegacyTopology:
    """Generations of Scylla 4.3 in ``cdc_streams_descriptions``, followed through the upgrade to 4.4.

    The upgrade makes the new tables and copies the old generations there; ``system.cdc_local`` says ``rewritten`` when
    all are copied, and then the new tables are all that is read. Until then both are, and what either lists counts:
    generations made meanwhile are in the new tables only, and with the copying switched off that stays so.
    """

    model: Model = "vnodes"
    forgets = False

    def __init__(self, session: LogSession) -> None:
        self._session = session
        self._kept = _Kept()
        self._new = VnodeTopology(session)
        self._in_new: frozenset[Generation] = frozenset()
        self._has_moved = False

    def generations(self) -> tuple[Generation, ...]:
        if not self._has_moved:
            old = self._old_generations()
            if old is not None:
                return old
            log.info("the descriptions of the CDC generations have moved to the tables of Scylla 4.4")
            self._has_moved = True
        return self._new.generations()

    def _old_generations(self) -> tuple[Generation, ...] | None:
        """Return what old and new tables list; None when only the new ones count any more."""
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
            return None  # it was removed just now, as may be done after an upgrade
        newer = self._new.generations() if has_new else ()
        self._in_new = frozenset(newer)
        return _sorted([*found, *((g.time,) for g in newer)])

    def _is_rewritten(self) -> bool:
        return bool(
            self._session.rows(
                "SELECT key FROM system.cdc_local WHERE key = 'rewritten'",
                doing="asking whether the CDC generations were rewritten",
            )
        )

    def streams(self, generation: Generation) -> tuple[bytes, ...]:
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
    """Stream sets of one table in a tablets keyspace; each split or merge of its tablets makes a whole new one.

    Source: Scylla ``docs/dev/cdc.md``; virtual tables ``system.cdc_timestamps`` and ``system.cdc_streams``, which list
    a set from when it is decided, a minute before it is used, and drop it when its rows have expired.
    """

    model: Model = "tablets"
    forgets = True

    def __init__(self, session: LogSession, keyspace: str, table: str) -> None:
        self._session = session
        self._table = (keyspace, table)
        self._kept = _Kept()

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
        rows = self._session.rows(
            "SELECT stream_id FROM system.cdc_streams "
            "WHERE keyspace_name = %s AND table_name = %s AND timestamp = %s AND stream_state = 0",
            (*self._table, generation.time),
            doing="reading the streams of a CDC stream set",
        )
        return [row[0] for row in rows]


def topology_for(session: LogSession, keyspace: str, table: str) -> Topology:
    """Return the topology of a table's streams, by looking at the schema. Blocks.

    Raises:
        MetadataError: the cluster describes no CDC generations.
    """
    tables = session.rows(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_schema'",
        doing="looking at the schema tables",
    )
    if ("scylla_keyspaces",) in tables:
        rows = session.rows(
            "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = %s",
            (keyspace,),
            doing=f"looking at keyspace {keyspace}",
        )
        if rows and rows[0][0] is not None:  # 0 is the usual value: as many tablets as the server likes
            return TabletTopology(session, keyspace, table)
    described = _description_tables(session)
    if _OLD in described:
        return LegacyTopology(session)
    if _NEW in described:
        return VnodeTopology(session)
    raise MetadataError(
        f"the cluster has neither system_distributed.{_NEW} nor {_OLD}; is it ScyllaDB, 4.3 or later, with CDC?"
    )


def _description_tables(session: LogSession) -> set[str]:
    rows = session.rows(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'",
        doing="looking for the CDC description tables",
    )
    return {row[0] for row in rows}


def generation_at(generations: tuple[Generation, ...], time_us: int) -> int:
    """Return the index of the generation in use at *time_us*, or -1 when that is before the first."""
    return bisect_right(generations, time_us, key=lambda g: g.start_us) - 1


# ---------------------------------------------------------------- the table


@attrs.frozen
class BaseColumn:
    """A column of the base table. ``kind``: partition_key, clustering, static or regular.

    ``descending``: a clustering column declared DESC.
    """

    name: str
    kind: str
    position: int
    type_text: str
    descending: bool = False


LOG_DROP_AHEAD_US = 5_000_000
"""Columns of a log are dropped as of this much later. Source: Scylla ``cdc/log.cc``."""


@attrs.frozen
class TableInfo:
    """A base table with CDC.

    ``log_id`` is the log table's id, which changes when it is dropped and created again. ``ttl_s`` is the TTL of log
    rows written now, 0 for none. ``enabled``: whether new writes are logged. ``dropped``: name and CQL type of columns
    that the base table had. ``renamed_us``: when a key column was renamed last, None if never: the log cannot tell the
    keys of rows from before that. ``altered_us``: when the table was created or altered last, so that all options are
    as they have been since; None if the cluster does not tell.
    """

    keyspace: str
    name: str
    log_id: uuid.UUID
    ttl_s: int
    enabled: bool
    preimage: str
    postimage: str
    columns: tuple[BaseColumn, ...]
    delta: str = "full"
    dropped: tuple[tuple[str, str], ...] = ()
    renamed_us: int | None = None
    altered_us: int | None = None

    @property
    def partition_key(self) -> tuple[BaseColumn, ...]:
        return self._keys("partition_key")

    @property
    def clustering_key(self) -> tuple[BaseColumn, ...]:
        return self._keys("clustering")

    @property
    def full_name(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    @property
    def log_created_us(self) -> int | None:
        """When the log was created, by the clock of the node that did it; None if its id does not tell.

        Source: Scylla's ``schema_builder`` makes the id of each new table from the time, and altering a table keeps it.
        """
        return ticks_to_us(ticks_of(self.log_id.bytes)) if self.log_id.version == 1 else None

    def may_lack_keys(self, start_us: int) -> bool:
        """Whether rows from *start_us* on may have had their key in a column that was renamed since."""
        return self.renamed_us is not None and start_us < self.renamed_us + LOG_DROP_AHEAD_US

    @property
    def lost_keys(self) -> str:
        """What to say of rows that lack their key."""
        assert self.renamed_us is not None
        renamed = f"{datetime_of(self.renamed_us):%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"a key column of {self.full_name} was renamed at {renamed}, and the log no longer tells the keys of "
            "changes from before that"
        )

    def _keys(self, kind: str) -> tuple[BaseColumn, ...]:
        return tuple(sorted((c for c in self.columns if c.kind == kind), key=lambda c: c.position))


def read_table(session: LogSession, keyspace: str, table: str) -> TableInfo:
    """Read what the source needs to know of a base table. Blocks.

    Raises:
        TableNotFound: there is no such keyspace or table; similar names are pointed out.
        CDCDisabled: it has no CDC log.
    """
    doing = f"looking up table {quote_name(keyspace)}.{quote_name(table)}"
    # By name: a keyspace may have thousands of tables, and this is asked again and again.
    names = sorted({table, table + LOG_SUFFIX, table.removesuffix(LOG_SUFFIX)})
    found = {
        row[0]: row[1:]
        for row in session.rows(
            "SELECT table_name, id, extensions, WRITETIME(extensions) FROM system_schema.tables "
            f"WHERE keyspace_name = %s AND table_name IN ({', '.join(['%s'] * len(names))})",
            (keyspace, *names),
            doing=doing,
        )
    }
    is_log = table.endswith(LOG_SUFFIX) and table.removesuffix(LOG_SUFFIX) in found and table + LOG_SUFFIX not in found
    if table not in found or is_log:
        raise TableNotFound(_not_found(session, keyspace, table, doing))
    options = _cdc_options((found[table][1] or {}).get("cdc"))
    log_row = found.get(table + LOG_SUFFIX)
    name = f"{quote_name(keyspace)}.{quote_name(table)}"
    if log_row is None or options is None:
        raise CDCDisabled(
            f"table {name} has no CDC log; enable it with ALTER TABLE {name} WITH cdc = {{'enabled': true}}"
        )
    columns = session.rows(
        "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table),
        doing=doing,
    )
    dropped = session.rows(
        "SELECT table_name, column_name, type, toUnixTimestamp(dropped_time) FROM system_schema.dropped_columns "
        "WHERE keyspace_name = %s AND table_name IN (%s, %s)",
        (keyspace, table, table + LOG_SUFFIX),
        doing=doing,
    )
    return TableInfo(
        keyspace,
        table,
        log_id=log_row[0],
        ttl_s=int(options.get("ttl", DEFAULT_TTL_S)),
        enabled=options.get("enabled") == "true",
        preimage=options.get("preimage", "false"),
        postimage=options.get("postimage", "false"),
        columns=tuple(BaseColumn(name, kind, at, text, order == "desc") for name, kind, at, text, order in columns),
        delta=options.get("delta", "full"),
        dropped=tuple((column, text) for of, column, text, _ in dropped if of == table),
        renamed_us=_renamed_us({column: dropped_us(told) for of, column, _, told in dropped if of != table}),
        altered_us=found[table][2],
    )


def read_log_id(session: LogSession, keyspace: str, table: str) -> uuid.UUID | None:
    """Return the id of the log of a base table, None if there is no such log. Blocks on one query."""
    found = session.rows(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, table + LOG_SUFFIX),
        doing=f"looking up table {quote_name(keyspace)}.{quote_name(table)}",
    )
    return found[0][0] if found else None


def dropped_us(told: int) -> int:
    """Return the write time of a drop, in microseconds; *told*: ``dropped_time`` as a number of milliseconds.

    Scylla puts microseconds into this column of milliseconds. Of milliseconds it is the last microsecond.
    Source: Scylla ``db/schema_tables.cc``, ``db_clock::duration(column.timestamp)``.
    """
    return told if told > _LAST_MS else told * 1000 + 999


_LAST_MS = 10**14
"""As milliseconds in the year 5138, as microseconds in 1973."""


def _renamed_us(dropped: dict[str, int]) -> int | None:
    """Return when a key column was renamed last, by the columns of the log and when they were dropped, None if never.

    A column of the key that is renamed is dropped from the log and a new one added. Other columns are dropped together
    with the one that marks their deletion, which key columns do not have.
    """
    of_keys = [
        us
        for name, us in dropped.items()
        if not name.startswith(_DELETED) and abs(dropped.get(_DELETED + name, -TOGETHER_US) - us) >= TOGETHER_US
    ]
    return max(of_keys) - LOG_DROP_AHEAD_US if of_keys else None


_DELETED = "cdc$deleted_"

TOGETHER_US = 1_000_000
"""Columns dropped by one statement have about the same time."""


def _not_found(session: LogSession, keyspace: str, table: str, doing: str) -> str:
    cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    tables = {row[0] for row in session.rows(cql, (keyspace,), doing=doing)}
    if tables:
        near = [t for t in tables if t.lower() == table.lower()]
        hint = f"did you mean {quote_name(keyspace)}.{quote_name(near[0])}?" if near else "check the name"
        if table.endswith(LOG_SUFFIX) and table.removesuffix(LOG_SUFFIX) in tables:
            hint = "name the base table, not its log"
        kind = "base table" if table in tables else "table"
        return f"keyspace {quote_name(keyspace)} has no {kind} {quote_name(table)}; {hint}"
    keyspaces = {row[0] for row in session.rows("SELECT keyspace_name FROM system_schema.keyspaces", doing=doing)}
    if keyspace in keyspaces:
        return f"keyspace {quote_name(keyspace)} has no table {quote_name(table)}; it has no tables at all"
    near = [k for k in keyspaces if k.lower() == keyspace.lower()]
    hint = f"did you mean {quote_name(near[0])}?" if near else "check the name and the cluster"
    return f"there is no keyspace {quote_name(keyspace)}; {hint}"


def _cdc_options(packed: bytes | None) -> dict[str, str] | None:
    """Decode ``extensions['cdc']``: uint32 LE count, then length-prefixed keys and values.

    Source: Scylla ``serializer_impl.hh``, which writes maps so.
    """
    if packed is None:
        return None
    try:
        (count,) = _U32.unpack_from(packed)
        at, texts = 4, []
        for _ in range(2 * count):
            (size,) = _U32.unpack_from(packed, at)
            (text,) = struct.unpack_from(f"{size}s", packed, at + 4)
            texts.append(text.decode())
            at += 4 + size
    except (struct.error, UnicodeDecodeError) as e:
        raise MetadataError("the table's CDC options cannot be read; is this Scylla newer than rscylla knows?") from e
    return dict(zip(texts[::2], texts[1::2], strict=True))


# ---------------------------------------------------------------- clocks


class NodeClocks:
    """What time it is on the nodes, sampled with ``now()`` on each. Thread-safe.

    A write without a client timestamp is stamped by its coordinator, so a node whose clock is behind writes rows that
    look old when they arrive. The slowest clock therefore decides how far windows may go.

    Between samples the nodes' time is told by the client's monotonic clock: its wall clock may be set at any moment,
    and a step forward must not close windows that are still being written.
    """

    def __init__(self, session: LogSession, clock: Clock, *, bound_us: int = 1_000_000) -> None:
        self._session = session
        self._clock = clock
        self._bound_us = bound_us
        self._told: set[str] = set()
        self._base_us = 0  # the wall clock minus the monotonic one, as of the last sample
        self._ahead_us: dict[str, int] = {}  # by address: node time minus monotonic time
        self.skew_us: dict[str, int] = {}
        """By node address: node time minus client time, microseconds, as of the last sample."""

    def sample(self) -> None:
        """Ask each node for its time. A node that does not answer keeps its last value. Blocks.

        So do all, if the driver believes all to be down: their last clocks are nearer to the truth than the client's.
        """
        ahead: dict[str, int] = {}
        skew: dict[str, int] = {}
        base_us = self._base_us = self._clock.now_us() - self._monotonic_us()
        for host in self._session.hosts():
            address = str(host.endpoint)
            asked_us = self._monotonic_us()
            try:
                rows = self._session.rows(
                    "SELECT toUnixTimestamp(now()) FROM system.local",
                    doing=f"asking node {address} for its time",
                    host=host,
                    timeout_s=SAMPLE_TIMEOUT_S,
                )
            except SourceError as e:
                log.debug("%s", e)
                if address in self._ahead_us:
                    ahead[address] = self._ahead_us[address]
                    skew[address] = ahead[address] - base_us
                continue
            # The answer was read somewhere between asking and now, cut to the millisecond: between the two bounds is
            # what the clocks may differ by. Zero counts whenever it is possible.
            node_us = rows[0][0] * 1000 - base_us
            low, high = node_us - self._monotonic_us(), node_us + 999 - asked_us
            skew[address] = low if low > 0 else min(0, high)
            ahead[address] = base_us + skew[address]
            self._report(address, skew[address])
        if not ahead:
            ahead = self._ahead_us
            skew = {address: us - base_us for address, us in ahead.items()}
        self._ahead_us, self.skew_us = ahead, skew

    def has_stepped(self) -> bool:
        """Return whether the client's wall clock was set, or the machine has slept, since the last sample."""
        return abs(self._clock.now_us() - self._monotonic_us() - self._base_us) > self._bound_us

    def slowest_us(self) -> int:
        """Return the lowest of the client's clock and all nodes', microseconds since the epoch."""
        return min(self._clock.now_us(), self.nodes_us())

    def nodes_us(self) -> int:
        """Return the lowest of the nodes' clocks; the client's while no node has told its own."""
        ahead_us = self._ahead_us
        return self._monotonic_us() + min(ahead_us.values()) if ahead_us else self._clock.now_us()

    def _monotonic_us(self) -> int:
        return round(self._clock.monotonic() * 1e6)

    def _report(self, address: str, skew_us: int) -> None:
        if abs(skew_us) <= self._bound_us:
            self._told.discard(address)
        elif address not in self._told:
            self._told.add(address)
            log.warning(
                "the clock of node %s is %+.3f s off this machine's; check time synchronisation, rows may be late",
                address,
                skew_us / 1e6,
            )
