"""``bootstrap``: starts a new consumer at the head, and at the same head if it restarts before its first event."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

import attrs

from ...abc import ChunkClient, CursorStore, StreamClient, flush_cursor
from ...clock import Stop
from ...errors import ConfigError, MissingLag
from ...options import StreamOption, resolve
from ..spec import Spec

__all__ = ["bootstrap"]

logger = logging.getLogger("rscylla.reflex")


@runtime_checkable
class Headed(Protocol):
    """A stream that can return its head as a cursor, as ``rscylla.Stream`` can."""

    def head_cursor(self, lag: timedelta) -> str:
        """Return the cursor of the point *lag* ago."""


class _FromHead:
    """Opens the stream inside at its head if the consumer has no cursor yet; passes all other attributes through."""

    def __init__(self, stream: Headed, store: CursorStore, name: str) -> None:
        self._stream: Any = stream
        self._store = store
        self._name = name

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient | ChunkClient:
        chosen = resolve(options)
        if not after and not self._was_reset():
            after = self._begin(chosen.lag)
        client: StreamClient | ChunkClient = self._stream(after, *options, stop=stop)
        return client

    def _begin(self, lag: timedelta | None) -> str:
        """Save the head durably. Return the saved cursor, which another process may have moved since."""
        if lag is None and getattr(self._stream, "supports_lag", False):
            raise MissingLag(f'consumer "{self._name}"')
        head: str = self._stream.head_cursor(lag or timedelta())
        # Durable before the stream opens: a run that ends before its first event must not start at a newer head.
        self._store.set_cursor(self._name, head)
        flush_cursor(self._store, self._name)
        logger.info('consumer "%s" is new and starts at the head', self._name)
        return self._store.get_cursor(self._name)

    def _was_reset(self) -> bool:
        """Return whether the cursor is empty because it was reset to the oldest event."""
        find = getattr(self._store, "find_cursor", None)
        return find is not None and find(self._name) is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def bootstrap(spec: Spec) -> Spec:
    """Return *spec*, changed so that it starts at the head (now minus the lag) if its consumer has no cursor yet.

    The head is saved and flushed before the stream opens. If a run ends before its first event, the next run therefore
    starts at the same position, and nothing between them is lost. A consumer with a cursor continues from it. If a
    cursor was reset to the oldest event, its consumer starts there, provided that the store has ``find_cursor``.

    Raises:
        ConfigError: the stream has no ``head_cursor``, which streams of ``rscylla.NewStream`` have; or the spec has
            ``StreamFromHead``, which would skip to the head at each restart.
    """
    if not isinstance(spec.stream, Headed):
        raise ConfigError(f'consumer "{spec.name}": the stream has no head_cursor(lag), so it cannot start at its head')
    if spec.stream_options.from_head:
        raise ConfigError(
            f'consumer "{spec.name}": StreamFromHead skips the changes between two runs; omit it: bootstrap '
            "starts a new consumer at the head"
        )
    return attrs.evolve(spec, stream=_FromHead(spec.stream, spec.store, spec.name))
