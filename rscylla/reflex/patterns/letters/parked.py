"""Keys that are parked: an event of theirs is a dead letter, and later ones wait behind it, as letters, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import cast

from .... import _timeuuid as tu
from ...._letters import DEAD, REPLAYED, DeadLetter
from ....abc import DeadLetterAdmin, DeadLetters
from ....clock import Clock, SystemClock
from ....errors import ConfigError, KeyParked, LetterClaimed
from ....event import Event
from .claims import claimed
from .marks import mark_of

__all__ = ["Parked"]

QUIET_S = 2.0
"""After so long without an event, the letters are listed again: another process may have put some meanwhile."""


class Parked:
    """Puts letters for a consumer, and knows which keys are parked. Thread-safe.

    Which keys those are is in the letters alone, which all slices of a consumer share. They are listed at the start;
    then, an event of a parked key asks whether the letters before it are still dead, because an operator may have
    resolved them. While one is dead, only a replay passes events of its key on, its own event included.
    """

    def __init__(
        self, consumer: str, letters: DeadLetters, key: Callable[[Event], Hashable] | None, clock: Clock | None = None
    ) -> None:
        if key is not None and not (hasattr(letters, "list_letters") and hasattr(letters, "claim_letter")):
            raise ConfigError(
                f'consumer "{consumer}": to park keys, the dead letters have to be listed; use those of cursorstore'
            )
        self._letters = letters
        self._admin = cast("DeadLetterAdmin", letters)
        self._key = key
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._of = ""  # the consumer whose letters were listed
        self._dead: dict[str, dict[str, None]] = {}  # by mark of the key, the ids of its events that are letters
        self._seen: float | None = None

    def forget(self) -> None:
        """List the letters again before the next event."""
        self._seen = None

    def takes(self, consumer: str, event: Event) -> bool:
        """Return whether the key of *event* is parked; then *event* is a letter now, behind the others."""
        if self._key is None or not self._listed(consumer, self._key):
            return False
        mark = self._mark(event)
        if not mark or not self._waits(mark, consumer):
            return False
        own = self._admin.find_letter(consumer, event.id)
        if own is not None and own.status == DEAD:
            return True  # delivered again: it stays where it is, with its own error
        letter = self.put(consumer, event, KeyParked("an earlier event of its key is a dead letter"), attempts=0)
        # Those before it may have been replayed just before it became one; then nobody would replay it.
        return self._waits(mark, consumer, but=event.id) or not self._taken_back(letter, mark)

    def _taken_back(self, letter: DeadLetter, mark: str) -> bool:
        """Resolve a letter that waits for no other, and return whether its event is to be consumed after all."""
        try:
            with claimed(self._admin, letter) as claim:
                if claim.letter is None or claim.letter.status != DEAD:
                    return False  # somebody has already replayed or discarded it
                claim.resolve(REPLAYED, reason="the letters before it were resolved")
        except LetterClaimed:
            return False  # somebody replays it now
        with self._lock:
            self._dead.get(mark, {}).pop(letter.event.id, None)
        return True

    def put(
        self, consumer: str, event: Event, error: Exception, *, attempts: int, clock: Clock | None = None
    ) -> DeadLetter:
        """Make *event* a letter, and park its key."""
        at = tu.datetime_of((clock or self._clock).now_us())
        mark = self._mark(event)
        letter = DeadLetter.of(consumer, event, error, attempts=attempts, failed_at=at, park=mark)
        self._letters.put(letter)
        if mark:
            with self._lock:
                self._dead.setdefault(mark, {})[event.id] = None
        return letter

    def keys(self, event: Event) -> tuple[Hashable, ...]:
        """Return the key that *event* would park, if any."""
        key = None if self._key is None else self._key(event)
        return () if key is None else (key,)

    def _mark(self, event: Event) -> str:
        key = None if self._key is None else self._key(event)
        return "" if key is None else mark_of(key)

    def _listed(self, consumer: str, key_of: Callable[[Event], Hashable]) -> bool:
        """Return whether any letters are dead, which are listed if they were not lately."""
        now = self._clock.monotonic()
        with self._lock:
            if self._seen is None or now - self._seen >= QUIET_S or self._of != consumer:
                self._dead, self._of = {}, consumer
                for letter in self._admin.list_letters(consumer):
                    for mark in self._marks(letter):
                        self._dead.setdefault(mark, {})[letter.event.id] = None
            self._seen = now
            return bool(self._dead)

    def _marks(self, letter: DeadLetter) -> set[str]:
        """Return what stands for the key of a letter: it may be older than ``park=``, or that one may be another now.

        Its event has JSON values, from which ``park=`` may make another key than from those of the stream, or none.
        """
        try:
            return {letter.park, self._mark(letter.event)} - {""}
        except Exception:
            if not letter.park:
                raise
            return {letter.park}

    def _waits(self, mark: str, consumer: str, but: str = "") -> bool:
        """Return whether an event of a key is still a dead letter, one other than *but*."""
        while True:
            with self._lock:
                ids = self._dead.get(mark, {})
                first = next((id_ for id_ in ids if id_ != but), None)
                if first is None:
                    if not ids:
                        self._dead.pop(mark, None)
                    return False
            letter = self._admin.find_letter(consumer, first)
            if letter is not None and letter.status == DEAD:
                return True
            with self._lock:
                ids.pop(first, None)
