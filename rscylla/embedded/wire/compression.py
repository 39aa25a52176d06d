"""LZ4 bodies of the native protocol: four bytes of length, then one LZ4 block. Needs the ``lz4`` package.

Source: CQL binary protocol v4, section 5.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Self

from ..errors import ProtocolError
from .frame import HEADER, HEADER_SIZE, Flag

__all__ = ["Compressor"]

_LENGTH = struct.Struct(">i")
# One byte of an LZ4 block stands for at most this many: for a length beyond that no memory is set aside.
_LONGEST_RATIO = 255


class Compressor:
    """Packs and unpacks frame bodies. Holds no state between calls, so one serves all connections.

    Raises ImportError if lz4 is not installed.
    """

    def __init__(self, max_body: int) -> None:
        try:
            self._block: Any = importlib.import_module("lz4.block")
        except ImportError as error:
            raise ImportError("compression needs the package lz4: pip install lz4") from error
        self._max_body = max_body

    @classmethod
    def if_installed(cls, max_body: int) -> Self | None:
        """Return one, or None without the ``lz4`` package."""
        try:
            return cls(max_body)
        except ImportError:
            return None

    def decompress(self, body: bytes) -> bytes:
        """Return the plain body. Raises `ProtocolError` if it is damaged or would be larger than a frame may be."""
        if len(body) < _LENGTH.size:
            raise ProtocolError("truncated frame: a compressed body starts with its length")
        (size,) = _LENGTH.unpack_from(body)
        if not 0 <= size <= self._max_body:
            raise ProtocolError(f"request size too large (frame body {size}; limit {self._max_body})")
        if size > len(body) * _LONGEST_RATIO:
            raise ProtocolError("Compressed frame body says that it is longer than LZ4 could make it")
        if size == 0:
            return b""
        try:
            plain: bytes = self._block.decompress(body[_LENGTH.size :], uncompressed_size=size)
        except (ValueError, self._block.LZ4BlockError) as error:
            raise ProtocolError("Compressed frame body cannot be decompressed as LZ4") from error
        if len(plain) != size:
            raise ProtocolError("Compressed frame body has another length than it says")
        return plain

    def compress_frame(self, frame: bytes) -> bytes:
        """Return the same frame with its body compressed and flagged so."""
        version, flags, stream, opcode, size = HEADER.unpack_from(frame)
        # The protocol has its own length, big-endian, where lz4 would store a little-endian one.
        packed = self._block.compress(frame[HEADER_SIZE:], store_size=False)
        body: bytes = _LENGTH.pack(size) + packed
        return HEADER.pack(version, flags | Flag.COMPRESSED, stream, opcode, len(body)) + body
