"""The ``cdc`` table option: its map as written, checked as Scylla checks it, and the bytes in which it is stored."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, Final, Literal

from ..errors import ConfigError, InvalidRequest, ServerError
from ..schema.tables import CdcOptions
from ..versions import NEWEST, Release

__all__ = ["altered_cdc_options", "cdc_options", "extension_bytes", "option_map"]

_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_SWITCH: Final = {"on": "true", "off": "false"}
_INTERNAL: Final = ("enable_requested", "tablet_merge_blocked")  # Alternator's: checked, and without effect here
_INT_PREFIX: Final = re.compile(r"\s*([+-]?[0-9]+)")
_MAX_INT32: Final = (1 << 31) - 1
_UINT32: Final = struct.Struct("<I")


def cdc_options(given: Any, release: Release = NEWEST) -> CdcOptions:
    """Return the options of ``WITH cdc = {...}``: what is not named takes its default.

    ``given`` is the map as parsed, text to text. Keys and values count in any case.

    Raises:
        ConfigError: An unknown key or a value that is not allowed.
        ServerError: Not a map at all.

    Source: Scylla ``cdc/cdc_options.hh`` and ``cdc/log.cc``.
    """
    if not isinstance(given, Mapping):
        raise ServerError("the cdc option takes a map; write cdc = {'enabled': true}")
    enabled, postimage = False, False
    preimage: Literal["false", "true", "full"] = "false"
    delta: Literal["full", "keys"] = "full"
    ttl = 86400
    for raw_key, raw_value in given.items():
        key, value = str(raw_key).lower(), str(raw_value).lower()
        if key == "enabled":
            enabled = _boolean(key, value)
        elif key == "preimage":
            if not release.has("preimage neither on nor off"):
                value = _SWITCH.get(value, value)
            preimage = "full" if value == "full" else "true" if _boolean(key, value) else "false"
        elif key == "postimage":
            postimage = _boolean(key, value)
        elif key == "delta":
            if value not in ("full", "keys"):
                raise _bad_value(key, value)
            delta = "keys" if value == "keys" else "full"
        elif key == "ttl":
            ttl = _ttl(value)
        elif key in _INTERNAL:
            _boolean(key, value)
        else:
            raise ConfigError(f"Invalid CDC option: {key}")
    return CdcOptions(enabled=enabled, preimage=preimage, postimage=postimage, delta=delta, ttl=ttl)


def altered_cdc_options(given: Any, release: Release = NEWEST) -> CdcOptions:
    """Return the options after ``ALTER TABLE ... WITH cdc``: the whole map is replaced, and must name ``enabled``."""
    options = cdc_options(given, release)
    if release.has("ALTER names enabled") and not any(str(key).lower() == "enabled" for key in given):
        raise InvalidRequest('Altering CDC options requires specifying "enabled" flag')
    return options


def option_map(options: CdcOptions) -> dict[str, str]:
    """Return the form that is stored and described: all five keys, sorted, values as text."""
    return {
        "delta": options.delta,
        "enabled": "true" if options.enabled else "false",
        "postimage": "true" if options.postimage else "false",
        "preimage": options.preimage,
        "ttl": str(options.ttl),
    }


def extension_bytes(entries: Mapping[str, str]) -> bytes:
    """Return a map of options as ``extensions`` of ``system_schema.tables`` has it; that of CDC is ``option_map``.

    A little-endian uint32 count, then for each entry the key and the value, each behind its uint32 length.
    Source: Scylla ``serializer_impl.hh``.
    """
    out = [_UINT32.pack(len(entries))]
    for pair in entries.items():
        for text in pair:
            raw = text.encode()
            out += [_UINT32.pack(len(raw)), raw]
    return b"".join(out)


def _boolean(key: str, value: str) -> bool:
    if value not in _BOOLEANS:
        raise _bad_value(key, value)
    return _BOOLEANS[value]


def _ttl(value: str) -> int:
    # As C's stoi does it: a number at the start is enough.
    match = _INT_PREFIX.match(value)
    if match is None:
        raise _bad_value("ttl", value)
    digits = match.group(1)
    if len(digits) > 20 or not -_MAX_INT32 - 1 <= int(digits) <= _MAX_INT32:
        raise ConfigError("Invalid CDC option: ttl too large")
    if int(digits) < 0:
        raise ConfigError("Invalid CDC option: ttl must be >= 0")
    return int(digits)


def _bad_value(key: str, value: str) -> ConfigError:
    return ConfigError(f'Invalid value for CDC option "{key}": {value}')
