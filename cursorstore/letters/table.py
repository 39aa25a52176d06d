"""The table of dead letters, and the statements on it. All writes are plain: one consumer works on an event at a time.

One row per event of a consumer, in a partition for each consumer and day of events. ``tries`` is written before there
is a letter, and expires; a row without ``status`` is not a letter yet. ``dead`` has an element for each letter of the
partition whose status is dead, so that letters can be counted without reading them. ``claims`` has those who work on a
letter, each for a while; of two, none goes on.

Operators resolve letters while consumers write them, and their clocks differ. Each write of a letter therefore has a
timestamp above that of the status it replaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import attrs

from rscylla import _timeuuid as tu
from rscylla._letters import DEAD, DeadLetter, KeptEvent, letter_order

from ..table import StoreTable, TableKind, values_of

__all__ = ["DEFAULT_LETTER_TABLE", "LETTERS", "LetterKey", "LetterTable", "letter_schema_cql"]

DEFAULT_LETTER_TABLE = "rscylla_dead_letters"

LETTERS = TableKind(
    what="dead letter table",
    table=DEFAULT_LETTER_TABLE,
    columns={
        "consumer": "text",
        "day": "text",
        "event_us": "bigint",
        "event_id": "text",
        "dead": "set<blob> static",
        "tries": "int",
        "status": "text",
        "attempts": "int",
        "error": "text",
        "traceback": "text",
        "failed_us": "bigint",
        "event_type": "bigint",
        "foreign_id": "text",
        "metadata": "blob",
        "trace": "blob",
        "late": "boolean",
        "park": "text",
        "claims": "map<text, text>",
        "audit": "map<text, text>",
    },
    primary_key="(consumer, day), event_us, event_id",
    options="CLUSTERING ORDER BY (event_us ASC, event_id ASC) AND ",
    comment="dead letters of rscylla consumers; replay or discard them with rscylla, do not edit rows",
    hint="create it with create_schema() or create=True of the store, or the statement that `rscylla schema "
    "letters` prints",
)

letter_schema_cql = LETTERS.cql

_COLUMNS = (
    "consumer, day, event_us, event_id, status, attempts, error, traceback, failed_us, event_type, foreign_id, "
    "metadata, trace, late, park, audit"
)

_THIS = "WHERE consumer = ? AND day = ? AND event_us = ? AND event_id = ?"


@attrs.frozen
class LetterKey:
    """Identifies an event of a consumer. ``day`` is the UTC day of ``event_us``, such as ``2026-11-21``."""

    consumer: str
    day: str
    event_us: int
    event_id: str

    @property
    def mark(self) -> bytes:
        """The element for this letter in the set of dead letters; short, because queries read the whole set."""
        # 96 bits make a collision between two letters of one day practically impossible.
        return hashlib.blake2b(self.event_id.encode(errors="surrogatepass"), digest_size=12).digest()

    @property
    def values(self) -> tuple[str, str, int, str]:
        return self.consumer, self.day, self.event_us, self.event_id


class LetterTable(StoreTable):
    """A table of dead letters."""

    def tries(self, key: LetterKey) -> int:
        """Return the number of failed attempts that are recorded."""
        text = f"SELECT tries FROM {self.name} {_THIS}"
        with self.errors(self._doing("reading the attempts", key)):
            for row in self.run(text, key.values):
                return values_of(row)[0] or 0
        return 0

    def set_tries(self, key: LetterKey, tries: int, ttl_s: int) -> None:
        """Record the number of failed attempts for *ttl_s* seconds; 0 deletes the record."""
        with self.errors(self._doing("saving the attempts", key)):
            if tries:
                # UPDATE, not INSERT: without a row marker, the row disappears with its last cell.
                self.run(f"UPDATE {self.name} USING TTL ? SET tries = ? {_THIS}", (ttl_s, tries, *key.values))
            else:
                self.run(f"DELETE tries FROM {self.name} {_THIS}", key.values)

    def put(self, key: LetterKey, letter: DeadLetter, now_us: int) -> None:
        """Write a letter, which is dead then. Its audit trail does not change."""
        event = letter.event
        fields = {
            "status": DEAD,
            "attempts": letter.attempts,
            "error": letter.error,
            "traceback": letter.traceback,
            "failed_us": tu.us_of(letter.failed_at),
            "event_type": event.type,
            "foreign_id": event.foreign_id,
            "metadata": event.metadata,
            "trace": event.trace,
            "late": event.late,
            "park": letter.park,
        }
        columns = ", ".join(f"{name} = ?" for name in fields)
        with self.errors(self._doing("writing the letter", key)):
            # UPDATE, not INSERT, which would replace the whole set of dead letters.
            text = f"UPDATE {self.name} USING TTL 0 AND TIMESTAMP ? SET dead = dead + ?, {columns} {_THIS}"
            self.run(text, (self._after(key, now_us), {key.mark}, *fields.values(), *key.values))

    def resolve(self, key: LetterKey, now_us: int, status: str, when: str, why: str) -> None:
        """Set the status of a letter, and add an entry to its audit trail."""
        with self.errors(self._doing("changing the letter", key)):
            text = (
                f"UPDATE {self.name} USING TTL 0 AND TIMESTAMP ? SET dead = dead - ?, status = ?, audit[?] = ? {_THIS}"
            )
            self.run(text, (self._after(key, now_us), {key.mark}, status, when, why, *key.values))

    def claim(self, key: LetterKey, claim: str, who: str, ttl_s: int) -> str | None:
        """Claim a letter, or renew the claim; return who else has claimed it, None if nobody has.

        Everyone writes before it reads, with a quorum each: of two at a time, at least one sees the other and goes
        back. So no conditional write is needed.
        """
        with self.errors(self._doing("claiming the letter", key)):
            self.run(f"UPDATE {self.name} USING TTL ? SET claims[?] = ? {_THIS}", (ttl_s, claim, who, *key.values))
            for row in self.run(f"SELECT claims FROM {self.name} {_THIS}", key.values):
                found: dict[str, str] = values_of(row)[0] or {}
                if others := [other for name, other in found.items() if name != claim]:
                    self.release(key, claim)
                    return others[0]
        return None

    def release(self, key: LetterKey, claim: str) -> None:
        """End a claim."""
        with self.errors(self._doing("releasing the letter", key)):
            self.run(f"DELETE claims[?] FROM {self.name} {_THIS}", (claim, *key.values))

    def _after(self, key: LetterKey, now_us: int) -> int:
        """Return *now_us*, or the next timestamp after that of the letter's status if that is in the future."""
        for row in self.run(f"SELECT WRITETIME(status) FROM {self.name} {_THIS}", key.values):
            return max(now_us, (values_of(row)[0] or 0) + 1)
        return now_us

    def find(self, key: LetterKey) -> DeadLetter | None:
        """Return one letter; None if there is none."""
        with self.errors(self._doing("reading the letter", key)):
            for row in self.run(f"SELECT {_COLUMNS} FROM {self.name} {_THIS}", key.values):
                return _letter(row)
        return None

    def partitions(self) -> list[tuple[str, str, int]]:
        """Return the consumer, day, and number of dead letters of all partitions, sorted. Reads no letter."""
        text = f"SELECT DISTINCT consumer, day, dead FROM {self.name}"
        with self.errors(f"listing the letters in table {self.name}"):
            return sorted((c, d, len(dead or ())) for c, d, dead in map(values_of, self.run(text, ())))

    def letters(self, consumer: str, day: str) -> Iterator[DeadLetter]:
        """Yield the letters of a consumer and day as their events came. Reads page by page."""
        text = f"SELECT {_COLUMNS} FROM {self.name} WHERE consumer = ? AND day = ?"
        with self.errors(f"listing the letters of consumer {consumer!r} in table {self.name}"):
            found = (letter for row in self.run(text, (consumer, day)) if (letter := _letter(row)) is not None)
            for us, together in groupby(found, key=lambda letter: letter.event.timestamp_us):
                yield from sorted(together, key=lambda letter: letter_order(us, letter.event.id))

    def _doing(self, what: str, key: LetterKey) -> str:
        return f"{what} of consumer {key.consumer!r} in table {self.name}"


def _letter(row: Any) -> DeadLetter | None:
    """Return the letter; None if the row has only attempts."""
    consumer, _, event_us, event_id, status, attempts, error, trail, failed_us, *event, park, audit = values_of(row)
    # A row with only a status and an audit entry results from resolving a letter whose row was deleted, because UPDATE
    # creates a row.
    if status is None or failed_us is None:
        return None
    kind, foreign_id, metadata, trace, late = event
    at, failed_at = tu.datetime_of(event_us), tu.datetime_of(failed_us)
    kept = KeptEvent(event_id, kind or 0, foreign_id or "", at, metadata or b"", trace or b"", bool(late))
    done = tuple(sorted((audit or {}).items()))
    return DeadLetter(consumer, kept, attempts or 0, error or "", trail or "", failed_at, status, done, park or "")
