"""Nodes, their tokens, and the CDC generations that follow when nodes come.

Owned by the server's loop thread; nothing here locks.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..clock import Clock, NodeClock, SystemClock
from ..errors import EmbeddedScyllaError, InvalidRequest, ServerError
from ..schema.tables import Keyspace, TableSchema
from ..storage.tokens import MIN_TOKEN
from ..versions import Release, Version
from .descriptions import Descriptions, Rewriting
from .generation import Generation, StreamRange, make_generation
from .node import Node
from .routing import Routes, Tablet, tablet_at
from .tablets import TabletStreams, last_tokens
from .timewindow import LEEWAY_US, moment, window_message

__all__ = ["Cluster"]

_MAX_NODES: Final = 254  # addresses 127.0.0.1 to 127.0.0.254


class Cluster:
    """The ring and its generations.

    Args:
        nodes: How many nodes it starts with, 1 or more.
        shards: Shards (and so CDC streams for each vnode) of a node.
        vnodes: Tokens of a node.
        seed: Makes host ids, tokens and stream ids repeatable; None draws them fresh.
        clock: What nodes tell the time from.
        ring_delay_ms: A new generation starts twice this and five seconds after it is made.
        tablets: Whether new keyspaces use tablets unless they say otherwise; None for the default of the release.
        version: The release that is imitated; see `Release`.

    ``nodes`` are the present members in order of joining; ``generations`` ascend by time. ``tablets`` has the stream
    sets of tables in tablets keyspaces, ``descriptions`` tells which tables list the generations.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        shards: int = 2,
        vnodes: int = 8,
        seed: int | None = None,
        clock: Clock | None = None,
        ring_delay_ms: int = 30_000,
        dc: str = "datacenter1",
        rack: str = "rack1",
        name: str = "embedded",
        tablets: bool | None = None,
        version: Version | None = None,
    ) -> None:
        for what, value in (("nodes", nodes), ("shards", shards), ("vnodes", vnodes)):
            if value < 1:
                raise ValueError(f"{what} must be 1 or more, not {value}")
        if ring_delay_ms < 0:
            raise ValueError(f"ring_delay_ms must not be negative, but is {ring_delay_ms}")
        self.name = name
        self.clock: Clock = clock or SystemClock()
        self.shards = shards
        self.vnodes = vnodes
        self.ring_delay_ms = ring_delay_ms
        self.dc = dc
        self.rack = rack
        self.nodes: list[Node] = []
        self.generations: list[Generation] = []
        self.listeners: list[Callable[[], None]] = []  # called after each change
        self._random = random.Random(seed)
        self._joined = 0
        self._tokens: set[int] = set()
        self._routes: dict[tuple[str, str], tuple[Any, Routes]] = {}
        self.descriptions = Descriptions(version)
        if tablets and not self.release.has("tablets"):
            raise ValueError(f"Scylla {version} has no tablets; leave out one of the two")
        self._prefers_tablets = tablets
        self._wanted = version
        self.tablets = TabletStreams(
            ring_delay_ms=ring_delay_ms,
            shards=lambda: sum(node.shards for node in self.nodes),
            random_bits=lambda: self._random.getrandbits(64),
            changed=self._notify,
        )
        for _ in range(nodes):
            self._join(shards)
        # In force at once: in a new cluster there is nobody who could still write to another one.
        self._publish(self.clock.now_us() // 1000)

    @property
    def release(self) -> Release:
        """The release that is imitated; an upgrade changes it."""
        return self.descriptions.release

    @property
    def tablets_by_default(self) -> bool:
        """Whether new keyspaces use tablets unless they say otherwise."""
        return self.release.prefers_tablets if self._prefers_tablets is None else self._prefers_tablets

    def racks(self) -> dict[str, set[str]]:
        """Return the racks of each datacenter."""
        return {dc: {n.rack for n in self.nodes if n.dc == dc} for dc in {n.dc for n in self.nodes}}

    def owners(self, dc: str) -> int:
        """Return the number of nodes in a datacenter."""
        return sum(node.dc == dc for node in self.nodes)

    def node(self, index: int) -> Node:
        """Return the member with this index. KeyError when it never was or has left."""
        for node in self.nodes:
            if node.index == index:
                return node
        raise KeyError(f"there is no node {index} in the cluster")

    def node_at(self, address: str) -> Node:
        """Return the member with this address. EmbeddedScyllaError when there is none."""
        for node in self.nodes:
            if node.address == address:
                return node
        addresses = ", ".join(node.address for node in self.nodes)
        raise EmbeddedScyllaError(f"no node has the address {address}; the nodes are {addresses}")

    def add_node(self, delay_ms: int | None = None, *, shards: int | None = None) -> Node:
        """Let a node join now, and make the generation that contains it; return the node.

        Args:
            delay_ms: When the generation starts, from now; None is Scylla's ``2 * ring_delay + 5 s``. With less than
                5000, writes that were stamped ahead of the server's clock may already lie behind the new start.
            shards: Shards of this node; None is the cluster's number.

        Raises:
            ValueError: The generation would not start after all others. The cluster is then unchanged.
        """
        # Before the node joins: a delay that is refused must leave the cluster as it is.
        time_ms = self._start_of_next(delay_ms)
        node = self._join(self.shards if shards is None else shards)
        self._publish(time_ms)
        return node

    def remove_node(self, index: int) -> Node:
        """Let a node leave now; return it. As in Scylla, its streams stay in use: no generation is made.

        Raises KeyError for an unknown node and ValueError for the last one.
        """
        node = self.node(index)
        if len(self.nodes) == 1:
            raise ValueError("the last node of a cluster cannot be removed")
        self.nodes.remove(node)
        self._tokens.difference_update(node.tokens)
        self._notify()
        return node

    def new_generation(self, delay_ms: int | None = None) -> Generation:
        """Make a generation for the present ring, as ``nodetool checkAndRepairCdcStreams`` does; see ``add_node``."""
        return self._publish(self._start_of_next(delay_ms))

    def upgrade(self, rewriting: Rewriting = "done") -> None:
        """Go from 4.3 to 4.4. Raises ValueError when this is not 4.3."""
        self.descriptions.upgrade([generation.time_ms for generation in self.generations], rewriting)
        self._notify()

    def finish_rewriting(self) -> None:
        """Copy the generations that an upgrade has held back. Raises ValueError when there are none."""
        self.descriptions.rewrite([generation.time_ms for generation in self.generations])
        self._notify()

    def stream_for(self, table: TableSchema | None, token: int, timestamp_us: int, now_us: int) -> bytes:
        """Return the stream id for a write to a base partition.

        Args:
            table: The base table. All tables of vnode keyspaces share their streams; None stands for any of them.
            token: Token of the base partition key.
            timestamp_us: The record's timestamp.
            now_us: The coordinating node's clock.

        Raises:
            InvalidRequest: The timestamp is more than 5 s ahead, or in a past that CDC does not accept any more.
            ServerError: No generation covers the timestamp.

        Source: Scylla ``cdc/metadata.cc`` get_vnode_stream, get_tablet_stream.
        """
        own = None if table is None else self.tablets.of(table.keyspace, table.name)
        if own is not None:
            self.tablets.collect(self.clock.now_us())
            return own.stream_for(token, timestamp_us, now_us)
        if timestamp_us > now_us + LEEWAY_US:
            raise InvalidRequest(window_message("future", timestamp_us, now_us))
        settled_us = now_us - LEEWAY_US
        generations = self.generations
        # Nearly always the newest generation has long been in use, and then it decides alone.
        newest = generations[-1]
        if newest.time_us <= min(settled_us, timestamp_us):
            return newest.stream_of(token)
        if not self.release.has("writes into the generation before"):
            settled_us = now_us
        settled = self._index_at(settled_us)
        if timestamp_us <= settled_us:
            # Older than the leeway: only for the generation that was in use then, and only while it is the current one.
            # Readers leave a generation's streams behind once it has ended.
            if settled < 0 or timestamp_us < generations[settled].time_us:
                raise InvalidRequest(window_message("past", timestamp_us, now_us))
            if settled + 1 < len(generations) and generations[settled + 1].time_us <= now_us:
                raise InvalidRequest(window_message("past", timestamp_us, now_us))
            return generations[settled].stream_of(token)
        # Within the leeway the generation just ended takes writes as well, by their timestamps.
        used = self._index_at(timestamp_us)
        if used < 0:
            raise ServerError(
                "cdc::metadata::get_stream: could not find any CDC stream for timestamp "
                f"{moment(timestamp_us)}. Are we in the middle of a cluster upgrade?"
            )
        return generations[used].stream_of(token)

    def routing(self, keyspace: Keyspace, table: TableSchema, token: int, node: int, shard: int) -> bytes | None:
        """Return where the tablet of a token is, for a client that asked another node or shard; None if it was right.

        The value is that of ``tablets-routing-v1``. The table's keyspace must have tablets.
        """
        place = (table.keyspace, table.name)
        nodes, replication = tuple(self.nodes), keyspace.options["replication"]
        # To count the tablets takes longer than a write; whatever the count depends on is in here.
        state = (table, keyspace.tablets, self.tablets.version, nodes, replication)
        known = self._routes.get(place)
        if known is None or known[0] != state:
            routes = Routes(self.tablets.count(keyspace, table), nodes, replication)
            known = self._routes[place] = (state, routes)
        return known[1].payload(token, node, shard)

    def table_dropped(self, table: TableSchema) -> None:
        """Forget a table that was dropped: where its tablets are, and its stream sets, as `TabletStreams` says."""
        self._routes.pop((table.keyspace, table.name), None)
        self.tablets.table_dropped(table)

    def tablets_of(self, keyspace: Keyspace, table: TableSchema) -> list[Tablet]:
        """Return the tablets of a table in a tablets keyspace, in the order of their tokens."""
        ends = last_tokens(self.tablets.count(keyspace, table))
        return [tablet_at(end, len(ends), self.nodes, keyspace.options["replication"]) for end in ends]

    def vnode_owners(self, keyspace: Keyspace) -> list[tuple[int, list[Node]]]:
        """Return the last token of each vnode, ascending, and the nodes that keep it in a keyspace of vnodes."""
        ring = sorted((token, each.index) for each in self.nodes for token in each.tokens)
        replication = keyspace.options["replication"]
        factors = [int(factor) for name, factor in replication.items() if name != "class"]
        wanted = min(sum(factors) if factors else len(self.nodes), len(self.nodes))
        owners: list[tuple[int, list[Node]]] = []
        for at, (token, _) in enumerate(ring):
            # The first distinct nodes clockwise.
            indexes = [*dict.fromkeys(index for _, index in (*ring[at:], *ring[:at]))][:wanted]
            owners.append((token, [self.node(index) for index in indexes]))
        return owners

    def _index_at(self, timestamp_us: int) -> int:
        """Return the position of the generation in use at ``timestamp_us``, -1 before the first."""
        at = len(self.generations) - 1
        # From the end: nearly every write belongs to the newest generation or the one before.
        while at >= 0 and self.generations[at].time_us > timestamp_us:
            at -= 1
        return at

    def _start_of_next(self, delay_ms: int | None) -> int:
        now_ms = self.clock.now_us() // 1000
        last_ms = self.generations[-1].time_ms
        if delay_ms is None:
            return max(now_ms + 2 * self.ring_delay_ms + LEEWAY_US // 1000, last_ms + 1)
        if delay_ms < 0:
            raise ValueError(f"a generation cannot start in the past; the delay is {delay_ms} ms")
        # At least the next millisecond: records of the present one are already in the old streams.
        start_ms = max(now_ms + delay_ms, now_ms + 1)
        if start_ms <= last_ms:
            raise ValueError(
                f"a generation that starts in {delay_ms} ms would come before the one that starts in "
                f"{last_ms - now_ms} ms; give a longer delay"
            )
        return start_ms

    def _publish(self, time_ms: int) -> Generation:
        ring = [(token, node) for node in self.nodes for token in node.tokens]
        generation = make_generation(time_ms, ring, lambda: self._random.getrandbits(64))
        self.generations.append(generation)
        self.descriptions.publish(time_ms)
        self._notify()
        return generation

    def check_restored(self, place: str) -> None:
        """Refuse a restored cluster that is another one than this was to be. *place* is where its state was kept.

        A 4.3 that was upgraded still counts as 4.3. Raises EmbeddedScyllaError.
        """
        wanted, release = self._wanted, self.release
        was_upgraded = wanted == "4.3" and self.descriptions.legacy is not None
        if wanted not in (None, release.name) and not was_upgraded:
            raise EmbeddedScyllaError(
                f"{place} has a cluster of version {release.name}, not {wanted}; leave out the version, or take another"
                " directory"
            )
        if self._prefers_tablets and not release.has("tablets"):
            raise EmbeddedScyllaError(
                f"{place} has a cluster of version {release.name}, which has no tablets; leave them out, or take"
                " another directory"
            )
        if wanted == release.name:
            self.descriptions.release = Release(wanted)  # with its defaults, also if the cluster began without them

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def state(self) -> dict[str, Any]:
        """Return the ring and its generations as plain values, for ``restore``; clocks are not part of it."""
        return {
            "shards": self.shards,
            "vnodes": self.vnodes,
            "random": self._random.getstate(),
            "joined": self._joined,
            "nodes": [
                (n.index, n.host_id.bytes, n.address, n.dc, n.rack, n.tokens, n.shards, n.ignore_msb)
                for n in self.nodes
            ],
            "generations": [
                (g.time_ms, [(e.range_end, e.streams, e.ignore_msb) for e in g.entries]) for g in self.generations
            ],
            "tablets": self.tablets.state(),
            "descriptions": self.descriptions.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the cluster that ``state`` was taken of. Listeners are not called."""
        self.shards, self.vnodes = state["shards"], state["vnodes"]
        # So that a seed gives the same ids whether or not the server was started anew.
        self._random.setstate(state["random"])
        self._joined = state["joined"]
        self.nodes[:] = [
            Node(index, uuid.UUID(bytes=host), address, dc, rack, tokens, shards, NodeClock(self.clock), ignore_msb)
            for index, host, address, dc, rack, tokens, shards, ignore_msb in state["nodes"]
        ]
        self.generations[:] = [
            Generation(time_ms, tuple(StreamRange(*entry) for entry in entries))
            for time_ms, entries in state["generations"]
        ]
        self._tokens = {token for node in self.nodes for token in node.tokens}
        self.tablets.restore(state["tablets"])
        self.descriptions.restore(state["descriptions"])

    def _join(self, shards: int) -> Node:
        if shards < 1:
            raise ValueError(f"shards must be 1 or more, not {shards}")
        if self._joined >= _MAX_NODES:
            raise ValueError(f"an embedded cluster has at most {_MAX_NODES} nodes over its life")
        node = Node(
            index=self._joined,
            host_id=uuid.UUID(int=self._random.getrandbits(128), version=4),
            address=f"127.0.0.{self._joined + 1}",
            dc=self.dc,
            rack=self.rack,
            tokens=tuple(sorted(self._new_token() for _ in range(self.vnodes))),
            shards=shards,
            clock=NodeClock(self.clock),
        )
        self._joined += 1
        self.nodes.append(node)
        return node

    def _new_token(self) -> int:
        while True:
            token = self._random.getrandbits(64) + MIN_TOKEN
            # The smallest token is the ring's lower end and no vnode's.
            if token != MIN_TOKEN and token not in self._tokens:
                self._tokens.add(token)
                return token
