"""Driver sessions to an embedded cluster, and their end. The driver is imported when the first one is asked for."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .clock import Clock
from .wire.tls import Tls

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["Sessions", "Timestamps"]


_DRIVER_DEFAULT: Final = "127.0.0.1"  # the contact point of a Cluster that is given none


class Timestamps:
    """Write timestamps from a clock, microseconds, never the same twice: what the driver stamps its requests with."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            self._last_us = max(self._clock.now_us(), self._last_us + 1)
            return self._last_us


class Sessions:
    """Opens scylla-driver sessions to one address list, keeps them and closes them. Thread-safe.

    A driver's cluster holds its sessions by weak references, and one that is collected shuts itself down in the thread
    that happens to collect garbage. In the server's own thread that can wait, by a lock of the pool, for another thread
    that is connecting to this very server; so sessions are held here until they are closed.

    With a ``clock``, the driver stamps its writes by it: a cluster that lives in another time than the machine would
    refuse the machine's timestamps on CDC tables.
    """

    def __init__(self, users: Mapping[str, str] | None, tls: Tls | None, clock: Clock | None = None) -> None:
        self._users = users
        self._tls = tls
        self._clock = clock
        self._opened: list[Session] = []
        self._lock = threading.Lock()

    def connect(
        self, contact_points: Sequence[str], port: int, keyspace: str | None, options: Mapping[str, Any]
    ) -> Session:
        """Return a session. ``options`` are keyword arguments of ``cassandra.cluster.Cluster`` and win over ours.

        Without an ``auth_provider`` of the caller's, the first user logs in.
        Raises whatever the driver raises, e.g. ``NoHostAvailable``.
        """
        # The driver carries no types, hence Any; and importing it takes a moment that a server alone should not pay.
        driver: Any = importlib.import_module("cassandra.cluster")
        auth: Any = importlib.import_module("cassandra.auth")
        settings: dict[str, Any] = {
            "port": port,
            "protocol_version": 4,  # spares the driver a refused attempt with v5
            "compression": False,
            # A test that changes schema or topology should see it at once, not within the default's ten seconds.
            "schema_event_refresh_window": 0,
            "topology_event_refresh_window": 0,
            "status_event_refresh_window": 0,
        }
        if _DRIVER_DEFAULT not in contact_points:
            # Where its default will do, the driver is left with it: it warns about contact points that come without a
            # load balancing policy, and with one it would not let the caller set ``session.row_factory``.
            settings["contact_points"] = list(contact_points)
        if self._clock is not None:
            settings["timestamp_generator"] = Timestamps(self._clock)
        if self._tls is not None and "ssl_context" not in options:
            settings["ssl_context"] = self._tls.client_context()
        if self._users and "auth_provider" not in options:
            name, password = next(iter(self._users.items()))
            settings["auth_provider"] = auth.PlainTextAuthProvider(name, password)
        cluster = driver.Cluster(**{**settings, **options})
        try:
            session: Session = cluster.connect(keyspace)
        except BaseException:
            cluster.shutdown()
            raise
        with self._lock:
            self._opened.append(session)
        return session

    def close(self) -> None:
        """Shut down the cluster of every session that was opened here. Doing it twice is harmless."""
        with self._lock:
            opened, self._opened = self._opened, []
        for session in opened:
            session.cluster.shutdown()
