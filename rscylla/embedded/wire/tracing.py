"""Requests with the tracing flag: what is noted of them, and the answer that carries the trace's id."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Final

import attrs

from ..errors import consistency_name
from ..result import Prepared, QueryParams, Trace
from .frame import HEADER, HEADER_SIZE, Flag, Opcode

__all__ = ["TRACED", "Tracing"]

TRACED: Final = {
    Opcode.QUERY: "Execute CQL3 query",
    Opcode.EXECUTE: "Execute CQL3 prepared query",
    Opcode.BATCH: "Execute batch of CQL3 queries",
    Opcode.PREPARE: "Preparing CQL3 query",
}
"""The requests that are traced, by opcode."""


@attrs.define
class Tracing:
    """The trace of one request, from its frame to its answer."""

    id: uuid.UUID
    _request: str
    _client: str
    _user: str
    _coordinator: str
    _shard: int
    _parameters: dict[str, str] = attrs.field(factory=dict, init=False)
    _started: float = attrs.field(factory=time.perf_counter, init=False)

    def describe(self, items: Sequence[Prepared | str], params: QueryParams | None) -> None:
        """Note the statements of the request and how it asks for them."""
        texts = [item if isinstance(item, str) else item.text for item in items]
        names = ["query"] if len(texts) == 1 else [f"query[{at}]" for at in range(len(texts))]
        self._parameters |= dict(zip(names, texts, strict=True))
        if params is not None:
            self._parameters["consistency_level"] = consistency_name(params.consistency)
            if params.serial_consistency is not None:
                self._parameters["serial_consistency_level"] = consistency_name(params.serial_consistency)
            if params.page_size is not None:
                self._parameters["page_size"] = str(params.page_size)

    def marked(self, head: bytes) -> bytes:
        """Return the start of an answer's frame with the flag and the id in it."""
        version, flags, stream, opcode, size = HEADER.unpack_from(head)
        marked = HEADER.pack(version, flags | Flag.TRACING, stream, opcode, size + 16)
        return marked + self.id.bytes + head[HEADER_SIZE:]

    def finished(self) -> Trace:
        """Return what the tables of traces show."""
        duration_us = int((time.perf_counter() - self._started) * 1_000_000)
        place = (self._client, self._user, self._coordinator, self._shard)
        return Trace(self.id, self._request, self._parameters, *place, duration_us)
