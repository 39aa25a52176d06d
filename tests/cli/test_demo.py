"""``rscylla demo``: the checker finds what is wrong, the demo passes, and fails when its consumer cheats."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

import rscylla
from rscylla.cli.demo.check import Checker, Verdict
from rscylla.cli.demo.demo import conclude
from rscylla.cli.demo.run import Demo, DemoPlan
from rscylla.embedded import EmbeddedScyllaProcess

from .conftest import Process, Run

KEYS = ["written", "delivered", "lost", "duplicates", "out_of_order", "generations", "restarts"]


def position(n: int, generation: int = 1) -> tuple[int, bytes]:
    return generation, n.to_bytes(4, "big")


@pytest.fixture
def checker() -> Checker:
    """Three changes of order 7 were written, and a consumer has started."""
    checker = Checker()
    for number in (1, 2, 3):
        checker.written(7, number)
    checker.started(None)
    return checker


def deliver(checker: Checker, *numbers: int, key: int = 7) -> Verdict:
    for number in numbers:
        checker.delivered(key, number, position(number))
    return checker.verdict()


def test_all_delivered_in_order_is_good(checker: Checker) -> None:
    verdict = deliver(checker, 1, 2, 3)
    assert verdict == Verdict(
        written=3, delivered=3, lost=0, duplicates=0, out_of_order=0, generations=1, restarts=0, strangers=0
    )
    assert verdict.ok


def test_nothing_written_is_not_good() -> None:
    assert not Checker().verdict().ok


@pytest.mark.parametrize("numbers", [(2, 3), (1, 3), (1, 2), ()])
def test_lost_changes_are_found(checker: Checker, numbers: tuple[int, ...]) -> None:
    verdict = deliver(checker, *numbers)
    assert verdict.lost == 3 - len(numbers)
    assert not verdict.ok


@pytest.mark.parametrize("numbers", [(1, 3, 2), (2, 1, 3), (3, 2, 1)])
def test_swapped_changes_are_found(checker: Checker, numbers: tuple[int, ...]) -> None:
    verdict = deliver(checker, *numbers)
    assert verdict.lost == 0
    assert verdict.out_of_order > 0
    assert not verdict.ok


def test_repeat_without_a_restart_is_found(checker: Checker) -> None:
    verdict = deliver(checker, 1, 2, 2, 3)
    assert (verdict.duplicates, verdict.out_of_order, verdict.ok) == (1, 1, False)


def test_repeat_after_a_restart_is_a_duplicate(checker: Checker) -> None:
    deliver(checker, 1, 2)
    checker.started(position(1))
    verdict = deliver(checker, 2, 3)
    assert (verdict.duplicates, verdict.out_of_order, verdict.restarts, verdict.ok) == (1, 0, 1, True)


def test_restart_that_goes_back_too_far_is_found(checker: Checker) -> None:
    """Changes at or before the saved cursor must not be delivered again."""
    deliver(checker, 1, 2)
    checker.started(position(2))
    verdict = deliver(checker, 2, 3)
    assert (verdict.lost, verdict.out_of_order, verdict.ok) == (0, 1, False)


def test_restart_that_leaves_a_gap_and_fills_it_later_is_found(checker: Checker) -> None:
    deliver(checker, 1, 3)
    checker.started(position(1))
    verdict = deliver(checker, 2, 3)
    assert (verdict.lost, verdict.out_of_order, verdict.ok) == (0, 1, False)


def test_delivered_changes_that_were_never_written_are_found(checker: Checker) -> None:
    verdict = deliver(checker, 1, 2, 3, 4)
    assert (verdict.strangers, verdict.ok) == (1, False)


def test_orders_do_not_have_to_wait_for_each_other(checker: Checker) -> None:
    checker.written(8, 1)
    deliver(checker, 1, 2)
    deliver(checker, 1, key=8)
    assert deliver(checker, 3).ok


def test_generations_are_counted(checker: Checker) -> None:
    for number, generation in ((1, 5), (2, 5), (3, 9)):
        checker.delivered(7, number, position(number, generation))
    assert checker.verdict().generations == 2


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((1, 2), "error: 1 changes were lost (seed 5)"),
        ((1, 3, 2), "error: 1 changes were delivered out of order (seed 5)"),
        ((1, 2, 3, 4), "error: 1 delivered changes were never written (seed 5)"),
    ],
)
def test_bad_verdict_is_shown_with_the_seed(
    checker: Checker, capsys: pytest.CaptureFixture[str], numbers: tuple[int, ...], told: str
) -> None:
    verdict = deliver(checker, *numbers)
    for as_json in (True, False):
        assert conclude(verdict, DemoPlan(seed=5), as_json=as_json) == 1
        shown = capsys.readouterr()
        assert shown.err == told + "\n"
        assert "order held" not in shown.out


def test_demo_loses_nothing(run: Run) -> None:
    ran = run("demo", "--events", "400", "--seed", "7", "--json")
    assert ran.code == 0, ran.err
    assert all("progress" in line for line in ran.objects[:-1])
    verdict = ran.objects[-1]
    assert list(verdict) == KEYS
    assert (verdict["written"], verdict["delivered"]) == (400, 400)
    assert (verdict["lost"], verdict["out_of_order"], verdict["generations"]) == (0, 0, 2)
    assert verdict["restarts"] > 0


@pytest.mark.slow
def test_demo_for_people_ends_with_the_verdict(run: Run) -> None:
    ran = run("demo", "--events", "40", "--seed", "3")
    assert ran.code == 0, ran.err
    assert "one clock stamps all rows" in ran.out[0]
    assert ran.out[-1] == "nothing lost, order held (seed 3)"


class Forgetful(Demo):
    """A demo whose consumer misses one change."""

    missed = False

    def _consume(self, event: rscylla.Event, fate: rscylla.Fate) -> None:
        if not self.missed and event.type == rscylla.Operation.UPDATE:
            self.missed = True
            return
        super()._consume(event, fate)


@pytest.mark.slow
def test_demo_fails_when_its_consumer_misses_a_change() -> None:
    with EmbeddedScyllaProcess() as scylla:
        verdict = Forgetful(scylla, DemoPlan(events=60, seed=1, fate=0, crash_every=10**9)).run()
    assert (verdict.written, verdict.delivered, verdict.lost, verdict.ok) == (60, 59, 1, False)


class Broken(Demo):
    """A demo whose consumer fails by itself."""

    def _consume(self, event: rscylla.Event, fate: rscylla.Fate) -> None:
        raise ZeroDivisionError


def test_failures_that_were_not_made_are_not_hidden() -> None:
    with EmbeddedScyllaProcess() as scylla, pytest.raises(rscylla.RunError, match="consume failed"):
        Broken(scylla, DemoPlan(events=60, fate=0)).run()


@pytest.mark.slow
def test_interrupted_demo_ends_with_130(start: Callable[..., Process]) -> None:
    demo = start("demo", "--events", "100000", "--json")
    assert "progress" in json.loads(demo.line())
    assert demo.end(signal.SIGINT) == 130
    assert not any("Traceback" in line or line.startswith("error:") for line in demo.err)
