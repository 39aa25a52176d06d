"""``rscylla cursor``: manages the saved cursors of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore, reslice_cursors

from .group import refuse_member
from .shared.connectors import ConnectorFile, open_cursors, open_session
from .shared.names import parse_table, parse_time
from .shared.options import Connection, JsonOutput, OperableStore, StoreName, command, own_store
from .shared.output import json_line, listing, moment, show
from .shared.standard import write

__all__ = ["app"]

app = typer.Typer(help="Manage the saved cursors of consumers.", no_args_is_help=True, rich_markup_mode=None)

ConsumerName = Annotated[str, Argument(metavar="CONSUMER", help="Name of the consumer.")]
Cursor = Annotated[
    str, Argument(metavar="CURSOR", help="A cursor, 'oldest', or, with --of, a time such as 2026-11-21T10:00:00Z.")
]
Of = Annotated[
    str | None, Option(metavar="KS.TABLE", help="Table that the consumer reads; required if CURSOR is a time.")
]


@attrs.frozen
class _Opened:
    """A store of cursors, and the keyspace of its table if it has one."""

    session: rscylla.Session | None
    cursors: OperableStore
    keyspace: str | None = None


@attrs.frozen
class _Place:
    """Where cursors are: in a table, in a store of the user's, or where a connector keeps them."""

    store: StoreName = None
    table: Annotated[str, Option(metavar="NAME", help="Name of the cursor table, as stored.")] = DEFAULT_TABLE
    connector: ConnectorFile = attrs.field(factory=ConnectorFile)
    connection: Connection = attrs.field(factory=Connection)

    @contextmanager
    def opened(self, *, of: str | None = None) -> Iterator[_Opened]:
        """Open the store, and a session if the store or the table *of* needs one."""
        with ExitStack() as stack:
            properties = self.connector.read()
            if properties is None and self.store is None:
                raise rscylla.ConfigError(
                    "give either --store KEYSPACE, the keyspace of the cursor table, or --properties FILE of a Kafka "
                    "connector"
                )
            connected = self.connection.session() if properties is None else open_session(properties)
            own = own_store(self.store)
            if own is not None:
                stack.callback(own.close)
                if properties is not None:
                    raise rscylla.ConfigError("--properties and --store MODULE:FUNCTION exclude each other; give one")
                session = None if of is None else stack.enter_context(connected)
                yield _Opened(session, own)
            elif properties is not None and properties.exactly_once:
                if self.store is not None:
                    raise rscylla.ConfigError(
                        "in exactly-once mode, cursors are in Kafka; leave out --store, or leave out --properties "
                        "to see those in ScyllaDB"
                    )
                session = None if of is None else stack.enter_context(connected)
                yield _Opened(session, stack.enter_context(open_cursors(properties)))
            else:
                keyspace = self.store or (properties.text("rscylla.store.keyspace") if properties else "")
                if not keyspace:
                    raise rscylla.ConfigError(
                        "the connector keeps the cursor of a table in the keyspace of the table, since "
                        "rscylla.store.keyspace is not set; give --store KEYSPACE, too"
                    )
                table = self.table
                if properties is not None and table == DEFAULT_TABLE:
                    table = properties.text("rscylla.store.table")
                session = stack.enter_context(connected)
                yield _Opened(session, ScyllaCursorStore(session, keyspace, table), keyspace)

    def __str__(self) -> str:
        if self.store is None:
            return str(self.connector.properties)
        return self.store if ":" in self.store else f"{self.store}.{self.table}"


@app.command("list")
@command
def list_(place: _Place, as_json: JsonOutput = False) -> None:
    """List all cursors, by consumer."""
    with place.opened() as opened:
        records = opened.cursors.list_cursors()
    listing(
        map(attrs.asdict, records),
        ("consumer", "saved", "epoch", "cursor"),
        [(r.consumer, moment(r.updated_at), str(r.epoch), r.cursor or "oldest") for r in records],
        as_json=as_json,
    )


@app.command("get")
@command
def get(
    consumer: ConsumerName,
    history: Annotated[
        bool,
        Option("--history", help="Also show earlier epochs: resets and takeovers, each with its last cursor."),
    ] = False,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Print the cursor of a consumer; an empty line if it was reset to the oldest event."""
    with place.opened() as opened:
        cursors = opened.cursors
        records = list(cursors.cursor_history(consumer))
        slices = [] if records else _slices_of(consumer, cursors)
    if not records:
        do = f"give one of them, such as {slices[0]!r}" if slices else "run `rscylla cursor list` to see all cursors"
        of_its_own = " of its own, but its slices have" if slices else ""
        raise rscylla.errors.CursorError(f"consumer {consumer!r} has no cursor{of_its_own} in {place}; {do}")
    for record in records if history else records[:1]:
        if as_json:
            write(json_line(attrs.asdict(record)))
        elif history:
            how = "takeover" if record.takeover else "reset"
            why = f"  {how}: {record.reason}" if record.reason else ""
            write(f"{record.epoch}  {moment(record.updated_at)}  {record.cursor or 'oldest'}{why}")
        else:
            write(record.cursor)


@app.command("set")
@command
def set_(
    consumer: ConsumerName,
    cursor: Cursor,
    of: Of = None,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Move a cursor forward. To move a cursor back, use `rscylla cursor reset`."""
    with place.opened(of=of) as opened:
        cursors, wanted = opened.cursors, _cursor(opened.session, cursor, of)
        cursors.get_cursor(consumer)  # set_cursor then rejects a cursor lower than the saved one
        cursors.set_cursor(consumer, wanted)
        cursors.flush()
        _confirm(cursors, consumer, as_json=as_json)


@app.command("reset")
@command
def reset(
    consumer: ConsumerName,
    cursor: Cursor,
    reason: Annotated[str, Option("--reason", metavar="TEXT", help="Reason, recorded with the cursor.")],
    of: Of = None,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Set a cursor, even to an earlier position. A running consumer detects this and continues from the new cursor."""
    with place.opened(of=of) as opened:
        cursors = opened.cursors
        cursors.reset_cursor(consumer, _cursor(opened.session, cursor, of), reason=reason)
        _confirm(cursors, consumer, as_json=as_json)


@app.command("reslice")
@command
def reslice(
    consumer: ConsumerName,
    old: Annotated[
        int,
        Option("--from", min=1, metavar="N", help="Current number of slices; 1 for an undivided consumer."),
    ],
    new: Annotated[int, Option("--to", min=1, metavar="M", help="New number of slices.")],
    reason: Annotated[str, Option("--reason", metavar="TEXT", help="Reason, recorded with the cursors.")] = "",
    rewind: Annotated[bool, Option("--rewind", help="Also move back cursors that are already ahead.")] = False,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Set the cursors for a new number of slices, each to the lowest cursor of the old slices that it replaces.

    Stop all processes of the consumer first. No change is lost; changes that faster slices had handled are repeated.
    """
    with place.opened() as opened:
        cursors = opened.cursors
        if opened.keyspace is not None:
            refuse_member(opened.session, opened.keyspace, consumer, cursors.list_cursors())
        elif place.connector.properties is not None:
            raise rscylla.ConfigError("in exactly-once mode, the number of slices cannot be changed")
        moved = reslice_cursors(cursors, consumer, old, new, reason=reason, rewind=rewind)
    listing(
        ({"consumer": name, "cursor": cursor} for name, cursor in moved.items()),
        ("consumer", "cursor"),
        [(name, cursor or "oldest") for name, cursor in moved.items()],
        as_json=as_json,
    )


def _slices_of(consumer: str, cursors: OperableStore) -> list[str]:
    """Return the names of the slices of *consumer* that have a cursor."""
    return [r.consumer for r in cursors.list_cursors() if r.consumer != consumer and r.slice_of(consumer)]


def _cursor(session: rscylla.Session | None, text: str, of: str | None) -> str:
    """Return the cursor for the argument.

    Raises:
        InvalidCursor: *text* is not a cursor of rscylla, or is a time without a table.
        ConfigError: *text* is not a time.
    """
    if text in ("oldest", ""):
        return ""
    if text.startswith("{"):
        return str(rscylla.EventID.parse(text))
    if of is None or session is None:
        raise rscylla.errors.InvalidCursor(
            f'{text!r} is not a cursor of rscylla, which starts with {{"cursor_gen"; if it is a time, add --of KS.TABLE'
        )
    return rscylla.GetCursor(session, *parse_table(of), parse_time(text, option="CURSOR"))


def _confirm(cursors: OperableStore, consumer: str, *, as_json: bool) -> None:
    """Print the saved cursor as read back from the store."""
    record = cursors.find_cursor(consumer)
    if record is None:
        raise rscylla.errors.CursorError(
            f"the cursor of consumer {consumer!r} was saved but cannot be read back; check the store"
        )
    show(attrs.asdict(record), record.cursor or "oldest", as_json=as_json)
