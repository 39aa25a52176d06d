"""The log rows that the workload of go/write.go and rust/src/write.rs has to give, by table and base partition.

Worked out from Scylla's rules of what a write puts into the log, not from any program's output. ``cdc$`` is left off
the names, as are the columns that differ from run to run.
"""

from __future__ import annotations

from typing import Any, Final

from interop_values import mapping, setting

__all__ = ["FADING", "IMAGES", "MANY_ROWS", "MORE_PARTITIONS", "THINGS"]

PREIMAGE, UPDATE, INSERT, ROW_DELETE, PARTITION_DELETE = range(5)
EXPIRED = -ROW_DELETE
FROM, AFTER, TO, BEFORE, POSTIMAGE = range(5, 10)
"""Bounds of deleted ranges: inclusive and exclusive start, inclusive and exclusive end."""

MANY_ROWS: Final = 40 * 130
MORE_PARTITIONS: Final = 32

Row = dict[str, Any]


def _bare(operation: int, /, *, gone: str = "", ttl: int | None = None, **columns: Any) -> Row:
    marks = {f"deleted_{name}": True for name in gone.split()}
    return {"operation": operation, **({} if ttl is None else {"ttl": ttl}), **columns, **marks}


def _row(operation: int, /, *, ck: int = 1, **columns: Any) -> Row:
    return _bare(operation, ck=ck, part="a", **columns)


THINGS: Final[dict[int, list[Row]]] = {
    1: [
        _row(
            INSERT,
            name="Zoë ☃",
            large=1 << 60,
            tiny=-5,
            ratio=0.1,
            flag=False,
            raw="0x00ff10",
            moment=1_700_000_000_123,
            id="3c7f0d3e-9a51-4a0e-8f0b-0123456789ab",
            host="10.1.2.3",
            day=19_782,
            price="-1250e-2",
            huge=-123456789012345678901234567890,
        )
    ],
    2: [_row(INSERT, name="short-lived", ttl=3600)],
    3: [_row(INSERT, name="x"), _row(UPDATE, gone="name")],
    4: [
        _bare(UPDATE, shared="for all"),
        _row(INSERT, name="one"),
        _bare(UPDATE, seen=setting([1, 2])),
    ],
    5: [
        _row(
            INSERT,
            tags=setting(["red", "blue"]),
            scores=mapping([["x", 1], ["y", 2]]),
            steps=["first", "second"],
            gone="tags scores steps",
        ),
        _row(UPDATE, tags=setting(["green"]), scores=mapping([["z", 3]]), steps=["third"]),
        _row(
            UPDATE,
            deleted_elements_tags=setting(["red"]),
            deleted_elements_scores=setting(["x"]),
            deleted_elements_steps=1,
        ),
        _row(UPDATE, tags=setting(["only"]), gone="tags"),
    ],
    6: [
        _row(
            INSERT,
            home=mapping([["street", "High Street"], ["zip", None]]),
            place=mapping([["street", "Low Street"], ["zip", 12]]),
            pair=[7, "seven"],
            grid=[3, 1, 2],
            gone="place",
        ),
        _row(UPDATE, place=mapping([["street", None], ["zip", 13]])),
        _row(UPDATE, pair=[None, None]),
        _row(UPDATE, gone="pair"),
    ],
    7: [_row(INSERT, name="gone soon"), _row(ROW_DELETE)],
    8: [
        _bare(AFTER, ck=1),
        _bare(TO, ck=5),
        _bare(FROM, ck=9),
        _bare(TO, ck=9),
        _bare(FROM),
        _bare(BEFORE, ck=3),
    ],
    9: [_bare(PARTITION_DELETE)],
    # One record, in the order of the rows: the delete comes before the rows that are written.
    10: [_row(ROW_DELETE, ck=0), _row(INSERT, name="in a batch"), _row(UPDATE, ck=2, name="too")],
    11: [_row(INSERT, name="elsewhere")],
    # Two TTLs split the record: inserts come first then.
    12: [_row(INSERT, ck=2, name="goes", ttl=60), _row(UPDATE, name="stays")],
    13: [_row(INSERT, name="mine"), _row(UPDATE, name="ours")],
    14: [_row(INSERT, name="dated")],
    15: [_row(INSERT, name="from JSON", tags=setting(["t"]), gone="tags")],
}

IMAGES: Final[dict[int, list[Row]]] = {
    1: [
        _bare(INSERT, ck=1, name="a"),
        _bare(POSTIMAGE, ck=1, name="a"),
        _bare(PREIMAGE, ck=1, name="a", gone="tags"),
        _bare(UPDATE, ck=1, name="b", tags=setting(["t"])),
        _bare(POSTIMAGE, ck=1, name="b", tags=setting(["t"])),
        _bare(UPDATE, shared="s"),
        _bare(POSTIMAGE, shared="s"),
        _bare(PREIMAGE, ck=1, name="b", tags=setting(["t"])),
        _bare(UPDATE, ck=1, gone="name"),
        _bare(POSTIMAGE, ck=1, tags=setting(["t"])),
        _bare(PREIMAGE, ck=1, tags=setting(["t"]), gone="name"),
        _bare(ROW_DELETE, ck=1),
        # The clustering order is descending, and bounds follow it.
        _bare(AFTER, ck=5),
        _bare(BEFORE, ck=1),
    ]
}

# The server deletes the row whose time has come.
FADING: Final[dict[int, list[Row]]] = {1: [_bare(INSERT, ck=1, expires=1), _bare(EXPIRED, ck=1)]}
