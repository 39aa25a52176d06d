"""The HTTP endpoint of a service: a few pages, with limits on connections and their time. It only answers GET and HEAD.

A browser is told to use an answer in no other way than it was meant: not as another type, not in a frame, not from
another site. A page on the internet can make a browser send requests to loopback under a name of its own (DNS
rebinding), and would read the answers; the ``Host`` of such a request gives it away.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ..clock import Clock, SystemClock
from ..errors import ConfigError

__all__ = ["Answer", "Endpoint", "Page", "json_answer", "metrics_page"]

log = logging.getLogger("rscylla.service")

CONNECTIONS = 8
"""Maximum number of connections. One more closes the oldest, so that no client can lock out a probe."""

THREADS = 32
"""While this many threads run, including those of closed connections, new connections are closed at once."""

READ_TIMEOUT_S = 5.0
"""How long a client may pause within its request."""

LIFETIME_S = 20.0
"""Maximum lifetime of a connection, whatever its client does."""


NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of an answer that loads nothing."""

GUARDS = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
"""Headers of each answer."""


@attrs.frozen
class Answer:
    """The HTTP answer of a page. ``policy`` is its Content-Security-Policy."""

    status: int
    content_type: str
    body: bytes
    policy: str = NOTHING


Page = Callable[[Mapping[str, str]], Answer]
"""Returns the answer to a request with the given headers, whose names are in lower case."""


def json_answer(status: int, content: Any) -> Answer:
    """Return *content* as JSON."""
    return Answer(status, "application/json", json.dumps(content, indent=1).encode() + b"\n")


def metrics_page(registry: CollectorRegistry) -> Page:
    """Return a page with the metrics of *registry*, in the format that the scraper accepts."""

    def page(headers: Mapping[str, str]) -> Answer:
        try:
            encode, content_type = choose_encoder(headers.get("accept", ""))
        except (TypeError, ValueError):  # the version in the Accept header is not a version
            encode, content_type = choose_encoder("")
        return Answer(200, content_type, encode(registry))

    return page


def is_loopback(host: str) -> bool:
    """Return whether *host* is ``localhost`` or an address of this machine alone."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the host in a ``Host`` header, without the port and the brackets of IPv6.

    >>> host_of("localhost:9100"), host_of("[::1]:9100"), host_of("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


class Endpoint:
    """Serves *pages*, by path, in separate threads until ``close``.

    On a loopback address, it answers only requests to a loopback address or ``localhost``, on any port, because a
    tunnel may have its own.

    Args:
        host, port: where to listen; port 0 lets the system choose.

    Raises:
        ConfigError: the system refuses to listen there.
    """

    def __init__(self, pages: Mapping[str, Page], host: str, port: int) -> None:
        try:
            self._server = _Server((host, port), _handler(pages, guarded=is_loopback(host)))
        except (OSError, OverflowError) as e:
            raise ConfigError(f"the service cannot listen on {host}:{port}: {e}; choose another host or port") from e
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, name="rscylla-http", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the server listens on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Start to answer requests."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and release the port. Safe to repeat."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.end()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._clock: Clock = SystemClock()
        self._open: dict[socket.socket, float] = {}  # by age
        self._cut: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # Replaces the method of HTTPServer, which asks the resolver for the machine's name, and may wait for it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._open) + len(self._cut) >= THREADS
            if not full:
                self._open[request] = self._clock.monotonic()
                while len(self._open) > CONNECTIONS:
                    self._cut_off(next(iter(self._open)))
        if full:
            self.close_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
            self._cut.discard(request)
        super().shutdown_request(request)

    def _cut_off(self, connection: socket.socket) -> None:
        """Shut *connection* down; its thread then closes it. Called with the lock held, so that it is still open."""
        del self._open[connection]
        self._cut.add(connection)
        try:
            connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        except OSError:
            log.debug("a connection was gone already")

    def service_actions(self) -> None:
        """Cut connections that are too old. Called by ``serve_forever`` about every half second."""
        oldest = self._clock.monotonic() - LIFETIME_S
        with self._lock:
            for late in [one for one, since in self._open.items() if since < oldest]:
                self._cut_off(late)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request of %s failed", client_address, exc_info=True)

    def end(self) -> None:
        """Release the port and cut all connections."""
        self.server_close()
        with self._lock:
            for left in list(self._open):
                self._cut_off(left)


def _handler(pages: Mapping[str, Page], *, guarded: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = READ_TIMEOUT_S
        server_version = "rscylla"
        sys_version = ""
        policy = NOTHING

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            # A browser always sends the header; a probe may leave it out.
            if guarded and not all(is_loopback(host_of(host)) for host in self.headers.get_all("Host", [])):
                answer = json_answer(421, {"error": "this service listens on loopback only: ask for it as localhost"})
            elif page is None:
                answer = json_answer(404, {"error": "no such page", "pages": sorted(pages)})
            else:
                try:
                    answer = page({name.lower(): value for name, value in self.headers.items()})
                except Exception:
                    log.exception("%s cannot be shown", self.path)
                    answer = json_answer(500, {"error": "this page cannot be made; the log says why"})
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.policy = answer.policy
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

        def end_headers(self) -> None:  # of errors, too, which the base class sends
            self.send_header("Content-Security-Policy", self.policy)
            for header in GUARDS:
                self.send_header(*header)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so by the base class
            log.debug("%s: " + format, self.client_address[0], *args)

    return Handler
