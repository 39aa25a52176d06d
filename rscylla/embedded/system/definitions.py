"""Definitions of the system tables: keyspaces, columns and keys as Scylla has them, as far as they are served."""

from __future__ import annotations

import uuid
from typing import Any, Final

import attrs

from ..errors import InvalidRequest
from ..schema.properties import DEFAULTS
from ..schema.tables import Column, TableSchema
from ..types import UdtType, parse_type
from ..versions import Release

__all__ = ["KEYSPACES", "system_tables"]

_LOCAL: Final = {"class": "org.apache.cassandra.locator.LocalStrategy"}


def _simple(factor: int) -> dict[str, str]:
    return {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": str(factor)}


KEYSPACES: Final[dict[str, dict[str, str]]] = {
    "system": _LOCAL,
    "system_schema": _LOCAL,
    "system_distributed": _simple(3),
    "system_auth": _simple(1),
    "system_traces": _simple(2),
}

_TABLE_PROPERTIES: Final = (
    "bloom_filter_fp_chance double, caching frozen<map<text,text>>, comment text, compaction frozen<map<text,text>>,"
    " compression frozen<map<text,text>>, crc_check_chance double, dclocal_read_repair_chance double,"
    " default_time_to_live int, extensions frozen<map<text,blob>>, gc_grace_seconds int, id uuid,"
    " max_index_interval int, memtable_flush_period_in_ms int, min_index_interval int, read_repair_chance double,"
    " speculative_retry text"
)
_COLUMN_PROPERTIES: Final = "clustering_order text, column_name_bytes blob, kind text, position int, type text"

# "partition key | clustering key | other columns", each "name type, ..."; a clustering column may say DESC.
_DEFINITIONS: Final[dict[str, dict[str, str]]] = {
    "system": {
        "local": "key text || bootstrapped text, broadcast_address inet, cluster_name text, cql_version text,"
        " data_center text, gossip_generation int, host_id uuid, listen_address inet, native_protocol_version text,"
        " partitioner text, rack text, release_version text, rpc_address inet, schema_version uuid,"
        " supported_features text, tokens set<text>, truncated_at map<uuid,blob>",
        "peers": "peer inet || data_center text, host_id uuid, preferred_ip inet, rack text, release_version text,"
        " rpc_address inet, schema_version uuid, supported_features text, tokens set<text>",
        "versions": "key text || version text, build_mode text, build_id text",
        "scylla_local": "key text || value text",
        "group0_history": "key text | state_id timeuuid DESC | description text",
        "cluster_status": "peer inet || dc text, draining boolean, excluded boolean, host_id uuid, load text,"
        " owns float, rack text, status text, tokens int, up boolean",
        "clients": "address inet | port int, client_type text | client_options map<text,text>, connection_stage text,"
        " driver_name text, driver_version text, hostname text, protocol_version int, scheduling_group text,"
        " shard_id int, ssl_cipher_suite text, ssl_enabled boolean, ssl_protocol text, username text",
        "size_estimates": "keyspace_name text | table_name text, range_start text, range_end text"
        " | mean_partition_size bigint, partitions_count bigint",
        "runtime_info": "group text | item text | value text",
        "protocol_servers": "name text || listen_addresses frozen<list<text>>, protocol text, protocol_version text",
        "config": "name text || source text, type text, value text",
        "role_attributes": "role text | name text | value text",
        "role_members": "role text | member text |",
        "role_permissions": "role text | resource text | permissions set<text>",
        "roles": "role text || can_login boolean, is_superuser boolean, member_of set<text>, salted_hash text",
        "token_ring": "keyspace_name text | table_name text, start_token text, endpoint inet"
        " | dc text, end_token text, rack text",
        "cdc_local": "key text || streams_timestamp timestamp, uuid uuid",
        "cdc_timestamps": "keyspace_name text, table_name text | timestamp timestamp DESC |",
        "cdc_streams": "keyspace_name text, table_name text"
        " | timestamp timestamp, stream_state tinyint, stream_id blob |",
        # What the two above are made of in Scylla: the oldest set, and how each set differs from the one before.
        "cdc_streams_state": "table_id uuid | last_token bigint | stream_id blob, timestamp timestamp",
        "cdc_streams_history": "table_id uuid | timestamp timestamp, stream_state tinyint, last_token bigint"
        " | stream_id blob",
        # Columns that are static in Scylla, where a table's rows are one partition as well.
        "tablets": "table_id uuid | last_token bigint | base_table uuid, keyspace_name text,"
        " new_replicas frozen<list<frozen<tuple<uuid,int>>>>, replicas frozen<list<frozen<tuple<uuid,int>>>>,"
        " resize_seq_number bigint, resize_type text, session uuid, stage text, table_name text, tablet_count int,"
        " transition text",
    },
    "system_schema": {
        "keyspaces": "keyspace_name text || durable_writes boolean, next_replication frozen<map<text,text>>,"
        " replication frozen<map<text,text>>, replication_v2 frozen<map<text,text>>",
        "tables": f"keyspace_name text | table_name text | flags frozen<set<text>>, {_TABLE_PROPERTIES}",
        "columns": f"keyspace_name text | table_name text, column_name text | {_COLUMN_PROPERTIES}",
        "types": "keyspace_name text | type_name text | field_names frozen<list<text>>, field_types frozen<list<text>>",
        "functions": "keyspace_name text | function_name text, argument_types frozen<list<text>>"
        " | argument_names frozen<list<text>>, body text, called_on_null_input boolean, language text,"
        " return_type text",
        "aggregates": "keyspace_name text | aggregate_name text, argument_types frozen<list<text>>"
        " | final_func text, initcond text, return_type text, state_func text, state_type text",
        "indexes": "keyspace_name text | table_name text, index_name text | kind text, options frozen<map<text,text>>",
        "views": "keyspace_name text | view_name text | base_table_id uuid, base_table_name text,"
        f" include_all_columns boolean, where_clause text, {_TABLE_PROPERTIES}",
        "triggers": "keyspace_name text | table_name text, trigger_name text | options frozen<map<text,text>>",
        "dropped_columns": "keyspace_name text | table_name text, column_name text | dropped_time timestamp, type text",
        "view_virtual_columns": f"keyspace_name text | view_name text, column_name text | {_COLUMN_PROPERTIES}",
        "computed_columns": "keyspace_name text | table_name text, column_name text | computation blob",
        "scylla_aggregates": "keyspace_name text | aggregate_name text, argument_types frozen<list<text>>"
        " | reduce_func text, state_type text",
        "scylla_keyspaces": "keyspace_name text || consistency text, initial_tablets int,"
        " storage_options frozen<map<text,text>>, storage_type text",
        "scylla_tables": "keyspace_name text | table_name text | cdc frozen<map<text,text>>,"
        " committed_by_group0 boolean, in_memory boolean, large_data_guardrails_enabled boolean, partitioner text,"
        " storage_engine text, tablets frozen<map<text,text>>, version uuid",
    },
    "system_distributed": {
        "cdc_streams_descriptions": "time timestamp || expired timestamp, streams frozen<set<blob>>",
        "cdc_generation_timestamps": "key text | time timestamp DESC | expired timestamp",
        "cdc_streams_descriptions_v2": "time timestamp | range_end bigint | streams frozen<set<blob>>",
    },
    "system_auth": {},
    "system_traces": {
        "events": "session_id uuid | event_id timeuuid | activity text, scylla_parent_id bigint, scylla_span_id bigint,"
        " source inet, source_elapsed int, thread text",
        "sessions": "session_id uuid || client inet, command text, coordinator inet, duration int,"
        " parameters map<text,text>, request text, request_size int, response_size int, started_at timestamp,"
        " username text",
    },
}


def system_tables(release: Release) -> list[TableSchema]:
    """Return all system tables of a release, with the columns that they have there."""
    return [
        _table(keyspace, name, text, release)
        for keyspace, tables in _DEFINITIONS.items()
        for name, text in tables.items()
        if release.has_table(keyspace, name)
    ]


def _table(keyspace: str, name: str, text: str, release: Release) -> TableSchema:
    partition, clustering, rest = (_split(part) for part in text.split("|"))
    rest = [words for words in rest if release.has_column(keyspace, name, words[0])]
    columns = [_column(words, "partition_key", at) for at, words in enumerate(partition)]
    columns += [_column(words, "clustering", at) for at, words in enumerate(clustering)]
    columns += sorted((_column(words, "regular", -1) for words in rest), key=lambda column: column.name)
    # From the name, so that clients see the same id after a restart.
    identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{keyspace}.{name}")
    return TableSchema(keyspace, name, identity, identity, tuple(columns), {**DEFAULTS, "gc_grace_seconds": 0})


def _split(text: str) -> list[list[str]]:
    """Return the words of each column; commas inside <> belong to the type."""
    out: list[str] = [""]
    depth = 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            out.append("")
        else:
            out[-1] += letter
    return [item.split() for item in out if item.strip()]


def _column(words: list[str], kind: Any, position: int) -> Column:
    column = Column(words[0], parse_type(words[1], _no_udt), kind, position, words[-1] == "DESC")
    # The virtual table makes its rows in the order of the streams' tokens, whatever a blob's order is.
    by_token = (column.name, kind) == ("stream_id", "clustering")
    return attrs.evolve(column, by_token=True) if by_token else column


def _no_udt(name: str) -> UdtType:
    raise InvalidRequest(f"Unknown type {name}")
