"""Settings of a session in blocks that overlap, without Java: the session is played."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import utils
from pyspark.sql import SparkSession

from rscylla.spark.session.settings import unless_set, with_setting, without_call_sites


class Played:
    """A session of Spark Connect of which only the settings are used."""

    def __init__(self, **settings: str) -> None:
        self.session_id = str(id(self))
        self.conf = self
        self.settings = settings

    def get(self, name: str, default: Any) -> Any:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


@pytest.mark.parametrize("before", [{}, {"a": "mine"}])
@pytest.mark.parametrize("first", [0, 1])
def test_what_was_set_comes_back_with_the_end_of_the_last_block(before: dict[str, str], first: int) -> None:
    spark: Any = Played(**before)
    other: Any = Played()
    blocks = [with_setting(spark, "a", "x"), with_setting(spark, "a", "x")]
    for block in blocks:
        block.__enter__()
    blocks[first].__exit__(None, None, None)
    assert spark.settings == {"a": "x"}
    assert other.settings == {}
    blocks[1 - first].__exit__(None, None, None)
    assert spark.settings == before


def test_what_a_user_has_set_stays_and_what_another_block_has_set_stays_until_both_end() -> None:
    spark: Any = Played(a="mine")
    with unless_set(spark, "a", "1"):
        assert spark.settings == {"a": "mine"}
    spark = Played()
    first = unless_set(spark, "a", "1")
    first.__enter__()
    second = unless_set(spark, "a", "9")
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.settings == {"a": "1"}
    second.__exit__(None, None, None)
    assert spark.settings == {}


def test_where_expressions_are_made_is_not_noted_in_a_block_and_is_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = utils.is_debugging_enabled
    monkeypatch.setattr(utils, "_enable_debugging_cache", True)

    @without_call_sites()
    def within(*, fails: bool) -> bool:
        with without_call_sites():
            assert not noted()
        if fails:
            raise KeyError
        return noted()

    for _ in range(2):  # a decorator works again
        assert not within(fails=False)
        assert noted()
    with pytest.raises(KeyError):
        within(fails=True)
    assert noted()
    monkeypatch.setattr(utils, "_enable_debugging_cache", False)
    within(fails=False)
    assert not noted(), "who has switched it off keeps that"
    monkeypatch.delattr(utils, "_enable_debugging_cache")
    with without_call_sites():
        assert not hasattr(utils, "_enable_debugging_cache"), "a PySpark without it"


@pytest.mark.parametrize("with_session", [True, False])
def test_the_first_block_of_a_process_finds_out_whether_expressions_are_noted(
    monkeypatch: pytest.MonkeyPatch, with_session: bool
) -> None:
    monkeypatch.setattr(utils, "_enable_debugging_cache", None)
    active = Played() if with_session else None
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: active)
    with without_call_sites():
        if with_session:
            assert not utils.is_debugging_enabled()
    # Without a session, PySpark would note the default of no session, and keep it.
    assert utils._enable_debugging_cache is (True if with_session else None)
