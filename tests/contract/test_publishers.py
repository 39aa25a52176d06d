"""The contract suite of publishers over those that need no broker."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rscylla.abc import Message, Publisher
from rscylla.errors import ConfigError, PublishFailed
from rscylla.publish import JsonLines
from rscylla.testing.contracts import PublisherContract


def message_of(line: bytes) -> Message:
    """Return the record of a line. Keys and values that are embedded must be as they were given."""
    found = json.loads(line)

    def part(name: str) -> bytes | None:
        if f"{name}_base64" in found:
            return b64decode(found[f"{name}_base64"])
        return (
            None if found[name] is None else json.dumps(found[name], separators=(",", ":"), ensure_ascii=False).encode()
        )

    def header(value: Any) -> bytes | None:
        return value.encode() if isinstance(value, str) else value and b64decode(value["base64"])

    headers = tuple((name, header(value)) for name, value in found.get("headers", ()))
    return Message(found["topic"], part("key"), part("value"), headers, found.get("partition"))


class TestFileOfLines(PublisherContract):
    test_a_refused_record_stops_those_after_it: Any = None  # lines take every record

    @pytest.fixture(autouse=True)
    def take_path(self, tmp_path: Path) -> Any:
        self.path = tmp_path / "records.jsonl"
        self.opened: list[JsonLines] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        self.opened.append(JsonLines(self.path, sync=True))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return [message for line in self.path.read_bytes().splitlines() if (message := message_of(line)).topic == topic]


class TestStreamOfLines(PublisherContract):
    test_a_refused_record_stops_those_after_it: Any = None  # lines take every record

    @pytest.fixture(autouse=True)
    def make(self) -> None:
        self.out = io.BytesIO()

    def open_publisher(self) -> Publisher:
        return JsonLines(self.out)

    def read(self, topic: str) -> Sequence[Message]:
        return [message_of(line) for line in self.out.getvalue().split(b"\n")[:-1]]


def test_part_of_a_line_is_cut_off_since_nobody_was_told_that_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    whole = b'{"topic":"t","key":null,"value":1}\n'
    for torn in (b"", b'{"topic":"t","ke', b"x" * 100_000):
        path.write_bytes(whole + torn)
        with JsonLines(path) as publisher:
            publisher.publish([Message("t", None, b"2")], lambda error: None)
        assert path.read_bytes() == whole + whole.replace(b"1", b"2")
    path.write_bytes(b"x" * 70_000)
    JsonLines(path).close()
    assert path.read_bytes() == b""


def test_a_write_that_fails_is_not_acknowledged_and_nothing_follows_it() -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    publisher = JsonLines(Full())
    for what in ("No space left", "earlier write"):
        with pytest.raises(PublishFailed, match=what):
            publisher.publish([Message("t", b"k", b"v")], pytest.fail)


def test_only_files_wait_for_the_disk() -> None:
    with pytest.raises(ConfigError, match="needs the path"):
        JsonLines(io.BytesIO(), sync=True)


def test_keys_that_are_no_json_and_not_numbers_of_json_are_base64() -> None:
    out = io.BytesIO()
    JsonLines(out).publish([Message("t", b"NaN", b'"a"', (("h", b"1"),), 3)], lambda error: None)
    assert out.getvalue() == b'{"topic":"t","key_base64":"TmFO","value":"a","headers":[["h","1"]],"partition":3}\n'


def test_halves_of_surrogates_are_written_as_json_spells_them() -> None:
    out = io.BytesIO()
    message = Message("t\udcff", b'"k"', b'"v"', (("h\ud83d", b"1"),))
    JsonLines(out).publish([message], lambda error: None)
    found = json.loads(out.getvalue())
    assert (found["topic"], found["headers"][0][0]) == ("t\udcff", "h\ud83d")
