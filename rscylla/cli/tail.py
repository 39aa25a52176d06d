"""``rscylla tail``: prints the changes of a table as they arrive."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import attrs
from typer import Option

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore

from .shared.failures import stopping
from .shared.names import parse_lag, parse_table, parse_time, time_of
from .shared.options import Connection, JsonOutput, Lag, OnExpired, Store, TableArgument, command
from .shared.output import EventFormat, json_line, line_of, moment
from .shared.standard import output_error, say, unwritable, write

__all__ = ["tail"]

SAVE_EVERY = timedelta(seconds=1)
"""How often the cursor of a consumer is written; a killed process repeats at most the changes of this time."""

StreamOption = rscylla.StreamLag | rscylla.StreamToHead | rscylla.StreamUntil


@attrs.frozen
class _Wanted:
    """The options of one ``tail``."""

    lag: Lag = None
    from_: Annotated[
        str | None,
        Option(
            "--from",
            metavar="oldest|head|TIME|CURSOR",
            help="Where to start. Default: head, or oldest with --to-head or --until.",
        ),
    ] = None
    to_head: Annotated[bool, Option("--to-head", help="End when all changes up to now are shown.")] = False
    until: Annotated[str | None, Option(metavar="TIME", help="End when all changes before this time are shown.")] = None
    limit: Annotated[int | None, Option(min=1, metavar="N", help="End after N lines.")] = None
    format: Annotated[
        EventFormat, Option(help="One line for each event, its change alone, or each raw row of the log.")
    ] = "event"
    consumer: Annotated[
        str | None,
        Option(metavar="NAME", help="Save the cursor under this name in --store, and continue there next time."),
    ] = None
    store: Store = attrs.field(factory=Store)
    create_store: Annotated[bool, Option("--create-store", help="Create the cursor table if it does not exist.")] = (
        False
    )
    on_expired: OnExpired = "raise"
    quiet: Annotated[bool, Option("--quiet", "-q", help="Do not print the cursor at the end.")] = False

    def __attrs_post_init__(self) -> None:
        if (self.store.store is not None) != (self.consumer is not None):
            raise rscylla.ConfigError("--consumer NAME and --store KEYSPACE require each other")

    @property
    def ends(self) -> bool:
        """Whether the command ends by itself; a lost connection is then an error, and is not waited for."""
        return self.to_head or self.until is not None

    def stream_options(self) -> list[StreamOption]:
        """Return the options of the stream, its lag first."""
        options: list[StreamOption] = [rscylla.StreamLag(parse_lag(self.lag, command="tail"))]
        if self.to_head:
            options.append(rscylla.StreamToHead())
        if self.until is not None:
            options.append(rscylla.StreamUntil(parse_time(self.until, option="--until")))
        return options


@command
def tail(name: TableArgument, *, wanted: _Wanted, connection: Connection, as_json: JsonOutput = False) -> None:
    """Print the changes of a table as they arrive, until Ctrl-C.

    At the end, the command prints the cursor to continue from to standard error; pass it to --from. With --consumer,
    the command saves the cursor while it prints changes. A saved cursor overrides --from.
    """
    parsed, options = parse_table(name), wanted.stream_options()
    start = _start(wanted.from_, ends=wanted.ends)
    with connection.session() as session, stopping() as stop:
        stream = rscylla.NewStream(
            session,
            parsed.keyspace,
            parsed.table,
            granularity="row" if wanted.format == "row" else "change",
            on_expired=wanted.on_expired,
        )
        cursors: MemoryCursorStore | BufferedCursorStore = MemoryCursorStore()
        if wanted.store.store is not None:
            kept = wanted.store.opened(session, parsed.keyspace, create=wanted.create_store)
            cursors = BufferedCursorStore(kept, interval=SAVE_EVERY)
        _Tail(stream, cursors, wanted, options, stop, as_json=as_json).run(start)


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
        cursors: MemoryCursorStore | BufferedCursorStore,
        wanted: _Wanted,
        options: list[StreamOption],
        stop: rscylla.Stop,
        *,
        as_json: bool,
    ) -> None:
        self._stream = stream
        self._cursors = cursors
        self._who = wanted.consumer or "tail"
        self._wanted = wanted
        self._options = options
        self._stop = stop
        self._as_json = as_json
        self._written = 0
        self._failure: OSError | None = None

    def run(self, start: str | datetime) -> None:
        """Run from *start* until the end, the stop signal, or an error that a retry cannot fix."""
        begun = self._begin(start)
        try:
            self._follow()
        except BaseException:
            self._print_cursor(unless=begun)
            raise
        self._print_cursor()
        if self._failure is not None:
            unwritable()
            if not isinstance(self._failure, BrokenPipeError):
                raise output_error(self._failure)
        self._cursors.close()

    def _begin(self, start: str | datetime) -> str:
        """Return the cursor to start at. Save it if none is saved, so a run that is retried starts there again."""
        if self._cursors.find_cursor(self._who) is not None:
            if not self._wanted.quiet:
                say(f"continuing at the saved cursor of consumer {self._who!r}")
            return self._cursors.get_cursor(self._who)
        if start == "oldest":
            return ""
        if start == "head":
            cursor = self._stream.head_cursor(parse_lag(self._wanted.lag, command="tail"))
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
        spec = rscylla.Spec(self._stream, self._cursors, consumer, *self._options)
        try:
            if self._wanted.ends:
                rscylla.run(spec, stop=self._stop)
            rscylla.run_forever(spec, stop=self._stop)
        except (rscylla.HeadReached, rscylla.Stopped):
            return

    def _consume(self, event: rscylla.Event, fate: object) -> None:
        assert isinstance(event, rscylla.ChangeEvent)
        try:
            write(line_of(event, self._wanted.format, as_json=self._as_json))
        except OSError as error:
            self._failure = error
            self._stop.set()
            raise rscylla.Stopped from error  # the cursor stays before the event that was not written
        self._written += 1
        if self._written == self._wanted.limit:
            self._stop.set()  # the run checks it after the cursor is saved

    def _print_cursor(self, *, unless: str | None = None) -> None:
        """Write the cursor to continue from to standard error, if there is one and it is not *unless*."""
        if self._wanted.quiet:
            return
        try:
            cursor = self._cursors.get_cursor(self._who)
        except Exception:  # noqa: BLE001 - a store of the user's own may raise anything
            return  # the error that ended the run says more
        if not cursor or cursor == unless:
            return
        if self._as_json:
            say(json_line({"cursor": cursor}))
        elif self._wanted.consumer is not None:
            say(f"saved for consumer {self._who!r}: {cursor}")
        else:
            say(f"continue with --from '{cursor}'")
