"""Shortcuts: reads that follow an earlier one to its node, past the driver's future.

Most of what a request costs the client is what the driver decides for it: profile, query plan, token, future, timer. Of
the reads with the same routing key, one in 32 goes through the driver, with all that it decides, checks, and learns.
Those after it are sent to the node that answered, over the session's pool, in the same words. An answer that is not a
page ends that, so the next read is the driver's again, whose policy chooses the node.
"""

from __future__ import annotations

import inspect
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from cassandra import OperationTimedOut
from cassandra.connection import Connection, ConnectionException, ConnectionShutdown
from cassandra.policies import NoSpeculativeExecutionPlan
from cassandra.pool import HostConnection
from cassandra.protocol import RESULT_KIND_ROWS, PreparedQueryNotFound, ResultMessage

from ..clock import SystemClock
from .pages import Page

__all__ = ["Shortcut", "ShortcutSender"]

USES = 31
"""Reads that follow one of the driver: not more, so that its policy soon sees a change, and spreads the load."""

_VERSION = 4
"""The version of the protocol whose frames are known: others, as of the driver, are encoded by it each time."""

_CLOCK = SystemClock()
_INT, _SHORT = struct.Struct(">i"), struct.Struct(">h")


@attrs.define(eq=False)
class Shortcut:
    """Where a read of the driver went, and its message, for those that follow. ``left``: how many may.

    ``frame``: of a first page, for which features of a connection it was encoded, the size of its values, and what is
    before and after them.
    """

    host: Any
    message: Any
    routing: tuple[Any, ...]
    handler: Any
    left: int = USES
    frame: tuple[Any, int, bytes, bytes] = (None, 0, b"", b"")

    @classmethod
    def of(cls, future: Any) -> Shortcut:
        """Return the shortcut that an answered request has shown."""
        query = future.query
        routing = query.routing_key, query.keyspace, query.table, getattr(future, "_routing_token", None)
        return cls(future.coordinator_host, future.message, routing, query.handler)

    def message_of(self, values: list[bytes], state: bytes | None) -> Any:
        """Return the message for other values or another page."""
        known = self.message
        message = object.__new__(type(known))
        message.__dict__.update(known.__dict__, query_params=values, paging_state=state)
        return message

    def encode(self, values: list[bytes], number: int, version: int, **of: Any) -> bytes:
        """Return the frame of a first page. The driver encodes one, of which others differ in number and values only.

        *of*: the other arguments of the driver's encoder.
        """
        inner = b"".join([part for value in values for part in (_INT.pack(len(value)), value)])
        features, size, before, after = self.frame
        if features is of["protocol_features"] and size == len(inner):
            return _numbered(before, number) + inner + after
        frame: bytes = self.handler.encode_message(self.message_of(values, None), number, version, **of)
        before, found, after = frame.partition(inner)
        if found and version == _VERSION:
            self.frame = of["protocol_features"], len(inner), before, after
        return frame


@attrs.define(eq=False)
class _Request:
    """A request in flight. It times out at ``due``, in seconds of the monotonic clock."""

    shortcut: Shortcut
    pool: Any
    connection: Any
    number: int
    due: float
    on_page: Callable[[Page], None]
    on_error: Callable[[BaseException], None]
    otherwise: Callable[[], None]


class ShortcutSender:
    """Sends the reads of a session that follow one of the driver. Thread-safe."""

    def __init__(self, session: Any) -> None:
        self._session = session
        # In the order of sending. Whoever takes a request out calls one of its callbacks, or sends it anew.
        self._open: dict[_Request, bool] = {}
        self._lock = threading.Lock()
        self._is_watching = False

    def may_be_taken(self, future: Any) -> bool:
        """Return whether reads may follow that of *future*: not if each is counted, heard by others, or speculative."""
        session = self._session
        listeners = getattr(session, "_request_init_callbacks", ())
        if not _KNOWN or not hasattr(session, "_pools") or session.cluster.metrics_enabled or len(listeners) != 1:
            return False
        return isinstance(getattr(future, "_spec_execution_plan", None), NoSpeculativeExecutionPlan)

    def send(
        self,
        shortcut: Shortcut,
        values: list[bytes],
        state: bytes | None,
        *,
        timeout_s: float,
        on_page: Callable[[Page], None],
        on_error: Callable[[BaseException], None],
        otherwise: Callable[[], None],
    ) -> bool:
        """Send a read, and return whether it was sent. If so, exactly one of the functions is called, as by the driver.

        Args:
            otherwise: called if the node does not know the statement, which the driver then prepares.
        """
        pool = self._session._pools.get(shortcut.host)  # noqa: SLF001
        if shortcut.left < 1 or not pool or pool.is_shutdown:
            return False
        shortcut.left -= 1
        try:
            connection, number = pool.borrow_connection(0, *shortcut.routing)
        except Exception:  # noqa: BLE001 - the driver finds out what is wrong
            return False
        due = _CLOCK.monotonic() + timeout_s
        request = _Request(shortcut, pool, connection, number, due, on_page, on_error, otherwise)
        self._open[request] = True
        if not self._is_watching:
            self._watch(timeout_s)
        try:
            if state is None:
                message, encode = values, shortcut.encode
            else:
                message, encode = shortcut.message_of(values, state), shortcut.handler.encode_message
            connection.send_msg(message, number, partial(self._answered, request), encode, shortcut.handler.decode_page)
        except Exception:  # noqa: BLE001 - as above
            if self._open.pop(request, False):
                connection._requests.pop(number, None)  # noqa: SLF001
                with connection.lock:
                    connection.request_ids.append(number)
                pool.return_connection(connection)
                return False
        return True

    def _answered(self, request: _Request, response: Any) -> None:
        """Take an answer, or an error of the connection, on the driver's event loop thread."""
        if not request.pool.is_shutdown:
            request.pool.return_connection(request.connection)
        if not self._open.pop(request, False):
            return
        if type(response) is Page:
            request.on_page(response)
            return
        if isinstance(response, ResultMessage) and response.kind == RESULT_KIND_ROWS:
            if response.custom_payload:  # where a tablet is, for the driver to learn
                request.shortcut.left = 0
            request.on_page(response.parsed_rows)
            return
        request.shortcut.left = 0
        if isinstance(response, PreparedQueryNotFound):
            request.otherwise()
            return
        if isinstance(response, ConnectionException) and not isinstance(response, ConnectionShutdown):
            request.connection.defunct(response)
        request.on_error(response.to_exception() if hasattr(response, "to_exception") else response)

    def _watch(self, after_s: float) -> None:
        """Look for requests that time out, once for all that are in flight: a timer each would cost more than it."""
        with self._lock:
            if self._is_watching:
                return
            self._is_watching = True
        self._session.cluster.connection_class.create_timer(after_s, self._expire)

    def _expire(self) -> None:
        now = _CLOCK.monotonic()
        for request in list(self._open):
            if request.due > now:
                break
            if self._open.pop(request, False):
                self._give_up(request)
        self._is_watching = False
        oldest = next(iter(tuple(self._open)), None)
        if oldest is not None:
            self._watch(max(0.01, oldest.due - now))

    def _give_up(self, request: _Request) -> None:
        """Report that a request timed out. Its number is in use until its answer has come."""
        connection, request.shortcut.left = request.connection, 0
        in_flight = connection.in_flight
        if connection._requests.pop(request.number, None) is not None:  # noqa: SLF001 - else its answer is being taken
            with connection.lock:
                connection.orphaned_request_ids.add(request.number)
                if len(connection.orphaned_request_ids) >= connection.orphaned_threshold:
                    connection.orphaned_threshold_reached = True
            if not request.pool.is_shutdown:
                request.pool.return_connection(connection, stream_was_orphaned=True)
        host = request.shortcut.host
        errors = {str(host.endpoint): "Client request timeout. See Session.execute[_async](timeout)"}
        request.on_error(OperationTimedOut(errors, host, in_flight=in_flight))


def _numbered(frame: bytes, number: int) -> bytes:
    """Return a frame, or how it begins, with another number of the request."""
    return frame[:2] + _SHORT.pack(number) + frame[4:]


def _takes(function: Any, *names: str) -> bool:
    """Return whether the parameters of *function*, after ``self``, begin with *names*."""
    try:
        return tuple(inspect.signature(function).parameters)[1 : 1 + len(names)] == names
    except (TypeError, ValueError):
        return False


_KNOWN = (
    _takes(HostConnection.borrow_connection, "timeout", "routing_key", "keyspace", "table", "routing_token")
    and _takes(HostConnection.return_connection, "connection", "stream_was_orphaned")
    and _takes(Connection.send_msg, "msg", "request_id", "cb", "encoder", "decoder")
)
"""Whether the driver has the private parts that are used here. If not, it sends all reads."""
