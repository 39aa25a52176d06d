"""Data types and their values, and CREATE, ALTER and DROP TYPE."""

from decimal import Decimal
from ipaddress import ip_address
from typing import Any
from uuid import UUID

from rscylla.embedded.types import Duration

from .model import Clause, done, refused, rejected, statement

_VALUES = (
    ("ascii", "'a'", "a"),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("blob", "0x00ff", b"\0\xff"),
    ("boolean", "true", True),
    ("date", "'1970-01-02'", 1),
    ("decimal", "1.50", Decimal("1.50")),
    ("double", "-1.5e10", -1.5e10),
    ("duration", "1y2mo3d4h5m6s7ms8us9ns", Duration(14, 3, 14_706_007_008_009)),
    ("duration", "P1Y2M3DT4H5M6S", Duration(14, 3, 14_706_000_000_000)),
    ("float", "1.5", 1.5),
    ("inet", "'::1'", ip_address("::1")),
    ("int", "-2147483648", -(2**31)),
    ("smallint", "32767", 2**15 - 1),
    ("text", "'it''s'", "it's"),
    ("text", "$$it's$$", "it's"),
    ("time", "'12:30:00.5'", 45_000_500_000_000),
    ("timestamp", "'1970-01-01T00:00:01Z'", 1000),
    ("timestamp", "'1970-01-01 01:00:00.5+0100'", 500),
    ("timeuuid", "13814000-1dd2-11b2-8080-808080808080", UUID("13814000-1dd2-11b2-8080-808080808080")),
    ("tinyint", "-128", -128),
    ("uuid", "5b1a5c0e-1dd2-41b2-9a3e-6f8f3e6d2a10", UUID("5b1a5c0e-1dd2-41b2-9a3e-6f8f3e6d2a10")),
    ("varchar", "'a'", "a"),
    ("varint", "123456789012345678901234567890", 123456789012345678901234567890),
    ("list<int>", "[1, 1]", [1, 1]),
    ("set<text>", "{'b', 'a', 'b'}", frozenset({"a", "b"})),
    ("map<text, int>", "{'a': 1}", {"a": 1}),
    ("frozen<list<frozen<set<int>>>>", "[{1}, {}]", [frozenset({1}), frozenset()]),
    ("tuple<int, text>", "(1, null)", (1, None)),
    ("frozen<pair>", "{x: 1, y: 'a'}", {"x": 1, "y": "a"}),
    ("frozen<pair>", "(1, 'a')", {"x": 1, "y": "a"}),
    ("pair", "{y: 'a'}", {"x": None, "y": "a"}),
    ("vector<float, 3>", "[1.5, 2, 3]", [1.5, 2.0, 3.0]),
)


def _type(name: str, term: str, value: Any) -> Clause:
    """Return the clause that a value of the type *name* can be written as *term* and read."""
    table = f"CREATE TABLE c (k int PRIMARY KEY, v {name})"
    return done(
        f"{name}: {term}",
        f"INSERT INTO c (k, v) VALUES (1, {term})",
        [(value,)],
        given=[table],
        shown="SELECT v FROM c",
    )


CLAUSES = (
    *statement(
        "CREATE TYPE",
        done(
            "fields",
            "CREATE TYPE p (a int, b frozen<list<text>>)",
            [(["a", "b"], ["int", "frozen<list<text>>"])],
            shown="SELECT field_names, field_types FROM system_schema.types WHERE keyspace_name = 'ks' AND"
            " type_name = 'p'",
        ),
        done(
            "of other types",
            "CREATE TYPE p (a frozen<pair>)",
            [(["frozen<pair>"],)],
            shown="SELECT field_types FROM system_schema.types WHERE keyspace_name = 'ks' AND type_name = 'p'",
        ),
        done(
            "IF NOT EXISTS",
            "CREATE TYPE IF NOT EXISTS pair (a int)",
            [(["x", "y"],)],
            shown="SELECT field_names FROM system_schema.types WHERE keyspace_name = 'ks' AND type_name = 'pair'",
        ),
        rejected(
            "a type that exists",
            "CREATE TYPE pair (a int)",
            "InvalidRequest",
            "A user type of name ks.pair already exists",
        ),
        rejected("a field twice", "CREATE TYPE p (a int, a int)", "InvalidRequest", "Duplicate field name a in type p"),
    ),
    *statement(
        "ALTER TYPE",
        done("ADD", "ALTER TYPE pair ADD z int", [({"x": 1, "y": "a", "z": None},)], shown="SELECT u FROM t LIMIT 1"),
        done(
            "RENAME",
            "ALTER TYPE pair RENAME x TO a AND y TO b",
            [({"a": 1, "b": "a"},)],
            shown="SELECT u FROM t LIMIT 1",
        ),
        rejected(
            "ADD of a field that exists",
            "ALTER TYPE pair ADD x int",
            "InvalidRequest",
            "Cannot add new field x to type ks.pair: a field of the same name already exists",
        ),
        rejected(
            "ADD to a type in a partition key",
            "ALTER TYPE pair ADD z int",
            "InvalidRequest",
            "partition key",
            given=["CREATE TABLE c (a frozen<pair> PRIMARY KEY)"],
        ),
        refused(
            "ALTER field TYPE: compatible types",
            "ALTER TYPE pair ALTER y TYPE blob",
            "ALTER TYPE ... ALTER ... TYPE is not supported",
        ),
        rejected(
            "ALTER field TYPE: incompatible types",
            "ALTER TYPE pair ALTER x TYPE bigint",
            "InvalidRequest",
            "incompatible with previous type",
        ),
    ),
    *statement(
        "DROP TYPE",
        done(
            "the statement",
            "DROP TYPE p",
            [(0,)],
            given=["CREATE TYPE p (a int)"],
            shown="SELECT count(*) FROM system_schema.types WHERE keyspace_name = 'ks' AND type_name = 'p'",
        ),
        done(
            "IF EXISTS",
            "DROP TYPE IF EXISTS p",
            [("pair",)],
            shown="SELECT type_name FROM system_schema.types WHERE keyspace_name = 'ks'",
        ),
        rejected("a type in use", "DROP TYPE pair", "InvalidRequest", "Cannot drop user type ks.pair"),
        rejected("a type that is not there", "DROP TYPE p", "InvalidRequest", "No user type named ks.p exists."),
    ),
    *statement("data types", *(_type(*value) for value in _VALUES)),
)
