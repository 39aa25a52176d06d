"""The check of the wheel notices what is missing and what does not belong there."""

from __future__ import annotations

from check_wheel import COMPILED, NEEDED, faults

COMPLETE = [*NEEDED, *(f"{start}so" for start in COMPILED)]


def test_a_wheel_with_all_that_users_need_is_complete() -> None:
    assert faults(COMPLETE) == []


def test_a_file_that_is_missing_is_named() -> None:
    assert faults([name for name in COMPLETE if "types" not in name]) == ["rscylla/types/compiled.*: missing"]
    assert faults(COMPLETE[1:]) == ["rscylla/py.typed: missing"]


def test_a_file_that_is_not_of_the_product_is_named() -> None:
    assert faults([*COMPLETE, "tests/conftest.py"]) == ["tests/conftest.py: does not belong into a wheel"]
