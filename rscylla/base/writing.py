"""Writes as the driver sends them: prepared statements whose values are bytes already."""

from __future__ import annotations

from typing import Any

from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE, BoundStatement

from .statements import UNSET, Write

__all__ = ["bound"]


def bound(prepared: Any, write: Write, *, consistency: int) -> Any:
    """Return *write* bound to its prepared statement. It may be sent twice, so the driver may, too; we try again."""
    statement = BoundStatement(prepared, retry_policy=FallthroughRetryPolicy())
    statement.values = [UNSET_VALUE if value is UNSET else value for value in write.values]
    statement.consistency_level = consistency
    statement.is_idempotent = True
    return statement
