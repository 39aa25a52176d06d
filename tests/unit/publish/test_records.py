"""``DebeziumMessages``: records as bytes, with the headers of Connect's converter."""

from __future__ import annotations

import json

import pytest

from rscylla.debezium import Header, Record, Schema
from rscylla.errors import ConfigError
from rscylla.publish import DebeziumMessages
from rscylla.publish.records import header_bytes
from rscylla.testing import ManualClock

PROPERTIES = {
    "topic.prefix": "demo",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "naïve", "naïve".encode()),
        ("string", None, None),
        ("int64", -5, b"-5"),
        ("boolean", True, b"true"),
        ("float64", 1e10, b"1.0E10"),
        ("bytes", b"\x00", b"AA=="),
    ],
)
def test_headers_are_text_without_quotes(kind: str, value: object, text: bytes | None) -> None:
    assert header_bytes(Header("h", Schema(kind), value)) == text


def test_a_header_with_elements_is_json() -> None:
    assert header_bytes(Header("h", Schema("array", items=Schema("int32")), [1, 2])) == b"[1,2]"


def test_heartbeats_are_messages() -> None:
    clock = ManualClock()
    [message] = DebeziumMessages(PROPERTIES, clock=clock).heartbeat()
    assert (message.topic, message.key, message.partition) == ("__debezium-heartbeat.demo", b'{"serverName":"demo"}', 0)
    assert json.loads(message.value or b"") == {"ts_ms": clock.now_us() // 1000}


def test_records_that_a_transform_drops_are_no_messages() -> None:
    unwrap = {"transforms": "t", "transforms.t.type": "io.debezium.transforms.ExtractNewRecordState"}
    tombstone = Record("t", None, None, None, None)
    assert DebeziumMessages({**PROPERTIES, **unwrap}).of_records([tombstone]) == []
    assert len(DebeziumMessages(PROPERTIES).of_records([tombstone])) == 1


def test_a_property_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"topic\.prefix"):
        DebeziumMessages({})
