"""``connect``: a new session of the driver, with settings that suit reading a log, and what is wrong with its TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.connection import ConnectionShutdown, DefaultEndPoint
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)

from ..errors import ConfigError
from .errors import one_line, translate

__all__ = ["REQUEST_TIMEOUT_S", "connect"]

RECEIVE_BUFFER = 65_536
"""Bytes per read of the socket. The driver's 4096 costs 160 calls for a page of 650 kB."""

REQUEST_TIMEOUT_S = 30.0
"""Timeout of a page of the log, in seconds."""


def connect(
    hosts: Sequence[str] = ("127.0.0.1",),
    *,
    port: int = 9042,
    username: str | None = None,
    password: str | None = None,
    tls_ca: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    tls_check_hostname: bool = True,
    tls: ssl.SSLContext | None = None,
    local_dc: str | None = None,
    connect_timeout_s: float = 10.0,
) -> Session:
    """Return a new driver session, with settings that suit reading a CDC log. Shut it down with its ``cluster``.

    Args:
        hosts: contact points, each ``host``, ``host:port``, or ``[ipv6]:port``; default port: *port*.
        username: user to log in as; requires *password*.
        tls_ca: PEM file of the authority that signed the nodes' certificates; turns TLS on.
        tls_cert, tls_key: PEM files of this client's certificate and key, for nodes that require one (mutual TLS).
        tls_check_hostname: with TLS, a node's certificate must name the address that the client connects to: the host
            given here, and for other nodes the address in ``system.peers``. False checks the authority alone.
        tls: the TLS of connections, for what the options above do not say; not with them.
        local_dc: preferred data center.

    Raises:
        ConnectionFailed: no node answered.
        AuthenticationFailed: the cluster rejected the user name or password.
        ConfigError: an argument is invalid.
    """
    if (username is None) != (password is None):
        raise ConfigError("username and password require each other; give both or neither")
    if not hosts:
        raise ConfigError("no host to connect to; give at least one, such as 127.0.0.1:9042")
    if tls is not None and (tls_ca is not None or tls_cert is not None or tls_key is not None):
        raise ConfigError("tls= and the files tls_ca, tls_cert, and tls_key exclude each other")
    if type(port) is not int or not 0 < port < 65536:
        raise ConfigError(f"port must be a whole number from 1 to 65535, not {port!r}")
    points = [_endpoint(host, port) for host in hosts]
    policy = DCAwareRoundRobinPolicy(local_dc) if local_dc else RoundRobinPolicy()
    cluster = Cluster(
        [DefaultEndPoint(address, p) for address, p in points],
        port=points[0][1],
        auth_provider=PlainTextAuthProvider(username, password) if username is not None else None,
        ssl_context=tls or _tls_context(tls_ca, tls_cert, tls_key, check_hostname=tls_check_hostname),
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(
                load_balancing_policy=TokenAwarePolicy(policy), request_timeout=REQUEST_TIMEOUT_S
            )
        },
        protocol_version=4,
        connect_timeout=connect_timeout_s,
        # Without it, the driver adds USING TIMEOUT to its reads of the schema, which Scylla 4.3 does not know.
        metadata_request_timeout=0,
        # The driver's default waits up to ten minutes before it reconnects to a cluster that was down for long.
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 30.0, max_attempts=None),
        # Each node prepares a statement on first use. To prepare on all nodes would wait for a node that hangs.
        prepare_on_all_hosts=False,
        connection_class=_wide(Cluster.connection_class),
    )
    try:
        return cluster.connect()
    except Exception as e:
        cluster.shutdown()
        hint = _tls_hint(e, has_tls=(tls or tls_ca) is not None, has_certificate=(tls or tls_cert) is not None)
        raise translate(e, "connecting to " + ", ".join(hosts), hint=hint) from e


def _endpoint(host: str, port: int) -> tuple[str, int]:
    """Split ``host:port``; a bare IPv6 address has several colons and no port."""
    address, digits = host, ""
    if host.startswith("["):
        address, closed, rest = host[1:].partition("]")
        digits = rest.removeprefix(":")
        if not closed or (rest and (not digits or digits == rest)):
            address = ""
    elif host.count(":") == 1:
        address, digits = host.split(":")
        if not digits:
            address = ""
    if not address or (digits and not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536)):
        raise ConfigError(f"{host!r} is not a host; write name, name:port, or [ipv6]:port")
    return address, int(digits) if digits else port


def _tls_context(
    ca: str | Path | None, cert: str | Path | None, key: str | Path | None, *, check_hostname: bool
) -> ssl.SSLContext | None:
    if ca is None and cert is None and key is None:
        return None
    if ca is None or (cert is None) != (key is None):
        raise ConfigError(
            "tls_cert and tls_key require each other, and all TLS options require tls_ca, which turns TLS on"
        )
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"the TLS authority file {str(ca)!r} cannot be read: {e}") from e
    context.check_hostname = check_hostname  # the chain is always verified
    if cert is not None:
        try:
            # Without a password, OpenSSL asks for a passphrase on the terminal; with "", such a key is an error.
            context.load_cert_chain(str(cert), str(key), password="")
        except (OSError, ssl.SSLError) as e:
            raise ConfigError(f"the TLS certificate {str(cert)!r} with key {str(key)!r} cannot be used: {e}") from e
    return context


_TLS_HINTS = (
    (
        "mismatch, certificate is not valid",
        (
            "the node's certificate does not name that address; connect by a name that it has, or verify the authority "
            "alone with tls_check_hostname=False"
        ),
    ),
    ("CERTIFICATE_VERIFY_FAILED", "the authority in tls_ca has not signed the node's certificate, or it has expired"),
    ("WRONG_VERSION_NUMBER", "the node does not speak TLS on this port; leave tls_ca out, or give its port for TLS"),
)
"""What to do about an error of the TLS handshake, by a part of OpenSSL's message."""

_ALERT = "protocol version 21"
"""Part of the driver's message about a TLS alert, whose first byte it takes for a protocol version."""


def _tls_hint(error: Exception, *, has_tls: bool, has_certificate: bool) -> str | None:
    """Return what to do about a failed connection if TLS is the likely reason; otherwise None."""
    text = one_line(error)
    if has_tls:
        for words, hint in _TLS_HINTS:
            if words in text:
                return hint
    # With TLS 1.3, a node refuses a client certificate after the handshake. A client that has already sent more may
    # only see that the connection was reset.
    if not any(words in text for words in ("was closed by server", "reset by peer", _ALERT)):
        return None
    if not has_tls:
        return "the node ended the connection at once; if it speaks TLS, give tls_ca"
    if not has_certificate:
        return "the node ended the connection at once; if it asks for a client certificate, give tls_cert and tls_key"
    return "the node ended the connection at once; check that its authority has signed the certificate in tls_cert"


_wide_classes: dict[type, type] = {}


def _wide(base: type) -> type:
    """Return a connection class for large pages. There is one class per base, because the driver keeps state on it.

    It has a larger receive buffer, and detects a connection that ends within an answer. The driver's own class waits
    for the rest of the answer and polls the closed socket until the request times out.
    """
    if base not in _wide_classes:

        def handle_read(self: Any, *args: Any) -> None:
            base.handle_read(self, *args)  # type: ignore[attr-defined]
            if not self.is_closed and self._iobuf.tell() and _ended(self._socket):
                self.defunct(ConnectionShutdown(f"Connection to {self.endpoint} was closed within an answer"))

        members: dict[str, Any] = {"in_buffer_size": RECEIVE_BUFFER}
        if hasattr(base, "handle_read"):
            members["handle_read"] = handle_read
        _wide_classes[base] = type("Wide" + base.__name__, (base,), members)
    return _wide_classes[base]


def _ended(connected: socket.socket) -> bool:
    """Return whether the other side has closed *connected*, and everything that it sent was read. Does not block."""
    try:
        # Peeks at the plain socket, also below TLS: a TLS socket cannot peek, and its closing alert would be data here.
        return socket.socket.recv(connected, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except OSError:
        return False
