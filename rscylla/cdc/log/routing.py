"""Routing keys for reads of a log: how a driver that knows nothing of the CDC partitioner finds the owner of a stream.

The driver sends a request to the replicas, and to the shard, of the token to which its routing key hashes. It always
hashes with Murmur3, but the token of a stream is the first half of its id. Murmur3 of 16 bytes can be inverted, so each
token has routing keys that hash to it. The driver, and the load-balancing policy of the user, do the rest.

Source: MurmurHash3 x64 128 (public domain); Scylla ``cdc/cdc_partitioner.cc``. Pure.
"""

from __future__ import annotations

from ..._tokens import token_of

__all__ = ["routing_key_of"]

_SIZE = 16
_MASK = (1 << 64) - 1
_INVERSE_5 = pow(5, -1, 1 << 64)
_INVERSE_C1 = pow(0x87C37B91114253D5, -1, 1 << 64)
_INVERSE_C2 = pow(0x4CF5AD432745937F, -1, 1 << 64)
_INVERSE_F1 = pow(0xFF51AFD7ED558CCD, -1, 1 << 64)
_INVERSE_F2 = pow(0xC4CEB9FE1A85EC53, -1, 1 << 64)


def routing_key_of(stream_id: bytes) -> bytes:
    """Return a routing key, of 16 bytes, that the driver hashes to the token of the stream."""
    # The hash is the sum of two mixed halves; the second is chosen to be 0. Then each step is undone, last one first.
    first = _unmixed(token_of(stream_id) & _MASK)
    h2 = -first & _MASK
    h1 = (first - h2) & _MASK
    h1, h2 = h1 ^ _SIZE, h2 ^ _SIZE
    h2 = _rotated_right(((h2 - 0x38495AB5) * _INVERSE_5 - h1) & _MASK, 31)
    h1 = _rotated_right((h1 - 0x52DCE729) * _INVERSE_5 & _MASK, 27)
    k1 = _rotated_right(h1 * _INVERSE_C2 & _MASK, 31) * _INVERSE_C1 & _MASK
    k2 = _rotated_right(h2 * _INVERSE_C1 & _MASK, 33) * _INVERSE_C2 & _MASK
    return k1.to_bytes(8, "little") + k2.to_bytes(8, "little")


def _unmixed(value: int) -> int:
    """Undo the final mix of a half. Each of its shifts by 33 bits is its own inverse."""
    value ^= value >> 33
    value = value * _INVERSE_F2 & _MASK
    value ^= value >> 33
    value = value * _INVERSE_F1 & _MASK
    return value ^ value >> 33


def _rotated_right(value: int, bits: int) -> int:
    return (value >> bits | value << (64 - bits)) & _MASK
