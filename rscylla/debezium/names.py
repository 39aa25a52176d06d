"""Names that Avro takes, as Debezium adjusts them. Source: runs of ``SchemaNameAdjuster`` of Debezium 2.7."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, get_args

__all__ = ["ADJUSTMENTS", "Adjustment", "field_name", "schema_name"]

Adjustment = Literal["none", "avro", "avro_unicode"]
"""``avro``: a character that Avro does not take is ``_``; ``avro_unicode``: it is ``_u`` and its code, as is ``_``."""

ADJUSTMENTS: Final[tuple[Adjustment, ...]] = get_args(Adjustment)

_NOT_IN: Final = {
    "avro": (re.compile(r"[^A-Za-z0-9_.]"), re.compile(r"[^A-Za-z0-9_]")),
    "avro_unicode": (re.compile(r"[^A-Za-z0-9.]"), re.compile(r"[^A-Za-z0-9]")),
}
_DIGITS: Final = frozenset("0123456789")


def schema_name(text: str, mode: Adjustment = "avro") -> str:
    """Return the name of a schema, adjusted; its parts are separated by points."""
    return _adjusted(text, mode, at=0)


def field_name(text: str, mode: Adjustment) -> str:
    """Return the name of a field, adjusted; a point is no part of it."""
    return _adjusted(text, mode, at=1)


def _adjusted(text: str, mode: Adjustment, *, at: int) -> str:
    if mode == "none" or not text:
        return text
    replace = _REPLACE[mode]
    first, rest = text[0], _NOT_IN[mode][at].sub(replace, text[1:])
    if first in _DIGITS:  # it stays behind the "_" that has to come first, or is a code
        return f"_{first}{rest}" if mode == "avro" else f"{_code(first)}{rest}"
    return _NOT_IN[mode][at].sub(replace, first) + rest


def _underscores(found: re.Match[str]) -> str:
    return "_" * (len(found[0].encode("utf-16-be")) // 2)


def _codes(found: re.Match[str]) -> str:
    return _code(found[0])


def _code(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join([f"_u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])


_REPLACE: Final[dict[str, Callable[[re.Match[str]], str]]] = {"avro": _underscores, "avro_unicode": _codes}
