"""Shared by all stores: checks of arguments, and the decision whether a cursor may be saved."""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import cast

from rscylla.abc import CursorAdmin, CursorRecord, CursorStore
from rscylla.errors import ConfigError, CursorConflict, CursorRegression

from .cursors.codec import CursorCodec, format_us
from .table import check_name

__all__ = [
    "admin_of",
    "check_consumer",
    "check_reason",
    "conflict",
    "find",
    "moves",
    "process_name",
    "signature",
]


def check_consumer(consumer: str) -> None:
    """Raise ``ConfigError`` if *consumer* cannot be the key of a cursor."""
    check_name("a consumer's name", consumer)


def check_reason(reason: str) -> None:
    """Raise ``ConfigError`` if *reason* is blank."""
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigError(
            "a reset requires a reason, which is recorded with it; pass one, such as reason='replay after bug fix'"
        )


def moves(consumer: str, codec: CursorCodec, known: str, given: str) -> bool:
    """Return whether to save the position *given* over *known*: it is higher, or adds to an equal cursor.

    Raises:
        CursorRegression: *given* is lower.
    """
    if codec.sort_key(given) < codec.sort_key(known):
        raise CursorRegression(
            f"the cursor for consumer {consumer!r} is lower than the saved one, which does not change; check that "
            "no other process runs this consumer, or reset the cursor to move it back on purpose",
            consumer=consumer,
            stored=codec.decode(known),
            given=codec.decode(given),
        )
    return given > known


def conflict(consumer: str) -> CursorConflict:
    """Return the error for a cursor that was reset while it was in use."""
    return CursorConflict(f"the cursor of consumer {consumer!r} was reset while it was in use; read it again")


def process_name() -> str:
    """Return the name of this process, for people: ``host/4711``."""
    return f"{_host()}/{os.getpid()}"


@cache
def _host() -> str:
    # Asked once: each save of a cursor needs it, and the question is a call of the operating system.
    return socket.gethostname()


def signature(now_us: int) -> str:
    """Return the time and the process as text that sorts by time: ``2026-11-21T10:00:05.250000Z host/4711``."""
    return f"{format_us(now_us)} {process_name()}"


def admin_of(store: CursorStore) -> CursorAdmin:
    """Return *store* as a ``CursorAdmin``; raise ``ConfigError`` if it lacks a method."""
    methods = ("find_cursor", "list_cursors", "cursor_history", "reset_cursor")
    if lacking := [name for name in methods if not callable(getattr(store, name, None))]:
        raise ConfigError(
            f"{type(store).__name__} has no {', '.join(lacking)}; use a store that implements rscylla.abc.CursorAdmin"
        )
    return cast("CursorAdmin", store)


def find(store: CursorStore, consumer: str) -> CursorRecord | None:
    """Return the record of *consumer* in *store*. A cursor that was reset to "" has a record; None if never set."""
    finder = getattr(store, "find_cursor", None)
    if finder is not None:
        return cast("CursorRecord | None", finder(consumer))
    cursor = store.get_cursor(consumer)
    return CursorRecord(consumer, cursor) if cursor else None
