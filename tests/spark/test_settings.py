"""Settings of a session in blocks that overlap, without Java: the session is played."""

from __future__ import annotations

from typing import Any

import pytest

from rscylla.spark.settings import unless_set, with_setting


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
