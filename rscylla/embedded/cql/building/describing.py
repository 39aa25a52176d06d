"""DESCRIBE and LIST."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidRequest
from .. import ast
from .parts import Parts, false

__all__ = ["Describing", "Listing"]


def _describe(what: str) -> Any:
    def build(_: Describing, parts: Parts) -> ast.Describe:
        target = parts[0] if parts else None
        if isinstance(target, ast.TableName):
            return ast.Describe(what, target.keyspace, target.name, internals=False)
        return ast.Describe(what, target, None, internals=False)

    return build


class Describing:
    """DESCRIBE: the rule's name says what is described, a table name or a keyspace may follow."""

    describe_cluster = _describe("cluster")
    describe_full_schema = _describe("full schema")
    describe_schema = _describe("schema")
    describe_keyspaces = _describe("keyspaces")
    describe_keyspace = _describe("keyspace")
    describe_only_keyspace = _describe("only keyspace")
    describe_tables = _describe("tables")
    describe_table = _describe("table")
    describe_types = _describe("types")
    describe_type = _describe("type")
    describe_functions = _describe("functions")
    describe_function = _describe("function")
    describe_aggregates = _describe("aggregates")
    describe_aggregate = _describe("aggregate")
    describe_index = _describe("index")
    describe_view = _describe("materialized view")
    describe_name = _describe("")

    def passwords(self, _: Parts) -> str:
        return "passwords"

    def describe(self, parts: Parts) -> ast.Describe:
        described: ast.Describe = parts[0]
        if parts[1] == "passwords" and described.what not in ("schema", "full schema"):
            raise InvalidRequest("Option WITH PASSWORDS is only allowed with DESC SCHEMA")
        return ast.Describe(described.what, described.keyspace, described.name, bool(parts[1]))


class Listing:
    """LIST ROLES and LIST USERS."""

    norecursive = staticmethod(false)

    def of_role(self, parts: Parts) -> str | None:
        # Role names may be string literals.
        return getattr(parts[0], "text", parts[0]) if parts else None

    def list_roles(self, parts: Parts) -> ast.ListRoles:
        return ast.ListRoles(parts[0])

    def list_users(self, _: Parts) -> ast.ListUsers:
        return ast.ListUsers()
