"""Errors that name the faulty operation, as ScyllaDB words them: its own tests, and users' code, match the text."""

from __future__ import annotations

import pytest
from cassandra.marshal import vints_pack
from enginebox import EngineBox

from rscylla.embedded.errors import InvalidRequest
from rscylla.embedded.result import QueryParams


@pytest.fixture(scope="module")
def box() -> EngineBox:
    made = EngineBox()
    made.run("CREATE TYPE u (a int, b text)")
    made.run(
        "CREATE TABLE t (k int PRIMARY KEY, v int, s set<int>, m map<int, text>, f frozen<u>, fl frozen<list<int>>,"
        " b blob, d duration)"
    )
    return made


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("f.a = 0", "(f.a = 0) for frozen UDT column f"),
        ("f.b = 'x'", "(f.b = 'x') for frozen UDT column f"),
        ("v.a = ?", "(v.a = ?) for non-UDT column v"),
        ("v = v + 1", "(v = v + 1) for non counter column v"),
        ("v = v - :n", "(v = v - ?) for non counter column v"),
        ("b = b + 0x01", "(b = b + 0x01) for non counter column b"),
        ("fl = [1, 2] + fl", "(fl = [1, 2] + fl) for frozen list column fl"),
        ("fl = fl - [1]", "(fl = fl - [1]) for frozen collection column fl"),
        ("s[1] = null", "(s[1] = null) for set column s"),
        ("v[(int)?] = blobasint(0x00000001)", "(v[(int)?] = blobasint(0x00000001)) for non collection column v"),
        ("v[1] = {1: 'a', 2: 'b'}", "(v[1] = {1: 'a', 2: 'b'}) for non collection column v"),
        ("v[1] = {a: 1}", "(v[1] = {a: 1}) for non collection column v"),
        ("v[1] = {1, 2}", "(v[1] = {1, 2}) for non collection column v"),
        ("v[1] = (1, 'a')", "(v[1] = (1, 'a')) for non collection column v"),
    ],
)
def test_a_refused_operation_is_shown_as_it_was_written(box: EngineBox, assignment: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        box.engine.prepare(f"UPDATE t SET {assignment} WHERE k = 1", "ks")
    assert info.value.message == f"Invalid operation {message}"


@pytest.mark.parametrize(
    ("text", "what", "most"),
    [
        ("9223372036854775807d", "days", 2**31 - 1),
        ("-2147483648d", "days", 2**31 - 1),
        ("178956971y", "months", 2**31 - 1),
        ("2562048h", "nanoseconds", 2**63 - 1),
    ],
)
def test_a_duration_that_is_too_long_tells_which_part_is(box: EngineBox, text: str, what: str, most: int) -> None:
    message = f"Invalid duration. The total number of {what} must be less or equal to {most}$"
    with pytest.raises(InvalidRequest, match=message):
        box.run(f"INSERT INTO t (k, d) VALUES (1, {text})")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((2, -2, 0), "The duration months, days and nanoseconds must be all of the same sign (2, -2, 0)"),
        ((-2, 0, 2000000), "The duration months, days and nanoseconds must be all of the same sign (-2, 0, 2000000)"),
        ((9223372036854775807, 1, 0), "The duration months (9223372036854775807) must be a 32 bit integer"),
        ((0, -(2**31) - 1, 0), "The duration days (-2147483649) must be a 32 bit integer"),
    ],
)
def test_a_bound_duration_that_is_none_is_told_with_its_parts(
    box: EngineBox, parts: tuple[int, int, int], message: str
) -> None:
    prepared = box.engine.prepare("INSERT INTO t (k, d) VALUES (1, ?)", "ks")
    with pytest.raises(InvalidRequest) as info:
        box.engine.execute(prepared, [vints_pack(parts)], QueryParams(keyspace="ks"))
    assert info.value.message.endswith(message)
