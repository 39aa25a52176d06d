"""Numbers in properties, read as Scylla reads them: with C++'s ``stoi``, to which a number at the start is enough."""

from __future__ import annotations

import math
import re
from typing import Final

from ..errors import SyntaxException

__all__ = ["floating", "integer", "leading_float", "leading_integer", "shown"]

_INTEGER: Final = re.compile(r"\s*([+-]?[0-9]{1,20})", re.ASCII)
_FLOAT: Final = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)", re.ASCII)
_ENDLESS: Final = re.compile(r"\s*([+-]?inf)", re.IGNORECASE)


def integer(name: str, text: str, *, bits: int = 32) -> int:
    """Return the integer at the start of *text*. Raises SyntaxException if there is none of so many bits."""
    match = _INTEGER.match(text)
    number = int(match[1]) if match else 1 << bits
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        kind = "integer" if bits == 32 else "long"
        raise SyntaxException(f"Invalid {kind} value {text} for '{name}'")
    return number


def floating(name: str, text: str) -> float:
    """Return the number at the start of *text*. Raises SyntaxException if there is none."""
    match = _FLOAT.match(text)
    if match is None:
        raise SyntaxException(f"Invalid double value {text} for '{name}'")
    return float(match[1])


def leading_integer(text: str) -> int:
    """Return the integer at the start of *text*, 0 if there is none, as C's ``atol`` does."""
    match = _INTEGER.match(text)
    return int(match[1]) if match else 0


def leading_float(text: str) -> float:
    """Return the number at the start of *text*, 0 if there is none, as C's ``atof`` does."""
    match = _FLOAT.match(text) or _ENDLESS.match(text)
    return float(match[1]) if match else 0.0


def shown(number: float) -> str:
    """Return *number* as Scylla's messages show it, which is without a fraction of zero."""
    return str(int(number)) if math.isfinite(number) and number == int(number) else repr(number)
