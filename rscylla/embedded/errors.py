"""Errors the embedded server answers with: one class per native-protocol error code."""

from __future__ import annotations

import struct
from typing import ClassVar, Final

__all__ = [
    "SERIAL_LEVELS",
    "AlreadyExists",
    "BadCredentials",
    "ConfigError",
    "ControlUnavailable",
    "CqlError",
    "EmbeddedScyllaError",
    "FunctionFailure",
    "InvalidRequest",
    "IsBootstrapping",
    "Overloaded",
    "ProtocolError",
    "RateLimit",
    "ReadFailure",
    "ReadTimeout",
    "ServerError",
    "SyntaxException",
    "Unauthorized",
    "Unavailable",
    "Unprepared",
    "WriteFailure",
    "WriteTimeout",
    "consistency_name",
    "short_string",
]


_CONSISTENCIES: Final = (
    *("ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM"),
    *("SERIAL", "LOCAL_SERIAL", "LOCAL_ONE"),
)
SERIAL_LEVELS: Final = (8, 9)
"""SERIAL and LOCAL_SERIAL, as the protocol numbers them."""


def consistency_name(level: int) -> str:
    """Return the name of a consistency level of the protocol."""
    return _CONSISTENCIES[level] if 0 <= level < len(_CONSISTENCIES) else str(level)


def short_string(text: str) -> bytes:
    """Return a [string] of the native protocol: 16-bit length and UTF-8."""
    data = text.encode()
    return struct.pack(">H", len(data)) + data


class CqlError(Exception):
    """An ERROR frame in the making. ``code`` is the native-protocol error code, ``message`` its text."""

    code: ClassVar[int] = 0x0000

    def __init__(self, message: str, extra: bytes = b"") -> None:
        super().__init__(message)
        self.message = message
        self.extra = extra
        """What follows the message in the frame, as some codes have it."""


class ServerError(CqlError):
    code = 0x0000


class ProtocolError(CqlError):
    code = 0x000A


class BadCredentials(CqlError):
    code = 0x0100


class Unavailable(CqlError):
    """Too few replicas are up."""

    code = 0x1000

    def __init__(self, consistency: int, required: int = 1, alive: int = 0) -> None:
        name = consistency_name(consistency)
        super().__init__(
            f"Cannot achieve consistency level for cl {name}. Requires {required}, alive {alive}",
            struct.pack(">Hii", consistency, required, alive),
        )


class Overloaded(CqlError):
    code = 0x1001


class IsBootstrapping(CqlError):
    code = 0x1002


class TruncateError(CqlError):
    code = 0x1003


class WriteTimeout(CqlError):
    code = 0x1100

    def __init__(self, consistency: int, write_type: str, received: int = 0, required: int = 1) -> None:
        super().__init__(
            f"Operation timed out - received only {received} responses from {required} CL="
            f"{consistency_name(consistency)}.",
            struct.pack(">Hii", consistency, received, required) + short_string(write_type),
        )


class ReadTimeout(CqlError):
    code = 0x1200

    def __init__(self, consistency: int, received: int = 0, required: int = 1) -> None:
        super().__init__(
            f"Operation timed out - received only {received} responses from {required} CL="
            f"{consistency_name(consistency)}.",
            # The last byte is "data present": whether the replica asked for the data itself was among the answers.
            struct.pack(">HiiB", consistency, received, required, received >= required),
        )


class ReadFailure(CqlError):
    code = 0x1300

    def __init__(self, consistency: int, received: int = 0, required: int = 1, failures: int = 1) -> None:
        super().__init__(
            f"Operation failed - received {received} responses and {failures} failures from {required} CL="
            f"{consistency_name(consistency)}.",
            struct.pack(">HiiiB", consistency, received, required, failures, False),
        )


class FunctionFailure(CqlError):
    """A function failed on its argument. ``arguments`` are the names of the argument types."""

    code = 0x1400

    def __init__(self, keyspace: str, function: str, arguments: tuple[str, ...], detail: str) -> None:
        super().__init__(
            f"execution of {function} failed: {detail}",
            b"".join(
                [
                    short_string(keyspace),
                    short_string(function),
                    struct.pack(">H", len(arguments)),
                    *map(short_string, arguments),
                ]
            ),
        )


class WriteFailure(CqlError):
    code = 0x1500

    def __init__(
        self, consistency: int, write_type: str, received: int = 0, required: int = 1, failures: int = 1
    ) -> None:
        super().__init__(
            f"Operation failed - received {received} responses and {failures} failures from {required} CL="
            f"{consistency_name(consistency)}.",
            struct.pack(">Hiii", consistency, received, required, failures) + short_string(write_type),
        )


class RateLimit(CqlError):
    """A partition is asked too often. Only for clients that negotiated it; others get a `ConfigError`.

    Source: Scylla ``docs/dev/protocol-extensions.md``, SCYLLA_RATE_LIMIT_ERROR.
    """

    code = 0xF000

    def __init__(self, *, is_write: bool) -> None:
        super().__init__(
            "Per-partition rate limit reached, rejected by coordinator", struct.pack(">BB", int(is_write), 1)
        )


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
        super().__init__(message, short_string(keyspace) + short_string(table))
        self.keyspace = keyspace
        self.table = table


class Unprepared(CqlError):
    """EXECUTE of an unknown statement id; the client prepares it again."""

    code = 0x2500

    def __init__(self, statement_id: bytes) -> None:
        super().__init__(
            f"No prepared statement with ID {statement_id.hex()} found.",
            struct.pack(">H", len(statement_id)) + statement_id,
        )
        self.statement_id = statement_id


class EmbeddedScyllaError(RuntimeError):
    """The embedded server cannot do what its owner asks: start, stop, change the topology. Not a CQL error."""


class ControlUnavailable(EmbeddedScyllaError):
    """No server answers on a control socket."""
