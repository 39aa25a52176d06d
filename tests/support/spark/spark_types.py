"""Tables that have every CQL type in every place that it can be in, and statements that do everything to them.

``k`` has the types in its partition key, ``c`` in its clustering key, ``r`` those that Spark can order in it, with
deleted ranges; ``v`` as regular and static columns, and ``u`` as fields of UDTs. ``f0`` to ``f3`` have a quarter of the
types each within frozen collections and tuples, and ``l0`` to ``l3`` within collections that can be edited: the plans
of a table with all of them take Spark's optimizer minutes. ``fm`` and ``lm`` have all types, each in one of these ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

FROZEN = ("f0", "f1", "f2", "f3")

LIVE = ("l0", "l1", "l2", "l3")

TABLES = ("k", "c", "r", "v", *FROZEN, *LIVE, "u")

OF_FORMATS = ("k", "v", "fm", "lm", "u")
"""The tables for what stores each type in its own way, and has the merge from elsewhere."""

PLAIN: dict[str, tuple[str, str]] = {
    "ascii": ("'a'", "'zz'"),
    "bigint": ("-5", "9223372036854775807"),
    "blob": ("0x00", "0xff80"),
    "boolean": ("false", "true"),
    "date": ("'1969-12-31'", "'2026-11-21'"),
    "decimal": ("-1.50", "3E+25"),
    "double": ("-1.5", "2.25"),
    "float": ("-0.5", "1.5"),
    "inet": ("'127.0.0.1'", "'2001:db8::1'"),
    "int": ("-7", "2147483647"),
    "smallint": ("-8", "32767"),
    "text": ("'é'", "'zoë'"),
    "time": ("'00:00:00.000000001'", "'23:59:59.999999999'"),
    "timestamp": ("-1", "'2026-11-21 10:11:12.345Z'"),
    "timeuuid": ("123e4567-e89b-12d3-a456-426614174000", "00000001-0000-1000-8080-808080808080"),
    "tinyint": ("-1", "127"),
    "uuid": ("123e4567-e89b-42d3-a456-426614174000", "00000001-0000-4000-8080-808080808080"),
    "varint": ("-300", "12345678901234567890123456789"),
}
"""Two values of each type that can be in a key."""

KEYS = PLAIN | {
    "frozen<list<timestamp>>": ("[-1, 5]", "[7]"),
    "frozen<set<double>>": ("{-1.5, 2}", "{7}"),
    "frozen<map<blob, timestamp>>": ("{0x01: 1, 0x02: 2}", "{0xff: -1}"),
    "frozen<tuple<int, timestamp>>": ("(1, 2)", "(3, null)"),
    "frozen<pair>": ("{x: -1, y: 5}", "{x: 3, y: null}"),
    "vector<float, 2>": ("[1, -2]", "[3, 4.5]"),
}

VALUES = KEYS | {"duration": ("1mo2d3ns", "-5h"), "vector<text, 2>": ("['a', 'bc']", "['', 'd']")}

MAPPED = frozenset(t for t in KEYS if not t.startswith("frozen<map"))
"""Types that Spark has as keys of maps that it puts together."""

ORDERED = tuple(t for t in PLAIN if t not in ("decimal", "inet", "varint"))
"""Types that Spark compares as CQL does."""


def create(session: Any, keyspace: str, tables: Iterable[str], *, cdc: bool = True) -> None:
    """Create *tables* in *keyspace*, with CDC or, to be copied to, without."""
    keys = list(KEYS)
    fields = ", ".join(f"f{i} {t}" for i, t in enumerate(VALUES))
    session.execute(f"CREATE TYPE {keyspace}.pair (x int, y timestamp)")
    session.execute(f"CREATE TYPE {keyspace}.whole ({fields})")
    log = "cdc = {'enabled': true}" if cdc else "comment = ''"
    named = ", ".join(f"k{i} {t}" for i, t in enumerate(keys))
    names = ", ".join(f"k{i}" for i in range(len(keys)))
    mixed = _order("DESC" if i % 2 else "ASC" for i in range(len(keys)))
    ordered = ", ".join(f"k{i} {t}" for i, t in enumerate(ORDERED))
    order = _order("DESC" if i % 3 else "ASC" for i in range(len(ORDERED)))
    firsts = ", ".join(f"k{i}" for i in range(len(ORDERED)))
    values = ", ".join(f"v{i} {t}, s{i} {t} static" for i, t in enumerate(VALUES))
    frozen = {
        table: ", ".join(
            f"{form}{i} frozen<{_FROZEN_FORMS[form].format(t)}>"
            for i, t in _types_in(table)
            for form in _forms(table, i, t, _FROZEN_FORMS)
        )
        for table in (*FROZEN, "fm")
    }
    live = {
        table: ", ".join(
            f"{form}{i} {_LIVE_FORMS[form].format(t)}"
            for i, t in _types_in(table)
            for form in _forms(table, i, t, _LIVE_FORMS)
        )
        for table in (*LIVE, "lm")
    }
    udts = "u whole, f frozen<whole>, s whole static, l list<frozen<whole>>"
    rest = {
        "k": f"({named}, c int, v int, s int static, PRIMARY KEY (({names}), c)) WITH ",
        "c": f"(pk int, {named}, v int, s int static, PRIMARY KEY (pk, {names})) WITH {mixed} AND ",
        "r": f"(pk int, {ordered}, v int, s int static, PRIMARY KEY (pk, {firsts})) WITH {order} AND ",
        "v": f"(pk int, ck int, {values}, PRIMARY KEY (pk, ck)) WITH ",
        **{table: f"(pk int PRIMARY KEY, {columns}) WITH " for table, columns in frozen.items()},
        **{table: f"(pk int, ck int, {columns}, PRIMARY KEY (pk, ck)) WITH " for table, columns in live.items()},
        "u": f"(pk int, ck int, {udts}, PRIMARY KEY (pk, ck)) WITH ",
    }
    for name in tables:
        session.execute(f"CREATE TABLE {keyspace}.{name} {rest[name]} {log}")


_FROZEN_FORMS = {"a": "list<{}>", "b": "map<text, {}>", "c": "tuple<{}, int>", "d": "set<{}>", "e": "map<{}, int>"}
_LIVE_FORMS = {"a": "list<{}>", "b": "map<text, {}>", "d": "set<{}>", "e": "map<{}, int>", "g": "set<{}> static"}


def _types_in(table: str) -> list[tuple[int, str]]:
    """Return the types of a table, all or a quarter of them, with their numbers."""
    types = list(enumerate(VALUES))
    return types if table[1:] == "m" else types[int(table[1:]) :: len(LIVE)]


def _forms(table: str, number: int, type_: str, forms: Iterable[str]) -> list[str]:
    """Return those of *forms* in which *table* has a type: all that the type can be in, or one of them."""
    in_maps = KEYS if table in (*FROZEN, "fm") else MAPPED
    fitting = [f for f in forms if f in "abc" or type_ in (in_maps if f == "e" else KEYS)]
    # Integers that Iceberg has no type of are elements of a list in ``fm``, and keys of a map in ``lm``.
    return [fitting[(number + 3 * (table == "lm")) % len(fitting)]] if table[1:] == "m" else fitting


def _order(directions: Iterable[str]) -> str:
    return f"CLUSTERING ORDER BY ({', '.join(f'k{i} {d}' for i, d in enumerate(directions))})"


def writes(keyspace: str, start_us: int, tables: Iterable[str]) -> Iterator[str]:
    """Yield statements with write times from *start_us* on, a millisecond apart, some of them with that of the last."""
    at, of_tables = start_us, frozenset(tables)
    for table, statement in _statements():
        if table not in of_tables:
            continue
        if "?" in statement:
            at += 0 if statement.startswith("=") else 1_000
            cql = statement.removeprefix("=").replace("?", f"USING TIMESTAMP {at}")
        yield cql.replace(f" {table}!", f" {keyspace}.{table}").replace("!TTL", "AND TTL 100000")


def _statements() -> Iterator[tuple[str, str]]:
    yield from (("k", s) for s in _of_keys("k", "", list(KEYS.values()), "c = 1"))
    yield from (("c", s) for s in _of_keys("c", "pk = 1", list(KEYS.values()), ""))
    yield from (("r", s) for s in _of_keys("r", "pk = 1", [PLAIN[t] for t in ORDERED], ""))
    yield from (("r", s) for s in _ranges())
    yield from (("v", s) for s in _of_values())
    yield from ((table, s) for table in (*FROZEN, "fm") for s in _of_frozen(table))
    yield from ((table, s) for table in (*LIVE, "lm") for s in _of_live(table))
    yield from (("u", s) for s in _of_fields())


def _of_keys(table: str, before: str, types: list[tuple[str, str]], after: str) -> Iterator[str]:
    def where(which: int) -> str:
        parts = [before, *(f"k{i} = {literals[which]}" for i, literals in enumerate(types)), after]
        return " AND ".join(filter(None, parts))

    def insert(which: int, value: int, using: str = "?") -> str:
        pairs = [p.split(" = ", 1) for p in where(which).split(" AND ")]
        names, values = ", ".join(p[0] for p in pairs), ", ".join(p[1] for p in pairs)
        return f"INSERT INTO {table}! ({names}, v) VALUES ({values}, {value}) {using}"

    partition = where(0).removesuffix(" AND c = 1") if table == "k" else before
    yield insert(0, 1)
    yield insert(1, 2)
    yield f"UPDATE {table}! ? SET s = 7 WHERE {partition}"
    yield f"UPDATE {table}! ? !TTL SET v = 3 WHERE {where(0)}"
    yield f"DELETE FROM {table}! ? WHERE {where(1)}"
    yield "=" + insert(1, 4)  # of the time of the delete, which wins
    yield f"DELETE v FROM {table}! ? WHERE {where(0)}"


def _ranges() -> Iterator[str]:
    types = [PLAIN[t] for t in ORDERED]
    for pk, least in enumerate((0, 1), 10):
        for size in range(1, len(types) + 1):
            for which in (0, 1):
                values = ", ".join(literals[which if i == size - 1 else least] for i, literals in enumerate(types))
                names = ", ".join(f"k{i}" for i in range(len(types)))
                yield f"INSERT INTO r! (pk, {names}, v) VALUES ({pk * 100 + size}, {values}, {size}) ?"
            equal = " AND ".join(f"k{i} = {types[i][least]}" for i in range(size - 1))
            sign = (">", "<=", "<", ">=")[size % 4]
            last = f"k{size - 1} {sign} {types[size - 1][size % 2]}"
            yield f"DELETE FROM r! ? WHERE pk = {pk * 100 + size} AND {' AND '.join(filter(None, (equal, last)))}"
    names = ", ".join(f"k{i}" for i in range(len(types)))
    for which in (0, 1):
        yield f"INSERT INTO r! (pk, {names}, s) VALUES (2, {', '.join(t[which] for t in types)}, 5) ?"
    # Deletes of all rows that are none of the partition, whose static row stays.
    yield f"DELETE FROM r! ? WHERE pk = 2 AND k0 <= {types[0][0]}"
    yield f"=DELETE FROM r! ? WHERE pk = 2 AND k0 > {types[0][0]}"


def _of_values() -> Iterator[str]:
    literals = list(VALUES.values())
    names = ", ".join(f"v{i}, s{i}" for i in range(len(literals)))

    def all_of(which: int) -> str:
        return ", ".join(f"{t[which]}, {t[1 - which]}" for t in literals)

    for pk in (1, 2):
        yield f"INSERT INTO v! (pk, ck, {names}) VALUES ({pk}, 1, {all_of(0)}) ?"
        yield f"INSERT INTO v! (pk, ck, {names}) VALUES ({pk}, 2, {all_of(1)}) ? !TTL"
        assigned = ", ".join(f"v{i} = {t[1]}" for i, t in enumerate(literals))
        yield f"UPDATE v! ? SET {assigned} WHERE pk = {pk} AND ck = 1"
    yield f"UPDATE v! ? SET {', '.join(f'v{i} = null' for i in range(0, len(literals), 2))} WHERE pk = 1 AND ck = 1"
    yield f"UPDATE v! ? SET {', '.join(f's{i} = null' for i in range(1, len(literals), 2))} WHERE pk = 1"
    yield "DELETE FROM v! ? WHERE pk = 2 AND ck = 2"
    # Two live values of one time: the greater bytes win.
    ties = [i for i, t in enumerate(VALUES) if t in ORDERED]
    yield f"UPDATE v! ? SET {', '.join(f'v{i} = {literals[i][0]}' for i in ties)} WHERE pk = 3 AND ck = 1"
    yield f"=UPDATE v! ? SET {', '.join(f'v{i} = {literals[i][1]}' for i in ties)} WHERE pk = 3 AND ck = 1"
    yield f"UPDATE v! ? SET {', '.join(f'v{i} = {literals[i][1]}' for i in ties)} WHERE pk = 3 AND ck = 2"
    yield f"=UPDATE v! ? SET {', '.join(f'v{i} = {literals[i][0]}' for i in ties)} WHERE pk = 3 AND ck = 2"


def _of_frozen(table: str) -> Iterator[str]:
    for pk, which in ((1, 0), (2, 1), (1, 1)):
        pairs: dict[str, str] = {}
        for i, name in _types_in(table):
            t = VALUES[name]
            made = {
                "a": f"[{t[which]}, {t[0]}]",
                "b": f"{{'x': {t[which]}, 'y': {t[1]}}}",
                "c": f"({t[which]}, null)",
                "d": f"{{{t[1]}, {t[which]}}}",
                "e": f"{{{t[which]}: {which}}}",
            }
            pairs |= {f"{form}{i}": made[form] for form in _forms(table, i, name, _FROZEN_FORMS)}
        yield f"INSERT INTO {table}! (pk, {', '.join(pairs)}) VALUES ({pk}, {', '.join(pairs.values())}) ?"
    lists = [name for name in pairs if name[0] == "a" and int(name[1:]) % 3 == 0]
    yield f"UPDATE {table}! ? SET {', '.join(f'{name} = null' for name in lists)} WHERE pk = 1"


def _of_live(table: str) -> Iterator[str]:
    edit = f"UPDATE {table}! ?"

    def pairs(*forms: str) -> str:
        """Return the assignments for each type; those of sets and of keys of maps only for types that can be that."""
        made = [
            form.format(i=i, a=VALUES[name][0], b=VALUES[name][1])
            for i, name in _types_in(table)
            for form in forms
            if form[0] in _forms(table, i, name, _LIVE_FORMS)
        ]
        return ", ".join(made) + " "

    row, other = "WHERE pk = 1 AND ck = 1", "WHERE pk = 1 AND ck = 2"
    for where in (row, other):
        yield edit + " SET " + pairs("a{i} = [{a}, {b}]", "b{i} = {{'x': {a}}}") + where
        yield edit + " SET " + pairs("d{i} = {{{a}}}", "e{i} = {{{a}: 1}}") + where
    yield edit + " SET " + pairs("g{i} = g{i} + {{{a}, {b}}}") + "WHERE pk = 1"
    yield edit + " !TTL SET " + pairs("a{i} = a{i} + [{b}]") + row
    yield edit + " SET " + pairs("b{i} = b{i} + {{'x': {b}, 'z': {a}}}") + row
    yield edit + " SET " + pairs("d{i} = d{i} + {{{b}}}", "e{i} = e{i} + {{{b}: 2, {a}: 3}}") + row
    yield edit + " SET " + pairs("d{i} = d{i} - {{{a}}}", "e{i} = e{i} - {{{b}}}") + row
    yield edit + " SET " + pairs("g{i} = g{i} - {{{b}}}") + "WHERE pk = 1"
    yield edit + " SET " + pairs("b{i} = {{'w': {a}}}") + other
    yield edit + " SET " + pairs("a{i} = null") + other


def _of_fields() -> Iterator[str]:
    def udt(which: int) -> str:
        return "{" + ", ".join(f"f{i}: {t[which]}" for i, t in enumerate(VALUES.values())) + "}"

    for ck, which in ((1, 0), (2, 1)):
        yield (
            f"INSERT INTO u! (pk, ck, u, f, s, l) VALUES (1, {ck}, {udt(which)}, {udt(1 - which)}, {udt(which)}, "
            f"[{udt(which)}]) ?"
        )
    fields = ", ".join(f"u.f{i} = {t[1]}" for i, t in enumerate(VALUES.values()))
    yield f"UPDATE u! ? !TTL SET {fields} WHERE pk = 1 AND ck = 1"
    yield f"UPDATE u! ? SET {', '.join(f'u.f{i} = null' for i in range(0, len(VALUES), 2))} WHERE pk = 1 AND ck = 1"
    yield f"UPDATE u! ? SET {', '.join(f's.f{i} = null' for i in range(1, len(VALUES), 2))} WHERE pk = 1"
    yield "UPDATE u! ? SET u = null WHERE pk = 1 AND ck = 2"
