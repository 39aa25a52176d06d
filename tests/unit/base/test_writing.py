"""The one writer of base tables: what the driver gets, what is tried again, and what refusals say."""

from __future__ import annotations

from typing import Any

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, Unauthorized
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, PreparedStatement

import rscylla
from rscylla.base.statements import UNSET, Write
from rscylla.base.writing import ATTEMPTS, TableWriter

WRITES = [Write("DELETE FROM shop.copy WHERE pk = ?", (b"key",))]


class Session:
    """A session on which every statement fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def prepare(self, _cql: str) -> Any:
        self.asked += 1
        raise self.error


class Cluster:
    """A session that keeps what it is sent."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.sent: list[Any] = []

    def prepare(self, cql: str) -> Any:
        self.prepared.append(cql)
        return PreparedStatement([], cql.encode(), None, cql, "ks", 4, [], None)

    def execute(self, statement: Any, *, timeout: float) -> None:
        assert timeout > 2, "by then the database itself has given up"
        self.sent.append(statement)


class Clock(rscylla.SystemClock):
    """A clock on which waits take no time; a wait sets *stop*."""

    def __init__(self, stop: rscylla.Stop) -> None:
        self._stop = stop

    def wait(self, stop: rscylla.Stop, seconds: float) -> bool:
        self._stop.set()
        return stop.is_set()


def test_a_target_that_does_not_answer_is_asked_again_for_a_while() -> None:
    session = Session(OperationTimedOut())
    target = TableWriter(session, consistency="one", clock=Clock(rscylla.Stop()))
    with pytest.raises(rscylla.QueryTimeout, match="copying"):
        target.apply(WRITES, doing="copying", stop=rscylla.Stop())
    assert session.asked == ATTEMPTS


def test_a_stop_ends_the_attempts() -> None:
    session = Session(OperationTimedOut())
    stop = rscylla.Stop()
    target = TableWriter(session, consistency="one", clock=Clock(stop))
    with pytest.raises(rscylla.Stopped):
        target.apply(WRITES, doing="copying", stop=stop)
    assert session.asked == 1


def test_a_refused_write_is_reported_with_the_required_grant() -> None:
    session = Session(Unauthorized("User ann has no MODIFY permission on <table shop.copy>"))
    target = TableWriter(session, consistency="one", clock=rscylla.SystemClock())
    with pytest.raises(
        rscylla.errors.QueryFailed,
        match=r"copying: the user has no permission .*no MODIFY permission.*; grant MODIFY on the target table",
    ):
        target.apply(WRITES, doing="copying", stop=rscylla.Stop())
    assert session.asked == 1


def test_a_write_is_bound_as_bytes_and_may_be_sent_twice() -> None:
    session = Cluster()
    target = TableWriter(session, consistency="local_quorum", clock=rscylla.SystemClock())
    for _ in range(2):
        target.apply([Write("INSERT ...", (b"\x01", None, UNSET))], doing="copying", stop=rscylla.Stop())
    assert session.prepared == ["INSERT ..."]
    assert len(session.sent) == 2
    statement = session.sent[0]
    assert statement.values == [b"\x01", None, UNSET_VALUE]
    assert statement.consistency_level == ConsistencyLevel.LOCAL_QUORUM
    assert statement.is_idempotent
    assert isinstance(statement.retry_policy, FallthroughRetryPolicy), "it is us who try again"


def test_the_writes_of_a_change_go_together_unless_they_are_too_many() -> None:
    session = Cluster()
    target = TableWriter(session, consistency="local_quorum", clock=rscylla.SystemClock())
    small = [Write(f"DELETE {n} ...", (bytes(1),)) for n in range(150)]
    target.apply(small, doing="copying", stop=rscylla.Stop())
    target.apply([Write("INSERT ...", (bytes(40_000),))] * 3, doing="copying", stop=rscylla.Stop())
    target.apply([], doing="copying", stop=rscylla.Stop())
    assert [len(s._statements_and_parameters) if isinstance(s, BatchStatement) else 1 for s in session.sent] == [
        100,
        50,
        1,
        1,
        1,
    ]
    batch = session.sent[0]
    assert batch.batch_type == BatchType.UNLOGGED
    assert batch.consistency_level == ConsistencyLevel.LOCAL_QUORUM
    assert batch.is_idempotent
    assert isinstance(batch.retry_policy, FallthroughRetryPolicy)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(100, 1, [100]), (101, 1, [100, 1]), (5, 32_000, [2, 2, 1]), (3, 70_000, [1, 1, 1])],
)
def test_a_batch_is_filled_up_to_its_limits_and_the_next_one_begins_empty(
    count: int, size: int, expected: list[int]
) -> None:
    session = Cluster()
    target = TableWriter(session, consistency="one", clock=rscylla.SystemClock())
    target.apply([Write("INSERT ...", (bytes(size), None))] * count, doing="copying", stop=rscylla.Stop())
    found = [len(s._statements_and_parameters) if isinstance(s, BatchStatement) else 1 for s in session.sent]
    assert found == expected


def test_statements_that_are_no_longer_used_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rscylla.base.writing._MOST_PREPARED", 3)
    session = Cluster()
    target = TableWriter(session, consistency="one", clock=rscylla.SystemClock())
    for cql in "abcda":
        target.apply([Write(cql, ())], doing="copying", stop=rscylla.Stop())
    assert session.prepared == ["a", "b", "c", "d", "a"]
