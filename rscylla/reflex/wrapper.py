"""``Wrapper``: the base class of consumers that add behavior to another consumer."""

from __future__ import annotations

from collections.abc import Hashable

from ..abc import ChunkConsumer, Committing, Consumer, Resetter, Run, RunAware, Stopper
from ..errors import ConfigError
from ..event import Event
from .consumer import check_threads_can_drive
from .telemetry.series import ConsumerSeries

__all__ = ["Wrapper"]


class Wrapper:
    """Wraps *inner*, keeps its name and metrics, and passes ``run_begins``, ``reset``, and ``stop`` on to it.

    Raises:
        ConfigError: *inner* is not a consumer, finishes events after ``consume`` returns, or handles them in an event
            loop.
    """

    def __init__(self, inner: Consumer) -> None:
        if not callable(getattr(inner, "consume", None)) or not isinstance(getattr(inner, "name", None), str):
            raise ConfigError(f"{inner!r} is not a consumer; pass rscylla.Consumer(name, function)")
        check_threads_can_drive(inner)
        # Its ``consume`` returns before the event is handled, so a wrapper would see no error, and retry nothing.
        if isinstance(inner, Committing):
            raise ConfigError(
                f'consumer "{inner.name}": a {type(inner).__name__} finishes events later, so it must be '
                "outermost; wrap the consumer inside it instead"
            )
        if isinstance(inner, ChunkConsumer):
            raise ConfigError(
                f'consumer "{inner.name}" handles whole windows, so nothing can be wrapped around it; handle errors in '
                "its function, or use rscylla.batch with fallback="
            )
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def inner(self) -> Consumer:
        """The consumer that this one wraps."""
        return self._inner

    @property
    def series(self) -> ConsumerSeries:
        """The metrics of the inner consumer. Raises ``AttributeError`` if it has none."""
        found: ConsumerSeries = self._inner.series  # type: ignore[attr-defined]
        return found

    def run_begins(self, run: Run) -> None:
        if isinstance(self._inner, RunAware):
            self._inner.run_begins(run)

    def reset(self) -> None:
        if isinstance(self._inner, Resetter):
            self._inner.reset()

    def stop(self) -> None:
        if isinstance(self._inner, Stopper):
            self._inner.stop()

    def takes(self, event: Event, run: Run) -> bool:
        """Return whether *event* must not reach the consumer inside, and a wrapper has put it aside."""
        return isinstance(self._inner, Wrapper) and self._inner.takes(event, run)

    def waits_for(self, event: Event) -> tuple[Hashable, ...]:
        """Return keys whose earlier events must be done before *event* begins."""
        return self._inner.waits_for(event) if isinstance(self._inner, Wrapper) else ()

    def consume(self, event: Event, run: Run) -> None:
        self._inner.consume(event, run)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"
