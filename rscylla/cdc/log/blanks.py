"""The spans of a log in which CDC was off, or may have been, so that writes of that time may not be in it. Pure.

The schema shows whether CDC is on, and when the table was last altered, but not what it was before. A reader therefore
remembers what it saw of the table, and cursors that are points carry that (``LoggedTable.seen``). If the table was
altered since, and nothing else of it differs, CDC may have been switched off and on again.
"""

from __future__ import annotations

import attrs

from ..._timeuuid import datetime_of
from ...event import EventID
from .lifetimes import NEVER_US
from .table import LoggedTable

__all__ = ["Blank", "Blanks"]


@attrs.frozen
class Blank:
    """A span of which writes may not be logged. It has no end (``NEVER_US``) while CDC is off.

    ``is_sure``: CDC was off when somebody looked. ``seen``: what a reader has seen of the table that is not behind it.
    """

    start_us: int
    end_us: int
    is_sure: bool
    seen: str

    @property
    def is_open(self) -> bool:
        return self.end_us == NEVER_US

    @property
    def may_be_none(self) -> bool:
        """Whether all that is known is that the table was altered at its end."""
        return not self.is_sure and not self.is_open

    def message(self, table: LoggedTable) -> str:
        """Return the message about the span of the log of *table*."""
        start = f"{datetime_of(self.start_us):%Y-%m-%d %H:%M:%S} UTC"
        if self.is_open:
            return (
                f"CDC of {table.full_name} is switched off since {start} at the latest, and what is written since is "
                f"not logged; ALTER TABLE {table.full_name} WITH cdc = {{'enabled': true}}"
            )
        end = f"{datetime_of(self.end_us + 999_999):%Y-%m-%d %H:%M:%S} UTC"
        if self.is_sure:
            return f"CDC of {table.full_name} was switched off between {start} and {end}: changes of that time are lost"
        return (
            f"{table.full_name} was altered between {start} and {end}, and the schema does not show in what, as after "
            "switching CDC off and on: changes of that time may be lost"
        )


@attrs.frozen
class Blanks:
    """The spans that are known, in order of time."""

    spans: tuple[Blank, ...] = ()

    @classmethod
    def of(cls, table: LoggedTable) -> Blanks:
        """Return what the schema shows: CDC is off since the table was last altered, or before that."""
        return cls().seeing(table.seen, table, table.altered_us or 0)

    def seeing(self, seen: str, table: LoggedTable, at_us: int) -> Blanks:
        """Return the spans that are known when *table* is seen.

        Args:
            seen: what was seen of it before, from *at_us* on.
        """
        last = self.spans[-1] if self.spans else None
        altered_us = table.altered_us or 0
        if not table.enabled:
            if last is not None and last.is_open:
                return self
            start_us = max(altered_us + 1, last.end_us if last else 0)
            return Blanks((*self.spans, Blank(start_us, NEVER_US, is_sure=True, seen=table.seen)))
        was_off = seen.startswith(OFF)
        if last is not None and last.is_open:
            return Blanks((*self.spans[:-1], attrs.evolve(last, end_us=max(altered_us, last.start_us))))
        is_explained = not seen or seen == table.seen or (not was_off and _rest(seen) != _rest(table.seen))
        start_us = max(0, min(at_us, altered_us - 1))
        if is_explained or altered_us <= start_us or (last is not None and last.end_us >= altered_us):
            return self
        return Blanks((*self.spans, Blank(start_us, altered_us, is_sure=was_off, seen=seen)))

    def since(self, cursor: EventID, table: LoggedTable) -> Blanks:
        """Return the spans that are known to a reader that continues at *cursor*."""
        seen = "" if cursor.mark is None else cursor.mark.seen
        return self.seeing(seen, table, cursor.exact_us) if seen and table.enabled else self

    def first(self, start_us: int, end_us: int = NEVER_US) -> Blank | None:
        """Return the first span that has a time from *start_us* to *end_us*; it may begin before, and end after."""
        return next((b for b in self.spans if b.start_us < end_us and b.end_us > start_us), None)

    def seen_at(self, time_us: int, table: LoggedTable) -> str:
        """Return what a reader that has got to *time_us* has seen of *table*: what is later is for its next step."""
        blank = self.first(time_us)
        return table.seen if blank is None else blank.seen


def _rest(seen: str) -> str:
    """Return *seen* without the time of the alteration."""
    return seen.rpartition(".")[2]


OFF = "off."
"""How ``LoggedTable.seen`` begins while CDC is off."""
