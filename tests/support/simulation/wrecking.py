"""A consumer's worst habits: it empties whatever it is handed."""

from __future__ import annotations

from typing import Any

from rscylla.cdc.rows import Bound, ColumnChange

__all__ = ["PARTS", "wreck", "wreck_event"]

PARTS = ("key", "before", "after", "columns", "values", "deleted_elements", "range")
"""The parts of a change that hold containers."""


def wreck_event(event: Any) -> None:
    """Empty all that *event* hands out."""
    wreck(event.key)
    for part in PARTS:
        wreck(getattr(event.change, part))


def wreck(value: Any) -> None:
    """Empty every container in *value*, the innermost first."""
    if isinstance(value, Bound):
        wreck(value.key)
    elif isinstance(value, ColumnChange):
        for part in (value.value, value.added, value.removed):
            wreck(part)
    elif isinstance(value, dict):
        for one in value.values():
            wreck(one)
        value.clear()
    elif isinstance(value, list | tuple):
        for one in value:
            wreck(one)
        if isinstance(value, list):
            value.clear()
    elif isinstance(value, set):
        value.clear()
