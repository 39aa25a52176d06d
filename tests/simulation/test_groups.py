"""Thousands of seeds of groups of processes; what one does is in ``tests/support/simulation/simulated_groups.py``.

``RSCYLLA_SIMULATION_SEEDS`` says how many (20 unless told, 2,000 in ``tox -e simulation``), ``RSCYLLA_SIMULATION_FROM``
the first one, ``RSCYLLA_SIMULATION_SEED`` asks for one alone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from memorygroups import MemoryGroupTable
from simulated_groups import GROUP_KINDS, GroupSimulation, Reach

from cursorstore import BufferedCursorStore, ScyllaCursorStore
from cursorstore.cursors import reslice
from cursorstore.groups import admin as groupadmin
from cursorstore.groups.group import _Membership
from cursorstore.leases.term import Term
from rscylla._tokens import slice_at
from rscylla.abc import GroupView
from rscylla.cdc.log.source import Source
from rscylla.cdc.log.walk import Switch, Walk
from rscylla.cdc.read import slices
from rscylla.service.groups import balance
from rscylla.service.groups.slicekeeper import SliceKeeper
from rscylla.service.lease import LeasedStop

FIRST = int(os.environ.get("RSCYLLA_SIMULATION_FROM", "0"))
SEEDS = int(os.environ.get("RSCYLLA_SIMULATION_SEEDS", "20"))
ONE_SEED = os.environ.get("RSCYLLA_SIMULATION_SEED")
SEEDS_PER_TEST = 10
RAREST = 2_000
"""So many seeds are tried: the rarest fault shows in about one of 150, in others after each change of the code."""


def simulate(seed: int) -> Counter[str]:
    """Run one seed. Whatever it raises says how to repeat it."""
    try:
        return GroupSimulation(seed).run()
    except BaseException as e:
        e.add_note(f"repeat with: RSCYLLA_SIMULATION_SEED={seed} python -m pytest tests/simulation/test_groups.py")
        raise


def ranges() -> list[range]:
    if ONE_SEED is not None:
        return [range(int(ONE_SEED), int(ONE_SEED) + 1)]
    end = FIRST + SEEDS
    return [range(at, min(at + SEEDS_PER_TEST, end)) for at in range(FIRST, end, SEEDS_PER_TEST)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", ranges(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_group_loses_nothing_and_comes_into_balance(seeds: range) -> None:
    total = Counter[str]()
    for seed in seeds:
        total.update(simulate(seed))
    assert total["delivered"] >= total["writes"] > 0
    assert total["moves"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everything_happens_that_should() -> None:
    total = Counter[str]()
    for seed in range(300):
        total.update(simulate(seed))
    assert [kind for kind in GROUP_KINDS if not total[kind]] == []


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_seed_repeats_the_same_run(seed: int) -> None:
    first, second = GroupSimulation(seed), GroupSimulation(seed)
    assert first.run() == second.run()
    assert first.log.writes == second.log.writes
    assert first.delivered == second.delivered


# ---------------------------------------------------------------- does the oracle see what it should?


def slices_of_the_living_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are thought dead before they are, and the table does not object."""
    views_that_show_members_too_short(monkeypatch)
    true = MemoryGroupTable.take

    def take(self: MemoryGroupTable, name: str, count: int, standing: Any, moves: Any, _gone: str) -> bool:
        return true(self, name, count, standing, moves, "")

    monkeypatch.setattr(MemoryGroupTable, "take", take)


def views_that_show_members_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault: as if rows expired early where they are read. The condition of each take keeps it harmless."""
    true = Reach._call

    def call(self: Reach, name: str, *args: Any, **options: Any) -> Any:
        found = true(self, name, *args, **options)
        if not isinstance(found, GroupView) or self._dice.random() < 0.5:
            return found
        left = timedelta(seconds=23)
        members = tuple(m for m in found.members if m.expires_in > left or m.token == self.token())
        return attrs.evolve(found, members=members)

    monkeypatch.setattr(Reach, "_call", call)


def slices_are_given_before_their_lanes_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    true = SliceKeeper._ask

    def ask(self: SliceKeeper, index: int, tenure: Any) -> None:
        true(self, index, tenure)
        tenure.gone = True

    monkeypatch.setattr(SliceKeeper, "_ask", ask)


def holders_without_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Term.__init__

    def init(self: Term, *args: Any) -> None:
        true(self, *args)
        self._span_s = float(self.ttl_s)

    monkeypatch.setattr(Term, "__init__", init)


def larger_shares_for_who_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(members: Any, has: Any, count: int) -> Any:
        fit = sorted(members, key=lambda token: has[token])
        for place, token in enumerate(fit):
            yield token, count // len(fit) + (place < count % len(fit))

    monkeypatch.setattr(balance, "_shares", shares)


def who_leaves_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Membership, "drain", lambda _self: None)


def lanes_that_do_not_look_at_their_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeasedStop, "is_over", lambda _self: False)


def generations_that_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "generations_until", lambda self, *_: self.generations)


def streams_of_a_generation_that_are_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next generation begins where the reader is, and not at its own time."""
    true = Walk.switched

    def switched(self: Walk, step: Switch) -> Walk:
        return attrs.evolve(true(self, step), at_us=max(self.at_us, step.generation.start_us) + 500_000)

    monkeypatch.setattr(Walk, "switched", switched)


def streams_with_keys_of_two_slices_that_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_near", lambda _start, end, count: [slice_at(end, count)])


def windows_that_end_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that are seen late come after the window has been read."""
    monkeypatch.setattr(Source, "watermark_us", lambda self, _lag_us: self.node_clocks.slowest_us())


def windows_that_end_by_the_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """That clock may be ahead of the nodes."""
    monkeypatch.setattr(Source, "watermark_us", lambda self, lag_us: self.clock.now_us() - lag_us)


def stores_that_do_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScyllaCursorStore, "_take_over", lambda self, consumer, *_: self._table.read(consumer))


def buffers_that_are_not_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BufferedCursorStore, "flush_cursor", lambda self, consumer: None)


def changes_that_do_not_wait_for_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupadmin, "_await_free", lambda *_: None)


def new_slices_that_begin_at_the_highest_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reslice, "min", max, raising=False)


def new_slices_without_their_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupadmin, "_consumers", lambda *_: [])


def test_views_that_are_wrong_about_members_are_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    views_that_show_members_too_short(monkeypatch)
    for seed in (1, 2, 3, 5):
        GroupSimulation(seed).run()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "fault",
    [
        slices_of_the_living_are_taken,
        slices_are_given_before_their_lanes_have_ended,
        holders_without_a_margin,
        larger_shares_for_who_has_less,
        who_leaves_tells_nobody,
        lanes_that_do_not_look_at_their_fence,
        generations_that_are_listed_once,
        streams_of_a_generation_that_are_read_to_the_end,
        streams_with_keys_of_two_slices_that_one_reads,
        windows_that_end_now,
        windows_that_end_by_the_own_clock,
        stores_that_do_not_fence,
        buffers_that_are_not_written_at_the_end,
        changes_that_do_not_wait_for_the_members,
        new_slices_that_begin_at_the_highest_cursor,
        new_slices_without_their_cursors,
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_broken_group_is_found_out(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    for seed in range(RAREST):
        try:
            GroupSimulation(seed).run()
        except Exception:  # noqa: BLE001 - whatever it is, the fault was noticed
            return
    pytest.fail(f"{RAREST} seeds did not notice")
