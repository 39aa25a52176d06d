"""``rscylla schema``: prints the statements that create the tables of the stores."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Argument, Option

import rscylla
from cursorstore import group_schema_cql, lease_schema_cql, letter_schema_cql, schema_cql

from .shared.options import JsonOutput, command
from .shared.output import show

__all__ = ["schema"]

_TABLES = {
    "cursors": schema_cql,
    "leases": lease_schema_cql,
    "groups": group_schema_cql,
    "letters": letter_schema_cql,
}


@command
def schema(
    what: Annotated[
        Literal["cursors", "leases", "groups", "letters"] | None,
        Argument(metavar="[WHAT]", help="cursors, leases, groups, or letters (dead letters). Default: all of them."),
    ] = None,
    table: Annotated[str | None, Option(metavar="NAME", help="Name of the table of WHAT, as stored.")] = None,
    *,
    store: Annotated[str, Option(metavar="KEYSPACE", help="Keyspace of the tables, as stored.")],
    as_json: JsonOutput = False,
) -> None:
    """Print the statements that create the tables of the stores, for an administrator to run. Does not connect."""
    if table is not None and what is None:
        raise rscylla.ConfigError(f"--table needs the table that it names: one of {', '.join(_TABLES)}")
    for cql in [_TABLES[name](store, table) for name in ([what] if what else _TABLES)]:
        show({"cql": cql}, f"{cql};", as_json=as_json, lines=True)
