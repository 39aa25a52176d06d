"""Random writes against a model that keeps every write and works the answer out from scratch at each read."""

from __future__ import annotations

from typing import Any

import attrs
from enginebox import EngineBox
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = range(4)
COLUMNS = ("v", "w")


@attrs.frozen
class Write:
    """One statement. ``low`` and ``high`` bound the clustering keys it is about, both inclusive."""

    kind: str
    low: int
    high: int
    column: str
    value: int
    timestamp: int
    ttl: int


def statement(write: Write) -> str:
    using = f"TIMESTAMP {write.timestamp}"
    live = f"{using} AND TTL {write.ttl}" if write.ttl else using
    row = f"pk = 0 AND ck = {write.low}"
    return {
        "insert": f"INSERT INTO t (pk, ck, {write.column}) VALUES (0, {write.low}, {write.value}) USING {live}",
        "update": f"UPDATE t USING {live} SET {write.column} = {write.value} WHERE {row}",
        "clear": f"DELETE {write.column} FROM t USING {using} WHERE {row}",
        "row": f"DELETE FROM t USING {using} WHERE {row}",
        "range": f"DELETE FROM t USING {using} WHERE pk = 0 AND ck >= {write.low} AND ck <= {write.high}",
        "partition": f"DELETE FROM t USING {using} WHERE pk = 0",
    }[write.kind]


def expected(writes: list[tuple[Write, int]], now: int) -> list[tuple[int, dict[str, int | None]]]:
    """Return (clustering key, columns) of the live rows. Each write comes with the time it was made at (s)."""
    out: list[tuple[int, dict[str, int | None]]] = []
    for ck in KEYS:
        deleted = max(
            (
                w.timestamp
                for w, _ in writes
                if w.kind == "partition"
                or (w.kind == "row" and w.low == ck)
                or (w.kind == "range" and w.low <= ck <= w.high)
            ),
            default=-1,
        )
        here = [(w, at) for w, at in writes if w.low == ck and w.timestamp > deleted]
        columns = {column: newest_value(here, column, now) for column in COLUMNS}
        markers = [(w.timestamp, at + w.ttl if w.ttl else 0, -w.ttl) for w, at in here if w.kind == "insert"]
        has_marker = bool(markers) and (max(markers)[1] == 0 or max(markers)[1] > now)
        if has_marker or any(value is not None for value in columns.values()):
            out.append((ck, columns))
    return out


def newest_value(writes: list[tuple[Write, int]], column: str, now: int) -> int | None:
    """Newest timestamp; then deletions, then what expires (later first, then smaller TTL), then the larger value."""
    candidates = [
        (w.timestamp, w.kind == "clear", at + w.ttl if w.ttl else 0, -w.ttl, w.value)
        for w, at in writes
        if w.column == column and w.kind in ("insert", "update", "clear")
    ]
    if not candidates:
        return None
    _, dead, expiry, _, value = max(c if not c[1] else (c[0], True, 0, 0, 0) for c in candidates)
    return None if dead or (expiry and expiry <= now) else value


WRITES = st.builds(
    Write,
    kind=st.sampled_from(["insert", "insert", "update", "update", "clear", "row", "range", "partition"]),
    low=st.sampled_from(KEYS),
    high=st.sampled_from(KEYS),
    column=st.sampled_from(COLUMNS),
    value=st.integers(0, 3),
    timestamp=st.integers(1, 6),
    ttl=st.sampled_from([0, 0, 2, 3]),
)


@given(st.lists(st.tuples(WRITES, st.integers(0, 2)), max_size=12))
@settings(max_examples=150, deadline=None)
def test_reads_agree_with_the_model(steps: list[tuple[Write, int]]) -> None:
    """Each step is a write and the seconds that pass after it."""
    box = SHARED
    box.run("TRUNCATE t")
    made: list[tuple[Write, int]] = []
    for write, pause in steps:
        box.run(statement(write))
        made.append((write, box.clock.now_us() // 1_000_000))
        box.clock.advance(pause)
        rows: list[dict[str, Any]] = box.rows("SELECT ck, v, w FROM t WHERE pk = 0")
        found = [(row.pop("ck"), row) for row in rows]
        assert found == expected(made, box.clock.now_us() // 1_000_000)
    backwards = box.column("SELECT ck FROM t WHERE pk = 0 ORDER BY ck DESC")
    assert backwards == box.column("SELECT ck FROM t WHERE pk = 0")[::-1]


SHARED = EngineBox()
SHARED.run("CREATE TABLE t (pk int, ck int, v int, w int, PRIMARY KEY (pk, ck))")
