"""What a run raises: its own end if that is a good one, and otherwise a ``RunError`` with all that went wrong."""

from __future__ import annotations

from contextlib import suppress

from ..errors import CursorExpired, HeadReached, RscyllaError, RunError, Stopped, is_resumable
from ._context import Failure, Run

__all__ = ["ending"]


def ending(run: Run, error: BaseException, clean_up: list[Failure]) -> BaseException:
    """Return what *run* raises for *error*; *clean_up* is what failed while it was cleaned up."""
    end = _named(run, Failure(error, run.stage, run.event))
    reported = run.failure  # what went wrong in the consumer's own threads, and ended the run
    if reported is not None and isinstance(end, HeadReached | Stopped):
        end = _named(run, reported)
    elif reported is not None:
        end.add_note(f"meanwhile {reported.stage} failed too: {_in_short(reported.error)}")
    if clean_up and isinstance(end, HeadReached | Stopped):
        # Something is not saved, so callers must not take this for a good end.
        end = _named(run, clean_up.pop(0))
        end.add_note(f"the run itself ended with {type(error).__name__}")
    for failure in clean_up:
        end.add_note(f"then {failure.stage} failed too: {_in_short(failure.error)}")
    if isinstance(end, RunError):
        run.series.run_failed(end.stage, end.event_id)
        if isinstance(end.__cause__, CursorExpired):
            run.count("cursor_expired")
    return end


def _named(run: Run, failure: Failure) -> BaseException:
    """Return the error itself if it says that a run ended well, else a ``RunError`` that it caused."""
    error, stage = failure.error, failure.stage
    # A consumer or a store that says HeadReached has reached some other head than this stream's.
    reached = isinstance(error, HeadReached) and stage in ("stream", "recv")
    stopped = isinstance(error, Stopped) and stage not in ("stop", "close", "flush")
    if reached or stopped or not isinstance(error, Exception):
        return error
    event_id = event_fid = ""
    with suppress(Exception):  # an event that cannot even be named must not hide what happened
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
    """Return the message of our own errors, and of others only the type: their text may hold row values."""
    return str(error) if isinstance(error, RscyllaError) else type(error).__name__
