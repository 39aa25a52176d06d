"""Reads with a session of the driver: log reads, small queries, and translated errors.

Log reads bypass the driver's row decoding; see ``pages``. The driver's public request-init hook selects this per
request, so other requests on a session that the application shares are not affected.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import attrs
import cassandra
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.metadata import Murmur3Token
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import BoundStatement, SimpleStatement, tuple_factory

from .._retry import retry
from .._tokens import token_of
from ..clock import Stop, check_fence
from ..errors import ConfigError, Stopped
from .connections import REQUEST_TIMEOUT_S
from .errors import translate
from .pages import Column, Page, raw_handler, type_of

__all__ = [
    "BoundRead",
    "RawRead",
    "ReadSession",
    "ReadStatement",
    "Session",
    "consistency_named",
    "driver_version",
    "hash_of_key",
]

T = TypeVar("T")

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
