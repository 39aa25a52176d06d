"""The log holds all that was written: replayed statement by statement it makes the same table, and images are true.

Random statements of every form, alone and in batches, go to one table; a replicator that knows nothing but the log
writes another.
"""

from __future__ import annotations

import random
import re
from typing import Any

import attrs
import pytest
from enginebox import EngineBox

UNIX_TICKS = 0x01B21DD213814000
COLUMNS = "(pk int, ck int, v int, w text, s int STATIC, sm map<int, int> STATIC, m map<int, int>, st set<int>,\
 l list<int>, u pair, PRIMARY KEY (pk, ck))"
ATOMIC, STATIC_ATOMIC = ("v", "w"), ("s",)
READ = (
    "SELECT pk, ck, v, writetime(v) AS vt, ttl(v) AS vl, w, writetime(w) AS wt, s, writetime(s) AS stt, sm, m, st, l, u"
    " FROM {} WHERE pk = 0"
)

Row = dict[str, Any]


@attrs.frozen
class Statement:
    """A statement with a place for USING, and where it stands in time."""

    text: str
    offset: int
    ttl: int

    def at(self, start_us: int) -> str:
        using = f"USING TIMESTAMP {start_us + self.offset}"
        if self.ttl and not self.text.startswith("DELETE"):
            using += f" AND TTL {self.ttl}"
        return self.text.replace("{using}", using)


# What <x> in a template may become; a template stands in the list as often as it is to come.
PARTS: dict[str, list[str]] = {
    "ck": ["0", "0", "1", "2"],
    "n": ["0", "1", "2"],
    "v": ["0", "1", "null"],
    "m": ["{}", "{0: 0}", "{0: 1, 1: 1}", "{1: 2, 2: 0}"],
    "s": ["{}", "{0}", "{0, 1}", "{1, 2}"],
    "l": ["[]", "[0]", "[1, 0]", "[2, 2]"],
    "op": ["<", "<=", ">", ">="],
    "row": ["WHERE pk = 0 AND ck = <ck>"],
    "gone": ["v", "m", "l", "u", "m[1]", "st[2]", "u.x", "u.y"],
    "edit": [
        "v = <v>",
        "v = <v>, w = 'x', m[<n>] = <v>",
        "m = <m>",
        "m = m + <m>, st = st + <s>",
        "m = m + <m>, st = st + <s>",
        "m = m - <s>, st = st - <s>",
        "m = m - <s>, st = <s>",
        "l = <l>",
        "l = l + <l>",
        "l = <l> + l",
        "l = l - <l>",
        "u = {x: <v>}",
        "u.y = 'b', u.x = <v>",
        "s = <v>, v = <v>",
    ],
}
UPSERTS = [
    "INSERT INTO t (pk, ck, v, m) VALUES (0, <ck>, <v>, <m>) {using}",
    "INSERT INTO t (pk, ck, s, l, u) VALUES (0, <ck>, <v>, <l>, null) {using}",
    "INSERT INTO t (pk, ck) VALUES (0, <ck>) {using}",
    "INSERT INTO t (pk, s) VALUES (0, <v>) {using}",
    *["UPDATE t {using} SET <edit> <row>"] * 8,
    "UPDATE t {using} SET sm = sm + <m>, s = <v> WHERE pk = 0",
    "DELETE <gone> FROM t {using} <row>",
    "DELETE <gone> FROM t {using} <row>",
]
DELETES = [
    "DELETE FROM t {using} <row>",
    "DELETE FROM t {using} WHERE pk = 0 AND ck <op> <n>",
    "DELETE FROM t {using} WHERE pk = 0 AND ck > <n> AND ck <= <n>",
    "DELETE FROM t {using} WHERE pk = 0",
]


def a_text(rng: random.Random, templates: list[str]) -> str:
    text = rng.choice(templates)
    while (found := re.search(r"<(\w+)>", text)) is not None:
        text = text[: found.start()] + rng.choice(PARTS[found[1]]) + text[found.end() :]
    return text


def a_statement(rng: random.Random) -> Statement:
    # Two columns of which one is a collection are cleared in two records.
    templates = [*UPSERTS, *DELETES, "DELETE v, m FROM t {using} <row>"]
    return Statement(a_text(rng, templates), rng.randrange(5), rng.choice([0, 0, 0, 5, 9]))


class Replicator:
    """Writes what log rows say into another table, with their times."""

    def __init__(self, box: EngineBox, table: str) -> None:
        self.box = box
        self.table = table
        self.start: Row | None = None
        self._us = self._ttl = 0
        self._where = ""
        self._key: list[Any] = []

    def replay(self, row: Row) -> None:
        operation = row["cdc$operation"]
        self._us = (row["cdc$time"].time - UNIX_TICKS) // 10
        self._ttl = row["cdc$ttl"] or 0
        self._where = "WHERE pk = ? AND ck = ?"
        self._key = [row["pk"], row["ck"]]
        if operation in (1, 2):
            self._upsert(row)
        elif operation == 3:
            self._delete("", 0, self._where, self._key)
        elif operation == 4:
            self._delete("", 0, "WHERE pk = ?", [row["pk"]])
        elif operation in (5, 6):
            self.start = row
        else:
            self._range(row)

    def _range(self, end: Row) -> None:
        start = self.start
        assert start is not None
        assert end["cdc$operation"] in (7, 8)
        where, key = "WHERE pk = ?", [end["pk"]]
        if start["ck"] is not None:
            where += " AND ck >" + "=" * (start["cdc$operation"] == 5) + " ?"
            key.append(start["ck"])
        if end["ck"] is not None:
            where += " AND ck <" + "=" * (end["cdc$operation"] == 7) + " ?"
            key.append(end["ck"])
        self._delete("", 0, where, key)
        self.start = None

    def _upsert(self, row: Row) -> None:
        if row["cdc$operation"] == 2:
            ttl = f" AND TTL {self._ttl}"
            self.box.run(f"INSERT INTO {self.table} (pk, ck) VALUES (?, ?) USING TIMESTAMP {self._us}{ttl}", self._key)
        if row["ck"] is None:
            self._where, self._key = "WHERE pk = ?", [row["pk"]]
        for name in (*ATOMIC, *STATIC_ATOMIC):
            if row[name] is not None:
                self._set(f"{name} = ?", [row[name]])
            elif row[f"cdc$deleted_{name}"]:
                self._delete(name, 0)
        for name in ("m", "sm", "st", "l", "u"):
            if row[f"cdc$deleted_{name}"]:
                self._delete(name, 1)
            getattr(self, f"_{name}")(name, row[name], row[f"cdc$deleted_elements_{name}"])

    def _m(self, name: str, added: Any, gone: Any) -> None:
        if added:
            self._set(f"{name} = {name} + ?", [added])
        if gone:
            self._set(f"{name} = {name} - ?", [gone])

    _sm = _st = _m

    def _l(self, name: str, added: Any, gone: Any) -> None:
        for key, value in ((added or {}) | dict.fromkeys(gone or ())).items():
            self._set(f"{name}[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ?", [key, value])

    def _u(self, name: str, added: Any, gone: Any) -> None:
        for field, value in (added or {}).items():
            if value is not None:
                self._set(f"{name}.{field} = ?", [value])
        for place in gone or ():
            self._set(f"{name}.{'xy'[place]} = ?", [None])

    def _set(self, what: str, bound: list[Any]) -> None:
        using = f"USING TIMESTAMP {self._us} AND TTL {self._ttl}"
        self.box.run(f"UPDATE {self.table} {using} SET {what} {self._where}", [*bound, *self._key])

    def _delete(self, what: str, earlier: int, where: str | None = None, key: list[Any] | None = None) -> None:
        """A cleared collection is logged a microsecond after it was cleared, so that its new elements outlive it."""
        text = f"DELETE {what} FROM {self.table} USING TIMESTAMP {self._us - earlier} {where or self._where}"
        self.box.run(text, self._key if key is None else key)


def log_rows(box: EngineBox) -> list[Row]:
    found = box.rows("SELECT * FROM t_scylla_cdc_log")
    return sorted(found, key=lambda row: (row["cdc$time"].time, row["cdc$time"].bytes, row["cdc$batch_seq_no"]))


def reset(box: EngineBox) -> None:
    box.clock.advance(20)
    for name in ("t", "copy", "t_scylla_cdc_log"):
        box.run(f"TRUNCATE {name}")


def write(box: EngineBox, statements: list[Statement], start_us: int) -> None:
    written = [statement.at(start_us) for statement in statements]
    box.run(written[0] if len(written) == 1 else f"BEGIN BATCH {'; '.join(written)}; APPLY BATCH")


@pytest.mark.parametrize("seed", range(40))
def test_a_replayed_log_makes_the_same_table(seed: int) -> None:
    rng = random.Random(seed)
    box = PLAIN
    reset(box)
    start_us = box.clock.now_us() - 100
    batches = [[a_statement(rng) for _ in range(rng.choice([1, 1, 2, 3]))] for _ in range(10)]
    for statements in batches:
        write(box, statements, start_us)
    replicator = Replicator(box, "copy")
    for row in log_rows(box):
        replicator.replay(row)
    for pause in (0, 6, 4):
        box.clock.advance(pause)
        assert box.rows(READ.format("copy")) == box.rows(READ.format("t"))


# ---------------------------------------------------------------- images

IMAGED = ("v", "w", "m", "st", "u")


def plain(row: Row | None) -> Row:
    """The regular columns as a SELECT distinguishes them: an empty collection is null, and so is a UDT of nulls."""
    out = {name: (row or {}).get(name) for name in IMAGED}
    if out["u"] is not None and not any(value is not None for value in out["u"].values()):
        out["u"] = None
    return {name: value or (0 if value == 0 else None) for name, value in out.items()}


@pytest.mark.parametrize("seed", range(40))
def test_images_are_the_row_before_and_after(seed: int) -> None:
    """Of single statements with growing timestamps: then what images show is what a read shows."""
    rng = random.Random(seed)
    box = IMAGES
    reset(box)
    seen: set[Any] = set()
    for text in [a_text(rng, UPSERTS * 2 + DELETES) for _ in range(20)]:
        before = {row["ck"]: row for row in box.rows("SELECT * FROM t WHERE pk = 0") if row["ck"] is not None}
        box.clock.advance(0.01)
        write(box, [Statement(text, 0, 0)], box.clock.now_us())
        after = {row["ck"]: row for row in box.rows("SELECT * FROM t WHERE pk = 0") if row["ck"] is not None}
        new = [row for row in log_rows(box) if row["cdc$time"] not in seen]
        seen |= {row["cdc$time"] for row in new}
        images = {kind: [r for r in new if r["cdc$operation"] == kind and r["ck"] is not None] for kind in (0, 9)}
        touched = {row["ck"] for row in new if row["cdc$operation"] in (1, 2, 3) and row["ck"] is not None}
        upserted = {row["ck"] for row in new if row["cdc$operation"] in (1, 2) and row["ck"] is not None}
        assert {row["ck"] for row in images[0]} == touched & before.keys()
        assert {row["ck"] for row in images[9]} == upserted
        assert all(row["cdc$ttl"] is None for row in (*images[0], *images[9]))
        for ck in touched & before.keys():
            image = next(row for row in images[0] if row["ck"] == ck)
            assert plain(image) == plain(before[ck])
            assert all(image[f"cdc$deleted_{name}"] is (True if image[name] is None else None) for name in IMAGED)
        for ck in upserted:
            image = [row for row in images[9] if row["ck"] == ck][-1]
            assert plain(image) == plain(after.get(ck))


def made(options: str) -> EngineBox:
    box = EngineBox()
    box.run("CREATE TYPE pair (x int, y text)")
    box.run(f"CREATE TABLE t {COLUMNS} WITH cdc = {{'enabled': true{options}}}")
    box.run(f"CREATE TABLE copy {COLUMNS}")
    return box


PLAIN = made("")
IMAGES = made(", 'preimage': 'full', 'postimage': true")
