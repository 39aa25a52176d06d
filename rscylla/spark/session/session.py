"""Sessions with the cluster: one for each process and connection, kept until the process ends.

Spark's workers are processes that run one task after another. A global of an importable module outlives a task, whereas
objects that are pickled with a task are created again each time.
"""

from __future__ import annotations

import atexit
import threading

from ...cdc.log import Topology, topology_for
from ...driver import ReadSession, connect, consistency_named
from ..source.options import Connection

__all__ = ["close_sessions", "session_for", "topology_of"]

_lock = threading.Lock()
_sessions: dict[Connection, ReadSession] = {}
_topologies: dict[tuple[Connection, str, str], Topology] = {}


def session_for(connection: Connection) -> ReadSession:
    """Return this process's session for *connection*, opened at the first call. Thread-safe; blocks then.

    Raises:
        ConfigError, ConnectionFailed, AuthenticationFailed: the session cannot be opened.
    """
    with _lock:
        # The lock is held while it connects: tasks of one process that start together share a session.
        found = _sessions.get(connection)
        if found is None:
            consistency = consistency_named(connection.consistency)
            username, password = connection.credentials()
            session = connect(
                connection.contact_points,
                port=connection.port,
                username=username,
                password=password,
                tls_ca=connection.tls_ca,
                tls_cert=connection.tls_cert,
                tls_key=connection.tls_key,
                tls_check_hostname=connection.tls_check_hostname,
                local_dc=connection.local_dc,
            )
            found = _sessions[connection] = ReadSession(session, consistency=consistency)
        return found


def topology_of(connection: Connection, keyspace: str, table: str) -> Topology:
    """Return the topology of a table, which keeps the last stream sets that were read. Thread-safe; blocks.

    Raises:
        ConfigError, ConnectionFailed, AuthenticationFailed, SourceError: the session cannot be opened, or not be asked.
    """
    session = session_for(connection)
    place = connection, keyspace, table
    with _lock:
        if place not in _topologies:
            _topologies[place] = topology_for(session, keyspace, table)
        return _topologies[place]


def close_sessions() -> None:
    """Close all sessions of this process; the next use opens new ones. Called when the process ends."""
    with _lock:
        sessions = list(_sessions.values())
        _sessions.clear()
        _topologies.clear()
    for session in sessions:
        session.session.cluster.shutdown()


atexit.register(close_sessions)
