"""``windows``: delivers whole windows of a stream, as events or as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ...abc import Consumer as ConsumerLike
from ...abc import Run, Window
from ...errors import ConfigError
from ...event import Event
from ..consumer import Consumer

__all__ = ["WindowFunc", "windows"]

WindowFunc = Callable[[Window, Any], None]
"""Handles the events of a window, which are in order, or raises. Also receives the run. Must be idempotent."""

_OPTIONS = frozenset(("lag_alert", "lag_alert_gauge", "activity_ttl", "registry", "clock"))


class _Windows(Consumer):
    def __init__(self, name: str, fn: WindowFunc, **options: Any) -> None:
        super().__init__(name, self.consume, **options)
        if not callable(fn):
            raise ConfigError(f'consumer "{name}": fn is not callable; pass a function')
        self._handle = fn

    def consume(self, event: Event, run: Run) -> NoReturn:
        """Raise an error: there is no window with a single event."""
        raise ConfigError(f'consumer "{self.name}" handles whole windows, so it must be the consumer of the Spec')

    def room(self) -> None:
        """Return None: windows are passed whole."""

    def consume_chunk(self, window: Window, run: Run) -> None:
        """Call the function, and count the events of the window, or one error.

        Age and latency are those of the window: of its first event on arrival, and of the call.
        """
        with self.series.consuming(window[0]):
            self._handle(window, run)
        self.series.count("consumed", len(window))


def windows(name: str, fn: WindowFunc, **options: Any) -> ConsumerLike:
    """Return a consumer that passes whole windows of a CDC stream to *fn*.

    A window is a sequence of at least one event: ``len``, iteration, and indexes; ``window.cursor`` is the cursor after
    it, and ``window.to_arrow(mode)`` returns it as a ``pyarrow.Table``, without an object for each value. Windows are
    as large as the stream reads them: ``Limits(window_rows=..., window_bytes=...)`` of ``NewStream`` limits them, and
    at the head they contain what the last poll found.

    Delivery: at least once. The cursor after the window is saved, once, when *fn* returns; an error saves nothing of
    the window, and it is delivered again, possibly cut differently. ``RunError`` and logs name its first event.

    Metrics count the events of a window when *fn* is done with it; age and latency are those of the whole window.

    Args:
        options: ``lag_alert``, ``lag_alert_gauge``, ``activity_ttl``, ``registry``, and ``clock``, as for
            ``rscylla.Consumer``. *fn* itself chooses among the events.

    Raises:
        ConfigError: an argument is invalid.
    """
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ConfigError(
            f'consumer "{name}": windows does not take {", ".join(unknown)}; choose events in the function'
        )
    return _Windows(name, fn, **options)
