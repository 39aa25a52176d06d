"""SELECT."""

from .model import done, refused, statement

CLAUSES = (
    *statement(
        "SELECT",
        done("PER PARTITION LIMIT", "SELECT pk, ck FROM t PER PARTITION LIMIT 1", [(1, 1), (2, 1)]),
        refused("LIKE", "SELECT * FROM t WHERE w LIKE 'x%' ALLOW FILTERING", "LIKE is not supported"),
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
    ),
)
