"""``FirstHint``: where the hints of timers begin, so that what is long over is not read again and again.

No clock decides it. Who moves it on says so first (``propose``), then finds nothing before it, and then confirms. Who
writes a hint looks at it afterwards (``keep``), and moves it back if it is beyond the hint, or about to be. So either
the one who looks finds the hint, or the confirmation is refused.
"""

from __future__ import annotations

import secrets
from functools import partial

import attrs

from cursorstore.table import StoreTable, values_of

from ... import _timeuuid as tu

__all__ = ["FirstHint", "Position"]

BUCKET = -1
"""The partition of the row that says where the hints begin. Those of hints are 0 or more."""


@attrs.frozen
class Position:
    """No hint is in a bucket before ``first``. ``reach``: what somebody is about to make the first one; ``by`` whom."""

    first: int
    reach: int
    by: str = ""

    @property
    def text(self) -> str:
        return f"{self.first} {self.reach} {self.by}".rstrip()

    @classmethod
    def of(cls, text: str) -> Position:
        first, reach, *by = text.split(" ")
        return cls(int(first), int(reach), *by)


class FirstHint:
    """The first bucket that may have hints, in a row of the *table* of hints. Thread-safe. Sends queries."""

    def __init__(self, table: StoreTable) -> None:
        self._table = table
        self._key = (BUCKET, tu.datetime_of(0))

    def find(self) -> Position | None:
        """Return where the hints begin; None if there were none yet."""
        return self._read(serial=False)

    def keep(self, bucket: int) -> None:
        """Let hints of *bucket* be found. Called after one was written.

        Raises:
            QueryTimeout, ConnectionFailed: it is not known whether the hint will be found; write it again.
        """
        while (found := self.find()) is None or found.reach > bucket:
            first = bucket if found is None else min(bucket, found.first)
            self._replace(found, Position(first, first))

    def propose(self, found: Position, reach: int) -> Position | None:
        """Say that the hints may begin at *reach*; return what to confirm, None if others were faster.

        Whatever is written to a bucket before *reach* from now on is either there for who reads it now, or makes the
        confirmation fail.
        """
        proposal = Position(found.first, reach, secrets.token_hex(8))
        return proposal if self._replace(found, proposal) else None

    def confirm(self, proposal: Position, first: int) -> None:
        """Let the hints begin at *first*, before which there are none, unless one was written since *proposal*."""
        self._replace(proposal, Position(first, first))

    def _replace(self, found: Position | None, to: Position) -> bool:
        name = self._table.name
        if found is None:
            text = f"INSERT INTO {name} (bucket, due, id, data) VALUES (?, ?, '', ?) IF NOT EXISTS"
            return self._table.settled(text, (*self._key, to.text), partial(self._read, serial=True), to.__eq__)
        text = f"UPDATE {name} SET data = ? WHERE bucket = ? AND due = ? AND id = '' IF data = ?"
        return self._table.settled(text, (to.text, *self._key, found.text), partial(self._read, serial=True), to.__eq__)

    def _read(self, *, serial: bool) -> Position | None:
        text = f"SELECT data FROM {self._table.name} WHERE bucket = ? AND due = ? AND id = ''"
        with self._table.errors(f"reading where the timers begin from table {self._table.name}"):
            for row in self._table.run(text, self._key, serial=serial):
                return Position.of(values_of(row)[0])
        return None
