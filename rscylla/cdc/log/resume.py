"""Where a cursor is continued in a log: right after it, or at the oldest row, or not at all."""

from __future__ import annotations

import logging
import uuid

from ..._timeuuid import datetime_of
from ...driver import ReadSession
from ...errors import CursorExpired, InvalidCursor, QueryTimeout, TableChanged
from ...event import EventID
from .query import row_ttl_cql
from .same import SETTLING_US
from .source import OnExpired, Source
from .table import LoggedTable
from .topology import Generation

__all__ = ["begin", "resume"]

log = logging.getLogger("rscylla")


def begin(source: Source, after: str | None, on_expired: OnExpired) -> tuple[EventID, bool]:
    """Return where a read begins, and whether the rows after it are promised, so that their loss is an error.

    Args:
        after: a cursor, or "" for the oldest row; None for the oldest row that a later read finds.

    Raises:
        InvalidCursor, CursorExpired, TableChanged: see ``resume``.
    """
    return (source.at_time(None), False) if after is None else (resume(source, after, on_expired), after != "")


def resume(source: Source, after: str, on_expired: OnExpired) -> EventID:
    """Return where to continue for a cursor.

    Raises:
        InvalidCursor: it is not a cursor, or names a generation that this cluster never had.
        CursorExpired: rows after it may be gone, and the policy is to raise.
        TableChanged: it is of a log that was dropped since, and the policy is to raise.
    """
    if after == "":  # not None or 0: these are mistakes, not requests to read everything again
        return source.oldest()
    cursor = EventID.parse(after)
    at_us = max(cursor.exact_us, cursor.generation * 1000)  # no row is older than its generation
    first = source.generations[0]
    is_listed = cursor.generation in {g.time for g in source.generations}
    if _is_of_former_log(source, cursor, is_listed=is_listed):
        return _changed(source, cursor, on_expired)
    _learn_blanks(source, cursor)
    if at_us >= first.start_us and not _learn_lifetime(source, cursor):
        _report_expired(source, cursor, source.lifetimes.unknown_until_us(), on_expired)
        return cursor  # it is not known where the remaining rows begin, so the whole time is searched
    gap = source.missed(at_us, at_us + 1)
    if gap is not None:
        _report_expired(source, cursor, gap.end_us, on_expired, ttl_s=gap.ttl_s)
        remaining_us = source.remaining_us(at_us)
        if remaining_us > at_us:
            return source.at(remaining_us)
    is_start = cursor.mark is not None and cursor.mark.is_start
    if source.topology.forgets and cursor.generation < first.time and (is_start or cursor.exact_us == first.start_us):
        return source.at(cursor.exact_us)  # the stream set that is no longer listed has no rows after the cursor
    if not is_listed:
        owner = source.topology.owner
        raise InvalidCursor(
            f"the cursor names the CDC generation of {Generation(cursor.generation)}, which this {owner} does not "
            f"have; check that the cursor is not from another {owner}, or from before it was created again"
        )
    return cursor if cursor.exact_us >= at_us else source.at(at_us)


def _is_of_former_log(source: Source, cursor: EventID, *, is_listed: bool) -> bool:
    """Return whether *cursor* was saved while another log had this name. If this is ambiguous, log a warning."""
    if cursor.mark is not None:
        own, theirs = source.table.log_id, uuid.UUID(bytes=cursor.mark.log)
        if theirs != own and own.version == theirs.version == 1 and theirs.time > own.time:
            raise QueryTimeout(
                f"the cursor is of a later CDC log of {source.table.full_name} than the node knows; "
                "unless it is a cursor of another table, the node's schema is outdated: try again"
            )
        return theirs != own
    created_us = source.table.log_created_us
    expired = next(source.lifetimes.gaps_after(cursor.exact_us, source.latest_us()), None)
    if created_us is None or (expired is not None and expired.start_us <= cursor.exact_us):
        return False
    oldest_us = source.topology.oldest_of(created_us)
    if oldest_us is not None:
        first_us = source.generations[0].start_us
        # A stream set that is older than its log is its first one: none before it is forgotten.
        return not is_listed and cursor.generation * 1000 < (first_us if first_us <= created_us else oldest_us)
    # Generations do not help here. All cursors of a former log are older than this log. Its own cursors are not,
    # except starts in the past, and rows with timestamps in the past, which can be looked up.
    if not is_listed:
        return False
    if cursor.is_row:
        return cursor.exact_us < created_us + SETTLING_US and not _left_s(source, cursor)
    if cursor.exact_us < created_us:
        log.warning(
            "the cursor is older than the CDC log of %s, which was created at %s: unless it was created with "
            "cursor_at, the table was dropped and created again, and changes of the former log are gone",
            source.table.full_name,
            f"{datetime_of(created_us):%Y-%m-%d %H:%M:%S} UTC",
        )
    return False


def _learn_lifetime(source: Source, cursor: EventID) -> bool:
    """Learn the TTL of rows at *cursor* if the table was altered since; return whether the rows may still exist.

    A progress cursor contains the TTL, and the row of a row cursor has its remaining TTL. For other cursors, the
    TTL is not known.
    """
    left_s = _left_s(source, cursor) if source.lifetimes.needs_row(cursor) else None
    known = source.lifetimes.known_from(cursor, source.now_us(), left_s)
    if known is None:
        return False
    source.lifetimes = known
    if known.is_unknown_at(cursor):
        log.warning(
            "%s was altered at %s, after the cursor, which does not contain the former TTL; if that was shorter "
            "than the age of the cursor, changes may be lost",
            source.table.full_name,
            f"{datetime_of(known.unknown_until_us()):%Y-%m-%d %H:%M:%S} UTC",
        )
    return True


def _learn_blanks(source: Source, cursor: EventID) -> None:
    """Learn in which time after *cursor* CDC may have been off; log a warning if the cursor does not tell."""
    source.learn_blanks(cursor)
    if cursor.is_row and cursor.exact_us < (altered_us := source.table.altered_us or 0) and source.table.enabled:
        log.warning(
            "%s was altered at %s, after the cursor, and the id of an event does not say how it was before: if CDC "
            "was switched off and on again, changes of that time are missing",
            source.table.full_name,
            f"{datetime_of(altered_us):%Y-%m-%d %H:%M:%S} UTC",
        )


def _left_s(source: Source, cursor: EventID) -> list[int | None]:
    """Return the remaining TTL of the cursor's row in seconds, None without a TTL; empty if the row is gone."""
    return source.retried(lambda: row_left_s(source.session, source.table, cursor))


def row_left_s(session: ReadSession, table: LoggedTable, cursor: EventID) -> list[int | None]:
    """Return the remaining TTL of a cursor's row in seconds, None without a TTL; empty if the row is gone. Blocks."""
    values = cursor.stream_id, uuid.UUID(bytes=cursor.stream_time)
    doing = f"looking for the cursor's row in the log of {table.full_name}"
    cql = row_ttl_cql(table.keyspace, table.name)
    for level in dict.fromkeys((session.consistency, session.quorum_at_least)):
        if rows := session.rows(cql, values, doing=doing, consistency=level):
            return [row[0] for row in rows]
    return []


def _changed(source: Source, cursor: EventID, on_expired: OnExpired) -> EventID:
    text = (
        f"the CDC log of {source.table.full_name} was dropped and created again since the cursor was saved (or the "
        "cursor is of another table): changes in between are gone"
    )
    repair = f"{text}; repair the consumer's data, then reset its cursor"
    if on_expired == "raise":
        raise TableChanged(f"{repair}, or open the stream with on_expired='oldest'")
    # Stores refuse a cursor below the saved one, and generations of vnodes may be older than it.
    start = source.at(max(source.oldest_us(), cursor.exact_us + 1))
    if start.generation < cursor.generation:
        raise TableChanged(f"{repair}: the rows of the new log are in an older generation than the cursor")
    source.skip_gap(text)
    return start


def _report_expired(
    source: Source, cursor: EventID, until_us: int, on_expired: OnExpired, *, ttl_s: int | None = None
) -> None:
    """Report that rows from *cursor* until *until_us* may be lost: raise, or log it, depending on the policy."""
    since = f"{datetime_of(cursor.exact_us):%Y-%m-%d %H:%M:%S}"
    until = f"{datetime_of(until_us):%Y-%m-%d %H:%M:%S} UTC"
    first_us = source.generations[0].start_us
    if cursor.exact_us < first_us and not source.topology.forgets:
        began = f"{datetime_of(first_us):%Y-%m-%d %H:%M:%S} UTC"
        text = (
            f"the cursor of {source.table.full_name} is from {since} UTC, before the first CDC generation of this "
            f"cluster, which began at {began}; check that it is not from another cluster"
        )
    else:
        kept = "keeps" if ttl_s is None else f"keeps ({ttl_s} s)"
        text = (
            f"the cursor of {source.table.full_name} is older than what the log {kept}: changes from {since} to "
            f"{until} may be lost"
        )
    if on_expired == "oldest":
        source.skip_gap(text)
        return
    raise CursorExpired(
        f"{text}; repair the consumer's data, then reset its cursor, or open the stream with on_expired='oldest'",
        gap_from=datetime_of(cursor.exact_us),
        gap_to=datetime_of(until_us),
    )
