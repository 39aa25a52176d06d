"""Every error of rscylla, in one tree.

    RscyllaError
    ├── ConfigError (ValueError)      a wrong argument or option
    │   ├── MissingLag                a stream was opened without StreamLag
    │   └── IncompleteKey (LookupError)  the key of a lookup does not identify a single row
    ├── MetadataError                 the table or its streams cannot be used as they are
    │   ├── TableNotFound
    │   ├── CDCDisabled
    │   ├── TableChanged              the table was dropped and created again, or a key column was renamed
    │   ├── SchemaChanged             a read was planned with other columns than the table has now (resumable)
    │   ├── CannotReplicate           a change cannot be applied to another table
    │   └── NoStreams                 no generation, or one without streams (resumable)
    ├── CursorError
    │   ├── InvalidCursor
    │   ├── CursorExpired
    │   ├── CursorRegression
    │   ├── CursorConflict            the cursor was reset while a consumer was running (resumable)
    │   └── LeaseLost                 the lease that guards the cursor is not held (resumable)
    ├── SourceError                   reading from the cluster failed
    │   ├── ConnectionFailed (resumable)
    │   ├── AuthenticationFailed
    │   ├── MalformedData             bytes that are no page, or no value of their column
    │   ├── QueryFailed
    │   └── QueryTimeout (resumable)
    ├── PublishFailed                 a record was not acknowledged (resumable)
    │   └── PublishRejected           a record can never be published (not resumable)
    ├── EventStoreError               event sourcing: the store, its events, or their subjects
    │   ├── VersionConflict           the aggregate has another version than the append expects (resumable)
    │   ├── VersionGap                events of an aggregate are missing before the one that came
    │   ├── UnreadableEvent           an event of an unknown type, or with data that are not of its type
    │   ├── CommandIDReused           the id of a command was used for another one before
    │   ├── ConcealedError            an error of other code, without its text, which may quote personal data
    │   └── SubjectForgotten          personal data of a subject whose key was deleted cannot be written
    ├── SparkFailed                   Spark failed for a reason that is not an error of rscylla (resumable)
    ├── Stopped                       the stop signal was set; expected
    ├── HeadReached                   everything up to the head, or the requested end, was delivered
    ├── FateError (resumable)         injected on purpose
    ├── EventTypeError (resumable)    a stream's event_type= function failed
    ├── FilterError (resumable)       a consumer's filter failed
    │   └── DeserializationError      it could not decode the event's metadata
    ├── ProcessDied                   the error of a dead letter whose attempts ended the process
    ├── KeyParked                     the error of a dead letter that waits behind an earlier one of its key
    ├── LetterClaimed                 another process replays or resolves the dead letter at this moment
    ├── RunError                      the error that ended a run, and its stage
    └── ServiceFailed                 a service gave up on a lane

``resumable`` says whether a retry from the saved cursor may help. All errors can be pickled, and no message contains
row values.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

__all__ = [
    "AuthenticationFailed",
    "CDCDisabled",
    "CannotReplicate",
    "CommandIDReused",
    "ConcealedError",
    "ConfigError",
    "ConnectionFailed",
    "CursorConflict",
    "CursorError",
    "CursorExpired",
    "CursorRegression",
    "DeserializationError",
    "EventStoreError",
    "EventTypeError",
    "FateError",
    "FilterError",
    "HeadReached",
    "IncompleteKey",
    "InvalidCursor",
    "KeyParked",
    "LeaseLost",
    "LetterClaimed",
    "MalformedData",
    "MetadataError",
    "MissingLag",
    "NoStreams",
    "ProcessDied",
    "PublishFailed",
    "PublishRejected",
    "QueryFailed",
    "QueryTimeout",
    "RscyllaError",
    "RunError",
    "SchemaChanged",
    "ServiceFailed",
    "SourceError",
    "SparkFailed",
    "Stopped",
    "SubjectForgotten",
    "TableChanged",
    "TableNotFound",
    "UnreadableEvent",
    "VersionConflict",
    "VersionGap",
    "is_expected",
    "is_resumable",
]


def _rebuild(cls: type[RscyllaError], args: tuple[Any, ...], state: dict[str, Any]) -> RscyllaError:
    """Make an error again from its pickled parts, without calling its own constructor."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class RscyllaError(Exception):
    """Base of all errors of this library. ``resumable``: a retry from the saved cursor may help."""

    resumable: bool = False

    # Errors go from Spark's workers to the driver. Exception's own way would call the constructor with the message
    # alone, without the keyword arguments that several of them need.
    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(RscyllaError, ValueError):
    """An argument or option is wrong. Retrying does not help."""


class MissingLag(ConfigError):
    """A stream was opened without a lag, for which there is no default."""

    def __init__(
        self, what: str = "the stream", *, name: str = "StreamLag", example: str = "StreamLag(seconds=30)"
    ) -> None:
        super().__init__(
            f"{what} has no {name}; pass {example} or more, because rows with timestamps from other "
            "clocks arrive late and a window read too early misses them"
        )


class IncompleteKey(ConfigError, LookupError):
    """The key of a range, a partition, or a static row was used for a lookup, which needs the key of a single row."""


class MetadataError(RscyllaError):
    """The table or its CDC streams cannot be used as they are."""


class CannotReplicate(MetadataError):
    """A change cannot be applied to another table: the tables differ, or the log does not contain enough."""


class TableNotFound(MetadataError):
    """The base table, or its keyspace, does not exist."""


class CDCDisabled(MetadataError):
    """The base table has no CDC log, or CDC is switched off and the reader has got to that time."""


class TableChanged(MetadataError):
    """The log table was dropped and created again, while it was being read (resumable) or since the cursor was saved.

    Also: a key column was renamed, so the log no longer contains the keys of changes that were not read before.
    """


class SchemaChanged(MetadataError):
    """A read was planned with other columns than the table has now. When it starts again, it has the new ones."""

    resumable = True


class NoStreams(MetadataError):
    """No generation was found, or one without streams; after a topology change, it may still appear."""

    resumable = True


class CursorError(RscyllaError):
    """A cursor cannot be used. Saved cursors are not changed."""


class InvalidCursor(CursorError, ValueError):
    """The text is not a cursor of this library."""


class CursorExpired(CursorError):
    """Rows after the cursor may have expired. ``gap_from`` to ``gap_to`` (aware UTC) can no longer be read.

    A note has the two times, too: what Spark passes on of an error is its traceback.
    """

    def __init__(self, message: str, *, gap_from: datetime, gap_to: datetime) -> None:
        super().__init__(message)
        self.gap_from = gap_from
        self.gap_to = gap_to
        self.add_note(f"gap: {gap_from.isoformat()} to {gap_to.isoformat()}")


class CursorRegression(CursorError):
    """The cursor to save is lower than the saved one. ``stored`` and ``given`` are the two cursors."""

    def __init__(self, message: str, *, consumer: str, stored: str, given: str) -> None:
        super().__init__(message)
        self.consumer = consumer
        self.stored = stored
        self.given = given


class CursorConflict(CursorError):
    """The saved cursor was reset while this process was using it; read it again."""

    resumable = True


class LeaseLost(CursorError):
    """The lease is not held, or no longer held: another owner may be active. Acquire it before you save anything."""

    resumable = True


class SourceError(RscyllaError):
    """Reading from the cluster failed."""


class ConnectionFailed(SourceError):
    """No node could be reached, or the connection was lost."""

    resumable = True


class AuthenticationFailed(SourceError):
    """The cluster refused the user name or password."""


class MalformedData(SourceError):
    """A page, or a cell of it, has bytes that are not what its columns say. The cause is chained.

    No cursor moves past it, and no retry helps: the same bytes come again. ``table`` is keyspace.table, ``column`` the
    name of the column; each is empty if it is not known.
    """

    def __init__(self, message: str, *, table: str = "", column: str = "") -> None:
        super().__init__(message)
        self.table = table
        self.column = column

    @classmethod
    def of_page(cls, table: str, why: str, *, is_log: bool) -> Self:
        """Return the error of a page of *table*, or of its log, that cannot be split."""
        return cls(f"{'the log of ' * is_log}{table} has a malformed page: {why}", table=table)

    @classmethod
    def of_cell(cls, table: str, column: str, *, is_log: bool) -> Self:
        """Return the error of a cell of *table*, or of its log, that cannot be decoded; the name may be empty."""
        where = f"column {column!r}" if column else "a column"
        what = f"{'the log of ' * is_log}{table} has bytes in {where} that are not a value of its type"
        return cls(what, table=table, column=column)


class QueryFailed(SourceError):
    """The cluster refused a query for good."""


class QueryTimeout(SourceError):
    """A query did not succeed in time, after all its retries."""

    resumable = True


class PublishFailed(RscyllaError):
    """A record was not acknowledged, so it may or may not have been published. The cause is chained."""

    resumable = True


class PublishRejected(PublishFailed):
    """A record can never be published, for example because it is too large.

    ``index``: its place in the call that refused it: the records before it were taken, those after it were not. None if
    it was refused after the call; then ``rejected`` has the places of all such records of the call, and why.
    """

    resumable = False

    def __init__(self, message: str, *, index: int | None = None, rejected: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.index = index
        self.rejected = rejected


class EventStoreError(RscyllaError):
    """Event sourcing failed, but not because of the database."""


class VersionConflict(EventStoreError):
    """The aggregate has the version ``actual``, and not ``expected``: others have appended to it. Nothing is appended.

    Load the aggregate again, and decide again; ``CommandHandler`` does.
    """

    resumable = True

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class VersionGap(EventStoreError):
    """Events of an aggregate are missing before the one that came, so it is not applied.

    ``expected`` is the version that is missing, ``actual`` that of the event that came.
    """

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class UnreadableEvent(EventStoreError):
    """An event cannot be decoded: its type or schema is unknown here, or its data are not of its type.

    No retry helps, only another version of the application. The cause is chained, if there is one. ``type`` and
    ``schema`` are those of the event.
    """

    def __init__(self, message: str, *, type: str, schema: int) -> None:  # noqa: A002 - as the event calls it
        super().__init__(message)
        self.type = type
        self.schema = schema


class CommandIDReused(EventStoreError):
    """The id of a command was used before for one that led to other events. Nothing is appended; use a new id."""


class ConcealedError(EventStoreError):
    """An error of other code whose text is left out, for it may quote personal data. Its traceback is kept."""

    def __init__(self, message: str, *, resumable: bool = False) -> None:
        super().__init__(message)
        self.resumable = resumable


class SubjectForgotten(EventStoreError):
    """New personal data of a subject that was forgotten cannot be written, for it gets no key any more."""


class SparkFailed(RscyllaError):
    """Spark failed for a reason that is not an error of rscylla: an executor was lost, or the code of a user failed."""

    resumable = True


class Stopped(RscyllaError):
    """The stop signal was set. Expected: nothing went wrong."""

    resumable = True

    def __init__(self, message: str = "stopped") -> None:
        super().__init__(message)


class HeadReached(RscyllaError):
    """All events up to the head, or up to the requested end, were delivered. ``cursor`` is where to continue."""

    def __init__(self, message: str = "head reached", *, cursor: str = "") -> None:
        super().__init__(message)
        self.cursor = cursor


class FateError(RscyllaError):
    """An error that ``Fate`` injected to test whether the application is idempotent."""

    resumable = True


class EventTypeError(RscyllaError):
    """The ``event_type=`` function of the stream failed, or did not return an int. The cause is chained.

    It is resumable unless the cause is not, such as ``MalformedData``.
    """

    def __init__(self, message: str, *, resumable: bool = True) -> None:
        super().__init__(message)
        self.resumable = resumable


class FilterError(RscyllaError):
    """A consumer's event filter failed, so nothing decides whether to consume the event. The cause is chained.

    It is resumable unless the cause is not, such as ``MalformedData``.
    """

    def __init__(self, message: str, *, resumable: bool = True) -> None:
        super().__init__(message)
        self.resumable = resumable


class DeserializationError(FilterError):
    """A filter could not decode the event's metadata. The cause is chained."""


class ProcessDied(RscyllaError):
    """The process ended while it consumed an event, and so did those after it: the error of such a dead letter."""


class KeyParked(RscyllaError):
    """An earlier event of the same key is a dead letter, so this one waits behind it: the error of its letter."""


class LetterClaimed(RscyllaError):
    """Another process replays or resolves the dead letter at this moment. Try again when it is done."""


class RunError(RscyllaError):
    """The error that ended a run. The cause is chained.

    ``stage`` is one of reset, get_cursor, stream, recv, delay, consume, set_cursor, stop, close, flush; ``event_id``
    and ``event_fid`` are empty outside consume and set_cursor.
    """

    def __init__(
        self, message: str, *, stage: str, consumer: str, event_id: str = "", event_fid: str = "", resumable: bool
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.consumer = consumer
        self.event_id = event_id
        self.event_fid = event_fid
        self.resumable = resumable


class ServiceFailed(RscyllaError):
    """The service gave up on a lane, or a lane hangs. The cause is chained. ``consumer`` names the lane, if any.

    ``exit_code`` is the exit code for a process that ends with this error.
    """

    exit_code = 1

    def __init__(self, message: str, *, consumer: str = "") -> None:
        super().__init__(message)
        self.consumer = consumer


def is_expected(error: BaseException) -> bool:
    """Return whether *error* is ``Stopped``, or a ``RunError`` caused by it.

    A time-out is never expected, and neither is a reached head.
    """
    if isinstance(error, RunError):
        return error.__cause__ is not None and is_expected(error.__cause__)
    return isinstance(error, Stopped)


def is_resumable(error: BaseException) -> bool:
    """Return whether a retry from the saved cursor may help; True for errors of other code, such as a consumer's."""
    if isinstance(error, RscyllaError):
        return error.resumable
    return isinstance(error, Exception)
