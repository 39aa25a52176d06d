"""The rows of a window, undecoded: the bytes of pages as cells, sorted, divided, and grouped by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..._decoder import twin
from ..._timeuuid import FLIP_SIGNS
from ..._tokens import slice_at
from ...driver import Page, hash_of_key
from ...errors import MalformedData
from ..log import LoggedTable
from .grouping import ChangeRows, grouped, records_in
from .layout import Cells, Layout, moved, united

if TYPE_CHECKING:
    from .events import EventContext, Events

__all__ = ["LogRows", "leave_out_lost_keys", "new_rows", "routing_key", "token_of_key"]

# The compiled rows hash keys without a call if they are given this function.
token_of_key = twin("cdc.rows.token_of_key", hash_of_key)

_NO_VERSION = bytes(b & 0x0F for b in range(256))


class LogRows:
    """The undecoded rows of a window: row i has ``cells[i]``, ``positions[i]``, and the layout ``layout_at(i)``.

    Positions order rows as ``EventID.position`` does. The lists contain only bytes, tuples of bytes, and numbers, which
    the garbage collector need not traverse: with an object per row, it takes a third of the time of reading.

    ``layouts`` has more than one element if the table was changed while the window was read.
    """

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self.cells: list[Cells] = []
        self._positions: list[bytes] = []  # of the first rows; those of the rest are made when they are asked for
        self._without: list[tuple[Layout, list[Cells]]] = []
        self._layout_of: list[int] = []  # by row, once there are several layouts

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def positions(self) -> list[bytes]:
        for layout, cells in self._without:
            self._positions += _checked_positions(cells, layout)
        self._without.clear()
        return self._positions

    @property
    def is_mixed(self) -> bool:
        """Whether rows have different layouts."""
        return len(self.layouts) > 1

    def layout_at(self, index: int) -> Layout:
        return self.layouts[self._layout_of[index] if self.is_mixed else 0]

    def add(self, page: Page, layout: Layout) -> LogRows:
        """Add the rows of *page*, and return the rows: the compiled twin returns others if the layout is another one.

        Rows keep the layout of their page: another page may have other columns.

        Raises:
            MalformedData: the bytes are no page of rows of a log.
        """
        cells = page.cells(layout.table.full_name, is_log=True)
        self._note(layout, len(cells))
        self._without.append((layout, cells))
        self.cells += cells
        return self

    def _note(self, layout: Layout, count: int) -> None:
        """Record that the next *count* rows have *layout*."""
        if not count:
            return
        number = next((i for i, known in enumerate(self.layouts) if known is layout), len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
            if number == 1:
                self._layout_of = [0] * len(self)
        if self.is_mixed:
            self._layout_of += [number] * count

    def sort(self) -> None:
        """Sort the rows by their positions."""
        self.take(sorted(range(len(self)), key=self.positions.__getitem__))

    def take(self, indexes: Sequence[int]) -> None:
        """Keep only the rows at *indexes*, in that order."""
        positions, cells, layouts = self.positions, self.cells, self._layout_of
        self._positions = [positions[i] for i in indexes]
        self.cells = [cells[i] for i in indexes]
        if self.is_mixed:
            self._layout_of = [layouts[i] for i in indexes]

    def owners(
        self,
        token: Callable[[bytes], int],
        count: int,
        shared: Mapping[bytes, Sequence[int]],
        only: Mapping[bytes, int],
    ) -> Sequence[int]:
        """Return the slice, of *count*, of each row: that of its stream, or of its key if several read the stream.

        If no reader of a stream owns the key, the stream should not contain it. The first reader keeps it: a change out
        of order is better than a lost one.

        Args:
            token: returns the token of a partition key.
            shared: the slices that read a stream, if they are several.
            only: the slice of each other stream.
        """
        known: dict[Cells, int] = {}

        def owner_of(layout: Layout, cells: Cells) -> int:
            stream: bytes = cells[layout.stream_id]  # type: ignore[assignment]
            owner = only.get(stream)
            if owner is not None:
                return owner
            key = layout.raw_partition_key(cells)
            owner = known.get(key)
            if owner is None:
                owner = known[key] = slice_at(token(routing_key(key)), count)
            readers = shared[stream]
            return owner if owner in readers else readers[0]

        return [owner_of(self.layout_at(i), cells) for i, cells in enumerate(self.cells)]

    def divided(self, owners: Sequence[int], indexes: Iterable[int]) -> dict[int, LogRows]:
        """Return the rows of each of the slices *indexes* that has some, in the same order.

        They are rows of their own, over the same pages, and no page is added to them.
        """
        numbers: dict[int, list[int]] = {index: [] for index in indexes}
        for i, owner in enumerate(owners):
            if owner in numbers:
                numbers[owner].append(i)
        return {index: self._part(its) for index, its in numbers.items() if its}

    def _part(self, indexes: Sequence[int]) -> LogRows:
        found = LogRows()
        found.layouts = self.layouts
        positions = self.positions
        found._positions = [positions[i] for i in indexes]
        found.cells = [self.cells[i] for i in indexes]
        if self.is_mixed:
            found._layout_of = [self._layout_of[i] for i in indexes]
        return found

    def by_layout(self) -> Iterator[LogRows]:
        """Yield the rows of a sorted window in parts of one layout each, with whole records; usually, it is one part.

        A record that spans pages with different columns is a part of its own, with all of their columns.
        """
        if not self.is_mixed:
            yield self
            return
        part = LogRows()
        for start, end in records_in(self.positions):
            layout, cells = self.record(start, end)
            if part.layouts != [layout]:
                if part:
                    yield part
                part = LogRows()
                part.layouts.append(layout)
            part.cells += cells
            part._positions += self.positions[start:end]
        yield part

    def column(self, index: int, rows: Iterable[int] | None = None) -> Sequence[bytes | None]:
        """Return the cells of a column: of all rows, or of the given ones, of which -1 is none and has no cell."""
        cells = self.cells
        if rows is None:
            return [row[index] for row in cells]
        return [cells[i][index] if i >= 0 else None for i in rows]

    def changes(self, *, joined: bool = True) -> ChangeRows:
        """Return the changes of a sorted window by the numbers of their rows, which have one layout.

        Args:
            joined: images and ends of ranges belong to other rows; otherwise, each row is a change of its own.
        """
        assert not self.is_mixed, "the columns of a row are only known together with its layout"
        if not len(self):
            return ChangeRows((), (), (), (), ())
        return grouped(self.positions, self.cells, self.layouts[0], joined=joined)

    def record(self, start: int, end: int) -> tuple[Layout, list[Cells]]:
        """Return the rows of a record in one layout, because a record may span pages with different columns."""
        layout, cells = self.layout_at(start), self.cells[start:end]
        if not self.is_mixed:
            return layout, cells
        layouts = [self.layout_at(i) for i in range(start, end)]
        if all(other is layout for other in layouts):
            return layout, cells
        whole = united(list(zip(layouts, cells, strict=True)))
        return whole, [moved(row, its, whole) for its, row in zip(layouts, cells, strict=True)]

    def events(self, context: EventContext, *, joined: bool, after: bytes = b"") -> Events:
        """Return the events of the rows; see ``events.changes_of``."""
        from .events import EventsInPython

        return EventsInPython(self, context, after, joined=joined)


def routing_key(key: Iterable[bytes | None]) -> bytes:
    """Return the bytes of a partition key that the database hashes: the column, or several with lengths and zeros."""
    cells = [cell or b"" for cell in key]
    if len(cells) == 1:
        return cells[0]
    return b"".join(len(cell).to_bytes(2, "big") + cell + b"\x00" for cell in cells)


new_rows = twin("cdc.rows.LogRows", LogRows)
"""Returns the container for the rows of a window, empty: of the decoder that runs."""


def leave_out_lost_keys(rows: LogRows, table: LoggedTable, start_us: int, after: bytes) -> bool:
    """Drop the *rows* whose key was lost with a renamed column of *table*; see ``Layout.lost_key``.

    Return whether a dropped row comes after the position *after*, up to which the reader has read.

    Args:
        start_us: no row is older.
    """
    renamed_us = table.renamed_us
    if renamed_us is None or not table.may_lack_keys(start_us):
        return False
    positions = rows.positions
    lost = {i for i, row in enumerate(rows.cells) if rows.layout_at(i).lost_key(row, renamed_us)}
    missed = any(positions[i] > after for i in lost)
    if lost:
        rows.take([i for i in range(len(rows)) if i not in lost])
    return missed


_BAD_ROW = (
    "a row ends too early, lacks its time, stream id or sequence number, or has an operation or TTL of a wrong size"
)


def _checked_positions(rows: Sequence[Cells], layout: Layout) -> list[bytes]:
    try:
        positions = _positions_of(rows, layout)
    except TypeError as e:  # a cell is null
        raise MalformedData.of_page(layout.table.full_name, _BAD_ROW, is_log=True) from e
    if (
        not set(map(len, positions)) <= {_POSITION_SIZE}
        or not {len(cell) for row in rows if (cell := row[layout.operation]) is not None} <= {1}
        or not {len(cell) for row in rows if (cell := row[layout.ttl]) is not None} <= {8}
    ):
        raise MalformedData.of_page(layout.table.full_name, _BAD_ROW, is_log=True)
    return positions


_POSITION_SIZE = 36


def _positions_of(rows: Sequence[Cells], layout: Layout) -> list[bytes]:
    time, stream_id, seq = layout.time, layout.stream_id, layout.seq
    flip = FLIP_SIGNS
    positions: list[bytes] = []
    append = positions.append
    slow = head = b""
    for row in rows:
        t: Any = row[time]
        # The same as order_key(t), inlined because it runs once per row. The high bytes are computed only when they
        # change, which is about every seven minutes of write time.
        if t[4:8] != slow:
            slow = t[4:8]
            head = t[6:7].translate(_NO_VERSION) + t[7:8] + t[4:6]
        append(head + t[:4] + t[8:].translate(flip) + row[stream_id] + row[seq])
    return positions
