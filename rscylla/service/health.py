"""The health of a service: facts, and the checks of them for ``/healthz``; those for ``/readyz`` are in ``readiness``.

``/healthz`` fails only if a restart of the process helps: nothing supervises the lanes, or a consumer hangs in an
event, and a thread cannot be stopped from outside. A cluster that does not answer, a lane that waits for its restart,
and an open circuit breaker fail only ``/readyz``, because a new process would be in the same situation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import attrs

from ..abc import GroupView

__all__ = ["Check", "Facts", "GroupFacts", "LaneFacts", "Limits", "alive", "report"]


@attrs.frozen
class Limits:
    """How long something may last, in seconds, before a check fails."""

    stuck_after_s: float
    poll_timeout_s: float


@attrs.frozen
class LaneFacts:
    """The current state of a lane. Unknown values are None.

    ``busy_s``: how long its consumer has worked on ``event_id``. ``pause``: why it waits on purpose. ``failing``: how
    often in a row its event has failed. ``dead_letters``: those of its consumer, whose slices share them. ``why``: why
    the service gave up on it or restarts it. ``events``: how many its consumer has handled in this process.
    ``generation_us``: start of the generation of CDC streams that it reads. ``last_error``: why its last run failed,
    without row values. ``unproven``: a run has failed, or its event, and the cursor has not moved since. ``open_s``:
    for how long its stream has been open. ``still_s``: for how long it has neither read nor finished anything.
    ``unsaved_s``: how long its cursor is overdue to be written. ``cdc_enabled``: whether its table logs changes.
    ``part_of``: the name of the lane without its slice, which is ``key_slice``; lanes with the same one are shown
    together.
    """

    consumer: str
    source: str
    state: str
    restarts: int = 0
    watermark_lag_s: float | None = None
    last_event_age_s: float | None = None
    poll_age_s: float | None = None
    busy_s: float = 0.0
    pause: str = ""
    failing: int = 0
    event_id: str = ""
    dead_letters: int | None = None
    why: str = ""
    events: int = 0
    generation_us: int | None = None
    last_error: str = ""
    unproven: bool = False
    open_s: float = 0.0
    still_s: float = 0.0
    unsaved_s: float = 0.0
    cdc_enabled: bool | None = None
    part_of: str = attrs.field(default=attrs.Factory(lambda self: self.consumer, takes_self=True))
    key_slice: tuple[int, int] = (0, 1)


@attrs.frozen
class GroupFacts:
    """The current state of a member of a group.

    ``owner`` is its name, and ``token`` what ``view`` knows it by, "" while it is no member. ``held``: the slices that
    it may work on now. ``since``: when it joined. ``view``: the group at its last look, ``view_age_s`` ago. ``moves``:
    how many slices came or went, by reason. ``why`` it is no member, "" while it is one. ``readers``: the slices
    that have lanes here, by what the lanes read. ``absent``: tokens of members that do not renew.
    """

    name: str
    owner: str
    token: str = ""
    held: tuple[int, ...] = ()
    since: datetime | None = None
    view: GroupView | None = None
    view_age_s: float | None = None
    moves: Mapping[str, int] = attrs.field(factory=dict)
    renewals_failed: int = 0
    why: str = ""
    readers: Mapping[str, frozenset[int]] = attrs.field(factory=dict)
    absent: frozenset[str] = frozenset()


@attrs.frozen
class Facts:
    """The current state of a service. Without a lease, ``lease`` and ``held`` are None. ``failure``: why it ends.

    ``lease_trouble``: why the lease may be held by nobody, "" if somebody has it. ``unread``: what should be read and
    has no lane, with the reason. ``supervisor_age_s``: when the supervisor looked last.
    """

    supervised: bool
    stopping: bool
    lanes: tuple[LaneFacts, ...]
    lease: str | None = None
    held: bool | None = None
    epoch: int = 0
    failure: str = ""
    group: GroupFacts | None = None
    lease_trouble: str = ""
    unread: Mapping[str, str] = attrs.field(factory=dict)
    supervisor_age_s: float = 0.0


@attrs.frozen
class Check:
    """The result of one check. ``why`` says why it failed; "" if it passed."""

    check: str
    why: str = ""

    @property
    def ok(self) -> bool:
        return not self.why


def alive(facts: Facts, limits: Limits) -> tuple[Check, ...]:
    """Return the checks that fail if only a restart of the process helps."""
    return tuple(_alive(facts, limits))


def report(checks: Iterable[Check]) -> dict[str, Any]:
    """Return the body of an answer, for JSON: the checks, with the reasons of those that failed."""
    shown = tuple(checks)
    return {
        "status": "ok" if all(one.ok for one in shown) else "failed",
        "checks": [{"check": one.check, "ok": one.ok} | ({"why": one.why} if one.why else {}) for one in shown],
    }


def _alive(facts: Facts, limits: Limits) -> Iterator[Check]:
    if facts.failure:
        yield Check("supervisor", f"the service ends: {facts.failure}")
    elif not facts.supervised:
        yield Check("supervisor", "no supervisor runs: the service was not started, or has ended")
    elif facts.supervisor_age_s > limits.stuck_after_s:
        yield Check("supervisor", f"has not looked for {facts.supervisor_age_s:.0f} s: a function of the user hangs")
    else:
        yield Check("supervisor")
    for lane in facts.lanes:
        why = ""
        if lane.busy_s > limits.stuck_after_s:
            why = f"has been working on event {lane.event_id} for {lane.busy_s:.0f} s"
        yield Check(f'consumer of lane "{lane.consumer}"', why)
