"""DESCRIBE."""

from .model import done, statement

CLAUSES = (
    *statement(
        "DESCRIBE",
        done(
            "TYPE", "DESCRIBE TYPE pair", [("ks", "type", "pair", "CREATE TYPE ks.pair (\n    x int,\n    y text\n);")]
        ),
    ),
)
