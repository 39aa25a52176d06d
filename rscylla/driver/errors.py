"""The one place that turns errors of ``cassandra`` (scylla-driver) into this library's."""

from __future__ import annotations

from collections.abc import Mapping

import cassandra
from cassandra import cluster, connection, protocol

from ..errors import AuthenticationFailed, ConnectionFailed, QueryFailed, QueryTimeout, RscyllaError, SourceError

__all__ = ["DRIVER_ERRORS", "one_line", "took_too_long", "translate"]

# Not all of the driver's errors are DriverException: those that come off the wire have a base class of their own.
DRIVER_ERRORS = (
    cassandra.DriverException,
    cluster.NoHostAvailable,
    connection.ConnectionException,
    connection.ProtocolError,
    protocol.ErrorMessage,
    protocol.NotSupportedError,
    OSError,
)
_REFUSED_USER = (cassandra.AuthenticationFailed, protocol.BadCredentials)
_UNREACHABLE = (
    cluster.NoHostAvailable,
    cassandra.UnresolvableContactPoints,
    connection.ConnectionException,
    OSError,
)
_REFUSED = (
    cassandra.RequestValidationException,
    cassandra.FunctionFailure,
    protocol.RequestValidationException,
    protocol.NotSupportedError,
)
# Errors of a node that is slow, overloaded, or starting: another attempt may succeed.
_LATE = (
    cassandra.OperationTimedOut,
    cassandra.RateLimitReached,  # to the driver, this is a statement that is not valid
    cassandra.RequestExecutionException,
    protocol.ErrorMessage,
)


GRANT_TO_READ = (
    "SELECT on the base table and, to read its log, on the tables that list its streams: with tablets, "
    "system.cdc_timestamps and system.cdc_streams; with vnodes, system_distributed.cdc_generation_timestamps and "
    "system_distributed.cdc_streams_descriptions_v2"
)
"""What a reader needs where the cluster has an authorizer; the log itself needs no grant, nor does the schema.

Source: Scylla ``service/client_state.cc``.
"""


def translate(
    error: BaseException,
    doing: str,
    *,
    hint: str | None = None,
    grant: str = GRANT_TO_READ,
    quote: bool = True,
) -> RscyllaError:
    """Return this library's error for one of the driver's. An error that is one of this library's is returned as it is.

    Args:
        doing: what was tried, such as ``reading shop.orders``.
        hint: what to do where no node answered, if more is known than that.
        grant: what a user needs who was refused for lack of permission.
        quote: whether the message repeats why the cluster refused the statement. Its words may contain values.
    """
    if isinstance(error, RscyllaError):
        return error
    text = one_line(error)
    answers = error.errors if isinstance(error, cluster.NoHostAvailable) else None
    causes = list(answers.values()) if isinstance(answers, Mapping) else []
    if any(isinstance(e, _REFUSED_USER) for e in (error, *causes)):
        return AuthenticationFailed(f"{doing}: the cluster refused the user name or password; check both")
    if isinstance(error, _UNREACHABLE):
        said = "; ".join(sorted({one_line(e) for e in causes})) or text
        advice = hint or "check the address, the port, and that Scylla runs"
        return ConnectionFailed(f"{doing}: no node answered ({said}); {advice}")
    if isinstance(error, cassandra.Unauthorized):
        return QueryFailed(f"{doing}: the user has no permission ({text}); grant {grant}")
    if isinstance(error, _REFUSED) and not isinstance(error, cassandra.RateLimitReached):
        why = text if quote else f"the cluster refused the statement ({type(error).__name__}); the cause says why"
        return QueryFailed(f"{doing}: {why}")
    if isinstance(error, _LATE):
        return QueryTimeout(f"{doing}: {text}")
    return SourceError(f"{doing}: {text}")


def took_too_long(error: BaseException) -> bool:
    """Return whether the query timed out, so that one over less time, and so fewer rows, may succeed."""
    return isinstance(error, cassandra.OperationTimedOut | cassandra.ReadTimeout)


def one_line(error: BaseException) -> str:
    """Return the error's text without line breaks; its class where it has no text."""
    return " ".join(str(error).split()) or type(error).__name__
