"""The command ``rscylla`` and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer

import rscylla

from . import ctl, cursor, deadletter, doctor, group, kafka, replicate, schema, serve, tail, topology
from .demo import demo
from .shared.failures import Exit, end_with, print_error
from .shared.standard import say, unwritable, write

__all__ = ["app", "run"]

_EPILOG = (
    "Exit codes: 0 done, or stopped on request; 1 failed; 2 wrong usage; 3 no connection, no answer, or a refused "
    "login; 4 no such table, no CDC log, or a refused query; 5 a cursor that cannot be used; 130 interrupted."
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
        write(f"rscylla {rscylla.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Change data capture for ScyllaDB: follow the changes of a table, manage cursors, and run a local server."""


app.command("demo")(demo.demo)
serving = typer.Typer(invoke_without_command=True)
serving.callback()(serve.serve)
serving.add_typer(ctl.app, name="ctl")
app.add_typer(serving, name="serve")
app.command("tail")(tail.tail)
app.add_typer(cursor.app, name="cursor")
app.add_typer(deadletter.app, name="deadletter")
app.add_typer(group.app, name="group")
app.command("replicate")(replicate.replicate)
app.command("schema")(schema.schema)
app.command("topology")(topology.topology)
app.add_typer(kafka.app, name="kafka")
app.command("doctor")(doctor.doctor)


# Newer versions of typer bundle click, so the class is taken from typer.
_UsageError = cast("type[Exception]", typer.BadParameter.__bases__[0])


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, ``sys.argv`` unless given; return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        ended = app(args=given, prog_name="rscylla", standalone_mode=False)
    except SystemExit:
        if isinstance(unwritable(), BrokenPipeError):  # how click ends if the reader of --help has gone
            return Exit.DONE
        raise
    except OSError as error:  # from --help and --version; commands handle their own
        return end_with(error, as_json=False)
    except typer.Abort:  # Ctrl-C or the end of the input at a question
        return Exit.INTERRUPTED
    except _UsageError as error:
        text = str(error.format_message())  # type: ignore[attr-defined]
        # By name: the class is that of click, which typer may have bundled.
        if type(error).__name__ == "NoArgsIsHelpError":
            say(text, lines=True)  # the help of a command that got no arguments
        else:
            wrong = rscylla.ConfigError(f"{text.rstrip('.')}; see {_help_of(error)}")
            print_error(wrong, as_json="--json" in given)
        return Exit.USAGE
    return ended if isinstance(ended, int) else Exit.DONE


def _help_of(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path if context is not None else 'rscylla'} --help`"
