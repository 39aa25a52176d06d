"""Native functions and aggregates, and user-defined ones."""

from .model import done, refused, statement

_FUNCTION = "FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'"

CLAUSES = (
    *statement(
        "scalar functions",
        done("token", "SELECT token(k) FROM kv", [(-4069959284402364209,)]),
        refused(
            "an aggregate as argument", "SELECT intAsBlob(max(v)) FROM t", "aggregate inside the function intasblob"
        ),
        refused("toJson of a literal", "SELECT toJson(1) FROM t", "toJson of a constant"),
    ),
    *statement(
        "CAST",
        refused("of an aggregate", "SELECT CAST(max(v) AS text) FROM t", "CAST of an aggregate is not supported"),
    ),
    *statement("aggregates", done("count(*)", "SELECT count(*) FROM t", [(3,)], columns=["count"])),
    *statement(
        "CREATE FUNCTION",
        refused("user-defined functions", f"CREATE {_FUNCTION}", "CREATE FUNCTION is not supported"),
        refused("OR REPLACE", f"CREATE OR REPLACE {_FUNCTION}", "CREATE OR REPLACE FUNCTION is not supported"),
    ),
    *statement("DROP FUNCTION", refused("the statement", "DROP FUNCTION f", "DROP FUNCTION is not supported")),
    *statement(
        "CREATE AGGREGATE",
        refused(
            "user-defined aggregates",
            "CREATE AGGREGATE a (int) SFUNC f STYPE int",
            "CREATE AGGREGATE is not supported",
        ),
        refused(
            "OR REPLACE",
            "CREATE OR REPLACE AGGREGATE a (int) SFUNC f STYPE int",
            "CREATE OR REPLACE AGGREGATE is not supported",
        ),
    ),
    *statement("DROP AGGREGATE", refused("the statement", "DROP AGGREGATE a", "DROP AGGREGATE is not supported")),
)
