"""The health of a service: facts, and the checks of them that ``/healthz`` and ``/readyz`` show. Pure functions.

``/healthz`` fails only if a restart of the process helps: nothing supervises the lanes, or a consumer hangs in an
event, and a thread cannot be stopped from outside. A cluster that does not answer, a lane that waits for its restart,
and an open circuit breaker fail only ``/readyz``, because a new process would be in the same situation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import attrs

from ..._groups import GroupView

__all__ = ["Check", "Facts", "GroupFacts", "LaneFacts", "Limits", "alive", "ready", "report", "rounded"]


@attrs.frozen
class Limits:
    """How long something may last, in seconds, before a check fails."""

    stuck_after_s: float
    poll_timeout_s: float


@attrs.frozen
class LaneFacts:
    """The current state of a lane. Unknown values are None.

    ``busy_s``: how long its consumer has worked on ``event_id``. ``pause``: why it waits on purpose. ``failing``: how
    often in a row its event has failed. ``why``: why the service gave up on it or restarts it. ``events``: how many its
    consumer has handled in this process. ``generation_us``: start of the generation of CDC streams that it reads.
    ``last_error``: why its last run failed, without row values.
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


@attrs.frozen
class GroupFacts:
    """The current state of a member of a group.

    ``owner`` is its name, and ``token`` what ``view`` knows it by, "" while it is no member. ``held``: the slices that
    it may work on now. ``since``: when it joined. ``view``: the group at its last look, ``view_age_s`` ago. ``moves``:
    how many slices came or went, by reason. ``why`` it is no member, "" while it is one.
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


@attrs.frozen
class Facts:
    """The current state of a service. Without a lease, ``lease`` and ``held`` are None. ``failure``: why it ends."""

    supervised: bool
    stopping: bool
    lanes: tuple[LaneFacts, ...]
    lease: str | None = None
    held: bool | None = None
    epoch: int = 0
    failure: str = ""
    group: GroupFacts | None = None


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


def ready(facts: Facts, limits: Limits) -> tuple[Check, ...]:
    """Return the checks that fail while some lane neither reads nor stands by."""
    return tuple(_ready(facts, limits))


def report(facts: Facts, checks: Iterable[Check]) -> dict[str, Any]:
    """Return the body of an answer, for JSON: the checks and the facts behind them."""
    shown = tuple(checks)
    body: dict[str, Any] = {
        "status": "ok" if all(one.ok for one in shown) else "failed",
        "checks": [{"check": one.check, "ok": one.ok} | ({"why": one.why} if one.why else {}) for one in shown],
        "lanes": [rounded(attrs.asdict(lane)) for lane in facts.lanes],
    }
    if facts.lease is not None:
        body["lease"] = {"name": facts.lease, "held": facts.held, "epoch": facts.epoch}
    if facts.group is not None:
        group = facts.group
        body["group"] = {
            "name": group.name,
            "member": group.owner,
            "joined": bool(group.token),
            "members": 0 if group.view is None else len(group.view.members),
            "slices": 0 if group.view is None else group.view.count,
            "held": len(group.held),
        }
    return body


def rounded(lane: dict[str, Any]) -> dict[str, Any]:
    """Return *lane* with seconds to three decimals."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in lane.items()}


def _alive(facts: Facts, limits: Limits) -> Iterator[Check]:
    if facts.failure:
        yield Check("supervisor", f"the service ends: {facts.failure}")
    elif not facts.supervised:
        yield Check("supervisor", "no supervisor runs: the service was not started, or has ended")
    else:
        yield Check("supervisor")
    for lane in facts.lanes:
        why = ""
        if lane.busy_s > limits.stuck_after_s:
            why = f"has been working on event {lane.event_id} for {lane.busy_s:.0f} s"
        yield Check(f'consumer of lane "{lane.consumer}"', why)


def _ready(facts: Facts, limits: Limits) -> Iterator[Check]:
    if facts.stopping or not facts.supervised:
        yield Check("service", "it is stopping" if facts.stopping else "it does not run")
    else:
        yield Check("service")
    if facts.group is not None:
        group = facts.group
        why = "" if group.token else f"is not joined{': ' if group.why else ''}{group.why}"
        yield Check(f'group "{group.name}"', why)
    for lane in facts.lanes:
        yield Check(f'lane "{lane.consumer}"', _not_ready(lane, limits))


def _not_ready(lane: LaneFacts, limits: Limits) -> str:
    """Return why *lane* is not ready, "" if it is."""
    if lane.state in ("standby", "done"):
        return ""
    if lane.state != "streaming":
        return f"is {lane.state}{': ' if lane.why else ''}{lane.why}"
    if lane.pause:
        return f"waits: {lane.pause}"
    if lane.poll_age_s is not None and lane.poll_age_s > limits.poll_timeout_s:
        return f"has had no answer from {lane.source or 'its source'} for {lane.poll_age_s:.0f} s"
    return ""
