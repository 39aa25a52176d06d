"""Access to ``cassandra`` (scylla-driver): sessions, log reads, small queries, and translated errors.

Log reads bypass the driver's row decoding; see ``pages``. The driver's public request-init hook selects this per
request, so other requests on a session that the application shares are not affected.
"""

from __future__ import annotations

import copy
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import attrs
import cassandra
from cassandra import (
    ConsistencyLevel,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    Session,
)
from cassandra.connection import ConnectionShutdown, DefaultEndPoint
from cassandra.metadata import Murmur3Token
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BoundStatement, SimpleStatement, tuple_factory

from .._retry import retry
from .._streamid import token_of
from ..clock import Stop, check_fence
from ..errors import ConfigError, Stopped
from .errors import one_line, translate
from .pages import Column, Page, raw_handler, type_of

__all__ = [
    "BoundRead",
    "RawRead",
    "ReadSession",
    "ReadStatement",
    "Session",
    "connect",
    "consistency_named",
    "driver_version",
    "hash_of_key",
]

T = TypeVar("T")

RECEIVE_BUFFER = 65_536
"""Bytes per read of the socket. The driver's 4096 costs 160 calls for a page of 650 kB."""

REQUEST_TIMEOUT_S = 30.0
"""Timeout of a page of the log, in seconds."""

METADATA_TIMEOUT_S = 10.0
"""Timeout of a small query on one node, in seconds."""

METADATA_ATTEMPTS = 3
"""Number of nodes that a small query tries, one after the other, before it fails."""


def consistency_named(name: str) -> int:
    """Return the driver's number of a consistency level such as ``"quorum"``, in any case.

    Raises:
        ConfigError: there is no such level.
    """
    value = ConsistencyLevel.name_to_value.get(name.upper())
    if value is None:
        raise ConfigError(
            f"no consistency level is named {name!r}; use one of {', '.join(ConsistencyLevel.name_to_value)}"
        )
    return cast("int", value)


def driver_version() -> str:
    """Return the version of scylla-driver."""
    return str(cassandra.__version__)


def hash_of_key(key: bytes) -> int:
    """Return the token of a serialized partition key, as the database hashes it (Murmur3)."""
    return cast("int", Murmur3Token.hash_fn(key))


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


# ---------------------------------------------------------------- sessions


class BoundRead(BoundStatement):  # type: ignore[misc]
    """A bound read of raw pages, which the request-init hook recognizes by its class. It can be sent for each page."""

    is_routed = True
    raw_values: Sequence[Any] = ()  # the driver prints them

    def __init__(self, statement: ReadStatement, routing_key: bytes | None = None) -> None:
        super().__init__(
            statement.prepared,
            retry_policy=_NO_RETRY,
            consistency_level=statement.consistency,
            routing_key=routing_key,
            fetch_size=statement.page_size,
        )
        self.is_idempotent = True
        self.handler = statement.handler

    @property
    def routing_key(self) -> bytes | None:
        """The given one; otherwise the bound partition key, if the query has just one. None if it leads nowhere."""
        return (self._routing_key or cast("bytes | None", super().routing_key)) if self.is_routed else None


class _MetadataRead(SimpleStatement):  # type: ignore[misc]
    """A small query whose rows are tuples, whatever the session's row factory is."""


def _on_request(future: Any) -> None:
    """Set how the answer to one of our own requests is decoded. Other requests are not changed.

    A request for a run whose lease was lost is not sent: what it writes could replace what others have written since.
    """
    query = future.query
    if isinstance(query, BoundRead):
        future._protocol_handler = query.handler  # noqa: SLF001 - the purpose of the hook
        future.row_factory = _boxed
        future.message.skip_meta = False  # each page must describe its own columns, because the table may change
    elif isinstance(query, _MetadataRead):
        future.row_factory = tuple_factory
    else:
        check_fence()


def _boxed(_names: Any, page: Any) -> list[Any]:
    """Return the page in a list, from which the callback takes it out.

    The driver's future refers to its result, and is in a cycle with its timer: a page would otherwise stay in memory
    until a full garbage collection, which is rare and not caused by the size of what it would free.
    """
    return [page]


def _cut(timer: Any) -> None:
    """Cut what the cancelled timer of an answered request refers to, which is its future.

    The two refer to each other until the garbage collector runs. The driver also keeps a cancelled timer as long as an
    older request may still time out, which is up to 30 s if a node hangs.
    """
    if getattr(timer, "canceled", False):
        timer.callback = None


_OF_FEW = frozenset(
    (
        ConsistencyLevel.ANY,
        ConsistencyLevel.ONE,
        ConsistencyLevel.TWO,
        ConsistencyLevel.THREE,
        ConsistencyLevel.LOCAL_ONE,
    )
)
"""Levels at which a read may miss a row that an earlier read at the same level found."""

_NO_RETRY = FallthroughRetryPolicy()

_hooked: weakref.WeakSet[Session] = weakref.WeakSet()
_hooked_lock = threading.Lock()


def _on_some_node(ask: Callable[[], T], doing: str, *, attempts: int, stop: Stop) -> T:
    """Return the result of *ask*. After a temporary error, call it again at once: the driver then uses another node.

    Raises:
        Stopped: *stop* was set before an attempt, or *ask* noticed it.
        RscyllaError: the last attempt failed, or an error is permanent.
    """

    def asked() -> T:
        stop.check()
        try:
            return ask()
        except Stopped:
            raise
        except Exception as e:
            raise translate(e, doing) from e

    return retry(asked, attempts=attempts, stop=stop)


@attrs.frozen(eq=False)
class ReadStatement:
    """A prepared read with the handler that keeps its pages raw."""

    prepared: Any
    handler: type
    consistency: int
    page_size: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the result, as they were when the statement was prepared."""
        return tuple(Column(m[2], type_of(m[3])) for m in self.prepared.result_metadata)

    def bind(self, values: Sequence[Any]) -> RawRead:
        """Return a read of the given values, which the driver serializes."""
        return RawRead(self, BoundRead(self).bind(values).values)

    def bind_raw(self, values: Sequence[bytes], routing_key: bytes | None = None) -> RawRead:
        """Return a read of serialized values. The driver prefers the owners of *routing_key*, if its policy says so."""
        return RawRead(self, list(values), routing_key)


@attrs.define(eq=False)
class RawRead:
    """A read with its serialized values. It can be sent for each page."""

    statement: ReadStatement
    values: list[bytes]
    routing_key: bytes | None = None

    def bound(self) -> BoundRead:
        """Return the read as a statement of the driver."""
        bound = BoundRead(self.statement, self.routing_key)
        bound.values = self.values
        return bound


class ReadSession:
    """Reads logs and tables with a driver session, which belongs to the caller. Thread-safe.

    Args:
        session: a connected session.
        consistency: the driver's number of the level for reads of raw pages.
    """

    def __init__(self, session: Session, *, consistency: int) -> None:
        self.session = session
        self.consistency = consistency
        self._prepared: dict[tuple[str, int], ReadStatement] = {}
        self._stop = Stop()
        with _hooked_lock:
            if session not in _hooked:
                session.add_request_init_listener(_on_request)
                _hooked.add(session)

    def until(self, stop: Stop) -> ReadSession:
        """Return a copy whose small queries raise ``Stopped`` as soon as *stop* is set, answered or not."""
        same = copy.copy(self)
        same._stop = stop  # noqa: SLF001 - a copy of this object
        return same

    def rows(
        self,
        cql: str,
        values: Iterable[Any] = (),
        *,
        doing: str,
        consistency: int | None = None,
        host: Any = None,
        timeout_s: float | None = None,
    ) -> list[tuple[Any, ...]]:
        """Return all rows of a small query as tuples. Blocks. *doing* starts the message of an error.

        Unless the query is for one *host*, it is tried a few times: the driver asks another node each time.

        Raises:
            Stopped: the stop of ``until`` was set.
            RscyllaError: the query failed; the driver's error is translated.
        """
        statement = _MetadataRead(
            cql,
            consistency_level=self.metadata_consistency if consistency is None else consistency,
            retry_policy=FallthroughRetryPolicy(),
            is_idempotent=True,
        )
        timeout = METADATA_TIMEOUT_S if timeout_s is None else timeout_s

        def ask() -> list[tuple[Any, ...]]:
            future = self.session.execute_async(statement, tuple(values) or None, timeout=timeout, host=host)
            ended = Stop()
            future.add_callbacks(lambda _: ended.set(), lambda _: ended.set())
            forget = self._stop.on_set(ended.set)
            try:
                ended.wait()
            finally:
                forget()
            self._stop.check()
            return list(future.result())

        attempts = 1 if host is not None else METADATA_ATTEMPTS
        return _on_some_node(ask, doing, attempts=attempts, stop=self._stop)

    @property
    def metadata_consistency(self) -> int:
        """ONE on a single node, otherwise QUORUM: the description tables have three replicas even on a single node.

        Source: Scylla's CDC clients; the replication of ``system_distributed``.
        """
        # Counts all nodes, including those that are down: with ONE, a single stale replica could decide the answer.
        nodes = len(self.session.cluster.metadata.all_hosts())
        return cast("int", ConsistencyLevel.ONE if nodes < 2 else ConsistencyLevel.QUORUM)

    @property
    def quorum_at_least(self) -> int:
        """The level of log reads, but at least QUORUM: a single replica may lack a row that another one returned."""
        return cast("int", ConsistencyLevel.QUORUM) if self.consistency in _OF_FEW else self.consistency

    def hosts(self) -> list[Any]:
        """Return the nodes that the driver believes to be up."""
        return [h for h in self.session.cluster.metadata.all_hosts() if h.is_up is not False]

    def nodes(self) -> list[tuple[str, str, bool]]:
        """Return address, data center, and whether the driver believes that it is up, of each node, by address."""
        hosts = self.session.cluster.metadata.all_hosts()
        return sorted((str(h.endpoint), h.datacenter or "", h.is_up is not False) for h in hosts)

    def replicas_of(self, keyspace: str) -> Callable[[bytes], tuple[str, ...]] | None:
        """Return a function that returns the ids of the nodes with a stream of a log; None if the driver knows no ring.

        Of tablets, the driver learns where they are from answers only. Until then, it takes them for vnodes.
        """
        token_map = self.session.cluster.metadata.token_map
        if token_map is None:
            return None

        def of(stream_id: bytes) -> tuple[str, ...]:
            nodes = token_map.get_replicas(keyspace, token_map.token_class(token_of(stream_id)))
            return tuple(sorted(str(node.host_id) for node in nodes))

        return of

    def prepare(self, cql: str, *, page_size: int, doing: str) -> ReadStatement:
        """Prepare a log read. Blocks. Tries several nodes, as ``rows`` does."""
        prepared = _on_some_node(lambda: self.session.prepare(cql), doing, attempts=METADATA_ATTEMPTS, stop=self._stop)
        return ReadStatement(prepared, raw_handler(), self.consistency, page_size)

    def prepare_once(self, cql: str, *, page_size: int, doing: str) -> ReadStatement:
        """Do as ``prepare`` at the first call for *cql* and *page_size*, and return the same statement at later ones.

        Its pages describe their own columns; its ``columns`` are those that the table had at the first call.
        """
        known = self._prepared.get((cql, page_size))
        if known is None:
            known = self._prepared[cql, page_size] = self.prepare(cql, page_size=page_size, doing=doing)
        return known

    def fetch(
        self,
        statement: ReadStatement,
        values: Sequence[Any],
        state: bytes | None,
        *,
        on_page: Callable[[Page], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Request one page and return at once. Calls exactly one of the callbacks, on the driver's event loop thread.

        Args:
            state: where to continue, from an earlier ``Page.state``; None for the first page.
            on_page: must not block.
            on_error: gets the untranslated error of the driver; see ``translate``.
        """
        self.send(statement.bind(values), state, on_page=on_page, on_error=on_error)

    def read(self, statement: ReadStatement, raw: Sequence[bytes], *, doing: str, state: bytes | None = None) -> Page:
        """Return a page for serialized values, the first or that of *state*. Blocks; errors are translated."""
        answers: SimpleQueue[Page | BaseException] = SimpleQueue()
        self.send(statement.bind_raw(raw), state, on_page=answers.put, on_error=answers.put)
        got = answers.get()
        if isinstance(got, BaseException):
            raise translate(got, doing) from got
        return got

    def send(
        self,
        read: RawRead,
        state: bytes | None,
        *,
        on_page: Callable[[Page], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Request one page; as ``fetch``. May be called on the driver's event loop thread."""
        bound = read.bound()
        # Without a ring, which a cluster may be told not to read, the driver's token-aware policy raises for any key.
        bound.is_routed = self.session.cluster.metadata.token_map is not None
        try:
            future = self.session.execute_async(bound, timeout=REQUEST_TIMEOUT_S, paging_state=state)
        except Exception as e:  # noqa: BLE001 - callers handle a failure to send like an error that a node returns
            on_error(e)
            return
        timer = getattr(future, "_timer", None)
        asked = [None]  # of speculative executions, each calls back

        def is_first() -> bool:
            _cut(timer)
            try:
                asked.pop()
            except IndexError:
                return False
            return True

        def answered(box: list[Page]) -> None:
            if is_first():
                on_page(box.pop())

        def failed(error: BaseException) -> None:
            if is_first():
                on_error(error)

        future.add_callbacks(answered, failed)
