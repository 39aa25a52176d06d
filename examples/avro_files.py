"""A publisher of your own that writes: Avro object container files, with columns where the schemas are known.

``publish`` settles its records before it returns, when the disk has them; see ``rscylla.abc.Publisher``. It uses public
names only, and passes ``rscylla.testing.contracts.PublisherContract``. As a program it writes the changes of a table:

    python examples/avro_files.py --embedded --directory /tmp/cdc
"""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Self

import fastavro

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import Clock, SystemClock
from rscylla.abc import Message, PublishDone
from rscylla.debezium import Registered
from rscylla.errors import ConfigError, PublishFailed
from rscylla.publish import DebeziumMessages, publishing

Codec = Literal["null", "deflate"]

AVRO: Final = "io.confluent.connect.avro.AvroConverter"
_OPEN: Final = ".avro.open"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]|^\.{1,2}$")
_HEADERS: Final = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "Header",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
    },
}


class AvroFiles:
    """Writes records to Avro object container files, a directory for each topic; a ``Publisher``. Thread-safe.

    A character that topics of Kafka do not have is its code in the directory's name, such as ``%20``. A file's records
    have the fields ``key``, ``value``, ``headers`` (an array of ``key`` and ``value``), and
    ``partition``. Key and value are bytes, or null. If they were made by Avro converters with this object as their
    registry, they are records with columns instead::

        files = AvroFiles("/data/cdc")
        messages = DebeziumMessages(properties, registry=files)  # key.converter and value.converter: AvroConverter

    A record is acknowledged when the disk has it. A file that is written to has a name that ends with ``.avro.open``;
    it is renamed when it is full or old, when the schema changes, and at ``close``. What a crash left open is cut back
    to its last whole block and renamed when the next publisher of the directory writes to the topic, so repeats may
    follow in the next file, and nothing is lost.

    Args:
        directory: of one publisher at a time.
        max_bytes, max_s: the size and age at which a file is renamed and another one begun; the age is looked at when
            records come.
        codec: ``deflate`` or ``null``.
        clock: for the ages of files.

    Raises:
        ConfigError: an argument is not possible.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        max_bytes: int = 128 << 20,
        max_s: float = 300.0,
        codec: Codec = "deflate",
        clock: Clock | None = None,
    ) -> None:
        if codec not in ("null", "deflate"):
            raise ConfigError(f"AvroFiles: codec is {codec!r}; use deflate or null")
        if max_bytes < 1 or max_s <= 0:
            raise ConfigError("AvroFiles: max_bytes and max_s must be above zero")
        self._directory = Path(directory)
        self._max_bytes, self._max_s, self._codec = max_bytes, max_s, codec
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._texts: dict[bytes, str] = {}  # by the head of bytes with this schema
        self._files: dict[str, _File] = {}
        self._recovered: set[str] = set()
        self._closed = False
        self._broken = False

    def registered(self, subject: str, form: str, text: str) -> Registered:
        """Return an id of a schema, for converters; see ``rscylla.debezium.SchemaRegistry``.

        Raises:
            ConfigError: it is no Avro schema.
        """
        if form != "AVRO":
            raise ConfigError(f"AvroFiles takes records of {AVRO}, or bytes as they are")
        with self._lock:
            number = self._ids.setdefault(text, len(self._ids) + 1)
            self._texts[_head(number)] = text
        return Registered(number, text)

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        """Write *messages*, wait for the disk, and call *done*, before this returns.

        Raises:
            PublishFailed: a write failed. Open another publisher, which cuts off what was written in part.
            ConfigError: the publisher is closed.
        """
        with self._lock:
            if self._closed:
                raise ConfigError("this AvroFiles is closed; create another one")
            if self._broken:
                raise PublishFailed("an earlier write failed; create another AvroFiles for the directory")
            try:
                for start, end in _runs(messages, self._kind):
                    self._write(messages[start:end])
                for file in [*self._files.values()]:
                    file.sync()
                    if file.size >= self._max_bytes:
                        self._finish(file)
            except BaseException as error:  # an interrupt, too, may leave part of a block, which nothing may follow
                self._broken = True
                if not isinstance(error, OSError):
                    raise
                raise PublishFailed(f"Avro files cannot be written: {error}") from error
        done(None)

    def flush(self, timeout_s: float) -> bool:
        """Return True: each record is settled when ``publish`` returns."""
        return True

    def abandon(self) -> None:
        """Do nothing: no record waits."""

    def trouble(self) -> str:
        """Return ""."""
        return ""

    def close(self) -> None:
        """Rename all files that are open. Safe to repeat."""
        with self._lock:
            self._closed = True
            for file in [*self._files.values()]:
                if self._broken:
                    with suppress(OSError):  # what it still has is not acknowledged
                        file.out.close()
                else:
                    self._finish(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ files

    def _kind(self, message: Message) -> tuple[str, str | None, str | None]:
        """Return the topic, and the schemas of key and value; None for bytes."""
        return message.topic, self._text_of(message.key), self._text_of(message.value)

    def _text_of(self, data: bytes | None) -> str | None:
        return None if data is None else self._texts.get(data[:5])

    def _write(self, messages: Sequence[Message]) -> None:
        """Append *messages*, which are of one kind, as a block."""
        topic, key, value = self._kind(messages[0])
        file = self._files.get(topic)
        if file is not None:
            # A null has any schema.
            key = file.key if all(m.key is None for m in messages) else key
            value = file.value if all(m.value is None for m in messages) else value
            is_old = self._clock.monotonic() - file.since >= self._max_s
            if (file.key, file.value) != (key, value) or is_old:
                self._finish(file)
                file = None
        if file is None:
            file = self._files[topic] = self._open(topic, key, value)
        file.append(len(messages), b"".join([_body(message, key, value) for message in messages]))

    def _open(self, topic: str, key: str | None, value: str | None) -> _File:
        home = self._directory / (_NOT_IN_NAMES.sub(_escaped, topic) or "%")
        _make_directory(home)
        if topic not in self._recovered:
            for left in sorted(home.glob(f"*{_OPEN}")):
                self._recover(left)
            self._recovered.add(topic)
        taken = [int(name) for path in home.iterdir() if (name := path.name.partition(".")[0]).isdigit()]
        path = home / f"{max(taken, default=0) + 1:010}{_OPEN}"
        names: dict[str, Any] = {}
        fields = [
            {"name": "key", "type": _optional(key, names)},
            {"name": "value", "type": _optional(value, names)},
            {"name": "headers", "type": _HEADERS},
            {"name": "partition", "type": ["null", "int"]},
        ]
        schema = {"type": "record", "name": "Record", "namespace": "rscylla", "fields": fields}
        out = path.open("xb")
        marker = os.urandom(16)
        fastavro.writer(out, schema, [], codec=self._codec, metadata={"rscylla.topic": topic}, sync_marker=marker)
        _sync_directory(home)
        return _File(topic, key, value, path, out, marker, self._codec, self._clock.monotonic())

    def _recover(self, path: Path) -> None:
        """Cut a file that a crash left open back to its last whole block, and rename it; remove one without any."""
        end = 0
        with path.open("rb") as file:
            try:
                for block in fastavro.block_reader(file):
                    end = block.offset + block.size
            except Exception:  # noqa: BLE001 - whatever the end of a torn file looks like; what is whole was counted
                pass
        if not end:
            path.unlink()
            return
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
        path.rename(_finished(path))
        _sync_directory(path.parent)

    def _finish(self, file: _File) -> None:
        file.sync()
        file.out.close()
        file.path.rename(_finished(file.path))
        _sync_directory(file.path.parent)
        del self._files[file.topic]


class _File:
    """A file that is written to."""

    def __init__(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        path: Path,
        out: BinaryIO,
        marker: bytes,
        codec: Codec,
        since: float,
    ) -> None:
        self.topic, self.key, self.value, self.path, self.out, self.since = topic, key, value, path, out, since
        self._marker, self._codec = marker, codec
        self._is_synced = False
        self.size = 0

    def append(self, count: int, data: bytes) -> None:
        if self._codec == "deflate":
            packer = zlib.compressobj(wbits=-15)
            data = packer.compress(data) + packer.flush()
        self._is_synced = False
        self.size += self.out.write(_long(count) + _long(len(data)) + data + self._marker)

    def sync(self) -> None:
        if not self._is_synced:
            self.out.flush()
            os.fsync(self.out.fileno())
            self._is_synced = True


def _runs(messages: Sequence[Message], kind: Callable[[Message], Any]) -> list[tuple[int, int]]:
    """Return where runs of messages of one kind begin and end."""
    found: list[tuple[int, int]] = []
    start, last = 0, None
    for at, message in enumerate(messages):
        own = kind(message)
        if last is not None and own != last:
            found.append((start, at))
            start = at
        last = own
    if messages:
        found.append((start, len(messages)))
    return found


def _body(message: Message, key: str | None, value: str | None) -> bytes:
    parts = [_part(message.key, key), _part(message.value, value)]
    if message.headers:
        parts.append(_long(len(message.headers)))
        for name, header in message.headers:
            text = name.encode()
            parts += [_long(len(text)), text, _part(header, None)]
    parts.append(b"\x00")
    parts.append(b"\x00" if message.partition is None else b"\x02" + _long(message.partition))
    return b"".join(parts)


def _part(data: bytes | None, text: str | None) -> bytes:
    """Return a member of a union with null: bytes, or with a schema what follows their head."""
    if data is None:
        return b"\x00"
    return b"\x02" + (data[5:] if text is not None else _long(len(data)) + data)


def _optional(text: str | None, names: dict[str, Any]) -> list[Any]:
    """Return the union of null and a schema; records that an earlier one has described are named."""
    return ["null", "bytes" if text is None else _named_once(json.loads(text), names, "")]


def _named_once(schema: Any, names: dict[str, Any], space: str) -> Any:
    if isinstance(schema, list):
        return [_named_once(one, names, space) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "record":
        space = schema.get("namespace", space)
        full = f"{space}.{schema['name']}" if space else schema["name"]
        if full in names:
            return full
        names[full] = True
        fields = [{**field, "type": _named_once(field["type"], names, space)} for field in schema["fields"]]
        return {**schema, "fields": fields}
    if schema.get("type") == "array":
        return {**schema, "items": _named_once(schema["items"], names, space)}
    return schema


def _head(number: int) -> bytes:
    return b"\x00" + number.to_bytes(4, "big")


def _long(number: int) -> bytes:
    """Return a number as Avro has it: zigzag, seven bits a byte, the lowest first."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _finished(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".open"))


def _escaped(found: re.Match[str]) -> str:
    """Return a part of a topic's name as that of a file has it: topics that differ have names that differ."""
    return "".join([f"%{byte:02X}" for byte in found[0].encode()])


def _make_directory(path: Path) -> None:
    """Create a directory and those above it, so that the disk has their names, too."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main() -> None:
    from rscylla.embedded import EmbeddedScylla

    parser = argparse.ArgumentParser(description="Write the changes of a table to Avro files, and read them.")
    parser.add_argument("--embedded", action="store_true", required=True, help="on a Scylla of its own")
    parser.add_argument("--directory", type=Path, required=True, help="where the files go")
    directory = parser.parse_args().directory
    properties = {"topic.prefix": "demo", "key.converter": AVRO, "value.converter": AVRO}
    with EmbeddedScylla() as scylla, AvroFiles(directory) as files:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, total int) WITH cdc = {'enabled': true}")
        session.execute("INSERT INTO shop.orders (id, total) VALUES (1, 40)")
        stream = rscylla.NewStream(session, "shop", "orders")
        lag, until = rscylla.StreamLag(milliseconds=100), rscylla.StreamUntil(datetime.now(UTC))
        consumer = publishing("lake", DebeziumMessages(properties, registry=files), files)
        rscylla.run_forever(rscylla.Spec(stream, MemoryCursorStore(), consumer, lag, until))
    for path in sorted(directory.glob("*/*.avro")):
        with path.open("rb") as file:
            records: Iterable[Any] = fastavro.reader(file)
            for record in records:
                print(path.parent.name, record["key"], record["value"]["op"], record["value"]["after"])


if __name__ == "__main__":
    main()
