"""``rscylla cursor``: the saved cursors of consumers, for the people who look after them."""

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
    str, typer.Argument(metavar="CURSOR", help="A cursor, 'oldest', or with --of a time such as 2026-11-21T10:00:00Z.")
]
Of = Annotated[
    str | None,
    typer.Option("--of", metavar="KS.TABLE", help="Table that the consumer reads; needed if CURSOR is a time."),
]


@contextmanager
def _opened(
    connection: Connection, keyspace: str | None, name: str, factory: str | None, *, of: str | None = None
) -> Iterator[tuple[rscylla.Session | None, OperableStore]]:
    """Open the cursors, and a session: None if neither they nor *of*, a table that the command looks at, need one."""
    if (keyspace is None) == (factory is None):
        raise rscylla.ConfigError(
            "give --store KEYSPACE, where the cursor table is, or --store-factory MODULE:FUNCTION for another store"
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
        bool, typer.Option("--history", help="Show resets and takeovers, each with the cursor it ended with.")
    ] = False,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Print the cursor of a consumer; an empty line if it was reset to the oldest event."""
    with _opened(connection, store, table_name, factory) as (_, cursors):
        records = list(cursors.cursor_history(consumer))
    if not records:
        place = factory or f"{store}.{table_name}"
        raise rscylla.CursorError(
            f"consumer {consumer!r} has no cursor in {place}; `rscylla cursor list` shows who has"
        )
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
    """Move a cursor forward. Going back is refused; `rscylla cursor reset` does that."""
    with _opened(connection, store, table_name, factory, of=of) as (
        session,
        cursors,
    ):
        wanted = _cursor(session, cursor, of)
        cursors.get_cursor(consumer)  # so that going back is told from the saved cursor
        cursors.set_cursor(consumer, wanted)
        cursors.flush()
        _confirm(cursors, consumer, as_json=as_json)


@app.command("reset")
@reports_errors
@connecting
def reset(
    consumer: ConsumerName,
    cursor: Cursor,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded with the cursor.")],
    store: Keyspace = None,
    factory: StoreFactory = None,
    table_name: Table = DEFAULT_TABLE,
    of: Of = None,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Set a cursor whatever is saved, also backwards. A running consumer notices and continues from the new cursor."""
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
        typer.Option("--from", parser=count, metavar="N", help="Number of slices so far; 1 for an undivided consumer."),
    ],
    new: Annotated[int, typer.Option("--to", parser=count, metavar="M", help="New number of slices.")],
    store: Keyspace = None,
    factory: StoreFactory = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded with the cursors.")] = "",
    rewind: Annotated[bool, typer.Option("--rewind", help="Also move cursors back that are ahead already.")] = False,
    table_name: Table = DEFAULT_TABLE,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Set the cursors for another number of slices, each at the lowest of the old slices it takes over.

    Stop all processes of the consumer first. No change is lost; those that faster slices had handled are repeated.
    """
    with _opened(connection, store, table_name, factory) as (_, cursors):
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
    """Show the holder of each lease, since when, and when it expires unless renewed."""
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
    """Print the statement that creates the cursor table, for those who may not create tables. Does not connect."""
    if of_leases:
        cql = lease_schema_cql(store, table_name or DEFAULT_LEASE_TABLE)
    else:
        cql = schema_cql(store, table_name or DEFAULT_TABLE)
    write(json_line({"cql": cql}) if as_json else f"{cql};")


def _cursor(session: rscylla.Session | None, text: str, of: str | None) -> str:
    """Return the cursor that the argument means.

    Raises:
        InvalidCursor: it is a cursor of something else.
        ConfigError: it is a time, and the table is not given.
    """
    if text in ("oldest", ""):
        return ""
    if text.startswith("{"):
        return str(rscylla.EventID.parse(text))
    if of is None or session is None:
        raise rscylla.InvalidCursor(
            f'{text!r} is not a cursor of rscylla, which starts with {{"cursor_gen"; for a time give --of KS.TABLE too'
        )
    name = parse_table(of)
    with naming(name):
        return rscylla.GetCursor(session, name.keyspace, name.table, parse_time(text, option="CURSOR"))


def _confirm(cursors: OperableStore, consumer: str, *, as_json: bool) -> None:
    """Print what is saved now, as the table says it."""
    record = cursors.find_cursor(consumer)
    if record is None:
        raise rscylla.CursorError(f"the cursor of consumer {consumer!r} is not in the table after it was written")
    write(json_line(attrs.asdict(record)) if as_json else record.cursor or "oldest")
