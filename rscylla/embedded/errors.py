"""Errors the embedded server answers with: one class per native-protocol error code."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "BadCredentials",
    "ConfigError",
    "CqlError",
    "EmbeddedScyllaError",
    "InvalidRequest",
    "ProtocolError",
    "ServerError",
    "SyntaxException",
    "Unauthorized",
    "Unprepared",
]


class CqlError(Exception):
    """An ERROR frame in the making. ``code`` is the native-protocol error code, ``message`` its text."""

    code: ClassVar[int] = 0x0000

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ServerError(CqlError):
    code = 0x0000


class ProtocolError(CqlError):
    code = 0x000A


class BadCredentials(CqlError):
    code = 0x0100


class SyntaxException(CqlError):
    code = 0x2000


class Unauthorized(CqlError):
    code = 0x2100


class InvalidRequest(CqlError):
    code = 0x2200


class ConfigError(CqlError):
    code = 0x2300


class AlreadyExists(CqlError):
    """CREATE of what is there already. ``table`` is empty for a keyspace."""

    code = 0x2400

    def __init__(self, message: str, keyspace: str, table: str = "") -> None:
        super().__init__(message)
        self.keyspace = keyspace
        self.table = table


class Unprepared(CqlError):
    """EXECUTE of an unknown statement id; the client prepares it again."""

    code = 0x2500

    def __init__(self, statement_id: bytes) -> None:
        super().__init__(f"No prepared statement with ID {statement_id.hex()} found.")
        self.statement_id = statement_id


class EmbeddedScyllaError(RuntimeError):
    """The embedded server cannot do what its owner asks: start, stop, change the topology. Not a CQL error."""
