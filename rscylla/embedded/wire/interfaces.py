"""What the wire asks of the engine, and what it is told by the server's owner."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs

from ..result import BindValue, Prepared, QueryParams, Result, SchemaChange, Trace
from .frame import Values

__all__ = ["EngineLike", "Ports", "WireOptions"]


class EngineLike(Protocol):
    """What the wire asks of the engine. Called on the loop's thread only; errors are `CqlError`."""

    schema_listeners: list[Callable[[SchemaChange], None]]

    def prepare(self, text: str, keyspace: str | None) -> Prepared: ...

    def get(self, statement_id: bytes) -> Prepared: ...

    def execute(self, prepared: Prepared, values: Values, params: QueryParams) -> Result: ...

    def query(self, text: str, values: Values, params: QueryParams) -> Result: ...

    def time_limit_us(self, item: Prepared | str, values: Values, params: QueryParams) -> int | None: ...

    def batch(
        self, kind: str, items: list[tuple[Prepared | str, Sequence[BindValue]]], params: QueryParams
    ) -> Result: ...

    def begin_trace(self) -> uuid.UUID: ...

    def end_trace(self, trace: Trace) -> None: ...


@attrs.frozen
class WireOptions:
    """How the wire behaves.

    ``users``: name to password; None lets everyone in. ``max_frame``: bytes of a request body. ``shard_aware``: tell
    clients about shards, as Scylla does. ``metadata_id``: offer SCYLLA_USE_METADATA_ID. ``compression``: compress
    answers to clients that agreed on it. Their requests may be compressed either way, where lz4 is installed: drivers
    complain about a server that offers nothing. ``offers``: whether an extension of the protocol is offered that not
    all releases have. ``tls``: speak TLS only. ``max_waiting``: bytes of all large requests
    that are on their way in at a time. ``max_connections``: of more clients, those that have not logged in give way,
    the oldest first.
    """

    users: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    max_frame: int = 256 * 1024 * 1024
    max_connections: int = 8192
    shard_aware: bool = True
    metadata_id: bool = True
    compression: bool = False
    tls: ssl.SSLContext | None = None
    max_waiting: int = 1024 * 1024 * 1024
    offers: Callable[[str], bool] = lambda _: True


@attrs.frozen
class Ports:
    """Where a node listens. On ``shard_aware``, None for no such port, a client's own port chooses its shard.

    The system chooses a port that is 0, and another ``shard_aware`` where that one is taken, unless it is fixed.
    """

    cql: int
    shard_aware: int | None = None
    shard_aware_is_fixed: bool = True
