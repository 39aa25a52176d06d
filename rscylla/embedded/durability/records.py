"""Files of framed records: numbered, checksummed, appended to by one writer, cut where a write was not finished.

A record is a 16-byte head (a mark, the record's number in its file, the payload's length, a CRC-32 over all of it and
the file's number) and the payload. What follows a whole record is either another one or the rest of a write that was
cut short. Not thread-safe.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from ..errors import EmbeddedScyllaError

__all__ = ["Damage", "DataDirError", "RecordReader", "RecordWriter"]

_MARK: Final = b"\xd1RSC"
_HEAD: Final = struct.Struct(">4sIII")
_COUNTED: Final = struct.Struct(">III")
_HEAD_SIZE: Final = _HEAD.size
_sync: Final = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_LARGEST: Final = (1 << 32) - 1  # bytes of a payload


class DataDirError(EmbeddedScyllaError):
    """A data directory cannot be used: another server has it, it is damaged, or it is something else."""


@attrs.frozen
class Damage:
    """Where a file stops making sense. ``is_tail``: no whole record follows, so a write was cut short there."""

    offset: int
    size: int
    is_tail: bool


def _checksum(file_number: int, at: int, payload: bytes) -> int:
    # Both numbers are in it: a whole record at another place, or of another file, is not taken for one of this.
    return zlib.crc32(payload, zlib.crc32(_COUNTED.pack(file_number & 0xFFFFFFFF, at, len(payload))))


class RecordWriter:
    """Appends records to one file. ``size`` and ``count`` are what the file holds.

    Args:
        path: The file. It is made when it is not there.
        number: The file's number, part of every checksum.
        size, count: What to keep of a file that is there: the rest is cut off.
        sync: Wait after each record until the disk has it; else it is handed to the operating system only.
    """

    def __init__(self, path: Path, number: int, *, size: int = 0, count: int = 0, sync: bool = False) -> None:
        self.path = path
        self.number = number
        self.size = size
        self.count = count
        self._sync = sync
        self._is_broken = False
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def append(self, payload: bytes) -> int:
        """Add a record; return the file's bytes that it takes. An OSError leaves the file as it was."""
        if self._is_broken:
            raise OSError(f"{self.path.name} could not be mended after a failed write")
        if len(payload) > _LARGEST:
            raise OSError(f"a record of {len(payload)} bytes does not fit a file of records")
        head = _HEAD.pack(_MARK, self.count, len(payload), _checksum(self.number, self.count, payload))
        length = _HEAD_SIZE + len(payload)
        try:
            # One call for both, so that a killed process leaves all of a record or nothing, as a rule.
            written = os.writev(self._fd, (head, payload))
            if written < length:
                self._write_rest((head + payload)[written:])
            if self._sync:
                _sync(self._fd)
        except OSError:
            self._take_back()
            raise
        self.size += length
        self.count += 1
        return length

    def _write_rest(self, rest: bytes) -> None:
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _take_back(self) -> None:
        """Cut off what is behind the records that count. If even that fails, nothing may follow it."""
        try:
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
        except OSError:
            self._is_broken = True

    def take_back(self, length: int) -> None:
        """Remove the last record, for which ``append`` returned *length*."""
        self.size -= length
        self.count -= 1
        self._take_back()

    def flush(self) -> None:
        """Return when the disk has everything."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file; more than once is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RecordReader:
    """Reads a file's records in order. After the last one, ``damage`` tells of what could not be read.

    ``size`` and ``count`` are those of the whole records so far.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.size = 0
        self.count = 0
        self.damage: Damage | None = None

    def __iter__(self) -> Iterator[bytes]:
        total = self.path.stat().st_size
        with self.path.open("rb", buffering=1 << 20) as file:
            while self.size < total:
                payload = self._next(file, total - self.size)
                if payload is None:
                    self.damage = Damage(self.size, total - self.size, is_tail=not self._is_followed())
                    return
                self.size += _HEAD_SIZE + len(payload)
                self.count += 1
                yield payload

    def _next(self, file: BinaryIO, left: int) -> bytes | None:
        """Return the next payload, None if there is no whole record."""
        if left < _HEAD_SIZE:
            return None
        mark, at, length, checksum = _HEAD.unpack(file.read(_HEAD_SIZE))
        # The length is looked at before anything is read: a damaged one must not make us allocate.
        if mark != _MARK or at != self.count or length > left - _HEAD_SIZE:
            return None
        payload = file.read(length)
        return payload if len(payload) == length and checksum == _checksum(self.number, at, payload) else None

    def _is_followed(self) -> bool:
        """Tell whether a whole record lies somewhere behind the place that cannot be read."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = data.find(_MARK, self.size + 1)
            while 0 <= place <= len(data) - _HEAD_SIZE:
                # A payload may hold bytes that look like a head; number and checksum tell.
                _, at, length, checksum = _HEAD.unpack_from(data, place)
                start = place + _HEAD_SIZE
                is_possible = at > self.count and length <= len(data) - start
                if is_possible and checksum == _checksum(self.number, at, data[start : start + length]):
                    return True
                place = data.find(_MARK, place + 1)
        return False
