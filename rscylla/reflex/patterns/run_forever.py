"""``run_forever``: run a spec again and again, with pauses that grow while it keeps failing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..._retry import Backoff, retry_forever
from ...clock import Stop
from ...errors import HeadReached, RunError, Stopped, is_resumable
from .._run import run
from .._spec import Spec

__all__ = ["Backoff", "run_forever"]

logger = logging.getLogger("rscylla.reflex")


def run_forever(
    spec: Spec,
    *,
    stop: Stop | None = None,
    backoff: Backoff | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> None:
    """Run *spec* until *stop* is set or the stream reaches the head that it runs to; then return.

    An error that a retry may fix is logged (as a warning in one line; at level debug with its traceback, which may
    contain row values) and passed to *on_error*. A pause on the spec's clock follows, which *stop* ends at once. The
    caller handles signals: set *stop* in a handler, or let ``KeyboardInterrupt`` pass through; the cursor is saved
    either way.

    Args:
        spec: The spec to run.
        stop: Ends the loop, even during a pause or while it waits for events.
        backoff: The length of the pauses.
        on_error: Called with each error before the pause; an error that it raises ends the loop.

    Raises:
        RunError: an error that a retry cannot fix, such as a missing option or an expired cursor.
    """
    signal = stop or Stop()

    def attempt() -> None:
        try:
            run(spec, stop=signal)
        except HeadReached:
            return
        except Stopped:
            if not signal.is_set():
                raise  # somebody else stopped, a server on its way down perhaps: come back later
        except Exception as error:
            if not signal.is_set() or not is_resumable(error):
                raise
            logger.warning("%s; stopped, events since the saved cursor will come again", error)
            if on_error is not None:
                on_error(error)

    def waiting(error: BaseException, seconds: float) -> None:
        named = error if isinstance(error, RunError) else f'consumer "{spec.name}": {error}'
        logger.warning("%s; it runs again in %.3g s", named, seconds)
        # The texts of errors that are not ours may hold row values, so whole they are shown only to who asks for all.
        logger.debug('consumer "%s" failed', spec.name, exc_info=error)
        if on_error is not None and isinstance(error, Exception):
            on_error(error)

    retry_forever(
        attempt,
        backoff=backoff or Backoff(),
        clock=spec.clock,
        stop=signal,
        again=lambda error: isinstance(error, Exception) and is_resumable(error),
        waiting=waiting,
    )
    spec.series.finished()
