"""``History``: the last minutes of a service, sampled from its facts, so that a page has charts as soon as it opens."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from ..health import Facts, LaneFacts

__all__ = ["EVERY_S", "POINTS", "History", "Noted", "Switch"]

EVERY_S = 5.0
"""Seconds between two samples."""

POINTS = 180
"""How many samples are kept: a quarter of an hour."""

NOTES = 100
"""How many notes, and how many generation switches, are kept."""


@attrs.frozen
class Noted:
    """Something that happened up to ``EVERY_S`` before ``at_us``. ``about``: which consumer, breaker or lease."""

    at_us: int
    about: str
    what: str


@attrs.define
class Switch:
    """A consumer that went on from the generation ``before_us`` to ``to_us``, seen first ``at_us``.

    ``lanes`` of them have, the last one ``last_us``.
    """

    at_us: int
    consumer: str
    before_us: int
    to_us: int
    lanes: int
    last_us: int


@attrs.frozen
class _Sample:
    at_us: int
    lag_s: Mapping[str, float | None]
    events_s: Mapping[str, float]


class History:
    """The lag and the events a second of each consumer, its generation switches, and notes. Bounded, thread-safe.

    A consumer is all of its slices in this process: its lag is the highest of theirs, its events are their sum.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[_Sample] = deque(maxlen=POINTS)
        self._switches: deque[Switch] = deque(maxlen=NOTES)
        self._notes: deque[Noted] = deque(maxlen=NOTES)
        self._lanes: dict[str, LaneFacts] = {}
        self._states: dict[tuple[str, str], str] = {}  # of the lease and of breakers
        self._sampled_s: float | None = None

    def sample(self, facts: Facts, breakers: Mapping[str, str], *, now_us: int, monotonic_s: float) -> None:
        """Add the current *facts*, and the states of *breakers* by name."""
        with self._lock:
            took_s = None if self._sampled_s is None else monotonic_s - self._sampled_s
            lags: dict[str, float | None] = {}
            events: Counter[str] = Counter()
            for lane in facts.lanes:
                consumer = lane.part_of
                lag_s = lags.setdefault(consumer, None)
                if lane.watermark_lag_s is not None:
                    lags[consumer] = lane.watermark_lag_s if lag_s is None else max(lag_s, lane.watermark_lag_s)
                known = self._lanes.get(lane.consumer)
                # A lane that came back may count from zero again.
                before = 0 if known is None or known.events > lane.events else known.events
                # What a lane had counted when it was first seen may be old.
                events[consumer] += 0 if known is None else lane.events - before
                self._switched(consumer, known, lane, now_us)
            rates = {name: events[name] / took_s if took_s else 0.0 for name in lags}
            self._samples.append(_Sample(now_us, lags, rates))
            self._notes.extend(Noted(now_us, about, what) for about, what in self._news(facts, breakers))
            self._lanes = {lane.consumer: lane for lane in facts.lanes}
            self._sampled_s = monotonic_s

    def _switched(self, consumer: str, known: LaneFacts | None, lane: LaneFacts, now_us: int) -> None:
        if known is None or known.generation_us is None or lane.generation_us in (None, known.generation_us):
            return
        assert lane.generation_us is not None
        found = next((s for s in self._switches if (s.consumer, s.to_us) == (consumer, lane.generation_us)), None)
        if found is None:
            self._switches.append(Switch(now_us, consumer, known.generation_us, lane.generation_us, 1, now_us))
        else:
            found.lanes += 1
            found.last_us = now_us

    def _news(self, facts: Facts, breakers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield what has changed since the last sample, one line for all lanes of a consumer."""
        news: dict[tuple[str, str], list[str]] = {}
        for lane in facts.lanes:
            known, consumer = self._lanes.get(lane.consumer), lane.part_of
            if known is not None and lane.restarts > known.restarts:
                news.setdefault((consumer, "restarted"), []).append(lane.last_error)
            if lane.state in ("parked", "failed", "done") and (known is None or known.state != lane.state):
                news.setdefault((consumer, lane.state), []).append(lane.why)
        for (consumer, what), whys in news.items():
            why = next(filter(None, whys), "")
            many = f", {len(whys)} lanes" if len(whys) > 1 else ""
            yield consumer, f"{what}{many}{': ' if why else ''}{why}"
        states = {("circuit breaker", name): state for name, state in breakers.items()}
        if facts.lease is not None:
            states["lease", facts.lease] = f"held, epoch {facts.epoch}" if facts.held else "not held"
        for (kind, name), state in states.items():
            # A breaker is closed, and a lease not held, before anything happens.
            if state != self._states.get((kind, name), "closed" if kind == "circuit breaker" else "not held"):
                yield f"{kind} {name}", state
        self._states = states

    def charts(self) -> tuple[list[int], dict[str, dict[str, list[Any]]]]:
        """Return the times of the samples, oldest first, and ``lag_s`` and ``events_s`` at these times by consumer."""
        with self._lock:
            samples = list(self._samples)
        names = sorted({name for sample in samples for name in sample.lag_s})
        return [sample.at_us for sample in samples], {
            name: {
                "lag_s": [_rounded(sample.lag_s.get(name)) for sample in samples],
                "events_s": [_rounded(sample.events_s.get(name)) for sample in samples],
            }
            for name in names
        }

    def rates(self) -> Mapping[str, float]:
        """Return the events a second at the last sample, by consumer."""
        with self._lock:
            return self._samples[-1].events_s if self._samples else {}

    def switches(self) -> list[Switch]:
        """Return the generation switches, newest first."""
        with self._lock:
            return [attrs.evolve(one) for one in reversed(self._switches)]

    def notes(self) -> Iterable[Noted]:
        """Return the notes, newest first."""
        with self._lock:
            return list(reversed(self._notes))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
