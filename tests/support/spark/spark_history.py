"""Random writes of every kind to three tables, as CQL, and rows in a form in which Spark's and CQL's can be compared.

``t`` has compound keys, one of them descending, static columns and every sort of column that can be edited in parts;
``s`` has no clustering key; ``e`` is clustered by timeuuid, descending, and by text.
"""

from __future__ import annotations

import random
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import rscylla
import rscylla.spark

TABLES = ("t", "s", "e")

CREATE = """
CREATE TYPE {ks}.pair (a int, b text);
CREATE TABLE {ks}.t (pk int, c1 int, c2 text, s int static, sm map<int, text> static, a int, b text, l list<int>,
    m map<int, text>, st set<int>, u pair, f frozen<map<int, text>>, PRIMARY KEY (pk, c1, c2))
    WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC) AND cdc = {{'enabled': true}};
CREATE TABLE {ks}.s (k1 text, k2 blob, a int, b text, m map<text, int>, PRIMARY KEY ((k1, k2)))
    WITH cdc = {{'enabled': true}};
CREATE TABLE {ks}.e (pk int, at timeuuid, kind text, a double, PRIMARY KEY (pk, at, kind))
    WITH CLUSTERING ORDER BY (at DESC, kind ASC) AND cdc = {{'enabled': true}}
"""

# Of one second, so that their last bytes decide, too; not sorted as text.
_TIMES = tuple(
    uuid.UUID(bytes=(ticks & 0xFFFFFFFF).to_bytes(4, "big") + bytes.fromhex("1b2111f0") + bytes([low]) + bytes(7))
    for ticks in (0x00000001, 0x00000002, 0xF0000000)
    for low in (0x80, 0xB0)
)


def create(session: Any, keyspace: str) -> None:
    for cql in CREATE.format(ks=keyspace).split(";"):
        session.execute(cql)


def writes(
    rng: random.Random, keyspace: str, count: int, times_us: Iterator[int], *, lists: bool = True, ttl: bool = True
) -> Iterator[str]:
    """Yield *count* statements; each has the next of *times_us* as its write time. TTLs are far in the future."""
    makers = {"t": _of_t, "s": _of_s, "e": _of_e}
    made = 0
    while made < count:
        table = rng.choice(TABLES)
        seconds = rng.choice((None, None, None, 100_000)) if ttl else None
        cql = makers[table](rng, _Using(next(times_us), seconds), lists)
        if cql is not None:
            made += 1
            yield cql.replace(f"{table}!", f"{keyspace}.{table}")


def time_of(cql: str) -> int:
    """Return the write time of one of *writes*."""
    return int(re.findall(r"USING TIMESTAMP (\d+)", cql)[0])


def passed(time_us: int) -> None:
    """Wait until the clock is past *time_us*, which writes carried."""
    clock = rscylla.SystemClock()
    while clock.now_us() <= time_us + 2_000:
        clock.wait(rscylla.Stop(), 0.05)


@contextmanager
def written_beside(session: Any, statements: Iterator[str]) -> Iterator[None]:
    """Write one after the other during the block."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            session.execute(next(statements))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            stop.set()
        writing.result()


def window(generation: int, start_us: int, end_us: int) -> rscylla.spark.PlannedWindow:
    """Return a window between two points, as ``windows`` gives it out."""
    start, end = (str(rscylla.EventID(generation, us)) for us in (start_us, end_us))
    return rscylla.spark.PlannedWindow(generation, start_us, end_us, start, end)


class _Using:
    def __init__(self, time_us: int, ttl: int | None) -> None:
        self.time = f"USING TIMESTAMP {time_us}"
        self.all = self.time + (f" AND TTL {ttl}" if ttl else "")


def _of_t(rng: random.Random, using: _Using, lists: bool) -> str | None:
    pk, c1, c2 = rng.randrange(3), rng.randrange(3), rng.choice("xyz")
    v, x = rng.randrange(-5, 6), rng.choice("pqrs")
    sign = rng.choice((">", "<", ">=", "<="))
    key, part = f"WHERE pk = {pk} AND c1 = {c1} AND c2 = '{c2}'", f"WHERE pk = {pk}"
    a, t = using.all, using.time
    found = [
        f"INSERT INTO t! (pk, c1, c2, a, b) VALUES ({pk}, {c1}, '{c2}', {v}, '{x}') {a}",
        f"INSERT INTO t! (pk, c1, c2, a, m, st) VALUES ({pk}, {c1}, '{c2}', {v}, {{{v}: '{x}'}}, {{{v}, 9}}) {a}",
        f"INSERT INTO t! (pk, c1, c2, u, f) VALUES ({pk}, {c1}, '{c2}', {{a: {v}, b: '{x}'}}, {{1: '{x}'}}) {a}",
        f"INSERT INTO t! (pk, c1, c2) VALUES ({pk}, {c1}, '{c2}') {a}",
        f"UPDATE t! {a} SET a = {v} {key}",
        f"UPDATE t! {t} SET a = null, b = '{x}' {key}",
        f"UPDATE t! {a} SET m = m + {{{v}: '{x}'}}, st = st + {{{v}}} {key}",
        f"UPDATE t! {t} SET m = m - {{{v}}}, st = st - {{{v}}} {key}",
        f"UPDATE t! {a} SET u.a = {v} {key}",
        f"UPDATE t! {t} SET u.b = null {key}",
        f"UPDATE t! {t} SET u = null, m = {{}} {key}",
        f"UPDATE t! {a} SET m = {{{v}: '{x}', 7: 'z'}}, f = {{2: '{x}'}} {key}",
        f"DELETE m, a FROM t! {t} {key}",
        f"DELETE FROM t! {t} {key}",
        f"DELETE FROM t! {t} {part}" if rng.random() < 0.5 else None,
        f"DELETE FROM t! {t} {part} AND c1 = {c1}" if rng.random() < 0.5 else None,
        f"DELETE FROM t! {t} {part} AND c1 = {c1} AND c2 {sign} '{c2}'",
        f"DELETE FROM t! {t} {part} AND c1 {sign} {c1}" if rng.random() < 0.5 else None,
        f"UPDATE t! {a} SET s = {v}, sm = sm + {{{v}: '{x}'}} {part}",
        f"UPDATE t! {t} SET s = null, sm = sm - {{{v}}} {part}",
    ]
    if lists:
        found += [
            f"INSERT INTO t! (pk, c1, c2, a, l) VALUES ({pk}, {c1}, '{c2}', {v}, [{v}, 1]) {a}",
            f"UPDATE t! {a} SET l = l + [{v}, {v + 1}] {key}",
            f"UPDATE t! {a} SET l = [{v}] + l {key}",
            f"UPDATE t! {t} SET l = l - [{v}, 1] {key}",
            f"UPDATE t! {a} SET l = [{v}] {key}",
        ]
    return rng.choice(found)


def _of_s(rng: random.Random, using: _Using, lists: bool) -> str | None:
    k1, k2 = rng.choice("ab"), rng.choice(("0x", "0x01", "0x80"))
    v, x = rng.randrange(-5, 6), rng.choice("pqrs")
    key = f"WHERE k1 = '{k1}' AND k2 = {k2 if k2 != '0x' else '0x00'}"
    k2 = k2 if k2 != "0x" else "0x00"
    return rng.choice(
        [
            f"INSERT INTO s! (k1, k2, a, b) VALUES ('{k1}', {k2}, {v}, '{x}') {using.all}",
            f"INSERT INTO s! (k1, k2, m) VALUES ('{k1}', {k2}, {{'{x}': {v}}}) {using.all}",
            f"UPDATE s! {using.all} SET a = {v}, m = m + {{'{x}': {v}}} {key}",
            f"UPDATE s! {using.time} SET a = null, m = m - {{'{x}'}} {key}",
            f"DELETE FROM s! {using.time} {key}" if rng.random() < 0.5 else None,
        ]
    )


def _of_e(rng: random.Random, using: _Using, lists: bool) -> str | None:
    pk, at, kind = rng.randrange(2), rng.choice(_TIMES), rng.choice("xy")
    sign = rng.choice((">", "<", ">=", "<="))
    return rng.choice(
        [
            f"INSERT INTO e! (pk, at, kind, a) VALUES ({pk}, {at}, '{kind}', {rng.randrange(9) / 2}) {using.all}",
            f"INSERT INTO e! (pk, at, kind, a) VALUES ({pk}, {at}, '{kind}', {rng.randrange(9) / 2}) {using.all}",
            f"DELETE FROM e! {using.time} WHERE pk = {pk} AND at {sign} {at}",
            f"DELETE FROM e! {using.time} WHERE pk = {pk} AND at = {at}",
            f"DELETE a FROM e! {using.time} WHERE pk = {pk} AND at = {at} AND kind = '{kind}'",
        ]
    )


# ---------------------------------------------------------------- rows to compare


def rows_of(session: Any, keyspace: str, table: str, *, drop: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a base table, in a common form and order."""
    found = session.execute(f"SELECT * FROM {keyspace}.{table}")
    names = sorted(n for n in found.column_names if n not in drop)
    return common((dict(zip(found.column_names, row, strict=True)) for row in found), names)


def rows_in(frame: Any, *, drop: Sequence[str] = (), where: Callable[[Any], bool] = bool) -> list[tuple[Any, ...]]:
    """Return the rows of a DataFrame, in the same form and order."""
    names = sorted(n for n in frame.columns if n not in drop)
    return common((row.asDict() for row in frame.collect() if where(row)), names)


def common(rows: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(_plain(row[n], n) for n in names) for row in rows), key=repr)


def _plain(value: Any, name: str) -> Any:
    if (
        isinstance(value, set | frozenset)
        or type(value).__name__ == "SortedSet"
        or (name in ("st", "zs") and isinstance(value, list))
    ):
        return ("set", *sorted(value))
    if hasattr(value, "asDict"):
        value = value.asDict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return ("map", *sorted((k, _plain(v, "")) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_plain(v, "") for v in value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value if not isinstance(value, datetime) else value.replace(tzinfo=None)
