"""Claims of dead letters, and the replay of letters in order."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager

import attrs

from ...._letters import CLAIM_S, DEAD, REPLAYED, DeadLetter
from ....abc import DeadLetterAdmin
from ....clock import Stop
from ....errors import KeyParked, LetterClaimed, RscyllaError
from ....event import Event

__all__ = ["Claim", "claimed", "replay_letters"]

logger = logging.getLogger("rscylla.reflex")


@attrs.frozen
class Claim:
    """A claim on a letter. ``letter`` is the letter as it was when it was claimed, None if there is none any more."""

    letter: DeadLetter | None
    name: str
    _letters: DeadLetterAdmin

    def resolve(self, status: str, *, reason: str) -> None:
        """Set the status of the letter."""
        assert self.letter is not None
        self._letters.resolve_letter(self.letter, status, reason=reason, claim=self.name)


@contextmanager
def claimed(letters: DeadLetterAdmin, letter: DeadLetter) -> Iterator[Claim]:
    """Claim *letter* for as long as the context lasts: meanwhile, nobody else replays or resolves it.

    Raises:
        LetterClaimed: another one has claimed it.
    """
    name, ended = str(uuid.uuid4()), Stop()
    claim = Claim(letters.claim_letter(letter, name), name, letters)

    def renew() -> None:
        while not ended.wait(CLAIM_S / 3):
            try:
                letters.claim_letter(letter, name)
            except Exception as error:  # noqa: BLE001 - it lasts for two more attempts
                logger.warning("a claim of a dead letter was not renewed (%s)", type(error).__name__)

    thread = threading.Thread(target=renew, name="rscylla-claim", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        ended.set()
        thread.join()
        try:
            letters.release_letter(letter, name)
        except RscyllaError as error:
            logger.warning("a claim of a dead letter was not released (%s); it ends in %d s", error, CLAIM_S)


@attrs.define
class _Replay:
    """One pass over the letters after the other, until one makes no progress."""

    letters: DeadLetterAdmin
    handle: Callable[[Event], object]
    key: Callable[[Event], Hashable]
    reason: str
    told: Callable[[DeadLetter, Exception | None], object]
    failed: dict[str, DeadLetter] = attrs.field(factory=dict)  # by event id
    blocked: set[Hashable] = attrs.field(factory=set)  # the keys of those
    done: int = 0

    def run(self, consumer: str, only: Collection[str] | None) -> tuple[int, int]:
        while True:
            before, busy = self.done, set[Hashable]()
            waiting: dict[str, DeadLetter] = {}
            for letter in self.letters.list_letters(consumer):
                keys = self._keys(letter)
                chosen = only is None or letter.event.id in only
                if letter.event.id in self.failed:
                    continue
                if not keys.isdisjoint(self.blocked | busy):
                    busy |= keys
                    if chosen:
                        waiting[letter.event.id] = letter
                elif not chosen:
                    busy |= {key for key in keys if letter.park}  # others may wait for it
                elif not self._replayed(letter, keys):
                    busy |= keys
                    if letter.event.id not in self.failed:
                        waiting[letter.event.id] = letter
            if self.done == before:
                for letter in waiting.values():
                    self.told(letter, KeyParked("an earlier letter of its key is dead, or is replayed elsewhere"))
                return self.done, len(self.failed) + len(waiting)

    def _keys(self, letter: DeadLetter) -> set[Hashable]:
        """Return what events wait by: the key that they parked, and the one of this replay."""
        return {("key", self.key(letter.event)), *([("park", letter.park)] if letter.park else [])}

    def _replayed(self, listed: DeadLetter, keys: set[Hashable]) -> bool:
        """Pass a letter on if it is still dead; return whether its key may go on."""
        try:
            with claimed(self.letters, listed) as claim:
                letter = claim.letter
                if letter is None or letter.status != DEAD:
                    return True  # it was resolved since it was listed
                try:
                    self.handle(letter.event)
                except Exception as error:  # noqa: BLE001 - the letter stays, and the caller is told
                    logger.warning(
                        'consumer "%s": the replay of event %s failed (%s)',
                        *(letter.consumer, letter.event.id, type(error).__name__),
                    )
                    self.failed[letter.event.id] = letter
                    self.blocked |= keys
                    self.told(letter, error)
                    return False
                claim.resolve(REPLAYED, reason=self.reason)
        except LetterClaimed:
            return False
        self.done += 1
        self.told(letter, None)
        return True


def replay_letters(
    letters: DeadLetterAdmin,
    consumer: str,
    handle: Callable[[Event], object],
    *,
    key: Callable[[Event], Hashable] = lambda event: event.foreign_id,
    reason: str = "replayed",
    only: Collection[str] | None = None,
    told: Callable[[DeadLetter, Exception | None], object] = lambda letter, error: None,
) -> tuple[int, int]:
    """Pass the dead letters of *consumer* to *handle*, in order; return how many it handled, and how many not.

    When *handle* raises, the letter stays dead, and so do the later ones of its *key*, and those that were parked
    behind it. What becomes a letter meanwhile, because its key is parked, is replayed, too.

    Each letter is claimed before its event is handled: two replays at a time, and an operator who discards letters, do
    not work on one at once, and what another one has resolved is not handled again.

    Args:
        consumer: The name of the whole consumer; its slices share their letters.
        key: Returns the key whose events stay in order.
        reason: Saved with each letter.
        only: The ids of the events to replay; None: all.
        told: Called after each letter, with the error if there was one, and at the end with those that were left out.

    Raises:
        The errors of *letters*; calling it again is safe.
    """
    return _Replay(letters, handle, key, reason, told).run(consumer, only)
