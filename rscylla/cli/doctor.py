"""``rscylla doctor``: reports what is wrong with reading a table's CDC log, or soon will be, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Annotated

import attrs
import typer
from typer import Option

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla import errors
from rscylla.abc import CursorRecord

from .group import findings
from .shared.failures import Exit
from .shared.names import parse_lag, parse_table
from .shared.options import Connection, JsonOutput, Store, TableArgument, command, own_store
from .shared.output import json_line
from .shared.standard import write

__all__ = ["doctor"]


@command
def doctor(
    name: TableArgument,
    lag: Annotated[
        float | None,
        Option(metavar="SECONDS", help="Lag of the consumer; the check warns if it is unsafe."),
    ] = None,
    consistency: Annotated[str, Option(metavar="LEVEL", help="Consistency level of reads of the log.")] = "QUORUM",
    writes: Annotated[str, Option(metavar="LEVEL", help="Consistency level of the application's writes.")] = "QUORUM",
    consumer: Annotated[str | None, Option(metavar="NAME", help="Also check the cursor of this consumer.")] = None,
    *,
    store: Store,
    connection: Connection,
    as_json: JsonOutput = False,
) -> None:
    """Check a table, its CDC log, and the cluster; report what is wrong and what to do. Changes nothing.

    With --store, the cursor table is checked, too. The exit code is 4 if there is an error, and 0 if there are only
    warnings.
    """
    parsed = parse_table(name)
    if consumer is not None and store.store is None:
        raise rscylla.ConfigError("--consumer NAME requires --store KEYSPACE, the keyspace of its cursor table")
    span = None if lag is None else parse_lag(lag, command="doctor")
    with ExitStack() as stack:
        own = own_store(store.store)
        if own is not None:
            stack.callback(own.close)
            if consumer is None:
                raise rscylla.ConfigError("--store MODULE:FUNCTION requires --consumer NAME, whose cursor is checked")
        session = stack.enter_context(connection.session())
        cursors: dict[str, str | None] = {}
        failed: dict[str, str] = {}
        groups: list[rscylla.doctor.Finding] = []
        if own is not None and consumer is not None:
            cursors = _cursors_of(consumer, own.list_cursors())
        elif store.store is not None:
            records, failed = _saved(ScyllaCursorStore(session, store.store, store.store_table))
            if consumer is not None and not failed:
                cursors, groups = _cursors_of(consumer, records), findings(session, store.store, consumer, records)
        found = rscylla.diagnose(
            session,
            parsed.keyspace,
            parsed.table,
            lag=span,
            consistency=consistency,
            writes=writes,
            cursors=cursors,
            can_save=own is None and store.store is not None and not failed,
            failed=failed,
        )
    found = (*found, *groups)
    for finding in found:
        write(json_line(attrs.asdict(finding))) if as_json else _show(finding)
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(Exit.TABLE)


def _saved(store: ScyllaCursorStore) -> tuple[list[CursorRecord], dict[str, str]]:
    """Return all cursors, and the errors by check."""
    try:
        store.check_access()
        return store.list_cursors(), {}
    except (errors.SourceError, errors.MetadataError, errors.ConfigError, errors.CursorError) as e:
        return [], {"cursor table": str(e)}


def _cursors_of(consumer: str, records: Iterable[CursorRecord]) -> dict[str, str | None]:
    """Return the cursor of *consumer* or the cursors of its slices, whichever were saved last; None if missing."""
    saved = {r.consumer: r for r in records if r.slice_of(consumer)}
    if not saved:
        return {consumer: None}
    # None cannot be compared with a time, so it comes first, as the lowest.
    last = max(saved.values(), key=lambda r: (r.updated_at is not None, r.updated_at))
    _, count = last.slice_of(consumer) or (0, 1)
    names = [rscylla.slice_name(consumer, index, count) for index in range(count)]
    return {name: saved[name].cursor if name in saved else None for name in names}


def _show(finding: rscylla.doctor.Finding) -> None:
    write(f"{finding.severity:5}  {finding.check:12}  {finding.what}")
    if finding.do:
        write(f"{'':5}  {'':12}  -> {finding.do}")
