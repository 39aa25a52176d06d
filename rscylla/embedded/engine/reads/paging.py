"""Pages: the paging state, which tells where a page stopped, and pages of bare columns in the making."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable

import attrs

from ...errors import ProtocolError
from ...storage.mutation import Key
from ...storage.packed import PackedPartition, join_row
from ...storage.partitions import Partition
from .projection import Evaluate
from .reading import StoreReader

__all__ = ["PageMark", "PlainPage"]

_MAGIC = b"rsp1"  # with the version of this layout: clients keep paging states
_HEAD = struct.Struct(">4s16sqqB")  # magic, table id, rows left (-1: no limit), rows of this partition so far, has ck


@attrs.frozen
class PageMark:
    """The last row of a page, by key, so that it also holds when rows come and go between pages.

    ``ck`` None means that the whole partition is done. ``left`` is what remains of LIMIT, None without one.
    """

    table_id: uuid.UUID
    key: Key
    ck: Key | None
    left: int | None
    in_partition: int

    def pack(self) -> bytes:
        left = -1 if self.left is None else self.left
        head = _HEAD.pack(_MAGIC, self.table_id.bytes, left, self.in_partition, self.ck is not None)
        body = head + _pack_key(self.key) + (b"" if self.ck is None else _pack_key(self.ck))
        # Clients hand back what they like, and unpack() trusts the lengths in it.
        return body + zlib.crc32(body).to_bytes(4, "big")

    @classmethod
    def unpack(cls, state: bytes, table_id: uuid.UUID) -> PageMark:
        """Return the mark. Raises ProtocolError for bytes that are not a paging state of this table."""
        body, check = state[:-4], state[-4:]
        if len(state) < _HEAD.size + 6 or body[:4] != _MAGIC or zlib.crc32(body).to_bytes(4, "big") != check:
            raise ProtocolError("Invalid value for the paging state: it was not made by this server")
        _, table, left, in_partition, has_ck = _HEAD.unpack_from(body)
        if table != table_id.bytes:
            raise ProtocolError("Invalid value for the paging state: it belongs to another table")
        key, at = _unpack_key(body, _HEAD.size)
        ck = _unpack_key(body, at)[0] if has_ck else None
        return cls(table_id, key, ck, None if left < 0 else left, in_partition)


def _pack_key(key: Key) -> bytes:
    return struct.pack(">H", len(key)) + b"".join(struct.pack(">I", len(part)) + part for part in key)


def _unpack_key(data: bytes, at: int) -> tuple[Key, int]:
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    parts: list[bytes] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">I", data, at)
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return tuple(parts), at


class PlainPage:
    """A page in the making. ``stop`` is the last row, by key; its clustering key is None when its partition is done.

    ``pieces`` are the rows, ``count`` of them, one or more in each.
    """

    def __init__(self, most: int, byte_room: int) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.stop: tuple[Key, Key | None] | None = None
        self._most = most
        self._byte_room = byte_room

    @property
    def is_full(self) -> bool:
        return self.count >= self._most or self._byte_room <= 0

    def take_packed(
        self, reader: StoreReader, partition: PackedPartition, narrow: Callable[[list[bytes]], list[bytes]] | None
    ) -> bool:
        """Add finished rows of a log partition; return whether it has more than the page takes."""
        found = reader.wires(partition, self._most - self.count, self._byte_room, single=narrow is not None)
        if not found.count:
            return False
        self.pieces += found.pieces if narrow is None else narrow(found.pieces)
        self.count += found.count
        self._byte_room -= found.size
        self.stop = (partition.key, partition.clustering_key(found.last) if found.has_more else None)
        return found.has_more

    def take(self, reader: StoreReader, partition: Partition, readers: list[Evaluate]) -> bool:
        """Add rows of a general partition; return whether it has more than the page takes."""
        for view in reader.views(partition):
            if self.is_full:
                return True
            row = join_row([read(view) for read in readers])
            self.pieces.append(row)
            self.count += 1
            self._byte_room -= len(row)
            self.stop = (partition.key, view.ck)
        if self.stop is not None and self.stop[0] is partition.key:
            self.stop = (partition.key, None)
        return False
