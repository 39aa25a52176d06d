"""Integers of variable length as the native protocol writes them inside durations and vectors."""

from __future__ import annotations

__all__ = ["pack_vint", "read_vint"]


def pack_vint(value: int) -> bytes:
    """Return an unsigned vint: the leading one bits of the first byte count the bytes that follow.

    Source: native protocol specification, [unsigned vint]. *value* is in [0, 2**64).
    """
    # Each byte that follows costs the first one a bit, so n bytes hold 7n bits; the ninth byte makes 64.
    extra = min((max(value.bit_length(), 1) - 1) // 7, 8)
    if extra == 8:
        return b"\xff" + value.to_bytes(8, "big")
    raw = bytearray(value.to_bytes(extra + 1, "big"))
    raw[0] |= (0xFF00 >> extra) & 0xFF
    return bytes(raw)


def read_vint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned vint at *at* and the position behind it. Raises ValueError if the data ends before."""
    if at >= len(data):
        raise ValueError("data ends before a vint")
    first = data[at]
    # The leading ones of the first byte are the leading zeros of its complement.
    extra = 8 - (first ^ 0xFF).bit_length()
    end = at + 1 + extra
    if end > len(data):
        raise ValueError("data ends inside a vint")
    head = first & (0xFF >> extra) if extra < 8 else 0
    return (head << (8 * extra)) | int.from_bytes(data[at + 1 : end], "big"), end
