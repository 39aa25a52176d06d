"""DELETE and TRUNCATE."""

from .model import done, statement

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
    ),
    *statement(
        "TRUNCATE",
        done("TRUNCATE TABLE", "TRUNCATE TABLE t", [(0,)], shown="SELECT count(*) FROM t"),
    ),
)
