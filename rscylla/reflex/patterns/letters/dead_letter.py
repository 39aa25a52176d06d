"""``dead_letter``: stores an event that keeps failing in a table, so that the consumer can continue."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import nullcontext

from ...._retry import Backoff
from ....abc import Consumer, DeadLetters, Run
from ....errors import ProcessDied
from ....event import Event
from .parked import Parked
from .retrying import Retrying

__all__ = ["dead_letter"]

logger = logging.getLogger("rscylla.reflex")

FIRST_EVENTS = 100
FIRST_S = 5.0
"""A process records each attempt in advance until it has had this many events and this many seconds have passed.

An event that kills the process is among the first events of the next one: only events since the last saved cursor come
before it, and a buffered store saves cursors more often than every *FIRST_S* seconds.
"""


class _DeadLetter(Retrying):
    def __init__(
        self,
        inner: Consumer,
        letters: DeadLetters,
        *,
        retries: int,
        backoff: Backoff | None,
        counts: Callable[[Exception], bool] | None,
        park: Callable[[Event], Hashable] | None,
    ) -> None:
        super().__init__(inner, retries=retries, backoff=backoff, counts=counts)
        self._letters = letters
        self._parked = Parked(inner.name, letters, park)
        self._fatal_above = max(retries, 1)  # the event of another thread may have caused a single death
        self._settled = False
        self._first: tuple[float, itertools.count[int]] | None = None
        self._noted: dict[str, int] = {}  # by event id, the attempts before the current one
        self._suspects = threading.Lock()

    def reset(self) -> None:
        self._parked.forget()
        super().reset()

    def takes(self, event: Event, run: Run) -> bool:
        """Return whether *event* waits behind a dead letter of its key; then it is one itself."""
        taken = self._parked.takes(run.whole, event)
        if taken:
            run.count("dead_lettered")
        return taken or super().takes(event, run)

    def waits_for(self, event: Event) -> tuple[Hashable, ...]:
        return *super().waits_for(event), *self._parked.keys(event)

    def consume(self, event: Event, run: Run) -> None:
        if self.takes(event, run):
            return
        if self._settled or self._settles(run):
            super().consume(event, run)
            return
        known = self._letters.tries(run.whole, event)
        if known > self._fatal_above:
            died = ProcessDied(f"the process ended while it consumed the event, {known} times")
            self._give_up(event, run, died, known)
            return
        # Suspects run one at a time, so that a death counts against the event that caused it.
        with self._suspects if known else nullcontext():
            self._letters.set_tries(run.whole, event, known + 1)
            self._noted[event.id] = known
            try:
                super().consume(event, run)
            except BaseException:
                self._take_back(event, run)
                raise
            if self._noted.pop(event.id, None) is not None:
                self._letters.set_tries(run.whole, event, 0)

    def _settles(self, run: Run) -> bool:
        """Return whether the process is past its first events, of which each attempt is recorded in advance."""
        now = run.clock.monotonic()
        if self._first is None:
            self._first = now, itertools.count()
        since, numbers = self._first
        self._settled = next(numbers) >= FIRST_EVENTS and now - since >= FIRST_S
        return self._settled

    def _take_back(self, event: Event, run: Run) -> None:
        """Undo the record of an attempt that ended without a failure of the event."""
        known = self._noted.pop(event.id, None)
        if known is None:
            return
        try:
            self._letters.set_tries(run.whole, event, known)
        except Exception as error:  # noqa: BLE001 - the caller raises what ended the attempt; one too many is counted
            logger.warning(
                'consumer "%s": an attempt at event %s is counted though it did not fail (%s)',
                self.name,
                event.id,
                type(error).__name__,
            )

    def _known(self, event: Event, run: Run) -> int:
        noted = self._noted.pop(event.id, None)
        return self._letters.tries(run.whole, event) if noted is None else noted

    def _failed(self, event: Event, run: Run, tries: int) -> None:
        self._letters.set_tries(run.whole, event, tries)

    def _succeeded(self, event: Event, run: Run) -> None:
        self._letters.set_tries(run.whole, event, 0)

    def _give_up(self, event: Event, run: Run, error: Exception, tries: int) -> None:
        run.stop.check()  # a process that has lost its slice must not put a letter that the next holder does not see
        letter = self._parked.put(run.whole, event, error, attempts=tries, clock=run.clock)
        if not self._settled:
            # If the event is delivered again, for example after a reset, it gets one more attempt.
            self._letters.set_tries(run.whole, event, self._retries)
        run.count("dead_lettered")
        logger.warning(
            'consumer "%s": event %s is a dead letter after %d attempts (%s)', self.name, event.id, tries, letter.error
        )


def dead_letter(
    consumer: Consumer,
    letters: DeadLetters,
    *,
    retries: int = 3,
    backoff: Backoff | None = None,
    counts: Callable[[Exception], bool] | None = None,
    park: Callable[[Event], Hashable] | None = None,
) -> Consumer:
    """Return *consumer*, wrapped so that it retries an event *retries* times, and then stores it in *letters*.

    Delivery: at least once, and no event is lost: the letter, with the whole event, the attempts, and the traceback, is
    durable before the cursor moves. If it cannot be written, the run ends with that error and the event is delivered
    again. *letters* also counts attempts, by consumer and event id, so the count survives restarts. Slices of a
    consumer share its letters, under its own name.

    An event that ends the whole process is counted, too: at the start of a process, for 100 events and 5 seconds, each
    event is recorded in *letters* before it is consumed, and the record is removed afterwards; later events cost no
    query unless they fail. If a process has run for longer, its death is not counted, but the next deaths are. After
    more than *retries* of them (two at least), the event is stored without another attempt. This works only if the
    cursor is saved at least every 5 seconds. Inside ``concurrent``, suspected events run one at a time.

    Later events of the same key continue, unless *park* is given: then they become letters, too, without an attempt, so
    that none of them overtakes the first; and so it stays after restarts, and when the number of slices changes.
    ``replay_letters`` replays letters in order; ``rscylla deadletter`` lists, shows, replays, and discards them.

    A stop ends the pauses at once, and the event is delivered again: ``Stopped``, interrupts, and errors that occur
    while the run is being stopped are never counted or swallowed. Thread-safe if *consumer* is, as needed inside
    ``concurrent``.

    Args:
        consumer: The consumer to wrap; its name, metrics, ``reset``, and ``stop`` are kept.
        letters: Where letters go, such as ``cursorstore.ScyllaDeadLetters``.
        backoff: The pauses between attempts; default: 0.1 to 10 s with jitter.
        counts: Whether an error may be the event's fault; any other error ends the run, and ``run_forever`` retries
            later. Default: all errors except lost connections and errors of ``Fate``, so that an outage of a system
            behind the consumer pauses it and does not drain the stream.
        park: Returns the key of an event whose later events must not overtake it, such as ``partition_of``, or
            ``lambda e: e.foreign_id`` for a table without deletes of ranges; None: the event does not wait. A key is
            text, a number, another value whose ``repr`` tells it, or a tuple, list, set, or mapping of such. It is also
            called with the events of letters. *letters* have to be a ``DeadLetterAdmin``, too.

    Raises:
        ConfigError: *retries* is negative, *consumer* finishes events later and must be outermost, or *letters* cannot
            be listed, which *park* needs.
    """
    return _DeadLetter(consumer, letters, retries=retries, backoff=backoff, counts=counts, park=park)
