"""Rings of vnodes, and logs that are written by them, for tests of slices."""

from __future__ import annotations

import random
import struct
from typing import Any

import attrs
from fakelog import NOW_US, SECOND, FakeLog, Written, integer
from hypothesis import strategies as st

from rscylla.cdc.read.scan import Limits
from rscylla.embedded.cluster.generation import Generation, make_generation
from rscylla.embedded.storage.tokens import murmur3_token
from rscylla.event import Event, EventID
from rscylla.testing import ManualClock

LAG_US = 30 * SECOND


@attrs.frozen
class Owner:
    shards: int
    ignore_msb: int = 12


@st.composite
def rings(draw: st.DrawFn) -> Generation:
    """Return the streams of some ring of vnodes, as the server makes them."""
    edges = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([-(2**63) + 1, -1, 0, 2**63 - 1]))
    tokens = draw(st.lists(edges, min_size=1, max_size=12, unique=True))
    owner = Owner(draw(st.integers(1, 5)), draw(st.sampled_from([0, 12])))
    dice = random.Random(draw(st.integers(0, 99)))
    return make_generation(0, [(t, owner) for t in tokens], lambda: dice.getrandbits(38))


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    before = st.integers(0, 4_000 * SECOND)
    return {
        "rings": draw(st.lists(rings(), min_size=1, max_size=4)),
        "starts": draw(st.lists(before, min_size=3, max_size=3, unique_by=lambda us: us // 1000)),
        "rows": draw(st.lists(st.tuples(before, st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=60)),
        "count": draw(st.integers(1, 7)),
        "lost_keys": draw(st.booleans()),
        "limits": Limits(page_size=draw(st.integers(1, 9)), window_rows=draw(st.integers(2, 40))),
        "granularity": draw(st.sampled_from(["row", "change"])),
        "stops": draw(st.sampled_from([0.0, 0.2])),
        "seed": draw(st.integers(0, 2**16)),
    }


def build(script: dict[str, Any], clock: ManualClock | None = None) -> FakeLog:
    """Write rows where the server would: by the ring of their time; with lost keys, to just any stream."""
    log = FakeLog(clock or ManualClock(NOW_US), ttl_s=0, seed=script["seed"])
    head_us = NOW_US - LAG_US
    starts = sorted([head_us - 5_000 * SECOND, *(head_us - us for us in script["starts"])])
    by_time = dict(zip(starts, script["rings"], strict=False))
    for us, ring in by_time.items():
        log.generation(us, ring.streams)
    taken: set[tuple[bytes, int, int]] = set()
    for before_us, key, low in script["rows"]:
        us = head_us - before_us - 1
        ring = by_time[max(s for s in by_time if s // 1000 * 1000 <= us)]
        pk = integer(key) or b""
        stream = ring.streams[key % len(ring.streams)] if script["lost_keys"] else ring.stream_of(murmur3_token(pk))
        if (stream, us, low) not in taken:
            taken.add((stream, us, low))
            log.write(us, at=ring.streams.index(stream), low=low, pk=pk)
    return log


def name_of(event: Event) -> tuple[str, str, int]:
    found = EventID.parse(event.id)
    raw = found.stream_time.hex()
    return found.stream_id.hex(), f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}", found.seq


def key_of(written: Written) -> int:
    (key,) = struct.unpack(">i", written.cells["pk"] or b"")
    return int(key)
