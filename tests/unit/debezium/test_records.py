"""Records equal those that the Scylla CDC source connector produced of the same statements, byte for byte.

``differences.json`` has what differs, by case: ``options``: what brings the connector's way back; ``theirs``: numbers
of records that the connector gets wrong; ``ours``: records that stand in their place or that the connector does not
deliver, because it left the change "pending" for want of a preimage, or "lost" it after a restart in its batch.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from connectorcases import NOW_NS, Case, Line, cases

from rscylla.debezium import DIFFERENCES, Emitter, JsonConverter, Settings

KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "differences.json").read_text())

REFUSED = {
    # The connector refuses to start; whether rscylla does is for the one who runs it to say, not for records.
    "images-refused-none": "tables log no images",
    "images-refused-preimage-full": "a table logs full preimages, which the connector does not know",
    "names-refused-capitals": "capitals in the names of keyspaces and tables",
}

CASES = [case for case in cases().values() if not case.is_refused]


def is_heartbeat(line: Line) -> bool:
    return line.value_schema is not None and "io.debezium.connector.common.Heartbeat" in line.value_schema


def expected(case: Case) -> list[Line]:
    """Return what the connector produced of the changes, less what it got wrong."""
    wrong = KNOWN.get(case.name, {}).get("theirs", ())
    lines = [line for at, line in enumerate(case.recorded()) if at not in wrong and not is_heartbeat(line)]
    if "first.jsonl" in case.files:  # before the restart
        first = case.recorded("first.jsonl")
        lines = first + [line for line in lines if line not in first]
    return lines


def instead(case: Case, lines: list[Line]) -> list[Line]:
    """Return what we produce in place of what the connector got wrong; schemas are those of the other records."""
    found = []
    for record in KNOWN.get(case.name, {}).get("ours", ()):
        is_tombstone = record["value"] is None
        rows = [line for line in lines if line.value is not None]
        of_topic = [line for line in rows if line.topic == record["topic"]]  # unless its topic is one of a row
        schemas = next((line.key_schema, line.value_schema) for line in of_topic or rows)
        headers = tuple(tuple(header) for header in record["headers"])
        value_schema = None if is_tombstone else schemas[1]
        found.append(Line(record["topic"], None, record["key"], record["value"], schemas[0], value_schema, headers))
    return found


def by_key(lines: list[Line]) -> dict[tuple[str, str | None], list[Line]]:
    found = defaultdict(list)
    for line in lines:
        found[line.topic, line.key].append(line)
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_records_are_those_of_the_connector(case: Case) -> None:
    options = KNOWN.get(case.name, {}).get("options", ())
    ours = case.ours(rscylla_like_connector=",".join(options)) if options else case.ours()
    theirs = expected(case)
    assert sorted(map(str, ours)) == sorted(map(str, theirs + instead(case, theirs)))
    kept = [line for line in ours if line in theirs]
    for (topic, key), lines in by_key(kept).items():
        if key is not None:  # without a key, a record has no order among the others
            assert lines == [line for line in theirs if (line.topic, line.key) == (topic, key)]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_option_is_named_only_where_it_matters(case: Case) -> None:
    default = case.ours()
    named = KNOWN.get(case.name, {}).get("options", ())
    assert [d for d in DIFFERENCES if case.ours(rscylla_like_connector=d) != default] == list(named)


def test_all_cases_are_compared() -> None:
    assert len(cases()) == 52
    assert {case.name for case in cases().values() if case.is_refused} == REFUSED.keys()
    assert KNOWN.keys() <= {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_with_schemas_each_half_comes_with_its_schema(case: Case) -> None:
    bare, whole = JsonConverter(schemas=False), JsonConverter(schemas=True)
    for record in case.records():
        line = case.line(record)
        for schema, half in ((line.key_schema, "key"), (line.value_schema, "value")):
            payload = getattr(bare, half)(record)
            wrapped = None if schema is None else b'{"schema":%b,"payload":%b}' % (schema.encode(), payload)
            assert getattr(whole, half)(record) == wrapped


def test_heartbeats_are_those_of_the_connector() -> None:
    seen = 0
    for case in CASES:
        heartbeat = Emitter(Settings.of(case.properties)).heartbeat(NOW_NS // 1_000_000)
        for line in filter(is_heartbeat, case.recorded()):
            assert case.line(heartbeat)._replace(value=None) == line._replace(value=None)
            assert line.value is not None
            assert json.loads(line.value).keys() == {"ts_ms"}
            seen += 1
    assert heartbeat.partition == 0
    assert heartbeat.value == {"ts_ms": NOW_NS // 1_000_000}
    assert seen > 10


def test_the_envelope_has_the_time_that_is_given() -> None:
    record = next(cases()["scalars-legacy"].records())
    ms, us, ns = (record.value[name] for name in ("ts_ms", "ts_us", "ts_ns"))
    assert (ms, us, ns) == (NOW_NS // 1_000_000, NOW_NS // 1000, NOW_NS)
