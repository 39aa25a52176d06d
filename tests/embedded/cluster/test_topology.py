"""The ring, its generations, and which stream a write goes to: every window of Scylla's, checked against an oracle."""

from __future__ import annotations

import random
import struct
import uuid

import pytest
from cassandra.metadata import Murmur3Token
from hypothesis import given
from hypothesis import strategies as st

from rscylla.embedded.clock import ManualClock, NodeClock
from rscylla.embedded.cluster.generation import Generation, first_token_of_shard, shard_of, stream_id
from rscylla.embedded.cluster.topology import Cluster
from rscylla.embedded.errors import CqlError, InvalidRequest, ServerError
from rscylla.embedded.storage.tokens import MIN_TOKEN, murmur3_token

START_US = 1_800_000_000_000_000
SECOND = 1_000_000
MAX_TOKEN = (1 << 63) - 1

tokens = st.integers(MIN_TOKEN + 1, MAX_TOKEN)


def cluster_at(clock: ManualClock, **options: int) -> Cluster:
    return Cluster(clock=clock, seed=7, **options)


# ---------------------------------------------------------------- tokens


@given(st.binary(min_size=1, max_size=80))
def test_tokens_are_those_of_the_driver(key: bytes) -> None:
    assert murmur3_token(key) == Murmur3Token.hash_fn(key)


@pytest.mark.parametrize(
    ("key", "token"),
    [
        (b"123", -7468325962851647638),
        (b"\x00\xff\x10\xfa\x99" * 10, 5837342703291459765),
        (b"\xfe" * 8, -8927430733708461935),
        (b"\x10" * 8, 1446172840243228796),
        (b"9223372036854775807", 7162290910810015547),
        (b"", MIN_TOKEN),
    ],
)
def test_known_tokens(key: bytes, token: int) -> None:
    """Published values of Cassandra's partitioner, with bytes above 0x7f in the tail."""
    assert murmur3_token(key) == token


# ---------------------------------------------------------------- shards and stream ids


def naive_shard(token: int, shards: int, ignore_msb: int) -> int:
    """The shard by splitting the biased token's bits as text, without shifts."""
    bits = f"{token + (1 << 63):064b}"
    kept = bits[ignore_msb:] + "0" * ignore_msb
    return int(kept, 2) * shards // (1 << 64)


@given(tokens, st.integers(1, 40), st.integers(0, 20))
def test_the_shard_of_a_token(token: int, shards: int, ignore_msb: int) -> None:
    assert shard_of(token, shards, ignore_msb) == naive_shard(token, shards, ignore_msb)


@given(st.lists(st.integers(-200, 200), min_size=2, max_size=2), st.integers(1, 5), st.integers(0, 4), st.data())
def test_the_first_token_of_a_shard_by_trying_all(
    ends: list[int], shards: int, scale: int, data: st.DataObject
) -> None:
    """In a short range every token can be tried; ``ignore_msb`` is large so that shards change every few tokens."""
    ignore_msb = 60 - scale
    base = data.draw(st.sampled_from([0, MIN_TOKEN + 201, MAX_TOKEN - 200]))
    start, end = sorted(base + e for e in ends)
    shard = data.draw(st.integers(0, shards - 1))
    found = [t for t in range(start + 1, end + 1) if naive_shard(t, shards, ignore_msb) == shard]
    if start < end:
        assert first_token_of_shard(start, end, shard, shards, ignore_msb) == (found[0] if found else end)


def test_the_first_token_of_a_shard_in_a_range_that_wraps_around() -> None:
    """Up to the top of the ring first, then from the bottom; the bottom itself is no token."""
    start, end = MAX_TOKEN - 3, MIN_TOKEN + 20
    around = [*range(start + 1, MAX_TOKEN), *range(MIN_TOKEN + 1, end + 1)]
    for shard in range(4):
        found = [t for t in around if naive_shard(t, 4, 60) == shard]
        assert first_token_of_shard(start, end, shard, 4, 60) == found[0]


def test_the_layout_of_a_stream_id() -> None:
    made = stream_id(-2, 5, (1 << 64) - 1)
    token, low = struct.unpack(">qQ", made)
    assert (token, low & 0xF, (low >> 4) & 0x3FFFFF, low >> 26) == (-2, 1, 5, (1 << 38) - 1)


@pytest.mark.parametrize(("nodes", "shards", "vnodes"), [(1, 1, 1), (1, 2, 8), (3, 3, 16), (2, 7, 2)])
def test_a_generation_has_a_stream_for_each_vnode_and_shard(nodes: int, shards: int, vnodes: int) -> None:
    cluster = cluster_at(ManualClock(START_US), nodes=nodes, shards=shards, vnodes=vnodes)
    [generation] = cluster.generations
    ring = sorted(t for node in cluster.nodes for t in node.tokens)
    assert ring == [entry.range_end for entry in generation.entries]
    assert nodes * shards * vnodes == len(set(generation.streams))
    for index, entry in enumerate(generation.entries):
        assert shards == len(entry.streams)
        assert sorted(entry.streams) == list(entry.streams)
        for stream in entry.streams:
            token, low = struct.unpack(">qQ", stream)
            assert (low & 0xF, (low >> 4) & 0x3FFFFF) == (1, index)
            assert within(token, ring[index - 1], ring[index])


def within(token: int, start: int, end: int) -> bool:
    return start < token <= end if start < end else token > start or token <= end


# ---------------------------------------------------------------- which stream


def naive_stream(generation: Generation, token: int) -> bytes:
    """The stream of a token, walking the ring from its start."""
    entries = sorted(generation.entries, key=lambda e: e.range_end)
    chosen = next((e for e in entries if token <= e.range_end), entries[0])
    streams = sorted(chosen.streams)
    return streams[naive_shard(token, len(streams), chosen.ignore_msb)]


def naive_choice(cluster: Cluster, token: int, ts_us: int, now_us: int) -> bytes | str:
    """The rule of each case written out: a stream id, or "future", "past", "none"."""
    leeway = 5 * SECOND
    times = [g.time_ms * 1000 for g in cluster.generations]
    if ts_us > now_us + leeway:
        return "future"
    settled = [t for t in times if t <= now_us - leeway]
    if ts_us <= now_us - leeway:
        if not settled or ts_us < settled[-1]:
            return "past"
        current = [t for t in times if t <= now_us][-1]
        if settled[-1] != current:
            return "past"
    known = times[times.index(settled[-1]) :] if settled else times
    covering = [t for t in known if t <= ts_us]
    if not covering:
        return "none"
    return naive_stream(cluster.generations[times.index(covering[-1])], token)


def choice(cluster: Cluster, token: int, ts_us: int, now_us: int) -> bytes | str:
    try:
        return cluster.stream_for(None, token, ts_us, now_us)
    except CqlError as error:
        return kind_of_refusal(error)


def kind_of_refusal(error: CqlError) -> str:
    """Name the case, and check that code and opening words are those of Scylla."""
    if isinstance(error, ServerError):
        assert error.message.startswith("cdc::metadata::get_stream: could not find any CDC stream for timestamp ")
        return "none"
    assert isinstance(error, InvalidRequest)
    side = "future" if "future" in error.message else "past"
    assert error.message.startswith(f'cdc: attempted to get a stream "from the {side}"')
    return side


offsets = st.one_of(
    st.integers(-40, 40).map(lambda s: s * SECOND),
    st.integers(-40_000_000, 40_000_000),
    st.sampled_from([-5 * SECOND, -5 * SECOND - 1, -5 * SECOND + 1, 5 * SECOND, 5 * SECOND + 1, 0, -1]),
)


@given(tokens, st.lists(st.integers(1, 20_000), max_size=4), st.integers(0, 60 * SECOND), offsets, st.booleans())
def test_the_choice_is_that_of_the_oracle(
    token: int, delays: list[int], later_us: int, offset_us: int, near_a_switch: bool
) -> None:
    clock = ManualClock(START_US)
    cluster = cluster_at(clock, nodes=2, shards=3, vnodes=3)
    for delay in delays:
        last_ms = cluster.generations[-1].time_ms
        cluster.new_generation(max(last_ms - START_US // 1000, 0) + delay)
    now_us = START_US + later_us
    ts_us = cluster.generations[-1].time_us + offset_us if near_a_switch else now_us + offset_us
    assert choice(cluster, token, ts_us, now_us) == naive_choice(cluster, token, ts_us, now_us)


def test_a_range_contains_its_end_and_not_its_start() -> None:
    [generation] = cluster_at(ManualClock(START_US), shards=3, vnodes=5).generations
    for entry in generation.entries:
        for token in (entry.range_end, entry.range_end + 1):
            assert generation.stream_of(token) == naive_stream(generation, token)


def switching() -> tuple[ManualClock, Cluster, int]:
    """A cluster with a switch of generations 60 s after its start; returns the time of the switch."""
    clock = ManualClock(START_US)
    cluster = cluster_at(clock)
    cluster.add_node(60_000)
    return clock, cluster, START_US + 60 * SECOND


@pytest.mark.parametrize(
    ("now_after_switch_s", "ts_after_switch_s", "outcome"),
    [
        (-30, -30, 0),
        (-30, -59.9, 0),  # older than 5 s, inside the current generation: however old
        (-30, -60.1, "past"),
        (-30, -24.9, "future"),
        (-30, -25, 0),
        (-2, 2, 1),  # ahead of the clock, already in the next generation
        (-2, -8, 0),  # the old generation is still the current one
        (-0.000001, -6, 0),
        (0, -6, "past"),  # at the very switch the old generation is not current any more
        (1, 0.5, 1),
        (1, -0.5, 0),  # the previous generation, less than 5 s ago
        (1, -3.999999, 0),
        (1, -4, "past"),  # exactly 5 s ago, and the generation of then is not current any more
        (1, -30, "past"),
        (4.9, -0.05, 0),
        (10, 0, 1),
        (10, -0.000001, "past"),
        (3600, 0, 1),
        (3600, -1, "past"),
    ],
)
def test_timestamp_windows_around_a_switch(
    now_after_switch_s: float, ts_after_switch_s: float, outcome: int | str
) -> None:
    _, cluster, switch_us = switching()
    now_us = switch_us + round(now_after_switch_s * SECOND)
    ts_us = switch_us + round(ts_after_switch_s * SECOND)
    expected = outcome if isinstance(outcome, str) else cluster.generations[outcome].stream_of(42)
    assert choice(cluster, 42, ts_us, now_us) == expected


def test_a_fresh_cluster_takes_no_timestamp_from_before_its_first_generation() -> None:
    cluster = cluster_at(ManualClock(START_US))
    assert choice(cluster, 42, START_US - 1, START_US) == "none"
    assert choice(cluster, 42, START_US - 6 * SECOND, START_US) == "past"
    assert choice(cluster, 42, START_US, START_US) == cluster.generations[0].stream_of(42)


def test_timestamps_beyond_the_calendar_are_refused_and_not_a_crash() -> None:
    cluster = cluster_at(ManualClock(START_US))
    assert choice(cluster, 42, MAX_TOKEN, START_US) == "future"
    assert choice(cluster, 42, 123, START_US + 3600 * SECOND) == "past"
    assert choice(cluster, 42, MIN_TOKEN, START_US) == "past"


# ---------------------------------------------------------------- when generations change


def test_the_first_generation_takes_effect_at_once() -> None:
    cluster = cluster_at(ManualClock(START_US + 999))
    assert [g.time_ms for g in cluster.generations] == [START_US // 1000]


def test_a_joining_node_starts_a_generation_after_twice_the_ring_delay_and_five_seconds() -> None:
    clock = ManualClock(START_US)
    cluster = cluster_at(clock)
    clock.advance(10)
    node = cluster.add_node()
    assert cluster.generations[-1].time_ms == START_US // 1000 + 75_000
    assert set(node.tokens) < {e.range_end for e in cluster.generations[-1].entries}
    assert not set(node.tokens) & {e.range_end for e in cluster.generations[0].entries}


def test_a_node_may_have_more_shards_than_the_others() -> None:
    cluster = cluster_at(ManualClock(START_US))
    node = cluster.add_node(shards=5)
    new = cluster.generations[-1]
    assert {len(e.streams) for e in new.entries if e.range_end in node.tokens} == {5}
    assert {len(e.streams) for e in new.entries if e.range_end not in node.tokens} == {2}
    with pytest.raises(ValueError, match="shards"):
        cluster.add_node(shards=0)
    assert (len(cluster.nodes), len(cluster.generations)) == (2, 2)


def test_a_second_node_joining_in_the_same_millisecond_gets_a_later_generation() -> None:
    cluster = cluster_at(ManualClock(START_US))
    cluster.add_node()
    cluster.add_node()
    first, second, third = (g.time_ms for g in cluster.generations)
    assert (first + 65_000, second + 1) == (second, third)


def test_streams_of_a_new_generation_are_all_new() -> None:
    cluster = cluster_at(ManualClock(START_US))
    cluster.new_generation()
    old, new = cluster.generations
    assert [e.range_end for e in old.entries] == [e.range_end for e in new.entries]
    assert not set(old.streams) & set(new.streams)


def test_a_generation_without_delay_starts_after_what_is_already_written() -> None:
    clock = ManualClock(START_US + 500)
    cluster = cluster_at(clock)
    generation = cluster.new_generation(0)
    assert generation.time_us > clock.now_us()


def test_a_generation_before_one_that_is_announced_is_refused_and_changes_nothing() -> None:
    cluster = cluster_at(ManualClock(START_US))
    cluster.add_node()
    with pytest.raises(ValueError, match="longer delay"):
        cluster.add_node(1000)
    with pytest.raises(ValueError, match="in the past"):
        cluster.new_generation(-1)
    assert (len(cluster.nodes), len(cluster.generations)) == (2, 2)


def test_a_leaving_node_makes_no_generation() -> None:
    cluster = cluster_at(ManualClock(START_US), nodes=3)
    cluster.remove_node(1)
    assert [n.index for n in cluster.nodes] == [0, 2]
    assert [n.address for n in cluster.nodes] == ["127.0.0.1", "127.0.0.3"]
    assert len(cluster.generations) == 1
    with pytest.raises(KeyError):
        cluster.node(1)


def test_the_last_node_stays() -> None:
    cluster = cluster_at(ManualClock(START_US))
    with pytest.raises(ValueError, match="last node"):
        cluster.remove_node(0)


def test_a_seed_repeats_the_whole_cluster() -> None:
    first, second, other = (Cluster(2, seed=seed, clock=ManualClock(START_US)) for seed in (1, 1, 2))
    assert first.generations == second.generations
    assert [n.host_id for n in first.nodes] == [n.host_id for n in second.nodes]
    assert first.generations != other.generations
    assert all(n.host_id.version == 4 and n.host_id.variant == uuid.RFC_4122 for n in first.nodes)


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"shards": 0}, {"vnodes": 0}, {"ring_delay_ms": -1}])
def test_impossible_clusters_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Cluster(**wrong)


# ---------------------------------------------------------------- clocks


def test_a_driven_clock_moves_only_on_request() -> None:
    clock = ManualClock(START_US)
    clock.advance(0.25)
    assert clock.now_us() == START_US + 250_000
    with pytest.raises(ValueError, match="negative"):
        clock.advance(-1)
    clock.set_us(5)
    assert clock.now_us() == 5


def test_a_node_sees_its_own_time() -> None:
    clock = ManualClock(START_US)
    node = NodeClock(clock, skew_us=-3 * SECOND)
    assert node.now_us() == START_US - 3 * SECOND


def test_the_shards_of_a_large_ring_are_evenly_used() -> None:
    """A thousand keys reach every stream of a small ring: the choice is by token, not by chance."""
    cluster = cluster_at(ManualClock(START_US), shards=2, vnodes=4)
    source = random.Random(3)
    used = {cluster.stream_for(None, murmur3_token(source.randbytes(8)), START_US, START_US) for _ in range(1000)}
    assert used == set(cluster.generations[0].streams)


def test_a_restored_cluster_continues_as_the_first_would_have() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    first = Cluster(2, clock=clock, seed=1)
    first.add_node(0)
    first.remove_node(0)
    second = Cluster(1, clock=clock, seed=2)
    second.restore(first.state())
    assert second.state() == first.state()
    for cluster in (first, second):
        cluster.new_generation(10)
        cluster.add_node(20)
    assert second.state() == first.state()
    assert [node.index for node in second.nodes] == [1, 2, 3]


def test_listeners_hear_of_each_change() -> None:
    cluster = Cluster(2, clock=ManualClock(1_700_000_000_000_000), seed=1)
    heard: list[tuple[int, int]] = []
    cluster.listeners.append(lambda: heard.append((len(cluster.nodes), len(cluster.generations))))
    cluster.add_node(0)
    cluster.new_generation(10)
    cluster.remove_node(0)
    assert heard == [(3, 2), (3, 3), (2, 3)]
