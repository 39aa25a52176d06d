"""The compiled texts equal their twins in Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rscylla.types import natives

types = pytest.importorskip("rscylla.types.compiled")


def outcome(work: Any, *args: Any) -> Any:
    """Return what *work* returns, or the text of its error."""
    try:
        return work(*args)
    except ValueError as e:
        return str(e)


@given(st.binary(min_size=16, max_size=16) | st.binary(max_size=17))
def test_uuids(raw: bytes) -> None:
    assert outcome(types.uuid_text, raw) == outcome(natives.uuid_text, raw)
