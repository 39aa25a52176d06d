"""Several slices of the simulated table in one process, whose threads take turns by the dice of the seed.

They are opened from one stream, so they are read together: they meet, wait for each other, and leave slow ones behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

from simulated_log import Watched
from turns import Turns

from rscylla.cdc.read import feed
from rscylla.cdc.read import shared as sharing
from rscylla.cdc.read.reader import Reader

__all__ = ["SHARING_KINDS", "Process"]

SHARING_KINDS = ("shared", "process_kills", "met", "went_alone", "slow")
"""What has to happen at least once over many seeds."""


class Process:
    """A process with consumers of the slices *indexes*."""

    def __init__(self, simulation: Any, indexes: Iterable[int], *, to_end: bool = False) -> None:
        self._simulation = simulation
        self._dice: random.Random = simulation.dice
        self._indexes = list(indexes)
        self._to_end = to_end
        self._told: list[int] = []
        self._left = 0 if to_end or self._dice.random() < 0.7 else self._dice.randrange(1, 100)
        self._pace: dict[str, float] = {}
        self.turns = Turns(simulation.world, random.Random(self._dice.getrandbits(32)))

    def run(self) -> list[int]:
        """Run all consumers to their ends; return the slices of those that were told that changes are lost.

        Raises: AssertionError, if a thread waits for ever, or a reader goes on after its consumers.
        """
        simulation, turns, dice = self._simulation, self.turns, self._dice
        simulation.counts["shared"] += 1
        with ExitStack() as living:
            primitives = turns.primitives()
            for module in (sharing, feed):
                known = {name: made for name, made in primitives.items() if hasattr(module, name)}
                living.enter_context(patch.multiple(module, **known))
            living.enter_context(patch.object(Reader, "take_over", self._counted("met", Reader.take_over)))
            living.enter_context(patch.object(Reader, "alone", self._counted("went_alone", Reader.alone)))
            living.enter_context(patch.object(simulation.clock, "sleep", lambda stop, s: turns.wait(stop.is_set, s)))
            if dice.random() < 0.5:
                simulation.session.add_request_init_listener(self._before_request)
                living.callback(simulation.session.remove_request_init_listener, self._before_request)
            simulation.process = self
            simulation.is_reading = not self._to_end
            living.callback(self._end)
            names = [simulation.names()[index] for index in self._indexes]
            policy = "oldest" if "oldest" in [simulation.life.policy(name) for name in names] else "raise"
            prefetch = dice.choice([1, 1, 2, 4])
            whole = simulation.new_stream(to_end=self._to_end, prefetch=prefetch, on_expired=policy)
            end = simulation.end(self._to_end)
            threads = []
            for index, name in zip(self._indexes, names, strict=True):
                self._pace[name] = 0.0 if self._to_end else dice.choice([0, 0, 0, 0.05, 0.5, 3])
                stream = Watched(whole.sliced(index, simulation.slices), simulation.life, name, policy)
                threads.append(turns.start(partial(self._consume, index, stream, end), name))
            turns.finish(threads)
            if not turns.is_killed:
                shared = whole._parts
                assert turns.wait(lambda: not shared.running, 60.0), f"readers go on for nobody: {shared.running}"
        simulation.end_reading()
        return self._told

    def _end(self) -> None:
        self.turns.kill()
        self.turns.finish([])
        self._simulation.process = None
        self._simulation.is_reading = False

    def _counted(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self._simulation.counts[kind] += 1
            return method(*args)

        return counted

    def _consume(self, index: int, stream: Watched, end: Any) -> None:
        """Run a consumer, and perhaps again when it has ended, as a service does."""
        simulation, turns, dice = self._simulation, self.turns, self._dice
        for _ in range(1 if self._to_end else dice.choice([1, 2, 3, 4])):
            if not self._to_end and dice.random() < 0.3:
                turns.sleep(dice.choice([0.1, 2.0, 30.0]) * dice.random())
            if simulation.run_consumer(index, stream, end, dice.randrange(1, 60), to_end=self._to_end):
                if self._to_end or dice.random() < 0.5:
                    self._told.append(index)
                    return
                simulation.life.reset(simulation.names()[index], "")

    def delivers(self, name: str) -> None:
        """A consumer has got an event: it may be slow, and the process may be killed."""
        self.turns.check()
        self._left -= 1
        if self._left == 0:
            self._simulation.counts["process_kills"] += 1
            self.turns.kill()
        if self.turns.chance(0.3):
            self._simulation.counts["slow"] += self._pace[name] > 0
            self.turns.sleep(self._pace[name] * self._dice.random())

    def _before_request(self, request: Any) -> None:
        """Let others have a turn between two pages of a window."""
        prepared = getattr(request.query, "prepared_statement", None)
        if prepared is not None and "_scylla_cdc_log" in prepared.query_string and self.turns.chance(0.3):
            self.turns.pause()
