"""``run_forever``: runs a spec again after each error, with pauses that grow while it keeps failing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ..._retry import Backoff, retry
from ...clock import Stop
from ...errors import HeadReached, RunError, Stopped, is_resumable
from .._run import run
from ..spec import Spec

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
    contain row values) and passed to *on_error*. A pause on the spec's clock follows, which *stop* ends at once; pauses
    grow while errors come with no move of the cursor in between. The caller handles signals: set *stop* in a handler,
    or let ``KeyboardInterrupt`` pass through; the cursor is saved either way.

    Args:
        spec: The spec to run.
        stop: Ends the loop, even during a pause or while it waits for events.
        backoff: The length of the pauses.
        on_error: Called with each error before the pause; an error that it raises ends the loop.

    Raises:
        RunError: an error that a retry cannot fix, such as a missing option or an expired cursor.
    """
    signal = stop or Stop()

    def waiting(error: Exception, failures: int, seconds: float) -> None:
        _report(spec, error, f"it runs again in {seconds:.3g} s", on_error)

    try:
        if not signal.is_set():
            retry(
                partial(run, spec, stop=signal),
                backoff=backoff or Backoff(),
                clock=spec.clock,
                stop=signal,
                again=lambda error: is_resumable(error) and not signal.is_set(),
                waiting=waiting,
                got_on=lambda: spec.series.failed_runs == 1,
            )
    except HeadReached:
        pass
    except Exception as error:
        if not signal.is_set() or not is_resumable(error):
            raise
        if not isinstance(error, Stopped):
            _report(spec, error, "it was stopped; events since the saved cursor are delivered again", on_error)
    spec.series.finished()


def _report(spec: Spec, error: Exception, then: str, on_error: Callable[[Exception], None] | None) -> None:
    named = error if isinstance(error, RunError) else f'consumer "{spec.name}": {error}'
    logger.warning("%s; %s", named, then)
    # At level debug only, because the text of other libraries' errors may contain row values.
    logger.debug('consumer "%s" failed', spec.name, exc_info=error)
    if on_error is not None:
        on_error(error)
