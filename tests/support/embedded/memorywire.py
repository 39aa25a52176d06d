"""Frames of the native protocol, and a transport of memory: thousands of conversations with a server in seconds."""

from __future__ import annotations

import asyncio
import struct

from rscylla.embedded.wire.frame import HEADER, HEADER_SIZE

__all__ = ["STARTUP", "MemoryTransport", "answers", "frame", "long_string", "string"]


class MemoryTransport(asyncio.Transport):
    """Records the written bytes, and distinguishes a client's connection from a broken one."""

    def __init__(self) -> None:
        super().__init__()
        self.out = bytearray()
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    close = abort

    def is_closing(self) -> bool:
        return self.ended

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def frame(opcode: int, body: bytes, *, version: int = 4, flags: int = 0, stream: int = 1) -> bytes:
    return HEADER.pack(version, flags, stream, opcode, len(body)) + body


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def long_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


STARTUP = b"\0\1" + string("CQL_VERSION") + string("3.0.0")


def answers(out: bytes) -> list[tuple[int, int, bytes]]:
    """Return stream, opcode and body of each answer; they must be whole."""
    found, at = [], 0
    while at < len(out):
        version, _, stream, opcode, size = HEADER.unpack_from(out, at)
        assert version in (0x83, 0x84)
        body = out[at + HEADER_SIZE : at + HEADER_SIZE + size]
        assert len(body) == size
        found.append((stream, opcode, body))
        at += HEADER_SIZE + size
    return found
