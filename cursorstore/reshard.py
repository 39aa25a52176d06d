"""From one number of slices to another: where the cursors of the new ones start so that no change is lost."""

from __future__ import annotations

from rscylla._shards import Shard
from rscylla.abc import CursorStore
from rscylla.errors import ConfigError, CursorError, CursorRegression
from rscylla.event import cursor_key

from ._ground import admin_of, check_consumer, find

__all__ = ["reshard_cursors"]


def reshard_cursors(
    store: CursorStore, consumer: str, old: int, new: int, *, reason: str = "", rewind: bool = False
) -> dict[str, str]:
    """Set the cursors of *consumer* for *new* slices from those of *old* ones; return them by name.

    Each new slice starts at the lowest cursor of the old slices that had its keys: what any of them had not done is
    done, what the faster ones had done comes again. One slice is the consumer itself, under its own name. All
    processes of the consumer must be stopped before, and those of the new slices started after. The old cursors stay
    where they are.

    Args:
        store: where the cursors are; one that can also reset them.
        reason: kept with each reset.
        rewind: also set cursors that are beyond where they would be set, as after another reshard just like this.

    Raises:
        ConfigError: a number makes no sense, or the store cannot reset cursors.
        CursorError: an old slice has no cursor.
        CursorRegression: a new slice is ahead already; nothing was changed.
    """
    check_consumer(consumer)
    if old == new:
        raise ConfigError(f"consumer {consumer!r} has {old} slices already; give two different numbers")
    before = {shard: _saved(store, shard.name(consumer), old) for shard in _slices(old)}
    after: dict[str, str] = {}
    for shard in _slices(new):
        cursor = min((saved for other, saved in before.items() if other.overlaps(shard)), key=cursor_key)
        name = shard.name(consumer)
        known = find(store, name)
        if known is not None and not rewind and cursor_key(known.cursor) > cursor_key(cursor):
            raise CursorRegression(
                f"the cursor of {name!r} is ahead of the old slices already; was this done before? Rewind it only if "
                "changes may come again",
                consumer=name,
                stored=known.cursor,
                given=cursor,
            )
        after[name] = cursor
    admin = admin_of(store)
    for name, cursor in after.items():
        admin.reset_cursor(name, cursor, reason=reason.strip() or f"from {old} to {new} slices")
    return after


def _slices(count: int) -> list[Shard]:
    Shard.of((0, count))
    return [Shard(index, count) for index in range(count)]


def _saved(store: CursorStore, name: str, count: int) -> str:
    record = find(store, name)
    if record is None:
        raise CursorError(
            f"{name!r} has no cursor, so what it had done is not known; is {count} the number of slices it had? If it "
            "never ran, set its cursor first, 'oldest' for all that there is"
        )
    return record.cursor
