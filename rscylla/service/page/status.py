"""The document that ``/status`` answers, and ``Watch``, which keeps its history. docs/page.md describes it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import attrs

from ..._letters import DeadLetter
from ..._timeuuid import format_time, us_of
from ...clock import Clock, Stop
from .. import health
from ..health import Facts, GroupFacts, LaneFacts, Limits
from ..http import Answer
from ..letter_counts import LetterCounts
from ..readiness import ready
from .history import EVERY_S, History

__all__ = ["VERSION", "Watch", "status"]

VERSION = 1
"""Of the document. Members may be added to it; those that are there keep their meaning."""

ID = 12
"""Characters of a member's token that tell it from the others of its group."""

FRESH_S = 1.0
"""A document is handed out again for this long, so that many readers cost what one costs."""


def status(
    facts: Facts,
    limits: Limits,
    history: History,
    breakers: Mapping[str, str],
    letters: LetterCounts | None,
    *,
    now_us: int,
    show_values: bool,
) -> dict[str, Any]:
    """Return the document, for JSON. Without *show_values*, it holds no row values."""
    times, charts = history.charts()
    return {
        "version": VERSION,
        "time": format_time(now_us),
        "service": {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "state": "stopping" if facts.stopping else "running" if facts.supervised else "ended",
            "failure": facts.failure,
        },
        "checks": {
            "healthz": _checks(health.alive(facts, limits)),
            "readyz": _checks(ready(facts, limits)),
        },
        "consumers": _consumers(facts.lanes, history.rates()),
        "lanes": [_lane(lane) for lane in facts.lanes],
        "history": {"every_s": EVERY_S, "times": [round(us / 1e6, 1) for us in times], "consumers": charts},
        "generations": [
            {
                "consumer": one.consumer,
                "from": format_time(one.before_us),
                "to": format_time(one.to_us),
                "time": format_time(one.at_us),
                "lanes": one.lanes,
                "last_time": format_time(one.last_us),
            }
            for one in history.switches()
        ],
        "dead_letters": None if letters is None else _letters(letters, show_values=show_values),
        "breakers": [{"name": name, "state": state} for name, state in sorted(breakers.items())],
        "lease": None if facts.lease is None else {"name": facts.lease, "held": facts.held, "epoch": facts.epoch},
        "group": None if facts.group is None else _group(facts.group),
        "notes": [{"time": format_time(one.at_us), "about": one.about, "what": one.what} for one in history.notes()],
    }


def _checks(checks: Iterable[health.Check]) -> dict[str, Any]:
    """Return the result, and only those that failed: there are two for each lane."""
    failed = [{"check": one.check, "why": one.why} for one in checks if not one.ok]
    return {"status": "failed" if failed else "ok", "failed": failed}


def _lane(lane: LaneFacts) -> dict[str, Any]:
    (index, count), is_sliced = lane.key_slice, lane.key_slice[1] > 1
    body = {name: round(value, 3) if isinstance(value, float) else value for name, value in attrs.asdict(lane).items()}
    del body["consumer"], body["generation_us"], body["part_of"], body["key_slice"]
    lag_s = body.pop("watermark_lag_s")
    return {
        "lane": lane.consumer,
        "consumer": lane.part_of,
        "slice": index if is_sliced else None,
        "slices": count if is_sliced else None,
        "lag_s": lag_s,
        **body,
        "generation": None if lane.generation_us is None else format_time(lane.generation_us),
    }


def _consumers(lanes: Iterable[LaneFacts], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return each consumer, all of its slices in this process taken together."""
    by_consumer: dict[str, list[LaneFacts]] = {}
    for lane in lanes:
        by_consumer.setdefault(lane.part_of, []).append(lane)
    return [_consumer(name, mine, rates.get(name, 0.0)) for name, mine in by_consumer.items()]


def _consumer(name: str, lanes: list[LaneFacts], events_s: float) -> dict[str, Any]:
    lags = [lane.watermark_lag_s for lane in lanes if lane.watermark_lag_s is not None]
    generations = [lane.generation_us for lane in lanes if lane.generation_us is not None]
    dead = [lane.dead_letters for lane in lanes if lane.dead_letters is not None]
    return {
        "consumer": name,
        "source": lanes[0].source,
        "lanes": len(lanes),
        "states": dict(Counter(lane.state for lane in lanes)),
        "lag_s": round(max(lags), 3) if lags else None,
        "events": sum(lane.events for lane in lanes),
        "events_s": round(events_s, 3),
        "restarts": sum(lane.restarts for lane in lanes),
        "dead_letters": max(dead, default=None),
        "generation": format_time(max(generations)) if generations else None,
    }


def _group(group: GroupFacts) -> dict[str, Any]:
    """Return the group as this process last saw it. A member's ``id`` is the start of its token, and proves nothing."""
    view = group.view
    held: dict[str, list[int]] = {}
    for one in view.slices if view is not None else ():
        held.setdefault(one.holder, []).append(one.index)
    members = [
        {
            "id": member.token[:ID],
            "member": member.owner,
            "here": member.token == group.token,
            "since": _time(member.since),
            "expires_in_s": round(member.expires_in.total_seconds(), 3),
            "drains": member.drains,
            "slices": held.get(member.token, []),
        }
        for member in (view.members if view is not None else ())
    ]
    present = {member.token for member in view.members} if view is not None else set()
    return {
        "name": group.name,
        "member": group.owner,
        "joined": bool(group.token),
        "since": _time(group.since),
        "held": sorted(group.held),
        "view_age_s": None if group.view_age_s is None else round(group.view_age_s, 3),
        "next_count": 0 if view is None else view.next_count,
        "renewals_failed": group.renewals_failed,
        "moves": dict(group.moves),
        "members": members,
        "slices": [
            {
                "slice": one.index,
                "holder": one.holder[:ID] if one.holder in present else None,
                "owner": one.owner,
                "since": _time(one.since),
                "before": one.before,
                "why": one.why,
                "epoch": one.epoch,
            }
            for one in (view.slices if view is not None else ())
        ],
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(us_of(moment))


def _letters(letters: LetterCounts, *, show_values: bool) -> dict[str, Any]:
    counts = letters.shown_counts
    return {
        "counts": None if counts is None else dict(sorted(counts.items())),
        "newest": [_letter(letter, show_values=show_values) for letter in letters.newest],
        "listed_all": letters.listed_all,
        "show_values": show_values,
    }


def _letter(letter: DeadLetter, *, show_values: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "consumer": letter.consumer,
        "event_id": letter.event.id,
        "event_time": format_time(letter.event.timestamp_us),
        "error": letter.error,
        "attempts": letter.attempts,
        "failed_at": format_time(us_of(letter.failed_at)),
    }
    if show_values:
        body |= {"key": letter.event.foreign_id, "traceback": letter.traceback}
    return body


class Watch:
    """Samples a service every few seconds in a thread of its own, and answers ``/status``. Sends no queries.

    Args:
        facts, breakers: what is sampled: the facts of the service, and the states of its circuit breakers by name.
        letters: what is known of dead letters; None if they are not counted.
        show_values: whether ``/status`` may hold row values.
    """

    def __init__(
        self,
        facts: Callable[[], Facts],
        breakers: Callable[[], Mapping[str, str]],
        limits: Limits,
        letters: LetterCounts | None,
        clock: Clock,
        *,
        show_values: bool,
    ) -> None:
        self._facts = facts
        self._breakers = breakers
        self._limits = limits
        self._letters = letters
        self._clock = clock
        self._show_values = show_values
        self._history = History()
        self._stop = Stop()
        self._lock = threading.Lock()
        self._kept: tuple[float, bytes] | None = None

    def start(self) -> None:
        """Begin to sample."""
        threading.Thread(target=self._work, name="rscylla-history", daemon=True).start()

    def stop(self) -> None:
        """Take no further sample. ``answer`` goes on."""
        self._stop.set()

    def answer(self, headers: Mapping[str, str]) -> Answer:
        """Return the answer of ``/status``, at most ``FRESH_S`` old."""
        with self._lock:
            now_s = self._clock.monotonic()
            if self._kept is None or not 0 <= now_s - self._kept[0] < FRESH_S:
                body = json.dumps(self._document(), separators=(",", ":")).encode()
                self._kept = now_s, body
            return Answer(200, "application/json", self._kept[1])

    def _document(self) -> dict[str, Any]:
        return status(
            self._facts(),
            self._limits,
            self._history,
            self._breakers(),
            self._letters,
            now_us=self._clock.now_us(),
            show_values=self._show_values,
        )

    def _work(self) -> None:
        while True:
            self._history.sample(
                self._facts(), self._breakers(), now_us=self._clock.now_us(), monotonic_s=self._clock.monotonic()
            )
            if self._clock.wait(self._stop, EVERY_S):
                return
