"""``rscylla kafka run``: publishes the changes of tables to Kafka, by the properties of the Java connector."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import rscylla

from .shared.connectors import BootstrapServers, need_servers, open_session, read_properties
from .shared.failures import Exit, quiet_logs, stopping
from .shared.options import command
from .shared.standard import binary_output, say, visible, write

if TYPE_CHECKING:
    from rscylla.kafka import Properties

__all__ = ["run"]


@command
def run(
    file: Annotated[Path, Argument(metavar="FILE", help="Properties of the connector, in Java's format or as JSON.")],
    worker: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Properties of the Connect worker, for what FILE does not say; repeat."),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    validate: Annotated[
        bool, Option("--validate", help="Print what the connector would say about FILE, as JSON, and end.")
    ] = False,
    dry_run: Annotated[
        bool,
        Option(
            "--dry-run",
            help="Print the records up to now as JSON lines. Needs no Kafka; saves no cursor, and registers no schema.",
        ),
    ] = False,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, metavar="PORT", help="Serve /metrics, /healthz, and /readyz."),
    ] = None,
    host: Annotated[str, Option(metavar="ADDRESS", help="Address for --port.")] = "127.0.0.1",
) -> None:
    """Publish the changes of tables to Kafka, as ScyllaDB's CDC source connector does, until a signal stops it.

    FILE is what you have given to Kafka Connect. Properties that are unknown, without effect, or not supported are
    named. A first SIGTERM or Ctrl-C waits for acknowledgements and saves cursors.
    """
    if validate and dry_run:
        raise rscylla.ConfigError("--validate and --dry-run exclude each other; give one")
    properties = read_properties(file, worker, bootstrap_servers)
    if validate:
        _validate(properties)
        return
    for finding in properties.findings:
        if finding.level == "warning":
            say(f"warning: {finding.property} {finding.message}")
    if dry_run:
        _show(properties)
    else:
        _run(properties, port, host)


def _validate(properties: Properties) -> None:
    from rscylla.kafka import verdicts

    if properties.errors:
        found = verdicts(properties, None)
    else:
        with open_session(properties) as session:
            found = verdicts(properties, session)
    lines: list[dict[str, Any]] = [
        {"property": one.property, "level": one.level, "message": properties.redacted(one.message, one.property)}
        | ({"note": properties.redacted(one.note, one.property)} if one.note else {})
        for one in found
    ]
    write(json.dumps(lines, indent=2, ensure_ascii=False), lines=True)
    if any(one.level == "error" for one in found):
        raise typer.Exit(Exit.FAILED)


def _show(properties: Properties) -> None:
    from cursorstore import MemoryCursorStore
    from rscylla.kafka import Connector
    from rscylla.publish import JsonLines

    # There is no Kafka, and nobody to share with. A registry of its own gives ids, and is gone after.
    properties = properties.without("exactly.once.support", "exactly.once.source.support", "rscylla.group")
    registries = [name for name in properties if name.endswith(".converter.schema.registry.url")]
    own = dict.fromkeys(registries, "mock://dry-run")
    own |= {name.replace("schema.registry.url", "auto.register.schemas"): "true" for name in registries}
    properties = properties.but(own)
    with open_session(properties) as session, stopping() as stop:
        publisher = JsonLines(binary_output())
        Connector(properties, session, publisher, lambda keyspace: MemoryCursorStore(), to_head=True).run(stop)


def _run(properties: Properties, port: int | None, host: str) -> None:
    from rscylla.kafka import Connector

    properties.require()
    need_servers(properties)
    quiet_logs(logging.INFO)
    with open_session(properties) as session, snapshot_bars() as bars, stopping() as stop:
        code = Connector(properties, session, port=port, host=host, on_snapshot=bars).run(stop)
    if code:
        raise typer.Exit(code)


@contextmanager
def snapshot_bars() -> Iterator[Callable[[str, float, int], None] | None]:
    """Yield what shows the progress of snapshots, a bar a table, while the block runs; None if there is no terminal.

    A bar goes when its table is done. Log lines appear above the bars.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = ("snapshot of {task.description}", "{task.percentage:>5.1f} %", "{task.fields[rows]:,} rows")
    shown = [TextColumn(column) for column in columns]
    lock = threading.Lock()
    bars: dict[str, TaskID] = {}
    console = Console(stderr=True)
    with Progress(shown[0], BarColumn(), *shown[1:], TimeRemainingColumn(), console=console, transient=True) as display:

        def show(table: str, part: float, rows: int) -> None:
            with lock:
                if table not in bars:
                    bars[table] = display.add_task(escape(visible(table)), total=1.0, rows=rows)
                if part < 1:
                    display.update(bars[table], completed=part, rows=rows)
                else:
                    display.remove_task(bars.pop(table))

        yield show
