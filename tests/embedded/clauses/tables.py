"""CREATE, ALTER and DROP TABLE."""

from .model import refused, statement

CLAUSES = (
    *statement(
        "CREATE TABLE",
        refused(
            "counter columns", "CREATE TABLE c (pk int PRIMARY KEY, c counter)", "counter tables are not supported"
        ),
        refused(
            "COMPACT STORAGE",
            "CREATE TABLE c (pk int PRIMARY KEY, v int) WITH COMPACT STORAGE",
            "COMPACT STORAGE tables are not supported",
        ),
    ),
    *statement(
        "ALTER TABLE",
        refused("ALTER column TYPE", "ALTER TABLE t ALTER v TYPE bigint", "ALTER TABLE ... TYPE is not supported"),
    ),
)
