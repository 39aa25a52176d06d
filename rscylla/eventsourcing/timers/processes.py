"""Process managers: what happens leads to commands, at once or when a timer is due.

A manager is two pure functions. Its lane calls ``react`` with each event, and ``fire`` with each timer that is due, and
carries out the actions. Delivery is at least once, so each action has an id that depends on what caused it alone: the
same event leads to the same commands and timers, which are done once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import attrs

from cursorstore.table import check_name

from ...abc import Consumer as ConsumerLike
from ...abc import Run
from ...errors import ConfigError
from ...event import Event
from ...reflex import Consumer, Spec
from ..abc import Timer, TimerStore
from ..codec import calling
from ..envelope import AggregateID, Envelope, EventRecord
from ..reading import record_of
from .timers import firing_id, timer_spec

__all__ = ["Action", "CancelTimer", "ProcessManager", "Processes", "Send", "Sender", "SetTimer"]

log = logging.getLogger("rscylla.eventsourcing")

_NAMESPACE: Final = uuid.UUID("7c7f1c0a-0f86-4c0f-8f6c-7d8f1a6f3a51")
"""Of the ids of commands. It must never change."""


@attrs.frozen
class Send:
    """Send *command* to an aggregate."""

    to: AggregateID
    command: Any


@attrs.frozen
class SetTimer:
    """Call ``fire`` at *due*. ``id`` is unique for good in its manager; the same timer again changes nothing."""

    id: str
    due: datetime
    data: str = attrs.field(default="", repr=False)


@attrs.frozen
class CancelTimer:
    """Cancel a timer of this manager, unless it is being fired: what it does must be right then, too."""

    id: str


Action = Send | SetTimer | CancelTimer


class ProcessManager(Protocol):
    """Decides what follows from events. Both functions are pure: called again, they return the same.

    What it has to remember belongs into an aggregate, which it sends commands to, or into the data of its timers.
    """

    @property
    def name(self) -> str:
        """Part of the ids of all that it does. It must never change."""

    def react(self, envelope: Envelope[Any], /) -> Iterable[Action]:
        """Return what follows from an event. Called in the order of each aggregate."""

    def fire(self, timer: Timer, /) -> Iterable[Action]:
        """Return what follows from a timer, whose id and data are those of ``SetTimer``."""


class Sender(Protocol):
    """Sends a command, such as ``CommandHandler.handle`` of the aggregate's kind. The same id is done once.

    An error that the aggregate refuses the command with is an error of the lane, too, unless ``Processes`` knows it.
    """

    def __call__(self, to: AggregateID, command: Any, *, command_id: str, correlation_id: str) -> object: ...


class Processes:
    """Runs a process manager: a consumer of events, and a lane of its timers.

    Args:
        manager: Decides.
        send: Sends commands; called with ids that are the same when an event comes again.
        timers: Keeps timers, also those of other managers; ids begin with the name of the manager and a slash. A slash
            in the name is ``%2F`` there, and a percent sign ``%25``.
        decode: Such as ``EventTypes.decode``.
        refused: Errors of aggregates that refuse a command, such as one that comes too late: logged and passed over.

    Raises:
        ConfigError: the manager has no name.
    """

    def __init__(
        self,
        manager: ProcessManager,
        send: Sender,
        timers: TimerStore,
        decode: Callable[[EventRecord], Envelope[Any]],
        *,
        refused: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        check_name("the name of a process manager, which must never change,", manager.name)
        self._manager = manager
        self._send = send
        self._timers = timers
        self._decode = decode
        self._refused = refused
        # No name is the beginning of another one with the slash after it, whatever is in the names.
        self._prefix = f"{manager.name.replace('%', '%25').replace('/', '%2F')}/"

    def consumer(self, name: str | None = None, **options: Any) -> Consumer:
        """Return a consumer of the event table's stream, for one lane. Thread-safe if *send* is.

        Args:
            name: Its name, with the slice if it is the lane of one; default: the name of the manager.
            options: As for ``rscylla.Consumer``.
        """
        return Consumer(name or self._manager.name, self._react, **options)

    def timer_spec(
        self,
        *,
        wrap: Callable[[ConsumerLike], ConsumerLike] = lambda consumer: consumer,
        every: timedelta = timedelta(seconds=1),
        **options: Any,
    ) -> Spec:
        """Return the spec that fires the timers of this manager; the arguments are those of ``timer_spec``.

        Its name is that of the manager with ``-timers``. The store must have no timers of others.
        """
        return timer_spec(f"{self._manager.name}-timers", self._timers, self.fire, wrap=wrap, every=every, **options)

    def fire(self, timer: Timer, run: Run | None = None) -> None:
        """Carry out what follows from *timer*, for a lane that fires timers of several managers.

        The stop of *run* is looked at between two actions; what was done is done once when the timer fires again.

        Raises:
            Stopped: *run* has to end.
            ConfigError: it is a timer of another manager.
        """
        if not self.owns(timer):
            raise ConfigError(
                f"timer {timer.id!r} is not one of {self._manager.name!r}; use a store or a lane for each"
            )
        mine = attrs.evolve(timer, id=timer.id.removeprefix(self._prefix))
        cause = str(firing_id(timer))
        calling(lambda: self._carry_out(self._manager.fire(mine), cause, cause, run), None)

    def owns(self, timer: Timer) -> bool:
        """Return whether *timer* is one of this manager."""
        return timer.id.startswith(self._prefix)

    def _react(self, event: Event, run: Run) -> None:
        record = record_of(event)
        if record is None:
            return
        envelope = self._decode(record)
        calling(
            lambda: self._carry_out(self._manager.react(envelope), str(record.event_id), record.correlation_id, run),
            envelope.event,
        )

    def _carry_out(self, actions: Iterable[Action], cause: str, correlation_id: str, run: Run | None) -> None:
        for number, action in enumerate(actions):
            if run is not None:
                run.stop.check()
            if isinstance(action, Send):
                self._sent(action, f"{uuid.uuid5(_NAMESPACE, f'{self._prefix}{cause}/{number}')}", correlation_id)
            elif isinstance(action, SetTimer):
                self._timers.schedule(Timer(self._prefix + action.id, action.due, action.data))
            elif isinstance(action, CancelTimer):
                self._timers.cancel(self._prefix + action.id)
            else:
                raise ConfigError(
                    f"process manager {self._manager.name!r} returned a {type(action).__name__}; return Send, "
                    "SetTimer, or CancelTimer"
                )

    def _sent(self, action: Send, command_id: str, correlation_id: str) -> None:
        try:
            self._send(action.to, action.command, command_id=command_id, correlation_id=correlation_id)
        except self._refused as error:
            log.info(
                'process manager "%s": %s refused %s (%s)',
                *(self._manager.name, action.to, type(action.command).__name__, type(error).__name__),
            )
