"""Tokens of partition keys: Murmur3 as Cassandra computes it, and the CDC partitioner of log tables."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Final

from ..schema.tables import TableSchema
from .mutation import Key

__all__ = ["MIN_TOKEN", "key_bytes", "log_token", "murmur3_token", "table_token"]

MIN_TOKEN: Final = -(1 << 63)
_MAX_TOKEN: Final = (1 << 63) - 1

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")
_LONG: Final = struct.Struct(">q")


def _mix(k: int) -> int:
    """Finalise a 64-bit word so that each input bit reaches each output bit."""
    k ^= k >> 33
    k = (k * 0xFF51AFD7ED558CCD) & _MASK
    k ^= k >> 33
    k = (k * 0xC4CEB9FE1A85EC53) & _MASK
    return k ^ (k >> 33)


def _scramble_first(k: int) -> int:
    k = (k * _C1) & _MASK
    return (((k << 31) | (k >> 33)) * _C2) & _MASK


def _scramble_second(k: int) -> int:
    k = (k * _C2) & _MASK
    return (((k << 33) | (k >> 31)) * _C1) & _MASK


def _signed_tail(tail: bytes) -> int:
    """Return up to 8 tail bytes as a word, little-endian, each byte sign-extended before it is xor-ed in."""
    word = 0
    for at, byte in enumerate(tail):
        # This is where Cassandra differs from the reference Murmur3: Java bytes are signed.
        word ^= (byte - 256 if byte > 127 else byte) << (8 * at)
    return word & _MASK


# Each write to a table with CDC asks for its token, and workloads come back to the same keys.
@functools.lru_cache(maxsize=16384)
def murmur3_token(key: bytes) -> int:
    """Return the token of a partition key in its byte form: a signed 64-bit number.

    The smallest value is kept for the ring's lower end: an empty key has it, and a key that hashes to it gets the
    largest token instead. Source: Scylla ``dht/murmur3_partitioner.cc`` and ``utils/murmur_hash.hh``.

    >>> murmur3_token(b"123")
    -7468325962851647638
    """
    length = len(key)
    if not length:
        return MIN_TOKEN
    h1 = h2 = 0
    whole = length & ~15
    for k1, k2 in _BLOCK.iter_unpack(memoryview(key)[:whole]):
        h1 ^= _scramble_first(k1)
        h1 = ((h1 << 27) | (h1 >> 37)) & _MASK
        h1 = ((h1 + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _scramble_second(k2)
        h2 = ((h2 << 31) | (h2 >> 33)) & _MASK
        h2 = ((h2 + h1) * 5 + 0x38495AB5) & _MASK
    if whole != length:
        h2 ^= _scramble_second(_signed_tail(key[whole + 8 :]))
        h1 ^= _scramble_first(_signed_tail(key[whole : whole + 8]))
    h1 ^= length
    h2 ^= length
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1 = (_mix(h1) + _mix(h2)) & _MASK
    token = h1 - (1 << 64) if h1 >> 63 else h1
    return _MAX_TOKEN if token == MIN_TOKEN else token


def key_bytes(parts: Key) -> bytes:
    """Return the partition key as one byte string: the part itself, or Cassandra's composite of several parts."""
    if len(parts) == 1:
        return parts[0]
    return b"".join(len(p).to_bytes(2, "big") + p + b"\x00" for p in parts)


def log_token(parts: Key) -> int:
    """Return the CDC partitioner's token: the first 8 bytes of a 16-byte stream id, else the minimum token."""
    return int(_LONG.unpack_from(parts[0])[0]) if len(parts[0]) == 16 else MIN_TOKEN


def table_token(table: TableSchema) -> Callable[[Key], int]:
    """Return the partitioner of a table: the CDC one for logs, else Murmur3 of the whole key."""
    # A log row has to lie beside the base row, so its token is part of the stream id and not a hash of it.
    return log_token if table.is_cdc_log else lambda key: murmur3_token(key_bytes(key))
