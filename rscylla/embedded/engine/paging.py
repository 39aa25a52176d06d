"""The paging state: where a page stopped, as bytes that the client hands back."""

from __future__ import annotations

import struct
import uuid
import zlib

import attrs

from ..errors import ProtocolError
from ..storage.mutation import Key

__all__ = ["PageMark"]

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
