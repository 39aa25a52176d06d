"""Table and keyspace properties: their defaults, and the checks of what ``WITH`` sets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..errors import ConfigError, InvalidRequest, SyntaxException

__all__ = ["DEFAULTS", "MOST_TABLETS", "keyspace_options", "table_options", "tablets_option"]

# Scylla has no such bound; here it keeps one mistyped number from filling the memory.
MOST_TABLETS: Final = 1 << 16

# What Scylla shows where a statement says nothing. Only default_time_to_live and gc_grace_seconds have an effect here.
DEFAULTS: Final[dict[str, Any]] = {
    "bloom_filter_fp_chance": 0.01,
    "caching": {"keys": "ALL", "rows_per_partition": "ALL"},
    "comment": "",
    "compaction": {"class": "IncrementalCompactionStrategy"},
    "compression": {"sstable_compression": "LZ4WithDictsCompressor"},
    "crc_check_chance": 1.0,
    "default_time_to_live": 0,
    "gc_grace_seconds": 864000,
    "max_index_interval": 2048,
    "memtable_flush_period_in_ms": 0,
    "min_index_interval": 128,
    "speculative_retry": "99.0PERCENTILE",
    "tombstone_gc": {"mode": "timeout", "propagation_delay_in_seconds": "3600"},
}

_INTEGERS: Final = {
    # Twenty years, the longest TTL of Scylla and Cassandra.
    "default_time_to_live": (0, 20 * 365 * 24 * 60 * 60),
    "gc_grace_seconds": (0, 2**31 - 1),
    "max_index_interval": (1, 2**31 - 1),
    "memtable_flush_period_in_ms": (0, 2**31 - 1),
    "min_index_interval": (1, 2**31 - 1),
    "paxos_grace_seconds": (0, 2**31 - 1),
}
_FLOATS: Final = ("bloom_filter_fp_chance", "crc_check_chance", "dclocal_read_repair_chance", "read_repair_chance")
_MAPS: Final = ("caching", "compaction", "compression", "tombstone_gc", "per_partition_rate_limit")
_TEXTS: Final = ("comment", "speculative_retry", "synchronous_updates", "in_memory", "storage_engine")

_COMPACTION: Final = (
    "IncrementalCompactionStrategy",
    "LeveledCompactionStrategy",
    "NullCompactionStrategy",
    "SizeTieredCompactionStrategy",
    "TimeWindowCompactionStrategy",
)
_LOCATOR: Final = "org.apache.cassandra.locator."
_STRATEGIES: Final = ("SimpleStrategy", "NetworkTopologyStrategy", "LocalStrategy", "EverywhereStrategy")


def table_options(given: dict[str, Any], base: dict[str, Any], *, is_log: bool = False) -> dict[str, Any]:
    """Return ``base`` with the properties of ``WITH``, checked and typed; ``cdc`` and ``id`` are left to the caller.

    Raises SyntaxException for an unknown property, ConfigError or InvalidRequest for a value that is not allowed.
    """
    options = dict(base)
    for name, value in given.items():
        # "cdc" needs the table's columns to be judged, "id" stands in what DESCRIBE ... WITH INTERNALS prints.
        if name in ("cdc", "id"):
            continue
        if name in _INTEGERS:
            options[name] = _integer(name, value)
        elif name in _FLOATS:
            options[name] = _fraction(name, value)
        elif name in _MAPS:
            if not isinstance(value, dict):
                raise SyntaxException(f"Invalid value for property '{name}'. It should be a map.")
            options[name] = {key: str(item) for key, item in value.items()}
        elif name in _TEXTS:
            if not isinstance(value, str):
                raise SyntaxException(f"Invalid value for property '{name}'. It should be a string")
            options[name] = value
        else:
            raise SyntaxException(f"Unknown property '{name}'")
    _check_compaction(options)
    if is_log and options.get("tombstone_gc", {}).get("mode") == "repair":
        raise InvalidRequest("The 'repair' mode for tombstone_gc is not allowed on CDC log tables.")
    return options


def _integer(name: str, value: Any) -> int:
    low, high = _INTEGERS[name]
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise SyntaxException(f"Invalid integer value {value} for '{name}'") from None
    if name == "default_time_to_live" and number > high:
        raise ConfigError(f"default_time_to_live must be less than or equal to {high} (got {number})")
    if not low <= number <= high:
        raise ConfigError(f"{name} must be greater than or equal to {low} (got {number})")
    return number


def _fraction(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SyntaxException(f"Invalid double value {value} for '{name}'") from None
    if not 0.0 <= number <= 1.0:
        raise ConfigError(f"{name} must be between 0.0 and 1.0 (got {number})")
    return number


def _check_compaction(options: dict[str, Any]) -> None:
    name = str(options["compaction"].get("class", ""))
    if not name:
        raise ConfigError("Missing sub-option 'class' for the 'compaction' option.")
    if name.rpartition(".")[2] not in _COMPACTION:
        raise ConfigError(f"Unable to find compaction strategy class '{name}'")
    # system_schema shows the short name, however it was written.
    options["compaction"] = {**options["compaction"], "class": name.rpartition(".")[2]}


def keyspace_options(
    given: dict[str, Any], base: dict[str, Any] | None, datacenters: Collection[str]
) -> dict[str, Any]:
    """Return ``{"replication": map, "durable_writes": bool}``; ``base`` is what ALTER starts from.

    ``datacenters`` are those of the cluster: what ``replication_factor`` stands for.

    ``tablets`` is left to ``tablets_option``. Raises ConfigError for a replication that Scylla refuses.
    """
    options: dict[str, Any] = {"replication": None, "durable_writes": True, **(base or {})}
    for name, value in given.items():
        if name == "replication":
            options["replication"] = _replication(value, options["replication"] or {}, datacenters)
        elif name == "durable_writes":
            if str(value).lower() not in ("true", "false"):
                raise SyntaxException(f"Invalid boolean value {value} for 'durable_writes'")
            options["durable_writes"] = str(value).lower() == "true"
        # "storage" names an object store for SSTables, of which there are none here.
        elif name not in ("tablets", "storage"):
            raise SyntaxException(f"Unknown property '{name}'")
    if options["replication"] is None:
        raise ConfigError("Missing mandatory replication strategy class")
    return options


def _replication(value: Any, old: dict[str, str], datacenters: Collection[str]) -> dict[str, str]:
    if not isinstance(value, dict) or not value.get("class"):
        raise ConfigError("Missing mandatory replication strategy class")
    name = str(value["class"]).rpartition(".")[2]
    if name not in _STRATEGIES:
        raise ConfigError(f"Unable to find replication strategy class '{value['class']}'")
    rest = {key: str(item) for key, item in value.items() if key != "class"}
    if name == "SimpleStrategy":
        if "replication_factor" not in rest:
            raise ConfigError("SimpleStrategy requires a replication_factor strategy option.")
        unknown = [key for key in rest if key != "replication_factor"]
        if unknown:
            raise ConfigError(f"Unrecognized strategy option {{{unknown[0]}}} passed to SimpleStrategy")
    for factor in rest.values():
        if not factor.isdigit():
            raise ConfigError(f"Replication factor must be numeric; found '{factor}'")
    if name == "NetworkTopologyStrategy":
        rest = _by_datacenter(rest, old, datacenters)
    return {"class": _LOCATOR + name, **rest}


def _by_datacenter(given: dict[str, str], old: dict[str, str], datacenters: Collection[str]) -> dict[str, str]:
    """Return the replication factor of each datacenter. Drivers know no other form: gocql fails on any.

    ``replication_factor`` is for the datacenters that are neither named nor had one before. A change of the strategy
    without any factor keeps the one there was. Source: Scylla ``cql3/statements/ks_prop_defs.cc``.
    """
    factors = {name: factor for name, factor in given.items() if name != "replication_factor"}
    unknown = [name for name in factors if name not in datacenters]
    if unknown:
        raise ConfigError(f"Unrecognized strategy option {{{unknown[0]}}} passed to NetworkTopologyStrategy")
    common = given.get("replication_factor", None if given else old.get("replication_factor"))
    if common is None:
        return factors
    kept = {name: factor for name, factor in old.items() if name not in ("class", "replication_factor")}
    return {**dict.fromkeys(sorted(datacenters), common), **kept, **factors}


def tablets_option(given: dict[str, Any], replication: dict[str, str], *, default: bool) -> int | None:
    """Return ``initial_tablets`` of a new keyspace: None for vnodes, 0 for as many tablets as the server likes.

    Args:
        default: Whether a keyspace that says nothing uses tablets; only those of NetworkTopologyStrategy can.

    Raises SyntaxException or ConfigError for a value that is not allowed. Source: Scylla
    ``cql3/statements/ks_prop_defs.cc``.
    """
    strategy = replication["class"].rpartition(".")[2]
    able = strategy == "NetworkTopologyStrategy"
    if "tablets" not in given:
        return 0 if default and able else None
    value = given["tablets"]
    if not isinstance(value, dict):
        raise SyntaxException("Invalid value for property 'tablets'. It should be a map.")
    for name in value:
        if name not in ("enabled", "initial"):
            raise ConfigError(f"Unrecognized tablets option {name}")
    enabled = str(value.get("enabled", "true")).lower()
    if enabled not in ("true", "false"):
        raise ConfigError(f"Tablets enabled value must be true or false; found: {value['enabled']}")
    if enabled == "false":
        return None
    initial = str(value.get("initial", "0"))
    if not initial.isdecimal() or not initial.isascii():
        raise ConfigError(f"Initial tablets value should be numeric; found {initial}")
    if int(initial) > MOST_TABLETS:
        raise ConfigError(f"the embedded server makes at most {MOST_TABLETS} tablets for a table, not {initial}")
    if not able:
        raise ConfigError(f"{strategy} doesn't support tablet replication")
    return int(initial)
