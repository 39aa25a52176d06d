"""A member of the cluster."""

from __future__ import annotations

import uuid
from typing import Final

import attrs

from ..clock import NodeClock

__all__ = ["Node"]

_DEFAULT_IGNORE_MSB: Final = 12


@attrs.frozen(eq=False)
class Node:
    """A member of the cluster. ``index`` counts from 0 in order of joining and is never used again."""

    index: int
    host_id: uuid.UUID
    address: str
    dc: str
    rack: str
    tokens: tuple[int, ...]
    shards: int
    clock: NodeClock
    ignore_msb: int = _DEFAULT_IGNORE_MSB
