"""What the rules of a statement share: parts in, one value out."""

from __future__ import annotations

from typing import Any

__all__ = ["Parts", "as_tuple", "false", "first_or_none", "true"]

Parts = list[Any]


def first_or_none(parts: Parts) -> Any:
    return parts[0] if parts else None


def as_tuple(parts: Parts) -> tuple[Any, ...]:
    return tuple(parts)


def true(_: Parts) -> bool:
    return True


def false(_: Parts) -> bool:
    return False
