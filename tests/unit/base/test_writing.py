"""Writes as the driver gets them."""

from __future__ import annotations

from cassandra import ConsistencyLevel
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE, PreparedStatement

from rscylla.base.statements import UNSET, Write
from rscylla.base.writing import bound


def test_a_write_is_bound_as_bytes_and_may_be_sent_twice() -> None:
    prepared = PreparedStatement([], b"id", None, "", "ks", 4, [], None)
    write = Write("INSERT ...", (b"\x01", None, UNSET))
    statement = bound(prepared, write, consistency=ConsistencyLevel.LOCAL_QUORUM)
    assert statement.values == [b"\x01", None, UNSET_VALUE]
    assert statement.consistency_level == ConsistencyLevel.LOCAL_QUORUM
    assert statement.is_idempotent
    assert isinstance(statement.retry_policy, FallthroughRetryPolicy), "it is us who try again"
