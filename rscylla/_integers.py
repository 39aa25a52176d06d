"""Integers of any size as decimal text, and back. Python itself refuses those of more than 4,300 digits."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["format_int", "parse_int"]

_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)


def format_int(number: int) -> str:
    """Return *number* as ``str`` has it."""
    try:
        return str(number)
    except ValueError:
        return str(Decimal(number))


def parse_int(text: str) -> int:
    """Return the number that *text* is, as ``int`` has it; for ``json.loads(..., parse_int=...)``, too.

    Raises:
        ValueError: *text* is no whole number.
    """
    try:
        return int(text)
    except ValueError:
        if not _DIGITS.fullmatch(text):
            raise
        return int(Decimal(text))
