"""The server on its sockets: one asyncio loop, one listener per node, one `Connection` per client socket.

Everything here runs on the loop's thread, and so does the engine.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..clock import Clock
from ..cluster.node import Node
from ..faults.board import FaultBoard
from ..result import SchemaChange
from . import answer
from .accepting import let_loop_run, stop_accepting
from .connection import Connection
from .frame import SUPPORTED_VERSIONS
from .interfaces import EngineLike, Ports, WireOptions
from .transport import ClientSocket, Listener, Shared

__all__ = ["Server"]

_HANDSHAKE_S: Final = 10.0  # how long a client may take for the TLS handshake
_GREETING_S: Final = 30.0  # the least that it may take until READY
_GOODBYE_S: Final = 2.0  # how long it may take to end TLS before the socket is cut


class Server(Shared):
    """All nodes of one cluster on one event loop. Every method must be called on that loop's thread."""

    def __init__(
        self, engine: EngineLike, options: WireOptions, faults: FaultBoard | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(engine, options, faults, clock)
        self._next_look: asyncio.TimerHandle | None = None
        # By the engine, not by the connection: what the owner changes without a client is announced as well.
        engine.schema_listeners.append(self._on_schema_change)

    async def listen(self, node: Node, ports: Ports) -> Ports:
        """Open a node's sockets and return their ports. Raises OSError, and opens none, if one is taken."""
        listener = Listener(node, shard_loads=[0] * node.shards)
        try:
            cql = await self._open(listener, ports.cql)
            chosen = None if ports.shard_aware is None else await self._open_by_port(listener, ports)
        except OSError:
            for opened in listener.sockets:
                opened.close()
            raise
        listener.ports = Ports(cql, chosen)
        self.listeners[node.index] = listener
        if self._next_look is None:
            self._look_later()
        return listener.ports

    def _look_later(self) -> None:
        # By the machine's clock: a client must not be cut because a test moves the server's.
        self._next_look = asyncio.get_running_loop().call_later(_GREETING_S, self._look_at_greeting)

    def _look_at_greeting(self) -> None:
        """Cut the clients that two looks in a row find not logged in, though no node owes them an answer."""
        for client, was_found in list(self.greeting.items()):
            if was_found and not client.is_held_up:
                client.give_way()
            else:
                self.greeting[client] = True
        self._look_later()

    async def _open_by_port(self, listener: Listener, ports: Ports) -> int:
        try:
            return await self._open(listener, ports.shard_aware or 0, by_port=True)
        except OSError as error:
            if ports.shard_aware_is_fixed or error.errno != errno.EADDRINUSE:
                raise
            return await self._open(listener, 0, by_port=True)

    async def _open(self, listener: Listener, port: int, *, by_port: bool = False) -> int:
        tls = self.options.tls
        opened = await asyncio.get_running_loop().create_server(
            lambda: Connection(self, listener, shard_by_port=by_port),
            listener.node.address,
            port,
            backlog=512,
            ssl=tls,
            ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
            ssl_shutdown_timeout=_GOODBYE_S if tls else None,
        )
        listener.sockets.append(opened)
        return int(opened.sockets[0].getsockname()[1])

    def hang_up(self, node_index: int) -> None:
        """Close a node's sockets and cut its clients. A node that is not listening is left as it is."""
        listener = self.listeners.pop(node_index, None)
        if listener is None:
            return
        # Before the sockets go: a client that is being accepted meanwhile sees it in connection_made.
        listener.closed = True
        for opened in listener.sockets:
            opened.close()
        # A copy, as each abort takes its connection out of the set.
        for connection in list(listener.connections):
            connection.abort()

    def listens(self, node_index: int) -> bool:
        """Return whether a node's sockets are open."""
        return node_index in self.listeners

    def listener(self, node_index: int) -> Listener | None:
        """Return a node's sockets and clients; None if it does not listen."""
        return self.listeners.get(node_index)

    def clients(self, node_index: int) -> list[dict[str, Any]]:
        """Return a node's clients as rows of ``system.clients``, by address and port."""
        listener = self.listeners.get(node_index)
        rows = [] if listener is None else [connection.as_row() for connection in listener.connections]
        return sorted(rows, key=lambda row: (row["address"], row["port"]))

    def listen_addresses(self, node_index: int) -> list[str]:
        """Return where a node listens, as addresses with ports; nothing if it does not."""
        listener = self.listeners.get(node_index)
        ports = () if listener is None else (listener.ports.cql, listener.ports.shard_aware)
        return [f"{listener.node.address}:{port}" for port in ports if listener is not None and port is not None]

    def pace(self, node_index: int, *, held: bool, delay_s: float = 0.0) -> None:
        """Let a node answer nothing for now, or late, or as usual. A node that is not listening is left as it is."""
        listener = self.listeners.get(node_index)
        if listener is None:
            return
        listener.held, listener.delay_s = held, delay_s
        if not held:
            for connection in list(listener.connections):
                connection.go_on()

    async def stop_accepting(self, node_index: int) -> None:
        """Let no more clients in, and those that were just being let in become connections."""
        listener = self.listeners.get(node_index)
        if listener is not None:
            await stop_accepting(listener.sockets)

    async def close_all(self) -> None:
        """Hang up all nodes; no socket is left open when this returns."""
        for index in list(self.listeners):
            await self.stop_accepting(index)
        self.close()
        await let_loop_run()

    def close(self) -> None:
        """Hang up all nodes."""
        for index in list(self.listeners):
            self.hang_up(index)
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None

    def announce_topology(self, change: str, node: Node, port: int) -> None:
        """Push TOPOLOGY_CHANGE to every client that asked for it; ``change`` is NEW_NODE or REMOVED_NODE."""
        self._push("TOPOLOGY_CHANGE", lambda version: answer.topology_event(version, change, node.address, port))

    def announce_status(self, change: str, node: Node, port: int) -> None:
        """Push STATUS_CHANGE to every client that asked for it; ``change`` is UP or DOWN."""
        self._push("STATUS_CHANGE", lambda version: answer.status_event(version, change, node.address, port))

    def _on_schema_change(self, change: SchemaChange) -> None:
        self._push("SCHEMA_CHANGE", lambda version: answer.schema_event(version, change))

    def _push(self, kind: str, encode: Callable[[int], bytes]) -> None:
        clients = [
            connection
            for listener in self.listeners.values()
            for connection in listener.connections
            if kind in connection.event_kinds
        ]
        if not clients:
            return
        # Once for each version, not once for each client: an event may go to thousands of connections.
        frames = {version: encode(version) for version in SUPPORTED_VERSIONS}
        # Later, not now: the request that caused the event is answered first.
        asyncio.get_running_loop().call_soon(_deliver, clients, frames)


def _deliver(clients: Sequence[ClientSocket], frames: Mapping[int, bytes]) -> None:
    for client in clients:
        client.push(frames[client.version])
