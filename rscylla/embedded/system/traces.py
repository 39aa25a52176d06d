"""The tables of ``system_traces``: the last requests that clients asked to be traced."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from ..result import Trace
from ..types.timeuuid import TimeUuids, micros

__all__ = ["Traces"]

_MOST: Final = 256  # sessions; Scylla keeps a day of them
_ACTIVITIES: Final = ("Parsing a statement", "Processing a statement", "Done processing - preparing a result")


@attrs.define
class Traces:
    """Keeps the traces of the server; ``version`` changes with each. For the loop's thread."""

    _now_us: Callable[[], int]
    version: int = attrs.field(default=0, init=False)
    _kept: deque[tuple[Trace, list[uuid.UUID]]] = attrs.field(factory=lambda: deque(maxlen=_MOST), init=False)
    _ids: TimeUuids = attrs.field(factory=TimeUuids, init=False)

    def new_id(self) -> uuid.UUID:
        """Return a timeuuid of now."""
        return uuid.UUID(bytes=self._ids.next(self._now_us()))

    def add(self, trace: Trace) -> None:
        self._kept.append((trace, [self.new_id() for _ in _ACTIVITIES]))
        self.version += 1

    def sessions(self) -> Iterator[dict[str, Any]]:
        for trace, _ in self._kept:
            yield {
                "session_id": trace.id,
                "client": trace.client,
                "command": "QUERY",
                "coordinator": trace.coordinator,
                "duration": trace.duration_us,
                "parameters": trace.parameters,
                "request": trace.request,
                "started_at": micros(trace.id.bytes) // 1000,
                "username": trace.user,
            }

    def events(self) -> Iterator[dict[str, Any]]:
        for trace, ids in self._kept:
            for at, (identity, activity) in enumerate(zip(ids, _ACTIVITIES, strict=True)):
                yield {
                    "session_id": trace.id,
                    "event_id": identity,
                    "activity": activity,
                    "scylla_parent_id": 0,
                    "scylla_span_id": trace.id.int & 0x7FFF_FFFF_FFFF_FFFF,
                    "source": trace.coordinator,
                    "source_elapsed": trace.duration_us * at // (len(_ACTIVITIES) - 1),
                    "thread": f"shard {trace.shard}",
                }
