"""The events of a window for a consumer, and the same rows as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, overload

from ..errors import ConfigError
from .read import Step
from .rows import ChangeEvent

__all__ = ["EventChunk"]


class EventChunk(Sequence[ChangeEvent]):
    """The events of a window that are left; see ``rscylla.abc.Window``.

    Args:
        first: the first of them; *step* has the others.
        after: the position after which they begin.
    """

    def __init__(self, first: ChangeEvent, step: Step, after: bytes) -> None:
        self._first = first
        self._step = step
        self._after = after
        self._events: Iterator[ChangeEvent] | list[ChangeEvent] = chain((first,), step.events)

    @property
    def cursor(self) -> str:
        return str(self._step.done)

    def __iter__(self) -> Iterator[ChangeEvent]:
        return iter(self._events)

    def _all(self) -> list[ChangeEvent]:
        if not isinstance(self._events, list):
            self._events = list(self._events)
        return self._events

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> ChangeEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChangeEvent]: ...
    def __getitem__(self, index: int | slice) -> ChangeEvent | Sequence[ChangeEvent]:
        return self._all()[index]

    def to_arrow(self, mode: Literal["changes", "log", "events"] = "changes") -> Any:
        """Return the window as a ``pyarrow.Table``. Columns that only some of its rows can have are null in the others.

        A table that was altered within the window is such a case.
        """
        try:
            from .arrow import table_of
        except ImportError as e:
            raise ConfigError("to_arrow requires pyarrow and numpy; pip install 'rscylla[arrow]'") from e
        step = self._step
        assert step.rows is not None
        return table_of(mode, step.rows, self._first.order_key[0], self._after, joined=step.joined)
