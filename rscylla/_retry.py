"""The only door to ``tenacity``: how long to wait before trying again."""

from __future__ import annotations

import attrs
from tenacity import RetryCallState, Retrying, wait_exponential_jitter

__all__ = ["Backoff"]


@attrs.frozen
class Backoff:
    """Waits that grow exponentially, with random jitter on top so that many clients do not retry in step.

    All in seconds. The n-th wait is ``initial * factor ** (n - 1)`` plus up to ``jitter``, at most ``maximum``.
    """

    initial: float = 0.1
    maximum: float = 30.0
    factor: float = 2.0
    jitter: float = 0.1

    def delay(self, attempt: int) -> float:
        """Return the wait after the failure of *attempt*, counted from 1."""
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = attempt
        wait = wait_exponential_jitter(self.initial, self.maximum, self.factor, self.jitter)
        return float(wait(state))
