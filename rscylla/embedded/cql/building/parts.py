"""What the rules of a statement share: parts in, one value out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Parts", "as_tuple", "false", "first_or_none", "true", "word"]

Parts = list[Any]


def first_or_none(parts: Parts) -> Any:
    return parts[0] if parts else None


def as_tuple(parts: Parts) -> tuple[Any, ...]:
    return tuple(parts)


def word(value: Any) -> Callable[[Parts], Any]:
    """Return what gives *value* for a rule without parts of interest."""
    return lambda _: value


true = word(True)
false = word(False)
