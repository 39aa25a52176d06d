"""What the parts of event sourcing ask of each other, as Protocols: who calls what, and what an error does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import attrs

from cursorstore.table import check_name

from .._tokens import TokenRange
from .envelope import AggregateID, Envelope, EventRecord, Snapshot, milliseconds

__all__ = [
    "BuildStore",
    "Built",
    "EventStore",
    "Projection",
    "ScanPage",
    "SnapshotStore",
    "SubjectKeys",
    "Timer",
    "TimerStore",
    "TokenRange",
]


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
        ids, types, and data at the same versions, changes nothing and is no error: so after an error whose outcome is
        unknown, the same call is safe, and tells. The same ids with other data are a conflict.

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
    """Makes a view of events, such as a table of orders by customer. It exists in builds, numbered from 1.

    One build is active: queries read it. To rebuild the view while it is live, another build is made beside it, and
    becomes the active one when it is complete. Keep the number of the build in the key of the rows, or in the name of
    the table.

    Calls for one aggregate come one at a time, in the order of the versions. Those for different aggregates, and for
    different builds, may come from several threads. An error of ``apply`` is handled as that of a consumer.
    """

    @property
    def name(self) -> str:
        """Key of its builds, and by default of its consumer's cursor. Keep it stable across releases."""

    def prepare(self, build: int, /) -> None:
        """Create what *build* needs, such as tables. Called before anything else of it, and again at each start."""

    def version(self, build: int, aggregate: AggregateID, /) -> int:
        """Return the version of the last event of *aggregate* that *build* shows; 0 if there is none.

        Asked before each event, which it decides about: read it where ``apply`` writes it, at a consistency that sees
        all of its writes.
        """

    def apply(self, build: int, envelope: Envelope[Any], /) -> None:
        """Bring *build* to the event, and the version of its aggregate with it.

        The event is the one after ``version``. If the version is saved last, or in one write with the rest, a crash at
        any point leads to the same call again. What is not idempotent, such as a sum, needs the one write.

        A write can arrive late, when others have gone on: let each carry the version of its event, as its timestamp
        (``USING TIMESTAMP``) or in a condition (``IF version = ...``), so that it never replaces a newer one. Requests
        that are made here raise ``Stopped`` if the lease of the lane was lost; let it through.
        """

    def drop(self, build: int, /) -> None:
        """Delete *build*, which nothing reads any more. May be called again."""


def _copied(rest: Mapping[str, int]) -> dict[str, int]:
    return dict(rest)


@attrs.frozen
class Built:
    """The builds of a projection. 0 stands for none.

    ``active`` is the build that queries read, ``building`` the one that is made beside it, ``retired`` the one that was
    active before and is not dropped yet. ``last`` is the highest number that a build has had. ``rest``: by lane, where
    the scan for ``building`` continues: the tokens above this one are not scanned yet.
    """

    active: int = 0
    building: int = 0
    retired: int = 0
    last: int = 0
    rest: Mapping[str, int] = attrs.field(factory=dict, converter=_copied, hash=False)


class BuildStore(Protocol):
    """Keeps the builds of projections. All methods may be called from several threads and processes, and block.

    A method that changes something does it in one step, or not at all, and returns whether it did. They raise the
    errors of the database; the same call again is safe.
    """

    def find_builds(self, projection: str) -> Built:
        """Return the builds of *projection*. One that is new has build 1 as ``building``, which this saves."""

    def begin_build(self, projection: str, build: int) -> bool:
        """Make *build* the one that is being built, if there is none, nothing is retired, and its number is new.

        A number is used once: who still remembers a build that was given up never takes another one for it.
        """

    def scanned(self, projection: str, build: int, lane: str, rest: int) -> bool:
        """Save where the scan of *lane* continues, if *build* is being built."""

    def activate(self, projection: str, build: int) -> bool:
        """Make *build* the active one, and the active one the retired one, if *build* is being built."""

    def dropped(self, projection: str, build: int) -> bool:
        """Save that *build* is dropped: it is no longer retired, or no longer being built."""


@attrs.frozen
class Timer:
    """What has to happen at a time. ``id`` is unique for good: a timer that has fired is not scheduled again.

    ``due`` is in UTC and whole milliseconds: what is finer is cut off. ``data`` is whatever the one who fires it needs.
    ``place`` is for the store that returned it.
    """

    id: str
    due: datetime = attrs.field(converter=milliseconds)
    data: str = attrs.field(default="", repr=False)
    place: int | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_name("the id of a timer", self.id)
        check_name("the data of a timer", self.data, least=0, most=2**31 - 1)


class TimerStore(Protocol):
    """Keeps timers until they have fired. All methods may be called from several threads and processes, and block.

    They raise the errors of the database; the same call again is safe.
    """

    def schedule(self, timer: Timer) -> bool:
        """Keep *timer* if none with its id is known; return whether this timer is waiting now.

        The same timer again changes nothing. False: it was fired or cancelled, or has another time or other data. To
        move a timer, cancel it, and schedule one with another id.
        """

    def cancel(self, timer_id: str) -> bool:
        """Cancel a timer that is waiting; return whether it is cancelled.

        False: there is none, it was fired, or a runner has claimed it and is firing it.
        """

    def due(self, now: datetime, limit: int) -> Sequence[Timer]:
        """Return timers that are due at *now*, at most *limit*, by time. Some may be claimed, or have fired already.

        A timer that was scheduled late, or by a clock that is behind, may be missing for a minute. A call takes a
        bounded number of queries: after a long time without calls, timers of long ago come by several ones.
        """

    def claim(self, timer: Timer, owner: str, duration: timedelta) -> bool:
        """Give *timer* to *owner* for *duration*, in one conditional step; return whether *owner* may fire it.

        False: it was cancelled or fired, or another owner has claimed it. The same owner may claim it again.
        """

    def finish(self, timer: Timer) -> None:
        """Save that *timer* has fired. Called by the owner after that, also if its claim has expired meanwhile."""
