"""Is it the same log? It may be altered, dropped, or created again under its name at any time while it is read."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from ..._retry import Backoff, may_help, retry
from ..._timeuuid import ticks_of, ticks_to_us
from ...clock import Clock, Stop
from ...driver import ReadSession
from ...errors import (
    CDCDisabled,
    MetadataError,
    NoStreams,
    QueryFailed,
    QueryTimeout,
    RscyllaError,
    SourceError,
    TableChanged,
    TableNotFound,
)
from ...types import quote_name
from .lifetimes import NEVER_US
from .query import LOG_SUFFIX, NODE_TIME_CQL
from .table import LoggedTable, read_table

__all__ = [
    "BACKOFF",
    "SETTLING_US",
    "check_log",
    "is_altered",
    "naming_dropped_log",
    "read_log_id",
    "reread_same",
    "reread_table",
    "retried",
    "stayed_on",
]

T = TypeVar("T")

STREAMS_ATTEMPTS = 6
"""Attempts of a metadata read; the pauses between them add up to 3 to 6 s."""

BACKOFF = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=5))

SETTLING_US = 60_000_000
"""For this long after a table is created, nodes may still have a former schema of that name, and the clock that stamps
a row may be behind the creation."""

_GONE = TableChanged, TableNotFound, CDCDisabled
"""What is said of a log that is no longer there, or no longer the same."""


class _MaybeStale(MetadataError):
    """A table that is at most a minute old seems to have changed; the schema of the node may be outdated."""

    resumable = True

    def __init__(self, error: MetadataError) -> None:
        super().__init__(str(error))
        self.error = error


def check_log(session: ReadSession, table: LoggedTable, clock: Clock, stop: Stop) -> int:
    """Check that the log of *table* is still there, and return the time of a node, in microseconds. Blocks on a query.

    Raises:
        TableChanged, TableNotFound, CDCDisabled: the log was dropped, and perhaps created again.
        Stopped, SourceError: nodes do not answer.
    """
    log_id, at_us, _ = retried(lambda: read_log_id(session, table.keyspace, table.name), clock, stop)
    if log_id != table.log_id:
        reread_same(session, table, at_us, clock, stop)
    return at_us


def reread_same(
    session: ReadSession, known: LoggedTable, now_us: int, clock: Clock, stop: Stop, *, retrying: bool = True
) -> LoggedTable:
    """Return the description of *known* as it is now. Blocks on small queries.

    Right after a log was created, a node may not know it yet, or may know a former one: then, the table is read again.

    Args:
        now_us: the time of a node.
        retrying: retry after other errors, too.

    Raises:
        TableChanged: the log was dropped and created again (resumable).
        TableNotFound, CDCDisabled: it was dropped (resumable: it may be created again).
        Stopped, SourceError: nodes do not answer.
    """
    created_us = known.log_created_us
    is_new = created_us is not None and now_us < created_us + SETTLING_US
    read = partial(reread_table, session, known, is_new=is_new)
    try:
        return retried(read, clock, stop) if retrying or is_new else read()
    except _MaybeStale as e:
        gone = e.error
    except _GONE as e:
        gone = e
    gone.resumable = True  # whoever opens the log again finds out whether the cursor can be continued
    raise gone from None


def reread_table(session: ReadSession, known: LoggedTable, *, is_new: bool = False) -> LoggedTable:
    """Return the description of *known* as it is now. Blocks on small queries.

    Args:
        is_new: what the node knows may be from before the log was created: an error may be raised again or not.

    Raises:
        TableChanged: the log was dropped and created again.
        TableNotFound, CDCDisabled: it was dropped.
    """
    try:
        fresh = read_table(session, known.keyspace, known.name, known=known)
    except (TableNotFound, CDCDisabled) as e:
        if is_new:
            raise _MaybeStale(e) from e
        raise
    try:
        _check_same_log(fresh, known)
    except TableChanged as e:
        if is_new and (fresh.log_created_us or NEVER_US) < (known.log_created_us or 0):
            raise _MaybeStale(e) from e
        raise
    return fresh


def _check_same_log(fresh: LoggedTable, known: LoggedTable) -> None:
    """Check that *fresh*, which was read later, has the log of *known*.

    Raises:
        TableChanged: the log was dropped and created again.
    """
    if fresh.log_id != known.log_id:
        raise TableChanged(
            f"the CDC log of {fresh.full_name} was dropped and created again while it was read: changes in between are "
            "gone; open it again, which goes on with the new log or says what to do, by on_expired="
        )


def is_altered(session: ReadSession, known: LoggedTable) -> bool:
    """Return whether the table or its log was altered, dropped, or created again since. Blocks on a query."""
    log_id, _, written_us = read_log_id(session, known.keyspace, known.name)
    return log_id != known.log_id or written_us != known.written_us


def read_log_id(session: ReadSession, keyspace: str, table: str) -> tuple[uuid.UUID | None, int, int]:
    """Return the id of the log of a base table, None if there is none, the time of a node, and ``written_us``.

    The times are in microseconds. Blocks on one query, or on two if there is none.
    """
    doing = f"looking up table {quote_name(keyspace)}.{quote_name(table)}"
    found = session.rows(
        "SELECT table_name, id, toUnixTimestamp(now()), WRITETIME(extensions) FROM system_schema.tables "
        "WHERE keyspace_name = %s AND table_name IN (%s, %s)",
        (keyspace, table, table + LOG_SUFFIX),
        doing=doing,
    )
    rows = {row[0]: row[1:] for row in found}
    now_ms = found[0][2] if found else session.rows(NODE_TIME_CQL, doing=doing)[0][0]
    log_id, base = rows.get(table + LOG_SUFFIX, (None,))[0], rows.get(table, (None, 0, 0))
    return log_id, now_ms * 1000, base[2] or 0


def stayed_on(session: ReadSession, table: LoggedTable, seen_us: int, until_us: int, clock: Clock, stop: Stop) -> bool:
    """Return whether the schema's history shows that CDC, on when the table was seen and on now, was on in between.

    The history has each change of schema and topology of about a week, by its write time, with the text of its
    statement. Between the two statements that made the table as it was seen and as it is, there is none that may have
    switched CDC off. Blocks on a query, with retries while nodes fail or have not received the last statement yet.
    Source: Scylla ``cql3/query_processor.cc``, ``service/raft/raft_group0_client.cc``.

    Args:
        seen_us: the write time of the table's row when it was seen; ``table.altered_us`` is that of its row now.
        until_us: when it was seen last. The node may have been behind the others, by up to ``SETTLING_US`` if what came
            between the two times has left the history.

    Raises:
        Stopped: *stop* was set during a retry.
    """
    if table.keyspace.startswith("alternator_"):  # its tables are not altered by statements
        return False
    altered_us = table.altered_us or 0
    try:
        told = retried(lambda: _read_history(session, altered_us), clock, stop)
    except SourceError:  # there is none, this user may not read it, or no node answers
        return False
    if [us for us, _ in told].count(altered_us) != 1 or told[0][0] > max(seen_us, until_us - SETTLING_US):
        return False
    return not any(_may_switch_off(text, table) for us, text in told if seen_us < us < altered_us)


def _read_history(session: ReadSession, until_us: int) -> list[tuple[int, str]]:
    """Return the times and texts of the changes that a node knows, in order.

    Raises:
        QueryTimeout: the node does not know the one of *until_us* yet.
        QueryFailed: there is no history, or the user may not read it.
    """
    cql = "SELECT state_id, description FROM system.group0_history WHERE key = 'history'"
    rows = session.rows(cql, doing="looking at the history of the schema")
    told = sorted((ticks_to_us(ticks_of(state_id.bytes)), text or "") for state_id, text in rows)
    if told and told[-1][0] < until_us:
        raise QueryTimeout("the history of the schema ends before the last statement: the node is behind; try again")
    return told


_STATEMENT = re.compile(r'CQL DDL statement: ".*\S.*"', re.DOTALL)

_OF_TABLES = re.compile(r"\b(?:tables?|schema|statement)\b", re.IGNORECASE)


def _may_switch_off(text: str, table: LoggedTable) -> bool:
    """Return whether a change with this text in the history may switch CDC of *table* off.

    A statement does that only if it names both. Who drops a keyspace or table drops its log, so that is another one
    afterwards. Any other text is that of a change of topology, roles, and the like, unless it is about tables.
    """
    name = re.escape(table.name.replace('"', '""'))
    # With nothing in between, what is before a dot is the keyspace.
    of = re.compile(rf'(?:(?<!\w)(\w+)"?\."?)?(?<!\w){name}(?!\w)', re.IGNORECASE)
    is_named = any(found[1] is None or found[1].lower() == table.keyspace.lower() for found in of.finditer(text))
    if _STATEMENT.fullmatch(text):
        return is_named and "cdc" in text.lower()
    return is_named or not text.strip() or _OF_TABLES.search(text) is not None


@contextmanager
def naming_dropped_log(reread: Callable[[], object]) -> Iterator[None]:
    """If a query of the block is refused, call *reread*, which raises a more precise error if the log is gone."""
    try:
        yield
    except (QueryFailed, NoStreams) as e:
        try:
            reread()
        except (TableChanged, TableNotFound, CDCDisabled) as gone:
            raise gone from e
        except RscyllaError as other:
            e.add_note(f"the schema could not be read, either: {other}")
        raise


def retried(read: Callable[[], T], clock: Clock, stop: Stop) -> T:
    """Return the result of *read*, with retries while nodes fail or have not received the data yet. Blocks."""

    def again(error: Exception) -> bool:
        return may_help(error) and not isinstance(error, _GONE)

    return retry(read, attempts=STREAMS_ATTEMPTS, backoff=BACKOFF, clock=clock, stop=stop, again=again)
