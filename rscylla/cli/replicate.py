"""``rscylla replicate``: copies the changes of a table to another table, and compares the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import BufferedCursorStore
from rscylla.replicate import Difference, Replicator, verify

from .shared.failures import Exit, stopping
from .shared.names import TableName, parse_lag, parse_table
from .shared.options import Connection, JsonOutput, Lag, Login, OnExpired, Store, command
from .shared.output import json_line, show
from .shared.standard import say, write

__all__ = ["replicate"]

SAVE_EVERY = timedelta(seconds=1)
"""How often the cursor is written. After a crash, changes are copied twice, which does no harm."""

ON_ITS_WAY = timedelta(seconds=2)
"""Time to read and write a change that is older than the lag, before it counts as missing."""


@attrs.frozen
class _Target:
    """The options that say how to connect to the target cluster, if it is another one."""

    to_host: Annotated[
        list[str] | None,
        Option(metavar="HOST[:PORT]", help="A node of the target cluster, if it is another cluster; repeat for more."),
    ] = None
    to_username: Annotated[
        str | None,
        Option(
            envvar="RSCYLLA_TO_USERNAME", show_default=False, help="User name at the target. Default: as at the source."
        ),
    ] = None
    to_password: Annotated[
        str | None,
        Option(envvar="RSCYLLA_TO_PASSWORD", show_default=False, help="Password of that user; see --password."),
    ] = attrs.field(default=None, repr=False)
    to_password_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="File whose first line is that password; overrides --to-password."),
    ] = None
    to_tls_ca: Annotated[
        Path | None,
        Option(metavar="FILE", help="PEM file of the authority of the target's nodes. Default: as at the source."),
    ] = None
    to_tls_no_check_hostname: Annotated[
        bool, Option("--to-tls-no-check-hostname", help="Like --tls-no-check-hostname, for the target only.")
    ] = False

    def connection(self, source: Connection) -> Connection | None:
        """Return the connection to the target cluster; those of *source* are the defaults. None: the same cluster."""
        login = Login(self.to_username, self.to_password, self.to_password_file)
        if not self.to_host:
            if login != Login() or self.to_tls_ca is not None or self.to_tls_no_check_hostname:
                raise rscylla.ConfigError(
                    "the --to-* options for login and TLS require --to-host, a node of the target cluster"
                )
            return None
        return attrs.evolve(
            source,
            hosts=self.to_host,
            login=source.login if login == Login() else login,
            tls_ca=self.to_tls_ca or source.tls_ca,
            tls_no_check_hostname=self.to_tls_no_check_hostname or source.tls_no_check_hostname,
        )


@attrs.frozen
class _Job:
    """The options of one ``replicate``."""

    lag: Lag = None
    consumer: Annotated[
        str | None, Option(metavar="NAME", help="Name of the cursor. Default: replicate- and the names of both tables.")
    ] = None
    store: Store = attrs.field(factory=Store)
    create: Annotated[
        bool, Option("--create", help="Create the target table and the cursor table if they do not exist.")
    ] = False
    from_: Annotated[Literal["oldest", "head"], Option("--from", help="Where to start if no cursor is saved.")] = (
        "oldest"
    )
    to_head: Annotated[bool, Option("--to-head", help="End when all changes up to now are copied.")] = False
    on_expired: OnExpired = "raise"
    workers: Annotated[int, Option(min=1, metavar="N", help="Number of partitions to write concurrently.")] = 16
    ttl: Annotated[
        Literal["original", "remaining"],
        Option(
            help="original: a copy gets the full TTL of the original. remaining: it expires when the original does."
        ),
    ] = "original"
    limit: Annotated[int, Option(min=1, metavar="N", help="Number of differing rows that --verify shows.")] = 20

    def span(self) -> timedelta:
        """Return the lag. Raises ``MissingLag`` if it was not given."""
        return parse_lag(self.lag, command="replicate")


@command
def replicate(
    name: Annotated[str, Argument(metavar="SOURCE", help="The table to copy from, as KS.TABLE.")],
    to: Annotated[str, Argument(metavar="TARGET", help="The table to copy to, as KS.TABLE.")],
    job: _Job,
    compare: Annotated[bool, Option("--verify", help="Copy nothing and compare the two tables.")] = False,
    *,
    target: _Target,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Copy the changes of a table to another table, in this cluster or another one, until Ctrl-C.

    Changes keep their timestamps, so applying one twice does no harm. The cursor is saved in the target cluster, in the
    keyspace of the target unless --store names another one, and the next run continues there. The login and TLS options
    apply to both clusters; options that start with --to- replace them for the target.
    """
    tables = parse_table(name), parse_table(to)
    if not target.to_host and tables[0] == tables[1]:
        raise rscylla.ConfigError(
            f"{'.'.join(tables[0])} cannot be copied to itself; name another table, or another cluster with --to-host"
        )
    other = target.connection(connection)
    job.span()
    with (
        connection.session() as source,
        nullcontext(source) if other is None else other.session() as copy,
        stopping() as stop,
    ):
        (_compare if compare else _copy)(job, (source, tables[0]), (copy, tables[1]), stop, as_json=as_json)


Side = tuple[rscylla.Session, TableName]


def _copy(job: _Job, source: Side, target: Side, stop: rscylla.Stop, *, as_json: bool) -> None:
    (here, table), (there, copy) = source, target
    replicator = Replicator(here, there, copy.keyspace, copy.table, ttl=job.ttl, create=job.create)
    replicator.prepare(table.keyspace, table.table)
    cursors = BufferedCursorStore(job.store.opened(there, copy.keyspace, create=job.create), interval=SAVE_EVERY)
    stream = rscylla.NewStream(here, table.keyspace, table.table, on_expired=job.on_expired)
    name = job.consumer or f"replicate-{table.keyspace}.{table.table}-{copy.keyspace}.{copy.table}"
    if job.from_ == "head" and cursors.find_cursor(name) is None:
        cursors.set_cursor(name, stream.head_cursor(job.span()))
        cursors.flush()  # a later crash must not move the start
    consumer = rscylla.concurrent(rscylla.Consumer(name, replicator), workers=job.workers)
    options: list[rscylla.StreamLag | rscylla.StreamToHead] = [rscylla.StreamLag(job.span())]
    if job.to_head:
        options.append(rscylla.StreamToHead())
    try:
        rscylla.run_forever(rscylla.Spec(stream, cursors, consumer, *options), stop=stop)
    finally:
        saved = _saved(cursors, name)
        try:
            cursors.close()
        finally:
            if as_json:
                write(json_line({"applied": replicator.applied, "cursor": saved}))
            else:
                say(f"{replicator.applied} changes applied; run the command again to continue from cursor {name!r}")


def _saved(cursors: BufferedCursorStore, name: str) -> str | None:
    """Return the saved cursor, or None if it cannot be read: that error must not hide the one that ended the copy."""
    try:
        return cursors.get_cursor(name)
    except Exception:  # noqa: BLE001 - a store of the user's own may raise anything
        return None


def _compare(job: _Job, source: Side, target: Side, stop: rscylla.Stop, *, as_json: bool) -> None:
    (here, table), (there, copy) = source, target
    with _progress() as progress:
        verdict = verify(
            here,
            there,
            table.keyspace,
            table.table,
            copy.keyspace,
            copy.table,
            lag=job.span() + ON_ITS_WAY,
            limit=job.limit,
            workers=job.workers,
            stop=stop,
            on_progress=progress,
        )
    for difference in verdict.differences:
        write(_line(difference, as_json=as_json))
    found = {"rows": verdict.rows, "differences": len(verdict.differences), "more": verdict.more}
    number = f"{'at least ' if verdict.more else ''}{len(verdict.differences)}"
    unsettled = f", {verdict.unsettled} changed too often to compare" if verdict.unsettled else ""
    text = f"{verdict.rows} rows compared, {number} differ{unsettled}"
    show({**found, "unsettled": verdict.unsettled}, text, as_json=as_json)
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
