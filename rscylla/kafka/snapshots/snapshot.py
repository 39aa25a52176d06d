"""Snapshots: the rows of a base table as records with op ``r``, before or while its changes are published.

A snapshot is a stream like another: its events are rows, its cursor is the token up to which all partitions are done.
So what publishes changes publishes rows, too: pipelined, bounded in bytes, with dead letters, and with a cursor that
moves after the acknowledgement. A snapshot that was interrupted continues at the partition where it was.

The cursor is kept under a name of its own, ``<consumer>/snapshot``, and moves to other slices with the consumer's.
It has the form of the id of a log row, which any cursor store takes: its stream id holds the token, and its sequence
number says which kind of snapshot it is.

    initial       the cursor of the changes is taken and saved first, then all rows are published, then the changes from
                  the cursor on. What was written in between is in the rows, and comes again as changes: a key's records
                  end with its newest state.
    incremental   rows are published while changes are. A row is published before any change that was written after the
                  row was read (see ``Fresh``), so its state is never newer than what follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal

import attrs

from ...abc import CursorStore, JointPublisher, Message, Publisher, StreamFunc
from ...cdc import Stream
from ...cdc.log import resume
from ...clock import Stop
from ...debezium import Settings
from ...errors import ConfigError, CursorExpired, HeadReached, TableChanged
from ...event import Event
from ...options import StreamOption
from ...publish import DebeziumMessages, publishing
from ...reflex import Spec, meters_for, run_forever, slice_name
from ..cursors.positions import INCREMENTAL, INITIAL, Position, admin_of, position_of, snapshot_name
from .beside import Accompanied, Fresh, FreshJoint, RowMessage, Turns
from .rows import PAGE_ROWS, TOGETHER, Snapshot, SnapshotRow

__all__ = ["MODES", "Mode", "Position", "Snapshots", "request", "snapshot_name"]

log = logging.getLogger("rscylla.kafka")

Mode = Literal["initial", "initial_only", "never", "when_needed"]
MODES: Final[tuple[Mode, ...]] = ("initial", "initial_only", "never", "when_needed")


@attrs.define(eq=False)
class Snapshots:
    """Takes the snapshots of a connector. Thread-safe, each table for itself.

    Args:
        properties: of the connector, by its names; they decide what records look like.
        publisher: where records go; for snapshots beside changes, the one that the changes of the table go to.
        mode: the property ``snapshot.mode``.
        lag: of the streams of changes.
        rows_per_s: at most so many rows a second of each table; None: as fast as they are published.
        poll: how often to look for requests.
        on_progress: called with the table (of a slice, such as ``shop.orders[0/4]``), the part of the token ring that
            is done, 0 to 1, and the rows of this run.
        options: of ``publishing``: dead letters, bounds, registry.
    """

    properties: Mapping[str, str]
    publisher: Publisher
    mode: Mode = "never"
    lag: timedelta = timedelta(seconds=30)
    rows_per_s: float | None = None
    page_rows: int = PAGE_ROWS
    poll: timedelta = timedelta(seconds=5)
    on_progress: Callable[[str, float, int], None] | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"snapshot.mode is {self.mode!r}; it can be {', '.join(MODES)}")
        if self.rows_per_s is not None and self.rows_per_s < 1:
            raise ConfigError("a snapshot reads at least one row a second")

    def before(self, stream: Stream, store: CursorStore, consumer: str, stop: Stop) -> bool:
        """Take the snapshot that the mode asks for, if it is not complete; return whether changes are to follow.

        The cursor of *consumer* is set to the head when the snapshot begins, and left alone then. Blocks until all rows
        are acknowledged, or *stop* is set; a later call continues. Errors that a retry may fix are retried.

        Raises:
            CursorExpired: the snapshot, with its interruptions, took longer than the log keeps changes.
            RunError: as ``run_forever``.
        """
        if self.mode == "never":
            return True
        admin, name = admin_of(store), snapshot_name(consumer, stream.key_slice)
        saved, record = admin.find_cursor(consumer), admin.find_cursor(name)
        position = position_of(record)
        # Without a position: one of the slices that this one was made of had not begun.
        is_open = record is not None and (position is None or (position.kind == INITIAL and not position.is_done))
        is_kept = self.mode != "when_needed" or saved is None or not self._is_lost(stream, saved.cursor)
        if saved is not None and not is_open and is_kept:  # it has run before, with a snapshot or without one
            return self.mode != "initial_only"
        begins = "an initial snapshot begins"
        if saved is None or not is_open or not is_kept:
            head = stream.head_cursor(self.lag)
            # In this order: a cursor without a snapshot would mean that none is missing.
            admin.reset_cursor(name, str(Position(INITIAL)), reason=begins)
            admin.reset_cursor(consumer, head, reason=begins)
        elif position is None:
            admin.reset_cursor(name, str(Position(INITIAL)), reason=begins)
        run_forever(self._spec(stream, store, consumer, self.publisher), stop=stop)
        return self.mode != "initial_only" and not stop.is_set()

    def follow(self, stream: Stream, store: CursorStore, consumer: str, stop: Stop, turns: Turns | None = None) -> None:
        """Take the snapshots that are requested, while the changes of the table are published. Blocks until *stop*.

        Args:
            turns: of the rows, for which changes wait; None: rows that took long to publish are read again.

        Raises:
            RunError: as ``run_forever``.
        """
        admin, name = admin_of(store), snapshot_name(consumer, stream.key_slice)
        clock = stream.clock
        while not stop.is_set():
            position = position_of(admin.find_cursor(name))
            if position is not None and position.kind == INCREMENTAL and not position.is_done:
                kind = FreshJoint if isinstance(self.publisher, JointPublisher) else Fresh
                run_forever(
                    self._spec(stream, store, consumer, kind(self.publisher, clock, self.lag / 2, turns)), stop=stop
                )
            clock.wait(stop, self.poll.total_seconds())

    def lane(self, stream: Stream, store: CursorStore, consumer: str, begin: Callable[[], str] = str) -> StreamFunc:
        """Return the stream of a lane: the changes of *stream*, after the snapshot of the mode, beside those requested.

        A lane whose mode is ``initial_only`` reaches its head when all rows are published. If *consumer* has no cursor,
        *begin* may save one; it returns that, or "".
        """
        return _Lane(self, stream, store, consumer, begin)

    def _is_lost(self, stream: Stream, cursor: str) -> bool:
        """Return whether the stream cannot continue after *cursor*, because changes have expired."""
        try:
            resume(stream.describe(), cursor, "raise")
        except (CursorExpired, TableChanged) as e:
            log.warning("%s: %s; a new snapshot begins", stream, e)
            return True
        return False

    def _spec(self, stream: Stream, store: CursorStore, consumer: str, publisher: Publisher) -> Spec:
        messages = DebeziumMessages(self.properties, clock=stream.clock)
        told, source, name = self.on_progress, str(stream), snapshot_name(consumer, stream.key_slice)
        source = slice_name(source, *stream.key_slice)
        done = meters_for(self.options.get("registry")).snapshot_done.labels(name)

        def progress(part: float, count: int) -> None:
            done.set(part)
            if told is not None:
                told(source, part, count)

        together = min(TOGETHER, self.options.get("max_unacknowledged", TOGETHER))
        rows = Snapshot(stream, Settings.of(self.properties), self.rows_per_s, self.page_rows, together, progress)

        def make(event: Event) -> list[Message]:
            assert isinstance(event, SnapshotRow)
            return [RowMessage.of(message, event.read_at) for message in messages.of_records([event.record])]

        made = publishing(name, make, publisher, **self.options)
        return Spec(rows, store, made, clock=stream.clock)


@attrs.frozen(eq=False)
class _Lane:
    """The stream of ``Snapshots.lane``."""

    supports_lag = True

    snapshots: Snapshots
    stream: Stream
    store: CursorStore
    consumer: str
    begin: Callable[[], str]

    @property
    def source(self) -> str:
        return str(self.stream)

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> Accompanied:
        after, ends = after or self.begin(), stop or Stop()
        if not self.snapshots.before(self.stream, self.store, self.consumer, ends):
            ends.check()
            raise HeadReached("the initial snapshot is complete, and no changes follow it", cursor=after)
        # The snapshot has set the cursor since the run read it.
        client = self.stream(self.store.get_cursor(self.consumer), *options, stop=stop)
        follow, clock = partial(self.snapshots.follow, self.stream, self.store, self.consumer), self.stream.clock
        return Accompanied(client, self.source, follow, self.snapshots.poll.total_seconds(), clock, ends)


def request(stream: Stream, store: CursorStore, consumer: str, *, reason: str) -> list[str]:
    """Ask the processes that publish the changes of a table for its rows; return the names of the snapshots.

    A snapshot that runs begins again. Blocks on small queries.

    Raises:
        ConfigError: *consumer* has no cursor, so no process has published changes for it, or *reason* is blank; or an
            initial snapshot is not complete.
        Others: as for opening the stream.
    """
    admin = admin_of(store)
    of_it = [(r.consumer, part) for r in admin.list_cursors() if (part := r.slice_of(consumer)) is not None]
    working = [each for each in of_it if each[1][1] > 1] or of_it
    if not working:
        raise ConfigError(f"the consumer {consumer!r} has no cursor yet, so there is nobody to ask; check its name")
    wanted = [snapshot_name(name, part) for name, part in working]
    for name in wanted:
        position = position_of(admin.find_cursor(name))
        if position is not None and position.kind == INITIAL and not position.is_done:
            raise ConfigError(f"the initial snapshot {name!r} is not complete; wait for its end")
    stream.describe()
    for name in wanted:
        admin.reset_cursor(name, str(Position(INCREMENTAL)), reason=reason)
    return wanted
