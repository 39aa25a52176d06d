"""Carries out what `Faults` asks for, on the loop's thread: rules go to the board, nodes stop or stall."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..clock import checked_seconds
from ..cluster.node import Node
from ..cluster.topology import Cluster
from ..errors import EmbeddedScyllaError
from ..faults.board import FaultBoard, delay_seconds
from ..wire.interfaces import Ports
from ..wire.server import Server

__all__ = ["FaultControl"]


class FaultControl:
    """The faults of one cluster. ``ports`` tells where its nodes listen. Everything runs on the loop's thread."""

    def __init__(self, cluster: Cluster, server: Server, board: FaultBoard, ports: Callable[[], Ports]) -> None:
        self._cluster = cluster
        self._server = server
        self._board = board
        self._ports = ports

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Do what the method *name* of `Faults` sends. Raises what `Faults` says."""
        match name:
            case "add":
                if arguments["on"]["node"] is not None:
                    self._cluster.node_at(arguments["on"]["node"])
                return self._board.add(**arguments)
            case "hits":
                return self._board.hits(arguments["number"])
            case "remove":
                return self._board.remove(arguments["number"])
            case "deliver_held":
                return self._board.deliver_held()
            case "clear":
                return await self._clear()
        node = self._cluster.node_at(arguments["address"])
        match name:
            case "stop_node":
                await self._stop(node)
            case "start_node":
                await self._start(node)
            case "stall_node":
                self._server.pace(node.index, held=True)
            case "slow_node":
                self._server.pace(node.index, held=False, delay_s=delay_seconds(arguments))
            case "resume_node":
                self._server.pace(node.index, held=False)
            case "skew_clock":
                skew_s = checked_seconds(arguments["skew_us"], 1e-6, "skew_us")
                node.clock.skew_us = round(skew_s * 1e6)
            case _:
                raise ValueError(f"no fault is called {name!r}")
        return None

    async def _stop(self, node: Node) -> None:
        if self._server.listens(node.index):
            await self._server.stop_accepting(node.index)
            self._server.hang_up(node.index)
            self._server.announce_status("DOWN", node, self._ports().cql)

    async def _start(self, node: Node) -> None:
        if self._server.listens(node.index):
            return
        try:
            await self._server.listen(node, self._ports())
        except OSError as error:
            raise EmbeddedScyllaError(
                f"node {node.address} cannot listen again: {error.strerror}; free that port"
            ) from error
        self._server.announce_status("UP", node, self._ports().cql)

    async def _clear(self) -> None:
        self._board.clear()
        for node in list(self._cluster.nodes):
            node.clock.skew_us = 0
            self._server.pace(node.index, held=False)
            await self._start(node)
        # Last, as it raises for a write whose table is gone; all else is as it was by then.
        self._board.deliver_held()
