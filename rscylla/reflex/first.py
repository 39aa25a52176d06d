"""``first_cursor``: where a run starts, and whether its consumer has been read in other slices before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from .._tokens import Slice
from ..abc import CursorAdmin, CursorRecord, CursorStore, flush_cursor
from ..errors import ConfigError

__all__ = ["first_cursor", "take_along"]

_NEVER = datetime.min.replace(tzinfo=UTC)


def first_cursor(store: CursorStore, name: str, key_slice: tuple[int, int], *, from_whole: bool = False) -> str:
    """Return the saved cursor of *name*, "" if its consumer is new. Raises what ``take_along`` does."""
    take_along(store, name, key_slice, from_whole=from_whole)
    return store.get_cursor(name)


def take_along(store: CursorStore, name: str, key_slice: tuple[int, int], *, from_whole: bool) -> None:
    """Refuse to begin anew where the consumer of *name*, which reads *key_slice*, has cursors, but none for its slices.

    Otherwise, it would begin at the oldest event, or at the head, as if it had never run. With *from_whole*, a slice
    gets the cursor of the whole consumer.

    Raises:
        ConfigError: the consumer has cursors for another number of slices only.
        The errors of *store*.
    """
    part = Slice.of(key_slice)
    whole = part.whole(name)
    if whole is None:  # it is not named after its slice, so nothing tells what it was before
        return
    others = _others(store, name, whole, part.count)
    if not others:
        return
    last, count = max(others, key=lambda pair: pair[0].updated_at or _NEVER)
    if not (from_whole and count == 1):
        raise ConfigError(_refusal(store, name, whole, last, count, part.count))
    store.get_cursor(name)
    store.set_cursor(name, last.cursor)
    flush_cursor(store, name)


def _others(store: CursorStore, name: str, whole: str, count: int) -> list[tuple[CursorRecord, int]]:
    """Return the cursors of a consumer in other numbers of slices than *count*; none if *name* has one of its own."""
    if not all(callable(getattr(store, method, None)) for method in ("find_cursor", "list_cursors")):
        return []
    admin = cast("CursorAdmin", store)
    try:
        # Before the cursor is read for work, which lets a fenced store write a row.
        if admin.find_cursor(name) is not None:
            return []
        found = ((record, record.slice_of(whole)) for record in admin.list_cursors() if record.cursor)
        return [(record, part[1]) for record, part in found if part is not None and part[1] != count]
    except ConfigError:  # a wrapper around a store that cannot list cursors
        return []


def _refusal(store: CursorStore, name: str, whole: str, last: CursorRecord, count: int, now: int) -> str:
    option = ""
    if getattr(store, "slices_stay", False):
        do = f"go on with {count}, the number that the cursors of this store keep"
    else:
        option = " To take it along without the command, pass from_whole=True." if count == 1 and now > 1 else ""
        command = f"rscylla cursor reslice {whole} --from {count} --to {now}"
        do = f"move the cursors with `{command}` while none of its processes runs"
    return (
        f"{last.consumer!r} has a cursor, and {name!r} has none, so the consumer would not go on where it was; {do}, "
        f"or set that of {name!r} with `rscylla cursor reset` to begin anew.{option}"
    )
