"""Random edits of maps, sets and user types, alone and in batches, against a model that evaluates every write again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from enginebox import EngineBox
from hypothesis import example, given, settings
from hypothesis import strategies as st

KEYS = range(2)


@attrs.frozen
class Edit:
    """One statement on column m, st or u of row ck. ``elements`` maps element key to value."""

    kind: str
    ck: int
    column: str
    elements: dict[int, int]
    timestamp: int
    ttl: int


def literal(edit: Edit) -> str:
    if edit.column == "st":
        return "{" + ", ".join(map(str, sorted(edit.elements))) + "}"
    if edit.column == "u":
        return "{" + ", ".join(f"f{k}: {v}" for k, v in sorted(edit.elements.items())) + "}"
    return "{" + ", ".join(f"{k}: {v}" for k, v in sorted(edit.elements.items())) + "}"


def statement(edit: Edit) -> str:
    stamp = f"TIMESTAMP {edit.timestamp}"
    using = f"USING {stamp} AND TTL {edit.ttl}" if edit.ttl else f"USING {stamp}"
    row, name = f"pk = 0 AND ck = {edit.ck}", edit.column
    if edit.kind == "insert":
        return f"INSERT INTO t (pk, ck, {name}) VALUES (0, {edit.ck}, {literal(edit)}) {using}"
    if edit.kind == "overwrite":
        return f"UPDATE t {using} SET {name} = {literal(edit)} WHERE {row}"
    if edit.kind == "add":
        if name == "u":
            fields = ", ".join(f"u.f{k} = {v}" for k, v in edit.elements.items())
            return f"UPDATE t {using} SET {fields} WHERE {row}"
        return f"UPDATE t {using} SET {name} = {name} + {literal(edit)} WHERE {row}"
    if edit.kind == "remove":
        if name == "u":
            fields = ", ".join(f"u.f{k}" for k in edit.elements)
            return f"DELETE {fields} FROM t USING {stamp} WHERE {row}"
        return f"UPDATE t {using} SET {name} = {name} - {{{', '.join(map(str, edit.elements))}}} WHERE {row}"
    if edit.kind == "clear":
        return f"DELETE {name} FROM t USING {stamp} WHERE {row}"
    if edit.kind == "row":
        return f"DELETE FROM t USING {stamp} WHERE {row}"
    return f"DELETE FROM t USING {stamp} WHERE pk = 0"


Made = list[tuple[Edit, int]]


def deleted_at(made: Made, ck: int) -> int:
    return max((e.timestamp for e, _ in made if e.kind == "partition" or (e.kind == "row" and e.ck == ck)), default=-9)


def elements(made: Made, ck: int, column: str, now: int) -> dict[int, int]:
    """Return the live elements: newest wins; then the dead, the later expiry, the smaller TTL, the larger value."""
    here = [(e, at) for e, at in made if e.column == column and e.ck == ck]
    cleared = [e.timestamp - 1 for e, _ in here if e.kind in ("insert", "overwrite")]
    cleared += [e.timestamp for e, _ in here if e.kind == "clear"]
    floor = max([*cleared, deleted_at(made, ck)])
    out: dict[int, int] = {}
    for key in KEYS:
        cells: list[tuple[int, bool, int, int, int]] = []
        for edit, at in here:
            if key in edit.elements and edit.timestamp > floor:
                if edit.kind == "remove":
                    cells.append((edit.timestamp, True, 0, 0, 0))
                elif edit.kind in ("insert", "overwrite", "add"):
                    expiry = at + edit.ttl if edit.ttl else 0
                    cells.append((edit.timestamp, False, expiry, -edit.ttl, edit.elements[key]))
        if cells:
            _, dead, expiry, _, value = max(cells)
            if not dead and (not expiry or expiry > now):
                out[key] = value
    return out


def has_marker(made: Made, ck: int, now: int) -> bool:
    floor = deleted_at(made, ck)
    stamps = [
        (e.timestamp, at + e.ttl if e.ttl else 0)
        for e, at in made
        if e.kind == "insert" and e.ck == ck and e.timestamp > floor
    ]
    return bool(stamps) and (max(stamps)[1] == 0 or max(stamps)[1] > now)


def expected(made: Made, now: int) -> dict[int, dict[str, dict[int, int]]]:
    out: dict[int, dict[str, dict[int, int]]] = {}
    for ck in KEYS:
        row = {column: elements(made, ck, column, now) for column in ("m", "st", "u")}
        if any(row.values()) or has_marker(made, ck, now):
            out[ck] = row
    return out


def found(rows: Iterable[dict[str, Any]]) -> dict[int, dict[str, dict[int, int]]]:
    out: dict[int, dict[str, dict[int, int]]] = {}
    for row in rows:
        fields = row["u"] or {}
        out[row["ck"]] = {
            "m": row["m"] or {},
            # A set has no values: the model's count as nothing.
            "st": dict.fromkeys(row["st"] or (), 0),
            "u": {int(name[1:]): value for name, value in fields.items() if value is not None},
        }
    return out


EDITS = st.builds(
    lambda kind, ck, column, elements, timestamp, ttl: Edit(
        kind, ck, column, dict.fromkeys(elements, 0) if column == "st" else elements, timestamp, ttl
    ),
    kind=st.sampled_from(["insert", "overwrite", *["add"] * 6, "remove", "remove", "clear", "row", "partition"]),
    ck=st.sampled_from([0, 0, 0, 0, 1]),
    column=st.sampled_from(["m", "m", "st", "u"]),
    elements=st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3), min_size=1),
    timestamp=st.integers(1, 3),
    ttl=st.sampled_from([0, 0, 0, 1, 2, 3]),
)


def tied(value: int, ttl: int = 0) -> Edit:
    """One of several writes to one element at one timestamp."""
    return Edit("add", 0, "m", {0: value}, 2, ttl)


@pytest.mark.slow
@given(st.lists(st.tuples(st.lists(EDITS, min_size=1, max_size=4), st.integers(0, 2)), max_size=6))
@settings(max_examples=300, deadline=None)
@example([([tied(2)], 0), ([tied(3), tied(1)], 0)])
@example([([tied(1, 3)], 1), ([tied(3, 2)], 1), ([tied(2, 3)], 1)])
@example([([tied(3, 2)], 1), ([tied(2, 1)], 0), ([tied(1)], 0)])
def test_reads_agree_with_the_model(steps: list[tuple[list[Edit], int]]) -> None:
    """Each step is a batch (or one statement) and the seconds that pass after it."""
    box = SHARED
    box.run("TRUNCATE t")
    made: Made = []
    for edits, pause in steps:
        texts = [statement(edit) for edit in edits]
        box.run(texts[0] if len(texts) == 1 else f"BEGIN BATCH {'; '.join(texts)}; APPLY BATCH")
        made += [(edit, box.clock.now_us() // 1_000_000) for edit in edits]
        box.clock.advance(pause)
        assert found(box.rows("SELECT ck, m, st, u FROM t WHERE pk = 0")) == expected(
            made, box.clock.now_us() // 1_000_000
        )


SHARED = EngineBox()
SHARED.run("CREATE TYPE three (f0 int, f1 int, f2 int)")
SHARED.run("CREATE TABLE t (pk int, ck int, m map<int, int>, st set<int>, u three, PRIMARY KEY (pk, ck))")
