"""CDC logs in Spark: the data source ``scylla-cdc``, windows with a cursor, and pipeline helpers.

Nothing of Spark is imported before one of the names is used: Spark's own workers import this package to find the data
source.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .java import ensure_java as ensure_java
    from .source import ScyllaCdcDataSource as ScyllaCdcDataSource
    from .source import register as register

__all__ = ["ScyllaCdcDataSource", "ensure_java", "register"]

_HOMES = {
    "ScyllaCdcDataSource": ".source",
    "ensure_java": ".java",
    "register": ".source",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
