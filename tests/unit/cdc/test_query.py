"""CQL of log reads: names and bounds."""

from __future__ import annotations

import re

import pytest
from fakelog import order_of, stream_id
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.plan import ScanTask
from rscylla.cdc.query import first_row_cql, scan_cql, scan_values
from rscylla.types import quote_name


def unquoted(text: str) -> str:
    """Return the name that CQL reads from *text*."""
    if text.startswith('"'):
        assert text.endswith('"')
        assert '"' not in text[1:-1].replace('""', "")
        return text[1:-1].replace('""', '"')
    assert re.fullmatch(r"[a-zA-Z]\w*", text, re.ASCII)
    return text.lower()


@given(st.text(min_size=1) | st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True))
def test_names_come_back_as_they_are(name: str) -> None:
    assert unquoted(quote_name(name)) == name


@pytest.mark.parametrize("name", ["table", "order", "token", "select", "Orders", "1st", "a-b", "a b", 'a"b', "é", "_x"])
def test_names_that_need_quotes_get_them(name: str) -> None:
    assert quote_name(name).startswith('"')


@pytest.mark.parametrize("name", ["orders", "o1", "key", "value", "ttl", "a_b_"])
def test_names_that_need_none_stay_readable(name: str) -> None:
    assert quote_name(name) == name


def test_the_log_is_read_past_the_cache_in_half_open_spans() -> None:
    cql = scan_cql("ks", "Orders")
    assert 'FROM ks."Orders_scylla_cdc_log"' in cql
    assert '"cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE' in cql
    assert first_row_cql("ks", "t").endswith("PER PARTITION LIMIT 1 BYPASS CACHE")


@given(st.integers(0, 4 * 10**15), st.integers(0, 9), st.binary(min_size=8, max_size=8))
def test_bounds_are_below_every_timeuuid_of_their_microsecond_and_above_those_before(
    us: int, tick: int, low: bytes
) -> None:
    _, start, end = scan_values(ScanTask("k", "t", 0, (stream_id(1),), us, us + 1))
    ticks = us * 10 + tick + 0x01B21DD213814000
    head = (ticks & 0xFFFFFFFF).to_bytes(4, "big") + (ticks >> 32 & 0xFFFF).to_bytes(2, "big")
    raw = head + (ticks >> 48 & 0x0FFF | 0x1000).to_bytes(2, "big") + low
    assert order_of(start.bytes) <= order_of(raw) < order_of(end.bytes)  # type: ignore[attr-defined]
    assert start.version == 1 or start.bytes[6] >> 4 == 1  # type: ignore[attr-defined]
