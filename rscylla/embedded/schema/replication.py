"""Keyspace properties: replication and tablets, as ``WITH`` sets them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..errors import ConfigError, SyntaxException

__all__ = ["MOST_TABLETS", "keyspace_options", "tablets_option"]

# Scylla has no such bound; here it keeps one mistyped number from filling the memory.
MOST_TABLETS: Final = 1 << 16

_LOCATOR: Final = "org.apache.cassandra.locator."
_STRATEGIES: Final = ("SimpleStrategy", "NetworkTopologyStrategy", "LocalStrategy", "EverywhereStrategy")


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
