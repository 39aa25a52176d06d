"""``Fate``: when it strikes, how often, and how it is replayed and switched off."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rscylla.errors import ConfigError, FateError
from rscylla.reflex import NO_FATE, OFFICE_HOURS, Fate
from rscylla.testing import ManualClock, ScriptedFate


def strikes(fate: Any, times: int, point: str = "") -> list[int]:
    """Return the numbers of the calls at which *fate* struck."""
    found = []
    for call in range(1, times + 1):
        try:
            fate.tempt(point)
        except FateError:
            found.append(call)
    return found


def module(name: str) -> Any:
    """Return a function, as if of module *name*, that tempts a fate."""
    scope: dict[str, Any] = {"__name__": name}
    exec("def tempt(fate, point=''):\n    fate.tempt(point)", scope)
    return scope["tempt"]


def test_the_extremes_are_certain() -> None:
    assert strikes(Fate(0), 100) == []
    assert strikes(Fate(1), 100) == list(range(1, 101))


@pytest.mark.parametrize("draw", [0.0, 1 - 2**-53])
def test_the_extremes_are_certain_whatever_is_drawn(draw: float) -> None:
    for probability, struck in ((0, []), (1, [1])):
        fate = Fate(probability)
        fate._random.random = lambda: draw  # type: ignore[method-assign]
        assert strikes(fate, 1) == struck


def test_no_fate_never_strikes() -> None:
    assert strikes(NO_FATE, 10) == []
    assert repr(NO_FATE) == "NO_FATE"


def test_the_probability_is_kept() -> None:
    fate = Fate(0.1, seed=1)
    assert 850 < len(strikes(fate, 10_000)) < 1150
    assert fate.tempted == 10_000
    assert fate.struck == len(strikes(Fate(0.1, seed=1), 10_000))


def test_a_seed_replays_the_same_strikes() -> None:
    first = strikes(Fate(0.2, seed=42), 200)
    assert first == strikes(Fate(0.2, seed=42), 200)
    assert first != strikes(Fate(0.2, seed=43), 200)


def test_a_seed_that_was_chosen_is_logged_and_named_so_that_it_can_be_replayed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="rscylla.fate")
    fate = Fate(0.5)
    assert f"seed {fate.seed}" in caplog.text
    assert strikes(fate, 100) == strikes(Fate(0.5, seed=fate.seed), 100)
    with pytest.raises(FateError, match=r"^fate struck at after_consume \(seed 7, draw 1\), injected on purpose;"):
        Fate(1, seed=7).tempt("after_consume")


def test_changing_one_points_chance_does_not_shift_the_other_strikes() -> None:
    plain, tuned = Fate(0.3, seed=5), Fate(0.3, seed=5, per_point={"quiet": 0})
    for fate in (plain, tuned):
        strikes(fate, 3, "quiet")
    assert strikes(plain, 100, "other") == strikes(tuned, 100, "other")


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), float("inf"), "often", None, True])
def test_probabilities_are_checked(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="number from 0 to 1"):
        Fate(wrong)
    with pytest.raises(ConfigError, match="per_module"):
        Fate(0, per_module={"shop": wrong})
    with pytest.raises(ConfigError, match="per_point"):
        Fate(0, per_point={"after_recv": wrong})


# --- the window ----------------------------------------------------------------------------------------------------


def at(text: str, **options: Any) -> bool:
    """Return whether a certain fate strikes at this time."""
    moment = datetime.fromisoformat(text)
    clock = ManualClock(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return strikes(Fate(1, clock=clock, window=OFFICE_HOURS, **options), 1) == [1]


def test_errors_happen_inside_office_hours_only() -> None:
    assert at("2026-11-20T11:00:00")  # a Friday
    assert not at("2026-11-20T23:00:00")
    assert not at("2026-11-20T08:59:59")


def test_saturday_and_sunday_are_not_working_days() -> None:
    days = {f"2026-11-{day}": at(f"2026-11-{day}T11:00:00") for day in range(16, 23)}
    assert [day for day, struck in days.items() if not struck] == ["2026-11-21", "2026-11-22"]


def test_the_end_hour_is_not_inside() -> None:
    assert at("2026-11-20T09:00:00")
    assert at("2026-11-20T16:59:59.999999")
    assert not at("2026-11-20T17:00:00")


def test_the_window_is_in_its_time_zone() -> None:
    assert not at("2026-11-20T08:30:00+00:00")
    assert at("2026-11-20T08:30:00+00:00", tz="Europe/Paris")
    assert at("2026-11-20T08:30:00+00:00", tz=ZoneInfo("Europe/Paris"))
    assert not at("2026-11-20T16:30:00+00:00", tz="Europe/Paris")
    # Friday evening in Los Angeles is Saturday in UTC.
    assert not at("2026-11-21T00:30:00+00:00")
    assert at("2026-11-21T00:30:00+00:00", tz="America/Los_Angeles")


def test_outside_the_window_nothing_is_counted_or_drawn() -> None:
    clock = ManualClock(datetime(2026, 11, 20, 3, tzinfo=UTC))
    fate = Fate(0.5, seed=3, window=OFFICE_HOURS, clock=clock)
    assert strikes(fate, 50) == []
    assert fate.tempted == 0
    clock.advance(timedelta(hours=8))
    assert strikes(fate, 50) == strikes(Fate(0.5, seed=3), 50)


@pytest.mark.parametrize("window", [(17, 9), (9, 9), (-1, 5), (0, 25), (9.5, 12), (9,), 9, ("9", "17")])
def test_a_window_must_make_sense(window: Any) -> None:
    with pytest.raises(ConfigError, match="window"):
        Fate(0.1, window=window)


def test_a_time_zone_must_exist() -> None:
    with pytest.raises(ConfigError, match="'Mars/Base' is not a time zone"):
        Fate(0.1, tz="Mars/Base")


# --- modules and points --------------------------------------------------------------------------------------------


def test_the_module_is_that_of_the_direct_caller() -> None:
    fate = Fate(0, per_module={__name__: 1.0})
    with pytest.raises(FateError):
        fate.tempt()
    module("other")(fate)


def test_the_longest_prefix_of_the_module_wins_on_whole_names() -> None:
    fate = Fate(0, per_module={"shop": 1.0, "shop.billing": 0.0, "shop.billing.tax": 1.0})
    for name, strikes_there in {
        "shop": True,
        "shop.stock.rack": True,
        "shop.billing": False,
        "shop.billing.mail": False,
        "shop.billing.tax": True,
        "shop.billing.taxes": False,
        "shopping": False,
    }.items():
        struck = []
        try:
            module(name)(fate)
        except FateError:
            struck.append(name)
        assert bool(struck) == strikes_there, name


def test_points_win_over_modules_and_these_over_the_general_chance() -> None:
    fate = Fate(1, per_module={__name__: 0.0}, per_point={"after_consume": 1.0})
    assert strikes(fate, 3, "after_recv") == []
    assert strikes(fate, 3, "after_consume") == [1, 2, 3]
    with pytest.raises(FateError):
        module("other")(fate, "after_recv")


# --- switches ------------------------------------------------------------------------------------------------------


def test_zero_in_the_environment_switches_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSCYLLA_FATE", "0")
    assert strikes(Fate(1, per_point={"p": 1}, enabled=True), 10, "p") == []


def test_a_number_in_the_environment_replaces_the_general_chance_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSCYLLA_FATE", " 1.0 ")
    fate = Fate(0, per_point={"never": 0})
    assert strikes(fate, 2, "x") == [1, 2]
    assert strikes(fate, 2, "never") == []
    assert strikes(Fate(0, enabled=False), 2) == []


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fate = Fate(1)
    monkeypatch.setenv("RSCYLLA_FATE", "0")
    assert strikes(fate, 2) == [1, 2]


@pytest.mark.parametrize("text", ["on", "2", "-1", "nan"])
def test_nonsense_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RSCYLLA_FATE", text)
    with pytest.raises(ConfigError, match="environment variable RSCYLLA_FATE"):
        Fate(0.1)


def test_enabled_false_switches_one_off() -> None:
    fate = Fate(1, enabled=False)
    assert strikes(fate, 10) == []
    assert fate.tempted == 0


def test_threads_share_one_count() -> None:
    fate = Fate(0.5, seed=1)
    threads = [threading.Thread(target=strikes, args=(fate, 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fate.tempted == 2000
    assert fate.struck == len(strikes(Fate(0.5, seed=1), 2000))


def test_a_scripted_fate_gives_its_outcomes_in_order_then_the_default() -> None:
    first, default = FateError("first"), FateError("default")
    fate = ScriptedFate(first, None, default=default)
    with pytest.raises(FateError, match="first"):
        fate.tempt("a")
    fate.tempt("b")
    with pytest.raises(FateError, match="default"):
        fate.tempt("c")
    assert fate.points == ["a", "b", "c"]
