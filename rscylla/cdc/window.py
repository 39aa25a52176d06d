"""The events of a window for a consumer, and the same rows as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import length_hint
from typing import Any, Literal, overload

from ..errors import ConfigError
from .read import Step
from .rows import ChangeEvent, Events

__all__ = ["Begun", "EventChunk"]


class Begun:
    """``Events`` of which the first is made: it stays the next one until somebody takes it.

    Args:
        before: the position of the event before it; empty if it is the first of its step.
    """

    def __init__(self, first: ChangeEvent, others: Events, before: bytes) -> None:
        self._first = iter((first,))
        self.others: Events = others.others if isinstance(others, Begun) else others
        self._before = before

    @property
    def position(self) -> bytes:
        return self._before if length_hint(self._first) else self.others.position

    def __iter__(self) -> Iterator[ChangeEvent]:
        return chain(self._first, self.others)


class EventChunk(Sequence[ChangeEvent]):
    """The events of a window that are left; see ``rscylla.abc.Window``.

    Args:
        first: the first of them, which *step* has, too.
        after: the position after which they begin.
    """

    def __init__(self, first: ChangeEvent, step: Step, after: bytes) -> None:
        self._first = first
        self._step = step
        self._after = after
        self._events: list[ChangeEvent] = []  # those that were made to be kept
        self._is_whole = False

    @property
    def cursor(self) -> str:
        return str(self._step.done)

    def __iter__(self) -> Iterator[ChangeEvent]:
        return iter(self._all() if self._events or self._is_whole else self._step.events)

    def _all(self) -> list[ChangeEvent]:
        if not self._is_whole:
            self._events.extend(self._step.events)  # an interrupt leaves those before it
            self._is_whole = True
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
        self._all()  # they are delivered with the table
        step = self._step
        assert step.rows is not None
        return table_of(mode, step.rows, self._first.order_key[0], self._after, joined=step.joined)
