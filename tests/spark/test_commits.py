"""The text that a session gives to commits, without Java: the session is played."""

from __future__ import annotations

from typing import Any

import pytest

from rscylla.spark.sinks.commits import CommitLog, State, commit_log
from rscylla.spark.sinks.names import TableName

NAME = TableName("t", "spark_catalog", ("default",), "t")

A = State("a", "1", "s")
B = State("b", "2", "s")


class Played:
    """A session of which only the settings are used."""

    def __init__(self) -> None:
        self.conf = self
        self.set_to: dict[str, str] = {}

    def get(self, name: str, default: Any) -> Any:
        return self.set_to.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.set_to[name] = value

    def unset(self, name: str) -> None:
        self.set_to.pop(name, None)


@pytest.fixture(params=["delta", "iceberg"])
def log(request: pytest.FixtureRequest) -> CommitLog:
    return commit_log(Played(), NAME, {"rscylla.format": request.param, "rscylla.id": "a"})  # type: ignore[arg-type]


def test_a_commit_carries_the_state_and_the_text_of_a_user_comes_back(log: CommitLog) -> None:
    session: Any = Played()
    assert log.setting is not None
    for users in ({}, {log.setting: "mine"}):
        session.set_to = dict(users)
        with log.committing(session, A):
            assert State.of(session.set_to[log.setting], "a") == A
        assert session.set_to == users


@pytest.mark.parametrize("first", [0, 1])
def test_threads_of_one_session_leave_no_state_behind_that_a_later_commit_would_carry(
    log: CommitLog, first: int
) -> None:
    session: Any = Played()
    assert log.setting is not None
    blocks = [log.committing(session, A), log.committing(session, B)]
    for block in blocks:
        block.__enter__()
    carried = session.set_to[log.setting]
    assert State.of(carried, "a") is None, "a commit to a does not get the cursor of b"
    assert State.of(carried, "b") == B
    for block in (blocks[first], blocks[1 - first]):
        block.__exit__(None, None, None)
    assert session.set_to == {}
