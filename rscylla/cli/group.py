"""``rscylla group``: shows and manages groups of processes that share the slices of their consumers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import attrs
import typer
from typer import Argument, Option

import rscylla
from cursorstore import (
    DEFAULT_GROUP_TABLE,
    DEFAULT_TABLE,
    ScyllaCursorStore,
    ScyllaGroupTable,
    abort_reslice,
    drain_member,
    find_group,
    list_groups,
    reslice_group,
)
from rscylla.abc import CursorRecord, GroupMember, GroupSlice, GroupView

from .shared.failures import stopping
from .shared.options import Connection, JsonOutput, command
from .shared.output import json_line, listing, moment, show, table
from .shared.standard import say, write

__all__ = ["app", "findings", "refuse_member"]

app = typer.Typer(
    help="Show and manage groups of processes that share tables.", no_args_is_help=True, rich_markup_mode=None
)

GroupName = Annotated[str, Argument(metavar="NAME", help="Name of the group.")]
Keyspace = Annotated[str, Option(metavar="KEYSPACE", help="Keyspace of the group table, as stored.")]
Table = Annotated[str, Option(metavar="NAME", help="Name of the group table, as stored.")]
CursorTable = Annotated[
    str, Option("--cursors", metavar="NAME", help="Name of the cursor table in the same keyspace, as stored.")
]


@attrs.frozen
class _Place:
    """Where the groups are."""

    store: Keyspace
    table: Table = DEFAULT_GROUP_TABLE
    connection: Connection = attrs.field(factory=Connection)

    @contextmanager
    def opened(self) -> Iterator[ScyllaGroupTable]:
        with self.connection.session() as session:
            yield ScyllaGroupTable(session, self.store, self.table)

    @contextmanager
    def with_cursors(self, name: str) -> Iterator[tuple[ScyllaGroupTable, ScyllaCursorStore]]:
        with self.connection.session() as session:
            yield ScyllaGroupTable(session, self.store, self.table), ScyllaCursorStore(session, self.store, name)


@app.command("list")
@command
def list_(place: _Place, as_json: JsonOutput = False) -> None:
    """List all groups, by name, with the number of their members and slices."""
    with place.opened() as groups:
        views = list_groups(groups)
    listing(
        ({"group": v.name, "members": len(v.members), **_counts(v), "held": _held(v)} for v in views),
        ("group", "members", "slices", "held"),
        [(view.name, str(len(view.members)), _count(view), str(_held(view))) for view in views],
        as_json=as_json,
    )


@app.command("show")
@command
def show_(
    name: GroupName,
    cursor_table: CursorTable = DEFAULT_TABLE,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Show the members of a group, and who has each slice since when and why, with the lag of its consumers.

    A lag is the age of the saved cursor, which may be some seconds behind the consumer.
    """
    with place.with_cursors(cursor_table) as (groups, cursors):
        view = _found(groups, name)
        lags = _lags(view, cursors)
    write(json_line(_described(view, lags))) if as_json else _print(view, lags)


@app.command("drain")
@command
def drain(
    name: GroupName,
    member: Annotated[str, Argument(metavar="MEMBER", help="Name of the member, or its token or 8 letters of it.")],
    undo: Annotated[bool, Option("--undo", help="Let the member take slices again.")] = False,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Ask a member to hand over its slices one by one, and to take no others, for example before its machine stops.

    The process goes on running without slices. If it restarts, it takes part again.
    """
    with place.opened() as groups:
        found = drain_member(groups, name, member, undo=undo)
        held = [s.index for s in _found(groups, name).slices if s.holder == found.token]
    what = "takes part again" if undo else f"hands over {len(held)} slices"
    shown = {"group": name, "member": found.owner, "token": found.token, "drains": not undo, "held": held}
    show(shown, f"member {found.owner} of group {name} {what}", as_json=as_json)


@app.command("reslice")
@command
def reslice(
    name: GroupName,
    new: Annotated[
        int | None, Option("--to", min=1, metavar="N", help="New number of slices.", show_default=False)
    ] = None,
    abort: Annotated[bool, Option("--abort", help="End a change that a command left unfinished.")] = False,
    reason: Annotated[str, Option(metavar="TEXT", help="Reason, recorded with the cursors.")] = "",
    timeout: Annotated[
        float, Option(min=0, max=10**9, metavar="SECONDS", help="How long to wait for the members.")
    ] = 300.0,
    cursor_table: CursorTable = DEFAULT_TABLE,
    *,
    place: _Place,
    as_json: JsonOutput = False,
) -> None:
    """Change the number of slices of a group while its processes run.

    The members let go of their slices, the cursors of all consumers of the group move, and the members take the new
    slices. No change is lost; changes that faster slices had handled are repeated. If the command fails or is stopped,
    the group goes on with the slices that it had.
    """
    if abort is (new is not None):
        raise rscylla.ConfigError("give either --to N, the new number of slices, or --abort")
    with place.with_cursors(cursor_table) as (groups, cursors), stopping() as stop:
        if new is None:
            view = abort_reslice(groups, name)
            show({"group": name, **_counts(view)}, f"group {name} has {_count(view)} slices", as_json=as_json)
            return
        left = [-1]

        def tell(view: GroupView) -> None:
            if left[0] != (held := _held(view)):
                left[0] = held
                say(f"{held} slices are held")

        span = timedelta(seconds=timeout)
        moved = reslice_group(groups, name, new, cursors, reason=reason, timeout=span, watch=tell, stop=stop)
    text = f"group {name} has {new} slices; {len(moved)} cursors were moved"
    show({"group": name, "count": new, "next": 0, "cursors": moved}, text, as_json=as_json)


# ---------------------------------------------------------------- for the other commands


def refuse_member(session: rscylla.Session, keyspace: str, consumer: str, records: Iterable[CursorRecord]) -> None:
    """Raise ``ConfigError`` if *consumer* is in a group that has members: its cursors move with those of the group."""
    for view in _groups_of(session, keyspace, consumer, records):
        if view.members:
            raise rscylla.ConfigError(
                f"consumer {consumer!r} is in group {view.name!r}, which has {_members(view)}; run `rscylla "
                f"group reslice {view.name} --to N --store {keyspace}`, which moves all consumers of the group"
            )


def findings(
    session: rscylla.Session, keyspace: str, consumer: str, records: Iterable[CursorRecord]
) -> list[rscylla.doctor.Finding]:
    """Return what ``rscylla doctor`` says about the groups that *consumer* is in."""
    return [_finding(view) for view in _groups_of(session, keyspace, consumer, records)]


def _groups_of(
    session: rscylla.Session, keyspace: str, consumer: str, records: Iterable[CursorRecord]
) -> list[GroupView]:
    """Return the groups under whose slices cursors of *consumer* were saved, by name."""
    found = set()
    for record in records:
        name, part = record.group_of(consumer), record.slice_of(consumer)
        if name is not None and part is not None:
            found.add((name, part[1]))
    groups = ScyllaGroupTable(session, keyspace)
    try:
        views = [(find_group(groups, name), count) for name, count in sorted(found)]
    except rscylla.TableNotFound:  # then the consumer has a lease, or its groups are elsewhere
        return []
    # A lease and a group may have the same name, and a group has had other numbers of slices.
    return [view for view, count in views if view is not None and view.count == count]


def _finding(view: GroupView) -> rscylla.doctor.Finding:
    what = f"group {view.name!r}: {_members(view)}, {_held(view)} of {view.count} slices held"
    if unread := view.unread():
        do = "start its processes" if not view.members else "look again in a minute; if it lasts, see their logs"
        return rscylla.doctor.Finding("group", "error", f"{what}; {'; '.join(unread)}", do)
    return rscylla.doctor.Finding("group", "ok", what)


# ---------------------------------------------------------------- output


def _found(groups: ScyllaGroupTable, name: str) -> GroupView:
    view = find_group(groups, name)
    if view is None:
        raise rscylla.ConfigError(f"there is no group {name!r}; run `rscylla group list` to see all groups")
    return view


def _members(view: GroupView) -> str:
    return f"{len(view.members)} member{'' if len(view.members) == 1 else 's'}"


def _held(view: GroupView) -> int:
    return sum(view.holder(s.index) is not None for s in view.slices)


def _counts(view: GroupView) -> dict[str, int]:
    return {"count": view.count, "next": view.next_count}


def _count(view: GroupView) -> str:
    return f"{view.count} -> {view.next_count}" if view.next_count else str(view.count)


def _lags(view: GroupView, store: ScyllaCursorStore) -> dict[str, dict[int, float | None]]:
    """Return the age of the saved cursors in seconds, by consumer and slice; None for the oldest event."""
    try:
        records = store.list_cursors()
    except rscylla.TableNotFound:  # they are in another store
        return {}
    now, lags = datetime.now(UTC), dict[str, dict[int, float | None]]()
    for record in records:
        member = record.member_of(view.name, view.count)
        if member is not None:
            consumer, index = member
            lags.setdefault(consumer, {})[index] = _age_s(record.cursor, now)
    return lags


def _age_s(cursor: str, now: datetime) -> float | None:
    if not cursor:
        return None
    at = rscylla.EventID.parse(cursor).exact_us
    return max(0.0, round(now.timestamp() - at / 1_000_000, 3))


def _described(view: GroupView, lags: Mapping[str, Mapping[int, float | None]]) -> dict[str, Any]:
    """Return the group as a JSON object."""
    return {
        "group": view.name,
        **_counts(view),
        "unread": view.unread(),
        "members": [
            {
                **attrs.asdict(m),
                "expires_in": m.expires_in.total_seconds(),
                "held": _held_by(view, m),
                "reads": None if m.reads is None else sorted(m.reads),
            }
            for m in view.members
        ],
        "slices": [
            {
                **attrs.asdict(s),
                "held": view.holder(s.index) is not None,
                "lag": {consumer: ages[s.index] for consumer, ages in sorted(lags.items()) if s.index in ages},
            }
            for s in view.slices
        ],
    }


def _held_by(view: GroupView, member: GroupMember) -> int:
    return sum(s.holder == member.token for s in view.slices)


def _print(view: GroupView, lags: Mapping[str, Mapping[int, float | None]]) -> None:
    write(f"group {view.name}: {_members(view)}, {_count(view)} slices, {_held(view)} held")
    for what in view.unread():
        write(f"not read: {what}")
    write("")
    table(
        ("member", "token", "since", "expires in", "renewals", "slices", ""),
        [
            (
                m.owner,
                m.token[:8],
                moment(m.since),
                f"{m.expires_in.total_seconds():.0f} s",
                str(m.renewals),
                str(_held_by(view, m)),
                "drains" if m.drains else "",
            )
            for m in view.members
        ],
    )
    write("")
    consumers = sorted(lags)
    table(
        ("slice", "holder", "since", "epoch", "before", "why", *(f"lag of {consumer}" for consumer in consumers)),
        [
            (
                str(s.index),
                _holder(view, s),
                moment(s.since),
                str(s.epoch),
                s.before or "-",
                s.why or "-",
                *(_lag(lags[consumer], s.index) for consumer in consumers),
            )
            for s in view.slices
        ],
    )


def _holder(view: GroupView, key_slice: GroupSlice) -> str:
    holder = view.holder(key_slice.index)
    if holder is not None:
        return holder.owner
    return f"free ({key_slice.owner} is gone)" if key_slice.owner else "free"


def _lag(ages: Mapping[int, float | None], index: int) -> str:
    if index not in ages:
        return "-"
    age = ages[index]
    return "oldest" if age is None else f"{age:.1f} s"
