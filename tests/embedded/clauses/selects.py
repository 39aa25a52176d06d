"""SELECT."""

from .model import done, refused, rejected, statement

CLAUSES = (
    *statement(
        "SELECT",
        done("PER PARTITION LIMIT", "SELECT pk, ck FROM t PER PARTITION LIMIT 1", [(1, 1), (2, 1)]),
        done("LIKE", "SELECT pk, ck FROM t WHERE w LIKE 'b%' ALLOW FILTERING", [(1, 2)]),
        done("NOT IN", "SELECT pk, ck FROM t WHERE v NOT IN (10, 30) ALLOW FILTERING", [(1, 2)]),
        done("several relations of a column", "SELECT ck FROM t WHERE pk = 1 AND ck > 0 AND ck IN (1, 3)", [(1,)]),
        done(
            "GROUP BY with PER PARTITION LIMIT", "SELECT ck FROM t GROUP BY pk, ck PER PARTITION LIMIT 1", [(1,), (1,)]
        ),
        done("DISTINCT with GROUP BY", "SELECT DISTINCT pk FROM t GROUP BY pk", [(1,), (2,)]),
        done("literals", "SELECT 1, 'x', [1, 2], (1, 'x') FROM kv", [(1, "x", [1, 2], (1, "x"))]),
        done("type hints", "SELECT (bigint)1 FROM kv", [(1,)]),
        done("elements of collections", "SELECT {1: 10}[1], {3, 4}[3], [5, 6][1] FROM kv", [(10, 3, 6)]),
        refused(
            "ORDER BY with ANN OF",
            "SELECT pk FROM t ORDER BY v ANN OF [1.0] LIMIT 1",
            "ORDER BY ... ANN OF is not supported",
        ),
        refused(
            "MUTATION_FRAGMENTS",
            "SELECT * FROM MUTATION_FRAGMENTS(t) WHERE pk = 1",
            "SELECT FROM MUTATION_FRAGMENTS is not supported",
        ),
        refused("ORDER BY a function", "SELECT v FROM t ORDER BY bm25(w, 'a')", "ORDER BY a function is not supported"),
        refused("without FROM", "SELECT now()", "SELECT without FROM is not supported"),
        refused(
            "USING SERVICE LEVEL",
            "SELECT * FROM t USING SERVICE LEVEL s",
            "USING SERVICE LEVEL is not supported",
        ),
        done("* : all columns", "SELECT * FROM kv", [(1, 10)], columns=["k", "v"]),
        done("columns with AS", 'SELECT v AS "Value", k AS key FROM kv', [(10, 1)], columns=["Value", "key"]),
        done("a field of a UDT", "SELECT u.x, n.y FROM t LIMIT 1", [(1, "a")], columns=["u.x", "n.y"]),
        done("an element of a map", "SELECT m[2] FROM t LIMIT 1", [("two",)]),
        done(
            "a function of a column", "SELECT intAsBlob(v) FROM kv", [(b"\0\0\0\n",)], columns=["system.intasblob(v)"]
        ),
        done("a function of a function", "SELECT blobAsInt(intAsBlob(v)) AS v FROM kv", [(10,)]),
        done("a function with its keyspace", "SELECT system.intAsBlob(v) AS b FROM kv", [(b"\0\0\0\n",)]),
        done("DISTINCT of the partition key", "SELECT DISTINCT pk FROM t", [(1,), (2,)]),
        done("DISTINCT with static columns", "SELECT DISTINCT pk, s FROM t", [(1, 100), (2, None)]),
        rejected(
            "DISTINCT of a regular column", "SELECT DISTINCT v FROM t", "InvalidRequest", "SELECT DISTINCT queries must"
        ),
        done("JSON", "SELECT JSON * FROM kv", [('{"k": 1, "v": 10}',)], columns=["[json]"]),
        done("JSON with AS and functions", "SELECT JSON k AS id, ttl(v) FROM kv", [('{"id": 1, "ttl(v)": null}',)]),
        done("JSON DISTINCT", "SELECT JSON DISTINCT pk FROM t", [('{"pk": 1}',), ('{"pk": 2}',)]),
        done("WHERE the partition key", "SELECT ck FROM t WHERE pk = 1", [(1,), (2,)]),
        done("WHERE partition key IN", "SELECT pk, ck FROM t WHERE pk IN (2, 1)", [(1, 1), (1, 2), (2, 1)]),
        done("WHERE with markers", "SELECT v FROM t WHERE pk = ? AND ck = ?", [(20,)], values=(1, 2)),
        done("WHERE with named markers", "SELECT v FROM t WHERE pk = :a AND ck = :a", [(10,)], values=(1,)),
        done("WHERE IN with one marker", "SELECT v FROM kv WHERE k IN ?", [(10,)], values=([1, 2],)),
        done("WHERE IN ()", "SELECT count(*) FROM kv WHERE k IN ()", [(0,)]),
        done("WHERE a slice", "SELECT ck FROM t WHERE pk = 1 AND ck > 1 AND ck <= 2", [(2,)]),
        done("WHERE a tuple of clustering columns", "SELECT ck FROM t WHERE pk = 1 AND (ck) > (1)", [(2,)]),
        done("WHERE a tuple IN", "SELECT ck FROM t WHERE pk = 1 AND (ck) IN ((1), (2))", [(1,), (2,)]),
        done(
            "WHERE SCYLLA_CLUSTERING_BOUND",
            "SELECT ck FROM t WHERE pk = 1 AND (ck) >= SCYLLA_CLUSTERING_BOUND (2)",
            [(2,)],
        ),
        done("WHERE token", "SELECT k FROM kv WHERE token(k) >= token(1)", [(1,)]),
        rejected(
            "WHERE with half of the partition key",
            "SELECT * FROM h WHERE a = 1",
            "InvalidRequest",
            "ALLOW FILTERING",
            given=["CREATE TABLE h (a int, b int, PRIMARY KEY ((a, b)))"],
        ),
        rejected("WHERE a regular column", "SELECT * FROM t WHERE v = 10", "InvalidRequest", "ALLOW FILTERING"),
        rejected(
            "WHERE with a clustering column left out",
            "SELECT * FROM h WHERE a = 1 AND c = 1",
            "InvalidRequest",
            'as preceding column "b" is not restricted',
            given=["CREATE TABLE h (a int, b int, c int, PRIMARY KEY (a, b, c))"],
        ),
        rejected(
            "WHERE with !=",
            "SELECT * FROM kv WHERE v != 1 ALLOW FILTERING",
            "InvalidRequest",
            'Unsupported "!=" relation',
        ),
        rejected("an unknown column", "SELECT x FROM kv", "InvalidRequest", "Unrecognized name x"),
        rejected("an unknown table", "SELECT x FROM nothing", "InvalidRequest", "unconfigured table nothing"),
        done("ALLOW FILTERING of a regular column", "SELECT ck FROM t WHERE v >= 20 ALLOW FILTERING", [(2,), (1,)]),
        done("ALLOW FILTERING of a static column", "SELECT ck FROM t WHERE s = 100 ALLOW FILTERING", [(1,), (2,)]),
        done("ALLOW FILTERING with CONTAINS", "SELECT ck FROM t WHERE l CONTAINS 3 ALLOW FILTERING", [(1,)]),
        done("ALLOW FILTERING with CONTAINS KEY", "SELECT ck FROM t WHERE m CONTAINS KEY 2 ALLOW FILTERING", [(1,)]),
        done("ALLOW FILTERING of a map's element", "SELECT ck FROM t WHERE m[1] = 'one' ALLOW FILTERING", [(1,)]),
        done(
            "ALLOW FILTERING of a whole frozen UDT", "SELECT ck FROM t WHERE u = {x: 1, y: 'a'} ALLOW FILTERING", [(1,)]
        ),
        done("GROUP BY", "SELECT pk, count(*) FROM t GROUP BY pk", [(1, 2), (2, 1)]),
        rejected("GROUP BY a regular column", "SELECT v FROM t GROUP BY v", "InvalidRequest", "Group by"),
        done("ORDER BY clustering columns", "SELECT ck FROM t WHERE pk = 1 ORDER BY ck DESC", [(2,), (1,)]),
        done("ORDER BY with IN", "SELECT ck FROM t WHERE pk IN (1, 2) ORDER BY ck DESC", [(2,), (1,), (1,)]),
        rejected(
            "ORDER BY without the partition key",
            "SELECT * FROM t ORDER BY ck",
            "InvalidRequest",
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN",
        ),
        rejected("ORDER BY a regular column", "SELECT * FROM t WHERE pk = 1 ORDER BY v", "InvalidRequest", "Order by"),
        done("LIMIT", "SELECT ck FROM t LIMIT 2", [(1,), (2,)]),
        done("LIMIT with a marker", "SELECT ck FROM t LIMIT ?", [(1,)], values=(1,)),
        rejected("LIMIT 0", "SELECT ck FROM t LIMIT 0", "InvalidRequest", "LIMIT must be strictly positive"),
        done("LIMIT of groups", "SELECT pk, max(v) FROM t GROUP BY pk LIMIT 1", [(1, 20)]),
        done("BYPASS CACHE", "SELECT v FROM kv BYPASS CACHE", [(10,)]),
        done("USING TIMEOUT", "SELECT v FROM kv USING TIMEOUT 5s", [(10,)]),
        done(
            "the CDC log",
            'SELECT "cdc$operation", v FROM logged_scylla_cdc_log',
            [(2, 5)],
            given=["INSERT INTO logged (pk, ck, v) VALUES (1, 1, 5)"],
        ),
        done("a system table", "SELECT key FROM system.local", [("local",)]),
    ),
)
