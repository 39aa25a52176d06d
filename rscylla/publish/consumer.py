"""``publishing``: the consumer that publishes records of events, and commits what is acknowledged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, Final

from .._retry import Backoff, retry
from ..abc import Consumer as ConsumerLike
from ..abc import JointPublisher, Message, PublishDone, Publisher, Run
from ..errors import ConfigError, PublishFailed, PublishRejected, Stopped, is_expected
from ..event import Event
from ..reflex import Collecting, Entry, InFlight, positive

__all__ = ["DeadLetter", "Messages", "publishing"]

log = logging.getLogger("rscylla.publish")

Messages = Callable[[Event], Sequence[Message]]
"""Makes the records of an event, in order; none if the event is not published. Called by one thread at a time."""

DeadLetter = Callable[[Message, str], Message | None]
"""Returns what is published instead of a record that can never be published, and why it cannot; None: nothing."""

TOGETHER: Final = 256
"""How many events are passed to the publisher at once, at most. Each time, the cursor may move."""

TOGETHER_BYTES: Final = 1 << 20

AGAIN: Final = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=5))
"""The pauses while records cannot be made yet."""

OVERHEAD: Final = 100
"""What a record takes in memory besides its key and value, in bytes; so does a header."""


def publishing(
    name: str,
    messages: Messages,
    publisher: Publisher,
    *,
    max_unacknowledged: int = 10_000,
    max_bytes: int = 64 << 20,
    dead_letter: DeadLetter | None = None,
    settle_s: float = 15.0,
    **options: Any,
) -> ConsumerLike:
    """Return a consumer that publishes the records of each event.

    Thousands of records are on their way at the same time. The cursor moves to the last event before which the records
    of all events are acknowledged, so a crash at any point repeats records, but loses none. Records of one key keep
    their order. While the sink is down, the consumer waits; health checks show why.

    If the run is stopped, and at the head, the consumer waits for what it passed to the publisher: at most *settle_s*
    seconds for a stop. What is not acknowledged by then is abandoned, and published again by the next run.

    Metrics: an event counts as consumed when it is acknowledged; ``rscylla_unfinished_events`` and
    ``rscylla_oldest_unfinished_seconds`` show what is on its way.

    Args:
        messages: Makes the records; called by the thread of the run, in order. After ``PublishFailed``, such as of a
            registry of schemas, it is called again until it returns, and health checks show why the consumer waits. Any
            other error ends the run.
        publisher: May be shared with other consumers; its owner closes it.
        max_unacknowledged: How many events may be taken from the stream and not committed; then the stream waits.
        max_bytes: How many bytes their records may have. A single event may have more, and is then published alone.
        dead_letter: What is published instead of a record that can never be published, such as one that is too large;
            None: the run ends with ``PublishRejected``, which a restart does not help. It is called by any thread.
        options: As for ``rscylla.Consumer``: filters, alerts, registry, clock. The cursor moves past filtered events.

    Raises:
        ConfigError: an argument is invalid.
    """
    if "recover" in options:
        raise ConfigError(
            f'consumer "{name}": recover= needs a consumer that is done when it returns; use dead_letter='
        )
    return _Publishing(name, messages, publisher, max_unacknowledged, max_bytes, dead_letter, settle_s, options)


class _Publishing(Collecting["_RecordsInFlight"]):
    def __init__(
        self,
        name: str,
        messages: Messages,
        publisher: Publisher,
        limit: int,
        max_bytes: int,
        dead_letter: DeadLetter | None,
        settle_s: float,
        options: dict[str, Any],
    ) -> None:
        super().__init__(name, options)
        for role, function in (("messages", messages), ("dead_letter", dead_letter)):
            if not callable(function) and (function is not None or role == "messages"):
                raise ConfigError(f'consumer "{name}": {role} is not callable; pass a function')
        self.messages, self.publisher, self.dead_letter, self.settle_s = messages, publisher, dead_letter, settle_s
        self.limit = positive("max_unacknowledged", name, limit)
        self.max_bytes = positive("max_bytes", name, max_bytes)
        self._together = min(TOGETHER, self.limit)

    def open(self, run: Run) -> _RecordsInFlight:
        return _RecordsInFlight(self, run)

    def room(self) -> int:
        return self._together if self._collector.takes_all else 0


class _RecordsInFlight:
    """The events of one run whose records are not all acknowledged."""

    def __init__(self, of: _Publishing, run: Run) -> None:
        self.in_flight = in_flight = InFlight(run, of.limit, of.max_bytes)
        self._messages, self._dead_letter, self._settle_s = of.messages, of.dead_letter, of.settle_s
        self._publisher = publisher = of.publisher
        self.publish = publisher.publish
        self._run = run
        self._settled = threading.Condition()
        self._parcels = 0
        self._publishing = False
        self._timer: threading.Timer | None = None
        self._forget = run.stop.on_set(self._stopped)
        self._joint = publisher.join(in_flight.settle) if isinstance(publisher, JointPublisher) else _Alone()

    def put(self, events: Sequence[Event]) -> None:
        """Publish the records of *events*, which are not empty. Waits while too much is on its way."""
        make = self._messages
        taken: list[Message] = []
        since = size = 0
        for index, event in enumerate(events):
            try:
                found = make(event)
            except Exception as error:  # noqa: BLE001 - raised below, unless it may pass
                self._send(events[since:index], taken, size)
                taken, since, size = [], index, 0
                found = self._made_later(event, error)
            for message in found:
                size += OVERHEAD + len(message.key or b"") + len(message.value or b"")
                if message.headers:
                    size += sum(OVERHEAD + len(name) + len(value or b"") for name, value in message.headers)
            taken += found
            if size >= TOGETHER_BYTES:
                self._send(events[since : index + 1], taken, size)
                taken, since, size = [], index + 1, 0
        self._send(events[since:], taken, size)

    def _made_later(self, event: Event, error: Exception) -> Sequence[Message]:
        """Return the records of *event* when what refuses them, as *error* says, does so no more.

        Raises:
            Stopped: another error ends the run, or it must end.
        """
        run, make, why = self._run, self._messages, str(error)

        def made() -> Sequence[Message]:
            with run.waiting(why):
                return make(event)

        def waiting(error: Exception, failures: int, seconds: float) -> None:
            nonlocal why
            why = str(error)
            log.warning('consumer "%s" waits: %s; it tries again in %.3g s', run.consumer, why, seconds)

        def pause(seconds: float) -> None:
            run.pause(seconds, why)

        try:
            return retry(
                made, backoff=AGAIN, clock=run.clock, again=_may_pass, waiting=waiting, sleep=pause, failed=error
            )
        except Exception as last:
            if is_expected(last):
                raise
            run.count("errors")
            run.fail(last, event=event)  # here, where the event is known
            raise Stopped from last

    def _send(self, events: Sequence[Event], messages: list[Message], size: int) -> None:
        if not events:
            return
        count, last = len(events), events[-1]
        if not messages:
            self._run.count("consumed", count)
            self.in_flight.progress(last)
            return
        if self.in_flight.has_room(count, size):
            entry = self.in_flight.add(last, count, size)
        else:
            with self._run.waiting(self._publisher.trouble() or "records that are not acknowledged yet"):
                entry = self.in_flight.add(last, count, size)
        with self._settled:
            self._parcels += 1
        self._publishing = True
        if self._timer is None and self._run.stop.is_set():  # just before this
            self._stopped()
        try:
            with self._joint:
                _Parcel(self, entry).send(messages)
        finally:
            self._publishing = False

    def _stopped(self) -> None:
        """Let a call of the publisher end that may wait for room for as long as the sink is down."""
        if self._publishing:
            self._timer = timer = threading.Timer(self._settle_s, self._publisher.abandon)
            timer.daemon = True
            timer.start()

    def drain(self) -> None:
        self.in_flight.drain()

    def close(self) -> None:
        """Wait until everything is settled, so that the next owner of these keys publishes nothing before it."""
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
        try:
            with self._settled:
                settled = self._settled.wait_for(lambda: not self._parcels, self._settle_s)
            if not settled:
                log.warning(
                    'consumer "%s": records are not acknowledged %g s after the end of the run%s; they are abandoned, '
                    "and published again by the next run",
                    self._run.consumer,
                    self._settle_s,
                    f", because {trouble}" if (trouble := self._publisher.trouble()) else "",
                )
                self._publisher.abandon()
            self.in_flight.settle()
        finally:  # also after an interrupt: late acknowledgements must not move the cursor of a later run
            self.in_flight.close()
            self._joint.leave()

    # ------------------------------------------------------------ of parcels

    def instead(self, message: Message, error: PublishRejected, why: str) -> Message | None:
        """Return what is published instead of *message*. Raises *error* if nothing can be."""
        if self._dead_letter is None:
            raise error
        found = self._dead_letter(message, why)
        self._run.count("given_up" if found is None else "dead_lettered")
        return found

    def settled(self, entry: Entry, error: BaseException | None) -> None:
        if error is None:
            self._run.count("consumed", entry.events)
            self.in_flight.done(entry)
        else:
            if not is_expected(error):
                self._run.count("errors", entry.events)
            self._run.fail(error, event=entry.event)
        with self._settled:
            self._parcels -= 1
            if not self._parcels:
                self._settled.notify_all()


def _may_pass(error: Exception) -> bool:
    """Return whether *error* is not of the event: what does not take its records may take them later."""
    return isinstance(error, PublishFailed) and error.resumable


class _Alone(nullcontext[None]):
    """Takes part in no transactions."""

    def leave(self) -> None:
        """Do nothing."""


class _Parcel:
    """The records of one entry. It is delivered when all calls of the publisher are settled: usually one, more if a
    record is refused.
    """

    __slots__ = ("_entry", "_error", "_left", "_lock", "_owner")

    def __init__(self, owner: _RecordsInFlight, entry: Entry) -> None:
        self._owner = owner
        self._entry = entry
        self._left = 1  # the sender's own, so that no call is taken for the last one
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def send(self, messages: Sequence[Message]) -> None:
        """Publish all records. Raises the errors of the publisher; what it took settles nonetheless."""
        try:
            self._pass_on(messages, is_final=False)
        except BaseException as error:
            self._settled(error)
            raise
        self._settled(None)

    def _pass_on(self, messages: Sequence[Message], *, is_final: bool) -> None:
        """Publish *messages*; with *is_final*, none of them may be refused."""
        while messages:
            done = self._call(messages, is_final)
            try:
                self._owner.publish(messages, done)
                return
            except PublishRejected as error:
                at = error.index
                if not at:  # nothing was taken, so nothing is reported
                    done(None)
                if at is None or is_final:
                    raise
                self._instead(messages[at], error, str(error))
                messages = messages[at + 1 :]
            except BaseException:
                done(PublishFailed("the publisher failed"))  # it may have taken nothing
                raise

    def _call(self, messages: Sequence[Message], is_final: bool) -> PublishDone:
        """Return what the publisher calls when *messages*, or those that it took, are settled. One call counts."""
        is_settled = False
        with self._lock:
            self._left += 1

        def done(error: Exception | None) -> None:
            nonlocal is_settled
            with self._lock:
                was_settled, is_settled = is_settled, True
            if was_settled:
                return
            if isinstance(error, PublishRejected) and not is_final:
                try:
                    for index, why in error.rejected:
                        self._instead(messages[index], error, why)
                    error = None
                except Exception as other:  # noqa: BLE001 - ends the run, by the thread of the publisher
                    error = other
            self._settled(error)

        return done

    def _instead(self, message: Message, error: PublishRejected, why: str) -> None:
        instead = self._owner.instead(message, error, why)
        if instead is not None:
            self._pass_on((instead,), is_final=True)

    def _settled(self, error: BaseException | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        self._owner.settled(self._entry, self._error)
