"""``rscylla tail``: prints the changes of a table as they arrive."""

from __future__ import annotations

import enum
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated

import attrs
import typer

import rscylla
from cursorstore import DEFAULT_TABLE, BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore

from .shared.failures import reports_errors, stopping
from .shared.loading import StoreFactory, load_store
from .shared.names import TableName, naming, parse_lag, parse_table, parse_time, time_of
from .shared.options import Connection, CursorTableName, JsonOutput, TableArgument, connecting, count, seconds
from .shared.output import json_line, line_of, moment
from .shared.standard import output_error, say, unwritable, write

__all__ = ["tail"]

Store = MemoryCursorStore | BufferedCursorStore

SAVE_EVERY = timedelta(seconds=1)
"""How often the cursor of a consumer is written; a killed process repeats at most the changes of this time."""


class Format(enum.StrEnum):
    """The content of a line."""

    EVENT = "event"
    CHANGE = "change"
    ROW = "row"


class OnExpired(enum.StrEnum):
    """What to do if the cursor is older than the log."""

    RAISE = "raise"
    OLDEST = "oldest"


@attrs.frozen
class _Wanted:
    """The options of one ``tail``, checked."""

    name: TableName
    lag: timedelta
    start: str | datetime
    """``oldest``, ``head``, a cursor, or a time."""
    to_head: bool
    until: datetime | None
    limit: int | None
    format: Format
    as_json: bool

    @property
    def ends(self) -> bool:
        """Whether the command ends by itself; a lost connection is then an error, and is not waited for."""
        return self.to_head or self.until is not None

    @property
    def options(self) -> list[rscylla.StreamLag | rscylla.StreamToHead | rscylla.StreamUntil]:
        options: list[rscylla.StreamLag | rscylla.StreamToHead | rscylla.StreamUntil]
        options = [rscylla.StreamLag(self.lag)]
        if self.to_head:
            options.append(rscylla.StreamToHead())
        if self.until is not None:
            options.append(rscylla.StreamUntil(self.until))
        return options


@reports_errors
@connecting
def tail(
    name: TableArgument,
    lag: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="SECONDS",
            help="Required: show a change once it is this old; 30 or more is safe.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="oldest|head|TIME|CURSOR",
            help="Where to start. Default: head, or oldest with --to-head or --until.",
        ),
    ] = None,
    to_head: Annotated[bool, typer.Option("--to-head", help="End when all changes up to now are shown.")] = False,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End when all changes before this time are shown.")
    ] = None,
    limit: Annotated[int | None, typer.Option(parser=count, metavar="N", help="End after N lines.")] = None,
    format_: Annotated[
        Format,
        typer.Option("--format", help="One line for each event, its change alone, or each raw row of the log."),
    ] = Format.EVENT,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Save the cursor under this name in --store, and continue there next time."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="KEYSPACE", help="Keyspace of the cursor table, for --consumer.")
    ] = None,
    factory: StoreFactory = None,
    store_table: CursorTableName = DEFAULT_TABLE,
    create_store: Annotated[
        bool, typer.Option("--create-store", help="Create the cursor table if it does not exist.")
    ] = False,
    on_expired: Annotated[
        OnExpired,
        typer.Option(
            help="If the cursor is older than the log: end with an error, or warn and continue at the oldest row."
        ),
    ] = OnExpired.RAISE,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the cursor at the end.")] = False,
    *,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Print the changes of a table as they arrive, until Ctrl-C.

    At the end, the command prints the cursor to continue from to standard error; pass it to --from. With --consumer,
    the command saves the cursor while it prints changes. A saved cursor overrides --from.
    """
    wanted = _Wanted(
        name=parse_table(name),
        lag=parse_lag(lag, command="tail"),
        start=_start(from_, ends=to_head or until is not None),
        to_head=to_head,
        until=None if until is None else parse_time(until, option="--until"),
        limit=limit,
        format=format_,
        as_json=as_json,
    )
    if (store is not None) + (factory is not None) != (consumer is not None):
        raise rscylla.ConfigError(
            "--consumer NAME requires --store KEYSPACE or --store-factory MODULE:FUNCTION, "
            "and each of these requires --consumer"
        )
    with (
        connection.session() as session,
        naming(wanted.name),
        stopping() as stop,
    ):
        stream = rscylla.NewStream(
            session,
            wanted.name.keyspace,
            wanted.name.table,
            granularity="row" if format_ is Format.ROW else "change",
            on_expired="oldest" if on_expired is OnExpired.OLDEST else "raise",
        )
        cursors: Store = MemoryCursorStore()
        if store is not None:
            scylla = ScyllaCursorStore(session, store, store_table, create=create_store)
            cursors = BufferedCursorStore(scylla, interval=SAVE_EVERY)
        elif factory is not None:
            cursors = BufferedCursorStore(load_store(factory), interval=SAVE_EVERY)
        _Tail(stream, cursors, consumer, wanted, stop, quiet=quiet).run()


def _start(text: str | None, *, ends: bool) -> str | datetime:
    """Return the meaning of ``--from``: ``oldest``, ``head``, a cursor, or a time.

    Raises:
        InvalidCursor: *text* starts like a cursor but is not one.
        ConfigError: *text* is none of these.
    """
    if text is None:
        return "oldest" if ends else "head"
    if text in ("oldest", "head"):
        return text
    if text.startswith("{"):
        return str(rscylla.EventID.parse(text))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise rscylla.ConfigError(
            f"--from: {text!r} is neither oldest, head, a time such as 2026-11-21T10:00:00Z, nor a cursor of rscylla"
        ) from None
    return parse_time(text, option="--from")


class _Tail:
    """Prints events as the consumer of a run; ends the run at the limit, or when the output pipe is closed."""

    def __init__(
        self,
        stream: rscylla.Stream,
        cursors: Store,
        consumer: str | None,
        wanted: _Wanted,
        stop: rscylla.Stop,
        *,
        quiet: bool,
    ) -> None:
        self._stream = stream
        self._cursors = cursors
        self._named = consumer is not None
        self._who = consumer or "tail"
        self._wanted = wanted
        self._stop = stop
        self._quiet = quiet
        self._written = 0
        self._failure: OSError | None = None

    def run(self) -> None:
        """Run until the end, the stop signal, or an error that a retry cannot fix."""
        start = self._prepare()
        try:
            with _reader_watched(self._nobody_reads):
                self._follow()
        except BaseException:
            self._print_cursor(unless=start)
            raise
        self._print_cursor()
        if self._failure is not None:
            unwritable()
            if not isinstance(self._failure, BrokenPipeError):
                raise output_error(self._failure)
        self._cursors.close()

    def _prepare(self) -> str:
        """Return the start. Save it if no cursor is saved, so a run that is retried starts at the same position."""
        start = self._wanted.start
        if self._cursors.find_cursor(self._who) is not None:
            if not self._quiet:
                say(f"continuing at the saved cursor of consumer {self._who!r}")
            return self._cursors.get_cursor(self._who)
        if start == "oldest":
            return ""
        if start == "head":
            cursor = self._stream.head_cursor(self._wanted.lag)
        elif isinstance(start, datetime):
            cursor = self._stream.cursor_at(start)
            begins = time_of(rscylla.EventID.parse(cursor).exact_us)
            if begins > start:
                say(f"warning: the log has no rows from before {moment(begins)}; starting there")
        else:
            cursor = start
        self._cursors.set_cursor(self._who, cursor)
        return cursor

    def _follow(self) -> None:
        consumer = rscylla.Consumer(self._who, self._consume, lag_alert=None, activity_ttl=None)
        spec = rscylla.Spec(self._stream, self._cursors, consumer, *self._wanted.options)
        try:
            if self._wanted.ends:
                rscylla.run(spec, stop=self._stop)
            rscylla.run_forever(spec, stop=self._stop)
        except (rscylla.HeadReached, rscylla.Stopped):
            return

    def _consume(self, event: rscylla.Event, fate: object) -> None:
        assert isinstance(event, rscylla.ChangeEvent)
        try:
            write(line_of(event, self._wanted.format, as_json=self._wanted.as_json))
        except OSError as error:
            self._failure = error
            self._stop.set()
            raise rscylla.Stopped from error  # the cursor stays before the event that was not written
        self._written += 1
        if self._written == self._wanted.limit:
            self._stop.set()  # the run checks it after the cursor is saved

    def _nobody_reads(self) -> None:
        self._failure = BrokenPipeError()
        self._stop.set()

    def _print_cursor(self, *, unless: str | None = None) -> None:
        """Write the cursor to continue from to standard error, if there is one and it is not *unless*."""
        if self._quiet:
            return
        try:
            cursor = self._cursors.get_cursor(self._who)
        except Exception:  # noqa: BLE001 - a store of the user's own may raise anything
            return  # the error that ended the run says more
        if not cursor or cursor == unless:
            return
        if self._wanted.as_json:
            say(json_line({"cursor": cursor}))
        elif self._named:
            say(f"saved for consumer {self._who!r}: {cursor}")
        else:
            say(f"continue with --from '{cursor}'")


@contextmanager
def _reader_watched(gone: Callable[[], None]) -> Iterator[None]:
    """Call *gone* when standard output is a pipe whose reader has closed it: ``tail | head`` ends without a write."""
    try:
        out = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(out).st_mode):
            raise OSError
    except (OSError, ValueError):
        yield
        return
    ours, ended = os.pipe()

    def watch() -> None:
        poller = select.poll()
        poller.register(out, 0)  # errors are always reported
        # The other end is closed at the end of the command, which wakes the thread.
        poller.register(ours, select.POLLIN)
        if out in dict(poller.poll()):
            gone()

    watcher = threading.Thread(target=watch, name="rscylla-tail-pipe", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.close(ended)
        watcher.join()
        os.close(ours)
