"""What goes wrong in the simulation: one fault after the other, chosen by a seed, and counted when it strikes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rscylla.clock import Stop
from rscylla.embedded import EmbeddedScylla, Rule, Statements
from rscylla.testing import ManualClock

__all__ = ["ANSWERS", "CLUSTER", "Chaos", "ClientClock", "WorldClock"]

LOG = Statements(kind="select", table="Orders_scylla_cdc_log")
LATER_PAGES = Statements(kind="select", table="Orders_scylla_cdc_log", later_pages=True)

PLACES = {
    "log": LOG,
    "later page": LATER_PAGES,
    "log again": LOG,
    # Only what the source asks: the driver reads other columns of these tables for itself.
    "schema": Statements(keyspace="system_schema", matching="table_name, id, extensions|initial_tablets"),
    "generations": Statements(keyspace="system_distributed", matching="cdc_"),
    "stream sets": Statements(keyspace="system", matching="cdc_"),
    "clocks": Statements(keyspace="system", matching=r"toUnixTimestamp\(now"),
    "cursors": Statements(table="rscylla_cursors"),
    "prepare": Statements(kind="prepare", table="Orders_scylla_cdc_log"),
}

ANSWERS = ("unavailable", "read_timeout", "read_failure", "overloaded", "bootstrapping", "rate_limit", "server_error")
"""Errors that pass, by the name that `Faults.fail` knows."""

CLUSTER = (
    "unprepared",
    "cut_connection",
    "cut_within_answer",
    "short_page",
    "empty_page",
    "replayed_write",
    "held_write",
)
"""Other things that requests meet."""

MOST_SKEW_S = 20.0


class WorldClock(ManualClock):
    """The true time, which all nodes go by. ``before`` is called with the seconds each time before it moves."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[float], None] = lambda _: None

    def advance(self, span: timedelta | float) -> None:
        self.before(span.total_seconds() if isinstance(span, timedelta) else span)
        super().advance(span)


class ClientClock:
    """The clock of the machine that reads: off by ``skew_us``, which may change in either direction.

    ``before_wait`` and ``after_wait`` are called around each wait of the library's, which ``sleep`` does.
    """

    def __init__(self, world: WorldClock) -> None:
        self._world = world
        self.skew_us = 0
        self.before_wait: Callable[[], None] = lambda: None
        self.after_wait: Callable[[], None] = lambda: None
        self.sleep: Callable[[Stop, float], bool] = world.wait

    def now_us(self) -> int:
        return self._world.now_us() + self.skew_us

    def monotonic(self) -> float:
        return self._world.monotonic()

    def wait(self, stop: Stop, seconds: float) -> bool:
        self.before_wait()
        stopped = self.sleep(stop, seconds)
        self.after_wait()
        return stopped


class Chaos:
    """Breaks one cluster. ``with_connections``: connections may be cut too, and nodes stop.

    Everything that is broken mends itself after a few requests, or by ``mend``.
    """

    def __init__(
        self, scylla: EmbeddedScylla, clock: ClientClock, dice: random.Random, *, with_connections: bool
    ) -> None:
        self._faults = scylla.faults
        self._scylla = scylla
        self._clock = clock
        self._dice = dice
        self._with_connections = with_connections
        self._rules: list[tuple[str, Rule]] = []
        self._replays: list[Rule] = []
        self._holds: list[Rule] = []
        self.stopped: str | None = None
        self.counts = Counter[str]()

    def strike(self) -> None:
        """Let one more thing go wrong."""
        steps = [self._fail, self._cut_pages, self._skew_node, self._step_clock, self._replay, self._hold]
        weights = [6.0, 2, 0.5, 1, 1, 1]
        if self._with_connections:
            steps += [self._drop, self._stop_or_start]
            weights += [3, 2]
        self._dice.choices(steps, weights)[0]()

    def _chance(self) -> dict[str, Any]:
        """Return how many requests a rule meets, and how likely each."""
        dice = self._dice
        return {
            "times": dice.randrange(1, 5),
            "probability": dice.choice([1.0, 0.5, 0.2]),
            "seed": dice.getrandbits(32),
        }

    def _fail(self) -> None:
        where = self._dice.choice(list(PLACES))
        name: Any = self._dice.choice([*ANSWERS, "unprepared"])
        if where == "cursors":
            applied = self._dice.random() < 0.5
            name = self._dice.choice(["write_timeout", "unavailable"])
            rule = self._faults.fail(name, PLACES[where], applied=applied, **self._chance())
        elif name == "unprepared":
            rule = self._faults.fail(name, LOG, **self._chance())
        else:
            rule = self._faults.fail(name, PLACES[where], **self._chance())
        self._rules.append((name, rule))

    def _drop(self) -> None:
        within = self._dice.random() < 0.5
        on = self._dice.choice([LOG, LATER_PAGES])
        rule = self._faults.drop_connection(on, partway=within, **self._chance() | {"times": 1})
        self._rules.append(("cut_within_answer" if within else "cut_connection", rule))

    def _cut_pages(self) -> None:
        empty = self._dice.random() < 0.5
        chance = self._chance() | {"times": self._dice.randrange(1, 30)}
        rule = self._faults.cut_pages(self._dice.randrange(1, 4), LOG, empty=empty, **chance)
        self._rules.append(("empty_page" if empty else "short_page", rule))

    def _replay(self) -> None:
        self._replays.append(self._faults.replay_writes(None, "Orders", times=self._dice.randrange(1, 4)))

    def _hold(self) -> None:
        self._holds.append(self._faults.hold_writes(None, "Orders", times=self._dice.randrange(1, 4)))

    def _stop_or_start(self) -> None:
        if self.stopped is not None:
            self._faults.start_node(self.stopped)
            self.stopped = None
        elif len(self._scylla.contact_points) > 1:
            self.stopped = self._dice.choice(self._scylla.contact_points)
            self._faults.stop_node(self.stopped)
            self.counts["node_stops"] += 1

    def _skew_node(self) -> None:
        skew = timedelta(seconds=self._dice.uniform(-MOST_SKEW_S, MOST_SKEW_S))
        running = [a for a in self._scylla.contact_points if a != self.stopped]
        self._faults.skew_clock(self._dice.choice(running), skew)
        self.counts["node_skews"] += 1

    def _step_clock(self) -> None:
        """Set the reader's clock to another time: back by up to a minute, never more than two seconds ahead."""
        skew_us = int(self._dice.choice([0.0, self._dice.uniform(-60, 2), self._dice.uniform(-2, 2)]) * 1e6)
        self.counts["clock_steps_back"] += skew_us < self._clock.skew_us
        self.counts["clock_steps_ahead"] += skew_us > self._clock.skew_us
        self._clock.skew_us = skew_us

    # ------------------------------------------------------------ what the oracle has to know

    def replayed(self) -> int:
        """Return how many writes came to be logged twice so far."""
        return sum(rule.hits for rule in self._replays)

    def held(self) -> int:
        """Return how many writes were held back so far."""
        return sum(rule.hits for rule in self._holds)

    def deliver_held(self) -> None:
        self._faults.deliver_held()

    # ------------------------------------------------------------ the end

    def mend(self) -> None:
        """Set everything right, and count what struck."""
        for name, rule in self._rules:
            self.counts[name] += rule.hits
        self.counts["replayed_write"] += self.replayed()
        self.counts["held_write"] += self.held()
        self._rules.clear()
        self._replays.clear()
        self._holds.clear()
        self._faults.clear()
        self.stopped = None
        self._clock.skew_us = 0
