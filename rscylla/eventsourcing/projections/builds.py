"""Where the builds of projections are kept: in a table. Every write is conditional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cursorstore.table import InTable, StoreTable, TableKind, values_of

from ..abc import Built

__all__ = ["DEFAULT_BUILD_TABLE", "ScyllaBuilds", "build_schema_cql"]

DEFAULT_BUILD_TABLE: Final = "rscylla_projections"

BUILDS = TableKind(
    what="table of projections",
    table=DEFAULT_BUILD_TABLE,
    columns={
        "name": "text",
        "active": "bigint",
        "building": "bigint",
        "retired": "bigint",
        "last": "bigint",
        "rest": "map<text, bigint>",
    },
    primary_key="name",
    options="",
    comment="builds of rscylla projections; all writes are conditional",
    hint="create it with create=True of the store, or with the statement of build_schema_cql()",
)


build_schema_cql = BUILDS.cql


class ScyllaBuilds(InTable):
    """Builds in the table *keyspace*.*table*. Implements ``BuildStore``. Thread-safe.

    The arguments are those of ``ScyllaTimers``.
    """

    def __init__(
        self,
        session: Any,
        keyspace: str,
        table: str = DEFAULT_BUILD_TABLE,
        *,
        create: bool = False,
        consistency: int | str = "LOCAL_QUORUM",
    ) -> None:
        self._table = StoreTable(session, BUILDS, keyspace, table, create=create, consistency=consistency)

    def find_builds(self, projection: str) -> Built:
        found = self._read(projection)
        while found is None:
            self._step(
                projection,
                f"INSERT INTO {self._table.name} (name, active, building, retired, last) VALUES (?, 0, 1, 0, 1) "
                "IF NOT EXISTS",
                (projection,),
                lambda _: True,
            )
            found = self._read(projection)
        return found

    def begin_build(self, projection: str, build: int) -> bool:
        return self._step(
            projection,
            f"UPDATE {self._table.name} SET building = ?, last = ?, rest = null WHERE name = ? "
            "IF building = 0 AND retired = 0 AND last < ?",
            (build, build, projection, build),
            lambda now: now.building == build,
        )

    def scanned(self, projection: str, build: int, lane: str, rest: int) -> bool:
        return self._step(
            projection,
            f"UPDATE {self._table.name} SET rest[?] = ? WHERE name = ? IF building = ?",
            (lane, rest, projection, build),
            lambda now: now.building == build and now.rest.get(lane) == rest,
        )

    def activate(self, projection: str, build: int) -> bool:
        now = self.find_builds(projection)
        if now.building != build:
            return now.active == build
        return self._step(
            projection,
            f"UPDATE {self._table.name} SET active = ?, building = 0, retired = ?, rest = null WHERE name = ? "
            "IF building = ?",
            (build, now.active, projection, build),
            lambda then: then.active == build,
        )

    def dropped(self, projection: str, build: int) -> bool:
        def gone(now: Built) -> bool:
            return build not in (now.active, now.retired, now.building)

        for column in ("retired", "building"):
            text = f"UPDATE {self._table.name} SET {column} = 0 WHERE name = ? IF {column} = ?"
            if self._step(projection, text, (projection, build), gone):
                return True
        return False

    def _step(self, projection: str, text: str, values: tuple[Any, ...], done: Callable[[Built], bool]) -> bool:
        """Execute a conditional write; return whether it was applied, now or by an earlier attempt."""
        return self._table.settled(text, values, lambda: self._read(projection), done)

    def _read(self, projection: str) -> Built | None:
        text = f"SELECT active, building, retired, last, rest FROM {self._table.name} WHERE name = ?"
        with self._table.errors(f"reading the builds of projection {projection!r} from table {self._table.name}"):
            for row in self._table.run(text, (projection,), serial=True):
                active, building, retired, last, rest = values_of(row)
                return Built(active or 0, building or 0, retired or 0, last or 0, dict(rest or {}))
        return None
