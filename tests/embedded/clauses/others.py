"""Statements that the embedded server refuses as a whole: indexes, views, roles, permissions, service levels."""

from .model import Clause, done, refused, rejected, statement


def _whole(text: str, name: str, clause: str = "the statement") -> Clause:
    """Return the refusal of the statement *text* by its *name*."""
    return refused(clause, text, f"{name} is not supported")


CLAUSES = (
    *statement("CREATE INDEX", _whole("CREATE INDEX ON t (v)", "CREATE INDEX", "secondary indexes")),
    *statement(
        "CREATE CUSTOM INDEX",
        _whole("CREATE CUSTOM INDEX ON t (v) USING 'vector_index'", "CREATE CUSTOM INDEX", "vector indexes"),
    ),
    *statement("DROP INDEX", _whole("DROP INDEX IF EXISTS i", "DROP INDEX")),
    *statement(
        "CREATE MATERIALIZED VIEW",
        _whole(
            "CREATE MATERIALIZED VIEW x AS SELECT * FROM t WHERE v IS NOT NULL PRIMARY KEY (v, pk, ck)",
            "CREATE MATERIALIZED VIEW",
        ),
    ),
    *statement(
        "ALTER MATERIALIZED VIEW",
        _whole("ALTER MATERIALIZED VIEW x WITH comment = 'x'", "ALTER MATERIALIZED VIEW"),
    ),
    *statement("DROP MATERIALIZED VIEW", _whole("DROP MATERIALIZED VIEW x", "DROP MATERIALIZED VIEW")),
    *statement("PRUNE MATERIALIZED VIEW", _whole("PRUNE MATERIALIZED VIEW x", "PRUNE MATERIALIZED VIEW")),
    *statement("CREATE ROLE", _whole("CREATE ROLE r", "CREATE ROLE")),
    *statement("ALTER ROLE", _whole("ALTER ROLE r WITH LOGIN = true", "ALTER ROLE")),
    *statement("DROP ROLE", _whole("DROP ROLE r", "DROP ROLE")),
    *statement("CREATE USER", _whole("CREATE USER u WITH PASSWORD 'p'", "CREATE USER")),
    *statement("ALTER USER", _whole("ALTER USER u SUPERUSER", "ALTER USER")),
    *statement("DROP USER", _whole("DROP USER u", "DROP USER")),
    *statement(
        "GRANT",
        _whole("GRANT SELECT ON t TO r", "GRANT", "permissions"),
        _whole("GRANT a TO b", "GRANT", "roles"),
    ),
    *statement(
        "REVOKE",
        _whole("REVOKE ALL ON ALL KEYSPACES FROM r", "REVOKE", "permissions"),
        _whole("REVOKE a FROM b", "REVOKE", "roles"),
    ),
    *statement(
        "LIST",
        done("roles", "LIST ROLES", [("cassandra", True, True, {})], columns=["role", "super", "login", "options"]),
        done("roles OF a role", "LIST ROLES OF cassandra NORECURSIVE", [("cassandra", True, True, {})]),
        rejected("roles OF a role that is not there", "LIST ROLES OF r", "InvalidRequest", "r doesn't exist"),
        done("users", "LIST USERS", [("cassandra", True)], columns=["name", "super"]),
        _whole("LIST ALL PERMISSIONS ON t OF r", "LIST", "permissions"),
        _whole("LIST SERVICE LEVEL s", "LIST SERVICE LEVEL", "a service level"),
        _whole("LIST ALL SERVICE LEVELS", "LIST ALL SERVICE LEVELS", "all service levels"),
        _whole("LIST ATTACHED SERVICE LEVEL OF r", "LIST ATTACHED SERVICE LEVEL", "an attached service level"),
        _whole("LIST ALL ATTACHED SERVICE_LEVELS", "LIST ALL ATTACHED SERVICE LEVELS", "all attached service levels"),
        _whole("LIST EFFECTIVE SERVICE LEVEL OF r", "LIST EFFECTIVE SERVICE LEVEL", "the effective service level"),
    ),
    *statement("CREATE SERVICE LEVEL", _whole("CREATE SERVICE_LEVEL s WITH timeout = 5s", "CREATE SERVICE LEVEL")),
    *statement("ALTER SERVICE LEVEL", _whole("ALTER SERVICE LEVEL s WITH timeout = 5s", "ALTER SERVICE LEVEL")),
    *statement("DROP SERVICE LEVEL", _whole("DROP SERVICE LEVEL IF EXISTS s", "DROP SERVICE LEVEL")),
    *statement("ATTACH SERVICE LEVEL", _whole("ATTACH SERVICE LEVEL s TO r", "ATTACH SERVICE LEVEL")),
    *statement("DETACH SERVICE LEVEL", _whole("DETACH SERVICE_LEVEL FROM r", "DETACH SERVICE LEVEL")),
    *statement(
        "CREATE TRIGGER",
        rejected("the statement", "CREATE TRIGGER x ON t USING 'c'", "SyntaxException", "no viable alternative"),
    ),
    *statement(
        "DROP TRIGGER",
        rejected("the statement", "DROP TRIGGER x ON t", "SyntaxException", "no viable alternative"),
    ),
)
