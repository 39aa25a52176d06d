"""Dead letters in a Scylla table or in memory: events that a consumer could not handle, and their audit trail."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import attrs

from rscylla import _timeuuid as tu
from rscylla._letters import CLAIM_S, DEAD, STATUSES, DeadLetter, letter_order
from rscylla.clock import Clock, SystemClock
from rscylla.errors import ConfigError, InvalidCursor, LetterClaimed
from rscylla.event import Event, EventID

from ..checks import check_consumer, signature
from ..table import InTable
from .table import DEFAULT_LETTER_TABLE, LETTERS, LetterKey, LetterTable

__all__ = ["MemoryDeadLetters", "ScyllaDeadLetters"]


class ScyllaDeadLetters(InTable):
    """Dead letters in the table *keyspace*.*table*, all by plain writes. Thread-safe.

    The key of a letter is the consumer, the time of the event, and the event id: the same event replaces its letter.
    Resolved letters stay, as an audit trail; delete their rows, or whole days, when you no longer need them. Discard a
    letter before you delete its row; otherwise, it still counts.

    Args:
        session: A connected driver session. The caller keeps it; it is neither changed nor closed.
        keyspace: The keyspace of the table; names are case-sensitive.
        table: Name of the table.
        create: Create the table at first use if it does not exist. The keyspace must exist.
        keep_tries: How long attempts are remembered for an event that is not yet a letter.
        consistency: LOCAL_QUORUM, QUORUM, or ALL, as text or the driver's number.
        clock: The clock for audit times and the timestamps of letters. The clocks of consumers and operators may
            differ: the last action takes effect.

    Errors of the cluster are ``ConnectionFailed``, ``QueryTimeout``, ``AuthenticationFailed``, ``QueryFailed``,
    ``TableNotFound``. Writing again is safe.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_LETTER_TABLE,
        *,
        create: bool = False,
        keep_tries: timedelta = timedelta(days=30),
        consistency: int | str = "LOCAL_QUORUM",
        clock: Clock | None = None,
    ) -> None:
        # A TTL is a number of whole seconds up to 20 years.
        if not timedelta(seconds=1) <= keep_tries <= timedelta(days=7300):
            raise ConfigError("keep_tries must be between one second and 20 years")
        self._table: LetterTable = LetterTable(
            session, LETTERS, keyspace, table, create=create, consistency=consistency
        )
        self._ttl_s = int(keep_tries.total_seconds())
        self._clock = clock or SystemClock()

    def tries(self, consumer: str, event: Event) -> int:
        return self._table.tries(_key(consumer, event.id, event.timestamp_us))

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        self._table.set_tries(_key(consumer, event.id, event.timestamp_us), tries, self._ttl_s)

    def put(self, letter: DeadLetter) -> None:
        self._table.put(_key_of(letter), letter, self._clock.now_us())

    def list_letters(self, consumer: str | None = None, *, status: str | None = DEAD) -> Iterator[DeadLetter]:
        for name, day, dead in self._table.partitions():
            if consumer in (None, name) and (dead or status != DEAD):
                yield from (one for one in self._table.letters(name, day) if status in (None, one.status))

    def find_letter(self, consumer: str, event_id: str) -> DeadLetter | None:
        check_consumer(consumer)
        try:
            event_us = EventID.parse(event_id).exact_us
        except InvalidCursor:  # an id of another kind of stream, which does not show the event's time
            return next((one for one in self.list_letters(consumer, status=None) if one.event.id == event_id), None)
        return self._table.find(_key(consumer, event_id, event_us))

    def claim_letter(self, letter: DeadLetter, claim: str) -> DeadLetter | None:
        key = _key_of(letter)
        other = self._table.claim(key, claim, signature(self._clock.now_us()), CLAIM_S)
        if other is not None:
            raise claimed(letter, other)
        return self._table.find(key)

    def release_letter(self, letter: DeadLetter, claim: str) -> None:
        self._table.release(_key_of(letter), claim)

    def resolve_letter(self, letter: DeadLetter, status: str, *, reason: str, claim: str = "") -> None:
        check_resolution(status, reason)
        mine = claim or str(uuid.uuid4())
        self.claim_letter(letter, mine)
        now_us = self._clock.now_us()
        self._table.resolve(_key_of(letter), now_us, status, signature(now_us), f"{status}: {reason}")
        if not claim:
            self.release_letter(letter, mine)

    def count_letters(self, consumer: str | None = None) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for name, _, dead in self._table.partitions():
            if dead and consumer in (None, name):
                counts[name] += dead
        return counts


class MemoryDeadLetters:
    """Dead letters that live as long as this object, for tests. Thread-safe."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._tries: dict[tuple[str, str], int] = {}
        self._letters: dict[LetterKey, DeadLetter] = {}
        self._claims: dict[LetterKey, tuple[str, str, float]] = {}  # who, since when, and until when

    def tries(self, consumer: str, event: Event) -> int:
        check_consumer(consumer)
        with self._lock:
            return self._tries.get((consumer, event.id), 0)

    def set_tries(self, consumer: str, event: Event, tries: int) -> None:
        check_consumer(consumer)
        with self._lock:
            if tries:
                self._tries[consumer, event.id] = tries
            else:
                self._tries.pop((consumer, event.id), None)

    def put(self, letter: DeadLetter) -> None:
        key = _key_of(letter)
        with self._lock:
            known = self._letters.get(key)
            self._letters[key] = attrs.evolve(letter, status=DEAD, audit=known.audit if known else ())

    def list_letters(self, consumer: str | None = None, *, status: str | None = DEAD) -> Iterator[DeadLetter]:
        with self._lock:
            found = sorted(self._letters.values(), key=_order)
        return (one for one in found if consumer in (None, one.consumer) and status in (None, one.status))

    def find_letter(self, consumer: str, event_id: str) -> DeadLetter | None:
        check_consumer(consumer)
        return next((one for one in self.list_letters(consumer, status=None) if one.event.id == event_id), None)

    def claim_letter(self, letter: DeadLetter, claim: str) -> DeadLetter | None:
        key, now = _key_of(letter), self._clock.monotonic()
        with self._lock:
            holder, since, until = self._claims.get(key, ("", "", 0.0))
            if holder not in ("", claim) and now < until:
                raise claimed(letter, since)
            self._claims[key] = claim, signature(self._clock.now_us()), now + CLAIM_S
            return self._letters.get(key)

    def release_letter(self, letter: DeadLetter, claim: str) -> None:
        key = _key_of(letter)
        with self._lock:
            if self._claims.get(key, ("",))[0] == claim:
                del self._claims[key]

    def resolve_letter(self, letter: DeadLetter, status: str, *, reason: str, claim: str = "") -> None:
        check_resolution(status, reason)
        mine = claim or str(uuid.uuid4())
        self.claim_letter(letter, mine)
        key = _key_of(letter)
        with self._lock:
            if not claim:
                del self._claims[key]
            known = self._letters.get(key)
            if known is None:
                return
            entry = signature(self._clock.now_us()), f"{status}: {reason}"
            self._letters[key] = attrs.evolve(known, status=status, audit=(*known.audit, entry))

    def count_letters(self, consumer: str | None = None) -> Mapping[str, int]:
        return Counter(one.consumer for one in self.list_letters(consumer))


def check_resolution(status: str, reason: str) -> None:
    """Raise ``ConfigError`` if a letter cannot be set to *status*, or *reason* is blank."""
    if status not in STATUSES or status == DEAD:
        raise ConfigError(f"the status of a dead letter cannot become {status!r}; use 'replayed' or 'discarded'")
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigError(
            "resolving a letter requires a reason, which is recorded with it; pass one, such as reason='fixed in 1.2'"
        )


def _key(consumer: str, event_id: str, event_us: int) -> LetterKey:
    check_consumer(consumer)
    return LetterKey(consumer, _day(event_us), event_us, event_id)


def _key_of(letter: DeadLetter) -> LetterKey:
    return _key(letter.consumer, letter.event.id, letter.event.timestamp_us)


def _order(letter: DeadLetter) -> tuple[Any, ...]:
    return letter.consumer, *letter_order(letter.event.timestamp_us, letter.event.id)


def claimed(letter: DeadLetter, by: str) -> LetterClaimed:
    """Return the error for a letter that another one has claimed: *by* is its time and process."""
    return LetterClaimed(
        f'the letter of event {letter.event.id} of consumer "{letter.consumer}" is being replayed or resolved since '
        f"{by}; try again when that is done, {CLAIM_S} seconds after it has died at the latest"
    )


def _day(event_us: int) -> str:
    return tu.datetime_of(event_us).date().isoformat()
