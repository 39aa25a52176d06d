"""What the conditions of an IF clause compare. Source: Scylla ``cql3/expr/expression.cc``, ``test/cql/lwt_test``."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from enginebox import EngineBox, decoded

from rscylla.embedded.errors import CqlError, InvalidRequest, SyntaxException
from rscylla.embedded.result import UNSET, QueryParams, RowsResult

TABLE = """CREATE TABLE t (k int PRIMARY KEY, n int, x int, w text, d decimal, b boolean, m map<int, int>, l list<int>,
    s set<int>, u pair, fm frozen<map<int, int>>, fl frozen<list<int>>, fs frozen<set<int>>, fu frozen<pair>)"""
ROW = """INSERT INTO t (k, n, w, d, b, m, l, s, u, fm, fl, fs, fu) VALUES (1, 5, 'a%c', 1.0, true, {1: 10, 2: 20},
    [3, 1], {2, 1}, {a: 1, b: 'z'}, {1: 10}, [3, 1], {1, 2}, {a: 1})"""


@pytest.fixture(scope="module")
def box() -> EngineBox:
    """Row 1 has values, row 2 none and row 3 is not there. No condition here changes a row."""
    made = EngineBox()
    made.run("CREATE TYPE pair (a int, b text)")
    made.run(TABLE)
    made.run(ROW)
    made.run("INSERT INTO t (k, fm, fl, fs) VALUES (2, {}, [], {})")
    return made


def applies(box: EngineBox, key: int, condition: str, values: list[Any] | None = None) -> bool:
    # An unset value writes nothing.
    answer = box.row(f"UPDATE t SET x = ? WHERE k = {key} IF {condition}", [UNSET, *(values or [])])
    return bool(answer["[applied]"])


@pytest.mark.parametrize(
    "condition",
    [
        "n != null",
        "x = null",
        "n >= 5",
        "n NOT IN (1, 2)",
        "n NOT IN (null, 1)",
        "n IN (null, 5)",
        "x IN (null, 5)",
        "x IN (null)",
        "x NOT IN (1)",
        "x != 3",
        "d = 1.00",
        "d IN (2, 1.000)",
        "b >= true",
        "w LIKE 'a%'",
        r"w LIKE 'a\%_'",
        "m[1] = 10",
        "m[9] = null",
        "m[null] = null",
        "m[2] IN (1, 20)",
        "m[1] != 11",
        "l[0] = 3",
        "l[1] < 2",
        "l[2] = null",
        "l[-1] = null",
        "l[null] = null",
        "l = [3, 1]",
        "l > [3]",
        "l != [null]",
        "s = {1, 2, 2}",
        "s IN ({1}, {1, 2})",
        "m = {2: 20, 1: 10}",
        "m > {1: 9}",
        "u = {a: 1, b: 'z'}",
        "u.a = 1",
        "u.b > 'a'",
        "u != null",
        "fm[1] = 10",
        "fl[1] = 1",
        "fs >= {1}",
        "fu.b = null",
        "fu = {a: 1, b: null}",
        "n = 5 AND n < 6 AND x = null",
    ],
)
def test_a_row_with_values(box: EngineBox, condition: str) -> None:
    assert applies(box, 1, condition) is True


@pytest.mark.parametrize(
    "condition",
    [
        "n = null",
        "x != null",
        "n NOT IN (5)",
        "x NOT IN (null)",
        "n IN (null)",
        "n IN ()",
        "x < 5",
        "x = 5",
        "w LIKE ''",
        "w LIKE 'a'",
        "w LIKE null",
        "m[1] = null",
        "m[null] = 10",
        "m[9] > 1",
        "l[-1] = 3",
        "l = [null]",
        "l = []",
        "s = {}",
        "m = null",
        "u = null",
        "fs > {1, 2}",
        "b < false",
        # The first one ends it: with the second, it would be refused.
        "n = 6 AND n > null",
    ],
)
def test_what_does_not_hold_for_it(box: EngineBox, condition: str) -> None:
    assert applies(box, 1, condition) is False


@pytest.mark.parametrize(
    ("condition", "of_empty", "of_missing"),
    [
        # Empty collections that are not frozen are null, frozen ones are not.
        ("l = []", True, True),
        ("s = {}", True, True),
        ("m = {}", True, True),
        ("s IN ({}, {1})", True, True),
        ("s != {}", False, False),
        ("l = null", True, True),
        ("fl = []", True, False),
        ("fs = {}", True, False),
        ("fm = {}", True, False),
        ("fs IN ({})", True, False),
        ("fl = null", False, True),
        ("fl != null", True, False),
        ("u = null", True, True),
        ("l[0] = null", True, True),
        ("u.a = null", True, True),
    ],
)
def test_empty_collections(box: EngineBox, condition: str, of_empty: bool, of_missing: bool) -> None:
    assert (applies(box, 2, condition), applies(box, 3, condition)) == (of_empty, of_missing)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        *((f"n {op} null", f'Invalid comparison with null for operator "{op}"') for op in ("<", "<=", ">", ">=")),
        ("x > null", 'Invalid comparison with null for operator ">"'),
        ("l[1] < null", 'Invalid comparison with null for operator "<"'),
        ("m[1] >= null", 'Invalid comparison with null for operator ">="'),
        ("m > {}", 'Invalid comparison with null for operator ">"'),
        ("n LIKE 'a%'", 'Invalid STRING constant .*for "n" of type int'),
        ("w LIKE 1", 'Invalid INTEGER constant .*for "w" of type text'),
        ("m[1] = 'a'", r'for "value\(m\)" of type int'),
        ("m['a'] = 1", r'for "key\(m\)" of type int'),
        ("l[1.5] = 1", r'for "index\(l\)" of type int'),
        ("s = {null}", "null is not supported inside collections"),
        ("k = 1", "PRIMARY KEY column 'k' cannot have IF conditions"),
        ("y = 1", "Unrecognized name y"),
        ("u.c = 1", "c"),
        ("s[1] = 1", "cannot be subscripted"),
    ],
)
@pytest.mark.parametrize("key", [1, 3])
def test_refused_conditions(box: EngineBox, condition: str, message: str, key: int) -> None:
    with pytest.raises(InvalidRequest, match=message):
        applies(box, key, condition)


@pytest.mark.parametrize("condition", ["m CONTAINS 1", "m CONTAINS KEY 1", "n IS NOT NULL", "n", "n = x", "3 < n"])
def test_what_the_grammar_of_conditions_has_not(box: EngineBox, condition: str) -> None:
    with pytest.raises(SyntaxException, match="no viable alternative"):
        applies(box, 1, condition)


@pytest.mark.parametrize(
    ("condition", "values", "outcome"),
    [
        ("n = ?", [5], True),
        ("x = ?", [None], True),
        ("n IN (?, ?)", [None, 5], True),
        ("n IN ?", [[4, 5]], True),
        ("n IN ?", [None], False),
        ("n NOT IN ?", [None], True),
        ("n NOT IN ?", [[5]], False),
        ("w LIKE ?", ["a%"], True),
        ("w LIKE ?", [None], False),
        ("m[?] = ?", [1, 10], True),
        ("m[?] = ?", [None, None], True),
        ("l[?] IN ?", [0, [3]], True),
        ("l = ?", [[3, 1]], True),
        ("u.a = ?", [1], True),
        ("s = {?, 2}", [1], True),
        ("u = {a: ?, b: ?}", [1, "z"], True),
    ],
)
def test_bound_values(box: EngineBox, condition: str, values: list[Any], outcome: bool) -> None:
    assert applies(box, 1, condition, values) is outcome


WITH_NULL = struct.pack(">iiii", 2, 4, 4, -1)
"""The list [4, null], which drivers send and no column holds."""


@pytest.mark.parametrize(("key", "applied"), [(1, False), (2, True), (3, True)])
def test_a_bound_list_may_hold_null(box: EngineBox, key: int, applied: bool) -> None:
    prepared = box.engine.prepare(f"UPDATE t SET x = ? WHERE k = {key} IF n IN ?", "ks")
    result = box.engine.execute(prepared, [UNSET, WITH_NULL], QueryParams(keyspace="ks"))
    assert isinstance(result, RowsResult)
    assert decoded(result)[0]["[applied]"] is applied


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT p, c FROM w WHERE p IN ?", [(4, 4)]),
        ("SELECT p, c FROM w WHERE p = 4 AND c IN ?", [(4, 4)]),
        ("SELECT p, c FROM w WHERE v IN ? ALLOW FILTERING", [(4, 4)]),
    ],
)
def test_the_null_of_a_bound_list_selects_nothing(statement: str, found: list[tuple[int, int]]) -> None:
    box = EngineBox()
    box.run("CREATE TABLE w (p int, c int, v int, PRIMARY KEY (p, c))")
    box.run("INSERT INTO w (p, c, v) VALUES (4, 4, 4)")
    box.run("INSERT INTO w (p, c) VALUES (5, 5)")
    prepared = box.engine.prepare(statement, "ks")
    result = box.engine.execute(prepared, [WITH_NULL], QueryParams(keyspace="ks"))
    assert isinstance(result, RowsResult)
    assert [tuple(row.values()) for row in decoded(result)] == found


@pytest.mark.parametrize("condition", ["n = ?", "n < ?", "n IN (1, ?)", "n IN ?", "w LIKE ?", "m[?] = 1", "l[?] = 1"])
def test_unset_values_are_refused(box: EngineBox, condition: str) -> None:
    with pytest.raises(InvalidRequest, match="unset value"):
        applies(box, 1, condition, [UNSET])


def test_names_of_markers(box: EngineBox) -> None:
    text = "UPDATE t SET n = 1 WHERE k = 1 IF n = ? AND m[?] = ? AND l[?] = ? AND u.a = ? AND w IN ? AND w IN (?, ?)"
    names = [spec.name for spec in box.engine.prepare(text, "ks").variables]
    assert names == [
        *("n", "key(m)", "value(m)", "index(l)", "value(l)", "u.a", "IN(w)", "value(IN(w))", "value(IN(w))"),
    ]


def test_a_condition_that_is_refused_writes_nothing(box: EngineBox) -> None:
    with pytest.raises(CqlError):
        box.run("UPDATE t SET n = 9 WHERE k = 1 IF n > null")
    assert box.column("SELECT n FROM t WHERE k = 1") == [5]
