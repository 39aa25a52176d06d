"""Native functions and aggregates, and user-defined ones."""

from .model import done, refused, statement

_FUNCTION = "FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'"

CLAUSES = (
    *statement(
        "scalar functions",
        done("token", "SELECT token(k) FROM kv", [(-4069959284402364209,)]),
        done(
            "an aggregate as argument",
            "SELECT intAsBlob(max(v)) FROM kv",
            [(b"\x00\x00\x00\x0a",)],
            columns=["system.intasblob(system.max(v))"],
        ),
        done("toJson of a literal", "SELECT toJson(1) FROM kv", [("1",)], columns=["system.tojson(1)"]),
        done("set_intersection", "SELECT set_intersection({1, 2, 3}, {2, 3, 4}) FROM kv", [({2, 3},)]),
        refused(
            "vector similarity", "SELECT similarity_cosine([1.0], [2.0]) FROM kv", "similarity_cosine is not supported"
        ),
    ),
    *statement(
        "CAST",
        done(
            "of an aggregate",
            "SELECT CAST(max(v) AS text) FROM kv",
            [("10",)],
            columns=["cast(system.max(v) as text)"],
        ),
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
