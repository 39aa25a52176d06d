"""``NodeClocks``: the time on the nodes of the cluster."""

from __future__ import annotations

import copy
import logging
from typing import Self

from ...clock import Clock
from ...driver import ReadSession
from ...errors import QueryTimeout, SourceError
from .query import NODE_TIME_CQL

__all__ = ["NodeClocks"]

log = logging.getLogger("rscylla")

SAMPLE_TIMEOUT_S = 2.0
"""A node that takes longer to return its time is left out, because reading must not wait for a node that hangs.

An answer that this process gets later, because it was paused, does not say what time it is on the node.
"""


class NodeClocks:
    """The time on the nodes, sampled with ``now()`` on each. Thread-safe.

    A write without a client timestamp is stamped by its coordinator, so a node whose clock is behind writes rows that
    look old when they arrive. The slowest clock therefore decides how far windows may go.

    A node reads its clock at some time between the question and the answer, which are far apart where a node or this
    process is overloaded. The slowest clock counts as slow as an answer allows, and the fastest one as fast: a window
    that is closed too early loses rows, and one that is closed later loses nothing.

    Between samples, the client's monotonic clock measures the nodes' time: its wall clock may be set at any moment,
    and a step forward must not close windows that are still being written.
    """

    def __init__(self, session: ReadSession, clock: Clock, *, bound_us: int = 1_000_000) -> None:
        self._session = session
        self._clock = clock
        self._bound_us = bound_us
        self._warned: set[str] = set()
        self._base_us = 0  # the wall clock minus the monotonic one, as of the last sample
        # By address, node time minus monotonic time: at least, and at most.
        self._ahead_us: dict[str, tuple[int, int]] = {}
        self.skew_us: dict[str, int] = {}
        """By node address: node time minus client time, microseconds, as of the last sample."""

    def using(self, session: ReadSession) -> Self:
        """Return the same clocks, as they were sampled last; *session* is asked from now on."""
        same = copy.copy(self)
        same._session = session  # noqa: SLF001 - a copy of this object
        return same

    def sample(self) -> None:
        """Ask each node for its time. A node that does not answer keeps its last value. Blocks.

        If the driver considers all nodes down, all keep theirs, which are more accurate than the client's clock.
        """
        ahead: dict[str, tuple[int, int]] = {}
        base_us = self._base_us = self._clock.now_us() - self._monotonic_us()
        for host in self._session.hosts():
            address = str(host.endpoint)
            asked_us = self._monotonic_us()
            try:
                rows = self._session.rows(
                    NODE_TIME_CQL,
                    doing=f"asking node {address} for its time",
                    host=host,
                    timeout_s=SAMPLE_TIMEOUT_S,
                )
                answered_us = self._monotonic_us()
                if answered_us - asked_us > SAMPLE_TIMEOUT_S * 1e6:
                    raise QueryTimeout(f"node {address} returned its time too late")
            except SourceError as e:
                log.debug("%s", e)
                if address in self._ahead_us:
                    ahead[address] = self._ahead_us[address]
                continue
            ahead[address] = bounds = _bounds(rows[0][0] * 1000, asked_us, answered_us, base_us)
            self._report(address, _skew_us(bounds, base_us))
        if ahead:
            self._ahead_us = ahead
        self.skew_us = {address: _skew_us(bounds, base_us) for address, bounds in self._ahead_us.items()}

    def has_stepped(self) -> bool:
        """Return whether the client's wall clock was set, or the machine has slept, since the last sample."""
        return abs(self._clock.now_us() - self._monotonic_us() - self._base_us) > self._bound_us

    def slowest_us(self) -> int:
        """Return the lowest of the client's clock and all nodes', microseconds since the epoch."""
        return min(self._clock.now_us(), self.nodes_us())

    def nodes_us(self) -> int:
        """Return the lowest of the nodes' clocks; the client's while no node has answered."""
        ahead_us = self._ahead_us
        return self._monotonic_us() + min(least for least, _ in ahead_us.values()) if ahead_us else self._clock.now_us()

    def fastest_us(self) -> int:
        """Return the highest of the nodes' clocks; the client's while no node has answered."""
        ahead_us = self._ahead_us
        return self._monotonic_us() + max(most for _, most in ahead_us.values()) if ahead_us else self._clock.now_us()

    def _monotonic_us(self) -> int:
        return round(self._clock.monotonic() * 1e6)

    def _report(self, address: str, skew_us: int) -> None:
        if abs(skew_us) <= self._bound_us:
            self._warned.discard(address)
        elif address not in self._warned:
            self._warned.add(address)
            log.warning(
                "the clock of node %s is %+.3f s different from this machine's clock; check NTP, because rows may "
                "arrive late",
                address,
                skew_us / 1e6,
            )


def _bounds(node_us: int, asked_us: int, answered_us: int, base_us: int) -> tuple[int, int]:
    """Return how far a node is ahead of the monotonic clock, at least and at most.

    It truncates its time to milliseconds; what is lost so does not make it differ from this machine's clock.
    """
    least, most = node_us - answered_us, node_us + 999 - asked_us
    return (
        base_us if least <= base_us <= least + 999 else least,
        base_us if most - 999 <= base_us <= most else most,
    )


def _skew_us(ahead_us: tuple[int, int], base_us: int) -> int:
    """Return the least skew between the bounds of a node's clock: zero if the clocks may agree."""
    least, most = ahead_us
    return least - base_us if least > base_us else min(0, most - base_us)
