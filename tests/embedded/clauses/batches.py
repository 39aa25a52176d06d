"""BATCH."""

from .model import done, rejected, statement

CLAUSES = (
    *statement(
        "BATCH",
        done(
            "logged",
            "BEGIN BATCH INSERT INTO kv (k, v) VALUES (2, 20); UPDATE kv SET v = 30 WHERE k = 3; APPLY BATCH",
            [(20,), (30,)],
            shown="SELECT v FROM kv WHERE k IN (2, 3)",
        ),
        done(
            "UNLOGGED",
            "BEGIN UNLOGGED BATCH UPDATE kv SET v = 20 WHERE k = 2; DELETE FROM kv WHERE k = 1; APPLY BATCH",
            [(2, 20)],
            shown="SELECT k, v FROM kv",
        ),
        rejected(
            "COUNTER, as tables have no counters",
            "BEGIN COUNTER BATCH UPDATE kv SET v = 1 WHERE k = 1; APPLY BATCH",
            "InvalidRequest",
            "Cannot include non-counter statement in a counter batch",
        ),
        done(
            "with conditions: a row for each statement",
            "BEGIN BATCH UPDATE t SET v = 11 WHERE pk = 1 AND ck = 1 IF v = 10; DELETE FROM t WHERE pk = 1 AND ck = 2;"
            " APPLY BATCH",
            [(True, 1, 1, 10), (True, 1, None, None)],
            columns=["[applied]", "pk", "ck", "v"],
        ),
        rejected(
            "USING TIMESTAMP with conditions",
            "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO kv (k) VALUES (2) IF NOT EXISTS; APPLY BATCH",
            "InvalidRequest",
            "Cannot provide custom timestamp for conditional BATCH",
        ),
        rejected(
            "with conditions, on several partitions",
            "BEGIN BATCH INSERT INTO kv (k) VALUES (2) IF NOT EXISTS; DELETE FROM kv WHERE k = 3; APPLY BATCH",
            "InvalidRequest",
            "BATCH with conditions cannot span multiple partitions",
        ),
    ),
)
