"""What operators do with groups: look, ask a member to hand over its slices, and change the number of slices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial

from rscylla._tokens import FAST, SNAPSHOT, slice_named
from rscylla.abc import CursorStore, GroupMember, GroupView
from rscylla.clock import Clock, Stop, SystemClock
from rscylla.errors import ConfigError, ConnectionFailed, QueryTimeout, RscyllaError

from ..checks import admin_of
from ..cursors.reslice import reslice_started
from .rows import check_count, check_group
from .table import ScyllaGroupTable

__all__ = ["abort_reslice", "drain_member", "find_group", "list_groups", "reslice_group"]

_log = logging.getLogger("rscylla.cursorstore")

_POLL_S = 0.5

_LEAST_OF_TOKEN = 8
"""Characters that the beginning of a token must have, so that it is not taken for a name."""


def find_group(table: ScyllaGroupTable, name: str) -> GroupView | None:
    """Return the group *name* of *table*; None if there is none.

    Raises:
        ConfigError: *name* cannot be the name of a group.
        TableNotFound, ConfigError: the table does not exist, or is a different one.
        QueryFailed, QueryTimeout, ConnectionFailed: it cannot be read.
    """
    check_group(name)
    return table.read(name)


def list_groups(table: ScyllaGroupTable) -> list[GroupView]:
    """Return all groups of *table*, also those without members, sorted by name. Raises what ``find_group`` does."""
    return [view for view in map(table.read, table.names()) if view is not None]


def drain_member(table: ScyllaGroupTable, name: str, member: str, *, undo: bool = False) -> GroupMember:
    """Ask a member of the group to hand over its slices one by one and take no others; return the member.

    *member* is its name, if only one member has it, or its token, or eight or more characters of the beginning of that.
    With *undo*, it takes part again. The request ends with the membership: a process that joins again takes part again.
    It also ends after seven days.

    Raises:
        ConfigError: there is no such group or member, or there are several.
        SourceError: as for ``find_group``; asking again is safe.
    """
    found = _member(_view(table, name), member)
    try:
        done = table.drain(name, found.token, not undo)
    except (QueryTimeout, ConnectionFailed):
        seen = _view(table, name, serial=True).member(found.token)
        if seen is not None and seen.drains is undo:
            raise
        done = seen is not None
    if not done:
        raise ConfigError(f"member {found.owner!r} has just left group {name!r}")
    return found


def reslice_group(
    table: ScyllaGroupTable,
    name: str,
    count: int,
    *stores: CursorStore,
    consumers: Collection[str] | None = None,
    reason: str = "",
    timeout: timedelta = timedelta(minutes=5),
    watch: Callable[[GroupView], None] | None = None,
    stop: Stop | None = None,
    clock: Clock | None = None,
) -> dict[str, str]:
    """Change the number of slices of a group while its members run; return the new cursors by name.

    From the start of the call, nobody takes slices, and the members let go of theirs. Once all are free, the cursors of
    the new slices are set, each to the lowest cursor of the old slices that had its keys, and the group gets its new
    number. The members then take the new slices. No change is lost; some are delivered again. If the call fails, or
    *stop* is set, the group goes on with the slices that it had. If its process dies, the group waits: call it again,
    or ``abort_reslice``.

    Args:
        count: The new number of slices.
        stores: The stores of the cursors of the group's consumers; they must be able to reset cursors.
        consumers: The consumers of the group; default: those whose cursors were saved under its memberships. A store
            that does not know that, such as ``MemoryCursorStore``, requires them.
        reason: Saved with each cursor.
        timeout: How long to wait for the members to let go.
        watch: Called with the group each time that it is looked at.

    Raises:
        ConfigError: there is no such group, or *count* is invalid, or another change is in progress or has ended this
            one; or a member has a consumer whose store keeps the number of slices.
        Stopped: *stop* was set.
        QueryTimeout: members did not let go in time. SourceError: a database did not answer.
    """
    check_count(count)
    clock, stop = clock or SystemClock(), stop or Stop()
    view = _view(table, name)
    if view.count == count and not view.next_count:
        return {}
    if view.next_count not in (0, count):
        raise ConfigError(
            f"group {name!r} is changing from {view.count} to {view.next_count} slices; finish that change first, "
            "with the same number, or abort it"
        )
    if view.count == count:
        raise ConfigError(
            f"group {name!r} has {count} slices already, and is changing to {view.next_count}; abort that"
        )
    if staying := next((member for member in view.members if member.slices_stay), None):
        raise ConfigError(
            f"group {name!r} keeps {view.count} slices: {staying.owner} has cursors in a store that keeps their "
            "number, as that of a Kafka connector in exactly-once mode does"
        )
    old = view.count
    try:
        _announce(table, view, count)
        _await_free(table, name, old, count, clock, stop, timeout, watch)
        moved: dict[str, str] = {}
        for store in stores:
            for consumer in _consumers(store, name, old) if consumers is None else sorted(consumers):
                stop.check()
                moved |= reslice_started(store, consumer, old, count, reason=reason)
        _change(table, name, count, partial(table.recount, name, old, count), lambda seen: seen.count == count)
    except BaseException as error:
        _undo(table, name, old, count, error)
        raise
    return moved


def abort_reslice(table: ScyllaGroupTable, name: str) -> GroupView:
    """End a change of the number of slices that was left unfinished; return the group, which keeps its slices.

    Raises:
        ConfigError: there is no such group.
        SourceError: as for ``find_group``; call it again.
    """
    view = _view(table, name)
    if view.next_count:
        table.plan(name, view.count, view.next_count, 0)
        view = _view(table, name, serial=True)
    return view


def _view(table: ScyllaGroupTable, name: str, *, serial: bool = False) -> GroupView:
    check_group(name)
    view = table.read(name, serial=serial)
    if view is None:
        raise ConfigError(f"there is no group {name!r}; run `rscylla group list` to see all groups")
    return view


def _member(view: GroupView, given: str) -> GroupMember:
    """Return the member that *given* means."""
    if exact := view.member(given):
        return exact
    named = [m for m in view.members if m.owner == given]
    found = named or [m for m in view.members if len(given) >= _LEAST_OF_TOKEN and m.token.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        tokens = ", ".join(m.token for m in found)
        raise ConfigError(f"group {view.name!r} has {len(found)} members {given!r}; give the token of one: {tokens}")
    names = ", ".join(sorted(m.owner for m in view.members))
    raise ConfigError(f"group {view.name!r} has no member {given!r}; its members: {names or 'none'}")


def _announce(table: ScyllaGroupTable, view: GroupView, count: int) -> None:
    """Set the next number of slices, from when on nobody takes one."""
    if view.next_count == count:
        return
    write = partial(table.plan, view.name, view.count, 0, count)
    _change(table, view.name, count, write, lambda seen: (seen.count, seen.next_count) == (view.count, count))


def _await_free(
    table: ScyllaGroupTable,
    name: str,
    old: int,
    count: int,
    clock: Clock,
    stop: Stop,
    timeout: timedelta,
    watch: Callable[[GroupView], None] | None,
) -> None:
    """Wait until no member holds a slice. None can be taken until the group has its new number of slices."""
    deadline = clock.monotonic() + timeout.total_seconds()
    while True:
        view = _view(table, name)
        if (view.count, view.next_count) != (old, count):
            raise _ended(name, count)
        if watch is not None:
            watch(view)
        holders = {holder.owner for s in view.slices if (holder := view.holder(s.index))}
        if not holders:
            return
        if clock.monotonic() >= deadline:
            raise QueryTimeout(
                f"members of group {name!r} still hold slices after {timeout.total_seconds():g} s: "
                f"{', '.join(sorted(holders))}; see why their consumers do not end, or stop them, and try again"
            )
        clock.wait(stop, _POLL_S)
        stop.check()


def _consumers(store: CursorStore, name: str, count: int) -> list[str]:
    """Return the consumers in *store* that have cursors under slices of the group.

    Cursors of the present slices may not be under the group yet: those that an operator or the last change has set,
    until a member reads them. They are of the consumers whose other cursors are under slices of the group.
    """
    records = list(admin_of(store).list_cursors())
    members = (record.member_of(name, count) for record in records)
    found = {member[0] for member in members if member is not None}
    sliced = ((slice_named(record.consumer, {count}), record.consumer) for record in records if not record.lease)
    unread = {part.whole(of) for part, of in sliced if part is not None} - {None}
    found |= {of for of in unread if of and any(record.group_of(of) == name for record in records)}
    found |= {of for of in unread if of and of.removesuffix(SNAPSHOT) in found}  # requested, and read by nobody yet
    # The cursor of a fast lane is for people, and does not move; the only slice is named like its consumer.
    return sorted(found - {f"{consumer}{FAST}" for consumer in found})


def _change(
    table: ScyllaGroupTable, name: str, count: int, write: Callable[[], bool], is_done: Callable[[GroupView], bool]
) -> None:
    """Write a step of the change to *count* slices, and see that it is done, whatever the answer was."""
    failed: Exception | None = None
    try:
        write()
    except (QueryTimeout, ConnectionFailed) as e:
        failed = e
    if not is_done(_view(table, name, serial=True)):
        raise failed or _ended(name, count)


def _undo(table: ScyllaGroupTable, name: str, old: int, count: int, error: BaseException) -> None:
    """Let the members take their old slices again, unless the new ones are there already."""
    try:
        table.plan(name, old, count, 0)
    except RscyllaError as e:
        _log.warning("group %r: the change to %d slices may still be announced (%s); abort it", name, count, e)
        error.add_note(f"group {name!r} may wait for its new slices; run the command again, or with --abort")


def _ended(name: str, count: int) -> ConfigError:
    return ConfigError(f"the change of group {name!r} to {count} slices was ended by somebody else")
