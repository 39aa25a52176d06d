"""Waiting for what changes in threads of others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def eventually(check: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return the first true result of *check*, whose facts change in the driver's own threads."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if result := check():
            return result
        pause.wait(0.01)
    raise AssertionError(f"not within {timeout_s} s")
