"""Values of every CQL type through the server, which reads their CQL text."""

from __future__ import annotations

from typing import Any

import pytest
from cellbox import NATIVE, nested
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rscylla
from rscylla.cdc.driver import ReadSession, consistency_named
from rscylla.types import Type, decoder_for, literal_for, parse_type
from rscylla.types.json import dumps

UDTS = {"pair": [("x", "int"), ("Y", "text")]}
TYPES = [
    *(kind for kind in sorted(NATIVE) if kind != "counter"),
    # The driver cannot read the type of a vector of UDTs.
    *("list<text>", "set<int>", "map<text, double>", "map<uuid, blob>", "frozen<list<frozen<set<date>>>>"),
    *("set<frozen<list<int>>>", "map<frozen<pair>, int>", "map<frozen<map<int, text>>, time>", "pair", "frozen<pair>"),
    *("frozen<tuple<int, text, duration>>", "set<frozen<tuple<inet, varint>>>", "vector<float, 2>", "vector<text, 2>"),
    *("vector<frozen<list<int>>, 2>", "list<vector<timestamp, 2>>"),
]


@pytest.fixture(scope="module")
def columns(session: rscylla.Session) -> dict[str, str]:
    session.execute(
        "CREATE KEYSPACE IF NOT EXISTS literals WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    session.execute('CREATE TYPE IF NOT EXISTS literals.pair (x int, "Y" text)')
    columns = {text: f"c{i}" for i, text in enumerate(TYPES)}
    named = ", ".join(f"{name} {text}" for text, name in columns.items())
    session.execute(f"CREATE TABLE IF NOT EXISTS literals.t (k int PRIMARY KEY, {named})")
    return columns


def read_back(session: rscylla.Session, column: str) -> tuple[Type, Any]:
    log_session = ReadSession(session, consistency=consistency_named("ONE"))
    statement = log_session.prepare(f"SELECT {column} FROM literals.t WHERE k = 1", page_size=1, doing="reading back")
    page = log_session.read(statement, [], doing="reading back")
    ((raw,),) = page.cells()
    type_ = page.columns[0].type
    return type_, None if raw is None else decoder_for(type_)(raw)


@pytest.mark.parametrize("text", TYPES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_cql_text_of_a_value_is_read_back_as_the_value(
    session: rscylla.Session, columns: dict[str, str], text: str, data: st.DataObject
) -> None:
    type_ = parse_type(text, UDTS)
    value = decoder_for(type_)(data.draw(nested(type_)))
    session.execute(f"INSERT INTO literals.t (k, {columns[text]}) VALUES (1, {literal_for(type_)(value)})")
    found_type, found = read_back(session, columns[text])
    assert type_.same_bytes(found_type)
    nothing = type_.is_multicell and (not value or (type_.kind == "udt" and set(value.values()) == {None}))
    assert in_any_order(type_, found) == in_any_order(type_, None if nothing else value)


def in_any_order(type_: Type, value: Any) -> Any:
    """Return what is equal for values that differ in nothing but the order of sets and maps, which the server sorts."""
    if value is None or type_.kind not in ("list", "set", "map"):
        return dumps(value)
    if type_.kind == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return sorted((str(in_any_order(type_.args[0], k)), dumps(v)) for k, v in pairs)
    parts = [str(in_any_order(type_.args[0], v)) for v in value]
    return parts if type_.kind == "list" else sorted(parts)
