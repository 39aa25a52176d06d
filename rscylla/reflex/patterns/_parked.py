"""Keys that are parked: an event of theirs is a dead letter, and later ones wait behind it, as letters, too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import cast

from ... import _timeuuid as tu
from ..._letters import DEAD, REPLAYED, DeadLetter
from ...abc import DeadLetterAdmin, DeadLetters
from ...clock import Clock, SystemClock
from ...errors import ConfigError, KeyParked
from ...event import Event

__all__ = ["Parked", "put_letter", "replay_letters"]

logger = logging.getLogger("rscylla.reflex")

QUIET_S = 2.0
"""After so long without an event, the letters are listed again: another process may have put some meanwhile."""


def put_letter(
    letters: DeadLetters, consumer: str, event: Event, error: Exception, attempts: int, clock: Clock
) -> DeadLetter:
    """Make *event* a dead letter of *consumer*, and return it."""
    letter = DeadLetter.of(consumer, event, error, attempts=attempts, failed_at=tu.datetime_of(clock.now_us()))
    letters.put(letter)
    return letter


class Parked:
    """Puts letters for a consumer, and knows which keys are parked. Thread-safe.

    Which keys those are is in the letters alone. They are listed at the start; then, an event of a parked key asks
    whether the letters before it are still dead, because an operator may have resolved them.
    """

    def __init__(
        self, consumer: str, letters: DeadLetters, key: Callable[[Event], Hashable] | None, clock: Clock | None = None
    ) -> None:
        if key is not None and not (hasattr(letters, "list_letters") and hasattr(letters, "find_letter")):
            raise ConfigError(
                f'consumer "{consumer}": to park keys, the dead letters have to be listed; use those of cursorstore'
            )
        self._consumer = consumer
        self._letters = letters
        self._admin = cast("DeadLetterAdmin", letters)
        self._key = key
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._dead: dict[Hashable, dict[str, None]] = {}  # by key, the ids of its events that are letters
        self._seen: float | None = None

    def forget(self) -> None:
        """List the letters again before the next event."""
        self._seen = None

    def takes(self, event: Event) -> bool:
        """Return whether the key of *event* is parked; then *event* is a letter now, behind the others."""
        if self._key is None:
            return False
        self._listed(self._key)
        key = self._key(event)
        if key is None or not self._waits(key, event):
            return False
        self.put(event, KeyParked("an earlier event of its key is a dead letter"), attempts=0)
        # Those before it may have been replayed just before it became one; then nobody would replay it.
        if self._waits(key, event):
            return True
        letter = self._admin.find_letter(self._consumer, event.id)
        if letter is not None:
            self._admin.resolve_letter(letter, REPLAYED, reason="the letters before it were resolved")
        with self._lock:
            self._dead.get(key, {}).pop(event.id, None)
        return False

    def put(self, event: Event, error: Exception, *, attempts: int, clock: Clock | None = None) -> DeadLetter:
        """Make *event* a letter, and park its key."""
        letter = put_letter(self._letters, self._consumer, event, error, attempts, clock or self._clock)
        if self._key is not None and (key := self._key(event)) is not None:
            with self._lock:
                self._dead.setdefault(key, {})[event.id] = None
        return letter

    def _listed(self, key_of: Callable[[Event], Hashable]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if self._seen is None or now - self._seen >= QUIET_S:
                self._dead = {}
                for letter in self._admin.list_letters(self._consumer):
                    self._dead.setdefault(key_of(letter.event), {})[letter.event.id] = None
            self._seen = now

    def _waits(self, key: Hashable, event: Event) -> bool:
        """Return whether another event of *key* is still a dead letter."""
        while True:
            with self._lock:
                ids = self._dead.get(key, {})
                first = next((id_ for id_ in ids if id_ != event.id), None)
            if first is None:
                return False
            letter = self._admin.find_letter(self._consumer, first)
            if letter is not None and letter.status == DEAD:
                return True
            with self._lock:
                ids.pop(first, None)


def replay_letters(
    letters: DeadLetterAdmin,
    consumer: str,
    handle: Callable[[Event], object],
    *,
    key: Callable[[Event], Hashable] = lambda event: event.foreign_id,
    reason: str = "replayed",
) -> tuple[int, int]:
    """Pass the dead letters of *consumer* to *handle*, in order; return how many it handled, and how many not.

    When *handle* raises, the letter stays dead, and so do the later ones of its *key*. What becomes a letter meanwhile,
    because its key is parked, is replayed, too.

    Raises:
        The errors of *letters*; calling it again is safe.
    """
    failed: dict[Hashable, set[str]] = {}
    done = 0
    while True:
        before = done
        for letter in letters.list_letters(consumer):
            event, where = letter.event, key(letter.event)
            if where in failed:
                failed[where].add(event.id)
                continue
            try:
                handle(event)
            except Exception as error:  # noqa: BLE001 - the letter stays, with its own error
                failed[where] = {event.id}
                logger.warning(
                    'consumer "%s": the replay of event %s failed (%s)', consumer, event.id, type(error).__name__
                )
                continue
            letters.resolve_letter(letter, REPLAYED, reason=reason)
            done += 1
        if done == before:
            return done, sum(map(len, failed.values()))
