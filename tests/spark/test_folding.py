"""The elements of collections at each moment: as many steps as there are changes and elements in the result."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from rscylla.spark.pipeline.folding import FIRST, Elements, Fold

CELL = pa.struct(
    [
        ("key", pa.float64()),
        ("t", pa.int64()),
        ("dead", pa.bool_()),
        ("expires", pa.int64()),
        ("ttl", pa.int64()),
        ("value", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        (FIRST, pa.bool_()),
        ("cdc$at", pa.int64()),
        ("floor", pa.int64()),
        ("gone", pa.int64()),
        ("set", pa.list_(CELL)),
    ]
)
FOLD = Fold((Elements("set", ("floor", "gone")),))


def moments(rng: random.Random, row: int, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    floor = gone = None
    for n in range(count):
        at = 1_000_000 * (n + 1)
        keys = rng.sample([0.0, -0.0, 1.0, 2.0, float("nan")], rng.choice([0, 1, 2]))
        cells = [
            {
                "key": key,
                "t": at,
                "dead": rng.random() < 0.3,
                "expires": rng.choice([None, None, n + 1 + rng.randint(1, 4)]),
                "ttl": None,
                "value": n,
            }
            for key in keys
        ]
        if rng.random() < 0.1:
            floor = at
        if rng.random() < 0.1:
            gone = at - 1
        first = {"id": row, FIRST: n == 0, "cdc$at": at, "floor": floor, "gone": gone}
        found.append(first | {"set": cells if cells or rng.random() < 0.5 else None})
    return found


def expected(rows: list[dict[str, Any]]) -> list[set[tuple[str, int]]]:
    """Return the elements that live at each moment, found by looking at all writes of the row before it."""
    found = []
    for i, row in enumerate(rows):
        start = max(n for n in range(i + 1) if rows[n][FIRST])
        newest = {repr(c["key"]): c for each in rows[start : i + 1] for c in each["set"] or ()}
        floor = max(-1 if row[name] is None else row[name] for name in ("floor", "gone"))
        second = row["cdc$at"] // 1_000_000
        live = [
            c
            for c in newest.values()
            if not c["dead"] and c["t"] > floor and (c["expires"] is None or c["expires"] > second)
        ]
        found.append({(repr(c["key"]), c["value"]) for c in live})
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_collection_has_at_each_moment_what_was_written_and_not_removed(seed: int) -> None:
    rng = random.Random(seed)
    rows = [moment for row in range(5) for moment in moments(rng, row, rng.randint(1, 30))]
    size = rng.choice([1, 3, 1000])
    batches = [pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA) for at in range(0, len(rows), size)]
    folded = list(FOLD(iter(batches)))
    assert all(batch.schema == SCHEMA for batch in folded)
    shown = [row for batch in folded for row in batch.to_pylist()]
    assert [{(repr(c["key"]), c["value"]) for c in row["set"]} for row in shown] == expected(rows)
    assert [row["cdc$at"] for row in shown] == [row["cdc$at"] for row in rows]


def test_the_result_of_a_row_with_many_changes_is_no_longer_than_what_its_collection_has() -> None:
    """Overwritten each time: there is one element, whatever was in it before."""
    count = 50_000
    rows = [
        {
            "id": 1,
            FIRST: n == 0,
            "cdc$at": n + 1,
            "floor": None,
            "gone": n,
            "set": [{"key": float(n), "t": n + 1, "dead": False, "expires": None, "ttl": None, "value": n}],
        }
        for n in range(count)
    ]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 10_000], SCHEMA) for at in range(0, count, 10_000)]
    folded = list(FOLD(iter(batches)))
    assert sum(len(batch.column("set").flatten()) for batch in folded) == count
