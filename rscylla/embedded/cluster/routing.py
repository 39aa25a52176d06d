"""Which nodes and shards hold a tablet, and how a client that asked another one is told: ``tablets-routing-v1``.

Nothing is stored by node or shard here; the places only have to be such that clients find each node and shard in use.
Source: Scylla ``docs/dev/protocol-extensions.md``, ``locator/tablets.cc``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..storage.tokens import MIN_TOKEN
from .node import Node

__all__ = ["Routes", "Tablet", "tablet_at"]

_TOKENS: Final = 1 << 64
_LONGS: Final = struct.Struct(">iqiq")
_TWO_INTS: Final = struct.Struct(">ii")
_REPLICA: Final = struct.Struct(">ii16sii")  # its size, then host id and shard, each with its own size


@attrs.frozen
class Tablet:
    """The tokens ``(first, last]`` of a table and its replicas: host id and shard."""

    first: int
    last: int
    replicas: tuple[tuple[uuid.UUID, int], ...]

    def payload(self) -> bytes:
        """Return the value of type ``tuple<bigint, bigint, list<tuple<uuid, int>>>``."""
        replicas = b"".join(_REPLICA.pack(28, 16, host.bytes, 4, shard) for host, shard in self.replicas)
        size = _TWO_INTS.pack(4 + len(replicas), len(self.replicas))
        return _LONGS.pack(8, self.first, 8, self.last) + size + replicas


def tablet_at(token: int, count: int, nodes: Sequence[Node], replication: Mapping[str, Any]) -> Tablet:
    """Return the tablet, of *count* equal ones, that holds *token*; *replication* has a factor for each datacenter."""
    size = _TOKENS // count
    at = (token - MIN_TOKEN) // size
    replicas: list[tuple[uuid.UUID, int]] = []
    for dc in dict.fromkeys(node.dc for node in nodes):
        replicas += _replicas(at, [node for node in nodes if node.dc == dc], replication.get(dc, 0))
    # The first tablet begins at the smallest token, which no key has, and not before it.
    return Tablet(max(MIN_TOKEN + at * size - 1, MIN_TOKEN), MIN_TOKEN + (at + 1) * size - 1, tuple(replicas))


def _replicas(at: int, nodes: Sequence[Node], factor: Any) -> Iterable[tuple[uuid.UUID, int]]:
    # A factor may also be a list of racks.
    most = len(factor) if isinstance(factor, list | tuple) else int(factor)
    for copy in range(min(most, len(nodes))):
        node = nodes[(at + copy) % len(nodes)]
        yield node.host_id, at // len(nodes) % node.shards


class Routes:
    """What clients are told of one table's tablets; each is worked out when it is first asked for.

    The arguments are those of `tablet_at`.
    """

    def __init__(self, count: int, nodes: tuple[Node, ...], replication: Mapping[str, Any]) -> None:
        self._made_of = (count, nodes, replication)
        self._size = _TOKENS // count
        self._known: dict[int, tuple[frozenset[tuple[int, int]], bytes]] = {}

    def payload(self, token: int, node: int, shard: int) -> bytes | None:
        """Return the tablet of *token* for a client that asked a shard of the node with this index.

        None if that was right, or if there is no replica.
        """
        at = (token - MIN_TOKEN) // self._size
        known = self._known.get(at)
        if known is None:
            tablet = tablet_at(token, *self._made_of)
            indexes = {member.host_id: member.index for member in self._made_of[1]}
            places = frozenset((indexes[host], its) for host, its in tablet.replicas)
            known = self._known[at] = (places, tablet.payload())
        places, payload = known
        return None if (node, shard) in places or not places else payload
