"""DELETE and TRUNCATE."""

from .model import done, rejected, statement

CLAUSES = (
    *statement(
        "DELETE",
        done("a row", "DELETE FROM t WHERE pk = 1 AND ck = 1", [(1, 2), (2, 1)], shown="SELECT pk, ck FROM t"),
        done(
            "BYPASS LARGE_DATA_GUARDRAILS",
            "DELETE FROM t WHERE pk = 1 BYPASS LARGE_DATA_GUARDRAILS",
            [(2, 1)],
            shown="SELECT pk, ck FROM t",
        ),
        done("a partition", "DELETE FROM t WHERE pk = 1", [(2, 1)], shown="SELECT pk, ck FROM t"),
        done("a range of rows", "DELETE FROM t WHERE pk = 1 AND ck > 1", [(1,)], shown="SELECT ck FROM t WHERE pk = 1"),
        done(
            "rows by IN", "DELETE FROM t WHERE pk = 1 AND ck IN (1, 3)", [(2,)], shown="SELECT ck FROM t WHERE pk = 1"
        ),
        done("partitions by IN", "DELETE FROM t WHERE pk IN (1, 3)", [(2, 1)], shown="SELECT pk, ck FROM t"),
        done(
            "rows by a tuple",
            "DELETE FROM t WHERE pk = 1 AND (ck) = (1)",
            [(2,)],
            shown="SELECT ck FROM t WHERE pk = 1",
        ),
        done(
            "columns",
            "DELETE v, w FROM t WHERE pk = 1 AND ck = 1",
            [(1, None, None)],
            shown="SELECT ck, v, w FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "a static column", "DELETE s FROM t WHERE pk = 1", [(None,), (None,)], shown="SELECT s FROM t WHERE pk = 1"
        ),
        done(
            "a map's element",
            "DELETE m[1] FROM t WHERE pk = 1 AND ck = 1",
            [({2: "two"},)],
            shown="SELECT m FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "a set's element",
            "DELETE st[1] FROM t WHERE pk = 1 AND ck = 1",
            [(frozenset({2}),)],
            shown="SELECT st FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "a list's element",
            "DELETE l[0] FROM t WHERE pk = 1 AND ck = 1",
            [([2, 3],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "a UDT's field",
            "DELETE n.x FROM t WHERE pk = 1 AND ck = 1",
            [({"x": None, "y": "a"},)],
            shown="SELECT n FROM t WHERE pk = 1 AND ck = 1",
        ),
        done("USING TIMESTAMP", "DELETE FROM kv USING TIMESTAMP 5 WHERE k = 1", [(1, 10)], shown="SELECT k, v FROM kv"),
        done("USING TIMEOUT", "DELETE FROM kv USING TIMEOUT 1s WHERE k = 1", [(0,)], shown="SELECT count(*) FROM kv"),
        rejected("USING TTL", "DELETE FROM kv USING TTL 5 WHERE k = 1", "SyntaxException", "TTL"),
        done("IF EXISTS", "DELETE FROM kv WHERE k = 1 IF EXISTS", [(True, 1, 10)], columns=["[applied]", "k", "v"]),
        done("IF with conditions", "DELETE v FROM kv WHERE k = 1 IF v = 11", [(False, 10)], columns=["[applied]", "v"]),
        done(
            "IF of a regular column, for a static one",
            "DELETE s FROM t WHERE pk = 1 AND ck = 1 IF v = 10",
            [(True, 10)],
        ),
        rejected(
            "IF for a range of rows",
            "DELETE FROM t WHERE pk = 1 AND ck > 1 IF v = 1",
            "InvalidRequest",
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations",
        ),
        rejected("a column of a range", "DELETE v FROM t WHERE pk = 1", "InvalidRequest", "ck"),
        rejected(
            "a key column",
            "DELETE k FROM kv WHERE k = 1",
            "InvalidRequest",
            "Invalid identifier k for deletion (should not be a PRIMARY KEY part)",
        ),
        rejected("by a regular column", "DELETE FROM kv WHERE k = 1 AND v = 1", "InvalidRequest", "v"),
        rejected("by token", "DELETE FROM kv WHERE token(k) = 1", "InvalidRequest", "token"),
    ),
    *statement(
        "TRUNCATE",
        done("TRUNCATE TABLE", "TRUNCATE TABLE t", [(0,)], shown="SELECT count(*) FROM t"),
        done("TRUNCATE", "TRUNCATE kv", [(0,)], shown="SELECT count(*) FROM kv"),
        done("USING TIMEOUT", "TRUNCATE TABLE kv USING TIMEOUT 5s", [(0,)], shown="SELECT count(*) FROM kv"),
        rejected("a table that is not there", "TRUNCATE nothing", "InvalidRequest", "unconfigured table nothing"),
    ),
)
