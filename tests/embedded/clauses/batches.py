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
        done(
            "statements without semicolons",
            "BEGIN BATCH DELETE FROM kv WHERE k = 1 INSERT INTO kv (k) VALUES (2) APPLY BATCH",
            [(2,)],
            shown="SELECT k FROM kv",
        ),
        done("without statements", "BEGIN BATCH APPLY BATCH", [(1, 10)], shown="SELECT k, v FROM kv"),
        done(
            "several tables",
            "BEGIN BATCH DELETE FROM kv WHERE k = 1; DELETE FROM t WHERE pk = 1; APPLY BATCH",
            [(2,)],
            shown="SELECT pk FROM t",
        ),
        done(
            "USING TIMESTAMP",
            "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO kv (k, v) VALUES (2, 2); APPLY BATCH",
            [(5,)],
            shown="SELECT writetime(v) FROM kv WHERE k = 2",
        ),
        done(
            "USING TIMESTAMP of its statements",
            "BEGIN BATCH INSERT INTO kv (k, v) VALUES (2, 2) USING TIMESTAMP 6; APPLY BATCH",
            [(6,)],
            shown="SELECT writetime(v) FROM kv WHERE k = 2",
        ),
        rejected(
            "USING TIMESTAMP of both",
            "BEGIN BATCH USING TIMESTAMP 5 INSERT INTO kv (k) VALUES (2) USING TIMESTAMP 6; APPLY BATCH",
            "InvalidRequest",
            "Timestamp must be set either on BATCH or individual statements",
        ),
        done(
            "USING TTL of its statements",
            "BEGIN BATCH INSERT INTO kv (k, v) VALUES (2, 2) USING TTL 60; APPLY BATCH",
            [(60,)],
            shown="SELECT ttl(v) FROM kv WHERE k = 2",
        ),
        rejected(
            "USING TTL",
            "BEGIN BATCH USING TTL 5 INSERT INTO kv (k) VALUES (2); APPLY BATCH",
            "InvalidRequest",
            "Global TTL on the BATCH statement is not supported.",
        ),
        done(
            "USING TIMEOUT",
            "BEGIN BATCH USING TIMEOUT 1s INSERT INTO kv (k, v) VALUES (2, 2); APPLY BATCH",
            [(2,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        done(
            "markers",
            "BEGIN BATCH INSERT INTO kv (k, v) VALUES (?, ?); UPDATE kv SET v = ? WHERE k = ?; APPLY BATCH",
            [(2,), (3,)],
            values=(2, 2, 3, 3),
            shown="SELECT v FROM kv WHERE k IN (2, 3)",
        ),
        done(
            "one change in the CDC log",
            "BEGIN BATCH INSERT INTO logged (pk, ck, v) VALUES (1, 1, 1);"
            " UPDATE logged SET v = 2 WHERE pk = 1 AND ck = 1; APPLY BATCH",
            [(2, 2)],
            shown='SELECT "cdc$operation", v FROM logged_scylla_cdc_log',
        ),
        rejected(
            "a SELECT",
            "BEGIN BATCH SELECT * FROM kv; APPLY BATCH",
            "SyntaxException",
            "no viable alternative at input 'SELECT'",
        ),
    ),
)
