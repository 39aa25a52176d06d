"""The bits of a CDC stream id.

Layout, big-endian: 8 bytes signed token; then an unsigned 64-bit value of which bits 0-3 are the version, bits 4-25 the
index of the vnode, the rest random. Source: Scylla ``cdc/generation.cc``.
"""

from __future__ import annotations

__all__ = ["token_of", "vnode_of"]


def token_of(stream_id: bytes) -> int:
    """Return the token, a signed 64-bit integer."""
    return int.from_bytes(stream_id[:8], "big", signed=True)


def vnode_of(stream_id: bytes) -> int | None:
    """Return the rank of the vnode that owns the stream, or None for ids made before they carried one."""
    low = int.from_bytes(stream_id[8:], "big")
    if low & 0xF != 1:
        return None
    return (low >> 4) & 0x3FFFFF
