"""Thousands of seeds of the whole stack; what one does is in ``tests/support/simulation/simulated.py``.

``RSCYLLA_SIMULATION_SEEDS`` says how many (20 unless told, 2,000 in ``tox -e simulation``), ``RSCYLLA_SIMULATION_FROM``
the first one, ``RSCYLLA_SIMULATION_SEED`` asks for one alone. The sums of all that happened are told at the end.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import attrs
import pytest
from simulated import FULL_RUN, KINDS, Simulation, never_happened
from simulated_log import is_eventful

from rscylla.cdc.log.lifetimes import Lifetimes
from rscylla.cdc.log.source import Source
from rscylla.cdc.log.walk import Walk
from rscylla.cdc.read import merge_policy, shared
from rscylla.cdc.read.feed import SliceFeed
from rscylla.cdc.read.reader import Reader
from rscylla.cdc.read.scan import Scanner
from rscylla.cdc.read.shared import SharedReaders
from rscylla.cdc.rows import LogRows

RESUME = import_module("rscylla.cdc.log.resume")  # the room has its function under this name

FIRST = int(os.environ.get("RSCYLLA_SIMULATION_FROM", "0"))
SEEDS = int(os.environ.get("RSCYLLA_SIMULATION_SEEDS", "20"))
ONE_SEED = os.environ.get("RSCYLLA_SIMULATION_SEED")
SEEDS_PER_TEST = 10


def simulate(seed: int) -> Counter[str]:
    """Run one seed. Whatever it raises says how to repeat it."""
    try:
        return Simulation(seed, sockets=seed % 50 == 17).run()
    except BaseException as e:
        e.add_note(
            f"repeat with: RSCYLLA_SIMULATION_SEED={seed} python -m pytest tests/simulation -k everything_written"
        )
        raise


def groups() -> list[range]:
    if ONE_SEED is not None:
        return [range(int(ONE_SEED), int(ONE_SEED) + 1)]
    end = FIRST + SEEDS
    return [range(at, min(at + SEEDS_PER_TEST, end)) for at in range(FIRST, end, SEEDS_PER_TEST)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", groups(), ids=lambda g: f"{g[0]}-{g[-1]}")
def test_everything_written_is_delivered_in_order(group: range, record_property: Callable[[str, object], None]) -> None:
    total = Counter[str]()
    for seed in group:
        total.update({"seeds": 1})
        total.update(simulate(seed))
    record_property("simulation", json.dumps(total))
    # A simulation in which nothing happened proves nothing.
    assert total["events"] + total["gone"] >= total["writes"] > 0


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_a_seed_repeats_the_same_run(seed: int) -> None:
    first, second = Simulation(seed), Simulation(seed)
    assert first.run() == second.run()
    assert first.written == second.written
    assert first.order == second.order
    assert list(first.delivered) == list(second.delivered)


def test_a_failing_seed_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_note", lambda *_: None)  # the oracle sees nothing
    with pytest.raises(AssertionError) as caught:
        simulate(3)
    assert any("RSCYLLA_SIMULATION_SEED=3 " in note for note in caught.value.__notes__)


def test_a_full_run_in_which_something_never_happened_is_reported() -> None:
    total = Counter(dict.fromkeys(KINDS, 1), seeds=FULL_RUN)
    assert never_happened(total) == []
    del total["splits"], total["overloaded"]
    assert never_happened(total) == ["splits", "overloaded"]
    assert never_happened(Counter(seeds=FULL_RUN - 1)) == []


# ---------------------------------------------------------------- does the oracle see what it should?


def no_cut_at_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows run past the time at which new streams take over."""
    true = Walk.next

    def next_step(self: Walk, generations: Any, *args: Any) -> Any:
        return true(self, [g for g in generations if g.start_us <= self.at_us], *args)

    monkeypatch.setattr(Walk, "next", next_step)


def a_list_of_generations_that_is_never_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "generations_until", lambda self, *_: self.generations)


def a_cursor_that_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told for a second that was not read."""
    true = Source.read_until
    monkeypatch.setattr(Source, "read_until", lambda self, at, time_us: true(self, at, time_us + 1_000_000))


def a_lag_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Source.watermark_us
    monkeypatch.setattr(Source, "watermark_us", lambda self, _lag_us: true(self, 0))


def a_query_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Scanner.pages

    def pages(self: Any, statement: Any, tasks: Any, *args: Any, **kwargs: Any) -> Any:
        return true(self, statement, tasks[:-1] or tasks, *args, **kwargs)

    monkeypatch.setattr(Scanner, "pages", pages)


def columns_of_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a window are taken for rows of the page that came last."""
    monkeypatch.setattr(LogRows, "layout_at", lambda self, _index: self.layouts[-1])


def any_cursor_is_of_the_present_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RESUME, "_is_of_former_log", lambda _source, _cursor, **_: False)


def points_that_do_not_tell_their_log(monkeypatch: pytest.MonkeyPatch) -> None:
    true = RESUME._is_of_former_log

    def is_of_former_log(source: Source, cursor: Any, **options: bool) -> Any:
        return true(source, attrs.evolve(cursor, mark=None), **options)

    monkeypatch.setattr(RESUME, "_is_of_former_log", is_of_former_log)


def lifetimes_by_the_option_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifetimes, "of", classmethod(lambda cls, table: cls(((0, table.ttl_s),))))
    monkeypatch.setattr(Lifetimes, "altered", lambda _self, table, _now_us: Lifetimes.of(table))


def no_rows_ever_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifetimes, "gaps_after", lambda *_: iter(()))


def a_start_is_no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that starts in the future reads generations that begin before it from their start."""
    true = Walk.switched
    monkeypatch.setattr(Walk, "switched", lambda self, step: true(attrs.evolve(self, floor_us=0), step))


OF_THE_LOGS_LIFE = (lifetimes_by_the_option_of_today, no_rows_ever_expire, a_start_is_no_floor)


def a_scan_is_taken_over_at_another_position(monkeypatch: pytest.MonkeyPatch) -> None:
    def meet(me: merge_policy.Place, other: merge_policy.Place) -> bool:
        near = abs(me.at_us - other.at_us) < 20_000_000
        return other.stage in merge_policy.FREE and me.generation == other.generation and near

    monkeypatch.setattr(shared, "meet", meet)


def a_scan_is_taken_over_within_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def meet(me: merge_policy.Place, other: merge_policy.Place) -> bool:
        return other.stage is not merge_policy.Stage.ENDED and (me.generation, me.at_us) == (
            other.generation,
            other.at_us,
        )

    monkeypatch.setattr(shared, "meet", meet)


def steps_are_lost_at_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    true = SharedReaders.split

    def split(self: SharedReaders, feed: SliceFeed, **options: bool) -> None:
        feed._steps.clear()
        true(self, feed, **options)

    monkeypatch.setattr(SharedReaders, "split", split)


def a_slow_slice_keeps_only_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    true = SliceFeed.put

    def put(self: SliceFeed, step: Any) -> None:
        if len(self._steps) > 1:
            self._steps.clear()
        true(self, step)

    monkeypatch.setattr(SliceFeed, "put", put)


def slices_that_join_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Reader.read_for

    def read_for(self: Reader, slices: Any) -> None:
        had_entered = self._has_entered
        true(self, slices)
        self._has_entered = had_entered

    monkeypatch.setattr(Reader, "read_for", read_for)


def one_slice_of_each_window_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Reader.divided

    def divided(self: Reader, step: Any) -> Any:
        parts = dict(true(self, step))
        if len(parts) > 1:
            parts.popitem()
        return parts

    monkeypatch.setattr(Reader, "divided", divided)


def logs_of_one_name_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Reader._reads.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Reader, "_reads", property(lambda self: true(self)[:-1]))


OF_SHARED_SLICES = (
    a_scan_is_taken_over_at_another_position,
    a_scan_is_taken_over_within_its_step,
    steps_are_lost_at_a_split,
    a_slow_slice_keeps_only_the_last_step,
    slices_that_join_are_not_read,
    one_slice_of_each_window_is_forgotten,
    logs_of_one_name_are_read_together,
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "fault",
    [
        columns_of_another_page,
        no_cut_at_generations,
        a_list_of_generations_that_is_never_fresh,
        a_cursor_that_is_ahead,
        a_lag_of_zero,
        a_query_that_is_forgotten,
        any_cursor_is_of_the_present_log,
        points_that_do_not_tell_their_log,
        lifetimes_by_the_option_of_today,
        no_rows_ever_expire,
        a_start_is_no_floor,
        *OF_SHARED_SLICES,
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_broken_reader_is_found_out(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    # Starts in the future are rare, and so are cursors that expire: the logs to which things happen, and more of them.
    seeds = [seed for seed in range(2000) if is_eventful(seed)] if fault in OF_THE_LOGS_LIFE else range(100)
    if fault in OF_SHARED_SLICES:
        seeds = range(1, 2000, 4)
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Exception:  # noqa: BLE001 - whatever it is, the reader's fault was noticed
            return
    pytest.fail(f"{len(seeds)} seeds did not notice")
