"""Random CQL statements, derived from the embedded server's own grammar and bent towards the tables that are there.

A statement is a list of pieces: words, and bind markers with the bytes that are bound to them. Where the grammar asks
for a name, the derivation takes one of the tables at hand, and where it asks for a term, a literal or marker of the
type of the column that it named last; now and then it takes something else.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import attrs
from lark.grammar import NonTerminal, Rule

from rscylla.embedded.cql.parser import _machine
from rscylla.embedded.schema.tables import Column, Schema, TableSchema
from rscylla.embedded.types import (
    BIGINT,
    DURATION,
    INT,
    NATIVE_TYPES,
    TEXT,
    UNSET,
    CqlType,
    Duration,
    ListType,
    MapType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    quote_name,
)
from rscylla.embedded.types.jsontext import to_json

__all__ = ["Bound", "Piece", "StatementWriter", "text_of", "values_of"]

DEPTH = 9
"""Rules within rules of a derivation; below that, each takes the shortest way to its end."""


@attrs.frozen
class Bound:
    """A bind marker, by name or "?", and what is bound to it."""

    name: str
    value: Any


Piece = str | Bound


def text_of(pieces: list[Piece]) -> str:
    return " ".join(piece if isinstance(piece, str) else piece.name for piece in pieces)


def values_of(pieces: list[Piece]) -> list[Any]:
    """Return the values in the order of the variables: a name that is used twice is one variable."""
    out: dict[Any, Any] = {}
    for at, piece in enumerate(pieces):
        if isinstance(piece, Bound):
            out.setdefault(at if piece.name == "?" else piece.name, piece.value)
    return [*out.values()]


_UUID = "5b1a5c0e-1dd2-41b2-9a3e-6f8f3e6d2a10"
_TIMEUUIDS = ("50554d6e-29bb-11e5-b345-feff819cdc9f", "13814000-1dd2-11b2-8080-808080808080")
_SAMPLES: dict[str, list[tuple[str, Any]]] = {
    "ascii": [("'a'", "a"), ("''", ""), ("'b c'", "b c")],
    "bigint": [(str(n), n) for n in (0, 1, -1, 2**63 - 1, -(2**63))],
    "blob": [("0x", b""), ("0x00", b"\0"), ("0xff7f", b"\xff\x7f")],
    "boolean": [("true", True), ("false", False)],
    "counter": [("1", 1)],
    "date": [("'2024-02-29'", dt.date(2024, 2, 29)), ("'-0001-01-01'", -719893), ("2147483648", 0)],
    "decimal": [("1.50", Decimal("1.50")), ("-0", Decimal(0)), ("1e300", Decimal("1e300")), ("3", Decimal(3))],
    "double": [("0.0", 0.0), ("-0.0", -0.0), ("nan", float("nan")), ("-infinity", float("-inf")), ("1.5", 1.5)],
    "duration": [
        ("1mo2d3ns", Duration(1, 2, 3)),
        ("-1h", Duration(0, 0, -3_600_000_000_000)),
        ("0s", Duration(0, 0, 0)),
    ],
    "float": [("0.0", 0.0), ("nan", float("nan")), ("3.4028235E38", 3.4028234663852886e38), ("1.5", 1.5)],
    "inet": [("'127.0.0.1'", ipaddress.ip_address("127.0.0.1")), ("'::1'", ipaddress.ip_address("::1"))],
    "int": [(str(n), n) for n in (0, 1, 2, -1, 2**31 - 1, -(2**31))],
    "smallint": [(str(n), n) for n in (0, 1, -1, 2**15 - 1)],
    "text": [("'a'", "a"), ("''", ""), ("'\u00e9\U0001f600'", "\u00e9\U0001f600"), ("'x''y'", "x'y")],
    "time": [("'12:30:00.5'", 45_000_500_000_000), ("'00:00:00'", 0)],
    "timestamp": [("0", 0), ("'2024-01-01T00:00:00Z'", 1_704_067_200_000), (str(2**63 - 1), 2**63 - 1)],
    "timeuuid": [(text, uuid.UUID(text)) for text in _TIMEUUIDS],
    "tinyint": [(str(n), n) for n in (0, 1, -128, 127)],
    "uuid": [(text, uuid.UUID(text)) for text in (_UUID, *_TIMEUUIDS)],
    "varint": [(str(n), n) for n in (0, 1, -1, 2**70, -(2**70))],
}
_KEY_TYPES = sorted(_SAMPLES.keys() - {"counter", "duration"})
_PLAIN_TYPES = sorted(_SAMPLES.keys() - {"counter"})
_FUNCTIONS = (
    *("token", "now", "uuid", "mintimeuuid", "maxtimeuuid", "totimestamp", "todate", "tounixtimestamp", "dateof"),
    *("writetime", "ttl", "count", "min", "max", "sum", "avg", "tojson", "fromjson", "intasblob", "blobasint"),
    *("textasblob", "blobastext", "blobasuuid", "currenttimestamp", "currentdate", "castasint", "nosuchfunction"),
)
_SYSTEM = (
    *("system.local", "system.peers", "system_schema.tables", "system_schema.columns", "system.cdc_timestamps"),
    *("system.cdc_streams", "system_distributed.cdc_streams_descriptions_v2", "system.size_estimates"),
)
_JUNK = ("zz", '"Quoted x"', "key", "ttl", "cdc$time", "select", "\u20ac", '""')
_WEIGHTS = {
    "select": 12,
    "insert": 12,
    "insert_json": 3,
    "update": 14,
    "delete": 8,
    "batch": 5,
    "truncate": 1,
    "use": 0.2,
    "create_keyspace": 0.3,
    "alter_keyspace": 0.3,
    "drop_keyspace": 0.1,
    "create_table": 0.7,
    "alter_table": 2.5,
    "drop_table": 0.15,
    "create_type": 0.5,
    "alter_type": 0.7,
    "drop_type": 0.2,
    "describe": 1,
}


class StatementWriter:
    """Derives statements for the tables of keyspace ``ks`` in *schema*, which may change between any two."""

    def __init__(self, rng: random.Random, schema: Schema) -> None:
        self._rng = rng
        self._schema = schema
        self._rules, self._costs = _grammar()
        self._special: dict[str, Callable[[int], Iterator[Piece]]] = {
            "statement": self._statement,
            "batched": self._batched,
            "table": self._table_name,
            "name": self._name,
            "term": self._term,
            "int_value": self._int_value,
            "type": lambda _: iter([self.type_text(self._rng.randint(0, 3))]),
            "where": self._where,
            "relations": self._relations,
            "insert": self._insert,
            "insert_json": self._insert_json,
            "property_": self._property,
            "source": self._source,
            "timeout": self._timeout,
            "item": self._item,
            "assignment": lambda depth: self._about_a_value("assignment", depth),
            "deletion": lambda depth: self._about_a_value("deletion", depth),
            "function": lambda _: iter([self._rng.choice(_FUNCTIONS)]),
        }
        self._table: TableSchema | None = None
        self._expected: CqlType = INT
        self._column: Column | None = None  # the only one that is named, if any

    # ------------------------------------------------------------ statements

    def statement(self) -> list[Piece]:
        self._choose_table()
        return [*self._statement(DEPTH)]

    def create_table(self, name: str) -> str:
        """Return a statement that should succeed: keys, columns and CDC options of all kinds."""
        rng = self._rng
        keys = [f"p{at}" for at in range(rng.choice([1, 1, 2]))]
        clustering = [f"c{at}" for at in range(rng.choice([0, 1, 1, 2, 3]))]
        columns = [f"{key} {self._key_type()}" for key in keys + clustering]
        columns += [f"v{at} {self.type_text(2)}" for at in range(rng.randint(1, 5))]
        if clustering:
            columns += [f"s{at} {self.type_text(1)} static" for at in range(rng.randint(0, 2))]
        options = [f"cdc = {self._cdc()}"] if rng.random() < 0.7 else []
        if clustering and rng.random() < 0.6:
            order = ", ".join(f"{key} {rng.choice(['ASC', 'DESC'])}" for key in clustering)
            options.append(f"CLUSTERING ORDER BY ({order})")
        key = ", ".join([f"({', '.join(keys)})", *clustering])
        options_text = f" WITH {' AND '.join(options)}" if options else ""
        return f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({key})){options_text}"

    def type_text(self, depth: int) -> str:
        rng = self._rng
        if depth <= 0 or rng.random() < 0.4:
            return rng.choice(_PLAIN_TYPES)
        inner, key = self.type_text(depth - 1), rng.choice(_KEY_TYPES)
        frozen = f"frozen<{inner}>" if "<" in inner and not inner.startswith(("frozen", "tuple", "vector")) else inner
        types = [quote_name(name) for name in self._keyspace.types] if self._has_keyspace else []
        made = [
            *(f"list<{frozen}>", f"set<{key}>", f"map<{key}, {frozen}>", f"frozen<list<{frozen}>>"),
            *(
                f"frozen<set<{key}>>",
                f"frozen<map<{key}, {frozen}>>",
                f"tuple<{key}, {frozen}>",
                f"vector<{frozen}, 2>",
            ),
        ]
        return rng.choice(made + types * 2 + [f"frozen<{name}>" for name in types * 2])

    def _key_type(self) -> str:
        rng = self._rng
        if rng.random() < 0.8:
            return rng.choice(_KEY_TYPES)
        a, b = rng.choice(_KEY_TYPES), rng.choice(_KEY_TYPES)
        return rng.choice([f"frozen<list<{a}>>", f"frozen<set<{a}>>", f"frozen<map<{a}, {b}>>", f"tuple<{a}, {b}>"])

    def _cdc(self) -> str:
        rng = self._rng
        image = rng.choice(["true", "false", "'full'"])
        return (
            f"{{'enabled': true, 'preimage': {image}, 'postimage': {rng.choice(['true', 'false'])}, "
            f"'delta': '{rng.choice(['full', 'full', 'keys'])}'}}"
        )

    def _statement(self, depth: int) -> Iterator[Piece]:
        kind = self._rng.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        if kind == "create_table" and self._rng.random() < 0.5:
            return iter([self.create_table(f"t{self._rng.randint(0, 5)}")])
        return self._expand(kind, depth)

    def _batched(self, depth: int) -> Iterator[Piece]:
        if self._rng.random() < 0.3:
            self._choose_table()
        return self._expand(self._rng.choice(["insert", "update", "delete", "insert_json"]), depth)

    # ------------------------------------------------------------ derivation

    def _derive(self, name: str, depth: int) -> Iterator[Piece]:
        """Yield the pieces of one random derivation of the rule *name*."""
        rules = self._rules[name]
        if depth <= 0:
            cheapest = min(self._costs[rule] for rule in rules)
            rules = [rule for rule in rules if self._costs[rule] == cheapest]
        for symbol in self._rng.choices(rules, [_weight(rule, len(rules)) for rule in rules])[0].expansion:
            if isinstance(symbol, NonTerminal):
                yield from self._expand(symbol.name, depth - 1)
            else:
                yield self._terminal(symbol.name)

    def _expand(self, name: str, depth: int) -> Iterator[Piece]:
        """Yield the pieces of a part, mostly in the way that suits the tables."""
        special = self._special.get(name)
        return self._derive(name, depth) if special is None or self._rng.random() < 0.03 else special(depth)

    def _terminal(self, name: str) -> str:
        rng = self._rng
        match name:
            case "IDENT" | "QUOTED":
                return "".join(map(str, self._name(0)))
            case "INTEGER":
                return str(rng.choice([0, 1, 2, 3, 10, 60, -1, 2**31, 2**63]))
            case "OPERATOR":
                return rng.choice(["<=", ">=", "!="])
            case _ if name in _LITERALS:
                return rng.choice(_SAMPLES[_LITERALS[name]])[0]
        return _words()[name]

    # ------------------------------------------------------------ names

    @property
    def _has_keyspace(self) -> bool:
        return "ks" in self._schema.keyspaces

    @property
    def _keyspace(self) -> Any:
        return self._schema.keyspaces["ks"]

    def _choose_table(self) -> None:
        tables = [*self._keyspace.tables.values()] if self._has_keyspace else []
        bases = [table for table in tables if not table.is_cdc_log]
        self._table = self._rng.choice(bases if bases and self._rng.random() < 0.95 else tables or [None])

    def _table_name(self, _: int) -> Iterator[Piece]:
        if self._table is None or self._rng.random() < 0.04:
            yield self._rng.choice([*_SYSTEM, "ks.nosuchtable", "t0", "t1"])
            return
        yield f"ks.{quote_name(self._table.name)}" if self._rng.random() < 0.2 else quote_name(self._table.name)

    def _timeout(self, _: int) -> Iterator[Piece]:
        if self._rng.random() < 0.1:
            yield "USING TIMEOUT"
            yield self._rng.choice(["5s", "0s", "1h", Bound("?", DURATION.encode(Duration(0, 0, 1_000_000)))])

    def _item(self, depth: int) -> Iterator[Piece]:
        """Yield what is selected: mostly a column, as it is or in a function."""
        if self._rng.random() < 0.3:
            yield from self._derive("item", depth)
        elif self._rng.random() < 0.7:
            yield from self._name(depth)
        else:
            yield f"{self._rng.choice(_FUNCTIONS)} ("
            yield from self._item(depth)
            yield ")"

    def _source(self, depth: int) -> Iterator[Piece]:
        yield "FROM"
        yield from self._table_name(depth)

    def _name(self, _: int) -> Iterator[Piece]:
        rng = self._rng
        if self._table is None or rng.random() < 0.05:
            self._expected = NATIVE_TYPES[rng.choice(_PLAIN_TYPES)]
            yield rng.choice([*_JUNK, "v0", "c0", "f0", "t0", "pair"])
            return
        column = self._column or rng.choice(self._table.columns)
        self._expected = column.type
        if isinstance(column.type, UdtType) and rng.random() < 0.2:
            yield quote_name(rng.choice(column.type.field_names))
            return
        yield quote_name(column.name)

    # ------------------------------------------------------------ terms

    def _term(self, depth: int) -> Iterator[Piece]:
        if self._rng.random() < 0.1:
            yield from self._derive("term", depth)
        else:
            yield self._value(self._expected)

    def _int_value(self, _: int) -> Iterator[Piece]:
        if self._rng.random() < 0.3:
            yield self._bound(self._rng.choice([INT, BIGINT]))
        else:
            yield self._terminal("INTEGER")

    def _value(self, cql_type: CqlType) -> Piece:
        """Return a literal or marker, mostly of *cql_type*, its elements or its parts."""
        rng = self._rng
        if (chance := rng.random()) < 0.12:
            cql_type = rng.choice([*_parts(cql_type), cql_type])
        elif chance < 0.18:
            cql_type = NATIVE_TYPES[rng.choice(_PLAIN_TYPES)]
        elif chance < 0.22:
            return "null"
        return self._bound(cql_type) if rng.random() < 0.35 else self.sample(cql_type)[0]

    def _bound(self, cql_type: CqlType) -> Bound:
        rng = self._rng
        name = rng.choice(["?", "?", "?", "?", ":a", ":b"])
        if (chance := rng.random()) < 0.05:
            return Bound(name, None)
        if chance < 0.09:
            return Bound(name, UNSET)
        raw = cql_type.encode(self.sample(cql_type)[1])
        if chance < 0.12:
            return Bound(name, b"")
        if chance < 0.15:
            return Bound(name, raw[: rng.randint(0, len(raw))])
        if chance < 0.17:
            return Bound(name, raw + rng.randbytes(rng.randint(1, 4)))
        if chance < 0.2:
            return Bound(name, rng.randbytes(rng.choice([1, 4, 8, 16, 20])))
        return Bound(name, raw)

    def sample(self, cql_type: CqlType) -> tuple[str, Any]:
        """Return a value of *cql_type* as a literal and as Python's."""
        rng = self._rng
        match cql_type:
            case ListType() | SetType():
                items = [self.sample(cql_type.element) for _ in range(rng.choice([0, 1, 2, 3]))]
                marks = "[]" if isinstance(cql_type, ListType) else "{}"
                return marks[0] + ", ".join(text for text, _ in items) + marks[1], [value for _, value in items]
            case MapType():
                pairs = [(self.sample(cql_type.key), self.sample(cql_type.value)) for _ in range(rng.choice([0, 1, 2]))]
                text = ", ".join(f"{key[0]}: {value[0]}" for key, value in pairs)
                return f"{{{text}}}", [(key[1], value[1]) for key, value in pairs]
            case TupleType():
                items = [self.sample(item) for item in cql_type.items]
                return f"({', '.join(text for text, _ in items)})", tuple(value for _, value in items)
            case UdtType():
                chosen = [name for name in cql_type.field_names if rng.random() < 0.8] or [cql_type.field_names[0]]
                types = dict(zip(cql_type.field_names, cql_type.field_types, strict=True))
                fields = {name: self.sample(types[name]) for name in chosen}
                text = ", ".join(f"{quote_name(name)}: {item[0]}" for name, item in fields.items())
                return f"{{{text}}}", {name: item[1] for name, item in fields.items()}
            case VectorType():
                items = [self.sample(cql_type.element) for _ in range(cql_type.dimension)]
                return f"[{', '.join(text for text, _ in items)}]", [value for _, value in items]
        return rng.choice(_SAMPLES[cql_type.name])

    # ------------------------------------------------------------ parts that a derivation would hardly get right

    def _where(self, depth: int) -> Iterator[Piece]:
        if self._rng.random() < 0.8:
            yield "WHERE"
            yield from self._relations(depth)

    def _relations(self, depth: int) -> Iterator[Piece]:
        """Yield relations that select rows by their key, more or less of it, or any others."""
        rng = self._rng
        if self._table is None or rng.random() < 0.25:
            yield from self._derive("relations", depth)
            return
        columns = [*self._table.partition_key, *self._table.clustering_key]
        columns = columns[: rng.choice([len(columns), len(columns), len(self._table.partition_key), len(columns) - 1])]
        for at, column in enumerate(columns):
            if at:
                yield "AND"
            yield quote_name(column.name)
            if rng.random() < 0.8:
                yield "="
                yield self._key_value(column.type)
            elif rng.random() < 0.5:
                yield rng.choice(["<", "<=", ">", ">=", "!="])
                yield self._key_value(column.type)
            else:
                yield "IN ("
                yield self._key_value(column.type)
                yield ","
                yield self._key_value(column.type)
                yield ")"
        if not columns or rng.random() < 0.15:
            if columns:
                yield "AND"
            yield from self._derive("relation", depth)

    def _about_a_value(self, rule: str, depth: int) -> Iterator[Piece]:
        """Yield an assignment or deletion that names one column, mostly one outside the key."""
        values = [*self._table.static_columns, *self._table.regular_columns] if self._table is not None else []
        self._column = self._rng.choice(values) if values and self._rng.random() < 0.95 else None
        if rule == "assignment" and self._column is not None and self._rng.random() < 0.5:
            yield f"{quote_name(self._column.name)} ="
            yield self._value(self._column.type)
        else:
            yield from self._derive(rule, depth)
        self._column = None

    def _key_value(self, cql_type: CqlType) -> Piece:
        return self.sample(cql_type)[0] if self._rng.random() < 0.8 else self._value(cql_type)

    def _insert(self, depth: int) -> Iterator[Piece]:
        if self._table is None or self._rng.random() < 0.1:
            yield from self._derive("insert", depth)
            return
        rng = self._rng
        keys = [*self._table.partition_key, *self._table.clustering_key]
        others = [column for column in self._table.columns if column not in keys and rng.random() < 0.6]
        columns = [column for column in keys if rng.random() < 0.98] + others
        yield "INSERT INTO"
        yield from self._table_name(depth)
        yield f"({', '.join(quote_name(column.name) for column in columns)}) VALUES ("
        for at, column in enumerate(columns):
            if at:
                yield ","
            yield self._key_value(column.type) if column in keys else self._value(column.type)
        yield ")"
        yield from self._derive("if_not_exists", depth)
        yield from self._derive("using", depth)

    def _insert_json(self, depth: int) -> Iterator[Piece]:
        if self._table is None or self._rng.random() < 0.1:
            yield from self._derive("insert_json", depth)
            return
        rng = self._rng
        chosen = [column for column in self._table.columns if column.kind != "regular" or rng.random() < 0.6]
        values = [(column, column.type.encode(self.sample(column.type)[1])) for column in chosen if rng.random() < 0.98]
        document = "{" + ", ".join(f'"{column.name}": {to_json(column.type, raw)}' for column, raw in values) + "}"
        if rng.random() < 0.2:
            at = rng.randrange(len(document))
            document = document[:at] + rng.choice(["", "null", "1", '"', "{", "]", "\\u00e9"]) + document[at + 1 :]
        yield "INSERT INTO"
        yield from self._table_name(depth)
        quoted = f"'{document.replace(chr(39), chr(39) * 2)}'"
        yield "JSON"
        yield quoted if rng.random() < 0.8 else Bound("?", TEXT.encode(document))
        for part in ("json_default", "if_not_exists", "using"):
            yield from self._derive(part, depth)

    def _property(self, depth: int) -> Iterator[Piece]:
        rng = self._rng
        if rng.random() < 0.3:
            yield from self._derive("property_", depth)
            return
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        ttl = f"default_time_to_live = {self._terminal('INTEGER')}"
        yield rng.choice(
            [
                *(
                    f"cdc = {self._cdc()}",
                    "cdc = {'enabled': false}",
                    f"replication = {replication}",
                    ttl,
                    "caching = {}",
                ),
                *("tablets = {'enabled': true}", "comment = 'x'", "gc_grace_seconds = 0", "durable_writes = false"),
                "compaction = {'class': 'LeveledCompactionStrategy'}",
            ]
        )


def _parts(cql_type: CqlType) -> list[CqlType]:
    match cql_type:
        case ListType() | SetType() | VectorType():
            return [cql_type.element]
        case MapType():
            return [cql_type.key, cql_type.value]
        case TupleType() | UdtType():
            return [*cql_type.items]
    return []


_LITERALS = {
    "STRING": "text",
    "UUID": "uuid",
    "BLOB": "blob",
    "DURATION": "duration",
    "FLOAT": "decimal",
    "SPECIAL_FLOAT": "double",
    "BOOLEAN": "boolean",
}


def _weight(rule: Rule, alternatives: int) -> float:
    """Return how often a rule is taken: with all that it may have or repeat, hardly a statement would be accepted."""
    if not rule.expansion:
        return 3 * alternatives
    repeats = any("_star_" in symbol.name for symbol in rule.expansion)
    if rule.origin.name == "batch":
        return 1 if repeats else 0.1
    return 0.25 if repeats else 1


def _words() -> dict[str, str]:
    """Return the text of the terminals that have only one."""
    lexer = _machine()[1]
    return {name: word for words in (lexer._keywords, lexer._marks) for word, name in words.items()}


def _grammar() -> tuple[dict[str, list[Rule]], dict[Rule, float]]:
    """Return the rules by name, and how many rules deep the shortest derivation of each goes."""
    rules: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in _machine()[0].rules:
        rules[rule.origin.name].append(rule)
    depths = dict.fromkeys(rules, math.inf)

    def cost(rule: Rule) -> float:
        return 1 + max((depths[s.name] for s in rule.expansion if isinstance(s, NonTerminal)), default=0)

    before = None
    while depths != before:
        before = dict(depths)
        for name, alternatives in rules.items():
            depths[name] = min(map(cost, alternatives))
    return rules, {rule: cost(rule) for alternatives in rules.values() for rule in alternatives}
