"""A schema registry on loopback that answers as a test says, also not at all, or byte by byte."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["FakeRegistry"]


class FakeRegistry:
    """Registers schemas, unless it ``refuses`` with a status, is ``silent``, or ``drips``; for subjects that end so.

    ``asked`` counts requests that were refused or not answered. A context manager.
    """

    def __init__(self) -> None:
        self.refuses = 0
        self.silent = self.drips = False
        self.subjects = ""
        self.asked = 0
        self.ids: dict[str, int] = {}
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://user:secret@127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def answer(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        subject = handler.path.split("/")[2]
        if (self.refuses or self.silent or self.drips) and subject.endswith(self.subjects):
            self.asked += 1
            if self.silent:
                self._ended.wait()
            elif self.drips:
                self._drip(handler)
            else:
                _send(handler, self.refuses, {"error_code": self.refuses, "message": "no"})
        else:
            _send(handler, 200, {"id": self.ids.setdefault(text, len(self.ids) + 1)})

    def _drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a header without end, a byte now and then."""
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self._ended.wait(0.01):
                handler.wfile.write(b".")
        except OSError:
            handler.close_connection = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _send(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    raw = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw)


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            registry.answer(self, body["schema"])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
