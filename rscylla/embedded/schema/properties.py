"""Table properties: their defaults, and the checks of what ``WITH`` sets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from ..errors import ConfigError, InvalidRequest, SyntaxException
from .compaction import check_windows, compaction
from .numbers import floating, integer
from .tablets import tablet_hints

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

_MAX_TTL: Final = 20 * 365 * 24 * 60 * 60  # twenty years, the longest TTL of Scylla and Cassandra
_MIN_FLUSH_PERIOD: Final = 60_000
_MIN_FP_CHANCE: Final = 6.71e-05
_MAX_CHUNK_KB: Final = 128
_COMPRESSORS: Final = {
    **{name: f"org.apache.cassandra.io.compress.{name}" for name in ("LZ4Compressor", "SnappyCompressor")},
    **{name: f"org.apache.cassandra.io.compress.{name}" for name in ("DeflateCompressor", "ZstdCompressor")},
    # No class of Cassandra's has these names.
    **{name: name for name in ("LZ4WithDictsCompressor", "ZstdWithDictsCompressor")},
}
_ZSTD_LEVELS: Final = (-131072, 22)
_TRUE: Final = ("true", "1", "yes")
_SPECULATIVE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:E[+-]?[0-9]{1,3})?)(MS|PERCENTILE)", re.ASCII)

# Accepted, and without effect, as in Scylla.
_OBSOLETE: Final = (
    *("dclocal_read_repair_chance", "index_interval", "populate_io_cache_on_flush", "read_repair_chance"),
    "replicate_on_write",
)


def table_options(given: dict[str, Any], base: dict[str, Any], *, is_log: bool = False) -> dict[str, Any]:
    """Return ``base`` with the properties of ``WITH``, checked and in the form that the schema shows.

    ``cdc`` and ``id`` are left to the caller.

    Raises SyntaxException for an unknown property, ConfigError or InvalidRequest for a value that is not allowed.
    Source: Scylla ``cql3/statements/cf_prop_defs.cc``.
    """
    options = dict(base)
    for name, value in given.items():
        # "cdc" needs the table's columns to be judged, "id" stands in what DESCRIBE ... WITH INTERNALS prints.
        if name in ("cdc", "id", *_OBSOLETE):
            continue
        check = _CHECKS.get(name)
        if check is None:
            raise SyntaxException(f"Unknown property '{name}'")
        if (checked := check(name, value)) is not None:
            options[name] = checked
    if not options.get("tablets", True):
        del options["tablets"]
    _check_index_intervals(given)
    if given.keys() & {"compaction", "default_time_to_live"}:
        check_windows(options)
    if is_log and options.get("tombstone_gc", {}).get("mode") == "repair":
        raise InvalidRequest("The 'repair' mode for tombstone_gc is not allowed on CDC log tables.")
    return options


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SyntaxException(f"Invalid value for property '{name}'. It should be a string")
    return value


def _map(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SyntaxException(f"Invalid value for property '{name}'. It should be a map.")
    return {key: str(item) for key, item in value.items()}


def _integer(name: str, value: Any) -> int:
    return integer(name, _text(name, value))


def _ttl(name: str, value: Any) -> int:
    number = _integer(name, value)
    if number < 0:
        raise ConfigError(f"{name} cannot be smaller than 0, (default 0)")
    if number > _MAX_TTL:
        raise ConfigError(f"{name} must be less than or equal to {_MAX_TTL} (got {number})")
    return number


def _grace(name: str, value: Any) -> int:
    number = _integer(name, value)
    if number < 0:
        raise ConfigError(f"{name} cannot be smaller than 0, (default {DEFAULTS['gc_grace_seconds']})")
    return number


def _flush_period(name: str, value: Any) -> int:
    number = _integer(name, value)
    if number != 0 and number < _MIN_FLUSH_PERIOD:
        raise ConfigError(f"{name} must be 0 or greater than {_MIN_FLUSH_PERIOD}")
    return number


def _check_index_intervals(given: dict[str, Any]) -> None:
    # Against the default where only one is given, not against what the table has.
    low, high = (
        _integer(name, given.get(name, str(DEFAULTS[name]))) for name in ("min_index_interval", "max_index_interval")
    )
    if low < 1:
        raise ConfigError("min_index_interval must be greater than 0")
    if high < low:
        raise ConfigError("max_index_interval must be greater than min_index_interval")


def _fp_chance(name: str, value: Any) -> float:
    number = floating(name, _text(name, value))
    if not _MIN_FP_CHANCE < number <= 1:
        raise ConfigError(f"{name} must be larger than {_MIN_FP_CHANCE} and less than or equal to 1.0 (got {value})")
    return number


def _fraction(name: str, value: Any) -> float:
    number = floating(name, _text(name, value))
    if not 0 <= number <= 1:
        raise ConfigError(f"{name} must be between 0.0 and 1.0.")
    return number


def _speculative_retry(name: str, value: Any) -> str:
    text = _text(name, value).upper()
    if text in ("NONE", "ALWAYS"):
        return text
    match = _SPECULATIVE.fullmatch(text)
    if match is None:
        raise ConfigError(f"cannot convert {text} to speculative_retry")
    number, unit = float(match[1]), match[2]
    if unit == "PERCENTILE" and not 0 <= number <= 100:
        raise ConfigError(f"Invalid value {value} for PERCENTILE option '{name}': must be between 0.0 and 100.0")
    return f"{number:.2f}ms" if unit == "MS" else f"{number:.1f}PERCENTILE"


def _compaction(name: str, value: Any) -> dict[str, str] | None:
    options = _map(name, value)
    return compaction(options) if options else None


def _compression(name: str, value: Any) -> dict[str, str]:
    """Return the map in its canonical form; none at all for no compression."""
    given = _map(name, value)
    if given and "sstable_compression" not in given:
        raise ConfigError("Missing sub-option 'sstable_compression' for the 'compression' option.")
    written = given.pop("sstable_compression", "")
    short = written.removeprefix("org.apache.cassandra.io.compress.")
    if short and short not in _COMPRESSORS:
        raise ConfigError(f"Unknown sstable_compression: {written}")
    options = {"sstable_compression": _COMPRESSORS[short]} if short else {}
    chunk = given.pop("chunk_length_kb", None)
    chunk = given.pop("chunk_length_in_kb", chunk)
    if chunk is not None:
        options["chunk_length_in_kb"] = str(_chunk_length(integer("chunk_length_in_kb", chunk)))
    if (chance := given.pop("crc_check_chance", None)) is not None:
        options["crc_check_chance"] = f"{_fraction('crc_check_chance', chance):.6f}"
    if short.startswith("Zstd") and (level := given.pop("compression_level", None)) is not None:
        number = integer("compression_level", level)
        if not _ZSTD_LEVELS[0] <= number <= _ZSTD_LEVELS[1]:
            raise ConfigError(
                f"compression_level must be between {_ZSTD_LEVELS[0]} and {_ZSTD_LEVELS[1]}, got {number}"
            )
        options["compression_level"] = str(number)
    if given:
        raise ConfigError(f"Unknown compression option '{min(given)}'.")
    return options


def _chunk_length(kilobytes: int) -> int:
    names = "chunk_length_in_kb/chunk_length_kb"
    if kilobytes <= 0:
        raise ConfigError(f"Invalid negative or null for {names}")
    if kilobytes & kilobytes - 1:
        raise ConfigError(f"{names} must be a power of 2.")
    if kilobytes > _MAX_CHUNK_KB:
        raise ConfigError(f"{names} must be {_MAX_CHUNK_KB} or less.")
    return kilobytes


def _caching(name: str, value: Any) -> dict[str, str] | None:
    if isinstance(value, str):
        # The form of old: the map as JSON.
        try:
            value = json.loads(value)
        except ValueError:
            raise ConfigError(f"Invalid value for property '{name}': it is a map, or JSON text of one") from None
    given = _map(name, value)
    if not given:
        return None
    for key in given:
        if key not in ("keys", "rows_per_partition", "enabled"):
            raise ConfigError(f"Invalid caching option: {key}")
    keys, rows = given.get("keys", "ALL"), given.get("rows_per_partition", "ALL")
    if keys not in ("ALL", "NONE"):
        raise ConfigError(f"Invalid key value: {keys}")
    if rows not in ("ALL", "NONE") and not (rows.isascii() and rows.isdigit()):
        raise ConfigError(f"Invalid key value: {rows}")
    options = {"keys": keys, "rows_per_partition": rows}
    return options if given.get("enabled", "true") == "true" else {**options, "enabled": "false"}


def _tombstone_gc(name: str, value: Any) -> dict[str, str]:
    given = _map(name, value)
    for key in given:
        if key not in ("mode", "propagation_delay_in_seconds"):
            raise ConfigError(f"Invalid tombstone_gc option: {key}")
    mode = given.get("mode", "timeout")
    if mode not in ("timeout", "disabled", "immediate", "repair"):
        raise ConfigError(f"Invalid value for tombstone_gc option mode: {mode}")
    delay = given.get("propagation_delay_in_seconds", DEFAULTS["tombstone_gc"]["propagation_delay_in_seconds"])
    if not (delay.isascii() and delay.isdigit()):
        raise ConfigError(f"Invalid value for tombstone_gc option propagation_delay_in_seconds: {delay}")
    return {"mode": mode, "propagation_delay_in_seconds": delay}


def _rate_limit(name: str, value: Any) -> dict[str, str]:
    given = _map(name, value)
    for key, limit in given.items():
        if key not in ("max_reads_per_second", "max_writes_per_second"):
            raise ConfigError(f"Unknown keys in map for {name} extension: {key}")
        if not (limit.isascii() and limit.isdigit()):
            raise ConfigError(f"Invalid value for {key} of {name}: {limit}; expected a non-negative integer")
    return given


def _synchronous_updates(name: str, value: Any) -> None:
    if _text(name, value).lower() in _TRUE:
        raise InvalidRequest(
            "The synchronous_updates option is only applicable to materialized views, not to base tables"
        )


# A check returns the value that the schema shows, None for none.
_CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "bloom_filter_fp_chance": _fp_chance,
    "caching": _caching,
    "comment": _text,
    "compaction": _compaction,
    "compression": _compression,
    "crc_check_chance": _fraction,
    "default_time_to_live": _ttl,
    "gc_grace_seconds": _grace,
    "in_memory": _text,
    "max_index_interval": _integer,
    "memtable_flush_period_in_ms": _flush_period,
    "min_index_interval": _integer,
    "paxos_grace_seconds": _grace,
    "per_partition_rate_limit": _rate_limit,
    "speculative_retry": _speculative_retry,
    "storage_engine": _text,
    "synchronous_updates": _synchronous_updates,
    "tablets": tablet_hints,
    "tombstone_gc": _tombstone_gc,
}
