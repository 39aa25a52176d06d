"""Where a connector keeps cursors in ScyllaDB: a store for the tables of each keyspace, also after that was dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...abc import CursorStore, Membership
from ...driver import ReadSession, Session, consistency_named
from ..config.properties import Properties

if TYPE_CHECKING:
    from cursorstore import ScyllaCursorStore

__all__ = ["SAVE_EVERY", "Stores", "closed"]

log = logging.getLogger("rscylla.kafka")

SAVE_EVERY: Final = timedelta(seconds=1)
"""How often cursors are written. After a crash, the records of this time are published again."""


@attrs.define(eq=False)
class Stores:
    """The cursor stores of a connector, made when they are needed.

    A store remembers cursors and whether its table is there. So it is replaced after the table, or one of those whose
    cursors it has, was dropped.

    Args:
        store_of: makes the store of a keyspace; None: ``ScyllaCursorStore``, as *properties* say.
        lease: of the stores.
    """

    properties: Properties
    session: Session
    store_of: Callable[[str], CursorStore] | None = None
    lease: Membership | None = None
    _open: dict[str, CursorStore] = attrs.field(factory=dict, init=False)

    def of(self, keyspace: str) -> CursorStore:
        """Return the store of the tables of *keyspace*."""
        place = self._place(keyspace)
        if place not in self._open:
            self._open[place] = (self.store_of or self._buffered)(place)
        return self._open[place]

    def scylla(self, keyspace: str, *, create: bool = False) -> ScyllaCursorStore:
        """Return a store of its own for the table in which the cursors of *keyspace* are."""
        from cursorstore import ScyllaCursorStore

        table = self.properties.text("rscylla.store.table")
        return ScyllaCursorStore(self.session, self._place(keyspace), table, create=create, lease=self.lease)

    def tables(self) -> dict[str, Any]:
        """Return the ids of the tables in which open stores keep cursors, by keyspace, without those that are gone."""
        if self.store_of is not None:
            return {}
        session = ReadSession(self.session, consistency=consistency_named("LOCAL_ONE"))
        cql = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        table, doing = self.properties.text("rscylla.store.table"), "looking for the tables of cursors"
        found = {place: session.rows(cql, (place, table), doing=doing) for place in self._open}
        return {place: rows[0][0] for place, rows in found.items() if rows}

    def renew(self, keyspaces: Iterable[str]) -> None:
        """Let the stores of *keyspaces* go; others are made when they are needed."""
        for place in {self._place(keyspace) for keyspace in keyspaces} & self._open.keys():
            closed(self._open.pop(place))

    def close(self) -> None:
        """Save what is not saved yet; what cannot be saved is logged."""
        self.renew([*self._open])

    def _place(self, keyspace: str) -> str:
        return self.properties.text("rscylla.store.keyspace") or keyspace

    def _buffered(self, keyspace: str) -> CursorStore:
        from cursorstore import BufferedCursorStore

        kept = self.scylla(keyspace, create=self.properties.flag("rscylla.store.create"))
        return BufferedCursorStore(kept, interval=SAVE_EVERY)


def closed(store: CursorStore) -> None:
    """Close *store*. What cannot be saved is logged: the changes after the saved cursor are published again."""
    try:
        store.close()
    except Exception as error:  # noqa: BLE001 - one store must not keep others open, and nothing is lost
        log.warning("cursors of %r are not saved, so changes are published again: %s", store, error)
