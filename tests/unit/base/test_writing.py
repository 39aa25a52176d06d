"""Writes as the driver gets them."""

from __future__ import annotations

from cassandra import ConsistencyLevel, OperationTimedOut, Unauthorized
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE, PreparedStatement

import rscylla
from rscylla.base.statements import UNSET, Write
from rscylla.base.writing import bound, write_error


def test_a_write_is_bound_as_bytes_and_may_be_sent_twice() -> None:
    prepared = PreparedStatement([], b"id", None, "", "ks", 4, [], None)
    write = Write("INSERT ...", (b"\x01", None, UNSET))
    statement = bound(prepared, write, consistency=ConsistencyLevel.LOCAL_QUORUM)
    assert statement.values == [b"\x01", None, UNSET_VALUE]
    assert statement.consistency_level == ConsistencyLevel.LOCAL_QUORUM
    assert statement.is_idempotent
    assert isinstance(statement.retry_policy, FallthroughRetryPolicy), "it is us who try again"


def test_a_write_that_is_not_allowed_says_what_to_grant() -> None:
    error = write_error(Unauthorized("no MODIFY  on\n<table ks.t>"), "writing to ks.t")
    assert isinstance(error, rscylla.QueryFailed)
    assert str(error) == (
        "writing to ks.t: the user may not write to the target (no MODIFY on <table ks.t>); grant MODIFY on it"
    )
    assert isinstance(write_error(OperationTimedOut(), "writing to ks.t"), rscylla.QueryTimeout)
