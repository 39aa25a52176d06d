"""DESCRIBE."""

from .model import done, rejected, statement

PAIR = ("ks", "type", "pair", "CREATE TYPE ks.pair (\n    x int,\n    y text\n);")
CREATED = (
    "CREATE KEYSPACE ks WITH replication = {'class': 'org.apache.cassandra.locator.SimpleStrategy',"
    " 'replication_factor': '1'} AND durable_writes = true AND tablets = {'enabled': false};"
)
KEYSPACE = ("ks", "keyspace", "ks", CREATED)
EMPTY = ("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",)
NEW = (("k", "keyspace", "k", CREATED.replace("KEYSPACE ks", "KEYSPACE k")),)
DROPS = ("DROP TABLE t", "DROP TABLE kv", "DROP TABLE logged", "DROP TYPE pair")
ALONE = (*EMPTY, "DROP KEYSPACE ks")

CLAUSES = (
    *statement(
        "DESCRIBE",
        done("KEYSPACE, of all in it", "DESCRIBE KEYSPACE k", NEW, given=EMPTY),
        done("KEYSPACE in use", "DESC KEYSPACE", [KEYSPACE], given=DROPS),
        done("ONLY KEYSPACE", "DESCRIBE ONLY KEYSPACE ks", [KEYSPACE]),
        done("TYPE", "DESCRIBE TYPE pair", [PAIR]),
        done("a bare name", "DESCRIBE ks.pair", [PAIR]),
        done("TABLES", "DESC TABLES", [("ks", "table", "kv"), ("ks", "table", "logged"), ("ks", "table", "t")]),
        done("TYPES", "DESC TYPES", [("ks", "type", "pair")]),
        done("SCHEMA", "DESCRIBE SCHEMA", NEW, given=ALONE),
        done("SCHEMA WITH INTERNALS AND PASSWORDS", "DESC SCHEMA WITH INTERNALS AND PASSWORDS", NEW, given=ALONE),
        rejected(
            "WITH PASSWORDS of anything else",
            "DESC TABLE t WITH INTERNALS AND PASSWORDS",
            "InvalidRequest",
            "Option WITH PASSWORDS is only allowed with DESC SCHEMA",
        ),
        rejected("a name that is not there", "DESC TABLE x", "InvalidRequest", "Table 'x' not found in keyspace"),
    ),
)
