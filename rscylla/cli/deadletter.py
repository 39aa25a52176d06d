"""``rscylla deadletter``: manages dead letters, the events that consumers could not handle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import DEFAULT_LETTER_TABLE, ScyllaDeadLetters
from rscylla.errors import KeyParked, MetadataError

from .shared.failures import Exit
from .shared.names import parse_table
from .shared.options import Connection, JsonOutput, command, load
from .shared.output import json_line, listing, moment, show
from .shared.standard import say, write

__all__ = ["app"]

app = typer.Typer(
    help="Manage dead letters: events that consumers could not handle.", no_args_is_help=True, rich_markup_mode=None
)

ConsumerName = Annotated[str, Argument(metavar="CONSUMER", help="Name of the consumer.")]
EventIds = Annotated[
    list[str] | None, Argument(metavar="[EVENT_ID]...", help="Event ids; see `rscylla deadletter list`.")
]
All = Annotated[bool, Option("--all", help="All dead letters of the consumer, in the order of event times.")]
Reason = Annotated[str, Option(metavar="TEXT", help="Reason, recorded with the letter.")]
Keyspace = Annotated[str, Option(metavar="KEYSPACE", help="Keyspace of the letter table, as stored.")]
Table = Annotated[str, Option(metavar="NAME", help="Name of the letter table, as stored.")]


@attrs.frozen
class _Place:
    """Where the letters are."""

    store: Keyspace
    table: Table = DEFAULT_LETTER_TABLE
    connection: Connection = attrs.field(factory=Connection)

    @contextmanager
    def opened(self) -> Iterator[tuple[rscylla.Session, ScyllaDeadLetters]]:
        with self.connection.session() as session:
            yield session, ScyllaDeadLetters(session, self.store, self.table)


@app.command("list")
@command
def list_(
    consumer: Annotated[str | None, Argument(metavar="[CONSUMER]", help="Only letters of this consumer.")] = None,
    status: Annotated[
        Literal["dead", "replayed", "discarded", "all"], Option(help="Status of the letters to list.")
    ] = "dead",
    count: Annotated[bool, Option("--count", help="Show only the number of dead letters of each consumer.")] = False,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """List letters by consumer and event time; by default, only letters that are neither replayed nor discarded."""
    with place.opened() as (_, letters):
        if count:
            counts = sorted(letters.count_letters(consumer).items())
            found = ({"consumer": name, "dead": number} for name, number in counts)
            listing(found, ("consumer", "dead"), [(name, str(n)) for name, n in counts], as_json=as_json)
            return
        each = letters.list_letters(consumer, status=None if status == "all" else status)
        head = ("consumer", "event", "failed", "attempts", "error", "status", "key", "event id")
        # One by one: their values and tracebacks are large.
        listing(map(_brief, each), head, map(_line, each), as_json=as_json)


@app.command("show")
@command
def show_(
    consumer: ConsumerName,
    event_id: Annotated[str, Argument(metavar="EVENT_ID", help="Event id; see `rscylla deadletter list`.")],
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Show one letter: the event with its values, the last error with its traceback, and what was decided."""
    with place.opened() as (_, letters):
        letter = _find(letters, consumer, event_id)
    event = letter.event
    whole = {
        **_brief(letter),
        "late": event.late,
        "metadata": event.metadata.decode(errors="replace"),
        "trace": event.trace,
        "traceback": letter.traceback,
        "audit": [{"at": at, "what": what} for at, what in letter.audit],
    }
    if as_json:
        write(json_line(whole))
        return
    for name in ("consumer", "event_id", "type", "key", "timestamp", "metadata", "attempts", "failed_at", "status"):
        value = whole[name]
        write(f"{name + ':':<11}{moment(value) if isinstance(value, datetime) else value}")
    for at, what in letter.audit:
        write(f"{'audit:':<11}{at}  {what}")
    write(letter.traceback.rstrip() or letter.error, lines=True)


@app.command("replay")
@command
def replay(
    consumer: ConsumerName,
    to: Annotated[
        str,
        Option(
            metavar="MODULE:FUNCTION",
            help="Function to call with each event, and with a run whose fate injects no errors.",
        ),
    ],
    event_ids: EventIds = None,
    everything: All = False,
    reason: Reason = "replayed manually",
    of: Annotated[
        str | None,
        Option(metavar="KS.TABLE", help="Read the changes again from this table's log, with all types."),
    ] = None,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Pass events to a function again, in order. Events that it handles become replayed; others stay dead.

    A letter that fails keeps the new error, and the later letters of its key wait behind it.
    """
    handle = _load(to)
    with place.opened() as (session, letters):
        chosen = _chosen(letters, consumer, event_ids or [], everything=everything)
        source, failed, told = _source(session, of), 0, set[str]()

        def tell(letter: rscylla.DeadLetter, error: Exception | None) -> None:
            nonlocal failed
            told.add(letter.event.id)
            failed += error is not None
            why = None if error is None else _kept(letters, letter, error)
            _show_result(letter.event.id, "replayed" if error is None else "dead", why, as_json=as_json)

        def again(event: rscylla.Event) -> None:
            handle(event if source is None else _from_log(source, event), rscylla.Run(consumer))

        only = None if everything else {letter.event.id for letter in chosen}
        replayed, _ = rscylla.replay_letters(letters, consumer, again, reason=reason, only=only, told=tell)
        for letter in () if everything else chosen:
            if letter.event.id not in told:  # resolved before, or by somebody else meanwhile
                status = _find(letters, consumer, letter.event.id).status
                _show_result(letter.event.id, status, f"it was {status} before", as_json=as_json)
    say(f"{replayed} replayed, {failed} failed")
    if failed:
        raise typer.Exit(Exit.FAILED)


@app.command("discard")
@command
def discard(
    consumer: ConsumerName,
    reason: Reason,
    event_ids: EventIds = None,
    everything: All = False,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Mark events as discarded. The letters are kept with the reason, and are no longer dead."""
    with place.opened() as (_, letters):
        for letter in _chosen(letters, consumer, event_ids or [], everything=everything):
            letters.resolve_letter(letter, "discarded", reason=reason)
            found = {"event_id": letter.event.id, "status": "discarded"}
            show(found, f"discarded  {letter.event.id}", as_json=as_json)


# ---------------------------------------------------------------- letters


def _brief(letter: rscylla.DeadLetter) -> dict[str, Any]:
    """Return a summary of the letter, without the values of columns that are not keys."""
    event = letter.event
    return {
        "consumer": letter.consumer,
        "event_id": event.id,
        "type": event.type,
        "key": event.foreign_id,
        "timestamp": event.timestamp,
        "attempts": letter.attempts,
        "error": letter.error,
        "failed_at": letter.failed_at,
        "status": letter.status,
    }


def _line(letter: rscylla.DeadLetter) -> tuple[str, ...]:
    event = letter.event
    times = moment(event.timestamp), moment(letter.failed_at)
    return letter.consumer, *times, str(letter.attempts), letter.error, letter.status, event.foreign_id, event.id


def _find(letters: ScyllaDeadLetters, consumer: str, event_id: str) -> rscylla.DeadLetter:
    found = letters.find_letter(consumer, event_id)
    if found is None:
        raise rscylla.errors.CursorError(
            f"consumer {consumer!r} has no dead letter of this event; run `rscylla deadletter list` to see its letters"
        )
    return found


def _chosen(
    letters: ScyllaDeadLetters, consumer: str, event_ids: list[str], *, everything: bool
) -> Iterable[rscylla.DeadLetter]:
    """Return the letters that the arguments name, which may be resolved already."""
    if bool(event_ids) == everything:
        raise rscylla.ConfigError("give event ids, or --all for all dead letters of the consumer")
    if everything:
        return letters.list_letters(consumer)
    return [_find(letters, consumer, event_id) for event_id in event_ids]


# ---------------------------------------------------------------- replaying

Handle = Callable[[rscylla.Event, Any], None]


def _load(name: str) -> Handle:
    """Return the function, or the ``consume`` of the consumer, that ``module:function`` names.

    Of a consumer that others are wrapped around it is the innermost: ``dead_letter`` and ``best_effort`` would return
    as if the event had been handled.

    Raises:
        ConfigError: there is no such thing.
    """
    found = load(name, option="--to", example="billing.events:on_order")
    while hasattr(found, "consume") and hasattr(getattr(found, "inner", None), "consume"):
        found = found.inner
    handle = getattr(found, "consume", found)
    if not callable(handle):
        raise rscylla.ConfigError(f"--to {name}: it is neither a function nor a consumer")
    loaded: Handle = handle
    return loaded


def _source(session: rscylla.Session, of: str | None) -> rscylla.Stream | None:
    return None if of is None else rscylla.NewStream(session, *parse_table(of))


class _NotInLog(Exception):
    """The log has the event no more, or not all of it, so nothing was tried."""


def _kept(letters: ScyllaDeadLetters, letter: rscylla.DeadLetter, error: Exception) -> str:
    """Keep the error of a replay that failed with its letter, unless nothing was tried; return it as text."""
    if isinstance(error, _NotInLog | KeyParked):
        return str(error)
    again = rscylla.DeadLetter.of(
        letter.consumer,
        letter.event,
        error,
        attempts=letter.attempts + 1,
        failed_at=datetime.now(UTC),
        park=letter.park,
    )
    letters.put(again)
    return again.error


def _show_result(event_id: str, status: str, error: str | None, *, as_json: bool) -> None:
    text = f"{status}  {event_id}{f'  {error}' if error else ''}"
    show({"event_id": event_id, "status": status, "error": error}, text, as_json=as_json)


def _from_log(source: rscylla.Stream, kept: rscylla.Event) -> rscylla.Event:
    """Return the event as read from the log.

    Raises:
        _NotInLog: the log no longer has it, or not all that the letter has, such as a column that was dropped.
    """
    position = rscylla.EventID.parse(kept.id)
    # Start at the microsecond of the event. A full lag is not needed for an event that has been read before.
    after = str(rscylla.EventID(position.generation, position.exact_us))
    lag = max(timedelta(), min(timedelta(seconds=30), datetime.now(UTC) - kept.timestamp - timedelta(seconds=1)))
    # The end is exclusive, so it is a little later than the event.
    until = rscylla.StreamUntil(kept.timestamp + timedelta(milliseconds=1))
    try:
        client = source(after, rscylla.StreamLag(lag), until)
        try:
            while True:
                item = client.recv()
                if isinstance(item, rscylla.Event) and item.id == kept.id:
                    break
        finally:
            client.close()
    except (rscylla.HeadReached, rscylla.CursorExpired, MetadataError) as error:
        raise _NotInLog(f"the log of {source} no longer has the event; omit --of to replay the stored event") from error
    if (lacking := _lacking(_json_of(kept), _json_of(item))) is not None:
        what = f" ({lacking})" if lacking else ""
        raise _NotInLog(
            f"the log of {source} has less of the event than the letter{what}: the table was altered, or rows expired; "
            "omit --of to replay the stored event"
        )
    return item


def _json_of(event: rscylla.Event) -> Any:
    """Return the content of an event's metadata, with numbers as their text; the bytes if they are no JSON."""
    try:
        return json.loads(event.metadata, parse_float=str, parse_constant=str) if event.metadata else None
    except ValueError:
        return event.metadata


def _lacking(kept: Any, found: Any) -> str | None:
    """Return the name of what *kept* has and *found* has not, such as ``after.total``, "" for all; None if it has all.

    What *found* has beside that, such as columns that were added, does not count.
    """
    if kept is None or kept == found:
        return None
    if not (isinstance(kept, dict) and isinstance(found, dict)):
        return ""
    for name, value in kept.items():
        if (inner := _lacking(value, found.get(name))) is not None:
            return f"{name}.{inner}" if inner else name
    return None
