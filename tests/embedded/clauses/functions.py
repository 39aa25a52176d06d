"""Native functions and aggregates, and user-defined ones."""

from .model import done, refused, rejected, statement

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
        done(
            "token of a composite key",
            "SELECT token(a, b) FROM c",
            [(5765203080415074583,)],
            given=["CREATE TABLE c (a int, b int, PRIMARY KEY ((a, b)))", "INSERT INTO c (a, b) VALUES (1, 1)"],
        ),
        done(
            "ttl",
            "SELECT ttl(v) FROM kv WHERE k = 2",
            [(60,)],
            given=["INSERT INTO kv (k, v) VALUES (2, 2) USING TTL 60"],
        ),
        done(
            "writetime",
            "SELECT writetime(v) FROM kv WHERE k = 2",
            [(7,)],
            given=["INSERT INTO kv (k, v) VALUES (2, 2) USING TIMESTAMP 7"],
        ),
        done(
            "writetime of an element",
            "SELECT writetime(m[9]) FROM t WHERE pk = 9",
            [(7,)],
            given=["UPDATE t USING TIMESTAMP 7 SET m[9] = 'x' WHERE pk = 9 AND ck = 1"],
        ),
        done(
            "writetime of a field",
            "SELECT writetime(n.x) FROM t WHERE pk = 9",
            [(7,)],
            given=["UPDATE t USING TIMESTAMP 7 SET n.x = 1 WHERE pk = 9 AND ck = 1"],
        ),
        rejected(
            "writetime of a key column",
            "SELECT writetime(k) FROM kv",
            "InvalidRequest",
            "WRITETIME is not legal on primary key component k",
        ),
        done(
            "toJson", "SELECT toJson(m), toJson(u) FROM t LIMIT 1", [('{"1": "one", "2": "two"}', '{"x": 1, "y": "a"}')]
        ),
        done(
            "fromJson",
            "INSERT INTO kv (k, v) VALUES (2, fromJson('20'))",
            [(20,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        rejected(
            "fromJson of another type",
            "INSERT INTO kv (k, v) VALUES (2, fromJson('[]'))",
            "FunctionFailure",
            "execution of fromJson failed",
        ),
        done("typeAsBlob and blobAsType", "SELECT blobAsText(textAsBlob(w)) AS w FROM t LIMIT 1", [("a",)]),
        done(
            "minTimeuuid and maxTimeuuid",
            "SELECT count(*) FROM c WHERE k = 1 AND t > minTimeuuid('2020-01-01') AND t < maxTimeuuid('2020-01-02')",
            [(1,)],
            given=[
                "CREATE TABLE c (k int, t timeuuid, PRIMARY KEY (k, t))",
                "INSERT INTO c (k, t) VALUES (1, minTimeuuid('2020-01-01 12:00:00'))",
            ],
        ),
        done(
            "toDate, toTimestamp and toUnixTimestamp",
            "SELECT toDate(t) AS d, toTimestamp(t) AS ts, toUnixTimestamp(t) AS u FROM c",
            [(18262, 1577880000000, 1577880000000)],
            given=[
                "CREATE TABLE c (k int PRIMARY KEY, t timeuuid)",
                "INSERT INTO c (k, t) VALUES (1, minTimeuuid('2020-01-01 12:00:00'))",
            ],
        ),
        done(
            "now, currentTimestamp, currentDate",
            "SELECT toDate(now()) AS a, toDate(currentTimestamp()) AS b, currentDate() AS c FROM kv",
            [(20775, 20775, 20775)],
        ),
        done(
            "uuid",
            "INSERT INTO c (k) VALUES (uuid())",
            [(1,)],
            given=["CREATE TABLE c (k uuid PRIMARY KEY)"],
            shown="SELECT count(*) FROM c",
        ),
        rejected("an unknown function", "SELECT nothing(v) FROM kv", "InvalidRequest", "Unknown function"),
    ),
    *statement(
        "CAST",
        done(
            "of an aggregate",
            "SELECT CAST(max(v) AS text) FROM kv",
            [("10",)],
            columns=["cast(system.max(v) as text)"],
        ),
        done("to a wider number", "SELECT CAST(v AS bigint) FROM kv", [(10,)]),
        done("to a float", "SELECT CAST(v AS double) FROM kv", [(10.0,)]),
        done("to text", "SELECT CAST(v AS text) FROM kv", [("10",)]),
        done(
            "of a timestamp to a date",
            "SELECT CAST(t AS date) FROM c",
            [(18262,)],
            given=["CREATE TABLE c (k int PRIMARY KEY, t timestamp)", "INSERT INTO c (k, t) VALUES (1, '2020-01-01')"],
        ),
        rejected("of types that do not fit", "SELECT CAST(v AS uuid) FROM kv", "InvalidRequest", "cannot be cast to"),
    ),
    *statement(
        "aggregates",
        done("count(*)", "SELECT count(*) FROM t", [(3,)], columns=["count"]),
        done("count of a column", "SELECT count(w) FROM t", [(2,)], columns=["system.count(w)"]),
        done("count(1)", "SELECT count(1) FROM t", [(3,)], columns=["count"]),
        done("min and max", "SELECT min(v), max(v) FROM t", [(10, 30)]),
        done("sum", "SELECT sum(v) FROM t", [(60,)]),
        done("avg", "SELECT avg(v) FROM t", [(20,)]),
        done("of no rows", "SELECT count(*), min(v), sum(v) FROM t WHERE pk = 9", [(0, None, 0)]),
        done("with AS", "SELECT max(v) AS most FROM t", [(30,)], columns=["most"]),
    ),
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
