"""Driver sessions to an embedded cluster, and their end. The driver is imported when the first one is asked for."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["Sessions"]


class Sessions:
    """Opens scylla-driver sessions to one address list, remembers their clusters and closes them. Thread-safe."""

    def __init__(self) -> None:
        self._clusters: list[Any] = []
        self._lock = threading.Lock()

    def connect(
        self,
        contact_points: Sequence[str],
        port: int,
        users: Mapping[str, str] | None,
        keyspace: str | None,
        options: Mapping[str, Any],
    ) -> Session:
        """Return a session. ``options`` are keyword arguments of ``cassandra.cluster.Cluster`` and win over ours.

        Without an ``auth_provider`` of the caller's, the first of ``users`` logs in.
        Raises whatever the driver raises, e.g. ``NoHostAvailable``.
        """
        # The driver carries no types, hence Any; and importing it takes a moment that a server alone should not pay.
        driver: Any = importlib.import_module("cassandra.cluster")
        auth: Any = importlib.import_module("cassandra.auth")
        settings: dict[str, Any] = {
            "contact_points": list(contact_points),
            "port": port,
            "protocol_version": 4,  # spares the driver a refused attempt with v5
            "compression": False,
            # A test that changes schema or topology should see it at once, not within the default's ten seconds.
            "schema_event_refresh_window": 0,
            "topology_event_refresh_window": 0,
            "status_event_refresh_window": 0,
        }
        if users and "auth_provider" not in options:
            name, password = next(iter(users.items()))
            settings["auth_provider"] = auth.PlainTextAuthProvider(name, password)
        cluster = driver.Cluster(**{**settings, **options})
        try:
            session: Session = cluster.connect(keyspace)
        except BaseException:
            cluster.shutdown()
            raise
        with self._lock:
            self._clusters.append(cluster)
        return session

    def close(self) -> None:
        """Shut down every cluster that was opened here. Doing it twice is harmless."""
        with self._lock:
            clusters, self._clusters = self._clusters, []
        for cluster in clusters:
            cluster.shutdown()
