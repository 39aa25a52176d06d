"""``CommandHandler``: loads an aggregate, lets it decide about a command, and appends the events."""

from __future__ import annotations

import json
import logging
import uuid
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

import attrs

from .. import _timeuuid as tu
from .._retry import Backoff, may_help, retry
from ..clock import Clock, Stop, SystemClock
from ..errors import CommandIDReused, ConfigError, RscyllaError, SubjectForgotten, VersionConflict, VersionGap
from .abc import EventStore, SnapshotStore
from .aggregate import Aggregate
from .alike import alike
from .codec import quietly, tell
from .envelope import AggregateID, Envelope, EventRecord, Snapshot
from .store.bounds import conflict

__all__ = ["CommandHandler", "Handled", "Loaded", "event_id_of"]

log = logging.getLogger("rscylla.eventsourcing")

S = TypeVar("S")
C = TypeVar("C")
E = TypeVar("E")

ATTEMPTS: Final = 10
BACKOFF: Final = Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(seconds=1))

_NAMESPACE: Final = uuid.UUID("5b0bd0f3-3a2c-5c0a-9a53-0a1a53c0e5b1")
"""Of the ids of events. It must never change: an id made again must be the same."""


def event_id_of(aggregate: AggregateID, command_id: str, number: int) -> uuid.UUID:
    """Return the id of the event *number*, from 0, that a command leads to. It is always the same.

    >>> event_id_of(AggregateID("order", "1"), "c", 0) == event_id_of(AggregateID("order", "1"), "c", 0)
    True
    """
    return uuid.uuid5(_NAMESPACE, json.dumps([aggregate.type, aggregate.id, command_id, number]))


@attrs.frozen
class Loaded(Generic[S]):
    """An aggregate as it was loaded. ``commands`` are ids of the last commands that it knows, oldest first.

    ``snapshot`` is the version of the snapshot that it was loaded from; 0 if there was none.
    """

    aggregate: AggregateID
    version: int
    state: S
    commands: tuple[str, ...] = attrs.field(default=(), repr=False)
    snapshot: int = 0


@attrs.frozen
class Handled(Generic[S, E]):
    """The result of a command: the aggregate's ``version`` and ``state`` after it, and the events that it led to.

    ``repeated``: the command had been done before, and changed nothing now. The events are those that it led to then,
    and the version and state are the current ones.
    """

    aggregate: AggregateID
    version: int
    state: S
    events: tuple[Envelope[E], ...] = ()
    repeated: bool = False


class CommandHandler(Generic[S, C, E]):
    """Handles commands to one kind of aggregate. Thread-safe; blocks.

    Args:
        aggregate: What decides.
        store: Where the events are.
        snapshots: Where snapshots are; None: every load reads all events of the aggregate. None are made, and a warning
            says so once, if states of the aggregate's ``state_type`` would come back as others.
        snapshot_every: A snapshot is taken when so many events have come since the last one.
        remember: How many of its last commands a snapshot keeps. A command that comes again after more than these is
            not recognized any more, and is decided again. Without snapshots, every command is recognized.
        attempts: How often a command is tried, at most: again after a conflict, and after a temporary error.
        backoff: The pauses between attempts.
        clock: The clock of the events and of the pauses.
        stop: Ends pauses, and the reading of events, with ``Stopped``.
    """

    def __init__(
        self,
        aggregate: Aggregate[S, C, E],
        store: EventStore,
        *,
        snapshots: SnapshotStore | None = None,
        snapshot_every: int = 100,
        remember: int = 1000,
        attempts: int = ATTEMPTS,
        backoff: Backoff = BACKOFF,
        clock: Clock | None = None,
        stop: Stop | None = None,
    ) -> None:
        if min(snapshot_every, attempts) < 1 or remember < 0:
            raise ConfigError("snapshot_every and attempts must be 1 or more, and remember 0 or more")
        self.aggregate = aggregate
        self._store = store
        self._snapshots = snapshots if snapshots is None or self._can_snapshot() else None
        self._told = False
        self._every = snapshot_every
        self._remember = remember
        self._attempts = attempts
        self._backoff = backoff
        self._clock = clock or SystemClock()
        self._stop = stop or Stop()

    def _can_snapshot(self) -> bool:
        kind = self.aggregate
        try:
            kind.events.check_state(kind.name, kind.state_type, kind.initial)
        except ConfigError as e:
            log.warning("no snapshots of %s are made: %s", kind.name, e)
            return False
        return True

    def load(self, id: str) -> Loaded[S]:  # noqa: A002 - as in AggregateID
        """Return the aggregate with that id: the last snapshot, if there is one, and all events after it.

        Raises:
            UnreadableEvent: an event cannot be decoded.
            VersionGap: an event is missing.
            Others: those of the stores.
        """
        aggregate = self.aggregate.id(id)
        return self._caught_up(self._start(aggregate))

    def handle(
        self,
        id: str,  # noqa: A002 - as in AggregateID
        command: C,
        *,
        command_id: str | None = None,
        correlation_id: str = "",
        user: str = "",
        metadata: Mapping[str, str] | None = None,
        expected: int | None = None,
    ) -> Handled[S, E]:
        """Let the aggregate with that id decide about *command*, and append the events. Blocks.

        After a conflict, what others have appended is read, and the aggregate decides again.

        Args:
            command_id: Identifies the command, also when it is sent again: then nothing is done. Default: a new one.
                One that an earlier command had, which led to other events, is refused. Times and UUIDs in them may
                differ, and fields with ``eq=False``: they may be made by who receives the command.
            correlation_id: What it belongs to, for the envelopes of its events; default: the command's id.
            user: Who sent it, for the envelopes.
            metadata: Anything else for the envelopes.
            expected: The version that the sender has seen, 0 for none: at any other one, the aggregate does not decide.
                A command that was done before is recognized all the same.

        Raises:
            VersionConflict: others were faster at each attempt, or the version is not the one that is expected.
            CommandIDReused: the id is of another command, which was done before.
            ConfigError: an event cannot be stored.
            Others: what ``decide`` raises, as it is; those of ``load``. After ``QueryTimeout`` and ``ConnectionFailed``
                it is not known whether the command was done; send it again with the same id.
        """
        command_id = command_id or str(uuid.uuid4())
        context = {
            "correlation_id": correlation_id or command_id,
            "causation_id": command_id,
            "user": user,
            "metadata": metadata or {},
        }
        aggregate = self.aggregate.id(id)
        loaded: Loaded[S] | None = None

        def attempt() -> Handled[S, E]:
            nonlocal loaded
            loaded = self._caught_up(loaded or self._start(aggregate))
            if command_id in loaded.commands:
                events = self._done_before(aggregate, command, command_id)
                return Handled(aggregate, loaded.version, loaded.state, events, repeated=True)
            if expected is not None and expected != loaded.version:
                raise conflict(aggregate, expected, loaded.version)
            return self._done(loaded, command, command_id, context)

        def again(error: Exception) -> bool:
            # Who expects a version has to look before deciding again. A conflict of the append may be one with an
            # earlier attempt at this very command, so that one is looked at.
            is_final = isinstance(error, VersionConflict) and loaded is not None and error.actual == loaded.version
            return may_help(error) and not (expected is not None and is_final)

        return retry(
            attempt, attempts=self._attempts, backoff=self._backoff, clock=self._clock, stop=self._stop, again=again
        )

    def _done(self, loaded: Loaded[S], command: C, command_id: str, context: dict[str, Any]) -> Handled[S, E]:
        aggregate, version = loaded.aggregate, loaded.version
        try:
            events = list(self.aggregate.decide(loaded.state, command))
        except Exception as error:
            tell(error, loaded.state, command)  # for a process manager, whose errors become dead letters
            raise
        if not events:
            return Handled(aggregate, version, loaded.state)
        at = tu.datetime_of(self._clock.now_us())
        records = []
        for n, event in enumerate(events):
            name, schema, data = self.aggregate.events.encode(event)
            event_id = event_id_of(aggregate, command_id, n)
            records.append(EventRecord(aggregate, version + 1 + n, event_id, name, schema, data, at, **context))
        self._store.append(records)
        envelopes = tuple(map(Envelope, events, records))
        after = attrs.evolve(
            loaded,
            version=version + len(events),
            state=self.aggregate.after(events, loaded.state),
            commands=(*loaded.commands, command_id),
        )
        self._keep(after)
        return Handled(aggregate, after.version, after.state, envelopes)

    def _done_before(self, aggregate: AggregateID, command: C, command_id: str) -> tuple[Envelope[E], ...]:
        """Return the events that the command with that id led to; refuse *command* if it leads to others."""
        # Nothing of a command is stored that could tell, for it may be personal. But the same one leads to the same.
        state, found = self.aggregate.initial, list[Envelope[E]]()
        for record in self._store.read(aggregate):
            self._stop.check()
            if record.causation_id == command_id:
                found.append(self.aggregate.events.decode(record))
            elif found:
                break
            else:
                state = self.aggregate.after((self.aggregate.events.decode(record).event,), state)
        reused = CommandIDReused(
            f"the command id {command_id!r} is of an earlier command to {aggregate}, which led to other events; use a "
            "new id for each command. If it is the same one, decide is not pure, or has changed"
        )
        # A refusal is one of another command, too; its text may be personal, and this error may become a dead letter.
        decided = quietly(lambda: list(self.aggregate.decide(state, command)), lambda: reused)
        if len(decided) != len(found) or not all(map(self._is_same, decided, found)):
            raise reused
        return tuple(found)

    def _is_same(self, event: E, stored: Envelope[E]) -> bool:
        """Return whether *event* is the stored one, as far as that can be told."""
        if alike(event, stored.event):
            return True
        try:
            name, schema, _ = self.aggregate.events.encode(event)
        except SubjectForgotten:  # so is what was stored
            return type(event) is type(stored.event)
        return name == stored.type and schema != stored.schema

    # ------------------------------------------------------------ loading

    def _start(self, aggregate: AggregateID) -> Loaded[S]:
        fresh = Loaded(aggregate, 0, self.aggregate.initial)
        if self._snapshots is None:
            return fresh
        found = self._snapshots.get_snapshot(aggregate)
        if found is None or found.schema != self.aggregate.state_schema:
            return fresh
        try:
            state = self.aggregate.events.decode_state(self.aggregate.name, self.aggregate.state_type, found.state)
        except RscyllaError as e:
            if e.resumable:
                raise
            log.warning("the snapshot of %s is not used: %s", aggregate, e, exc_info=True)
            return fresh
        return Loaded(aggregate, found.version, state, found.commands, found.version)

    def _caught_up(self, loaded: Loaded[S]) -> Loaded[S]:
        """Return *loaded* with the events since."""
        state, version = loaded.state, loaded.version
        commands = deque(loaded.commands)
        for record in self._store.read(loaded.aggregate, version):
            self._stop.check()
            if record.version != version + 1:
                raise VersionGap(
                    f"{loaded.aggregate} has event {record.version} after event {version}; rows of the event table are "
                    "missing, so nothing can be decided; restore them",
                    expected=version + 1,
                    actual=record.version,
                )
            state = self.aggregate.after((self.aggregate.events.decode(record).event,), state)
            version = record.version
            if not commands or commands[-1] != record.causation_id:
                commands.append(record.causation_id)
        if version == loaded.version:
            return loaded
        return attrs.evolve(loaded, version=version, state=state, commands=tuple(commands))

    # ------------------------------------------------------------ snapshots

    def _keep(self, loaded: Loaded[S]) -> None:
        if self._snapshots is None or loaded.version - loaded.snapshot < self._every:
            return
        commands = loaded.commands[max(0, len(loaded.commands) - self._remember) :]
        try:
            state = self.aggregate.events.encode_state(self.aggregate.name, loaded.state, self.aggregate.state_type)
            snapshot = Snapshot(loaded.aggregate, loaded.version, self.aggregate.state_schema, state, commands)
            self._snapshots.put_snapshot(snapshot)
        except RscyllaError as e:
            # The events are stored, so the command is done. What is wrong with a state is wrong with the next one.
            level = logging.DEBUG if self._told and isinstance(e, ConfigError) else logging.WARNING
            self._told = self._told or isinstance(e, ConfigError)
            log.log(level, "no snapshot of %s was kept: %s", loaded.aggregate, e, exc_info=True)
