"""Keyspace properties: replication and tablets, as ``WITH`` sets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ..errors import ConfigError, InvalidRequest, SyntaxException
from ..versions import Release

__all__ = ["MOST_TABLETS", "Racks", "check_tablets_replication", "keyspace_options", "rack_lists", "tablets_option"]

# Scylla has no such bound; here it keeps one mistyped number from filling the memory.
MOST_TABLETS: Final = 1 << 16

_LOCATOR: Final = "org.apache.cassandra.locator."
_STRATEGIES: Final = ("SimpleStrategy", "NetworkTopologyStrategy", "LocalStrategy", "EverywhereStrategy")
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

Racks = Mapping[str, Collection[str]]
"""The racks of each datacenter of the cluster."""


def keyspace_options(
    given: dict[str, Any], base: dict[str, Any] | None, racks: Racks, release: Release
) -> dict[str, Any]:
    """Return what ``system_schema.keyspaces`` shows of a keyspace; ``base`` is what ALTER starts from.

    ``replication`` is a map of numbers, as drivers know it; ``replication_v2``, where there are lists of racks, has
    these as well. ``durable_writes`` is a bool. ``tablets`` is left to ``tablets_option``.

    Raises ConfigError, InvalidRequest or SyntaxException for what Scylla refuses.
    """
    options: dict[str, Any] = {"durable_writes": True, **(base or {})}
    if "replication" in given or base is None:
        options.pop("replication_v2", None)
        options |= _replication(given.get("replication", {}), base or {}, racks, release, is_new=base is None)
    for name, value in given.items():
        if name == "durable_writes":
            if str(value).lower() not in _BOOLEANS:
                raise SyntaxException(f"Invalid boolean value {value} for 'durable_writes'")
            options["durable_writes"] = _BOOLEANS[str(value).lower()]
        elif name == "storage":
            _check_storage(value, is_new=base is None)
        elif name == "consistency" and release.has("keyspace consistency"):
            _check_consistency(value)
        elif name not in ("replication", "tablets"):
            raise SyntaxException(f"Unknown property '{name}'")
    return options


def _replication(value: Any, base: dict[str, Any], racks: Racks, release: Release, *, is_new: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SyntaxException("Invalid value for property 'replication'. It should be a map.")
    if is_new and "class" not in value and not release.has("default replication"):
        raise ConfigError("Missing mandatory replication strategy class")
    if not release.has("rack lists"):
        for factor in value.values():
            if isinstance(factor, list):
                _check_factor(factor)
    old: dict[str, str] = base.get("replication", {})
    written = str(value.get("class", old.get("class", "NetworkTopologyStrategy")))
    name = written.removeprefix(_LOCATOR)
    if name == "LocalStrategy":
        raise ConfigError("Unable to use given strategy class: LocalStrategy is reserved for internal use.")
    if name not in _STRATEGIES:
        raise ConfigError(f"Unable to find replication strategy class '{written}'")
    rest = {key: item for key, item in value.items() if key != "class"}
    if name == "NetworkTopologyStrategy":
        return _by_datacenter(rest, base, racks, is_new=is_new)
    if name == "SimpleStrategy" and "replication_factor" not in rest:
        raise ConfigError("SimpleStrategy requires a replication_factor strategy option.")
    for key, factor in rest.items():
        if name == "SimpleStrategy" and key != "replication_factor":
            raise ConfigError(f"Unrecognized strategy option {{{key}}} passed to SimpleStrategy")
        _check_factor(factor)
    return {"replication": {"class": _LOCATOR + name, **rest}}


def _check_factor(factor: Any) -> None:
    if not isinstance(factor, str) or not (factor.isascii() and factor.isdigit()):
        raise ConfigError(f"Replication factor must be numeric and non-negative; found '{factor}'")


def _by_datacenter(given: dict[str, Any], base: dict[str, Any], racks: Racks, *, is_new: bool) -> dict[str, Any]:
    """Return the replication of each datacenter, as numbers and, where there are lists of racks, with these.

    ``replication_factor`` is for the datacenters that are neither named nor had one before. A change of the strategy
    without any factor keeps the one there was; a new keyspace without any has a replica in each rack.
    Source: Scylla ``cql3/statements/ks_prop_defs.cc``, ``docs/cql/ddl.rst``.
    """
    old: dict[str, str] = base.get("replication", {})
    common = given.get("replication_factor", None if given else old.get("replication_factor"))
    wanted: dict[str, Any] = {}
    if is_new and not given:
        wanted = {dc: str(len(racks[dc])) for dc in sorted(racks)}
    elif not given and common is None:
        raise ConfigError("NetworkTopologyStrategy requires a replication factor or a list of racks for a datacenter")
    if common is not None:
        _check_factor(common)
        kept = {dc: factor for dc, factor in old.items() if dc not in ("class", "replication_factor")}
        wanted = {**dict.fromkeys(sorted(racks), common), **kept}
    wanted |= {dc: item for dc, item in given.items() if dc != "replication_factor"}
    flat: dict[str, str] = {}
    lists = rack_lists(base.get("replication_v2", {}))
    for dc, item in wanted.items():
        if dc not in racks:
            raise ConfigError(f"Unrecognized strategy option {{{dc}}} passed to NetworkTopologyStrategy")
        if not isinstance(item, list):
            _check_factor(item)
            if dc in lists and int(item) not in (0, len(lists[dc])):
                raise ConfigError(f"Cannot change the rack list of datacenter '{dc}' to a numeric replication factor")
            item = lists[dc] if dc in lists and int(item) else item
        if isinstance(item, list):
            _check_racks(dc, item, racks[dc])
            flat |= {f"{dc}:{at}": rack for at, rack in enumerate(item)} or {f"{dc}:-1": ""}
        else:
            flat[dc] = item
        wanted[dc] = item
    name = _LOCATOR + "NetworkTopologyStrategy"
    numbers = {dc: str(len(item)) if isinstance(item, list) else item for dc, item in wanted.items()}
    shown: dict[str, Any] = {"replication": {"class": name, **numbers}}
    if flat != wanted:
        shown["replication_v2"] = {"class": name, **flat}
    return shown


def rack_lists(flat: dict[str, str]) -> dict[str, list[str]]:
    """Return the lists of racks in ``replication_v2``."""
    lists: dict[str, list[str]] = {}
    for key, rack in flat.items():
        dc, colon, at = key.rpartition(":")
        if colon:
            lists.setdefault(dc, []).extend([rack] if at != "-1" else [])
    return lists


def _check_racks(dc: str, chosen: list[str], known: Collection[str]) -> None:
    for rack in chosen:
        if rack not in known:
            raise ConfigError(f"Unrecognized rack name '{rack}' in datacenter '{dc}'")
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"The rack list of datacenter '{dc}' names a rack twice")


def _check_storage(value: Any, *, is_new: bool) -> None:
    """Refuse what Scylla refuses of ``storage``, and object stores, of which there are none here."""
    if not isinstance(value, dict):
        raise SyntaxException("Invalid value for property 'storage'. It should be a map.")
    kind = str(value.get("type", "LOCAL"))
    names = sorted(key for key in value if key != "type")
    needed = {"LOCAL": [], "S3": ["bucket", "endpoint"], "GS": ["bucket", "endpoint"]}.get(kind)
    if needed is None:
        raise InvalidRequest(f"Unknown storage type: {kind}")
    if extra := [name for name in names if name not in needed]:
        raise InvalidRequest(f"Extraneous options for {kind} storage: {', '.join(extra)}")
    if missing := [name for name in needed if name not in names]:
        raise InvalidRequest(f"Missing options for {kind} storage: {', '.join(missing)}")
    if kind != "LOCAL":
        if not is_new:
            raise InvalidRequest("Cannot alter storage options: the type of storage cannot be changed")
        raise InvalidRequest(f"keyspaces in {kind} object storage are not supported by the embedded server")


def _check_consistency(value: Any) -> None:
    if value not in ("eventual", "local", "global"):
        raise ConfigError(f"Invalid value for keyspace property 'consistency': {value}")
    # An experimental flag, which servers have off.
    raise ConfigError("The strongly_consistent_tables feature must be enabled to use a consistency option")


def check_tablets_replication(given: dict[str, Any], old: dict[str, str], new: dict[str, str]) -> None:
    """Refuse an ALTER of a keyspace with tablets that changes its replication by more than one step."""
    if "replication_factor" in given:
        raise InvalidRequest(
            "'replication_factor' tag is not allowed when executing ALTER KEYSPACE with tablets, please list the DCs"
            " explicitly"
        )
    names = (old.keys() | new.keys()) - {"class"}
    steps = [abs(int(new.get(dc, "0")) - int(old.get(dc, "0"))) for dc in names]
    if sum(steps) > 1:
        raise InvalidRequest("Only one DC's RF can be changed at a time and not by more than 1")


def tablets_option(
    given: dict[str, Any], replication: dict[str, str], *, default: bool, release: Release
) -> int | None:
    """Return ``initial_tablets`` of a new keyspace: None for vnodes, 0 for as many tablets as the server likes.

    Args:
        default: Whether a keyspace that says nothing uses tablets; only those of NetworkTopologyStrategy can. Others
            have vnodes then, or are refused, by the release.

    Raises SyntaxException or ConfigError for a value that is not allowed. Source: Scylla
    ``cql3/statements/ks_prop_defs.cc``.
    """
    strategy = replication["class"].rpartition(".")[2]
    able = strategy == "NetworkTopologyStrategy"
    if "tablets" not in given:
        if default and not able and release.has("SimpleStrategy only without tablets"):
            raise ConfigError(f"{strategy} doesn't support tablet replication")
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
