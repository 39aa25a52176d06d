"""UPDATE."""

from .model import done, refused, statement

CLAUSES = (
    *statement(
        "UPDATE",
        done(
            "IF with IN", "UPDATE kv SET v = 11 WHERE k = 1 IF v IN (10, 20)", [(True, 10)], columns=["[applied]", "v"]
        ),
        refused(
            "IF with CONTAINS",
            "UPDATE t SET v = 1 WHERE pk = 1 AND ck = 1 IF m CONTAINS 2",
            "CONTAINS is not supported in IF conditions",
        ),
        refused(
            "SCYLLA_COUNTER_SHARD_LIST",
            "UPDATE kv SET v = SCYLLA_COUNTER_SHARD_LIST([]) WHERE k = 1",
            "SCYLLA_COUNTER_SHARD_LIST is not supported",
        ),
    ),
)
