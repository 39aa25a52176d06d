"""How a server's data outlives its process: a log of all changes, replayed at the start, and snapshots of it.

What is chosen, and why. All data is in memory already, so the disk is never read but at the start, and an append-only
log of checksummed records is all it takes: one ``writev`` per request. That is about 20 us a write, a fifth of what
the server takes for one; SQLite alone takes 40 us for the same bytes as rows (`benchmarks/durability.py`). A log of our
own tells a write that was cut short (the rest is cut off) from damage (an error), where SQLite's write-ahead log drops
everything after a bad frame without a word; and it replays in the order in which things happened, schema changes among
the writes.

A record is handed to the operating system before the change is applied and the client answered: a killed process loses
nothing that a client was told. A machine that goes down may lose the last seconds, unless ``sync`` makes each write
wait for the disk.

Snapshots are made beside the writes, a piece with each of them, so that no client waits long. A piece shows rows as
they are when it is made, which may be later than the snapshot's start; replaying the log from that start over it gives
the same again, for writes carry their timestamps and the newest wins in whichever order they come. Schema changes are
not like that, so one of them ends a snapshot that is under way, and the next write starts another.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..engine.engine import Engine
from ..engine.writes.writing import LoggedRecord
from ..errors import ServerError
from ..result import SchemaChange
from ..schema.tables import TableSchema
from ..storage.mutation import PartitionMutation
from ..storage.packed import PackedPartition
from ..storage.partitions import TableStore
from ..storage.reconcile import NEVER
from .datadir import DataDir, Snapshot
from .records import DataDirError
from .statecodec import (
    keyspace_of,
    keyspace_state,
    mutation_of,
    mutation_state,
    pack,
    table_of,
    table_state,
    type_of,
    type_state,
    unpack,
)

__all__ = ["COMPACT_BYTES", "Durable"]

log = logging.getLogger("rscylla.embedded")

COMPACT_BYTES: Final = 64 * 1024 * 1024
"""Log bytes after which a snapshot is made; more when the last snapshot was larger than that."""

_ROWS_A_PIECE: Final = 128
_SNAPSHOT_SHARE: Final = 4  # bytes made for each byte logged: done when the log has grown by a quarter of the snapshot
_SNAPSHOT_LEAST: Final = 4096  # bytes made with each write, so that small writes get it done, too

# The first value of each record tells what it is.
_TOPOLOGY: Final = "topology"
_SCHEMA: Final = "schema"
_WRITE: Final = "write"
_TRUNCATE: Final = "truncate"


class Durable:
    """Keeps an engine and its cluster in a directory. Used on the server's loop thread only.

    Args:
        path: The directory; made when it is not there.
        engine: What to keep. ``open`` replaces all that it holds.
        sync: Wait for the disk with each write.
        compact_bytes: See ``COMPACT_BYTES``.
        skip_broken: Open without the records that cannot be replayed, and leave them out for good.
    """

    def __init__(
        self,
        path: Path,
        engine: Engine,
        *,
        sync: bool = False,
        compact_bytes: int = COMPACT_BYTES,
        skip_broken: bool = False,
    ) -> None:
        self.path = path
        self._engine = engine
        self._cluster = engine.cluster
        self._is_sync = sync
        self._compact_bytes = compact_bytes
        self._skip_broken = skip_broken
        self._last = 0  # bytes of the last record of a write
        self._dir: DataDir | None = None
        self._failed = False
        self._in_schema = False  # while a schema statement is carried out
        self._has_new_topology = False  # whether that statement has changed stream sets
        self._since = 0  # bytes in the logs that no snapshot stands for
        self._kept = 0  # bytes of the last snapshot
        self._broken = 0  # records that could not be replayed
        self._snapshot: Snapshot | None = None
        self._pieces: Iterator[Any] = iter(())

    # ------------------------------------------------------------ life

    def open(self) -> bool:
        """Make the engine hold what the directory holds, and write down all that changes from now on.

        Returns whether there was anything: an empty directory takes the cluster as it is.
        Raises DataDirError when the directory is in use, damaged, or cannot be written, and EmbeddedScyllaError when
        it has a cluster of another release than the one that was asked for.
        """
        directory = DataDir(self.path, sync=self._is_sync)
        try:
            was_there = self._load(directory)
            if was_there:
                self._cluster.check_restored(f"the data directory {self.path}")
            if self._broken:
                self._leave_out_broken(directory)
            if not was_there:
                directory.append(pack((_TOPOLOGY, self._cluster.state())))
        except OSError as error:
            directory.close()
            raise DataDirError(f"the data directory {self.path} cannot be used: {error.strerror}") from error
        except BaseException:
            directory.close()
            raise
        self._dir = directory
        self._failed = False
        # Only now: what is replayed must not be written down again.
        self._engine.writer.journal = self
        self._cluster.listeners.append(self._topology_changed)
        return was_there

    def close(self) -> None:
        """Stop writing down, and let others use the directory. The disk then has everything. Harmless when closed."""
        directory, self._dir = self._dir, None
        if directory is None:
            return
        self._engine.writer.journal = None
        self._cluster.listeners.remove(self._topology_changed)
        self._drop_snapshot()
        try:
            directory.flush()
        except OSError as error:
            log.warning("the data directory %s could not be flushed: %s", self.path, error.strerror)
        finally:
            directory.close()

    # ------------------------------------------------------------ loading

    def _load(self, directory: DataDir) -> bool:
        """Replay all records; return whether there were any. The first one ever written is the cluster's."""
        self._since = 0
        found = False
        for record in directory.records():
            self._since += len(record)
            try:
                kind, *content = unpack(record)
                if kind == _TOPOLOGY:
                    self._replay_cluster(content[0], is_first=not found)
                    found = True
                else:
                    self._replay(kind, content)
            except Exception as error:  # noqa: BLE001 - whatever a record of another version, or by hand, may cause
                # Its checksum was right, so this is how it was written.
                self._report_broken(directory.place, error, is_first=not found)
        self._kept = directory.snapshot_size
        # The snapshot's records were counted with those of the logs.
        self._since = max(0, self._since - self._kept)
        # A new directory, or one whose first record was never finished: nothing is kept of what memory held.
        if not found:
            self._engine.clear()
        self._engine.writer.sweep()
        return found

    def _report_broken(self, place: str, error: Exception, *, is_first: bool) -> None:
        """Raise DataDirError, unless the record may be left out. Nothing could be kept without the cluster's."""
        if self._skip_broken and not is_first:
            self._broken += 1
            log.error("%s, cannot be replayed (%s), and is left out", place, type(error).__name__)
            return
        offer = (
            ", or open the directory once with skip_broken=True (rscylla serve --skip-broken) to leave out the record"
        )
        raise DataDirError(
            f"{place}, cannot be replayed ({type(error).__name__}): use the version that wrote it"
            f"{'' if is_first else offer}"
        ) from error

    def _leave_out_broken(self, directory: DataDir) -> None:
        """Let a snapshot of what was replayed take the place of the log, so that it opens the next time."""
        snapshot = directory.begin_snapshot()
        for piece in self._all_pieces():
            snapshot.append(pack(piece))
        directory.keep(snapshot)
        self._kept, self._since, self._broken = snapshot.size, 0, 0

    def _replay_cluster(self, state: Any, *, is_first: bool) -> None:
        """Become the cluster of that time. The system tables are those of its version, which an upgrade changes."""
        before = self._cluster.release
        self._cluster.restore(state)
        if is_first:
            self._engine.clear()
        elif self._cluster.release != before:
            self._engine.install_system_tables()

    def _replay(self, kind: str, content: Sequence[Any]) -> None:
        stores = self._engine.stores
        if kind == _WRITE:
            mutations, rows = content
            for state in mutations:
                store = stores[state[0], state[1]]
                store.apply(mutation_of(state, store.table))
            for keyspace, name, wire, stamp in rows:
                _append_row(stores[keyspace, name], wire, stamp)
        elif kind == _SCHEMA:
            version, items, topology = content
            if topology is not None:
                self._cluster.restore(topology)
            for item in items:
                self._replay_schema(*item)
            self._engine.schema.version = uuid.UUID(bytes=version)
        elif kind == _TRUNCATE:
            stores[content[0], content[1]].truncate()
        else:
            raise LookupError(f"no record is of kind {kind!r}")

    def _replay_schema(self, what: str, keyspace: str, content: Any) -> None:
        """Follow one item of a schema record. Items say how things are, so the same one again changes nothing."""
        keyspaces = self._engine.schema.keyspaces
        if what == "keyspace":
            known = keyspaces.get(keyspace)
            made = keyspaces[keyspace] = keyspace_of(content)
            if known is not None:
                made.tables, made.types = known.tables, known.types
        elif what == "no keyspace":
            gone = keyspaces.pop(keyspace, None)
            for table in () if gone is None else gone.tables.values():
                self._engine.table_dropped(table)
        elif what == "types":
            keyspaces[keyspace].types = {name: type_of(state) for name, state in content.items()}
        elif what == "table":
            table = table_of(content)
            keyspaces[keyspace].tables[table.name] = table
            self._engine.table_changed(table)
        else:
            found = keyspaces[keyspace].tables.pop(content, None)
            if found is not None:
                self._engine.table_dropped(found)

    # ------------------------------------------------------------ writing down

    def wrote(self, mutations: Iterable[PartitionMutation], records: Sequence[LoggedRecord]) -> None:
        """Write down one request's edits, before they are applied. Raises ServerError; nothing was written then."""
        states = [mutation_state(mutation) for mutation in mutations]
        logged = [
            (store.table.keyspace, store.table.name, wire, stamp)
            for store, _, _, wires, stamp in records
            for wire in wires
        ]
        self._last = 0
        if not states and not logged:
            return
        payload = pack((_WRITE, states, logged))
        self._move_snapshot(len(payload))
        self._last = self._append(payload)

    def take_back(self) -> None:
        """Remove the record of the last write, which could not be applied and would not be when it is replayed."""
        if self._last:
            assert self._dir is not None
            try:
                self._dir.take_back(self._last)
            except OSError as error:
                # The disk is ahead of memory until the next start.
                self._failed = True
                raise ServerError(f"the data directory {self.path} cannot be written: {error.strerror}") from error
            self._since -= self._last
            self._last = 0

    def truncated(self, table: TableSchema) -> None:
        self._append(pack((_TRUNCATE, table.keyspace, table.name)))

    def schema_changing(self) -> None:
        self._in_schema = True

    def schema_changed(self, changes: Sequence[SchemaChange]) -> None:
        """Write down what the schema now holds, and the stream sets that came or went with tables.

        When that fails, memory is ahead of the disk: writes end.
        """
        self._in_schema = False
        has_new_topology, self._has_new_topology = self._has_new_topology, False
        if not changes and not has_new_topology:
            return
        self._drop_snapshot()
        items: list[Any] = []
        for change in changes:
            items += self._schema_items(change)
        topology = self._cluster.state() if has_new_topology else None
        self._append_or_fail(pack((_SCHEMA, self._engine.schema.version.bytes, items, topology)))

    def _schema_items(self, change: SchemaChange) -> Iterator[Any]:
        keyspace = self._engine.schema.keyspaces.get(change.keyspace)
        if keyspace is None:
            yield ("no keyspace", change.keyspace, None)
        elif change.target == "KEYSPACE":
            yield ("keyspace", keyspace.name, keyspace_state(keyspace))
        elif change.target == "TYPE":
            # All of them: an altered type shows in those that are made of it.
            yield ("types", keyspace.name, {name: type_state(kind) for name, kind in keyspace.types.items()})
        elif change.name in keyspace.tables:
            yield ("table", keyspace.name, table_state(keyspace.tables[change.name]))
        else:
            yield ("no table", keyspace.name, change.name)

    def _topology_changed(self) -> None:
        # One record for the table and its streams, so that a crash cannot leave one without the other.
        if self._in_schema:
            self._has_new_topology = True
            return
        self._append_or_fail(pack((_TOPOLOGY, self._cluster.state())))

    def _append_or_fail(self, payload: bytes) -> None:
        try:
            self._append(payload)
        except ServerError:
            self._failed = True
            raise

    def _append(self, payload: bytes) -> int:
        if self._failed:
            raise ServerError(
                f"the data directory {self.path} differs from memory since an earlier change that could not be written;"
                " restart the server"
            )
        assert self._dir is not None
        try:
            length = self._dir.append(payload)
        except OSError as error:
            raise ServerError(
                f"the data directory {self.path} cannot be written: {error.strerror or error}; nothing was changed"
            ) from error
        self._since += length
        return length

    # ------------------------------------------------------------ snapshots

    def _move_snapshot(self, written: int) -> None:
        """Make a piece of the snapshot under way, or start one. Called before a write is logged: a new log has it."""
        try:
            if self._snapshot is None:
                if self._since < max(self._compact_bytes, self._kept):
                    return
                self._begin_snapshot()
            self._make_pieces(written * _SNAPSHOT_SHARE + _SNAPSHOT_LEAST)
        except OSError as error:
            log.warning("no snapshot could be made in %s, the log goes on: %s", self.path, error.strerror)
            self._drop_snapshot()
            self._since = 0  # the next attempt comes after as many bytes again

    def _begin_snapshot(self) -> None:
        assert self._dir is not None
        self._snapshot = self._dir.begin_snapshot()
        self._pieces = self._all_pieces()
        self._since = 0

    def _make_pieces(self, most: int) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        assert self._dir is not None
        made = 0
        for piece in self._pieces:
            made += snapshot.append(pack(piece))
            if made >= most:
                return
        self._dir.keep(snapshot)
        self._kept = snapshot.size
        self._snapshot = None
        log.info("a snapshot of %d bytes takes the place of the log in %s", snapshot.size, self.path)

    def _drop_snapshot(self) -> None:
        """Give up the snapshot under way, if there is one. The logs stay, so nothing is lost."""
        snapshot, self._snapshot = self._snapshot, None
        self._pieces = iter(())
        if snapshot is not None:
            snapshot.discard()

    def _all_pieces(self) -> Iterator[Any]:
        """Yield records that make the present state; it may change between two of them, but not the schema."""
        engine = self._engine
        yield (_TOPOLOGY, self._cluster.state())
        items: list[Any] = []
        for keyspace in engine.schema.keyspaces.values():
            if keyspace.name in engine.protected:
                continue
            items.append(("keyspace", keyspace.name, keyspace_state(keyspace)))
            items.append(("types", keyspace.name, {name: type_state(kind) for name, kind in keyspace.types.items()}))
            items += [("table", keyspace.name, table_state(table)) for table in keyspace.tables.values()]
        yield (_SCHEMA, engine.schema.version.bytes, items, None)
        # Copies of both lists: clients write between two pieces.
        for store in list(engine.stores.values()):
            for key in list(store.partitions):
                yield from self._partition_pieces(store, key)

    def _partition_pieces(self, store: TableStore, key: Any) -> Iterator[Any]:
        """Yield a partition in pieces. It may change its form, or go, between two of them."""
        last: Any = None
        while True:
            partition = store.get(key)
            if partition is None:
                return
            # By position, not by index: rows may have come or gone since the last piece.
            at = 0 if last is None else partition.find_after(last)
            end = at + _ROWS_A_PIECE
            if isinstance(partition, PackedPartition):
                now_s = self._engine.clock.now_us() // 1_000_000
                rows = [
                    (store.table.keyspace, store.table.name, wire, stamp)
                    for wire, stamp in partition.entries(at, end)
                    if stamp[2] is None or stamp[2] > now_s
                ]
                if rows:
                    yield (_WRITE, [], rows)
            else:
                mutation = PartitionMutation(store.table, key, rows=dict(partition.entries(at, end)))
                # What is not a row goes with the first piece.
                if last is None:
                    mutation.static_row = partition.static
                    mutation.range_tombstones = partition.ranges.as_list()
                    mutation.partition_tombstone = None if partition.tombstone == NEVER else partition.tombstone
                yield (_WRITE, [mutation_state(mutation)], [])
            if end >= len(partition):
                return
            last = partition.position(end - 1)


def _append_row(store: TableStore, wire: bytes, stamp: Any) -> None:
    """Put a CDC log row in, whose keys are the first cells of its wire bytes."""
    depth = len(store.table.partition_key)
    keys: list[bytes] = []
    at = 0
    for _ in range(depth + len(store.table.clustering_key)):
        end = at + 4 + int.from_bytes(wire[at : at + 4], "big")
        keys.append(wire[at + 4 : end])
        at = end
    store.append_log(tuple(keys[:depth]), tuple(keys[depth:]), wire, stamp)
