"""The callback of a publisher, which a test can wait for."""

from __future__ import annotations

import threading

LONG_S = 60.0


class Outcome:
    """Keeps what a publisher reports for groups of messages: None, or the error, for each."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self._changed = threading.Condition()

    def __call__(self, error: Exception | None) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def all(self, count: int) -> list[Exception | None]:
        """Return what was reported, once there are *count* reports."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.errors) >= count, LONG_S)
        return self.errors

    def wait(self) -> Exception | None:
        """Return the only report."""
        [error] = self.all(1)
        return error
