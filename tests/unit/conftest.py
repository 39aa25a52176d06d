"""What all unit tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_fate_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch in the environment is for people; tests set it themselves."""
    monkeypatch.delenv("RSCYLLA_FATE", raising=False)
