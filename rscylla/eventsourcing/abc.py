"""What the parts of event sourcing ask of each other, as Protocols: who calls what, and what an error does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import attrs

from ..errors import ConfigError
from .envelope import AggregateID, Envelope, EventRecord, Snapshot

__all__ = ["EventStore", "Projection", "ScanPage", "SnapshotStore", "SubjectKeys", "TokenRange"]

_LEAST, _MOST = -(2**63), 2**63 - 1


@attrs.frozen
class TokenRange:
    """The aggregates whose tokens are above ``low`` and not above ``high``; by default, all.

    >>> TokenRange().split(2)
    [TokenRange(low=-9223372036854775808, high=-1), TokenRange(low=-1, high=9223372036854775807)]
    """

    low: int = _LEAST
    high: int = _MOST

    def __attrs_post_init__(self) -> None:
        if not _LEAST <= self.low <= self.high <= _MOST:
            raise ConfigError(f"the range of tokens from {self.low} to {self.high} is none; low must not be above high")

    def split(self, parts: int) -> list[TokenRange]:
        """Return *parts* ranges that cover this one, in order."""
        if parts < 1:
            raise ConfigError(f"a range cannot be split into {parts} parts; use 1 or more")
        cuts = [self.low + (self.high - self.low) * n // parts for n in range(parts + 1)]
        return [TokenRange(low, high) for low, high in pairwise(cuts)]


@attrs.frozen
class ScanPage:
    """A part of what a scan returns. ``rest`` is what was not scanned yet; None: nothing is left of the range.

    The events of an aggregate come in the order of their versions. They may go on in the next page; a scan that
    continues at ``rest`` then begins with the first event of that aggregate again.
    """

    records: Sequence[EventRecord] = attrs.field(repr=False)
    rest: TokenRange | None


class EventStore(Protocol):
    """Keeps the events of aggregates. All methods may be called from several threads, and block.

    They raise the errors of the database: ``QueryTimeout`` and ``ConnectionFailed`` are resumable.
    """

    def append(self, records: Sequence[EventRecord]) -> None:
        """Append *records*: the next events of one aggregate, with versions one after the other. All or none.

        The aggregate must still be at the version before the first of them. The same append again, with the same event
        ids at the same versions, changes nothing and is no error: so after an error whose outcome is unknown, the same
        call is safe, and tells.

        Raises:
            VersionConflict: the aggregate has another version.
            QueryTimeout, ConnectionFailed: it is not known whether they were appended.
            ConfigError: the versions are not in order, the records are of several aggregates, there is none of them, or
                there are more than the store takes at once. Nothing is appended.
        """

    def read(self, aggregate: AggregateID, after: int = 0) -> Iterator[EventRecord]:
        """Yield the events of *aggregate* with versions above *after*, in order; none if there are none.

        Every event whose append returned before the call is among them. An error may come between two events.
        """

    def head(self, aggregate: AggregateID) -> int:
        """Return the version of the last event; 0 if there is none."""

    def scan(self, within: TokenRange = ..., /) -> Iterator[ScanPage]:
        """Yield the events of all aggregates of a token range. Called for rebuilds.

        Events that are appended meanwhile may be among them, or not. An error may come between two pages; continue with
        the ``rest`` of the last page.
        """


class SnapshotStore(Protocol):
    """Keeps the last snapshot of each aggregate. All methods may be called from several threads, and block.

    An error of ``put_snapshot`` is logged, and the command succeeds; an error of ``get_snapshot`` fails the command.
    """

    def get_snapshot(self, aggregate: AggregateID) -> Snapshot | None:
        """Return the snapshot that was put last; None if there is none."""

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Keep *snapshot* instead of the one before. An older one that replaces a newer one does no harm."""


class SubjectKeys(Protocol):
    """Keeps a secret key for each subject of personal data. All methods may be called from several threads, and block.

    An error fails the command, or the reading of the event, and is tried again where it is resumable.
    """

    def find_key(self, subject: str) -> bytes | None:
        """Return the key of 32 bytes; None if *subject* has none, or was forgotten. Called to read personal data."""

    def make_key(self, subject: str) -> bytes:
        """Return the key, made first if there is none. Called to write personal data. All callers get the same key.

        Raises:
            SubjectForgotten: the subject was forgotten, and gets no key any more.
        """

    def forget(self, subject: str) -> None:
        """Delete the key for good, also if there is none yet. Personal data of *subject* can never be read again."""


class Projection(Protocol):
    """Makes a view of events, such as a table of orders by customer.

    The runner calls it from one thread per aggregate at a time, in the order of the versions. Events of different
    aggregates may come from several threads. Delivery is at least once: an event may come again, also after later ones.
    """

    def apply(self, envelope: Envelope[Any], /) -> None:
        """Bring the view to the event, so that the same event again changes nothing.

        An error is handled as that of a consumer: another attempt, or a dead letter.
        """
