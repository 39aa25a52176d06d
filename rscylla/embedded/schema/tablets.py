"""The table property ``tablets``: what a table asks for, and how many tablets that makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import ConfigError, SyntaxException
from .numbers import leading_float, leading_integer, shown
from .replication import MOST_TABLETS
from .tables import Keyspace

__all__ = ["tablet_hints", "tablets_for"]

_TARGET_GB: Final = 5  # the size of a tablet that Scylla aims at
_HINTS: Final = ("expected_data_size_in_gb", "max_tablet_count", "min_per_shard_tablet_count", "min_tablet_count")
_TRUE: Final = ("true", "yes", "1")
_FALSE: Final = ("false", "no", "0")


def tablet_hints(name: str, value: Any) -> dict[str, str]:
    """Return the hints of ``WITH tablets = {...}`` as the schema shows them: those of zero are no hints.

    Raises SyntaxException for an unknown hint, ConfigError for a value that is not allowed.
    Source: Scylla ``db/tablet_options.cc``.
    """
    if not isinstance(value, Mapping):
        raise SyntaxException(f"Invalid value for property '{name}'. It should be a map.")
    numbers: dict[str, float] = {}
    hints: dict[str, str] = {}
    for hint, given in sorted(value.items()):
        if hint == "pow2_count":
            hints[hint] = _pow2_count(str(given))
        elif hint in _HINTS:
            read = leading_float if hint == "min_per_shard_tablet_count" else leading_integer
            numbers[hint] = number = read(str(given))
            if number < 0 or (number == 0 and hint == "max_tablet_count"):
                raise ConfigError(f"Invalid value '{shown(number)}' for {hint}")
            if number:
                hints[hint] = shown(number)
        else:
            raise SyntaxException(f"Unknown tablet hint '{hint}'")
    _check_range(numbers)
    return hints


def _pow2_count(text: str) -> str:
    if text.lower() in _FALSE:
        raise ConfigError("pow2_count cannot be set to false until the arbitrary_tablet_boundaries feature is enabled")
    if text.lower() not in _TRUE:
        raise ConfigError(f"Invalid value '{text}' for pow2_count")
    return "true"


def _check_range(numbers: Mapping[str, float]) -> None:
    low, high = int(numbers.get("min_tablet_count", 0)), int(numbers.get("max_tablet_count", 0))
    if low > MOST_TABLETS:
        raise ConfigError(f"the embedded server makes at most {MOST_TABLETS} tablets for a table, not {low}")
    if "min_tablet_count" in numbers and high and _power_up(low) > _power_down(high):
        raise ConfigError(
            f"Invalid tablet count range: min_tablet_count={low} (effective: {_power_up(low)}) and "
            f"max_tablet_count={high} (effective: {_power_down(high)}) conflict, for counts are powers of 2"
        )


def tablets_for(keyspace: Keyspace, hints: Sequence[Mapping[str, str]], shards: int) -> int:
    """Return how many tablets a table of a tablets keyspace has by the hints of it and its log, and by ``initial``.

    It is the highest of what they ask for, as a power of two. Where they ask for nothing, it is one for each of the
    cluster's ``shards``; Scylla makes ten. Source: Scylla ``service/tablet_allocator.cc``.
    """
    given = {name: [float(each[name]) for each in hints if name in each] for name in _HINTS}
    least = int(max(given["min_tablet_count"], default=0))
    default = 0 if keyspace.tablets or least else 1
    per_shard = max(given["min_per_shard_tablet_count"], default=default)
    wanted = max(
        1,
        keyspace.tablets or 0,
        least,
        int(max(given["expected_data_size_in_gb"], default=0)) // _TARGET_GB,
        math.ceil(min(per_shard, MOST_TABLETS) * shards / _copies(keyspace)),
    )
    most = int(min(given["max_tablet_count"], default=MOST_TABLETS))
    return min(_power_up(wanted), _power_down(most), MOST_TABLETS)


def _copies(keyspace: Keyspace) -> int:
    factors = [factor for name, factor in keyspace.options["replication"].items() if name != "class"]
    # A factor may also be a list of racks.
    return max((len(f) if isinstance(f, list | tuple) else int(f) for f in factors), default=1) or 1


def _power_up(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _power_down(number: int) -> int:
    return 1 << number.bit_length() - 1
