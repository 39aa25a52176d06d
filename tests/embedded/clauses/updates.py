"""UPDATE."""

from .model import done, refused, rejected, statement

CLAUSES = (
    *statement(
        "UPDATE",
        done(
            "IF with IN", "UPDATE kv SET v = 11 WHERE k = 1 IF v IN (10, 20)", [(True, 10)], columns=["[applied]", "v"]
        ),
        done("IF with LIKE", "UPDATE t SET v = 1 WHERE pk = 1 AND ck = 1 IF w LIKE 'a%'", [(True, "a")]),
        rejected(
            "IF < null",
            "UPDATE kv SET v = 11 WHERE k = 1 IF v < null",
            "InvalidRequest",
            'Invalid comparison with null for operator "<"',
        ),
        rejected(
            "IF with CONTAINS",
            "UPDATE t SET v = 1 WHERE pk = 1 AND ck = 1 IF m CONTAINS 2",
            "SyntaxException",
            "no viable alternative at input 'contains'",
        ),
        rejected(
            "USING TIMEOUT that is over",
            "UPDATE kv USING TIMEOUT 0ms SET v = 1 WHERE k = 1",
            "WriteTimeout",
            "timed out",
        ),
        refused(
            "SCYLLA_COUNTER_SHARD_LIST",
            "UPDATE kv SET v = SCYLLA_COUNTER_SHARD_LIST([]) WHERE k = 1",
            "SCYLLA_COUNTER_SHARD_LIST is not supported",
        ),
        done(
            "SET of a row that is not there",
            "UPDATE kv SET v = 20 WHERE k = 2",
            [(20,)],
            shown="SELECT v FROM kv WHERE k = 2",
        ),
        done("SET to null", "UPDATE kv SET v = null WHERE k = 1", [(1, None)], shown="SELECT k, v FROM kv"),
        done(
            "SET of a static column",
            "UPDATE t SET s = 7 WHERE pk = 1",
            [(7,), (7,)],
            shown="SELECT s FROM t WHERE pk = 1",
        ),
        done(
            "several rows by IN",
            "UPDATE t SET v = 7 WHERE pk = 1 AND ck IN (1, 2)",
            [(7,), (7,)],
            shown="SELECT v FROM t WHERE pk = 1",
        ),
        done(
            "several partitions by IN", "UPDATE kv SET v = 7 WHERE k IN (1, 2)", [(7,), (7,)], shown="SELECT v FROM kv"
        ),
        done(
            "USING TIMESTAMP",
            "UPDATE kv USING TIMESTAMP 5 SET v = 7 WHERE k = 2",
            [(5,)],
            shown="SELECT writetime(v) FROM kv WHERE k = 2",
        ),
        done(
            "USING TTL",
            "UPDATE kv USING TTL 60 SET v = 7 WHERE k = 1",
            [(50,)],
            after=10,
            shown="SELECT ttl(v) FROM kv",
        ),
        done("USING TIMEOUT", "UPDATE kv USING TIMEOUT 1s SET v = 7 WHERE k = 1", [(7,)], shown="SELECT v FROM kv"),
        done(
            "set + set",
            "UPDATE t SET st = st + {3} WHERE pk = 1 AND ck = 1",
            [(frozenset({1, 2, 3}),)],
            shown="SELECT st FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "set - set",
            "UPDATE t SET st = st - {1} WHERE pk = 1 AND ck = 1",
            [(frozenset({2}),)],
            shown="SELECT st FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "map + map",
            "UPDATE t SET m = m + {3: 'c'} WHERE pk = 1 AND ck = 1",
            [({1: "one", 2: "two", 3: "c"},)],
            shown="SELECT m FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "map - set of keys",
            "UPDATE t SET m = m - {1} WHERE pk = 1 AND ck = 1",
            [({2: "two"},)],
            shown="SELECT m FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "map[key]",
            "UPDATE t SET m[1] = 'x' WHERE pk = 1 AND ck = 1",
            [({1: "x", 2: "two"},)],
            shown="SELECT m FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "list + list",
            "UPDATE t SET l = l + [4] WHERE pk = 1 AND ck = 1",
            [([1, 2, 3, 4],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "list in front of a list",
            "UPDATE t SET l = [0] + l WHERE pk = 1 AND ck = 1",
            [([0, 1, 2, 3],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "list - list",
            "UPDATE t SET l = l - [2] WHERE pk = 1 AND ck = 1",
            [([1, 3],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "list[index]",
            "UPDATE t SET l[1] = 9 WHERE pk = 1 AND ck = 1",
            [([1, 9, 3],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        rejected(
            "list[index] beyond the list",
            "UPDATE t SET l[9] = 9 WHERE pk = 1 AND ck = 1",
            "InvalidRequest",
            "out of bound",
        ),
        done(
            "list[SCYLLA_TIMEUUID_LIST_INDEX]",
            "UPDATE t SET l[SCYLLA_TIMEUUID_LIST_INDEX(13814000-1dd2-11b2-8080-808080808080)] = 0 WHERE pk = 1"
            " AND ck = 1",
            [([0, 1, 2, 3],)],
            shown="SELECT l FROM t WHERE pk = 1 AND ck = 1",
        ),
        done(
            "a field of a UDT",
            "UPDATE t SET n.x = 7 WHERE pk = 1 AND ck = 1",
            [({"x": 7, "y": "a"},)],
            shown="SELECT n FROM t WHERE pk = 1 AND ck = 1",
        ),
        rejected("a field of a frozen UDT", "UPDATE t SET u.x = 7 WHERE pk = 1 AND ck = 1", "InvalidRequest", "frozen"),
        rejected(
            "column + number, without IF",
            "UPDATE kv SET v = v + 1 WHERE k = 1",
            "InvalidRequest",
            "for non counter column v",
        ),
        rejected(
            "SET of a key column",
            "UPDATE kv SET k = 2 WHERE k = 1",
            "InvalidRequest",
            "PRIMARY KEY part k found in SET part",
        ),
        rejected("a clustering column left out", "UPDATE t SET v = 2 WHERE pk = 1", "InvalidRequest", "ck"),
        rejected(
            "a slice",
            "UPDATE t SET v = 2 WHERE pk = 1 AND ck > 1",
            "InvalidRequest",
            "Invalid operator in where clause",
        ),
        rejected("a regular column in WHERE", "UPDATE kv SET v = 2 WHERE k = 1 AND v = 1", "InvalidRequest", "v"),
        done(
            "IF EXISTS",
            "UPDATE kv SET v = 7 WHERE k = 2 IF EXISTS",
            [(False, None, None)],
            columns=["[applied]", "k", "v"],
        ),
        done("IF with =", "UPDATE kv SET v = 7 WHERE k = 1 IF v = 10", [(True, 10)], columns=["[applied]", "v"]),
        done(
            "IF with !=, not applied",
            "UPDATE kv SET v = 7 WHERE k = 1 IF v != 10",
            [(False, 10)],
            columns=["[applied]", "v"],
        ),
        done(
            "IF with <, <=, >, >=",
            "UPDATE kv SET v = 7 WHERE k = 1 IF v > 9 AND v >= 10 AND v < 11 AND v <= 10",
            [(True, 10)],
        ),
        done("IF = null", "UPDATE kv SET v = 7 WHERE k = 2 IF v = null", [(True, None)]),
        done("IF with IN and a marker", "UPDATE kv SET v = 7 WHERE k = 1 IF v IN ?", [(True, 10)], values=([1, 10],)),
        done(
            "IF, and a number added to or taken from a column of numbers",
            "UPDATE kv SET v = v + 5 WHERE k = 1 IF v = 10",
            [(15,)],
            shown="SELECT v FROM kv WHERE k = 1",
        ),
        done("IF with NOT IN", "UPDATE kv SET v = 7 WHERE k = 1 IF v NOT IN (1, 2)", [(True, 10)]),
        done(
            "IF of a map's element",
            "UPDATE t SET v = 7 WHERE pk = 1 AND ck = 1 IF m[1] = 'one'",
            [(True, {1: "one", 2: "two"})],
            columns=["[applied]", "m"],
        ),
        done(
            "IF of a list's element",
            "UPDATE t SET v = 7 WHERE pk = 1 AND ck = 1 IF l[0] = 1",
            [(True, [1, 2, 3])],
            columns=["[applied]", "l"],
        ),
        done(
            "IF of a UDT's field",
            "UPDATE t SET v = 7 WHERE pk = 1 AND ck = 1 IF n.x = 1",
            [(True, {"x": 1, "y": "a"})],
            columns=["[applied]", "n"],
        ),
        done("IF of a static column", "UPDATE t SET s = 7 WHERE pk = 1 IF s = 100", [(True, 100)]),
        done(
            "IF of a whole collection",
            "UPDATE t SET v = 7 WHERE pk = 1 AND ck = 1 IF st = {1, 2}",
            [(True, frozenset({1, 2}))],
        ),
        rejected(
            "IF of a key column",
            "UPDATE kv SET v = 7 WHERE k = 1 IF k = 1",
            "InvalidRequest",
            "PRIMARY KEY column 'k' cannot have IF conditions",
        ),
    ),
)
