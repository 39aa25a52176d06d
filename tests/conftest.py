"""Settings that hold for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are shared: how long one example takes says nothing of the code.
settings.register_profile("rscylla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rscylla")

pytest.register_assert_rewrite("eventcontracts", "groupcontracts", "leasecontracts", "lettercontracts")


SLOW = ("pipeline", "interop")
"""Directories whose tests are all slow: each starts servers, drivers and often processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    directories = tuple(Path(__file__).parent / name for name in SLOW)
    for item in items:
        if any(item.path.is_relative_to(directory) for directory in directories):
            item.add_marker("slow")
