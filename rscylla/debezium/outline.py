"""``Outline``: what the records of a layout have in common, from which code that makes bytes at once is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import attrs

from ..types import Schema

__all__ = ["Outline", "Slot"]


class Slot(IntEnum):
    """What differs from one envelope to the next, by the numbers that the compiled code has."""

    SOURCE_MS = 0
    SOURCE_US = 1
    SOURCE_NS = 2
    BEFORE = 3
    AFTER = 4
    KEY = 5
    CODE = 6
    NOW_MS = 7
    NOW_US = 8
    NOW_NS = 9


@attrs.frozen(eq=False, kw_only=True)
class Outline:
    """The records of changes of single rows of one layout.

    ``envelope``: the value, with slots where records differ. ``key``, ``before``, ``after``: the columns that these
    have. ``codes``: by the bytes of operations, their code. ``images``: what before and after have in the advanced
    format. ``key_schema``: None if records have no key. ``doubted_us``: until then, the log may have had only keys, so
    inserts without columns are not made here.
    """

    topic: str
    key_schema: Schema | None
    value_schema: Schema
    envelope: Mapping[str, Any]
    key: Sequence[Any]
    before: Sequence[Any]
    after: Sequence[Any]
    codes: Mapping[bytes, str]
    images: tuple[str, str]
    is_legacy: bool
    doubted_us: int
    has_preimages: bool
    has_tombstones: bool
