"""CQL types as trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

__all__ = ["Type"]


@attrs.frozen
class Type:
    """A CQL type as a tree, without the driver's classes.

    ``kind``: list, set, map, tuple, udt, vector, or the name of a native type. ``read`` gives the driver's own value
    for bytes.
    """

    kind: str
    text: str
    read: Callable[[bytes], Any] = attrs.field(repr=False, eq=False)
    args: tuple[Type, ...] = ()
    fields: tuple[str, ...] = ()
