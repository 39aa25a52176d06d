"""``rscylla kafka``: the work of the Kafka connector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore

from . import kafka_run
from .common import (
    Connection,
    JsonOutput,
    StoreTable,
    TableArgument,
    TableName,
    connecting,
    naming,
    parse_table,
    reports_errors,
    time_of,
)
from .output import json_line, moment, table
from .standard import write

if TYPE_CHECKING:
    from rscylla.kafka.offsets import Takeover

__all__ = ["app"]

app = typer.Typer(help="Publish changes to Kafka.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Publish changes to Kafka."""


app.command("run")(kafka_run.run)


@app.command("import-offsets")
@reports_errors
@connecting
def import_offsets(
    connector: Annotated[str, typer.Argument(metavar="CONNECTOR", help="Property 'name' of the Java connector.")],
    prefix: Annotated[str, typer.Option("--prefix", metavar="NAME", help="Its property 'topic.prefix'.")],
    store: Annotated[str, typer.Option("--store", metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Offsets of a standalone worker: its offset.storage.file.filename."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Offsets of distributed workers: their offset.storage.topic."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka",
            metavar="NAME=VALUE",
            help="With --topic: a property of librdkafka, such as bootstrap.servers=HOST:PORT; repeat for more.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--of", metavar="KS.TABLE", help="Only this table; repeat for more. Default: all with offsets."),
    ] = None,
    table_name: StoreTable = DEFAULT_TABLE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cursors, and save none.")] = False,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Continue where the Java connector stopped: set the cursors of `rscylla kafka run` from its offsets.

    Stop the Java connector first. Nothing is lost. Changes written from "continues at" to "delivered up to" may come
    again, because the connector has an offset for each vnode and the cursor is the lowest of them.
    """
    try:
        from rscylla.kafka.offsets import offsets_of, read_file, read_topic, take_over
    except ModuleNotFoundError as e:
        raise rscylla.ConfigError(f"this command needs the package {e.name}; pip install 'rscylla[kafka]'") from e
    if (file is None) == (topic is None):
        raise rscylla.ConfigError("give either --file, of a standalone worker, or --topic, of distributed ones")
    if file is not None:
        entries = read_file(file)
    else:
        assert topic is not None
        entries = read_topic(topic, _properties(client or []))
    offsets = offsets_of(entries, connector)
    names = [parse_table(text) for text in only or ()]
    names = names or [TableName(*name) for name in sorted({offset.name for offset in offsets})]
    with connection.session() as session:
        found: list[Takeover] = []
        for name in names:
            with naming(name):
                found.append(take_over(rscylla.NewStream(session, name.keyspace, name.table), offsets))
        consumers = [f"{prefix}.{each.keyspace}.{each.table}" for each in found]
        if not dry_run:
            _save(ScyllaCursorStore(session, store, table_name), dict(zip(consumers, found, strict=True)))
    if as_json:
        for consumer, each in zip(consumers, found, strict=True):
            line = {"consumer": consumer, "cursor": each.cursor, "time": time_of(each.time_us)}
            line |= {"delivered_until": time_of(each.reached_us), "tasks": each.tasks, "with_offset": each.known}
            write(json_line(line))
        return
    table(
        ("consumer", "continues at", "delivered up to", "vnodes with an offset"),
        [
            (consumer, moment(time_of(each.time_us)), moment(time_of(each.reached_us)), f"{each.known} of {each.tasks}")
            for consumer, each in zip(consumers, found, strict=True)
        ],
    )


@app.command("snapshot")
@reports_errors
@connecting
def snapshot(
    name: TableArgument,
    prefix: Annotated[str, typer.Option("--prefix", metavar="NAME", help="Property 'topic.prefix' of the connector.")],
    store: Annotated[str, typer.Option("--store", metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the request.")
    ] = "requested on the command line",
    table_name: StoreTable = DEFAULT_TABLE,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Ask the running connector to publish all rows of a table, while it publishes changes.

    The connector looks for requests every few seconds. `rscylla cursor list` shows how far the snapshot is, under the
    name that this command prints.
    """
    try:
        from rscylla.kafka.snapshot import request
    except ModuleNotFoundError as e:
        raise rscylla.ConfigError(f"this command needs the package {e.name}; pip install 'rscylla[kafka]'") from e
    of = parse_table(name)
    with connection.session() as session, naming(of):
        stream = rscylla.NewStream(session, of.keyspace, of.table)
        cursors = ScyllaCursorStore(session, store, table_name)
        asked = request(stream, cursors, f"{prefix}.{of.keyspace}.{of.table}", reason=reason)
    for each in asked:
        write(json_line({"snapshot": each}) if as_json else each)


def _properties(given: list[str]) -> dict[str, str]:
    wrong = next((text for text in given if "=" not in text.strip("=")), None)
    if wrong is not None or not given:
        raise rscylla.ConfigError(f"--kafka {wrong or ''}: give a property as NAME=VALUE, at least bootstrap.servers")
    return dict(text.split("=", 1) for text in given)


def _save(store: ScyllaCursorStore, cursors: dict[str, Takeover]) -> None:
    """Save the cursors of consumers that have none yet, or this one; otherwise save nothing."""
    store.create_schema()
    known = {record.consumer: record.cursor for record in store.list_cursors()}
    for consumer, each in cursors.items():
        slices = [name for name in known if name.startswith(f"{consumer}[")]
        if known.get(consumer, each.cursor) != each.cursor or slices:
            name = slices[0] if slices else consumer
            raise rscylla.CursorError(
                f"the consumer {name!r} already has a cursor, so it has run "
                f"here before; to go back, reset it: rscylla cursor reset {consumer} '{each.cursor}' --reason ..."
            )
    for consumer, each in cursors.items():
        store.get_cursor(consumer)
        store.set_cursor(consumer, each.cursor)
    store.flush()
