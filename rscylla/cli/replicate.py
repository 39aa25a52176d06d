"""``rscylla replicate``: copies the changes of a table to another table, and compares the two."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import attrs
import typer

import rscylla
from cursorstore import DEFAULT_TABLE, BufferedCursorStore, ScyllaCursorStore
from rscylla.abc import CursorStore
from rscylla.replicate import Difference, Replicator, verify

from .shared.failures import Exit, reports_errors, stopping
from .shared.loading import StoreFactory, load_store
from .shared.names import TableName, naming, parse_lag, parse_table
from .shared.options import Connection, CursorTableName, JsonOutput, connecting, count, seconds
from .shared.output import json_line
from .shared.standard import say, write
from .tail import OnExpired

__all__ = ["replicate"]

SAVE_EVERY = timedelta(seconds=1)
"""How often the cursor is written. After a crash, changes are copied twice, which does no harm."""

ON_ITS_WAY = timedelta(seconds=2)
"""Time to read and write a change that is older than the lag, before it counts as missing."""


class Ttl(enum.StrEnum):
    """When copies of values with a TTL expire."""

    ORIGINAL = "original"
    REMAINING = "remaining"


class Start(enum.StrEnum):
    """Where to start without a saved cursor."""

    OLDEST = "oldest"
    HEAD = "head"


@attrs.frozen
class _Job:
    """The options of one ``replicate``, checked."""

    source: TableName
    target: TableName
    lag: timedelta
    name: str
    start: Start
    on_expired: OnExpired
    store_keyspace: str
    store_table: str
    store_factory: str | None
    create: bool
    to_head: bool
    workers: int
    ttl: Literal["original", "remaining"]


@reports_errors
@connecting
def replicate(
    name: Annotated[str, typer.Argument(metavar="SOURCE", help="The table to copy from, as KS.TABLE.")],
    to: Annotated[str, typer.Argument(metavar="TARGET", help="The table to copy to, as KS.TABLE.")],
    lag: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="SECONDS",
            help="Required: copy a change once it is this old; 30 or more is safe.",
        ),
    ] = None,
    to_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]", help="A node of the target cluster, if it is another cluster; repeat for more."
        ),
    ] = None,
    to_username: Annotated[
        str | None,
        typer.Option(
            envvar="RSCYLLA_TO_USERNAME", show_default=False, help="User name at the target. Default: as at the source."
        ),
    ] = None,
    to_password: Annotated[
        str | None,
        typer.Option(envvar="RSCYLLA_TO_PASSWORD", show_default=False, help="Password of that user; see --password."),
    ] = None,
    to_password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File whose first line is that password; overrides --to-password."),
    ] = None,
    to_tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="PEM file of the authority of the target's nodes. Default: as at the source."
        ),
    ] = None,
    to_tls_no_check_hostname: Annotated[
        bool, typer.Option("--to-tls-no-check-hostname", help="Like --tls-no-check-hostname, for the target only.")
    ] = False,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the cursor. Default: replicate- and the names of both tables."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="KEYSPACE", help="Keyspace of the cursor table. Default: that of the target.")
    ] = None,
    factory: StoreFactory = None,
    store_table: CursorTableName = DEFAULT_TABLE,
    create: Annotated[
        bool, typer.Option("--create", help="Create the target table and the cursor table if they do not exist.")
    ] = False,
    from_: Annotated[Start, typer.Option("--from", help="Where to start if no cursor is saved.")] = Start.OLDEST,
    to_head: Annotated[bool, typer.Option("--to-head", help="End when all changes up to now are copied.")] = False,
    on_expired: Annotated[
        OnExpired,
        typer.Option(help="If the cursor is older than the log: end with an error, or continue at the oldest row."),
    ] = OnExpired.RAISE,
    workers: Annotated[
        int, typer.Option(parser=count, metavar="N", help="Number of partitions to write concurrently.")
    ] = 16,
    ttl: Annotated[
        Ttl,
        typer.Option(
            help="original: a copy gets the full TTL of the original. remaining: it expires when the original does."
        ),
    ] = Ttl.ORIGINAL,
    verify_: Annotated[bool, typer.Option("--verify", help="Copy nothing and compare the two tables.")] = False,
    limit: Annotated[
        int, typer.Option(parser=count, metavar="N", help="Number of differing rows that --verify shows.")
    ] = 20,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Copy the changes of a table to another table, in this cluster or another one, until Ctrl-C.

    Changes keep their timestamps, so applying one twice does no harm. The cursor is saved in the target cluster, and
    the next run continues there. The login and TLS options apply to both clusters; options that start with --to-
    replace them for the target.
    """
    if store is not None and factory is not None:
        raise rscylla.ConfigError("--store KEYSPACE and --store-factory MODULE:FUNCTION exclude each other; give one")
    source, target = parse_table(name), parse_table(to)
    if not to_host and (source.keyspace, source.table) == (target.keyspace, target.table):
        raise rscylla.ConfigError(
            f"{source.keyspace}.{source.table} cannot be copied to itself; name another table, or another cluster with "
            "--to-host"
        )
    other = _other(
        connection, to_host, to_username, to_password, to_password_file, to_tls_ca, unchecked=to_tls_no_check_hostname
    )
    job = _Job(
        source=source,
        target=target,
        lag=parse_lag(lag, command="replicate"),
        name=consumer or f"replicate-{source.keyspace}.{source.table}-{target.keyspace}.{target.table}",
        start=from_,
        on_expired=on_expired,
        store_keyspace=store or target.keyspace,
        store_table=store_table,
        store_factory=factory,
        create=create,
        to_head=to_head,
        workers=workers,
        ttl="remaining" if ttl is Ttl.REMAINING else "original",
    )
    with (
        connection.session() as here,
        nullcontext(here) if other is None else other.session() as there,
        naming(source),
        stopping() as stop,
    ):
        if verify_:
            _compare(job, here, there, limit, stop, as_json=as_json)
        else:
            _copy(job, here, there, stop, as_json=as_json)


def _other(
    connection: Connection,
    hosts: list[str] | None,
    username: str | None,
    password: str | None,
    password_file: Path | None,
    tls_ca: Path | None,
    *,
    unchecked: bool,
) -> Connection | None:
    """Return the connection to the target cluster; the source's options are the defaults. None: the same cluster."""
    has_login = username is not None or password is not None or password_file is not None
    if not hosts:
        if has_login or tls_ca is not None or unchecked:
            raise rscylla.ConfigError(
                "the --to-* options for login and TLS require --to-host, a node of the target cluster"
            )
        return None
    other = attrs.evolve(
        connection,
        hosts=hosts,
        tls_ca=tls_ca or connection.tls_ca,
        tls_no_check_hostname=unchecked or connection.tls_no_check_hostname,
    )
    if has_login:
        other = attrs.evolve(other, username=username, password=password, password_file=password_file)
    return other


def _copy(job: _Job, here: rscylla.Session, there: rscylla.Session, stop: rscylla.Stop, *, as_json: bool) -> None:
    replicator = Replicator(here, there, job.target.keyspace, job.target.table, ttl=job.ttl, create=job.create)
    replicator.prepare(job.source.keyspace, job.source.table)
    if job.store_factory is None:
        kept: CursorStore = ScyllaCursorStore(there, job.store_keyspace, job.store_table, create=job.create)
    else:
        kept = load_store(job.store_factory)
    cursors = BufferedCursorStore(kept, interval=SAVE_EVERY)
    stream = rscylla.NewStream(
        here,
        job.source.keyspace,
        job.source.table,
        on_expired="oldest" if job.on_expired is OnExpired.OLDEST else "raise",
    )
    if job.start is Start.HEAD and cursors.find_cursor(job.name) is None:
        cursors.set_cursor(job.name, stream.head_cursor(job.lag))
        cursors.flush()  # a later crash must not move the start
    consumer = rscylla.concurrent(rscylla.Consumer(job.name, replicator), workers=job.workers)
    options: list[rscylla.StreamLag | rscylla.StreamToHead] = [rscylla.StreamLag(job.lag)]
    if job.to_head:
        options.append(rscylla.StreamToHead())
    try:
        rscylla.run_forever(rscylla.Spec(stream, cursors, consumer, *options), stop=stop)
    finally:
        # Before the store is closed: a store of the user's own need not answer afterwards.
        saved = _saved(cursors, job.name)
        try:
            cursors.close()
        finally:
            if as_json:
                write(json_line({"applied": replicator.applied, "cursor": saved}))
            else:
                say(f"{replicator.applied} changes applied; run the command again to continue from cursor {job.name!r}")


def _saved(cursors: BufferedCursorStore, name: str) -> str | None:
    """Return the saved cursor, or None if it cannot be read: that error must not hide the one that ended the copy."""
    try:
        return cursors.get_cursor(name)
    except Exception:  # noqa: BLE001 - a store of the user's own may raise anything
        return None


def _compare(
    job: _Job, here: rscylla.Session, there: rscylla.Session, limit: int, stop: rscylla.Stop, *, as_json: bool
) -> None:
    with _progress() as show:
        verdict = verify(
            here,
            there,
            job.source.keyspace,
            job.source.table,
            job.target.keyspace,
            job.target.table,
            lag=job.lag + ON_ITS_WAY,
            limit=limit,
            workers=job.workers,
            stop=stop,
            on_progress=show,
        )
    for difference in verdict.differences:
        write(_line(difference, as_json=as_json))
    number = f"{'at least ' if verdict.more else ''}{len(verdict.differences)}"
    if as_json:
        write(
            json_line(
                {
                    "rows": verdict.rows,
                    "differences": len(verdict.differences),
                    "more": verdict.more,
                    "unsettled": verdict.unsettled,
                }
            )
        )
    else:
        unsettled = f", {verdict.unsettled} changed too often to compare" if verdict.unsettled else ""
        write(f"{verdict.rows} rows compared, {number} differ{unsettled}")
    if not verdict.same:
        raise typer.Exit(Exit.FAILED)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Provide a function that shows, on a terminal, how much of the ring is compared. The bar disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("token ranges compared", total=None)

        def show(done: int, of: int) -> None:
            what = "rereading rows that differ" if done == of else "token ranges compared"
            bars.update(task, completed=done, total=of, description=what, refresh=True)

        yield show


def _line(difference: Difference, *, as_json: bool) -> str:
    """Return a line about *difference*; keys are shown, values of other columns are not."""
    if as_json:
        return json_line({"kind": difference.kind, "key": difference.key, "columns": list(difference.columns)})
    columns = f"  {', '.join(difference.columns)}" if difference.columns else ""
    return f"{difference.kind:9}  {rscylla.to_json(difference.key)}{columns}"
