"""Messages made at once equal those of their twin: emitter and converters; what is left to the twin is said."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from connectorcases import _events, cases, events_of
from hypothesis import example, given
from hypothesis import strategies as st
from logcells import LAYOUT, cells

import rscylla
from rscylla.abc import Message
from rscylla.cdc.rows.changes import Change
from rscylla.debezium import Emitter, Record, Settings, converters_of
from rscylla.debezium.direct import Direct
from rscylla.debezium.settings import CONNECTOR_VERSION
from rscylla.errors import MalformedData, MetadataError
from rscylla.publish import DebeziumMessages
from rscylla.testing import ManualClock

compiled = pytest.importorskip("rscylla.debezium.compiled")
pytestmark = pytest.mark.skipif(rscylla.__decoder__ == "pure", reason="the twin alone")

NOW_US = 1_795_311_099_465_123
REGISTRY = {f"{half}.converter.schema.registry.url": "mock://direct" for half in ("key", "value")}


def converted(name: str) -> dict[str, str]:
    adjusted = {"field.name.adjustment.mode": "avro"}
    return REGISTRY | adjusted | {f"{half}.converter": f"io.confluent.connect.{name}" for half in ("key", "value")}


CONVERTERS = {
    "JSON": {f"{half}.converter.schemas.enable": "false" for half in ("key", "value")},
    "JSON with schemas": {},
    "Avro": converted("avro.AvroConverter"),
    "JSON Schema": converted("json.JsonSchemaConverter"),
    "Avro keys": {**converted("avro.AvroConverter"), "value.converter": "org.apache.kafka.connect.json.JsonConverter"},
}
CASES = [case for case in cases().values() if not case.is_refused]


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_messages_of_the_recorded_cases(case: Any, converter: str) -> None:
    properties = {"topic.prefix": "p", **case.properties, **CONVERTERS[converter]}
    texts = (case.files[name] for name in ("server.json", "schema.cql", "statements.cql"))
    events = [event for table, event in _events(*texts) if table in properties["scylla.table.names"].split(",")]
    direct, twin = (DebeziumMessages(properties, clock=ManualClock(NOW_US)) for _ in range(2))
    twin._direct = None
    assert [direct(event) for event in events] == [twin(event) for event in events]


def test_most_messages_of_the_recorded_cases_are_made_at_once() -> None:
    made = left = 0
    for case in CASES:
        texts = (case.files[name] for name in ("server.json", "schema.cql", "statements.cql"))
        messages = DebeziumMessages({"topic.prefix": "p", **case.properties}, clock=ManualClock(NOW_US))
        if messages._direct is None:
            continue
        for _, event in _events(*texts):
            if messages(event):
                found = messages._direct.messages(event, NOW_US)
                made, left = made + (found is not None), left + (found is None)
    assert made > 4 * left > 0


class Fake:
    """An event as the compiled stream makes them."""

    layout = LAYOUT

    def __init__(self, *rows: Any, index: int = 0) -> None:
        self.rows, self.index = rows, index

    def packed(self) -> tuple[Any, ...]:
        return *map(packed, self.rows), self.index


def is_untouched(delta: Any) -> bool:
    return all(delta[name] is None and name not in delta["gone"] for name in ("v", "w", "s"))


def packed(row: Any) -> bytes | None:
    if row is None:
        return None
    return b"".join(b"\xff\xff\xff\xff" if cell is None else len(cell).to_bytes(4, "big") + cell for cell in row)


def made_at_once(settings: Settings, converters: Any, emitter: Emitter) -> Any:
    """Return what makes messages at once, after it has learned the layout."""
    found = Direct(emitter, converters, compiled, compiled.Direct(Fake, Message))
    found.learn(Fake(None, None, None))
    return found.messages


def by_twin(emitter: Emitter, converters: Any, change: Change) -> Iterator[Message]:
    for record in emitter.records(change, NOW_US * 1000):
        assert isinstance(record, Record)
        yield Message(record.topic, converters.key(record), converters.value(record))


BROKEN = st.sampled_from(["", "v", "w", "tags"])
NUMBERS = st.none() | st.integers(-(2**31), 2**31 - 1)
TEXTS = st.none() | st.text().map(str.encode) | st.sampled_from([b'"', b"\\", b"\x1f", b"\x7f", "\U0001f600".encode()])
ROWS = st.fixed_dictionaries(
    {"op": st.sampled_from([0, 1, 2, 3, 4, 5, 8, -1, -3]), "ck": NUMBERS, "v": NUMBERS, "w": TEXTS, "s": NUMBERS},
).flatmap(lambda row: st.lists(st.sampled_from(["v", "w", "tags", "u"])).map(lambda gone: {**row, "gone": gone}))
IMAGES = st.sampled_from(["none", "full", "only-updated"])
SETTINGS = st.builds(
    lambda **options: Settings(prefix="p", **options),
    output_format=st.just("legacy"),
    preimages=st.booleans(),
    tombstones=st.booleans(),
) | st.builds(
    lambda **options: Settings(prefix="p", **options),
    output_format=st.just("advanced"),
    before=IMAGES,
    after=IMAGES,
    tombstones=st.booleans(),
    skipped=st.sampled_from([(), ("u",), ("d",)]),
    placement=st.none()
    | st.sets(st.sampled_from(["kafka-key", "payload-after", "payload-before", "payload-key"]), min_size=1),
)


@given(SETTINGS, st.sampled_from(list(CONVERTERS)), ROWS, st.none() | ROWS, st.none() | ROWS, BROKEN, st.booleans())
@example(
    Settings(prefix="p"),
    "JSON",
    {"op": 1, "ck": 1, "v": None, "w": b"\xff", "s": None, "gone": []},
    None,
    None,
    "",
    False,
)
def test_any_messages(
    settings: Settings, converter: str, delta: Any, preimage: Any, postimage: Any, broken: str, empty: bool
) -> None:
    emitter, converters = Emitter(settings), converters_of(CONVERTERS[converter])
    first = tuple(cells({"op": 2 if "u" in settings.skipped else 1, "ck": 1, "v": 1}, LAYOUT.columns))
    list(by_twin(emitter, converters, Change(LAYOUT, first)))
    make = made_at_once(settings, converters, emitter)
    rows = [None if row is None else tuple(cells(row, LAYOUT.columns)) for row in (delta, preimage, postimage)]
    if broken:
        at = next(i for i, column in enumerate(LAYOUT.columns) if column.name == broken)
        raw = b"" if empty else b"\xff\xfe\xfd"
        rows = [None if row is None else (*row[:at], raw, *row[at + 1 :]) for row in rows]
    found = make(Fake(*rows), NOW_US)
    try:
        expected = list(by_twin(emitter, converters, Change(LAYOUT, *rows)))
    except (MalformedData, MetadataError):  # a cell, or an operation that nobody knows
        assert found is None
        return
    if found is None:
        # Deletes of more than a row, and updates that touch none of the columns that records have.
        assert not expected or delta["op"] in (4, 5, 8) or (delta["op"] == 1 and is_untouched(delta))
    else:
        assert found == expected
        assert all(type(message) is Message for message in found)


def test_a_change_that_is_not_the_first_of_its_record_is_left_to_the_twin_with_its_preimage() -> None:
    settings = Settings(prefix="p", preimages=True)
    emitter, converters = Emitter(settings), converters_of(CONVERTERS["JSON"])
    row = tuple(cells({"op": 1, "ck": 1, "v": 5}, LAYOUT.columns))
    list(by_twin(emitter, converters, Change(LAYOUT, row)))
    make = made_at_once(settings, converters, emitter)
    assert make(Fake(row, row, None), NOW_US) is not None
    assert make(Fake(row, row, None, index=1), NOW_US) is None
    assert make(Fake(row, None, None, index=1), NOW_US) is not None


def test_rows_that_end_early_are_left_to_the_twin() -> None:
    emitter, converters = Emitter(Settings(prefix="p")), converters_of(CONVERTERS["JSON"])
    row = tuple(cells({"op": 1, "ck": 1, "v": 5}, LAYOUT.columns))
    make = made_at_once(emitter.settings, converters, emitter)
    whole = packed(row)
    assert whole is not None
    for size in range(0, len(whole), 7):
        event = Fake(row, None, None)
        event.packed = lambda size=size: (whole[:size], None, None, 0)  # type: ignore[method-assign]
        assert make(event, NOW_US) is None


def test_the_version_is_in_the_envelope() -> None:
    emitter, converters = Emitter(Settings(prefix="p")), converters_of(CONVERTERS["JSON"])
    [message] = made_at_once(emitter.settings, converters, emitter)(
        Fake(tuple(cells({"op": 1, "ck": 1, "v": 1}, LAYOUT.columns)), None, None), NOW_US
    )
    assert f'{{"source":{{"version":"{CONNECTOR_VERSION}",'.encode() in message.value


# What the recorded cases do not have: static collections, nothing but a key, empty keys and texts, UDTs in UDTs with
# nulls, ends of the ranges of types, batches that touch a row twice, names with all sorts of characters.
CORNERS = (Path(__file__).parent / "corners.cql").read_text().split("\n-- statements\n")
FORMATS: list[dict[str, str]] = [
    *({"experimental.preimages.enabled": flag} for flag in ("true", "false")),
    *(
        {
            "cdc.output.format": "advanced",
            "cdc.include.before": before,
            "cdc.include.after": after,
            "cdc.include.primary-key.placement": placement,
        }
        for (before, after), placement in zip(
            product(("none", "full", "only-updated"), repeat=2),
            cycle(["kafka-key", "kafka-key,payload-key,payload-before", "payload-after", "kafka-key,payload-diff"]),
            strict=False,
        )
    ),
]
VARIANTS: list[dict[str, str]] = [
    {},
    {"tombstones.on.delete": "false", "skipped.operations": "c"},
    {"topic.prefix": "9x é", "topic.delimiter": "-"},
    {"rscylla.like.connector": "list-order,silent-deletes", "skipped.operations": "u,d"},
]


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize("output", FORMATS, ids=str)
def test_messages_of_corners(output: dict[str, str], converter: str) -> None:
    events = events_of(*CORNERS)
    made = 0
    for more in VARIANTS:
        properties = {"topic.prefix": "p", **output, **CONVERTERS[converter], **more}
        direct, twin = (DebeziumMessages(properties, clock=ManualClock(NOW_US)) for _ in range(2))
        fast, twin._direct = direct._direct, None
        assert fast is not None
        for event in events:
            found = fast.messages(event, NOW_US)
            made += found is not None
            expected = twin(event)
            assert direct(event) == expected
            assert found is None or found == expected
    assert made > len(events)
