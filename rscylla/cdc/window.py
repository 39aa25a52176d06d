"""A whole window for a consumer: its events, and the same rows as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

from ..errors import ConfigError
from .rows import ChangeEvent, LogRows

__all__ = ["EventWindow"]


class EventWindow(Sequence[ChangeEvent]):
    """The events of a window; see ``rscylla.abc.Window``.

    Args:
        rows: sorted, with whole records: those of *events*, and possibly some before them.
        after: the position after which the window begins.
        joined: an event is a change; otherwise, a row.
        cursor: returns the cursor after the window.
    """

    def __init__(
        self, events: list[ChangeEvent], rows: LogRows, after: bytes, cursor: Callable[[], str], *, joined: bool
    ) -> None:
        self._events = events
        self._rows = rows
        self._after = after
        self._joined = joined
        self._cursor = cursor

    @property
    def cursor(self) -> str:
        return self._cursor()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ChangeEvent]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> ChangeEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChangeEvent]: ...
    def __getitem__(self, index: int | slice) -> ChangeEvent | Sequence[ChangeEvent]:
        return self._events[index]

    def to_arrow(self, mode: Literal["changes", "log", "events"] = "changes") -> Any:
        """Return the window as a ``pyarrow.Table``. Columns that only some of its rows can have are null in the others.

        A table that was altered within the window is such a case.
        """
        try:
            from .arrow import table_of
        except ImportError as e:
            raise ConfigError("to_arrow requires pyarrow and numpy; pip install 'rscylla[arrow]'") from e
        return table_of(mode, self._rows, self._events[0].order_key[0], self._after, joined=self._joined)
