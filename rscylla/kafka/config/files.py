"""Files of properties: their text, references in their values, and what of a worker's file counts for a connector."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import javaproperties

from ...errors import ConfigError

__all__ = ["merged", "read", "resolved"]

_REFERENCE = re.compile(r"\$\{([a-z]+):([^}]*)\}")

_OF_WORKERS_TOO: Final = "heartbeat.interval.ms"
"""A worker has a property of this name, for its own heartbeats in its group."""


def merged(own: Mapping[str, str], worker: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return what counts of a connector's properties and of its worker's, and of the connector's what does not.

    As in Connect, options of a converter count only beside its class: those of the connector if it names one, else the
    worker's. Of a property without effect, the second result has the name, and that of the class it needs.
    """
    own, worker = dict(own), dict(worker)
    worker.pop(_OF_WORKERS_TOO, None)
    unread: list[tuple[str, str]] = []
    for converter in ("key.converter", "value.converter", "header.converter"):
        if own.get(converter, "").strip():
            worker = {name: value for name, value in worker.items() if not _is_of(name, converter)}
        elif worker.get(converter, "").strip():
            unread += [(name, converter) for name in own if _is_of(name, converter) and name != converter]
            own = {name: value for name, value in own.items() if not _is_of(name, converter)}
    return worker | own, unread


def _is_of(name: str, converter: str) -> bool:
    return name == converter or name.startswith(f"{converter}.")


def _text_of(raw: bytes, path: Path, *, latin_1: bool) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigError: it is not UTF-8, and does not begin with the mark of UTF-16, and *latin_1* is not allowed.
    """
    try:
        return raw.decode("utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        if latin_1 and not raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            return raw.decode("latin-1")  # what Java reads such a file as
        raise ConfigError(f"{path} cannot be read: it is not UTF-8, at byte {error.start}") from None


def read(path: Path) -> dict[str, str]:
    """Return the properties of a file, in Java's format or as JSON, with references as they are.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    is_json = raw.lstrip(_BEFORE_JSON).startswith(b"{")
    text = _text_of(raw, path, latin_1=not is_json)
    if is_json:
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        config = found.get("config", found)
        if not isinstance(config, dict):
            raise ConfigError(f'{path}: "config" must be an object of properties')
        named = {"name": found["name"]} if "config" in found and "name" in found else {}
        return {name: _json_text(value) for name, value in (named | config).items()}
    try:
        return dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path}: {error}") from error


_BEFORE_JSON: Final = b" \t\r\n\0" + BOM_UTF8 + BOM_UTF16_LE + BOM_UTF16_BE
"""Bytes that may come before the brace of a JSON object."""


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def resolved(name: str, value: str, env: Mapping[str, str]) -> str:
    """Return the value of the property *name* with references resolved; *env*: what ``${env:NAME}`` finds.

    Raises:
        ConfigError: a reference leads nowhere.
    """

    def resolve(found: re.Match[str]) -> str:
        provider, what = found[1], found[2]
        if provider == "env":
            if what not in env:
                raise ConfigError(f"{name} refers to the environment variable {what}, which is not set")
            return env[what]
        if provider == "file":
            path, _, key = what.rpartition(":")
            given = read(Path(path))
            if key not in given:
                raise ConfigError(f"{name} refers to {key} of {path}, which is not there")
            return given[key]
        if provider == "directory":
            path, _, key = what.rpartition(":")
            file = Path(path) / key
            try:
                return _text_of(file.read_bytes(), file, latin_1=False).rstrip("\r\n")
            except OSError as error:
                raise ConfigError(f"{name} refers to a file that cannot be read: {error}") from error
        raise ConfigError(
            f"{name} refers to the provider {provider!r}; rscylla has ${{env:NAME}}, ${{file:PATH:KEY}}, and "
            "${directory:PATH:NAME}"
        )

    return _REFERENCE.sub(resolve, value)
