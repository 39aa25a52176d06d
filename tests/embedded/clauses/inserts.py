"""INSERT."""

from .model import done, statement

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
    ),
)
