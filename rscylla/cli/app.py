"""The command ``rscylla`` and its subcommands."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Annotated

import typer

from . import cursor, demo, serve, tail, topology
from .common import Exit

__all__ = ["app", "run"]

_EPILOG = (
    "Exit codes: 0 done, or stopped as asked; 1 failed; 2 wrong usage; 3 no connection, no answer or login refused; "
    "4 no such table, no CDC log or a refused query; 5 a cursor that cannot be used; 130 interrupted."
)

app = typer.Typer(
    name="rscylla",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rscylla {importlib.metadata.version('rscylla')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Change data capture for ScyllaDB: watch a table's changes, look after cursors, try it all on a local server."""


app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("tail")(tail.tail)
app.add_typer(cursor.app, name="cursor")
app.command("topology")(topology.topology)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, ``sys.argv`` unless given; return the exit code."""
    try:
        app(args=arguments, prog_name="rscylla")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.DONE
    return Exit.DONE
