"""Stores of dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from .._letters import DEAD, DeadLetter
from ..event import Event

__all__ = ["DeadLetterAdmin", "DeadLetters"]


class DeadLetters(Protocol):
    """Stores the dead letters of consumers. All methods may be called from several threads.

    *consumer* is the name of a whole consumer: its slices share their letters, so a letter stays with its key when the
    number of slices changes.

    Each method raises the errors of the database; the event is then delivered again, and nothing is lost.
    """

    def tries(self, consumer: str, event: Event) -> int:
        """Return how often *consumer* is known to have failed on *event*.

        Called when *event* first fails in a run, and before each of the first events of a process.
        """

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        """Durably save how often *consumer* failed on *event*; 0 deletes the count after a success.

        Called after each failure, and for the first events of a process before each attempt.
        """

    def put(self, letter: DeadLetter) -> None:
        """Save *letter* as dead; it is durable when this returns. A letter of the same event replaces it."""


class DeadLetterAdmin(Protocol):
    """Operations on dead letters: of operators, and of consumers that park keys.

    All methods may be called from several threads, also while consumers store letters. Each raises the errors of the
    database; calling it again is safe.
    """

    def list_letters(self, consumer: str | None = None, *, status: str | None = DEAD) -> Iterable[DeadLetter]:
        """Yield the letters of *consumer* (None: of all) with *status* (None: with any), by consumer, as events came.

        The iterator may query while it is consumed, and then raises the errors of the database.
        """

    def find_letter(self, consumer: str, event_id: str) -> DeadLetter | None:
        """Return the letter of an event; None if there is none.

        Raises:
            ConfigError: *consumer* is empty.
        """

    def claim_letter(self, letter: DeadLetter, claim: str) -> DeadLetter | None:
        """Claim *letter* for ``CLAIM_S`` seconds, or renew *claim*; return the letter as it is now, None if it is gone.

        *claim* identifies the claimant. While it lasts, nobody else claims or resolves the letter; so who finds it dead
        may handle its event.

        Raises:
            LetterClaimed: another one has claimed it.
        """

    def release_letter(self, letter: DeadLetter, claim: str) -> None:
        """End *claim* on *letter*, if it is still there."""

    def resolve_letter(self, letter: DeadLetter, status: str, *, reason: str, claim: str = "") -> None:
        """Set the status of *letter* to replayed or discarded, and save *reason* for the audit trail.

        Whoever has claimed it passes the *claim*; anybody else waits for its end.

        Raises:
            LetterClaimed: another one has claimed it.
            ConfigError: *status* is neither of the two, or *reason* is blank; the letter does not change.
        """

    def count_letters(self, consumer: str | None = None) -> Mapping[str, int]:
        """Return how many letters are dead, by consumer; those without any are left out.

        ``Service`` calls it every half minute in a thread of its own, so its cost must not grow with the number of
        resolved letters.
        """
