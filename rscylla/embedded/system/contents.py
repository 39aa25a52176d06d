"""The system tables' rows, made when they are read: nodes, schema, CDC generations. They are read-only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from ..cdclog.options import extension_bytes, option_map
from ..cluster.descriptions import LEGACY_TABLE, V2_TABLES
from ..cluster.generation import Generation
from ..cluster.node import Node
from ..cluster.topology import Cluster
from ..schema.properties import DEFAULTS
from ..schema.tables import Keyspace, Schema, TableSchema
from ..storage.mutation import Cell, Key, Marker, PartitionMutation, RowMutation
from ..storage.packed import PackedPartition, join_row
from ..storage.partitions import Partition, TableStore
from ..storage.positions import position_maker
from ..storage.tokens import key_bytes, table_token
from ..types import UdtType
from .config import config_rows
from .definitions import KEYSPACES, system_tables
from .roles import role_names
from .sizes import Stores, runtime_rows, size_rows
from .traces import Traces

__all__ = ["CDC_PARTITIONER", "MURMUR3_PARTITIONER", "Serving", "SystemTables"]

MURMUR3_PARTITIONER: Final = "org.apache.cassandra.dht.Murmur3Partitioner"
CDC_PARTITIONER: Final = "com.scylladb.dht.CDCPartitioner"

_RELEASE: Final = "3.0.8"  # what Scylla says; it makes drivers read system_schema as Cassandra 3 has it
_CQL_VERSION: Final = "3.3.1"

_MADE_EACH_TIME: Final = frozenset({"clients", "protocol_servers", "size_estimates", "runtime_info"})
"""Tables of ``system`` whose rows change with clients and data."""

WRITTEN: Final = "(write time)"
"""Where a row says when it was written, in microseconds; no column has this name."""

SystemRow = dict[str, Any]


class Serving(Protocol):
    """What the wire tells of a node, by its index."""

    def clients(self, node: int) -> list[SystemRow]:
        """Return the rows of ``system.clients``, by address and port."""
        ...

    def listen_addresses(self, node: int) -> list[str]:
        """Return the node's addresses with their ports."""
        ...


class SystemTables:
    """The system keyspaces. Rows are natural Python values, encoded when a store is made of them.

    A store is kept as long as what it shows has not changed. ``serving`` is None for an engine without a wire.
    """

    serving: Serving | None = None

    def __init__(
        self, schema: Schema, cluster: Cluster, stores: Stores, users: Mapping[str, str] | None = None
    ) -> None:
        self._schema = schema
        self._users = users
        self.traces = Traces(cluster.clock.now_us)
        self._cluster = cluster
        self._kept: dict[tuple[str, str, int], tuple[Any, TableStore]] = {}
        self.protected = frozenset(KEYSPACES)
        started_us = cluster.clock.now_us()
        self._rows: dict[tuple[str, str], Callable[[Node], Iterable[SystemRow]]] = {
            ("system", "local"): self._local,
            ("system", "peers"): self._peers,
            ("system", "versions"): self._versions,
            ("system", "scylla_local"): self._scylla_local,
            ("system", "group0_history"): self._group0_history,
            ("system_schema", "keyspaces"): self._keyspaces,
            ("system_schema", "tables"): self._tables,
            ("system_schema", "columns"): self._columns,
            ("system_schema", "types"): self._types,
            ("system_schema", "dropped_columns"): self._dropped_columns,
            ("system_schema", "scylla_tables"): self._scylla_tables,
            ("system_schema", "scylla_keyspaces"): self._scylla_keyspaces,
            ("system", "cdc_local"): self._cdc_local,
            ("system", "cdc_timestamps"): self._tablet_timestamps,
            ("system", "cdc_streams"): self._tablet_streams,
            ("system", "cdc_streams_state"): self._oldest_streams,
            ("system", "cdc_streams_history"): self._stream_changes,
            ("system", "tablets"): self._tablets,
            ("system", "cluster_status"): self._cluster_status,
            ("system", "clients"): self._clients,
            ("system", "protocol_servers"): self._protocol_servers,
            ("system", "config"): lambda node: config_rows(cluster, node, has_users=users is not None),
            ("system", "size_estimates"): lambda node: size_rows(cluster, node, stores, self.protected),
            ("system", "runtime_info"): lambda _: runtime_rows(
                stores, (cluster.clock.now_us() - started_us) // 1000000
            ),
            ("system", "roles"): self._roles,
            ("system", "token_ring"): self._token_ring,
            ("system_traces", "sessions"): lambda _: self.traces.sessions(),
            ("system_traces", "events"): lambda _: self.traces.events(),
            ("system_distributed", "cdc_streams_descriptions"): self._legacy_streams,
            ("system_distributed", "cdc_generation_timestamps"): self._generation_timestamps,
            ("system_distributed", "cdc_streams_descriptions_v2"): self._streams,
        }

    def install(self, table_changed: Callable[[TableSchema], None]) -> list[TableSchema]:
        """Put what the cluster's version has and the schema lacks into the schema; return those tables."""
        added: list[TableSchema] = []
        for name, replication in KEYSPACES.items():
            if name not in self._schema.keyspaces:
                self._schema.keyspaces[name] = Keyspace(name, {"replication": replication, "durable_writes": True})
        for table in system_tables(self._cluster.release):
            tables = self._schema.keyspaces[table.keyspace].tables
            if table.name not in tables and self._exists(table.keyspace, table.name):
                tables[table.name] = table
                table_changed(table)
                added.append(table)
        return added

    def _exists(self, keyspace: str, name: str) -> bool:
        """Tell whether the cluster has this table of its release: the generations are described by turns."""
        descriptions = self._cluster.descriptions
        if (keyspace, name) == ("system_distributed", LEGACY_TABLE):
            return descriptions.legacy is not None
        if keyspace == "system_distributed" and name in V2_TABLES:
            return descriptions.v2 is not None
        return True

    @staticmethod
    def is_writable(table: TableSchema) -> bool:
        """Tell whether clients may INSERT, UPDATE and DELETE: the tables that describe generations are open to them."""
        return table.keyspace == "system_distributed" and table.name in (LEGACY_TABLE, *V2_TABLES)

    def store(self, table: TableSchema, node: int, written: TableStore) -> TableStore | None:
        """Return the rows as ``node`` shows them, or None for a table that is stored like any other.

        ``written`` is what clients have put into the table.
        """
        made = self._made(table, node)
        if made is None or not written.partitions:
            return made
        # Clients rarely write to these tables, so the merged rows are not kept.
        store = TableStore(table, table_token(table))
        for key, clustering, cells in _encoded(table, self._rows[table.keyspace, table.name](self._cluster.node(node))):
            values = zip(table.regular_columns, cells, strict=True)
            # At time 0, so that whatever a client writes is newer.
            made_of = {column.name: Cell(value, 0) for column, value in values if value is not None}
            store.apply(PartitionMutation(table, key, rows={clustering: RowMutation(Marker(0), {**made_of})}))
        for partition in written.scan():
            assert isinstance(partition, Partition)
            store.apply(partition.as_mutation(table))
        return store

    def _made(self, table: TableSchema, node: int) -> TableStore | None:
        make = self._rows.get((table.keyspace, table.name))
        if make is None:
            return None
        if table.keyspace == "system" and table.name in _MADE_EACH_TIME:
            return _store(table, make(self._cluster.node(node)))
        # For each node: system.local and system.peers say something else on each.
        place = (table.keyspace, table.name, node)
        state = self._state(table.keyspace)
        known = self._kept.get(place)
        if known is not None and known[0] == state:
            return known[1]
        store = _store(table, make(self._cluster.node(node)))
        self._kept[place] = (state, store)
        return store

    def _state(self, keyspace: str) -> Any:
        # What a keyspace's tables show changes only with these.
        if keyspace == "system_schema":
            return self._schema.version
        if keyspace == "system_traces":
            return self.traces.version
        if keyspace == "system_distributed":
            return (len(self._cluster.generations), self._cluster.descriptions.content)
        self._cluster.tablets.collect(self._cluster.clock.now_us())
        nodes = tuple(node.index for node in self._cluster.nodes)
        return (self._schema.version, nodes, self._cluster.tablets.version, self._cluster.descriptions.rewritten)

    # ------------------------------------------------------------ system

    def _node(self, node: Node) -> SystemRow:
        return {
            "data_center": node.dc,
            "host_id": node.host_id,
            "rack": node.rack,
            "release_version": _RELEASE,
            "rpc_address": node.address,
            "schema_version": self._schema.version,
            "supported_features": "",
            "tokens": {str(token) for token in node.tokens},
        }

    def _local(self, node: Node) -> Iterator[SystemRow]:
        yield self._node(node) | {
            "key": "local",
            "bootstrapped": "COMPLETED",
            "broadcast_address": node.address,
            "cluster_name": self._cluster.name,
            "cql_version": _CQL_VERSION,
            "gossip_generation": self._cluster.generations[0].time_ms // 1000,
            "listen_address": node.address,
            "native_protocol_version": "4",
            "partitioner": MURMUR3_PARTITIONER,
        }

    def _peers(self, node: Node) -> Iterator[SystemRow]:
        for other in self._cluster.nodes:
            if other.index != node.index:
                yield self._node(other) | {"peer": other.address, "preferred_ip": other.address}

    def _versions(self, node: Node) -> Iterator[SystemRow]:
        # cqlsh shows this when it connects.
        yield {"key": "local", "version": self._cluster.release.build, "build_mode": "embedded", "build_id": ""}

    def _scylla_local(self, node: Node) -> Iterator[SystemRow]:
        # Tools look for a system table with "scylla" in its name to tell Scylla from Cassandra.
        yield {"key": "scylla_cpu_sharding_algorithm", "value": "biased-token-round-robin"}

    def _group0_history(self, node: Node) -> Iterator[SystemRow]:
        for state_id, description in self._schema.history:
            yield {"key": "history", "state_id": uuid.UUID(bytes=state_id), "description": description}

    def _cluster_status(self, node: Node) -> Iterator[SystemRow]:
        nodes = self._cluster.nodes
        for each in nodes:
            yield {
                "peer": each.address,
                "dc": each.dc,
                "draining": False,
                "excluded": False,
                "host_id": each.host_id,
                "owns": 1 / len(nodes),
                "rack": each.rack,
                "status": "NORMAL",
                "tokens": len(each.tokens),
                "up": True,
            }

    def _clients(self, node: Node) -> Iterable[SystemRow]:
        return [] if self.serving is None else self.serving.clients(node.index)

    def _protocol_servers(self, node: Node) -> Iterator[SystemRow]:
        addresses = [] if self.serving is None else self.serving.listen_addresses(node.index)
        if addresses:
            about = {"protocol": "cql", "protocol_version": _CQL_VERSION}
            yield {"name": "native", "listen_addresses": addresses, **about}

    def _roles(self, node: Node) -> Iterator[SystemRow]:
        for name in role_names(self._users):
            yield {"role": name, "can_login": True, "is_superuser": True}

    def _token_ring(self, node: Node) -> Iterator[SystemRow]:
        """Yield who has each range of tokens: for each table with tablets, for a whole keyspace without."""
        by_host = {each.host_id: each for each in self._cluster.nodes}
        for keyspace in self._schema.keyspaces.values():
            if keyspace.tablets is not None:
                for table in keyspace.tables.values():
                    tablets = self._cluster.tablets_of(keyspace, table)
                    owners = [(t.last, [by_host[host] for host, _ in t.replicas if host in by_host]) for t in tablets]
                    yield from _ranges(keyspace.name, table.name, owners)
            elif not keyspace.options["replication"]["class"].endswith("LocalStrategy"):
                yield from _ranges(keyspace.name, "<ALL>", self._cluster.vnode_owners(keyspace))

    # ------------------------------------------------------------ system_schema

    def _all_tables(self) -> Iterator[TableSchema]:
        for keyspace in self._schema.keyspaces.values():
            yield from keyspace.tables.values()

    def _keyspaces(self, node: Node) -> Iterator[SystemRow]:
        for keyspace in self._schema.keyspaces.values():
            yield {"keyspace_name": keyspace.name, **keyspace.options}

    def _tables(self, node: Node) -> Iterator[SystemRow]:
        for table in self._all_tables():
            # Here, not in scylla_tables.cdc, which is always null: CDC libraries look for the options under this key.
            extensions = {} if table.cdc is None else {"cdc": extension_bytes(option_map(table.cdc))}
            # So has Scylla options that Cassandra does not know, once a table was given them.
            if (collected := table.options.get("tombstone_gc", DEFAULTS["tombstone_gc"])) != DEFAULTS["tombstone_gc"]:
                extensions["tombstone_gc"] = extension_bytes(collected)
            if "paxos_grace_seconds" in table.options:
                extensions["paxos_grace_seconds"] = int(table.options["paxos_grace_seconds"]).to_bytes(4, "little")
            yield {
                "dclocal_read_repair_chance": 0.0,
                "read_repair_chance": 0.0,
                **table.options,
                "keyspace_name": table.keyspace,
                "table_name": table.name,
                "extensions": extensions,
                # Without this flag drivers take a table for one of COMPACT STORAGE.
                "flags": {"compound"},
                "id": table.id,
                WRITTEN: table.written_us,
            }

    def _columns(self, node: Node) -> Iterator[SystemRow]:
        for table in self._all_tables():
            for column in table.columns:
                order = "none" if column.kind != "clustering" else "desc" if column.descending else "asc"
                yield {
                    "keyspace_name": table.keyspace,
                    "table_name": table.name,
                    "column_name": column.name,
                    "clustering_order": order,
                    "column_name_bytes": column.name.encode(),
                    "kind": column.kind,
                    "position": column.position,
                    "type": column.type.name,
                    WRITTEN: column.written_us,
                }

    def _types(self, node: Node) -> Iterator[SystemRow]:
        for keyspace in self._schema.keyspaces.values():
            for udt in keyspace.types.values():
                if isinstance(udt, UdtType):
                    yield {
                        "keyspace_name": keyspace.name,
                        "type_name": udt.type_name,
                        "field_names": udt.field_names,
                        "field_types": [kind.name for kind in udt.field_types],
                    }

    def _dropped_columns(self, node: Node) -> Iterator[SystemRow]:
        for table in self._all_tables():
            for name, (kind, timestamp) in table.dropped.items():
                yield {
                    "keyspace_name": table.keyspace,
                    "table_name": table.name,
                    "column_name": name,
                    "dropped_time": timestamp,  # microseconds in a column of milliseconds, as Scylla has it
                    "type": kind.name,
                }

    def _scylla_tables(self, node: Node) -> Iterator[SystemRow]:
        for table in self._all_tables():
            yield {
                "keyspace_name": table.keyspace,
                "table_name": table.name,
                # What tells a log from a table that only has such a name.
                "partitioner": CDC_PARTITIONER if table.is_cdc_log else None,
                "tablets": table.options.get("tablets"),
                "version": table.version,
            }

    def _scylla_keyspaces(self, node: Node) -> Iterator[SystemRow]:
        for keyspace in self._schema.keyspaces.values():
            if keyspace.tablets is not None:
                yield {"keyspace_name": keyspace.name, "initial_tablets": keyspace.tablets}

    # ------------------------------------------------------------ CDC generations and stream sets

    def _listed(self, times: list[int] | None) -> list[Generation]:
        """Return the generations that a description table lists."""
        return [generation for generation in self._cluster.generations if generation.time_ms in (times or ())]

    def _generation_timestamps(self, node: Node) -> Iterator[SystemRow]:
        for generation in self._listed(self._cluster.descriptions.v2):
            yield {"key": "timestamps", "time": generation.time_ms}

    def _streams(self, node: Node) -> Iterator[SystemRow]:
        for generation in self._listed(self._cluster.descriptions.v2):
            for entry in generation.entries:
                yield {"time": generation.time_ms, "range_end": entry.range_end, "streams": set(entry.streams)}

    def _legacy_streams(self, node: Node) -> Iterator[SystemRow]:
        for generation in self._listed(self._cluster.descriptions.legacy):
            yield {"time": generation.time_ms, "streams": set(generation.streams)}

    def _cdc_local(self, node: Node) -> Iterator[SystemRow]:
        if self._cluster.descriptions.rewritten:
            yield {"key": "rewritten"}

    def _tablet_timestamps(self, node: Node) -> Iterator[SystemRow]:
        for streams in self._cluster.tablets:
            for each in streams.sets:
                yield {"keyspace_name": streams.keyspace, "table_name": streams.table, "timestamp": each.time_ms}

    def _oldest_streams(self, node: Node) -> Iterator[SystemRow]:
        for table in self._cluster.tablets:
            oldest = table.sets[0]
            for stream in oldest.streams:
                yield {
                    "table_id": table.log_id,
                    "timestamp": oldest.time_ms,
                    "last_token": _token_of(stream),
                    "stream_id": stream,
                }

    def _stream_changes(self, node: Node) -> Iterator[SystemRow]:
        for table in self._cluster.tablets:
            for each, state, streams in table.changes():
                for stream in streams if state and each is not table.sets[0] else ():
                    yield {
                        "table_id": table.log_id,
                        "timestamp": each.time_ms,
                        "stream_state": state,
                        "last_token": _token_of(stream),
                        "stream_id": stream,
                    }

    def _tablets(self, node: Node) -> Iterator[SystemRow]:
        for keyspace in self._schema.keyspaces.values():
            if keyspace.tablets is None:
                continue
            for table in keyspace.tables.values():
                base = keyspace.tables.get(table.cdc_base or "")
                tablets = self._cluster.tablets_of(keyspace, table)
                for tablet in tablets:
                    yield {
                        "table_id": table.id,
                        "last_token": tablet.last,
                        "base_table": None if base is None else base.id,
                        "keyspace_name": keyspace.name,
                        "replicas": tablet.replicas,
                        "resize_type": "none",
                        "table_name": table.name,
                        "tablet_count": len(tablets),
                    }

    def _tablet_streams(self, node: Node) -> Iterator[SystemRow]:
        for table in self._cluster.tablets:
            for each, state, streams in table.changes():
                for stream in streams:
                    yield {
                        "keyspace_name": table.keyspace,
                        "table_name": table.table,
                        "timestamp": each.time_ms,
                        "stream_state": state,
                        "stream_id": stream,
                    }


def _token_of(stream: bytes) -> int:
    return int.from_bytes(stream[:8], "big", signed=True)


def _ranges(keyspace: str, table: str, owners: list[tuple[int, list[Node]]]) -> Iterator[SystemRow]:
    """Yield the rows of ``system.token_ring`` for ranges that end at the tokens of *owners*."""
    for at, (end, nodes) in enumerate(owners):
        for node in nodes:
            yield {
                "keyspace_name": keyspace,
                "table_name": table,
                "start_token": str(owners[at - 1][0]),
                "endpoint": node.address,
                "dc": node.dc,
                "end_token": str(end),
                "rack": node.rack,
            }


def _store(table: TableSchema, rows: Iterable[SystemRow]) -> TableStore:
    """Return a store that holds these rows; columns not named are null."""
    store = TableStore(table, table_token(table))
    position = position_maker(table)
    rows = list(rows)
    for row, (key, clustering, cells) in zip(rows, _encoded(table, rows), strict=True):
        partition = store.partitions.get(key)
        if partition is None:
            partition = PackedPartition(key, (store.token(key), key_bytes(key)), table, position)
            store.add(partition)
        assert isinstance(partition, PackedPartition)
        # Packed, like rows of a log: nothing is ever written to this store, and a page of it is a slice.
        partition.append(position(clustering), join_row([*key, *clustering, *cells]), (row.get(WRITTEN, 0), 0, None))
    return store


def _encoded(table: TableSchema, rows: Iterable[SystemRow]) -> Iterator[tuple[Key, Key, list[bytes | None]]]:
    """Yield each row as encoded partition key, clustering key and other columns."""
    partition_depth, key_depth = len(table.partition_key), len(table.partition_key) + len(table.clustering_key)
    for row in rows:
        cells = [None if (v := row.get(c.name)) is None else c.type.encode(v) for c in table.columns]
        keys = [cell or b"" for cell in cells[:key_depth]]
        yield tuple(keys[:partition_depth]), tuple(keys[partition_depth:]), cells[key_depth:]
