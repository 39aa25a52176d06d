"""What is read of the cluster: the table, its options, generations, streams, clocks."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import attrs
import pytest
from cassandra import OperationTimedOut
from fakelog import NOW_US, SECOND, FakeLog, Host, pack_options, stream_id
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.query import LOG_SUFFIX
from rscylla.cdc.topology import (
    LOG_DROP_AHEAD_US,
    Generation,
    NodeClocks,
    VnodeTopology,
    _cdc_options,
    generation_at,
    read_table,
)
from rscylla.embedded.cluster.generation import StreamRange, make_generation
from rscylla.errors import MetadataError, NoStreams, QueryTimeout


@given(st.dictionaries(st.text(), st.text(), max_size=6))
def test_options_are_read_as_scylla_packs_them(options: dict[str, str]) -> None:
    packed = pack_options(**options)
    assert _cdc_options(packed) == options


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), min_size=1, max_size=3), st.data())
def test_options_that_are_cut_are_refused(options: dict[str, str], data: st.DataObject) -> None:
    packed = pack_options(**options)
    with pytest.raises(MetadataError, match="cannot be read"):
        _cdc_options(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_no_options_are_none() -> None:
    assert _cdc_options(None) is None


@given(st.lists(st.integers(0, 1000), unique=True, min_size=1), st.integers(-5, 1005))
def test_the_generation_of_a_time_is_the_last_that_started(times: list[int], ms: int) -> None:
    generations = tuple(Generation(t) for t in sorted(times))
    found = generation_at(generations, ms * 1000)
    assert found == sum(t <= ms for t in times) - 1


def test_generations_are_sorted_and_streams_in_order_of_token(log: FakeLog) -> None:
    ids = [stream_id(t) for t in (5, -5, 2**62, -(2**63))]
    for ms in (5000, 3000, 4000):
        log.generation(ms * 1000, ids)
    topology = VnodeTopology(log)  # type: ignore[arg-type]
    assert topology.generations() == (Generation(3000), Generation(4000), Generation(5000))
    assert topology.streams(Generation(4000)) == tuple(ids[i] for i in (3, 1, 0, 2))
    asked = len(log.metadata)
    topology.streams(Generation(4000))
    assert len(log.metadata) == asked


def test_an_empty_set_of_streams_is_an_error_and_not_kept(log: FakeLog) -> None:
    topology = VnodeTopology(log)  # type: ignore[arg-type]
    with pytest.raises(NoStreams):
        topology.streams(Generation(7))
    log.generations[7] = [stream_id(1)]
    assert topology.streams(Generation(7)) == (stream_id(1),)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_generation_that_lacks_vnodes_is_an_error_and_not_kept(log: FakeLog, missing: int) -> None:
    topology = VnodeTopology(log)  # type: ignore[arg-type]
    whole = [stream_id(100 * vnode + n, vnode) for vnode in range(4) for n in range(2)]
    log.generations[7] = [s for s in whole if s not in whole[2 * missing : 2 * missing + 2]]
    with pytest.raises(NoStreams, match="lacks the streams of 1 of its 4 vnodes"):
        topology.streams(Generation(7))
    log.generations[7] = whole
    assert topology.streams(Generation(7)) == tuple(whole)


@attrs.frozen
class Owner:
    """A node of a ring, as Scylla is set up unless told otherwise."""

    shards: int
    ignore_msb: int = 12


@attrs.define
class Described:
    """A session that knows one generation, as Scylla describes it."""

    entries: Sequence[StreamRange]

    def rows(self, cql: str, values: object = (), **_: object) -> list[tuple[set[bytes], int]]:
        assert "streams, range_end" in cql
        return [(set(entry.streams), entry.range_end) for entry in reversed(self.entries)]


@pytest.mark.parametrize("seed", range(20))
def test_a_generation_that_lacks_its_last_vnodes_is_an_error(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [Owner(shards=dice.choice([1, 2, 7])) for _ in range(3)]
    tokens = [dice.randrange(-(2**63), 2**63) for _ in range(12)]
    entries = make_generation(7, [(t, dice.choice(nodes)) for t in tokens], lambda: dice.getrandbits(64)).entries
    whole = VnodeTopology(Described(entries))  # type: ignore[arg-type]
    assert len(whole.streams(Generation(7))) == sum(len(entry.streams) for entry in entries)
    for kept in range(2, len(entries)):
        with pytest.raises(NoStreams, match="lacks the streams of its last vnodes"):
            VnodeTopology(Described(entries[:kept])).streams(Generation(7))  # type: ignore[arg-type]


def test_a_generation_of_one_vnode_and_one_that_ends_at_the_last_token_are_whole() -> None:
    for tokens in ([5], [2**63 - 1], [-7, 2**63 - 1], [-7, 2**63 - 2], [-7, 2**63 - 3]):
        entries = make_generation(7, [(t, Owner(shards=2)) for t in tokens], lambda: 1).entries
        assert VnodeTopology(Described(entries)).streams(Generation(7))  # type: ignore[arg-type]


def test_streams_that_name_no_vnode_are_taken_as_they_are(log: FakeLog) -> None:
    topology = VnodeTopology(log)  # type: ignore[arg-type]
    log.generations[7] = [bytes(8) + bytes([n] * 8) for n in (0, 2, 4, 6)]
    assert len(topology.streams(Generation(7))) == 4


def test_a_table_is_read_with_its_keys_in_order(clock: object) -> None:
    base = (("b", "clustering", "int"), ("a", "partition_key", "int"), ("s", "static", "text"), ("v", "regular", "int"))
    log = FakeLog(clock, base=base, ttl_s=7)  # type: ignore[arg-type]
    table = read_table(log, "ks", "t")  # type: ignore[arg-type]
    assert (table.ttl_s, table.enabled, table.log_id) == (7, True, log.log_id)
    assert [c.name for c in (*table.partition_key, *table.clustering_key)] == ["a", "b"]


# ---------------------------------------------------------------- clocks


def test_the_slowest_clock_counts_and_faster_ones_do_not(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", 0), Host("b", -3 * SECOND), Host("c", 9 * SECOND)]
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - 3 * SECOND, abs=1000)
    assert clocks.skew_us["a"] == 0


def test_a_node_that_does_not_answer_keeps_its_last_value(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", -5 * SECOND)]
    clocks.sample()
    log.nodes = [Host("a", None), Host("never", None)]
    clocks.sample()
    assert clocks.skew_us.keys() == {"a"}
    assert clocks.slowest_us() == pytest.approx(NOW_US - 5 * SECOND, abs=1000)
    log.nodes = [Host("b", -SECOND)]
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - SECOND, abs=1000), "a node that has gone counts no more"


def test_the_clock_of_a_node_that_falls_silent_still_holds_the_windows_back(log: FakeLog) -> None:
    """It may still take writes, and stamps them with the clock that it had."""
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", 0), Host("b", -5 * SECOND)]
    clocks.sample()
    log.nodes = [Host("a", 0), Host("b", None)]
    log.clock.advance(10)
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US + 5 * SECOND, abs=1000)
    assert clocks.skew_us["b"] == pytest.approx(-5 * SECOND, abs=1000)


def test_while_all_nodes_are_away_their_clocks_count_and_not_that_of_the_client(log: FakeLog) -> None:
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    log.nodes = [Host("a", -7200 * SECOND), Host("b", -7201 * SECOND)]
    clocks.sample()
    log.nodes = []
    clocks.sample()
    assert clocks.slowest_us() == pytest.approx(NOW_US - 7201 * SECOND, abs=1000)
    assert clocks.skew_us == pytest.approx({"a": -7200 * SECOND, "b": -7201 * SECOND}, abs=1000)


def test_a_table_is_looked_up_among_its_own_and_not_all_of_its_keyspace(log: FakeLog) -> None:
    read_table(log, "ks", "t")  # type: ignore[arg-type]
    (asked,) = [cql for cql in log.metadata if "system_schema.tables" in cql]
    assert "table_name IN" in asked


def test_the_time_an_answer_takes_is_no_skew(log: FakeLog) -> None:
    log.nodes = [Host("a", 0)]
    log.on_rows = lambda _: log.clock.advance(0.25)  # type: ignore[assignment,func-returns-value]
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    clocks.sample()
    assert clocks.skew_us == {"a": 0}


def test_skew_is_told_once_until_it_is_gone(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clocks = NodeClocks(log, log.clock)  # type: ignore[arg-type]
    for skew in (2, 2, 0, 2):
        log.nodes = [Host("a", skew * SECOND)]
        clocks.sample()
    assert len(caplog.records) == 2


def test_errors_say_what_was_done(log: FakeLog) -> None:
    log.on_rows = lambda _: OperationTimedOut("late")
    with pytest.raises(QueryTimeout, match="reading the CDC generations"):
        VnodeTopology(log).generations()  # type: ignore[arg-type]


@pytest.mark.parametrize("per_ms", [1, 1000], ids=["milliseconds", "microseconds, as Scylla"])
def test_the_time_of_a_rename_is_told_in_either_unit(log: FakeLog, per_ms: int) -> None:
    at_ms = NOW_US // 1000
    name = log.table + LOG_SUFFIX
    log.dropped = [
        (name, "gone", "int", (at_ms + 9000) * per_ms),
        (name, "cdc$deleted_gone", "boolean", (at_ms + 9000) * per_ms),
        (name, "ck", "int", at_ms * per_ms),
        (log.table, "gone", "int", at_ms * per_ms),
    ]
    table = read_table(log, log.keyspace, log.table)  # type: ignore[arg-type]
    assert table.dropped == (("gone", "int"),)
    assert table.renamed_us is not None
    assert 0 <= table.renamed_us + LOG_DROP_AHEAD_US - at_ms * 1000 < 1000
    assert table.may_lack_keys(at_ms * 1000 - SECOND)
    assert not table.may_lack_keys(at_ms * 1000 + SECOND)
    assert "renamed at 20" in table.lost_keys
