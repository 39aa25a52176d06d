"""``signals``: hands SIGTERM and SIGINT to a function."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["signals"]


@contextmanager
def signals(halt: Callable[[int], None]) -> Iterator[None]:
    """Call *halt* on SIGTERM and SIGINT within the block; do nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        halt(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: code outside Python installed it, and Python cannot restore it
                signal.signal(number, handler)
