"""A consumer that works beside its events knows its run, however it is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cursorstore import MemoryDeadLetters
from rscylla.errors import HeadReached, Stopped
from rscylla.options import StreamToHead
from rscylla.reflex import CircuitBreaker, Run, Spec, batch, best_effort, concurrent, dead_letter, run, traced
from rscylla.testing import FakeCursorStore, FakeStream, RecordingConsumer


class Aware(RecordingConsumer):
    """Keeps its runs, each with what had happened before it was told."""

    def __init__(self) -> None:
        super().__init__("aware")
        self.runs: list[tuple[Any, int]] = []

    def run_begins(self, run: Run) -> None:
        self.runs.append((run, self.resets))


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda consumer: consumer,
    "dead_letter": lambda consumer: dead_letter(consumer, MemoryDeadLetters()),
    "best_effort": best_effort,
    "breaker": lambda consumer: CircuitBreaker("b", outage=OSError, registry=CollectorRegistry()).guard(consumer),
    "traced": traced,
    "concurrent": lambda consumer: concurrent(dead_letter(consumer, MemoryDeadLetters()), workers=2),
    "fallback": lambda consumer: batch("aware", lambda events, run: None, fallback=consumer),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_each_run_is_told_before_the_reset_and_its_stop_ends_the_work_beside_it(wrap: Callable[[Any], Any]) -> None:
    aware = Aware()
    spec = Spec(FakeStream([]), FakeCursorStore(), wrap(aware), StreamToHead(), registry=CollectorRegistry())
    for _ in range(2):
        with pytest.raises(HeadReached):
            run(spec)
    assert [resets for _, resets in aware.runs] == [0, 1]
    first, second = (told for told, _ in aware.runs)
    assert first is not second
    with pytest.raises(Stopped):
        first.stop.check()
