"""The HTTP face of a service: it answers what it should, and clients that misbehave cost little."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from rscylla.errors import ConfigError
from rscylla.service import http
from rscylla.service.http import Answer, Endpoint, json_answer, metrics_page
from rscylla.testing import ManualClock

PATIENCE_S = 60.0


def broken(headers: Any) -> Answer:
    raise ValueError("card 4111")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which connections grow old."""
    clock = ManualClock()
    monkeypatch.setattr(http, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def endpoint(clock: ManualClock) -> Iterator[Endpoint]:
    pages = {
        "/ok": lambda headers: json_answer(200, {"agent": headers.get("user-agent")}),
        "/broken": broken,
    }
    endpoint = Endpoint(pages, "127.0.0.1", 0)
    endpoint.start()
    yield endpoint
    endpoint.close()


def connect(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(endpoint.address, timeout=PATIENCE_S)


def ask(endpoint: Endpoint, request: bytes) -> bytes:
    """Return all that comes back, until the server closes the connection."""
    with connect(endpoint) as connection:
        connection.sendall(request)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def test_a_page_is_answered_and_the_connection_closed(endpoint: Endpoint) -> None:
    head, _, body = ask(endpoint, b"GET /ok?x=1 HTTP/1.1\r\nUser-Agent: test\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"Content-Type: application/json" in head
    assert b"Cache-Control: no-store" in head
    assert b"Python" not in head
    assert body == b'{\n "agent": "test"\n}\n'


def test_head_gives_no_body(endpoint: Endpoint) -> None:
    head, _, body = ask(endpoint, b"HEAD /ok HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert b" 200 " in head
    assert body == b""


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /no HTTP/1.1\r\n\r\n", b" 404 "),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b" 404 "),
        (b"POST /ok HTTP/1.1\r\n\r\n", b" 501 "),
        (b"nonsense\r\n\r\n", b" 400"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"GET /ok HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b" 431 "),
    ],
    ids=["unknown", "above", "post", "nonsense", "long", "headers"],
)
def test_what_it_does_not_know_is_refused(endpoint: Endpoint, request_line: bytes, status: bytes) -> None:
    with connect(endpoint) as connection:
        with suppress(ConnectionError):  # it may be refused before all of it was sent
            connection.sendall(request_line)
        assert status in connection.recv(65_536)


@pytest.mark.parametrize("request_line", [b"GET /ok", b"GET /no", b"GET /broken", b"POST /ok"])
def test_a_browser_uses_an_answer_only_as_it_is_meant(endpoint: Endpoint, request_line: bytes) -> None:
    head = ask(endpoint, request_line + b" HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")[0].decode()
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1:9100", b" 200 "),
        (b"127.8.9.1", b" 200 "),
        (b"LocalHost:1", b" 200 "),
        (b"[::1]:9100", b" 200 "),
        (b"evil.example:9100", b" 421 "),
        (b"localhost.evil.example", b" 421 "),
        (b"127.0.0.1.evil.example", b" 421 "),
        (b"10.0.0.1", b" 421 "),
        (b"localhost\r\nHost: evil.example", b" 421 "),
        (b"[evil.example]", b" 421 "),
        (b"", b" 421 "),
    ],
)
def test_on_loopback_a_request_under_another_name_is_refused(endpoint: Endpoint, host: bytes, status: bytes) -> None:
    """A site that resolves its name to 127.0.0.1 makes browsers send such requests."""
    answer = ask(endpoint, b"GET /ok HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert status in answer.partition(b"\r\n")[0]


def test_on_other_addresses_every_name_is_answered() -> None:
    endpoint = Endpoint({"/ok": lambda headers: json_answer(200, {})}, "0.0.0.0", 0)
    endpoint.start()
    try:
        with socket.create_connection(("127.0.0.1", endpoint.address[1]), timeout=PATIENCE_S) as connection:
            connection.sendall(b"GET /ok HTTP/1.1\r\nHost: billing.shop.svc:9100\r\n\r\n")
            assert b" 200 " in rest(connection)
    finally:
        endpoint.close()


def test_a_page_that_fails_says_nothing_of_why(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(endpoint, b"GET /broken HTTP/1.1\r\n\r\n")
    assert b" 500 " in answer
    assert b"4111" not in answer
    assert "/broken cannot be shown" in caplog.text


def test_connections_that_say_nothing_keep_no_probe_out(endpoint: Endpoint) -> None:
    """The oldest connection is closed; the others are still answered."""
    with ExitStack() as stack:
        held = [stack.enter_context(connect(endpoint)) for _ in range(http.CONNECTIONS)]
        for connection in held:
            connection.sendall(b"GET /ok HT")
        assert b" 200 " in ask(endpoint, b"GET /ok HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b" 200 " not in rest(held[0])
        held[1].sendall(b"TP/1.1\r\n\r\n")
        assert b" 200 " in rest(held[1])


def test_so_many_threads_and_no_more(clock: ManualClock) -> None:
    """Those of connections that were cut count, until they are at their end."""
    entered, gate = threading.Semaphore(0), threading.Event()

    def slow(headers: Any) -> Answer:
        entered.release()
        assert gate.wait(PATIENCE_S)
        return json_answer(200, {})

    endpoint = Endpoint({"/slow": slow}, "127.0.0.1", 0)
    endpoint.start()
    try:
        with ExitStack() as stack:
            for _ in range(http.THREADS):
                stack.enter_context(connect(endpoint)).sendall(b"GET /slow HTTP/1.1\r\n\r\n")
                assert entered.acquire(timeout=PATIENCE_S)
            with suppress(ConnectionResetError):
                assert ask(endpoint, b"GET /no HTTP/1.1\r\n\r\n") == b"", "closed without an answer"
            gate.set()
        for _ in range(http.THREADS):  # their threads end, and leave room
            with suppress(ConnectionError):
                if b" 404 " in ask(endpoint, b"GET /no HTTP/1.1\r\n\r\n"):
                    break
        else:
            pytest.fail("no room")
    finally:
        endpoint.close()


@pytest.mark.slow
def test_connections_that_were_cut_leave_room_once_their_threads_have_ended() -> None:
    endpoint = Endpoint({}, "127.0.0.1", 0)
    endpoint.start()
    try:
        with ExitStack() as stack:
            for _ in range(http.CONNECTIONS + http.THREADS):
                stack.enter_context(connect(endpoint))  # says nothing
            for _ in range(1000):
                with suppress(ConnectionError):
                    if b" 404 " in ask(endpoint, b"GET /no HTTP/1.1\r\n\r\n"):
                        break
            else:
                pytest.fail("no room")
    finally:
        endpoint.close()


@pytest.mark.parametrize("version", ["abc", "1.0.0", "0.0.1", "", "1.x", "9"])
def test_metrics_are_shown_whatever_version_is_asked_for(version: str) -> None:
    registry = CollectorRegistry()
    Counter("orders", "so many", registry=registry).inc()
    for kind in ("application/openmetrics-text", "text/plain"):
        answer = metrics_page(registry)({"accept": f"{kind};version={version}"})
        assert answer.status == 200
        assert b"orders_total 1.0" in answer.body


def test_a_client_that_dawdles_is_cut_off(endpoint: Endpoint, clock: ManualClock) -> None:
    with connect(endpoint) as slow:
        slow.sendall(b"GET /ok HT")
        with connect(endpoint) as quick:  # answered after *slow* was taken in
            quick.sendall(b"GET /ok HTTP/1.1\r\n\r\n")
            assert b" 200 " in rest(quick)
        clock.advance(http.LIFETIME_S + 1)
        assert b" 200 " not in rest(slow)


def test_closing_ends_what_is_open(clock: ManualClock) -> None:
    endpoint = Endpoint({}, "127.0.0.1", 0)
    endpoint.start()
    with connect(endpoint) as idle:
        endpoint.close()
        endpoint.close()
        with suppress(ConnectionResetError):  # it may still have waited to be taken in
            assert rest(idle) == b""
    with pytest.raises(OSError), connect(endpoint):
        pass


@pytest.mark.parametrize(("host", "port"), [("256.1.1.1", 0), ("127.0.0.1", 70_000)])
def test_an_address_that_cannot_be_bound_is_reported(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        Endpoint({}, host, port)
