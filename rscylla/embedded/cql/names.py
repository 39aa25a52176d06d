"""Names as CQL text: which words are reserved, and when a name needs its double quotes."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NATIVE_TYPE_NAMES", "RESERVED_WORDS", "quote_name"]

_RESERVED: Final = """
    add allow alter and ann apply asc authorize batch begin by cast columnfamily concurrency create default delete drop
    entries false from full grant if in index infinity insert into is keyspace limit materialized modify nan norecursive
    not null of on or order primary rename replace revoke schema scylla_clustering_bound scylla_counter_shard_list
    scylla_timeuuid_list_index select set table to token true truncate unlogged unset update use using
    vector_search_indexing view where with
"""

RESERVED_WORDS: Final = frozenset(_RESERVED.split())
"""Words that cannot be names without quotes. Source: Scylla ``cql3/Cql.g``, the keywords not listed as unreserved."""

_TYPES: Final = """
    ascii bigint bitstring blob boolean byte complex counter date decimal double duration enum float inet int interval
    macaddr smallint text time timestamp timeuuid tinyint uuid varchar varint
"""

NATIVE_TYPE_NAMES: Final = frozenset(_TYPES.split())
"""Words that cannot be names of user-defined types without quotes: native types, and what may become one."""

_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]*")


def quote_name(name: str) -> str:
    """Return *name* as CQL text: bare if it is a plain lower-case word that is not reserved, else in double quotes."""
    if _PLAIN.fullmatch(name) and name not in RESERVED_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'
