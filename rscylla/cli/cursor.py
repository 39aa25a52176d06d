"""``rscylla cursor``: manages the saved cursors of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import attrs
import typer

import rscylla
from cursorstore import (
    DEFAULT_LEASE_TABLE,
    DEFAULT_TABLE,
    ScyllaCursorStore,
    lease_schema_cql,
    list_leases,
    reslice_cursors,
    schema_cql,
)

from .common import (
    Connection,
    JsonOutput,
    connecting,
    count,
    naming,
    parse_table,
    parse_time,
    reports_errors,
)
from .group import refuse_member
from .loading import OperableStore, StoreFactory, load_store
from .output import json_line, moment, table
from .standard import write

__all__ = ["app"]

app = typer.Typer(help="Manage the saved cursors of consumers.", no_args_is_help=True, rich_markup_mode=None)

Keyspace = Annotated[
    str | None, typer.Option("--store", metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")
]
RequiredKeyspace = Annotated[str, typer.Option("--store", metavar="KEYSPACE", help="Keyspace of the table, as stored.")]
Table = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the cursor table, as stored.")]
LeaseTable = Annotated[str, typer.Option("--table", metavar="NAME", help="Name of the lease table, as stored.")]
ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", help="Name of the consumer.")]
Cursor = Annotated[
    str,
    typer.Argument(metavar="CURSOR", help="A cursor, 'oldest', or, with --of, a time such as 2026-11-21T10:00:00Z."),
]
Of = Annotated[
    str | None,
    typer.Option("--of", metavar="KS.TABLE", help="Table that the consumer reads; required if CURSOR is a time."),
]


@contextmanager
def _opened(
    connection: Connection, keyspace: str | None, name: str, factory: str | None, *, of: str | None = None
) -> Iterator[tuple[rscylla.Session | None, OperableStore]]:
    """Open the store and a session. The session is None if neither the store nor the table *of* needs one."""
    if (keyspace is None) == (factory is None):
        raise rscylla.ConfigError(
            "give either --store KEYSPACE, the keyspace of the cursor table, or --store-factory MODULE:FUNCTION"
        )
    if keyspace is not None:
        with connection.session() as session:
            yield session, ScyllaCursorStore(session, keyspace, name)
        return
    assert factory is not None
    with ExitStack() as stack:
        session = None if of is None else stack.enter_context(connection.session())
        cursors = load_store(factory)
        stack.callback(cursors.close)
        yield session, cursors


@app.command("list")
@reports_errors
@connecting
def list_(
    store: Keyspace = None,
    factory: StoreFactory = None,
    table_name: Table = DEFAULT_TABLE,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """List all cursors, by consumer."""
    with _opened(connection, store, table_name, factory) as (_, cursors):
        records = cursors.list_cursors()
    if as_json:
        for record in records:
            write(json_line(attrs.asdict(record)))
        return
    table(
        ("consumer", "saved", "epoch", "cursor"),
        [(r.consumer, moment(r.updated_at), str(r.epoch), r.cursor or "oldest") for r in records],
    )


@app.command("get")
@reports_errors
@connecting
def get(
    consumer: ConsumerName,
    store: Keyspace = None,
    factory: StoreFactory = None,
    table_name: Table = DEFAULT_TABLE,
    history: Annotated[
        bool,
        typer.Option("--history", help="Also show earlier epochs: resets and takeovers, each with its last cursor."),
    ] = False,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Print the cursor of a consumer; an empty line if it was reset to the oldest event."""
    with _opened(connection, store, table_name, factory) as (_, cursors):
        records = list(cursors.cursor_history(consumer))
        slices = [] if records else _slices_of(consumer, cursors)
    if not records:
        where = factory or f"{store}.{table_name}"
        do = f"give one of them, such as {slices[0]!r}" if slices else "run `rscylla cursor list` to see all cursors"
        of_its_own = " of its own, but its slices have" if slices else ""
        raise rscylla.CursorError(f"consumer {consumer!r} has no cursor{of_its_own} in {where}; {do}")
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
@reports_errors
@connecting
def set_(
    consumer: ConsumerName,
    cursor: Cursor,
    store: Keyspace = None,
    factory: StoreFactory = None,
    table_name: Table = DEFAULT_TABLE,
    of: Of = None,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Move a cursor forward. To move a cursor back, use `rscylla cursor reset`."""
    with _opened(connection, store, table_name, factory, of=of) as (
        session,
        cursors,
    ):
        wanted = _cursor(session, cursor, of)
        cursors.get_cursor(consumer)  # set_cursor then rejects a cursor lower than the saved one
        cursors.set_cursor(consumer, wanted)
        cursors.flush()
        _confirm(cursors, consumer, as_json=as_json)


@app.command("reset")
@reports_errors
@connecting
def reset(
    consumer: ConsumerName,
    cursor: Cursor,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the cursor.")],
    store: Keyspace = None,
    factory: StoreFactory = None,
    table_name: Table = DEFAULT_TABLE,
    of: Of = None,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Set a cursor, even to an earlier position. A running consumer detects this and continues from the new cursor."""
    with _opened(connection, store, table_name, factory, of=of) as (
        session,
        cursors,
    ):
        cursors.reset_cursor(consumer, _cursor(session, cursor, of), reason=reason)
        _confirm(cursors, consumer, as_json=as_json)


@app.command("reslice")
@reports_errors
@connecting
def reslice(
    consumer: ConsumerName,
    old: Annotated[
        int,
        typer.Option(
            "--from", parser=count, metavar="N", help="Current number of slices; 1 for an undivided consumer."
        ),
    ],
    new: Annotated[int, typer.Option("--to", parser=count, metavar="M", help="New number of slices.")],
    store: Keyspace = None,
    factory: StoreFactory = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the cursors.")] = "",
    rewind: Annotated[bool, typer.Option("--rewind", help="Also move back cursors that are already ahead.")] = False,
    table_name: Table = DEFAULT_TABLE,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Set the cursors for a new number of slices, each to the lowest cursor of the old slices that it replaces.

    Stop all processes of the consumer first. No change is lost; changes that faster slices had handled are repeated.
    """
    with _opened(connection, store, table_name, factory) as (session, cursors):
        if session is not None and store is not None:
            refuse_member(session, store, consumer, cursors.list_cursors())
        moved = reslice_cursors(cursors, consumer, old, new, reason=reason, rewind=rewind)
    if as_json:
        for name, cursor in moved.items():
            write(json_line({"consumer": name, "cursor": cursor}))
        return
    table(("consumer", "cursor"), [(name, cursor or "oldest") for name, cursor in moved.items()])


@app.command("leases")
@reports_errors
@connecting
def leases(
    store: RequiredKeyspace,
    table_name: LeaseTable = DEFAULT_LEASE_TABLE,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Show the holder of each lease, when it acquired the lease, and when the lease expires unless renewed."""
    with connection.session() as session:
        records = list_leases(session, store, table_name)
    if as_json:
        for record in records:
            seconds = int(record.expires_in.total_seconds())
            write(json_line({**attrs.asdict(record), "expires_in": seconds}))
        return
    table(
        ("lease", "holder", "since", "expires in", "epoch"),
        [
            (r.name, r.owner, moment(r.since), f"{r.expires_in.total_seconds():.0f} s", str(r.epoch))
            if r.owner
            else (r.name, "free", "", "", str(r.epoch))
            for r in records
        ],
    )


@app.command("schema")
@reports_errors
def schema(
    store: RequiredKeyspace,
    table_name: Annotated[str | None, typer.Option("--table", metavar="NAME", help="Name of the table.")] = None,
    of_leases: Annotated[bool, typer.Option("--leases", help="Print the statement of the lease table.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """Print the statement that creates the cursor table, for an administrator to run. Does not connect."""
    if of_leases:
        cql = lease_schema_cql(store, table_name or DEFAULT_LEASE_TABLE)
    else:
        cql = schema_cql(store, table_name or DEFAULT_TABLE)
    write(json_line({"cql": cql}) if as_json else f"{cql};")


def _slices_of(consumer: str, cursors: OperableStore) -> list[str]:
    """Return the names of the slices of *consumer* that have a cursor."""
    names = (record.consumer for record in cursors.list_cursors())
    return [name for name in names if name != consumer and rscylla.slice_of(name)[0] == consumer]


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
        raise rscylla.InvalidCursor(
            f'{text!r} is not a cursor of rscylla, which starts with {{"cursor_gen"; if it is a time, add --of KS.TABLE'
        )
    name = parse_table(of)
    with naming(name):
        return rscylla.GetCursor(session, name.keyspace, name.table, parse_time(text, option="CURSOR"))


def _confirm(cursors: OperableStore, consumer: str, *, as_json: bool) -> None:
    """Print the saved cursor as read back from the store."""
    record = cursors.find_cursor(consumer)
    if record is None:
        raise rscylla.CursorError(
            f"the cursor of consumer {consumer!r} was saved but cannot be read back; check the store"
        )
    write(json_line(attrs.asdict(record)) if as_json else record.cursor or "oldest")
