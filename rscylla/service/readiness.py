"""Whether a service is ready: each thing that it should read is read by somebody, or the answer says what is not.

This is the one definition: ``/readyz``, the page, the gauge ``rscylla_service_ready``, and the log ask it. What of a
group nobody reads is told by ``GroupView.unread``, for commands, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping

from .._tokens import slices_text
from ..clock import Clock
from .health import Check, Facts, GroupFacts, LaneFacts, Limits

__all__ = ["Readiness", "ready"]

log = logging.getLogger("rscylla.service")

LOOK_EVERY_S = 5.0
"""What is not read is logged when two looks find it, and again every ``TELL_EVERY_S``."""

TELL_EVERY_S = 300.0

TOLD = 3
"""How many failed checks a line of the log has, at most."""


def ready(facts: Facts, limits: Limits) -> tuple[Check, ...]:
    """Return the checks that fail while something that should be read is not, or is not known to be."""
    return tuple(_checks(facts, limits))


class Readiness:
    """Tells whether a service is ready: as a gauge, and in the log. Thread-safe but for ``tell``.

    Args:
        facts: returns the state of the service. Sends no queries.
    """

    def __init__(self, facts: Callable[[], Facts], limits: Limits, clock: Clock) -> None:
        self._facts = facts
        self._limits = limits
        self._clock = clock
        self._look_at = clock.monotonic() + LOOK_EVERY_S
        self._found: Mapping[str, str] = {}  # why checks failed at the last look, by check
        self._told: Mapping[str, float] = {}  # when failed checks were logged

    def holds(self) -> bool:
        """Return whether the service is ready."""
        return all(check.ok for check in ready(self._facts(), self._limits))

    def tell(self) -> None:
        """Log what is not read, if it is time for that. Called again and again by one thread."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        last, self._found = self._found, {c.check: c.why for c in ready(self._facts(), self._limits) if not c.ok}
        due = [c for c in self._found if c in last and now >= self._told.get(c, -math.inf) + TELL_EVERY_S]
        if self._told and not self._found:
            log.info("everything is read again")
        self._told = {check: at for check, at in self._told.items() if check in self._found}
        if due:
            more = f"; and {len(due) - TOLD} more, which /readyz names" if len(due) > TOLD else ""
            log.warning("not ready: %s%s", "; ".join(f"{check}: {self._found[check]}" for check in due[:TOLD]), more)
            self._told = {**self._told, **dict.fromkeys(due, now)}


def _checks(facts: Facts, limits: Limits) -> Iterator[Check]:
    yield Check("service", _not_running(facts, limits))
    if facts.lease is not None:
        yield Check(f'lease "{facts.lease}"', facts.lease_trouble)
    if facts.group is not None:
        yield Check(f'group "{facts.group.name}"', "; ".join(_of_group(facts.group, limits)))
    for name, why in facts.unread.items():
        yield Check(name, why)
    for lane in facts.lanes:
        yield Check(f'lane "{lane.consumer}"', _of_lane(lane, limits, held=bool(facts.held)))


def _not_running(facts: Facts, limits: Limits) -> str:
    if facts.stopping or not facts.supervised:
        return "it is stopping" if facts.stopping else "it does not run"
    if facts.supervisor_age_s > limits.poll_timeout_s:
        return f"its supervisor has not looked for {facts.supervisor_age_s:.0f} s"
    return ""


def _of_group(group: GroupFacts, limits: Limits) -> Iterator[str]:
    """Yield what nobody reads of *group*, and why, as far as this process knows."""
    if not group.token:
        yield f"is not joined{': ' if group.why else ''}{group.why}"
    elif group.view is None:
        yield "has not been looked at yet"
    elif group.view_age_s is not None and group.view_age_s > limits.poll_timeout_s:
        yield f"has not been looked at for {group.view_age_s:.0f} s"
    else:
        yield from group.view.unread(group.absent)
        running = frozenset[int]().union(*group.readers.values())
        if idle := frozenset(group.held) - running:
            yield f"{slices_text(idle)}: held here, and no lane reads"
        for what, indexes in group.readers.items():
            if rest := running - indexes:
                yield f'{slices_text(rest)}: not read by consumer "{what}", which has lanes for other slices here'


def _of_lane(lane: LaneFacts, limits: Limits, *, held: bool) -> str:
    """Return why nobody reads what *lane* should, "" if it reads, is done, or another process does."""
    if lane.state == "done" or (lane.state == "standby" and not held):
        return ""
    if lane.state != "streaming":
        return f"is {lane.state}{': ' if lane.why else ''}{lane.why}"
    if lane.pause:
        return f"waits: {lane.pause}"
    if lane.poll_age_s is not None and lane.poll_age_s > limits.poll_timeout_s:
        return f"has had no answer from {lane.source or 'its source'} for {lane.poll_age_s:.0f} s"
    if lane.busy_s > limits.stuck_after_s:
        return f"has been working on event {lane.event_id} for {lane.busy_s:.0f} s"
    if lane.still_s > limits.stuck_after_s:
        return f"has neither read nor finished anything for {lane.still_s:.0f} s"
    if lane.unsaved_s > limits.poll_timeout_s:
        return f"has saved no cursor for {lane.unsaved_s:.0f} s"
    if lane.unproven and lane.open_s < limits.poll_timeout_s:
        why = lane.last_error or (f"event {lane.event_id}" if lane.event_id else "its event")
        return f"has failed, and its cursor has not moved since: {why}"
    if lane.cdc_enabled is False:
        what = f"CDC of {lane.source or 'its table'} is switched off"
        return f"gets no new changes: {what}; enable it, and repeat all of its CDC options"
    return ""
