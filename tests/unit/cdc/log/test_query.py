"""Log reads as CQL: groups of streams, names and bounds."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise

import pytest
from cassandra.murmur3 import murmur3
from fakelog import order_of, stream_id
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla._tokens import vnode_of
from rscylla.cdc.log.query import (
    ScanTask,
    StreamGroup,
    first_row_cql,
    group_streams,
    scan_cql,
    scan_values,
    tasks_for,
    times_cql,
)
from rscylla.cdc.log.routing import routing_key_of
from rscylla.cdc.log.walk import LogWindow
from rscylla.cdc.read.settings import StreamSettings
from rscylla.cdc.rows import token_of_key
from rscylla.errors import ConfigError
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
    assert times_cql("ks", "t") == first_row_cql("ks", "t").replace("PER PARTITION LIMIT 1 ", "")


@given(st.integers(0, 4 * 10**15), st.integers(0, 9), st.binary(min_size=8, max_size=8))
def test_bounds_are_below_every_timeuuid_of_their_microsecond_and_above_those_before(
    us: int, tick: int, low: bytes
) -> None:
    _, start, end = scan_values(ScanTask("k", "t", 0, StreamGroup([stream_id(1)]), us, us + 1))
    ticks = us * 10 + tick + 0x01B21DD213814000
    head = (ticks & 0xFFFFFFFF).to_bytes(4, "big") + (ticks >> 32 & 0xFFFF).to_bytes(2, "big")
    raw = head + (ticks >> 48 & 0x0FFF | 0x1000).to_bytes(2, "big") + low
    assert order_of(start) <= order_of(raw) < order_of(end)
    assert start[6] >> 4 == 1


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 100))
def test_groups_hold_every_stream_once_within_the_limit(sizes: list[int], limit: int) -> None:
    streams = [stream_id(vnode * 1000 + n, vnode) for vnode, size in enumerate(sizes) for n in range(size)]
    groups = group_streams(streams, limit=limit)
    assert [s for g in groups for s in g] == streams
    assert all(0 < len(g) <= limit for g in groups)
    for vnode, size in enumerate(sizes):
        parts = sum(any(vnode_of(s) == vnode for s in g) for g in groups)
        assert parts <= -(-size // limit) + (size > limit), "a vnode that fits is not cut"
    if max(sizes, default=0) <= limit:
        assert all(len(a) + size_of_first(b) > limit for a, b in pairwise(groups))


def size_of_first(group: tuple[bytes, ...]) -> int:
    """Return the number of streams of the group's first vnode."""
    return sum(vnode_of(s) == vnode_of(group[0]) for s in group)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), max_size=40), st.integers(1, 100))
def test_streams_of_the_same_replicas_are_in_the_same_groups(vnodes: list[tuple[int, int]], limit: int) -> None:
    """At most one group more for each set of replicas than if they did not matter."""
    streams = [stream_id(vnode * 1000 + n, vnode) for vnode, (size, _) in enumerate(vnodes) for n in range(size)]
    asked: list[bytes] = []

    def replicas_of(stream: bytes) -> tuple[str, ...]:
        asked.append(stream)
        return ("abcd"[vnodes[vnode_of(stream) or 0][1]],)

    groups = group_streams(streams, limit=limit, replicas_of=replicas_of)
    assert len(asked) == len(vnodes), "a vnode is asked for once"
    assert sorted(s for g in groups for s in g) == sorted(streams)
    assert all(0 < len(g) <= limit for g in groups)
    sets = {where for _, where in vnodes}
    assert len(groups) <= -(-len(streams) // limit) + len(sets)
    mixed = [g for g in groups if len({replicas_of(s) for s in g}) > 1]
    assert len(mixed) < max(1, len(sets))


def test_streams_of_before_versions_are_grouped_too() -> None:
    old = [n.to_bytes(8, "big") + b"\x00" * 8 for n in range(250)]
    assert [len(g) for g in group_streams(old)] == [100, 100, 50]


def test_streams_of_tablets_are_grouped_whole_and_bounded() -> None:
    tablets = [stream_id(n) for n in range(7)]
    assert group_streams(tablets, limit=3) == (tuple(tablets[:3]), tuple(tablets[3:6]), tuple(tablets[6:]))


@pytest.mark.parametrize("limit", [0, -1, 101])
def test_a_group_larger_than_the_server_allows_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 100"):
        group_streams([stream_id(1)], limit=limit)
    with pytest.raises(ConfigError, match="from 1 to 100"):
        StreamSettings(streams_per_query=limit)


def test_tasks_can_be_sent_to_other_processes_and_show_no_ids() -> None:
    (task,) = tasks_for(LogWindow(1, 2, 3), [StreamGroup([stream_id(1), stream_id(2)])], keyspace="k", table="t")
    assert pickle.loads(pickle.dumps(task)) == task
    assert "streams=<2>" in repr(task)


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
@example(-1)
def test_the_routing_key_of_a_stream_hashes_to_its_token(token: int) -> None:
    key = routing_key_of(stream_id(token))
    assert len(key) == 16
    assert token_of_key(key) == (token if token > -(2**63) else 2**63 - 1), "no ring has the least token"
    assert murmur3(key) == token, "the hash of the driver's pure module"


def test_a_group_goes_where_its_middle_stream_is() -> None:
    group = StreamGroup([stream_id(n) for n in range(5)])
    assert group.routing_key == routing_key_of(stream_id(2))
