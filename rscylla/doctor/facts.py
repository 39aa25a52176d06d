"""Reads the facts for the doctor from a cluster. A query that fails is a fact, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from .._decoder import decoder, why_pure
from ..cdc.log import (
    LOG_SUFFIX,
    Generation,
    Lifetimes,
    NodeClocks,
    Source,
    Topology,
    generation_at,
    group_streams,
    read_table,
    resume,
    stream_row_cql,
    topology_for,
)
from ..clock import Clock, Stop, SystemClock
from ..driver import ReadSession, Session, consistency_named, driver_version
from ..errors import CDCDisabled, ConfigError, CursorError, MetadataError, QueryTimeout, RscyllaError, SourceError
from ..types import quote_name
from .finding import Facts, Finding, Node
from .judges import findings

__all__ = ["diagnose"]

T = TypeVar("T")

NO_BOUND_US = 2**62
"""No skew exceeds it: the findings report skews, so the clocks must not also log them."""

READ_LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "ALL")
WRITE_LEVELS = (*READ_LEVELS, "ANY", "EACH_QUORUM")


def diagnose(
    session: Session,
    keyspace: str,
    table: str,
    *,
    lag: timedelta | None = None,
    consistency: str = "QUORUM",
    writes: str = "QUORUM",
    cursors: Mapping[str, str | None] | None = None,
    can_save: bool = False,
    failed: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> tuple[Finding, ...]:
    """Return the findings of checks on reading the CDC log of a table. Changes nothing. Blocks on small queries.

    Args:
        session: a connected driver session.
        keyspace, table: the base table, names as stored.
        lag: the lag of its streams; default: 30 s.
        consistency, writes: the consistency levels of log reads, and of writes to the table.
        cursors: saved cursors by consumer, to be checked, too; None for a consumer without a cursor.
        can_save: the caller has checked that cursors can be read and saved.
        failed: the reasons of checks that failed in the caller, by check.
        clock: the clock of the checks; default: the system's.

    Raises:
        TableNotFound: the table does not exist.
        ConfigError: a level is invalid, or invalid for this use.
        ConnectionFailed, AuthenticationFailed, QueryTimeout, QueryFailed: the schema cannot be read.
    """
    for level, levels, name in ((consistency, READ_LEVELS, "consistency"), (writes, WRITE_LEVELS, "writes")):
        if level.upper() not in levels:
            raise ConfigError(f"{name} is {level!r}; it is one of {', '.join(levels)}")
    log = ReadSession(session, consistency=consistency_named(consistency))
    examination = _Examination(log, keyspace, table, clock or SystemClock(), dict(failed or {}))
    return examination.findings(
        lag_us=None if lag is None else lag // timedelta(microseconds=1),
        reads=consistency.upper(),
        writes=writes.upper(),
        cursors=cursors or {},
        can_save=can_save,
    )


class _Examination:
    """One examination of a table. ``failed`` collects the checks whose facts could not be read."""

    def __init__(self, session: ReadSession, keyspace: str, table: str, clock: Clock, failed: dict[str, str]) -> None:
        self._session = session
        self._keyspace = keyspace
        self._table = table
        self._clock = clock
        self._failed = failed

    def findings(self, **given: Any) -> tuple[Finding, ...]:
        try:
            info = read_table(self._session, self._keyspace, self._table)
        except CDCDisabled as e:
            what, _, do = str(e).partition("; ")
            return (Finding("cdc", "error", what, do),)
        log_columns = self._try("log table", self._log_columns) or {}
        partitioner, compaction = self._try("log table", self._log_properties) or ("", "")
        facts = Facts(
            info,
            now_us=self._clock.now_us(),
            log_columns=log_columns,
            partitioner=partitioner,
            compaction=compaction,
            replication=self._try("consistency", self._replication) or {},
            nodes=self._nodes(),
            driver=driver_version(),
            decoder=decoder(),
            why_pure=why_pure(),
            failed=self._failed,
            **self._generations(),
            **given,
        )
        if facts.streams is not None:
            facts = attrs.evolve(facts, judged=self._judged(facts.cursors))
        return findings(facts)

    def _try(self, check: str, read: Callable[[], T]) -> T | None:
        """Return the result of *read*. If it raises, record that *check* failed, and return None."""
        try:
            return read()
        except (SourceError, MetadataError) as e:
            self._failed.setdefault(check, str(e))
            return None

    def _rows(self, cql: str, *values: object, doing: str) -> list[tuple[Any, ...]]:
        return self._session.rows(cql, values, doing=doing)

    def _log_columns(self) -> dict[str, str]:
        cql = "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
        rows = self._rows(cql, self._keyspace, self._table + LOG_SUFFIX, doing="reading the log's columns")
        return dict(rows)

    def _log_properties(self) -> tuple[str, str]:
        """Return the partitioner and the compaction class of the log."""
        where = "WHERE keyspace_name = %s AND table_name = %s"
        name = self._keyspace, self._table + LOG_SUFFIX
        doing = "reading the log's properties"
        compaction = self._rows(f"SELECT compaction FROM system_schema.tables {where}", *name, doing=doing)
        partitioner = self._rows(f"SELECT partitioner FROM system_schema.scylla_tables {where}", *name, doing=doing)
        strategy = dict(compaction[0][0] or {}).get("class", "") if compaction else ""
        return (partitioner[0][0] or "" if partitioner else ""), strategy

    def _judged(self, cursors: Mapping[str, str | None]) -> dict[str, Lifetimes | RscyllaError]:
        """Return, by consumer, the lifetimes of the rows after its cursor, or the error of a reader that refuses it."""
        saved = {consumer: text for consumer, text in cursors.items() if text}
        if not saved:
            return {}
        try:
            source = Source(self._session, self._keyspace, self._table, self._clock, Stop())
        except (SourceError, MetadataError) as e:
            return dict.fromkeys(saved, e)
        judged: dict[str, Lifetimes | RscyllaError] = {}
        for consumer, text in saved.items():
            try:
                source.lifetimes = Lifetimes.of(source.table)  # facts from one cursor must not affect the next
                resume(source, text, "raise")
                judged[consumer] = source.lifetimes
            except (SourceError, MetadataError, CursorError) as e:
                judged[consumer] = e
        return judged

    def _replication(self) -> dict[str, str]:
        cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"
        rows = self._rows(cql, self._keyspace, doing="reading the keyspace's replication")
        return dict(rows[0][0]) if rows else {}

    def _nodes(self) -> tuple[Node, ...]:
        clocks = NodeClocks(self._session, self._clock, bound_us=NO_BOUND_US)
        clocks.sample()
        return tuple(Node(a, dc, up, clocks.skew_us.get(a) if up else None) for a, dc, up in self._session.nodes())

    def _generations(self) -> dict[str, Any]:
        """Return the facts of generations and streams, and try to read a stream of the log."""
        topology = self._try("generations", lambda: topology_for(self._session, self._keyspace, self._table))
        if topology is None:
            return {}
        known = self._try("generations", topology.generations) or ()
        at = generation_at(known, self._clock.now_us())
        facts = {"model": topology.model, "generations": tuple(g.time for g in known)}
        return facts | (self._streams(topology, known[at]) if at >= 0 else {})

    def _streams(self, topology: Topology, current: Generation) -> dict[str, Any]:
        streams = self._try("streams", lambda: topology.streams(current))
        if streams is None:
            return {}
        try:
            self._session.rows(
                stream_row_cql(self._keyspace, self._table),
                (streams[0],),
                doing=f"reading the log of {quote_name(self._keyspace)}.{quote_name(self._table)}",
                consistency=self._session.consistency,
            )
        except QueryTimeout as e:
            # Nodes answered the earlier queries. This one needs as many replicas as the consistency level requires, so
            # Unavailable and time-outs, which both arrive here, mean that too few replicas answer.
            self._failed.setdefault("consistency", str(e))
        except SourceError as e:
            self._failed.setdefault("permissions", str(e))
        groups = group_streams(streams, replicas_of=self._session.replicas_of(self._keyspace))
        return {"streams": len(streams), "queries": len(groups)}
