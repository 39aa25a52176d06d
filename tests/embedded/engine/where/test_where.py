"""WHERE: which rows each relation selects, which may stand together, and what markers are called.

Facts: Scylla ``cql3/restrictions/statement_restrictions.cc``, ``cql3/statements/select_statement.cc``.
"""

from __future__ import annotations

from typing import Any

import pytest
from enginebox import EngineBox

from rscylla.embedded.engine.where.filtering import like
from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import UNSET, RowsResult

FILTERING = "use ALLOW FILTERING"


@pytest.fixture(scope="module")
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TABLE t (p int, c int, v int, s int static, w text, PRIMARY KEY (p, c))")
    for p in range(3):
        for c in range(4):
            made.run("INSERT INTO t (p, c, v) VALUES (?, ?, ?)", [p, c, 10 * p + c])
    made.run("UPDATE t SET s = 7 WHERE p = 2")
    made.run("INSERT INTO t (p, s) VALUES (9, 9)")
    made.run("CREATE TABLE two (a text, b int, c int, d int, PRIMARY KEY ((a, b), c))")
    for a, b in (("first", 1), ("first", 2), ("first", 3), ("first", 4), ("second", 1), ("second", 4)):
        made.run("INSERT INTO two (a, b, c, d) VALUES (?, ?, ?, ?)", [a, b, b, b])
    made.run("CREATE TABLE deep (p int, a int, b int, c int, PRIMARY KEY (p, a, b, c))")
    for a, b, c in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)):
        made.run("INSERT INTO deep (p, a, b, c) VALUES (0, ?, ?, ?)", [a, b, c])
    made.run("CREATE TABLE names (p text, c text, v ascii, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)")
    for name in ("", "a", "ab", "a%b", "a_b", "a\\b", "Ab", "xaby", "a\nb", "aéb", "a.b"):
        made.run("INSERT INTO names (p, c, v) VALUES (?, ?, 'v')", [name or "empty", name])
    made.run(
        "CREATE TABLE parts (p int, c frozen<list<int>>, m map<int, int>, st set<int>, l list<text>, "
        "f frozen<map<int, text>>, i int, PRIMARY KEY (p, c))"
    )
    made.run("INSERT INTO parts (p, c, m, st, l, f) VALUES (1, [1, 2], {1: 2}, {5}, ['a', 'b'], {1: 'x'})")
    made.run("INSERT INTO parts (p, c, i) VALUES (1, [3], 1)")
    made.run("INSERT INTO parts (p, c) VALUES (2, [1, 2])")
    return made


def values(result: list[dict[str, Any]]) -> list[Any]:
    return [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in result]


@pytest.mark.parametrize(
    ("query", "bound", "expected"),
    [
        # Several relations of one column.
        ("SELECT v FROM t WHERE p = 1 AND p = 1", [], [10, 11, 12, 13]),
        ("SELECT v FROM t WHERE p = 1 AND p = 2", [], []),
        ("SELECT v FROM t WHERE p IN (1, 2) AND p = 2 AND c = 0", [], [20]),
        ("SELECT v FROM t WHERE p IN (1, 2) AND p IN (0, 1) AND c = 0", [], [10]),
        ("SELECT v FROM t WHERE p = 1 AND c = 2 AND c = 2", [], [12]),
        ("SELECT v FROM t WHERE p = 1 AND c = 2 AND c = 3", [], []),
        ("SELECT v FROM t WHERE p = 1 AND c = 2 AND c > 2", [], []),
        ("SELECT v FROM t WHERE p = 1 AND c > 1 AND c = 2", [], [12]),
        ("SELECT v FROM t WHERE p = 1 AND c > 0 AND c > 2", [], [13]),
        ("SELECT v FROM t WHERE p = 1 AND c >= 2 AND c > 2", [], [13]),
        ("SELECT v FROM t WHERE p = 1 AND c < 2 AND c <= 2 AND c >= 0", [], [10, 11]),
        ("SELECT v FROM t WHERE p = 1 AND c IN (1, 2) AND c = 2", [], [12]),
        ("SELECT v FROM t WHERE p = 1 AND c IN (1, 2, 3) AND c > 1 AND c IN (1, 3)", [], [13]),
        ("SELECT v FROM t WHERE p = 1 AND p > 0 AND c = 1 ALLOW FILTERING", [], [11]),
        ("SELECT v FROM t WHERE p = 1 AND p > 1 AND c = 1 ALLOW FILTERING", [], []),
        ("SELECT v FROM t WHERE v > 11 AND v < 13 AND v > 3 ALLOW FILTERING", [], [12]),
        # IN: the order of the values, each once; nulls name nothing.
        ("SELECT v FROM t WHERE p IN (2, 0, 1, 2) AND c = 0", [], [0, 10, 20]),
        ("SELECT v FROM t WHERE p IN ? AND c IN ?", [[1, 0, 1], [3, 0, 3]], [0, 3, 10, 13]),
        (
            "SELECT a, b FROM two WHERE a IN ('second', 'first') AND b IN (4, 1)",
            [],
            [("first", 1), ("first", 4), ("second", 1), ("second", 4)],
        ),
        ("SELECT v FROM t WHERE p IN ?", [None], []),
        ("SELECT v FROM t WHERE p IN (null, 1) AND c IN (0, null)", [], [10]),
        ("SELECT v FROM t WHERE p = 1 AND c IN ?", [None], []),
        ("SELECT v FROM t WHERE p = 1 AND (c) IN ?", [None], []),
        ("SELECT v FROM t WHERE v IN ? ALLOW FILTERING", [None], []),
        ("SELECT v FROM t WHERE p IN () AND c = 0", [], []),
        ("SELECT v FROM t WHERE p = 1 AND c IN ()", [], []),
        ("SELECT v FROM t WHERE p IN (2, 1) AND c = 0 LIMIT 1", [], [10]),
        # NOT IN.
        (
            "SELECT v FROM t WHERE v NOT IN (1, 2, 3, 11, 12, 13, 21, 22, 23, 20) AND p IN (0, 1) ALLOW FILTERING",
            [],
            [0, 10],
        ),
        ("SELECT v FROM t WHERE p = 1 AND c NOT IN (0, 2)", [], [11, 13]),
        ("SELECT v FROM t WHERE p = 1 AND c NOT IN ?", [[0, 2]], [11, 13]),
        ("SELECT v FROM t WHERE p = 1 AND c NOT IN (0, null)", [], []),
        ("SELECT v FROM t WHERE p = 1 AND v NOT IN (null, 11) ALLOW FILTERING", [], []),
        ("SELECT v FROM t WHERE p = 1 AND c NOT IN ()", [], [10, 11, 12, 13]),
        ("SELECT v FROM t WHERE p = 1 AND c NOT IN ?", [None], []),
        ("SELECT p FROM t WHERE p NOT IN (0, 1) AND c = 0 ALLOW FILTERING", [], [2]),
        ("SELECT s FROM t WHERE s NOT IN (9) ALLOW FILTERING", [], [7, 7, 7, 7]),
        # Null compares with nothing.
        ("SELECT v FROM t WHERE p = null", [], []),
        ("SELECT v FROM t WHERE p = 1 AND c > null", [], []),
        ("SELECT v FROM t WHERE v = null ALLOW FILTERING", [], []),
        ("SELECT v FROM t WHERE w >= null ALLOW FILTERING", [], []),
        ("SELECT v FROM t WHERE token(p) > ?", [None], []),
        # Static columns.
        ("SELECT c FROM t WHERE s = 9 ALLOW FILTERING", [], [None]),
        ("SELECT c FROM t WHERE s > 7 AND c = 1 ALLOW FILTERING", [], []),
        # Tuples.
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a) >= (1)", [], [(1, 0, 0), (1, 1, 1)]),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a, b) > (0, 1)", [], [(1, 0, 0), (1, 1, 1)]),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a, b) > (?, ?) AND (a) <= (0)", [0, 0], [(0, 1, 0), (0, 1, 1)]),
        (
            "SELECT a, b, c FROM deep WHERE p = 0 AND (a, b) IN ((1, 0), (0, 0), (1, 0))",
            [],
            [(0, 0, 0), (0, 0, 1), (1, 0, 0)],
        ),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a, b, c) = (0, 1, 1)", [], [(0, 1, 1)]),
        ("SELECT a FROM deep WHERE p = 0 AND (a, b) IN ()", [], []),
        (
            "SELECT a, b, c FROM deep WHERE p = 0 AND (a, b, c) IN (?, ?)",
            [(1, 1, 1), (0, 1, 0)],
            [(0, 1, 0), (1, 1, 1)],
        ),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a, b, c) IN ?", [[(1, 1, 1), (0, 1, 0)]], [(0, 1, 0), (1, 1, 1)]),
        ("SELECT a, b FROM deep WHERE p = 0 AND (a) IN ((?)) AND p IN ?", [1, [0]], [(1, 0), (1, 1)]),
        (
            "SELECT a, b, c FROM deep WHERE p = 0 AND (a, b, c) > ? AND (a, b, c) < ?",
            [(0, 0, 1), (0, 1, 1)],
            [(0, 1, 0)],
        ),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND (a, b) <= (0, 0) ORDER BY a DESC", [], [(0, 0, 1), (0, 0, 0)]),
        ("SELECT a, b FROM deep WHERE p = 0 AND a IN (1, 0) AND b = 1 AND c = 1", [], [(0, 1), (1, 1)]),
        ("SELECT a, b, c FROM deep WHERE a = 0 AND c = 1 ALLOW FILTERING", [], [(0, 0, 1), (0, 1, 1)]),
        ("SELECT a, b, c FROM deep WHERE p = 0 AND a > 0 AND b = 1 ALLOW FILTERING", [], [(1, 1, 1)]),
        # Collections.
        ("SELECT i FROM parts WHERE p = 1 AND c IN ([3], [9])", [], [1]),
        ("SELECT i FROM parts WHERE p = 1 AND c IN ?", [[[3], [1, 2]]], [None, 1]),
        ("SELECT p FROM parts WHERE c CONTAINS 2 ALLOW FILTERING", [], [1, 2]),
        ("SELECT p FROM parts WHERE m[1] = 2 ALLOW FILTERING", [], [1]),
        ("SELECT p FROM parts WHERE m[?] = 2 ALLOW FILTERING", [None], []),
        ("SELECT p FROM parts WHERE l[1] = 'b' ALLOW FILTERING", [], [1]),
        ("SELECT p FROM parts WHERE l[-5] = 'b' ALLOW FILTERING", [], []),
        ("SELECT p FROM parts WHERE l[null] = 'b' ALLOW FILTERING", [], []),
        ("SELECT p FROM parts WHERE f CONTAINS KEY 1 AND f = {1: 'x'} ALLOW FILTERING", [], [1]),
        ("SELECT p FROM parts WHERE st CONTAINS null ALLOW FILTERING", [], []),
        ("SELECT p FROM parts WHERE m CONTAINS KEY null ALLOW FILTERING", [], []),
    ],
)
def test_rows(box: EngineBox, query: str, bound: list[Any], expected: list[Any]) -> None:
    assert values(box.rows(query, bound)) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", {""}),
        ("%", {"", "a", "ab", "a%b", "a_b", "a\\b", "Ab", "xaby", "a\nb", "aéb", "a.b"}),
        ("ab", {"ab"}),
        ("a%", {"a", "ab", "a%b", "a_b", "a\\b", "a\nb", "aéb", "a.b"}),
        ("%b", {"ab", "a%b", "a_b", "a\\b", "Ab", "a\nb", "aéb", "a.b"}),
        ("%ab%", {"ab", "xaby"}),
        ("a_b", {"a%b", "a_b", "a\\b", "a\nb", "aéb", "a.b"}),
        (r"a\_b", {"a_b"}),
        (r"a\%b", {"a%b"}),
        (r"a\\b", {"a\\b"}),
        ("a.b", {"a.b"}),
        (r"\ab", {"ab"}),
        ("a\\", set()),
        ("%a%b%", {"ab", "a%b", "a_b", "a\\b", "xaby", "a\nb", "aéb", "a.b"}),
        ("a%%b", {"ab", "a%b", "a_b", "a\\b", "a\nb", "aéb", "a.b"}),
        ("%_b", {"ab", "a%b", "a_b", "a\\b", "Ab", "a\nb", "aéb", "a.b"}),
        (None, set()),
    ],
)
def test_like(box: EngineBox, pattern: str | None, expected: set[str]) -> None:
    assert set(box.column("SELECT c FROM names WHERE c LIKE ? ALLOW FILTERING", [pattern])) == expected


def test_like_does_not_try_all_ways_to_match() -> None:
    """With going back, this takes longer than the universe is old."""
    assert not like("%a" * 30 + "%b")("a" * 10_000)


def test_like_on_other_strings_and_a_partition_key(box: EngineBox) -> None:
    assert box.column("SELECT c FROM names WHERE p LIKE '%mpt_' AND v LIKE 'v' ALLOW FILTERING") == [""]
    assert box.column("SELECT c FROM names WHERE p = 'ab' AND c LIKE 'a%'") == ["ab"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM t WHERE v LIKE 'a' ALLOW FILTERING", "LIKE is allowed only on string types, which v is not"),
        ("SELECT * FROM names WHERE v LIKE 'a'", FILTERING),
        ("SELECT * FROM names WHERE c LIKE 'a'", FILTERING),
        ("SELECT * FROM names WHERE p LIKE 'a'", r"Only EQ and IN relation .* or ALLOW FILTERING\)"),
        ("SELECT * FROM t WHERE p NOT IN (1)", "Only EQ and IN relation are supported on the partition key"),
        ("SELECT * FROM t WHERE v NOT IN (1)", FILTERING),
        ("SELECT * FROM t WHERE p = 1 AND p > 0", "Only EQ and IN relation are supported on the partition key"),
        ("SELECT * FROM t WHERE p = 1 AND v IN (1)", FILTERING),
        ("SELECT * FROM t WHERE token(p) > 1 AND c = 1", FILTERING),
        ("SELECT * FROM t WHERE (c) > (1)", FILTERING),
        ("SELECT * FROM parts WHERE p = 1 AND c CONTAINS 1", "Cannot restrict clustering columns by a CONTAINS"),
        ("SELECT * FROM deep WHERE p = 0 AND b = 1", '"b" cannot be restricted as preceding column "a" is not'),
        ("SELECT * FROM deep WHERE p = 0 AND a > 1 AND b = 1", r'column "b" cannot be restricted \(preceding'),
        ("SELECT * FROM deep WHERE p = 0 AND b = 1 AND a > 1", r'KEY column "b" cannot be restricted \(preceding'),
        ("SELECT * FROM t WHERE v != 0 ALLOW FILTERING", 'Unsupported "!=" relation: v != 0'),
        ("SELECT * FROM t WHERE (c) != (0)", r'Unsupported "!=" relation: \(c\) != \(0\)'),
        ("SELECT * FROM t WHERE p != 0", 'Unsupported "!=" relation: p != 0'),
        ("SELECT * FROM t WHERE token(p) != 0", r'Unsupported "!=" relation: token\(p\) != 0'),
        ("SELECT * FROM t WHERE v IS NOT NULL", "v IS NOT null' is only supported in materialized view creation"),
        ("SELECT * FROM parts WHERE st = {1}", "Collection column 'st' .* cannot be restricted by a '=' relation"),
        ("SELECT * FROM parts WHERE m IN ({})", "Collection column 'm' .* cannot be restricted by a 'IN' relation"),
        ("SELECT * FROM t WHERE v CONTAINS 1", 'Cannot use CONTAINS on non-collection column "v"'),
        ("SELECT * FROM parts WHERE st CONTAINS KEY 1", "Cannot use CONTAINS KEY on non-map column st"),
        ("SELECT * FROM parts WHERE st[2] = 3 ALLOW FILTERING", "cannot be subscripted"),
        ("SELECT * FROM parts WHERE m['x'] = 3 ALLOW FILTERING", r"key\(m\)"),
        (
            "SELECT * FROM parts WHERE f[1] = 'x' ALLOW FILTERING",
            "Map-entry equality predicates on frozen map column f",
        ),
        ("SELECT * FROM parts WHERE m[1] > 2 ALLOW FILTERING", "Only EQ relations are supported on map entries"),
        ("SELECT v AS x FROM t WHERE x = 1", "Aliases aren't allowed in the WHERE clause .name: 'x'"),
        ("SELECT c AS x FROM t WHERE p = 1 ORDER BY x", "Aliases are not allowed in order by clause .'x'"),
        ("DELETE FROM deep WHERE p = 0 AND a > 1 AND b = 1", r'column "b" cannot be restricted \(preceding column "a"'),
        ("DELETE FROM deep WHERE p = 0 AND a = null", "Invalid null value in condition for column a"),
        ("SELECT * FROM t WHERE token(p, p) = 0", "Invalid number of arguments"),
        ("SELECT * FROM two WHERE token(a) = 0", "Invalid number of arguments"),
        ("SELECT * FROM two WHERE token(a, a) = 0", "duplicate partition key components"),
        ("SELECT * FROM two WHERE token(b, a) = 0", "must be in the partition key order: a, b"),
        ("SELECT * FROM t WHERE token(p) > 0 AND p = 1", 'Columns "p" cannot be restricted by both a normal'),
        ("SELECT * FROM t WHERE p = 1 AND token(p) > 0", 'Columns "p" cannot be restricted by both a normal'),
        ("SELECT * FROM deep WHERE p = 0 AND (b) = (1)", "may not be skipped in multi-column relations"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, c) = (1, 1)", "must appear in the PRIMARY KEY order"),
        ("SELECT * FROM deep WHERE (p, a) = (1, 1)", "only be applied to clustering columns but was applied to: p"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) > (1, 1, 1)", "Expected 2 elements in value tuple, but got 3"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) IN ((1, 1), (1, 1, 1))", "Invalid list literal"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b, c) IN ((1, 1))", "Expected 3 elements in value tuple, but got 2"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) IN ((1, 1, 1))", r"Invalid list literal for IN\(\(a,b\)\)"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) = (1, null)", "Invalid null value in condition for column b"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) IN ((null, 1))", "Invalid null value in condition for column a"),
        ("SELECT * FROM deep WHERE p = 0 AND a = 1 AND (a, b) > (1, 1)", "Mixing single column relations and multi"),
        ("SELECT * FROM deep WHERE p = 0 AND (a, b) > (1, 1) AND a = 1", "Mixing single column relations and multi"),
        ("SELECT * FROM deep WHERE p = 0 AND (a) = (0) AND (a) > (0)", "both an equality and an inequality relation"),
        (
            "SELECT * FROM deep WHERE p = 0 AND (a) > (0) AND (a) = (0)",
            "a cannot be restricted by .* includes an Equal",
        ),
        ("SELECT * FROM deep WHERE p = 0 AND (a) > (0) AND (a) IN ((0), (1))", "more than one .* it includes a IN"),
        ("SELECT * FROM deep WHERE p = 0 AND (a) < (0) AND (a, b) < (0, 1)", "found for the end bound on a"),
        (
            "SELECT * FROM deep WHERE p = 0 AND (a) > (0) AND (a, b) < SCYLLA_CLUSTERING_BOUND (0, 1)",
            r"Invalid combination of restrictions \(plain / SCYLLA_CLUSTERING_BOUND\)",
        ),
    ],
)
def test_refusals(box: EngineBox, query: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        box.run(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t WHERE p IN ?",
        "SELECT * FROM t WHERE p IN (?)",
        "SELECT * FROM t WHERE p = 1 AND c > ?",
        "SELECT * FROM t WHERE p = 1 AND c NOT IN ?",
        "SELECT * FROM t WHERE v IN (1, ?) ALLOW FILTERING",
        "SELECT * FROM parts WHERE m[?] = 1 ALLOW FILTERING",
        "SELECT * FROM parts WHERE st CONTAINS ? ALLOW FILTERING",
        "SELECT * FROM names WHERE c LIKE ? ALLOW FILTERING",
    ],
)
def test_unset_is_refused(box: EngineBox, query: str) -> None:
    with pytest.raises(InvalidRequest, match="unset value"):
        box.run(query, [UNSET])


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("FROM t WHERE p = ? AND c > ?", ["p int", "c int"]),
        ("FROM t WHERE p IN ? AND c IN (?, ?)", ["IN(p) list<int>", "value(IN(c)) int", "value(IN(c)) int"]),
        ("FROM t WHERE p = 1 AND c NOT IN ? ALLOW FILTERING", ["NOT IN(c) list<int>"]),
        ("FROM deep WHERE p = 0 AND (a, b) > ?", ["(a,b) tuple<int, int>"]),
        ("FROM deep WHERE p = 0 AND (a, b) > (?, ?)", ["(a,b)[0] int", "(a,b)[1] int"]),
        ("FROM deep WHERE p = 0 AND (a, b) IN ?", ["IN((a,b)) list<tuple<int, int>>"]),
        ("FROM two WHERE token(a, b) = ?", ["partition key token bigint"]),
        (
            "FROM parts WHERE m[?] = ? AND l[?] = ? ALLOW FILTERING",
            ["key(m) int", "value(m) int", "index(l) int", "value(l) text"],
        ),
        ("FROM parts WHERE st CONTAINS ? AND m CONTAINS KEY ? ALLOW FILTERING", ["value(st) int", "key(m) int"]),
        ("FROM t PER PARTITION LIMIT ? LIMIT ?", ["[per_partition_limit] int", "[limit] int"]),
        ("FROM t USING TIMEOUT ?", ["[timeout] duration"]),
    ],
)
def test_names_and_types_of_markers(box: EngineBox, where: str, names: list[str]) -> None:
    prepared = box.engine.prepare(f"SELECT * {where}", "ks")
    found = [f"{spec.name} {spec.type.name}".replace("frozen<", "").replace(">>>", ">>") for spec in prepared.variables]
    assert [name.replace(">", "") for name in found] == [name.replace(">", "") for name in names]


def test_pages_of_in_keep_the_order_of_the_values(box: EngineBox) -> None:
    query = "SELECT v FROM t WHERE p IN (2, 7, 0, 1)"
    expected = [{"v": v} for p in range(3) for v in range(10 * p, 10 * p + 4)]
    for page_size in range(1, 6):
        assert [row for page in box.pages(query, page_size=page_size) for row in page] == expected


def test_the_smallest_token_as_an_end_is_the_end_of_the_ring(box: EngineBox) -> None:
    smallest = -(1 << 63)
    everything = box.rows("SELECT p, c FROM t")
    assert box.rows("SELECT p, c FROM t WHERE token(p) < ?", [smallest]) == everything
    assert box.rows("SELECT p, c FROM t WHERE token(p) > ?", [smallest]) == everything
    result = box.run("SELECT p FROM t WHERE token(p) > ? AND token(p) <= ?", [5, 4])
    assert isinstance(result, RowsResult)
    assert not result.rows


def test_writes_of_no_row(box: EngineBox) -> None:
    before = box.rows("SELECT * FROM t")
    for text in (
        "UPDATE t SET v = 0 WHERE p = 1 AND p = 2 AND c = 1",
        "UPDATE t SET v = 0 WHERE p = 1 AND c = 1 AND c = 2",
        "DELETE FROM t WHERE p = 1 AND c = 1 AND c > 1",
        "DELETE FROM t WHERE p = 1 AND c > 1 AND c < 1 AND c > 2",
        "DELETE FROM t WHERE p = 1 AND c IN (null, null)",
    ):
        box.run(text)
    assert box.rows("SELECT * FROM t") == before
