"""All that a cluster has written, and all that logs say, as bytes to be searched."""

from __future__ import annotations

from typing import Any

__all__ = ["all_tables"]


def all_tables(session: Any, keyspace: str) -> bytes:
    """Return all rows of all tables of *keyspace*, logs of CDC included."""
    found = session.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (keyspace,))
    names = sorted(row.table_name for row in found)
    assert any(name.endswith("_scylla_cdc_log") for name in names), names
    rows = [tuple(row) for name in names for row in session.execute(f'SELECT * FROM "{keyspace}"."{name}"')]
    return "\n".join(" ".join(_text(value) for value in row) for row in rows).encode()


def _text(value: Any) -> str:
    return value.decode("latin-1") + value.hex() if isinstance(value, bytes) else f"{value} {value!r}"
