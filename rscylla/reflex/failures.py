"""What a run raises: ``HeadReached`` or ``Stopped`` after a clean end, else a ``RunError`` with all failures."""

from __future__ import annotations

from contextlib import suppress

from ..errors import CursorExpired, HeadReached, RscyllaError, RunError, Stopped, is_resumable
from .context import Failure, Run

__all__ = ["ending"]


def ending(run: Run, error: BaseException) -> BaseException:
    """Return what *run* raises for *error*, after its cleanup."""
    end = _named(run, Failure(error, run.stage, run.event))
    reported = run.failure  # in a thread of the consumer; it stopped the run
    if reported is not None and isinstance(end, HeadReached | Stopped):
        end = _named(run, reported)
    elif reported is not None:
        end.add_note(f"in the meantime, {reported.stage} failed too: {_in_short(reported.error)}")
    unclean = list(run.unclean)
    if unclean and isinstance(end, HeadReached | Stopped):
        # Some work may not be saved, so callers must not see a clean end.
        end = _named(run, unclean.pop(0))
        end.add_note(f"the run itself ended with {type(error).__name__}")
    for failure in unclean:
        end.add_note(f"then {failure.stage} failed too: {_in_short(failure.error)}")
    run.count("flush_failures", sum(failure.stage == "flush" for failure in run.unclean))
    if isinstance(end, RunError):
        run.series.run_failed(end.stage, end.event_id)
        if isinstance(end.__cause__, CursorExpired):
            run.count("cursor_expired")
    return end


def _named(run: Run, failure: Failure) -> BaseException:
    """Return the error itself if it stands for a clean end, else a ``RunError`` with it as the cause."""
    error, stage = failure.error, failure.stage
    # HeadReached from a consumer or a store concerns the head of another stream.
    reached = isinstance(error, HeadReached) and stage in ("stream", "recv")
    stopped = isinstance(error, Stopped) and stage not in ("stop", "close", "flush")
    if reached or stopped or not isinstance(error, Exception):
        return error
    event_id = event_fid = ""
    with suppress(Exception):  # an event that cannot return its ID must not hide the failure
        if failure.event is not None:
            event_id = failure.event.id
            event_fid = failure.event.foreign_id
    named = RunError(
        f'consumer "{run.consumer}": {stage} failed{" at event " if event_id else ""}{event_id}: {_in_short(error)}',
        stage=stage,
        consumer=run.consumer,
        event_id=event_id,
        event_fid=event_fid,
        resumable=is_resumable(error),
    )
    named.__cause__ = error
    return named


def _in_short(error: BaseException) -> str:
    """Return the message of an rscylla error, and only the type of any other: its text may contain row values."""
    return str(error) if isinstance(error, RscyllaError) else type(error).__name__
