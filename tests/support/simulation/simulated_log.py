"""What becomes of the simulated table's log: it is created again, its rows expire, and consumers start in the future.

The oracle knows which log each saved cursor is of, and how long each row lives. Nothing may be lost in silence: a
consumer whose log has gone, or whose rows have expired, is told at each run until somebody mends it, and a consumer
whose rows are all there is told nothing.

What cannot be known (see ``docs/guarantees.md``) is mostly left out: between a saved cursor and the next run the TTL
changes once at most, and no column is altered. A consumer that is reset to the oldest row has all alterations before it
again: where the reader has to guess the TTL, it need not tell what has expired, and may tell it too soon.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

import rscylla
from rscylla.cdc.read.shared import FRESH_S

__all__ = ["LIFE_KINDS", "LogLife", "Watched", "is_eventful"]

LIFE_KINDS = (
    *("recreated", "recreated_while_reading", "told_recreated", "cursor_resets", "on_expired_oldest"),
    *("ttl_longer", "ttl_shorter", "cdc_off", "cdc_on", "unlogged", "told_expired", "told_off", "expired"),
    *("starts_ahead", "passed_over", "announced_late"),
)
"""What has to happen at least once over many seeds."""

DAY_S = 86_400
TTLS_S = (DAY_S, 3600, 1200, 400)

NEVER_US = 2**62

UNSURE_US = 50_000_000
"""Clocks of nodes differ by less: to within this span it is open whether a row has expired, or had which TTL."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_eventful(seed: int) -> bool:
    """Return whether things happen to the log of *seed*: that it is dropped and created again, or gets another TTL."""
    return seed % 5 in (2, 3) or seed % 20 == 4


@attrs.define
class Reading:
    """A stream that a consumer opened with the cursor ``after``.

    ``log``: the number of the log that it was opened with; None until it is open. ``is_lenient``: it need not tell what
    had expired, because it has no cursor or was asked to go on at the oldest. ``guessed``: see ``LogLife._guess``.
    """

    after: str = ""
    guessed: tuple[int, int, int | None] | None = None
    log: int | None = None
    is_opening: bool = True
    is_lenient: bool = False


class LogLife:
    """The log of one simulation. ``log`` is the present one's number; ``is_eventful``: whether anything happens."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self._dice = simulation.dice
        self._counts: Counter[str] = simulation.counts
        self.is_eventful = is_eventful(simulation.seed)
        self.log = 1
        self.readings: dict[str, Reading] = {}
        """By consumer, the stream that it opened last."""
        self.floor_us = 0
        """Writes before this are before the start of all consumers."""
        self._passed_over: set[Any] = set()
        self._starting: set[str] = set()  # consumers that begin at the last start, and did not go back behind it
        self._start_us = 0  # when that is, also where the log is another by now
        self.gone = Counter[Any]()
        """Writes that nobody will see any more: those of a former log, and expired ones of which somebody was told."""
        self._is_settled = True
        self._ttls: list[tuple[int, int]] = [(0, DAY_S)]  # since when rows are written with what TTL; 0: none are
        self._altered_us = 0
        self._expires_us: dict[Any, int] = {}
        self._logs: dict[rscylla.EventID, int | None] = {}  # the log of each cursor that was to be saved
        self._policy: dict[str, Any] = {}
        self._skipped_us: dict[str, int] = {}  # by consumer: where one that went on with a new log had been

    # ------------------------------------------------------------ what happens

    def strike(self) -> None:
        """Let one thing happen to the log."""
        steps = [self.recreate, self.change_ttl, self.start_ahead, self.wait_for_expiry, self.announce]
        self._dice.choices(steps, [4, 4, 1, 3, 4])[0]()

    def recreate(self) -> None:
        """Drop the table and create it again. What was not read of it is gone."""
        simulation = self._simulation
        if any(reading.is_opening for reading in self.readings.values()) or not self.is_eventful:
            return  # which log a stream is opened with would be open
        simulation.deliver_held()
        self.gone += Counter(w for w in simulation.written if w.log == self.log) - Counter(simulation.order)
        simulation.schema.recreate()
        if simulation.process is not None:
            simulation.world.advance(FRESH_S)  # until then, a slice may be opened with what another one has read
        simulation.tablets = simulation.first_tablets
        self.log += 1
        self.floor_us = 0
        self._ttls = [(0, DAY_S)]
        self._is_settled = True
        self._happened("recreated")
        self._counts["recreated_while_reading"] += simulation.is_reading
        if self._dice.random() < 0.5:
            simulation.world.advance(self._dice.uniform(0, 100))

    def change_ttl(self) -> None:
        """Give the log another TTL, or switch CDC off or on."""
        simulation = self._simulation
        if simulation.is_reading:
            if not self._is_settled:
                return
        else:
            self.settle()
        simulation.deliver_held()
        former_s = self._ttls[-1][1]
        # Releases as old as those of this model drop a log that is switched off.
        ttls_s = TTLS_S if simulation.model == "legacy" else (*TTLS_S, 0)
        ttl_s = self._dice.choice([t for t in ttls_s if t != former_s])
        option = f"'enabled': true, 'ttl': '{ttl_s}'" if ttl_s else "'enabled': false"
        simulation.world.advance(UNSURE_US / 1e6)
        simulation.execute(f"ALTER TABLE {simulation.schema.table} WITH cdc = {{{option}}}")
        self._ttls.append((self._now_us(), ttl_s))
        self.altered()
        simulation.world.advance(UNSURE_US / 1e6)
        self._is_settled = False
        kind = "cdc_off" if not ttl_s else "cdc_on" if not former_s else "ttl_longer"
        self._happened("ttl_shorter" if 0 < ttl_s < former_s else kind)

    def may_rename(self) -> bool:
        """Return whether key columns may be renamed: a log that is switched off does not follow, and is unreadable."""
        return self._ttls[-1][1] > 0

    def altered(self) -> None:
        """The schema says from now on that the table was altered now, and not when it was before."""
        self._altered_us = self._now_us()

    def reach_start(self) -> bool:
        """Let the time pass until the start of all consumers; return whether there was one ahead."""
        wait_us = self._start_us - self._now_us() + UNSURE_US
        if wait_us <= UNSURE_US:
            return False
        self._simulation.world.advance(wait_us / 1e6)
        return True

    def settle(self) -> None:
        """Let all consumers read past the last change."""
        if not self._is_settled:
            self._simulation.world.advance(2 * UNSURE_US / 1e6)
        if self.reach_start() or not self._is_settled:
            self._simulation.read_all()
            self._is_settled = True

    def may_alter(self) -> bool:
        """Return whether columns may be altered: not while consumers have a change of the TTL before them."""
        if not self._is_settled and not self._simulation.is_reading and self._dice.random() < 0.3:
            self.settle()
        return self._is_settled

    def start_ahead(self) -> None:
        """Let all consumers begin anew at a time in the future, before which other streams may take over."""
        simulation = self._simulation
        if simulation.is_reading:
            return
        self.settle()
        simulation.read_all()
        start_us = self._now_us() + int(self._dice.uniform(5e6, 200e6))
        cursor = simulation.stream_of(0).cursor_at(EPOCH + timedelta(microseconds=start_us))
        for name in simulation.names():
            self.reset(name, cursor)
        self.floor_us = self._start_us = start_us
        self._starting = set(simulation.names())
        self._happened("starts_ahead")
        for _ in range(self._dice.randrange(4)):
            self._dice.choice([simulation.change_streams, simulation.write, simulation.write, simulation.pause])()

    def wait_for_expiry(self) -> None:
        """Let about the time pass that rows live, if that is short."""
        if 0 < self._ttls[-1][1] < DAY_S:
            self._simulation.world.advance(self._ttls[-1][1] * self._dice.choice([0.8, 0.95, 1.05, 1.5]))

    def announce(self) -> None:
        """Let new streams take over, and the time pass after which a reader at the head comes to what they hold."""
        simulation = self._simulation
        simulation.change_streams()
        simulation.world.advance(self._dice.uniform(0, 5))
        simulation.write()
        simulation.world.advance(self._dice.uniform(25, 45))

    def delay(self) -> timedelta:
        """Return how long before its start new streams are announced."""
        is_late = self.is_eventful and self._dice.random() < 0.5
        self._counts["announced_late"] += is_late
        return timedelta(
            seconds=self._dice.choice([0.0, self._dice.uniform(0, 5)]) if is_late else self._dice.uniform(5, 40)
        )

    # ------------------------------------------------------------ writes

    def late(self, time_us: int) -> int:
        """Return *time_us*, or the time of the last change of the TTL: which TTL older rows have cannot be known."""
        return max(time_us, self._ttls[-1][0])

    def accepts(self, writes: list[Any]) -> bool:
        """Return whether *writes*, which the server took at one time, have to be delivered."""
        if not self._ttls[-1][1]:
            self._counts["unlogged"] += 1
            return False
        if writes[0].time_us < self.floor_us:
            self._counts["passed_over"] += 1
            self._passed_over.update(writes)
            return False
        return True

    def accepted(self, write: Any) -> None:
        self._expires_us[write] = self._now_us() + self._ttls[-1][1] * 1_000_000

    # ------------------------------------------------------------ consumers

    def policy(self, name: str) -> Any:
        """Return what ``on_expired`` is in the next run of a consumer."""
        return self._policy.pop(name, "raise")

    def begin(self, name: str, after: str) -> None:
        self.readings[name] = Reading(after, self._guess(after))

    def _guess(self, after: str) -> tuple[int, int, int | None] | None:
        """Return for which time a reader from *after* on cannot know the TTL, and what it takes it for.

        The schema tells only the last alteration; before that, the TTL is what it is at the cursor, if that tells it.
        """
        if after == "":
            return None
        cursor = rscylla.EventID.parse(after)
        at_us = cursor.exact_us
        is_known = cursor.is_row or (cursor.mark is not None and cursor.mark.ttl_s is not None)
        since_us = next((us for us, _ in self._ttls if us > at_us), NEVER_US) if is_known else at_us
        if since_us >= self._altered_us:
            return None
        ttl_s = next(ttl_s for us, ttl_s in reversed(self._ttls) if us <= at_us) if is_known else None
        return since_us, self._altered_us, ttl_s

    def log_read_by(self, name: str) -> int | None:
        """Return the log that the stream of a consumer was opened with."""
        return self.readings[name].log if name in self.readings else None

    def is_before_start(self, name: str, write: Any) -> bool:
        """Return whether *write* was before the start of a consumer that was then told to read what there is."""
        return write in self._passed_over and name not in self._starting

    def opened(self, name: str, after: str, policy: str) -> None:
        """A stream was opened, so there is nothing to tell."""
        saved = self._log_of(after)
        reading = self.readings[name]
        reading.log = self.log
        reading.is_lenient = after == "" or policy == "oldest"
        if saved not in (None, self.log):
            self._skipped_us[name] = rscylla.EventID.parse(after).exact_us
        self._simulation.claim(
            policy == "oldest" or saved in (None, self.log), f"{name} is of log {saved}, and reads {self.log} untold"
        )

    def saving(self, name: str, cursor: str, missing: Counter[Any]) -> Counter[Any]:
        """A cursor is about to be saved; return those of *missing*, which it passes undelivered, that should not be."""
        reading = self.readings[name]
        self._keep(cursor, reading.log)  # a save may fail, and may have an effect though it fails
        missing -= self.gone
        since_us, until_us, _ = (0, NEVER_US, None) if reading.is_lenient else reading.guessed or (0, -1, None)
        skipped_us = self._skipped_us.get(name, 0) if reading.is_lenient else 0
        expired = Counter(
            {
                w: n
                for w, n in missing.items()
                if w.time_us <= skipped_us or (since_us - UNSURE_US <= w.time_us <= until_us and self._has_expired(w))
            }
        )
        self.gone += expired
        self._counts["expired"] += expired.total()
        return missing - expired

    def _has_expired(self, write: Any) -> bool:
        now_us = self._now_us() + UNSURE_US
        if self._simulation.model == "tablets":  # stream sets go by the TTL of now, with the rows in them
            ttls = [ttl_s for _, ttl_s in self._ttls if ttl_s]
            return bool(write.time_us + min(ttls) * 1_000_000 <= now_us)
        return self._expires_us[write] <= now_us

    def reset(self, name: str, cursor: str) -> None:
        """Set a cursor as its operator does, who tries again when the cluster is whole."""
        try:
            self._simulation.new_store().reset_cursor(name, cursor, reason="as its operator wishes")
        except rscylla.RscyllaError as e:
            if not e.resumable:
                raise
            self._simulation.mend_cluster()
            self._simulation.new_store().reset_cursor(name, cursor, reason="as its operator wishes")
        self._starting.discard(name)
        self._keep(cursor, self.log)

    def is_of_this_log(self, cursor: str) -> bool:
        return self._log_of(cursor) in (None, self.log)

    def _keep(self, cursor: str, log: int | None) -> None:
        if cursor:
            self._logs[rscylla.EventID.parse(cursor)] = log

    def _log_of(self, cursor: str) -> int | None:
        return self._logs.get(rscylla.EventID.parse(cursor)) if cursor else None

    def resliced(self, names: list[str]) -> None:
        store = self._simulation.new_store()
        self._starting.clear()
        for name in names:
            cursor = store.get_cursor(name)
            self._keep(cursor, self.log)
            if cursor and rscylla.EventID.parse(cursor).exact_us >= self._start_us:
                self._starting.add(name)

    def told(self, name: str, error: BaseException | None) -> bool:
        """Return whether *error* tells a loss. It has to be one."""
        if isinstance(error, rscylla.TableChanged):
            reading = self.readings[name]
            of = self._log_of(reading.after) if reading.log is None else reading.log
            self._simulation.claim(of not in (None, self.log), f"{name} is of log {of}, which is there: {error}")
            self._happened("told_recreated")
        elif isinstance(error, rscylla.CursorExpired):
            self._check_expired(error, self.readings[name].guessed)
            self._happened("told_expired")
        elif isinstance(error, rscylla.errors.CDCDisabled):
            self._simulation.claim(self._is_off, f"CDC is on: {error}")
            self._happened("told_off")
        else:
            return False
        return True

    @property
    def _is_off(self) -> bool:
        return not self._ttls[-1][1]

    def mend(self, name: str) -> None:
        """Do what an operator does who was told. While CDC is off, a reset alone is told the same again."""
        if not self._is_off and self._dice.random() < 0.5:
            self.reset(name, "")
            self._happened("cursor_resets")
        else:
            self._policy[name] = "oldest"
            self._happened("on_expired_oldest")

    def _check_expired(self, error: rscylla.CursorExpired, guessed: tuple[int, int, int | None] | None) -> None:
        """What is said to have expired has: the rows that were written first in the gap live no more."""
        assert error.gap_from is not None
        from_us = (error.gap_from - EPOCH) // timedelta(microseconds=1)
        now_us = self._now_us()
        ends = [*(us for us, _ in self._ttls[1:]), NEVER_US]
        spans = [(since_us, until_us, ttl_s) for (since_us, ttl_s), until_us in zip(self._ttls, ends, strict=True)]
        expired = any(
            ttl_s
            and since_us - UNSURE_US <= from_us <= until_us + UNSURE_US
            and from_us + ttl_s * 1_000_000 <= now_us + UNSURE_US
            for since_us, until_us, ttl_s in (*spans, *([guessed] if guessed else []))
        )
        # Nothing is written to the log while CDC is off.
        until_us = NEVER_US if error.gap_to is None else (error.gap_to - EPOCH) // timedelta(microseconds=1)
        expired = expired or any(
            not ttl_s and since_us - UNSURE_US <= until_us and from_us <= end_us + UNSURE_US
            for since_us, end_us, ttl_s in spans
        )
        # The stream sets of tablets go by the TTL of now, with the rows in them.
        expired = expired or (self._simulation.model == "tablets" and len(self._ttls) > 1)
        self._simulation.claim(expired, f"nothing has expired: {error}, {self._ttls}, {now_us}")

    def _happened(self, kind: str) -> None:
        self._counts[kind] += 1

    def _now_us(self) -> int:
        now_us: int = self._simulation.world.now_us()
        return now_us


class Watched:
    """A stream function of which the log's life sees what is opened."""

    supports_lag = True

    def __init__(self, stream: rscylla.Stream, life: LogLife, name: str, policy: str) -> None:
        self._stream = stream
        self._life = life
        self._name = name
        self._policy = policy

    def __call__(self, after: str, *options: Any, **stop: Any) -> Any:
        self._life.begin(self._name, after)
        try:
            client = self._stream(after, *options, **stop)
        finally:
            self._life.readings[self._name].is_opening = False
        self._life.opened(self._name, after, self._policy)
        return client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
