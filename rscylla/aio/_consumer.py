"""``Consumer``: a coroutine function with a name, filters, recovery and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, runtime_checkable

from ..abc import Run
from ..errors import ConfigError
from ..event import Event
from ..reflex import Consumer as SyncConsumer

__all__ = ["AsyncConsumeFunc", "AsyncConsumer", "Consumer", "is_async"]

AsyncConsumeFunc = Callable[[Event, Any], Awaitable[None]]
"""The business logic: handles an event, or raises. Also receives the run. Must be idempotent."""


@runtime_checkable
class AsyncConsumer(Protocol):
    """A consumer for an event loop. Must be idempotent: after an error, events are delivered again."""

    @property
    def name(self) -> str:
        """Key of the cursor and label of the metrics. Keep it stable across releases."""

    async def aconsume(self, event: Event, run: Run, /) -> None:
        """Handle one event; called for one at a time, in order. An error ends *run*; the event is redelivered."""


class Consumer(SyncConsumer):
    """A coroutine function with a name, for ``rscylla.aio.run``; takes the arguments of ``rscylla.Consumer``.

    Filters and the recover function are plain functions, which must not block.
    """

    needs_event_loop = True

    def __init__(self, name: str, fn: AsyncConsumeFunc, **options: Any) -> None:
        if callable(fn) and not is_async(fn):
            raise ConfigError(
                f'consumer "{name}": fn is not a coroutine function; use async def, or rscylla.Consumer and rscylla.run'
            )
        super().__init__(name, self.consume, **options)
        if not callable(fn):
            raise ConfigError(f'consumer "{name}": fn is not callable; pass a coroutine function')
        self._coroutine = fn

    def consume(self, event: Event, run: Run) -> NoReturn:
        """Raise an error: a thread cannot await."""
        raise ConfigError(f'consumer "{self.name}" is a coroutine function; run it with rscylla.aio.run')

    async def aconsume(self, event: Event, run: Run) -> None:
        """Filter *event*, await the function, recover from its error, and count the outcome.

        Raises:
            FilterError: a filter failed; ``recover`` was not called.
            Exception: the error of the function, or the one that ``recover`` returned instead.
        """
        with self.series.consuming(event) as consuming:
            consuming.outcome = await self._acall(event, run) if self._wants(event) else "skipped"

    async def _acall(self, event: Event, run: Run) -> str:
        try:
            await self._coroutine(event, run)
        except Exception as error:  # noqa: BLE001 - raised again unless recovery swallows it
            self._recovered(event, error)
            return "recovered"
        return "consumed"


def is_async(fn: Callable[..., object]) -> bool:
    """Return whether *fn* is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
