"""The generations of a log, and their streams."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import pytest
from cassandra import OperationTimedOut
from fakelog import FakeLog, stream_id
from hypothesis import given
from hypothesis import strategies as st

from rscylla.cdc.log.topology import Generation, VnodeTopology, generation_at
from rscylla.embedded.cluster.generation import StreamRange, make_generation
from rscylla.errors import NoStreams, QueryTimeout


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
    """A node of a ring with Scylla's default settings."""

    shards: int
    ignore_msb: int = 12


@attrs.define
class Described:
    """A session that knows one generation, as Scylla describes it."""

    entries: Sequence[StreamRange]

    def rows(self, cql: str, values: object = (), **_: object) -> list[tuple[set[bytes] | None, int]]:
        assert "streams, range_end" in cql
        return [(set(entry.streams) or None, entry.range_end) for entry in reversed(self.entries)]


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


def test_tokens_that_were_chosen_in_another_way_tell_nothing_of_what_is_missing() -> None:
    tokens = [-3_000, -2_000, 1_000, 2_000]
    whole = make_generation(7, [(t, Owner(shards=2)) for t in tokens], lambda: 1).entries
    moved = [attrs.evolve(e, streams=[stream_id(e.range_end - 5, n)]) for n, e in enumerate(whole)]
    for entries in ([*moved[:2], whole[2], *moved[3:]], moved):
        assert VnodeTopology(Described(entries)).streams(Generation(7))  # type: ignore[arg-type]


def test_a_vnode_without_streams_is_missing() -> None:
    entries = make_generation(7, [(t, Owner(shards=1)) for t in (0, 100, 200)], lambda: 1).entries
    empty = [entries[0], attrs.evolve(entries[1], streams=()), entries[2]]
    with pytest.raises(NoStreams, match="lacks the streams of 1 of its 3 vnodes"):
        VnodeTopology(Described(empty)).streams(Generation(7))  # type: ignore[arg-type]


def test_streams_that_name_no_vnode_are_taken_as_they_are(log: FakeLog) -> None:
    topology = VnodeTopology(log)  # type: ignore[arg-type]
    log.generations[7] = [bytes(8) + bytes([n] * 8) for n in (0, 2, 4, 6)]
    assert len(topology.streams(Generation(7))) == 4


def test_errors_say_what_was_done(log: FakeLog) -> None:
    log.on_rows = lambda _: OperationTimedOut("late")
    with pytest.raises(QueryTimeout, match="reading the CDC generations"):
        VnodeTopology(log).generations()  # type: ignore[arg-type]
