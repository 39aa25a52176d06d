"""The contract suite of publishers over Avro files, and what only these do: columns, rotation, recovery."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro")

import avro_files
import fastavro
from avro_files import AvroFiles

from rscylla.abc import Message, Publisher
from rscylla.debezium import Field, Record, Schema, converters_of
from rscylla.errors import ConfigError, PublishFailed
from rscylla.testing import ManualClock
from rscylla.testing.contracts import PublisherContract

AVRO = {f"{half}.converter": "io.confluent.connect.avro.AvroConverter" for half in ("key", "value")}


def files_of(directory: Path, topic: str) -> list[Path]:
    return sorted((directory / topic).iterdir())


def read(*paths: Path) -> list[Any]:
    found = []
    for path in paths:
        with path.open("rb") as file:
            found += list(fastavro.reader(file))
    return found


def publish(publisher: Publisher, *messages: Message) -> None:
    outcomes: list[Any] = []
    publisher.publish(messages, outcomes.append)
    assert outcomes == [None]


class TestAvroFiles(PublisherContract):
    test_a_refused_record_stops_those_after_it: Any = None  # files take every record

    @pytest.fixture(autouse=True, params=["null", "deflate"])
    def take_path(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
        self.path, self.codec = tmp_path, request.param
        self.opened: list[AvroFiles] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        self.opened.append(AvroFiles(self.path, codec=self.codec))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return [
            Message(
                topic,
                found["key"],
                found["value"],
                tuple((header["key"], header["value"]) for header in found["headers"]),
                found["partition"],
            )
            for found in read(*files_of(self.path, topic))
        ]


def record(schema: Schema, value: Any) -> Record:
    key = Schema("struct", name="t.Key", fields=(Field("id", Schema("int64", optional=False)),), optional=False)
    return Record("t", key, {"id": 7}, schema, value)


def test_records_of_avro_converters_have_columns_and_a_new_schema_a_new_file(tmp_path: Path) -> None:
    point = Schema("struct", name="t.Point", fields=(Field("x", Schema("int32")),))
    old = Schema("struct", name="t.Value", fields=(Field("a", point), Field("b", point)), optional=False)
    new = Schema("struct", name="t.Value", fields=(*old.fields, Field("c", Schema("string"))), optional=False)
    with AvroFiles(tmp_path) as files:
        made = converters_of(AVRO, files)
        for schema, value in ((old, {"a": {"x": 1}, "b": None}), (new, {"a": None, "b": {"x": 2}, "c": "ï"})):
            one = record(schema, value)
            tombstone = one._replace(value_schema=None, value=None)
            publish(files, *(Message("t", made.key(r), made.value(r), (("h", b"1"),)) for r in (one, tombstone)))
    first, second = (read(path) for path in files_of(tmp_path, "t"))
    rest = {"headers": [{"key": "h", "value": b"1"}], "partition": None}
    gone = {"key": {"id": 7}, "value": None, **rest}
    assert first == [{"key": {"id": 7}, "value": {"a": {"x": 1}, "b": None}, **rest}, gone]
    assert second == [{"key": {"id": 7}, "value": {"a": None, "b": {"x": 2}, "c": "ï"}, **rest}, gone]


def test_a_file_ends_within_a_call_where_the_schema_changes_or_the_next_topic_begins(tmp_path: Path) -> None:
    """A table that is altered between two changes that are published together."""
    old = Schema("struct", name="t.Value", fields=(Field("a", Schema("int32")),), optional=False)
    new = Schema("struct", name="t.Value", fields=(*old.fields, Field("b", Schema("int32"))), optional=False)
    for size in (1, 1 << 20):
        home = tmp_path / str(size)
        with AvroFiles(home, max_bytes=size) as files:
            made = converters_of(AVRO, files)
            rows = (record(old, {"a": 1}), record(new, {"a": 2, "b": 3}), record(old, {"a": 4}))
            publish(files, *(Message("t", made.key(row), made.value(row)) for row in rows))
        values = [one["value"] for path in files_of(home, "t") for one in read(path)]
        assert values == [{"a": 1}, {"a": 2, "b": 3}, {"a": 4}]


def test_nothing_follows_a_write_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    files = AvroFiles(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.publish([Message("t", b"1", None)], lambda error: None)
    with pytest.raises(PublishFailed, match="create another"):
        files.publish([Message("t", b"2", None)], lambda error: None)
    files.close()


def test_directories_are_on_the_disk_before_records_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr("os.fsync", noted)
    with AvroFiles(tmp_path / "new" / "in") as files:
        publish(files, Message("t", b"1", None))
        assert {tmp_path, tmp_path / "new", tmp_path / "new" / "in", tmp_path / "new" / "in" / "t"} <= synced


def test_each_topic_has_a_directory_of_its_own(tmp_path: Path) -> None:
    """Topics may be taken from data, by route.by.field."""
    topics = ["a_b", "a b", "a/b", "a%20b", "..", ".", "", "ü", "%"]
    with AvroFiles(tmp_path / "in") as files:
        for again in range(2):
            for topic in topics:
                publish(files, Message(topic, b"%d" % again, topic.encode()))
    homes = sorted((tmp_path / "in").iterdir())
    assert len(homes) == len(topics)
    found = {
        tuple((one["key"], one["value"].decode()) for one in read(*files_of(tmp_path / "in", h.name))) for h in homes
    }
    assert found == {((b"0", topic), (b"1", topic)) for topic in topics}
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_only_avro_has_columns(tmp_path: Path) -> None:
    with AvroFiles(tmp_path) as files, pytest.raises(ConfigError, match="AvroConverter"):
        files.registered("s", "JSON", "{}")


def test_files_are_renamed_when_they_are_full_or_old(tmp_path: Path) -> None:
    clock = ManualClock()
    with AvroFiles(tmp_path, max_bytes=100, max_s=60, codec="null", clock=clock) as files:
        publish(files, Message("t", b"1", bytes(200)))
        assert [path.name for path in files_of(tmp_path, "t")] == ["0000000001.avro"]
        publish(files, Message("t", b"2", b""))
        clock.advance(59)
        publish(files, Message("t", b"3", b""))
        assert [path.name for path in files_of(tmp_path, "t")] == ["0000000001.avro", "0000000002.avro.open"]
        clock.advance(1)
        publish(files, Message("t", b"4", b""))
        assert [path.name for path in files_of(tmp_path, "t")][1:] == ["0000000002.avro", "0000000003.avro.open"]
    assert [path.name for path in files_of(tmp_path, "t")][2:] == ["0000000003.avro"]
    assert [one["key"] for one in read(*files_of(tmp_path, "t"))] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_what_a_crash_left_open_is_cut_back_to_its_last_whole_block(tmp_path: Path, codec: Any) -> None:
    with AvroFiles(tmp_path / "whole", codec=codec) as files:
        sizes = []
        for n in range(3):
            publish(files, Message("t", b"%d" % n, bytes(40)))
            [path] = files_of(tmp_path / "whole", "t")
            sizes.append(path.stat().st_size)
    whole = path.with_name("0000000001.avro").read_bytes()
    for size in range(sizes[0] - 60, len(whole) + 1):
        home = tmp_path / f"{size}"
        (home / "t").mkdir(parents=True)
        (home / "t" / "0000000005.avro.open").write_bytes(whole[:size])
        with AvroFiles(home) as files:
            publish(files, Message("t", b"next", None))
        expected = [b"%d" % n for n in range(3) if sizes[n] <= size]
        assert [one["key"] for one in read(*files_of(home, "t"))] == [*expected, b"next"]


def test_a_failed_write_is_said_and_nothing_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError("no space left on device")

    files = AvroFiles(tmp_path)
    publish(files, Message("t", b"1", None))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(PublishFailed, match="no space"):
            files.publish([Message("t", b"2", None)], lambda error: None)
    with pytest.raises(PublishFailed, match="create another"):
        files.publish([Message("t", b"3", None)], lambda error: None)
    files.close()
    with AvroFiles(tmp_path) as again:
        publish(again, Message("t", b"4", None))
    assert [one["key"] for one in read(*files_of(tmp_path, "t"))] in ([b"1", b"4"], [b"1", b"2", b"4"])


@pytest.mark.parametrize("wrong", [{"codec": "zip"}, {"max_bytes": 0}, {"max_s": 0}])
def test_wrong_options_are_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="AvroFiles"):
        AvroFiles(tmp_path, **wrong)


def test_topics_stay_in_the_directory(tmp_path: Path) -> None:
    with AvroFiles(tmp_path / "in") as files:
        publish(files, Message("../out", b"1", None))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_program_writes_the_changes_of_a_table_with_their_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["avro_files.py", "--embedded", "--directory", str(tmp_path)])
    avro_files.main()
    assert capsys.readouterr().out == "demo.shop.orders {'id': 1} c {'id': 1, 'total': {'value': 40}}\n"
