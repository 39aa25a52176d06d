"""BATCH."""

from .model import done, refused, statement

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
        refused(
            "COUNTER",
            "BEGIN COUNTER BATCH UPDATE kv SET v = 1 WHERE k = 1; APPLY BATCH",
            "counter batches are not supported",
        ),
    ),
)
