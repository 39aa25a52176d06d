"""INSERT."""

from .model import UNSET, done, rejected, statement

CLAUSES = (
    *statement(
        "INSERT",
        done(
            "IF NOT EXISTS",
            "INSERT INTO kv (k, v) VALUES (1, 11) IF NOT EXISTS",
            [(False, 1, 10)],
            columns=["[applied]", "k", "v"],
        ),
        done(
            "USING TTL",
            "INSERT INTO kv (k, v) VALUES (2, 20) USING TTL 60",
            [(50,)],
            after=10,
            shown="SELECT ttl(v) FROM kv WHERE k = 2",
        ),
        done(
            "columns and values", "INSERT INTO kv (k, v) VALUES (2, 20)", [(20,)], shown="SELECT v FROM kv WHERE k = 2"
        ),
        done(
            "key columns only",
            "INSERT INTO t (pk, ck) VALUES (3, 1)",
            [(3, 1, None)],
            shown="SELECT pk, ck, v FROM t WHERE pk = 3",
        ),
        done(
            "static columns without a row",
            "INSERT INTO t (pk, s) VALUES (3, 7)",
            [(3, None, 7)],
            shown="SELECT pk, ck, s FROM t WHERE pk = 3",
        ),
        done(
            "collections and UDTs",
            "INSERT INTO t (pk, ck, m, st, l, u) VALUES (3, 1, {1: 'a'}, {2}, [3, 3], {x: 4})",
            [({1: "a"}, frozenset({2}), [3, 3], {"x": 4, "y": None})],
            shown="SELECT m, st, l, u FROM t WHERE pk = 3",
        ),
        done("null", "INSERT INTO kv (k, v) VALUES (1, null)", [(1, None)], shown="SELECT k, v FROM kv"),
        done(
            "markers, and a value that is not set",
            "INSERT INTO kv (k, v) VALUES (?, ?)",
            [(1, 10)],
            values=(1, UNSET),
            shown="SELECT k, v FROM kv",
        ),
        done(
            "functions",
            "INSERT INTO kv (k, v) VALUES (2, blobAsInt(0x00000007))",
            [(7,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        done(
            "a type in front of a term",
            "INSERT INTO kv (k, v) VALUES (2, (int) 7)",
            [(7,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        done("IF NOT EXISTS, applied", "INSERT INTO kv (k, v) VALUES (2, 20) IF NOT EXISTS", [(True, None, None)]),
        done(
            "USING TIMESTAMP",
            "INSERT INTO kv (k, v) VALUES (2, 20) USING TIMESTAMP 123",
            [(123,)],
            shown="SELECT writetime(v) FROM kv WHERE k = 2",
        ),
        done(
            "USING TTL, expired",
            "INSERT INTO kv (k, v) VALUES (2, 20) USING TTL 60",
            [(1,)],
            after=61,
            shown="SELECT k FROM kv",
        ),
        done(
            "USING TTL and TIMESTAMP",
            "INSERT INTO kv (k, v) VALUES (2, 20) USING TTL 60 AND TIMESTAMP 5",
            [(60, 5)],
            shown="SELECT ttl(v), writetime(v) FROM kv WHERE k = 2",
        ),
        done(
            "USING TIMEOUT",
            "INSERT INTO kv (k, v) VALUES (2, 20) USING TIMEOUT 1s",
            [(20,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        rejected(
            "USING TTL beyond 20 years",
            "INSERT INTO kv (k) VALUES (2) USING TTL 630720001",
            "InvalidRequest",
            "ttl is too large",
        ),
        rejected(
            "IF NOT EXISTS with TIMESTAMP",
            "INSERT INTO kv (k) VALUES (2) IF NOT EXISTS USING TIMESTAMP 5",
            "InvalidRequest",
            "Cannot provide custom timestamp for conditional updates",
        ),
        rejected("a key column left out", "INSERT INTO t (pk, v) VALUES (1, 1)", "InvalidRequest", "ck"),
        rejected("an unknown column", "INSERT INTO kv (k, x) VALUES (1, 1)", "InvalidRequest", "Unknown identifier x"),
        rejected(
            "a column twice",
            "INSERT INTO kv (k, v, v) VALUES (1, 1, 1)",
            "InvalidRequest",
            "Multiple definitions found for column v",
        ),
        rejected(
            "a value of another type",
            "INSERT INTO kv (k, v) VALUES (1, 'a')",
            "InvalidRequest",
            "Invalid STRING constant (a)",
        ),
        rejected("a null key", "INSERT INTO kv (k, v) VALUES (null, 1)", "InvalidRequest", "null"),
        done("JSON", """INSERT INTO kv JSON '{"k": 2, "v": 20}'""", [(20,)], shown="SELECT v FROM kv WHERE k = 2"),
        done(
            "JSON with a marker",
            "INSERT INTO kv JSON ?",
            [(20,)],
            values=('{"k": 2, "v": 20}',),
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        done(
            "JSON DEFAULT NULL",
            """INSERT INTO kv JSON '{"k": 1}' DEFAULT NULL""",
            [(None,)],
            shown="SELECT v FROM kv WHERE k = 1",
        ),
        done(
            "JSON DEFAULT UNSET",
            """INSERT INTO kv JSON '{"k": 1}' DEFAULT UNSET""",
            [(10,)],
            shown="SELECT v FROM kv WHERE k = 1",
        ),
        done(
            "JSON with names in quotes",
            """INSERT INTO c JSON '{"k": 1, "\\"V\\"": 2}'""",
            [(2,)],
            given=['CREATE TABLE c (k int PRIMARY KEY, "V" int)'],
            shown='SELECT "V" FROM c',
        ),
        done("JSON IF NOT EXISTS", """INSERT INTO kv JSON '{"k": 1, "v": 11}' IF NOT EXISTS""", [(False, 1, 10)]),
        done(
            "JSON USING TTL",
            """INSERT INTO kv JSON '{"k": 2, "v": 11}' USING TTL 60""",
            [(60,)],
            shown="SELECT ttl(v) FROM kv WHERE k = 2",
        ),
        rejected(
            "JSON with an unknown column",
            """INSERT INTO kv JSON '{"k": 2, "x": 11}'""",
            "InvalidRequest",
            "JSON values map contains unrecognized column: x",
        ),
    ),
)
