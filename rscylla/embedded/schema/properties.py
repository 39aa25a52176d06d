"""Table properties: their defaults, and the checks of what ``WITH`` sets."""

from __future__ import annotations

from typing import Any, Final

from ..errors import ConfigError, InvalidRequest, SyntaxException

__all__ = ["DEFAULTS", "table_options"]

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
