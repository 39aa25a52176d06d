"""The ``compaction`` option of a table: its strategies and their sub-options. Nothing is compacted here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ..errors import ConfigError
from .numbers import floating, integer, shown

__all__ = ["check_windows", "compaction"]

_PACKAGE: Final = "org.apache.cassandra.db.compaction."
_MAX_WINDOWS: Final = 50  # twcs_max_window_count
_UNITS: Final = {"MINUTES": 60, "HOURS": 3600, "DAYS": 86400}

Check = Callable[[str, str], None]


def _number(holds: Callable[[float], bool], must: str, read: Callable[[str, str], float] = floating) -> Check:
    def check(name: str, text: str) -> None:
        number = read(name, text)
        if not holds(number):
            raise ConfigError(f"{name} value ({shown(number)}) must be {must}")

    return check


def _interval(name: str, text: str) -> None:
    seconds = integer(name, text, bits=64)
    if seconds <= 0:
        raise ConfigError(f"{name} value ({seconds * 1000}ms) must be positive")


def _boolean(name: str, text: str) -> None:
    if text not in ("true", "false"):
        raise ConfigError(f'{name} value ({text}) must be "true" or "false"')


def _one_of(what: str, words: tuple[str, ...]) -> Check:
    def check(name: str, text: str) -> None:
        if text not in words:
            raise ConfigError(f"Invalid {what} {text} for {name}")

    return check


def _long(name: str, text: str) -> int:
    return integer(name, text, bits=64)


_FRACTION: Final = _number(lambda n: 0 <= n <= 1, "between 0.0 and 1.0")
_THRESHOLD: Final = _number(lambda n: n >= 2, "bigger or equal to 2", _long)
_SIZE: Final = _number(lambda n: n > 0, "positive", integer)

_COMMON: Final[dict[str, Check]] = {
    "enabled": _boolean,
    "tombstone_compaction_interval": _interval,
    "tombstone_threshold": _FRACTION,
    "unchecked_tombstone_compaction": _boolean,
}
_TIERED: Final[dict[str, Check]] = _COMMON | {
    "bucket_high": _number(lambda n: n > 1, "greater than 1.0"),
    "bucket_low": _number(lambda n: 0 < n < 1, "between 0.0 and 1.0"),
    "max_threshold": _THRESHOLD,
    "min_sstable_size": _number(lambda n: n >= 0, "non negative", _long),
    "min_threshold": _THRESHOLD,
}
_INCREMENTAL: Final[dict[str, Check]] = _TIERED | {
    "space_amplification_goal": _number(lambda n: 1 < n <= 2, "greater than 1.0 and less than or equal to 2.0"),
    "sstable_size_in_mb": _SIZE,
}
# Source: Scylla ``compaction/compaction_strategy.cc``, validate_options_for_strategy_type.
_STRATEGIES: Final[dict[str, dict[str, Check] | None]] = {
    "IncrementalCompactionStrategy": _INCREMENTAL,
    "LeveledCompactionStrategy": _TIERED | {"sstable_size_in_mb": _SIZE},
    "NullCompactionStrategy": None,  # takes anything
    "SizeTieredCompactionStrategy": _INCREMENTAL | {"cold_reads_to_omit": _FRACTION},
    "TimeWindowCompactionStrategy": _INCREMENTAL
    | {
        "compaction_window_size": _number(lambda n: n > 0, "greater than 1", _long),
        "compaction_window_unit": _one_of("window unit", tuple(_UNITS)),
        "enable_optimized_twcs_queries": _boolean,
        "expired_sstable_check_frequency_seconds": _number(lambda n: n >= 0, "non negative", _long),
        "timestamp_resolution": _one_of("timestamp resolution", ("MICROSECONDS", "MILLISECONDS")),
    },
}


def compaction(given: dict[str, str]) -> dict[str, str]:
    """Return the option as the schema shows it: the short name of the class, other sub-options as written.

    Raises ConfigError for what Scylla refuses, SyntaxException for what is not a number.
    """
    if "class" not in given:
        raise ConfigError("Missing sub-option 'class' for the 'compaction' option.")
    name = given["class"].removeprefix(_PACKAGE)
    if name == "InMemoryCompactionStrategy":
        raise ConfigError(f"{name} has been deprecated.")
    if name not in _STRATEGIES:
        raise ConfigError(f"Unable to find compaction strategy class '{given['class']}'")
    checks = _STRATEGIES[name]
    if checks is not None:
        options = {key: value for key, value in given.items() if key != "class"}
        for key in sorted(options.keys() & checks.keys()):
            checks[key](key, options.pop(key))
        if options:
            raise ConfigError(
                f"Invalid compaction strategy options {json.dumps(dict(sorted(options.items())))} for chosen strategy"
                " type"
            )
    return {**given, "class": name}


def check_windows(options: dict[str, Any]) -> None:
    """Refuse a default TTL of more windows of TimeWindowCompactionStrategy than Scylla allows."""
    chosen, ttl = options["compaction"], options["default_time_to_live"]
    if chosen["class"] != "TimeWindowCompactionStrategy" or ttl <= 0:
        return
    size = int(chosen.get("compaction_window_size", "1")) * _UNITS[chosen.get("compaction_window_unit", "DAYS")]
    if ttl // size > _MAX_WINDOWS:
        raise ConfigError(
            f"The setting of default_time_to_live={ttl} and compaction window={size}(s) can lead to {ttl // size}"
            f" windows, which is larger than the allowed number of windows specified by the twcs_max_window_count"
            f" ({_MAX_WINDOWS}) parameter."
        )
