"""What the server does when its own clock has moved on, be that the machine's clock or one that is driven."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..clock import Clock, ManualClock

__all__ = ["Alarms"]


class Alarms:
    """Alarms by the server's clock. On the loop's thread only; a `ManualClock` may be moved on any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def after(self, span_us: int, ring: Callable[[], None]) -> Callable[[], None]:
        """Call *ring* once, when the clock has moved on by *span_us*; return a function that calls it off."""
        loop = asyncio.get_running_loop()
        if not isinstance(self._clock, ManualClock):
            return loop.call_later(span_us / 1e6, ring).cancel
        clock, due_us = self._clock, self._clock.now_us() + span_us
        waits = True

        def call_off() -> None:
            nonlocal waits
            waits = False
            forget()

        def on_loop() -> None:
            if waits:
                call_off()
                ring()

        def moved() -> None:
            if clock.now_us() < due_us:
                return
            try:
                loop.call_soon_threadsafe(on_loop)
            except RuntimeError:  # the loop is closed: the server has stopped
                forget()

        forget = clock.on_change(moved)
        moved()  # it may have moved in the meantime
        return call_off
