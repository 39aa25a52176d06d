"""A connection that ends within an answer is noticed at once; the driver alone polls the closed socket forever."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator

import pytest
from cassandra.connection import ConnectionShutdown

from rscylla.driver.connections import RECEIVE_BUFFER, _wide


class Connection:
    """Reads as the driver does: what came goes to a buffer, and an end means nothing while that holds something."""

    endpoint = "127.0.0.1:9042"
    in_buffer_size = 4096

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._iobuf = io.BytesIO()
        self.is_closed = False
        self.errors: list[Exception] = []

    def handle_read(self, watcher: object, revents: int) -> None:
        self._iobuf.write(self._socket.recv(self.in_buffer_size))

    def defunct(self, error: Exception) -> None:
        self.is_closed = True
        self.errors.append(error)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_half_an_answer_and_no_more_ends_the_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = _wide(Connection)(ours)
    theirs.sendall(b"half an ans")
    connection.handle_read(None, 1)
    assert connection.errors == []
    theirs.close()
    connection.handle_read(None, 1)
    (error,) = connection.errors
    assert isinstance(error, ConnectionShutdown)
    assert "closed within an answer" in str(error)


def test_the_end_may_be_seen_with_the_last_bytes(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = _wide(Connection)(ours)
    theirs.sendall(b"half")
    theirs.close()
    connection.handle_read(None, 1)
    assert len(connection.errors) == 1
    assert connection._iobuf.getvalue() == b"half"


def test_what_is_still_to_be_read_is_left_in_place(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    connection = _wide(Connection)(ours)
    theirs.sendall(b"x" * (RECEIVE_BUFFER + 10))
    theirs.close()
    connection.handle_read(None, 1)
    assert connection.errors == []
    connection.handle_read(None, 1)
    assert len(connection._iobuf.getvalue()) == RECEIVE_BUFFER + 10
    assert len(connection.errors) == 1


def test_one_class_for_each_base() -> None:
    assert _wide(Connection) is _wide(Connection)
    assert _wide(Connection).in_buffer_size == RECEIVE_BUFFER
