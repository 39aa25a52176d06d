"""The door to the target: what is tried again, what ends it, and what its refusals say."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra import OperationTimedOut, Unauthorized

import rscylla
from rscylla.base.statements import Write
from rscylla.replicate.target import ATTEMPTS, Target

WRITES = [Write("DELETE FROM shop.copy WHERE pk = ?", (b"key",))]


class Session:
    """A session on which every statement fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def prepare(self, _cql: str) -> Any:
        self.asked += 1
        raise self.error


class Clock(rscylla.SystemClock):
    """On which no time is lost; *stop* is set when somebody waits."""

    def __init__(self, stop: rscylla.Stop) -> None:
        self._stop = stop

    def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
        self._stop.set()
        return stop.is_set()


def test_a_target_that_does_not_answer_is_asked_again_for_a_while() -> None:
    session = Session(OperationTimedOut())
    target = Target(session, consistency="one", clock=Clock(rscylla.Stop()))
    with pytest.raises(rscylla.QueryTimeout, match="copying"):
        target.apply(WRITES, doing="copying", stop=rscylla.Stop())
    assert session.asked == ATTEMPTS


def test_the_stop_of_the_run_ends_the_attempts() -> None:
    session = Session(OperationTimedOut())
    stop = rscylla.Stop()
    clock = Clock(stop)
    target = Target(session, consistency="one", clock=clock)
    with pytest.raises(rscylla.Stopped):
        target.apply(WRITES, doing="copying", stop=stop)
    assert session.asked == 1


def test_what_the_user_may_not_write_is_told_with_the_grant_it_takes() -> None:
    session = Session(Unauthorized("User ann has no MODIFY permission on <table shop.copy>"))
    target = Target(session, consistency="one", clock=rscylla.SystemClock())
    with pytest.raises(
        rscylla.QueryFailed,
        match=r"copying: the user has no permission .*no MODIFY permission.*; grant MODIFY on the target table",
    ):
        target.apply(WRITES, doing="copying", stop=rscylla.Stop())
    assert session.asked == 1
