"""Changes the number of slices of a consumer: sets the cursors of the new slices so that no change is lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from rscylla._tokens import SNAPSHOT, Slice
from rscylla.abc import CursorStore
from rscylla.errors import ConfigError, CursorError, CursorRegression
from rscylla.event import EventID, cursor_key

from ..checks import admin_of, check_consumer, find

__all__ = ["reslice_cursors", "reslice_started"]

_SNAPSHOT_DONE: Final = bytes.fromhex("ff" * 8)
"""How the stream id of a snapshot's position begins that has all tokens behind it. Positions are of generation 0."""


def reslice_cursors(
    store: CursorStore, consumer: str, old: int, new: int, *, reason: str = "", rewind: bool = False
) -> dict[str, str]:
    """Set the cursors of *consumer* for *new* slices from those of *old* slices; return the new cursors by name.

    Each new slice starts at the lowest cursor of the old slices that had its keys: no change is lost, and the changes
    that faster slices had handled are delivered again. A single slice is the consumer itself, under its own name. Stop
    all processes of the consumer first, and start the processes of the new slices afterwards. The old cursors do not
    change. The progress of the consumer's snapshot, if one has begun, moves along.

    Args:
        store: the store of the cursors; it must also be able to reset them.
        reason: saved with each reset.
        rewind: also move cursors back that are already ahead, for example after the same reslice was done before.

    Raises:
        ConfigError: a number is invalid, or the store cannot reset cursors.
        CursorError: an old slice has no cursor.
        CursorRegression: a new slice is already ahead; nothing was changed.
    """
    check_consumer(consumer)
    if old == new:
        raise ConfigError(f"consumer {consumer!r} already has {old} slices; give two different numbers")
    before = {key_slice: _saved(store, key_slice.name(consumer), old) for key_slice in _slices(old)}
    after = _planned(store, consumer, before, new, rewind=rewind)
    snapshot = f"{consumer}{SNAPSHOT}"
    if any(find(store, key_slice.name(snapshot)) for key_slice in _slices(old)):
        # First: until the consumer has cursors for the new slices, none of them runs.
        after = _planned(store, snapshot, _begun(store, snapshot, old), new, rewind=True) | after
    return _moved(store, after, reason.strip() or f"from {old} to {new} slices")


def reslice_started(store: CursorStore, consumer: str, old: int, new: int, *, reason: str) -> dict[str, str]:
    """Do as ``reslice_cursors`` with *rewind*, also if some of the old slices have never run; leave snapshots out.

    They have no cursor, and start at the oldest event, like the new slices that take over their keys.
    """
    after = _planned(store, consumer, _begun(store, consumer, old), new, rewind=True)
    return _moved(store, after, reason.strip() or f"from {old} to {new} slices")


def _begun(store: CursorStore, consumer: str, count: int) -> dict[Slice, str]:
    """Return the cursors of the slices; "" for those that have none."""
    records = {key_slice: find(store, key_slice.name(consumer)) for key_slice in _slices(count)}
    return {key_slice: record.cursor if record else "" for key_slice, record in records.items()}


def _planned(
    store: CursorStore, consumer: str, before: Mapping[Slice, str], new: int, *, rewind: bool
) -> dict[str, str]:
    """Return the cursors of the new slices, by name."""
    after: dict[str, str] = {}
    for key_slice in _slices(new):
        cursor = _lowest([saved for other, saved in before.items() if other.overlaps(key_slice)])
        name = key_slice.name(consumer)
        known = find(store, name)
        if known is not None and not rewind and cursor_key(known.cursor) > cursor_key(cursor):
            raise CursorRegression(
                f"the cursor of {name!r} is already ahead of the old slices, probably because it was resliced "
                "before; rewind it only if changes may be delivered again",
                consumer=name,
                stored=known.cursor,
                given=cursor,
            )
        after[name] = cursor
    return after


def _lowest(cursors: Collection[str]) -> str:
    """Return the lowest of *cursors*. If one lacks, and others are of a snapshot that goes on, that begins again."""
    lowest = min(cursors, key=cursor_key)
    ids = [EventID.parse(cursor) for cursor in cursors if cursor] if not lowest else []
    going_on = [at for at in ids if at.is_row and not at.generation and not at.stream_id.startswith(_SNAPSHOT_DONE)]
    if not going_on:
        return lowest
    # An initial one before one on request, whose rows it has, too.
    return str(attrs.evolve(min(going_on, key=lambda at: at.seq), stream_id=bytes(16)))


def _moved(store: CursorStore, after: Mapping[str, str], reason: str) -> dict[str, str]:
    admin = admin_of(store)
    for name, cursor in after.items():
        admin.reset_cursor(name, cursor, reason=reason)
    return dict(after)


def _slices(count: int) -> list[Slice]:
    # Called only because it checks the count.
    Slice.of((0, count))
    return [Slice(index, count) for index in range(count)]


def _saved(store: CursorStore, name: str, count: int) -> str:
    record = find(store, name)
    if record is None:
        raise CursorError(
            f"{name!r} has no cursor, so its progress is unknown; check that {count} is the old number of slices. "
            "If the slice never ran, set its cursor first, such as to 'oldest'"
        )
    return record.cursor
