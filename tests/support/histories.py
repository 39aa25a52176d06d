"""A table with a column of each sort of type, and random statements of each sort for it: histories for Spark tests."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable, Iterator

TABLE = """(
    pk int, pt text, ck int, cu timeuuid,
    a ascii, b boolean, bi bigint, bl blob, d double, da date, de decimal, du duration, f float, i int, ip inet,
    si smallint, ti tinyint, tm time, ts timestamp, tu timeuuid, tx text, u uuid, vi varint,
    fl frozen<list<uuid>>, fm frozen<map<int, frozen<set<text>>>>, fs frozen<set<timestamp>>, fu frozen<pair>,
    tp tuple<int, text, frozen<list<date>>>,
    l list<int>, lt list<frozen<pair>>, m map<text, decimal>, st set<text>, ub pair,
    s int static, sm map<int, text> static,
    PRIMARY KEY ((pk, pt), ck, cu)
) WITH CLUSTERING ORDER BY (ck DESC, cu ASC) AND cdc = """

IMAGES = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
DELTAS = "{'enabled': true}"

_WORDS = ["", "x", "it''s", "naïve", "žluťoučký kůň", "two words"]
_TIMES = [uuid.UUID(int=(n << 96) | (0x11F0 << 64) | (0x8 << 60) | n) for n in range(1, 4)]

Literal = Callable[[random.Random], str]


def _of(*texts: str) -> Literal:
    return lambda dice: dice.choice(texts)


def _many(element: Literal, opening: str, closing: str) -> Literal:
    return lambda dice: opening + ", ".join(element(dice) for _ in range(dice.randrange(4))) + closing


def _pairs(key: Literal, value: Literal) -> Literal:
    return _many(lambda dice: f"{key(dice)}: {value(dice)}", "{", "}")


TEXT = _of(*(f"'{w}'" for w in _WORDS))
INT = _of("0", "1", "-1", "2147483647", "-2147483648", "42")
UUID = _of(*(str(uuid.UUID(int=n * 0x1234567890ABCDEF1234567890ABCDEF % 2**128)) for n in range(1, 5)))
DATE = _of("'1970-01-01'", "'2026-11-21'", "'1582-10-15'", "'9999-12-31'")
TIMESTAMP = _of("'2026-11-21T10:00:05.123Z'", "0", "-1", "'0999-01-01T00:00:00Z'", "253402300799999")
DECIMAL = _of("0", "1.50", "-0.000001", "12345678901234567890123456789012345678901234567890.5", "1E+3")
PAIR = _of("{x: 1, y: 'a'}", "{x: null, y: 'b'}", "{x: 2}", "{x: null, y: null}")

VALUES: dict[str, Literal] = {
    "a": _of("''", "'ascii'"),
    "b": _of("true", "false"),
    "bi": _of("0", "9223372036854775807", "-9223372036854775808"),
    "bl": _of("0x", "0x00ff", "0xcafebabe"),
    "d": _of("0", "1.5", "-1e300", "Infinity"),
    "da": DATE,
    "de": DECIMAL,
    "du": _of("1mo2d3ms", "-1y", "0s", "12h30m"),
    "f": _of("0", "1.5", "-3.25", "-Infinity"),
    "i": INT,
    "ip": _of("'127.0.0.1'", "'2001:db8::1'"),
    "si": _of("0", "-32768", "32767"),
    "ti": _of("0", "-128", "127"),
    "tm": _of("'00:00:00'", "'23:59:59.999999999'"),
    "ts": TIMESTAMP,
    "tu": _of(*map(str, _TIMES)),
    "tx": TEXT,
    "u": UUID,
    "vi": _of("0", "-1", "170141183460469231731687303715884105728", "255", "-129"),
    "fl": _many(UUID, "[", "]"),
    "fm": _pairs(INT, _many(TEXT, "{", "}")),
    "fs": _many(TIMESTAMP, "{", "}"),
    "fu": PAIR,
    "tp": _of("(1, 'a', ['2026-11-21'])", "(null, null, null)", "(2, '', [])"),
    "l": _many(INT, "[", "]"),
    "lt": _many(PAIR, "[", "]"),
    "m": _pairs(TEXT, DECIMAL),
    "st": _many(TEXT, "{", "}"),
    "ub": PAIR,
    "s": INT,
    "sm": _pairs(INT, TEXT),
}
_STATIC = ("s", "sm")
_REGULAR = tuple(n for n in VALUES if n not in _STATIC)
_EDITS: tuple[Literal, ...] = (
    lambda dice: f"l = l + {VALUES['l'](dice)}",
    lambda dice: f"l = {VALUES['l'](dice)} + l",
    lambda dice: f"m = m + {VALUES['m'](dice)}",
    lambda dice: f"m = m - {_many(TEXT, '{', '}')(dice)}",
    lambda dice: f"st = st + {VALUES['st'](dice)}",
    lambda dice: f"st = st - {VALUES['st'](dice)}",
    lambda dice: f"m['x'] = {DECIMAL(dice)}",
    lambda dice: f"ub.x = {dice.choice(['7', 'null'])}",
)
_PARTS = ("l", "m['x']", "st['x']", "ub.y", "lt", "fu", "tx", "m", "st", "ub")


def create(session_execute: Callable[[str], object], keyspace: str, table: str, cdc: str = DELTAS) -> None:
    """Make the table, and the type that it needs, in *keyspace*."""
    session_execute(f"CREATE TYPE IF NOT EXISTS {keyspace}.pair (x int, y text)")
    session_execute(f"CREATE TABLE {keyspace}.{table} {TABLE}{cdc}")


def statements(seed: int, table: str, count: int) -> Iterator[str]:
    """Yield *count* statements; the same for the same *seed*."""
    dice = random.Random(seed)
    for _ in range(count):
        if dice.random() < 0.15:
            inner = "; ".join(_statement(dice, table) for _ in range(dice.randint(1, 4)))
            yield f"BEGIN {dice.choice(['', 'UNLOGGED '])}BATCH {inner}; APPLY BATCH"
        else:
            yield _statement(dice, table)


def _partition(dice: random.Random) -> str:
    return f"pk = {dice.randrange(3)} AND pt = '{dice.choice(['', 'p'])}'"


def _row(dice: random.Random) -> str:
    return f"{_partition(dice)} AND ck = {dice.randrange(3)} AND cu = {dice.choice(_TIMES)}"


def _value(dice: random.Random, name: str) -> str:
    return "null" if dice.random() < 0.2 else VALUES[name](dice)


def _statement(dice: random.Random, table: str) -> str:
    using = f" USING TTL {dice.choice([100, 100000])}" if dice.random() < 0.2 else ""
    kind = dice.choices(_KINDS, _WEIGHTS)[0]
    return kind(dice, table, using)


def _insert(dice: random.Random, table: str, using: str) -> str:
    given = dict(part.split(" = ") for part in _row(dice).split(" AND "))
    for name in dice.sample(_REGULAR, dice.randint(0, 8)) + dice.sample(_STATIC, dice.randint(0, 1)):
        given[name] = _value(dice, name)
    return f"INSERT INTO {table} ({', '.join(given)}) VALUES ({', '.join(given.values())}){using}"


def _update(dice: random.Random, table: str, using: str) -> str:
    names = dice.sample(_REGULAR, dice.randint(1, 6))
    return f"UPDATE {table}{using} SET {', '.join(f'{n} = {_value(dice, n)}' for n in names)} WHERE {_row(dice)}"


def _edit(dice: random.Random, table: str, using: str) -> str:
    edits = {re.split(r"\W", e)[0]: e for e in (dice.choice(_EDITS)(dice) for _ in range(3))}
    return f"UPDATE {table}{using} SET {', '.join(edits.values())} WHERE {_row(dice)}"


def _static(dice: random.Random, table: str, using: str) -> str:
    names = dice.sample(_STATIC, dice.randint(1, 2))
    return f"UPDATE {table}{using} SET {', '.join(f'{n} = {_value(dice, n)}' for n in names)} WHERE {_partition(dice)}"


def _delete(dice: random.Random, table: str, _using: str) -> str:
    what = dice.choice([f"{dice.choice(_PARTS)} FROM {table} WHERE {_row(dice)}", f"FROM {table} WHERE {_row(dice)}"])
    return f"DELETE {what}"


def _delete_range(dice: random.Random, table: str, _using: str) -> str:
    low, high = sorted(dice.sample(range(4), 2))
    where = dice.choice(
        [
            f"ck = {dice.randrange(3)}",
            f"ck > {low} AND ck <= {high}",
            f"ck >= {low}",
            f"ck < {high}",
            f"ck = {dice.randrange(3)} AND cu >= {dice.choice(_TIMES)}",
        ]
    )
    return f"DELETE FROM {table} WHERE {_partition(dice)} AND {where}"


def _delete_partition(dice: random.Random, table: str, _using: str) -> str:
    return f"DELETE FROM {table} WHERE {_partition(dice)}"


_KINDS = (_insert, _update, _edit, _static, _delete, _delete_range, _delete_partition)
_WEIGHTS = (6, 4, 4, 2, 3, 2, 1)
