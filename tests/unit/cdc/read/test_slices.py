"""Slices of a table: which streams each reads, and that together they deliver everything once, in the order of keys."""

from __future__ import annotations

import random
import struct
from datetime import timedelta
from typing import Any

import pytest
from fakelog import NOW_US, SECOND, FakeLog, body_of, stream_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logcells import BASE, LAYOUT, cells, layout_of
from slicescripts import Owner, build, key_of, name_of, rings, scripts

from rscylla._tokens import Slice, slice_at
from rscylla.cdc.client import Client
from rscylla.cdc.log.topology import TabletTopology, VnodeTopology
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.read.slices import Part, part_of
from rscylla.cdc.rows import LogRows, new_rows, token_of_key
from rscylla.cdc.rows.rows import routing_key
from rscylla.cdc.stream import NewStream, Stream
from rscylla.driver.pages import Page
from rscylla.embedded.cluster.generation import Generation, make_generation
from rscylla.embedded.storage.tokens import murmur3_token
from rscylla.errors import ConfigError, HeadReached
from rscylla.event import Event, EventID, Progress
from rscylla.options import StreamLag, StreamToHead
from rscylla.testing import ManualClock

LAG_US = 30 * SECOND

VNODES = VnodeTopology(FakeLog(ManualClock())).ranges  # type: ignore[arg-type]
TABLETS = TabletTopology(FakeLog(ManualClock()), "ks", "t").ranges  # type: ignore[arg-type]


def in_order(generation: Generation) -> tuple[bytes, ...]:
    return tuple(sorted(generation.streams, key=lambda s: (int.from_bytes(s[:8], "big", signed=True), s)))


@given(rings(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.integers(2, 9))
def test_the_slice_of_a_key_reads_the_stream_of_the_key(ring: Generation, tokens: list[int], count: int) -> None:
    streams = in_order(ring)
    parts = [part_of(streams, [Slice(i, count)], VNODES) for i in range(count)]
    for token in (*tokens, *(e.range_end for e in ring.entries)):
        stream = ring.stream_of(token)
        owner = slice_at(token, count)
        assert stream in parts[owner].streams
        readers = [i for i, part in enumerate(parts) if stream in part.streams]
        # Who shares a stream knows with whom, so that they agree on whose a row is.
        assert [list(parts[i].shared.get(stream, (i,))) for i in readers] == [readers] * len(readers)
    assert {s for part in parts for s in part.streams} == set(streams)
    assert all(list(part.streams) == [s for s in streams if s in part.streams] for part in parts)


@given(st.integers(0, 6), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.integers(2, 9))
def test_tablets_are_cut_where_they_are(bits: int, tokens: list[int], count: int) -> None:
    ends = [-(2**63) + (i + 1) * 2 ** (64 - bits) - 1 for i in range(2**bits)]
    streams = [
        end.to_bytes(8, "big", signed=True) + (salt << 26 | 1).to_bytes(8, "big") for salt, end in enumerate(ends)
    ]
    parts = [part_of(streams, [Slice(i, count)], TABLETS) for i in range(count)]
    for token in tokens:
        stream = next(s for s, end in zip(streams, ends, strict=True) if end >= token)
        assert stream in parts[slice_at(token, count)].streams
    if 2**bits % count == 0:
        assert sum(len(part.streams) for part in parts) == len(streams)
        assert not any(part.shared for part in parts)


def test_most_streams_have_one_reader() -> None:
    """n processes must not read the table n times: only what lies at the edges of slices is read twice."""
    dice = random.Random(1)
    ring = make_generation(
        0, [(dice.getrandbits(64) - 2**63, Owner(12)) for _ in range(1024)], lambda: dice.getrandbits(38)
    )
    parts = [part_of(in_order(ring), [Slice(i, 8)], VNODES) for i in range(8)]
    read = sum(len(part.streams) for part in parts)
    assert read <= len(ring.streams) * 1.03
    assert max(len(part.streams) for part in parts) < len(ring.streams) / 4


def test_streams_without_a_vnode_are_read_by_all_slices() -> None:
    old = [t.to_bytes(8, "big", signed=True) + b"\x00" * 7 + b"\x07" for t in range(-3, 3)]
    mixed = [stream_id(-(2**62), 1), stream_id(0, 0), stream_id(2**62, 1)]  # no ring has vnodes in such an order
    for streams in (old, mixed):
        for i in range(3):
            part = part_of(streams, [Slice(i, 3)], VNODES)
            assert list(part.streams) == streams
            assert set(part.shared.values()) == {(0, 1, 2)}


@given(st.binary(min_size=1, max_size=80))
def test_tokens_of_keys_are_those_of_the_database(key: bytes) -> None:
    assert token_of_key(key) == murmur3_token(key)


def test_keys_of_several_columns() -> None:
    assert routing_key([b"abc"]) == b"abc"
    assert routing_key([b"abc", b"", None]) == b"\x00\x03abc\x00\x00\x00\x00\x00\x00\x00"


# ---------------------------------------------------------------- rows


class WithoutCells:
    """Rows of a window that refuse to make an object of each cell."""

    def __init__(self, rows: LogRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Any:
        assert name != "cells"
        return getattr(self._rows, name)


def keys_in(rows: LogRows) -> list[int]:
    return [int.from_bytes(c[rows.layout_at(i).keys[0].index] or b"", "big") for i, c in enumerate(rows.cells)]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_rows_of_a_shared_stream_are_kept_by_the_slice_of_their_key(is_mixed: bool) -> None:
    """It is found from the columns of the key alone: with an object for each cell, two slices cost twice a reader."""
    own, shared = stream_id(1), stream_id(5)
    part = Part(2, (1,), (own, shared), {shared: (0, 1)}, {own: 1})
    rows = new_rows()
    for base in (BASE, BASE[:3])[: 1 + is_mixed]:
        layout = layout_of(base)
        page = [
            cells({"cdc$stream_id": s, "cdc$batch_seq_no": 0, "pk": pk}, layout.columns)
            for pk in range(20)
            for s in (own, shared)
        ]
        rows = rows.add(Page(layout.columns, body_of(page), 0, None), layout)
    expected = []
    for pk in range(20):
        expected += [pk] * (1 + slice_at(murmur3_token(struct.pack(">i", pk)), 2))
    part.keep_own(rows if is_mixed else WithoutCells(rows), token_of_key)
    assert rows.is_mixed == is_mixed
    assert keys_in(rows) == expected * (1 + is_mixed)


def test_a_key_that_no_reader_of_its_stream_owns_is_kept_by_the_first_of_them() -> None:
    stream = stream_id(5)
    for index, count in ((1, 10), (2, 0)):
        part = Part(3, (index,), (stream,), {stream: (1, 2)}, {})
        rows = new_rows()
        page = [cells({"cdc$stream_id": stream, "cdc$batch_seq_no": 0, "pk": FOREIGN}, LAYOUT.columns)] * 10
        rows = rows.add(Page(LAYOUT.columns, body_of(page), 0, None), LAYOUT)
        part.keep_own(rows, token_of_key)
        assert len(rows) == count


FOREIGN = next(pk for pk in range(99) if slice_at(murmur3_token(struct.pack(">i", pk)), 3) == 0)
"""A key of the first of three slices."""


# ---------------------------------------------------------------- whole streams


def stream_of(log: FakeLog, script: dict[str, Any], index: int) -> Stream:
    return NewStream(
        log,  # type: ignore[arg-type]
        "ks",
        "t",
        key_slice=(index, script["count"]),
        granularity=script["granularity"],
        limits=script["limits"],
        progress_every=timedelta(),
        prefetch=0,
        clock=log.clock,
    )


def read_all(log: FakeLog, script: dict[str, Any]) -> list[tuple[int, Event]]:
    """Return what the slices deliver to their heads, in the order in which consumers of any speed get it.

    Now and then one of them is stopped and resumes at its cursor.
    """
    dice = random.Random(script["seed"])
    options = StreamLag(seconds=30), StreamToHead()
    streams = [stream_of(log, script, i) for i in range(script["count"])]
    clients = {i: stream("", *options) for i, stream in enumerate(streams)}
    cursors = dict.fromkeys(clients, "")
    weights = [dice.random() ** 3 + 0.001 for _ in streams]
    got: list[tuple[int, Event]] = []
    while clients:
        at = dice.choices(list(clients), [weights[i] for i in clients])[0]
        try:
            new = clients[at].recv()
        except HeadReached:
            clients.pop(at).close()
            continue
        if isinstance(new, Progress):
            cursors[at] = new.cursor
        else:
            cursors[at] = new.id
            got.append((at, new))
        if dice.random() < script["stops"]:
            clients[at].close()
            clients[at] = streams[at](cursors[at], *options)
    return got


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_slices_are_the_whole_once_and_each_key_is_in_order(script: dict[str, Any]) -> None:
    log = build(script)
    got = read_all(log, script)
    names = [name_of(event) for _, event in got]
    assert sorted(names) == sorted(log.expected())
    assert len(set(names)) == len(names)
    if script["lost_keys"]:
        return
    for key in {key_of(w) for w in log.written}:
        mine = [w for w in log.written if key_of(w) == key]
        assert [name_of(e) for _, e in got if e.key["pk"] == key] == log.expected(mine), "order over all generations"
        assert {at for at, e in got if e.key["pk"] == key} == {
            slice_at(murmur3_token(struct.pack(">i", key)), script["count"])
        }


def receive(client: Client, got: list[Event]) -> None:
    """Collect events until the client raises."""
    while True:
        new = client.recv()
        if isinstance(new, Event):
            got.append(new)


def test_a_slice_without_rows_follows_the_head() -> None:
    """More slices than streams: all read on, and their cursors move."""
    log = FakeLog(ManualClock(NOW_US))
    log.generation(NOW_US - 4_000 * SECOND, [stream_id(5)])
    log.write(NOW_US - 100 * SECOND, pk=1)
    owner = slice_at(murmur3_token(struct.pack(">i", 1)), 5)
    for i in range(5):
        script = {"count": 5, "granularity": "change", "limits": Limits()}
        client = stream_of(log, script, i)("", StreamLag(seconds=30), StreamToHead())
        got: list[Event] = []
        with pytest.raises(HeadReached) as ended:
            receive(client, got)
        client.close()
        assert len(got) == (i == owner)
        assert EventID.parse(ended.value.cursor).exact_us == NOW_US - LAG_US


def test_a_stream_says_which_slice_it_is(log: FakeLog) -> None:
    whole = NewStream(log, "ks", "t")  # type: ignore[arg-type]
    part = whole.sliced(1, 3)
    assert (whole.key_slice, part.key_slice) == ((0, 1), (1, 3))
    with pytest.raises(ConfigError, match="slice must be"):
        whole.sliced(3, 3)
    with pytest.raises(ConfigError, match="slice must be"):
        NewStream(log, "ks", "t", key_slice=(0, 0))  # type: ignore[arg-type]
