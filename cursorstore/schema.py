"""The table that holds the cursors, as CQL text.

One row an epoch of a consumer; the highest epoch counts. Two columns are written all the time, ``position`` and
``updated``, and both only ever grow, see ``scylla.py``. The rest is written once, when a reset opens the epoch.
"""

from __future__ import annotations

import re

from rscylla.errors import ConfigError

__all__ = ["COLUMNS", "DEFAULT_TABLE", "qualified", "schema_cql"]

DEFAULT_TABLE = "rscylla_cursors"

COLUMNS = {
    "consumer": "text",
    "epoch": "bigint",
    "position": "text",
    "updated": "text",
    "start": "text",
    "stamp": "bigint",
    "opened": "text",
    "reason": "text",
}
"""Names and types of the columns."""

_COMMENT = "cursors of rscylla consumers; the highest epoch counts; reset cursors with rscylla, do not edit rows"


def schema_cql(keyspace: str, table: str = DEFAULT_TABLE) -> str:
    """Return the statement that creates the table, without a semicolon.

    For those who do not let this library create tables: print it, and give it to whoever does.

    Raises:
        ConfigError: a name cannot be one of a keyspace or table.
    """
    columns = "".join(f"    {name} {kind},\n" for name, kind in COLUMNS.items())
    # Expiring cells would beat plain ones and then vanish, so the table has no default TTL.
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified(keyspace, table)} (\n{columns}    PRIMARY KEY ((consumer), epoch)\n)\n"
        f"WITH CLUSTERING ORDER BY (epoch DESC) AND default_time_to_live = 0\n    AND comment = '{_COMMENT}'"
    )


def qualified(keyspace: str, table: str) -> str:
    """Return the quoted full name of a table; both names are taken as they are, capitals too."""
    for what, name in (("keyspace", keyspace), ("table", table)):
        if not isinstance(name, str) or not re.fullmatch(r"\w{1,192}", name, re.ASCII):
            raise ConfigError(f"{name!r} cannot be the name of a {what}; use letters, digits and _ (and no quotes)")
    return f'"{keyspace}"."{table}"'
