"""What is said of one key column, and which keys that makes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ...errors import InvalidRequest, ServerError
from ...schema.tables import Column
from ...storage.mutation import Key
from ..binding import Getter, Request, not_unset
from ..rows import RowView, column_value
from .filtering import COMPARE, Check, one_of
from .tuples import Values

__all__ = ["MAX_KEY", "KeyRestriction", "check_length", "check_product", "key_check", "not_null", "one"]

MAX_KEY = 0xFFFF  # bytes; Scylla stores the length of a key in 16 bits
_MOST_KEYS = 100  # keys that IN lists may name, Scylla's default for partition and for clustering keys


@attrs.define
class KeyRestriction:
    """All that =, IN and slices say about one key column."""

    column: Column
    equals: list[Values] = attrs.field(factory=list)
    equal: Getter | None = None
    """What gives the value of an =, as one of ``equals`` does."""
    is_in: bool = False
    slices: list[tuple[str, Getter]] = attrs.field(factory=list)

    @functools.cached_property
    def values(self) -> Values | None:
        """The function that gives the values that all relations allow; None if there are slices only."""
        if len(self.equals) <= 1 and not (self.equals and self.slices):
            return self.equals[0] if self.equals else None
        first, *others = self.equals

        def common(request: Request) -> list[bytes | None]:
            found = first(request)
            for other in others:
                allowed = set(other(request))
                found = [value for value in found if value in allowed]
            within = self.within(request)
            # A null stays, so that a write can refuse it.
            return [value for value in found if value is None or within(value)]

        return common

    def within(self, request: Request) -> Callable[[bytes], bool]:
        """Return the check of a value against the slices."""
        sort_key = self.column.type.sort_key
        slices = [(op, not_unset(getter(request), "column", self.column.name)) for op, getter in self.slices]
        limits = [(op, None if value is None else sort_key(value)) for op, value in slices]
        return lambda value: all(limit is not None and COMPARE[op](sort_key(value), limit) for op, limit in limits)


def check_length(key: Key) -> None:
    """Refuse a partition or clustering key that is too long to be stored."""
    size = len(key[0]) if len(key) == 1 else sum(map(len, key))
    if len(key) > 1:
        # Each part of a composite key has its length before it.
        size += 2 * len(key)
    if size > MAX_KEY:
        raise InvalidRequest(f"Key length of {size} is longer than maximum of {MAX_KEY}")


def check_product(kind: str, lists: Sequence[Sequence[Any]]) -> None:
    """Refuse IN lists that name more keys than a node accepts. Source: Scylla ``statement_restrictions.cc``."""
    size = math.prod(len(set(values)) for values in lists)
    if size > _MOST_KEYS:
        raise ServerError(
            f"size of {kind}-key IN list or {kind}-key cartesian product of IN list {size} is greater than maximum"
            f" {_MOST_KEYS}. Use --max-{kind}-key-restrictions-per-query configuration option to change default"
            " setting."
        )


def one(get: Getter, name: str) -> Values:
    """Return the function that gives the value of = as the only one of a list."""
    return lambda request: [not_unset(get(request), "column", name)]


def not_null(value: Any, name: str) -> bytes:
    known = not_unset(value, "column", name)
    if known is None:
        raise InvalidRequest(f"Invalid null value in condition for column {name}")
    return known


def key_check(column: Column, single: KeyRestriction) -> Callable[[Request], Check]:
    """Return a maker of checks of one key column against its values and slices."""
    read = column_value(column)

    def for_request(request: Request) -> Check:
        values = None if single.values is None else single.values(request)
        is_one = None if values is None else one_of(column.type, [v for v in values if v is not None])
        within = single.within(request)

        def check(view: RowView) -> bool:
            value = read(view)
            if value is None:
                return False
            return within(value) if is_one is None else is_one(value)

        return check

    return for_request
