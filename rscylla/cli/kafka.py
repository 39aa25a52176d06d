"""``rscylla kafka``: the work of the Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore
from rscylla.abc import CursorRecord, CursorStore

from . import kafka_run
from .shared.connectors import ConnectorFile, open_cursors, open_session
from .shared.names import TableName, parse_table, time_of
from .shared.options import Connection, CursorTableName, JsonOutput, TableArgument, command
from .shared.output import listing, moment, show
from .shared.standard import say

if TYPE_CHECKING:
    from rscylla.kafka import Properties, Takeover

__all__ = ["app"]

app = typer.Typer(help="Publish changes to Kafka.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Publish changes to Kafka."""


app.command("run")(kafka_run.run)


@attrs.frozen
class _Place:
    """Where a connector works: its cluster, and where and under which names it keeps its cursors."""

    session: Any
    prefix: str
    store: str
    table: str

    def consumer(self, keyspace: str, table: str) -> str:
        return f"{self.prefix}.{keyspace}.{table}"

    def cursors(self, keyspace: str) -> ScyllaCursorStore:
        """Return the store of the tables of *keyspace*, as ``run`` has it."""
        return ScyllaCursorStore(self.session, self.store or keyspace, self.table)


@attrs.frozen
class _Where:
    """The options that say where a connector works."""

    prefix: Annotated[str | None, Option(metavar="NAME", help="Property 'topic.prefix'.")] = None
    store: Annotated[str | None, Option(metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")] = None
    store_table: CursorTableName = DEFAULT_TABLE
    connector: ConnectorFile = attrs.field(factory=ConnectorFile)
    connection: Connection = attrs.field(factory=Connection)

    @contextmanager
    def opened(self, properties: Properties | None) -> Iterator[_Place]:
        if properties is None:
            if self.prefix is None or self.store is None:
                raise rscylla.ConfigError("give --properties FILE, or --prefix and --store")
            with self.connection.session() as session:
                yield _Place(session, self.prefix, self.store, self.store_table)
            return
        with open_session(properties) as session:
            yield _Place(
                session,
                self.prefix or properties.text("topic.prefix"),
                self.store or properties.text("rscylla.store.keyspace"),
                self.store_table if self.store_table != DEFAULT_TABLE else properties.text("rscylla.store.table"),
            )


@attrs.frozen
class _Offsets:
    """The options that say where the offsets of the Java connector are, of which one, and of which tables."""

    name: Annotated[
        str | None,
        Argument(metavar="CONNECTOR", help="Property 'name' of the Java connector, if FILE does not have it."),
    ] = None
    file: Annotated[
        Path | None,
        Option(metavar="FILE", help="Offsets of a standalone worker: its offset.storage.file.filename."),
    ] = None
    topic: Annotated[
        str | None, Option(metavar="TOPIC", help="Offsets of distributed workers: their offset.storage.topic.")
    ] = None
    kafka: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="With --topic: a property of librdkafka, such as bootstrap.servers=HOST:PORT; repeat for more.",
        ),
    ] = None
    of: Annotated[
        list[str] | None,
        Option(metavar="KS.TABLE", help="Only this table; repeat for more. Default: all with offsets."),
    ] = None

    def read(self, properties: Properties | None) -> list[Any]:
        """Return the offsets; *properties* say what the options do not."""
        from rscylla.kafka import offsets_of, read_file, read_topic

        given: Mapping[str, str] = properties or {}
        file, topic = self.file, self.topic
        if file is None and topic is None:
            topic = given.get("offset.storage.topic")
            stored = given.get("offset.storage.file.filename")
            file = Path(stored) if stored and topic is None else None
        if (file is None) == (topic is None):
            raise rscylla.ConfigError("give either --file, of a standalone worker, or --topic, of distributed ones")
        name = self.name or given.get("name")
        if name is None:
            raise rscylla.ConfigError("give CONNECTOR, the property 'name' of the Java connector")
        if file is not None:
            return offsets_of(read_file(file), name)
        assert topic is not None
        return offsets_of(read_topic(topic, _client(properties, self.kafka or [])), name)


@app.command("import-offsets")
@command
def import_offsets(
    wanted: _Offsets,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the cursors, and save none.")] = False,
    *,
    where: _Where,
    as_json: JsonOutput = False,
) -> None:
    """Continue where the Java connector stopped: set the cursors of `rscylla kafka run` from its offsets.

    Stop the Java connector first. Nothing is lost. Changes written from "continues at" to "delivered up to" may come
    again, because the connector has an offset for each vnode and the cursor is the lowest of them.
    """
    with _needing_kafka():
        from rscylla.kafka import take_over
    properties = where.connector.read()
    offsets = wanted.read(properties)
    tables = [parse_table(text) for text in wanted.of or ()]
    tables = tables or [TableName(*each) for each in sorted({offset.name for offset in offsets})]
    with where.opened(properties) as place:
        found: list[Takeover] = []
        for of in tables:
            found.append(take_over(rscylla.NewStream(place.session, *of), offsets))
            if (ahead_s := found[-1].ahead_us / 1e6) > 0:
                say(
                    f"warning: offsets of {of.keyspace}.{of.table} are {ahead_s:.0f} s ahead of the clocks of the "
                    "nodes: the clock of the connector's machine is fast, so it read changes before all of them "
                    "were there; what it missed before now comes by `rscylla kafka snapshot` only"
                )
        consumers = [place.consumer(each.keyspace, each.table) for each in found]
        if not dry_run:
            _save(place, dict(zip(consumers, found, strict=True)))
    listing(
        (
            {"consumer": consumer, "cursor": each.cursor, "time": time_of(each.time_us)}
            | {"delivered_until": time_of(each.reached_us), "tasks": each.tasks, "with_offset": each.known}
            for consumer, each in zip(consumers, found, strict=True)
        ),
        ("consumer", "continues at", "delivered up to", "vnodes with an offset"),
        [
            (consumer, moment(time_of(each.time_us)), moment(time_of(each.reached_us)), f"{each.known} of {each.tasks}")
            for consumer, each in zip(consumers, found, strict=True)
        ],
        as_json=as_json,
    )


@app.command("snapshot")
@command
def snapshot(
    name: TableArgument,
    reason: Annotated[
        str, Option(metavar="TEXT", help="Reason, recorded with the request.")
    ] = "requested on the command line",
    *,
    where: _Where,
    as_json: JsonOutput = False,
) -> None:
    """Ask the running connector to publish all rows of a table, while it publishes changes.

    The connector looks for requests every few seconds; in exactly-once mode it starts the table again, within half a
    minute. `rscylla cursor list` shows how far the snapshot is, under the name that this command prints.
    """
    with _needing_kafka():
        from rscylla.kafka import request
    of = parse_table(name)
    properties = where.connector.read()
    with ExitStack() as stack:
        place = stack.enter_context(where.opened(properties))
        cursors: CursorStore = place.cursors(of.keyspace)
        if properties is not None and properties.exactly_once:
            cursors = stack.enter_context(open_cursors(properties))
        stream = rscylla.NewStream(place.session, of.keyspace, of.table)
        asked = request(stream, cursors, place.consumer(of.keyspace, of.table), reason=reason)
    for each in asked:
        show({"snapshot": each}, each, as_json=as_json)


@contextmanager
def _needing_kafka() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as e:
        raise rscylla.ConfigError(f"this command needs the package {e.name}; pip install 'rscylla[kafka]'") from e


def _client(properties: Properties | None, given: list[str]) -> dict[str, Any]:
    """Return the configuration of a client of Kafka: what the properties say of the connection, and *given*."""
    wrong = next((text for text in given if "=" not in text.strip("=")), None)
    found: dict[str, Any] = {}
    if properties is not None:
        from rscylla.kafka import producer_config

        of_connection = ("bootstrap.", "security.", "sasl.", "ssl.", "client.")
        config, _ = producer_config(properties)
        found = {name: value for name, value in config.items() if name.startswith(of_connection)}
    if wrong is not None or not (given or found):
        raise rscylla.ConfigError(f"--kafka {wrong or ''}: give a property as NAME=VALUE, at least bootstrap.servers")
    return found | dict(text.split("=", 1) for text in given)


def _save(place: _Place, cursors: dict[str, Takeover]) -> None:
    """Save the cursors of consumers that have none yet, or this one; otherwise save nothing."""
    stores = {each.keyspace: place.cursors(each.keyspace) for each in cursors.values()}
    known: dict[str, CursorRecord] = {}
    for store in stores.values():
        store.create_schema()
        known |= {record.consumer: record for record in store.list_cursors()}
    for consumer, each in cursors.items():
        others = [r.consumer for r in known.values() if r.slice_of(consumer) and r.consumer != consumer]
        if others or (consumer in known and known[consumer].cursor != each.cursor):
            name = others[0] if others else consumer
            raise rscylla.errors.CursorError(
                f"the consumer {name!r} already has a cursor, so it has run "
                f"here before; to go back, reset it: rscylla cursor reset {consumer} '{each.cursor}' --reason ..."
            )
    for consumer, each in cursors.items():
        store = stores[each.keyspace]
        store.get_cursor(consumer)
        store.set_cursor(consumer, each.cursor)
    for store in stores.values():
        store.flush()
