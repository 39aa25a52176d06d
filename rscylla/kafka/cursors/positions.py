"""How far snapshots are, as cursors, and the names under which these are kept."""

from __future__ import annotations

import re
from typing import Final, Self, cast

import attrs

from ... import _timeuuid as tu
from ..._tokens import LAST, LEAST, SNAPSHOT, Slice
from ...abc import CursorAdmin, CursorRecord, CursorStore
from ...errors import ConfigError, InvalidCursor
from ...event import EventID

__all__ = [
    "INCREMENTAL",
    "INITIAL",
    "Position",
    "admin_of",
    "lane_names",
    "position_of",
    "snapshot_name",
]

INITIAL, INCREMENTAL = 0, 1
"""Kinds of snapshots."""

_TIME: Final = tu.min_timeuuid(0).bytes
"""That of all positions, so that only their tokens order them: of a reslice, the lowest one is where nothing lacks."""


def snapshot_name(consumer: str, key_slice: tuple[int, int]) -> str:
    """Return the name under which the progress of a snapshot of *consumer*, which reads *key_slice*, is kept.

    >>> snapshot_name("demo.shop.orders[1/4]", (1, 4)), snapshot_name("orders[1/4]", (0, 1))
    ('demo.shop.orders/snapshot[1/4]', 'orders[1/4]/snapshot')
    """
    part = Slice.of(key_slice)
    whole = part.whole(consumer)
    return f"{consumer}{SNAPSHOT}" if whole is None else part.name(f"{whole}{SNAPSHOT}")


def lane_names(prefix: str, consumer: str) -> tuple[str, ...]:
    """Return the names of both cursors of a connector's lane, that of changes and that of snapshots, given one of them.

    A consumer that is none of *prefix*, ``topic.prefix``, is alone. What follows that names a table and nothing else.

    >>> lane_names("demo", "demo.shop.orders[1/4]") == lane_names("demo", "demo.shop.orders/snapshot[1/4]")
    True
    >>> lane_names("demo", "orders[1/4]")
    ('orders[1/4]',)
    """
    match = re.match(rf"{re.escape(prefix)}\.\w+\.\w+", consumer, re.ASCII)
    for base in (match[0], f"{match[0]}{SNAPSHOT}") if match else ():
        part = Slice.named(consumer, base)
        if match and part is not None:
            return part.name(match[0]), part.name(f"{match[0]}{SNAPSHOT}")
    return (consumer,)


@attrs.frozen
class Position:
    """How far a snapshot is: all partitions up to ``token`` are done. ``kind``: initial or incremental."""

    kind: int
    token: int = LEAST

    @classmethod
    def parse(cls, cursor: str) -> Self:
        """Raises ``InvalidCursor`` if the text is not the cursor of a snapshot."""
        found = EventID.parse(cursor)
        if not found.is_row or any(found.stream_id[8:]) or found.seq not in (INITIAL, INCREMENTAL):
            raise InvalidCursor("the saved cursor is not that of a snapshot; check the name of the consumer")
        return cls(found.seq, int.from_bytes(found.stream_id[:8], "big") + LEAST)

    @property
    def is_done(self) -> bool:
        # No partition has this token: rows of the last one leave the position below it.
        return self.token == LAST

    def at(self, token: int) -> str:
        raw = (token - LEAST).to_bytes(8, "big") + bytes(8)
        return str(EventID.row(0, raw, _TIME, self.kind))

    def __str__(self) -> str:
        return self.at(self.token)


def position_of(record: CursorRecord | None) -> Position | None:
    return None if record is None or not record.cursor else Position.parse(record.cursor)


def admin_of(store: CursorStore) -> CursorAdmin:
    lacking = [name for name in ("find_cursor", "list_cursors", "reset_cursor") if not hasattr(store, name)]
    if lacking:
        raise ConfigError(
            f"{type(store).__name__} has no {', '.join(lacking)}; snapshots need a store that implements "
            "rscylla.abc.CursorAdmin"
        )
    return cast("CursorAdmin", store)
