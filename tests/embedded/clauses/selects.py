"""SELECT."""

from .model import done, refused, statement

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
        refused("literals", "SELECT 1 FROM t", "literals in a select list are not supported"),
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
    ),
)
