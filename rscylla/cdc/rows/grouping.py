"""Which rows of a window form a record, and which rows of a record form a change, all by their numbers.

A record is what one statement or batch wrote to one partition at one time. A change is a delta row with its images, or
the two ends of a deleted range.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import attrs

from .layout import PARTITION_DELETES, Cells, Layout

__all__ = [
    "IMAGES",
    "NOT_ALONE",
    "POSTIMAGE",
    "PREIMAGE",
    "RANGES",
    "RANGE_ENDS",
    "RANGE_STARTS",
    "ChangeRows",
    "Parts",
    "grouped",
    "parts_of",
    "records_in",
]

PREIMAGE = b"\x00"
POSTIMAGE = b"\x09"
IMAGES = frozenset((PREIMAGE, POSTIMAGE))
RANGE_STARTS = frozenset((b"\x05", b"\x06"))
RANGE_ENDS = frozenset((b"\x07", b"\x08"))
RANGES = RANGE_STARTS | RANGE_ENDS

NOT_ALONE = RANGES | IMAGES
"""Operations of rows that form a change together with another row of their record."""

_RECORD = 32
"""Length of the prefix of a position that the rows of one record share: ticks, low half, stream id."""

_AFTER = b"\xff"
"""Sorts after all sequence numbers, which are not negative."""

Parts = tuple[int, int, int, int]
"""The rows of a change, by their numbers, -1 for none: the delta or the row in its place, preimage, postimage, end."""


@attrs.frozen(eq=False)
class ChangeRows:
    """The rows of the changes of a window, as parallel sequences of row numbers, -1 for none.

    ``delta``: the row of the write, or an image or a range's end that has none. ``before``, ``after``: the images.
    ``range_end``: the row of the end of a deleted range. ``record``: the first row of the record.
    """

    delta: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    range_end: Sequence[int]
    record: Sequence[int]


def records_in(positions: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield where each record starts and ends. *positions* are those of a window, sorted."""
    last = len(positions)
    at = 0
    while at < last:
        end = at + 1
        if end < last and positions[end].startswith(prefix := positions[at][:_RECORD]):
            end = bisect_left(positions, prefix + _AFTER, end)
        yield at, end
        at = end


def grouped(positions: Sequence[bytes], cells: Sequence[Cells], layout: Layout, *, joined: bool = True) -> ChangeRows:
    """Return the changes of a window, whose rows have one layout and are sorted by their positions.

    Args:
        joined: images and ends of ranges belong to other rows; otherwise, each row is a change of its own.
    """
    operation = layout.operation
    not_alone = NOT_ALONE if joined else frozenset[bytes]()
    delta, record = array("i"), array("i")
    others: list[tuple[int, Parts]] = []  # few changes have more than one row
    for start, end in records_in(positions):
        if end - start == 1 and cells[start][operation] not in not_alone:
            delta.append(start)
            record.append(start)
            continue
        if not_alone.isdisjoint([row[operation] for row in cells[start:end]]):
            delta.extend(range(start, end))
            record.extend([start] * (end - start))
            continue
        for parts in parts_of(cells[start:end], layout):
            if max(parts[1:]) >= 0:
                others.append((len(delta), tuple([-1 if n < 0 else start + n for n in parts])))  # type: ignore[arg-type]
            delta.append(start + parts[0])
            record.append(start)
    before, after, range_end = (array("i", [-1]) * len(delta) for _ in range(3))
    for at, parts in others:
        _, before[at], after[at], range_end[at] = parts
    return ChangeRows(delta, before, after, range_end, record)


def parts_of(rows: Sequence[Cells], layout: Layout) -> list[Parts]:
    """Return the rows of one record as the parts of its changes, in order.

    Images belong to the deltas of the same row, wherever they are in the record. Deletes of ranges and of whole
    partitions have no images, although their keys may look like that of the static row. An image without its delta, and
    a range end without its start, become separate changes, so that no row is dropped silently.
    """
    at = layout.operation
    preimages: dict[Cells, int] = {}
    postimages: dict[Cells, int] = {}
    used: set[Cells] = set()
    for i, cells in enumerate(rows):
        if cells[at] == PREIMAGE:
            preimages[layout.raw_key(cells)] = i
        elif cells[at] == POSTIMAGE:
            postimages[layout.raw_key(cells)] = i
        elif _may_have_images(cells, layout):
            used.add(layout.raw_key(cells))
    parts: list[Parts] = []
    skip = -1
    for i, cells in enumerate(rows):
        operation = cells[at]
        if i == skip:
            continue
        if operation in IMAGES:
            key = layout.raw_key(cells)
            if key not in used and (preimages if operation == PREIMAGE else postimages)[key] == i:
                parts.append((i, -1, -1, -1))
        elif operation in RANGE_STARTS and i + 1 < len(rows) and rows[i + 1][at] in RANGE_ENDS:
            skip = i + 1
            parts.append((i, -1, -1, skip))
        elif _may_have_images(cells, layout):
            key = layout.raw_key(cells)
            parts.append((i, preimages.get(key, -1), postimages.get(key, -1), -1))
        else:
            parts.append((i, -1, -1, -1))
    return parts


def _may_have_images(cells: Cells, layout: Layout) -> bool:
    """Return whether a delta row can have images. A partition delete can only if each partition is a single row."""
    operation = cells[layout.operation]
    if operation in PARTITION_DELETES:
        return not layout.table.clustering_key
    return operation not in RANGES
