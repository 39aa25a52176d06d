"""Statements built from the rules of ``cql.lark``: one method for each rule, called when the parser completes it."""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import InvalidRequest, SyntaxException
from . import ast
from .names import NATIVE_TYPE_NAMES, quote_name

__all__ = ["Builder"]

Parts = list[Any]
_NULL = ast.Constant("null", "")
_Node = TypeVar("_Node")
_MAX_NESTING = 12  # Scylla's max_expression_nesting


def _first_or_none(parts: Parts) -> Any:
    return parts[0] if parts else None


def _tuple(parts: Parts) -> tuple[Any, ...]:
    return tuple(parts)


def _true(_: Parts) -> bool:
    return True


def _false(_: Parts) -> bool:
    return False


class _Words:
    """Tokens with text, names and types."""

    def IDENT(self, token: str) -> str:
        return str.lower(token)

    def QUOTED(self, token: str) -> str:
        return str.replace(token[1:-1], '""', '"')

    def STRING(self, token: str) -> ast.Constant:
        text = token[2:-2] if token[0] == "$" else str.replace(token[1:-1], "''", "'")
        return ast.Constant("string", text)

    # A slice of lark's Token is a plain str: the tree outlives the parse and needs no positions.
    def INTEGER(self, token: str) -> ast.Constant:
        return ast.Constant("integer", token[:])

    def FLOAT(self, token: str) -> ast.Constant:
        return ast.Constant("float", token[:])

    def SPECIAL_FLOAT(self, token: str) -> ast.Constant:
        return ast.Constant("float", str.lower(token))

    def BOOLEAN(self, token: str) -> ast.Constant:
        return ast.Constant("boolean", str.lower(token))

    def UUID(self, token: str) -> ast.Constant:
        return ast.Constant("uuid", str.lower(token))

    def BLOB(self, token: str) -> ast.Constant:
        return ast.Constant("blob", str.lower(token[2:]))

    def DURATION(self, token: str) -> ast.Constant:
        return ast.Constant("duration", token[:])

    def OPERATOR(self, token: str) -> str:
        return token[:]

    names = staticmethod(_tuple)

    def table(self, parts: Parts) -> ast.TableName:
        return ast.TableName(parts[0] if len(parts) > 1 else None, parts[-1])

    # Type text is rebuilt in one spelling, so that it reads the same wherever it came from.
    def type_plain(self, parts: Parts) -> str:
        return str(parts[0])

    def type_quoted(self, parts: Parts) -> str:
        return f'"{str.replace(parts[0], chr(34), chr(34) * 2)}"'

    def type_qualified(self, parts: Parts) -> str:
        return ".".join(map(quote_name, parts))

    def type_of(self, parts: Parts) -> str:
        inner = [part.text if isinstance(part, ast.Constant) else part for part in parts[1:]]
        return f"{parts[0]}<{', '.join(inner)}>"

    def type_set(self, parts: Parts) -> str:
        return f"set<{parts[0]}>"


class _Terms:
    """Constants, markers, calls and collections."""

    def __init__(self) -> None:
        self.markers = 0
        self.named: dict[str, ast.Marker] = {}
        self.levels: dict[int, int] = {}

    def nested(self, node: _Node, *inner: Any) -> _Node:
        """Return *node*, one level above its deepest part. Raises SyntaxException beyond the limit."""
        # By identity, of nodes that the tree keeps alive. Nodes without parts are left out: they have one level.
        level = 1 + max([self.levels.get(id(part), 1) for part in inner], default=0)
        if level > _MAX_NESTING:
            raise SyntaxException("expression nested too deeply")
        self.levels[id(node)] = level
        return node

    def null(self, _: Parts) -> ast.Constant:
        return _NULL

    def marker(self, _: Parts) -> ast.Marker:
        self.markers += 1
        return ast.Marker(self.markers - 1, None)

    def named_marker(self, parts: Parts) -> ast.Marker:
        # A name used twice is one variable, as in Scylla (Cassandra makes two of it).
        known = self.named.get(parts[0])
        if known is None:
            self.markers += 1
            known = self.named[parts[0]] = ast.Marker(self.markers - 1, parts[0])
        return known

    def function(self, parts: Parts) -> tuple[str | None, str]:
        return (parts[0] if len(parts) > 1 else None, parts[-1])

    def token_function(self, _: Parts) -> tuple[str | None, str]:
        return (None, "token")

    def call(self, parts: Parts) -> ast.Call:
        keyspace, name = parts[0]
        arguments = parts[1] if len(parts) > 1 else ()
        return self.nested(ast.Call(keyspace, name, arguments), *arguments)

    def hint(self, parts: Parts) -> ast.Cast:
        return self.nested(ast.Cast(parts[0], parts[1]), parts[1])

    terms = staticmethod(_tuple)

    def tuple_term(self, parts: Parts) -> ast.TupleTerm:
        return self.nested(ast.TupleTerm(parts[0]), *parts[0])

    def empty_list(self, _: Parts) -> ast.ListTerm:
        return ast.ListTerm(())

    def list_term(self, parts: Parts) -> ast.ListTerm:
        return self.nested(ast.ListTerm(parts[0]), *parts[0])

    def empty_set(self, _: Parts) -> ast.SetTerm:
        return ast.SetTerm(())

    def set_term(self, parts: Parts) -> ast.SetTerm:
        return self.nested(ast.SetTerm(parts[0]), *parts[0])

    map_entry = staticmethod(_tuple)
    udt_field = staticmethod(_tuple)

    def map_term(self, parts: Parts) -> ast.MapTerm:
        return self.nested(ast.MapTerm(_tuple(parts)), *(part for entry in parts for part in entry))

    def udt_term(self, parts: Parts) -> ast.UdtTerm:
        return self.nested(ast.UdtTerm(_tuple(parts)), *(value for _, value in parts))


class _Reading(_Terms):
    """SELECT and relations."""

    json = distinct = filtering = bypass = if_not_exists = if_exists = internals = static = row_ttl = staticmethod(
        _false
    )
    no = staticmethod(_false)
    yes = staticmethod(_true)
    source = limit = partition_limit = timeout = drop_timestamp = staticmethod(_first_or_none)
    selection = order = items = relations = no_values = staticmethod(_tuple)

    def star(self, _: Parts) -> None:
        return None

    def selector(self, parts: Parts) -> ast.Selector:
        return ast.Selector(parts[0], parts[1] if len(parts) > 1 else None)

    def column_item(self, parts: Parts) -> ast.ColumnSelector:
        return ast.ColumnSelector(parts[0])

    def field_of_column(self, parts: Parts) -> ast.FieldSelector:
        return ast.FieldSelector(ast.ColumnSelector(parts[0]), parts[1])

    def element_of_column(self, parts: Parts) -> ast.ElementSelector:
        return self.nested(ast.ElementSelector(ast.ColumnSelector(parts[0]), parts[1]), parts[1])

    def field_item(self, parts: Parts) -> ast.FieldSelector:
        return self.nested(ast.FieldSelector(parts[0], parts[1]), parts[0])

    def element_item(self, parts: Parts) -> ast.ElementSelector:
        return self.nested(ast.ElementSelector(parts[0], parts[1]), *parts)

    def cast_item(self, parts: Parts) -> ast.CastSelector:
        return self.nested(ast.CastSelector(parts[0], parts[1]), parts[0])

    def term_item(self, parts: Parts) -> Any:
        return parts[0]

    def count_item(self, parts: Parts) -> ast.FunctionSelector:
        if parts[0] != (None, "count"):
            raise SyntaxException(f"only count takes *, not the function {parts[0][1]}")
        return ast.FunctionSelector(None, "count", ())

    def function_item(self, parts: Parts) -> ast.FunctionSelector:
        (keyspace, name), args = parts[0], parts[1] if len(parts) > 1 else ()
        # COUNT(1) and COUNT(*) are one thing, which the engine need not tell apart.
        if name == "count" and args == (ast.Constant("integer", "1"),):
            args = ()
        elif name == "count" and not args:
            raise InvalidRequest("Invalid number of arguments in call to function count: 1 required but 0 provided")
        return self.nested(ast.FunctionSelector(keyspace, name, args), *args)

    def select(self, parts: Parts) -> ast.Select | ast.Unsupported:
        json, distinct, selectors, table, where, group, order, per, limit, filtering, bypass, timeout = parts
        if table is None:
            return ast.Unsupported("SELECT without FROM")
        return ast.Select(
            table=table,
            selectors=selectors,
            distinct=distinct,
            json=json,
            where=where,
            group_by=group,
            order_by=order,
            per_partition_limit=per,
            limit=limit,
            allow_filtering=filtering,
            bypass_cache=bypass,
            timeout=timeout,
            markers=self.markers,
        )

    def where(self, parts: Parts) -> tuple[ast.Relation, ...]:
        return parts[0] if parts else ()

    group = where
    in_values = staticmethod(_first_or_none)

    def equal(self, _: Parts) -> str:
        return "="

    def less(self, _: Parts) -> str:
        return "<"

    def greater(self, _: Parts) -> str:
        return ">"

    def column_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), parts[1], parts[2])

    def like_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "LIKE", parts[1])

    def not_null_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "IS NOT NULL", None)

    def in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "IN", parts[1])

    def not_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "NOT IN", parts[1])

    def contains_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "CONTAINS", parts[1])

    def contains_key_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("column", parts[0]), "CONTAINS KEY", parts[1])

    def element_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("element", parts[0], parts[1]), parts[2], parts[3])

    def element_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("element", parts[0], parts[1]), "IN", parts[2])

    def field_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("field", parts[0], parts[1]), parts[2], parts[3])

    def field_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("field", parts[0], parts[1]), "IN", parts[2])

    def token_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("token", parts[0]), parts[1], parts[2])

    def tuple_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("tuple", parts[0]), parts[1], parts[2])

    def bound_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("clustering_bound", parts[0]), parts[1], parts[2])

    def tuple_in_relation(self, parts: Parts) -> ast.Relation:
        return ast.Relation(("tuple", parts[0]), "IN", parts[1])

    def parentheses(self, parts: Parts) -> ast.Relation:
        relation: ast.Relation = parts[0]
        return self.nested(relation, relation)

    def ordering(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "asc")

    def descending(self, parts: Parts) -> tuple[str, str]:
        return (parts[0], "desc")


class _Writing(_Reading):
    """INSERT, UPDATE, DELETE, BATCH, TRUNCATE, USE."""

    json_default = staticmethod(_false)

    def using_timestamp(self, parts: Parts) -> tuple[str, Any]:
        return ("timestamp", parts[0])

    def using_ttl(self, parts: Parts) -> tuple[str, Any]:
        return ("ttl", parts[0])

    def using_timeout(self, parts: Parts) -> tuple[str, Any]:
        return ("timeout", parts[0])

    def using(self, parts: Parts) -> ast.Using:
        # Given twice, the last one counts, as in Scylla.
        return ast.Using(**dict(parts))

    def insert(self, parts: Parts) -> ast.Insert:
        table, columns, values, if_not_exists, using = parts
        if len(columns) != len(values):
            raise InvalidRequest("Unmatched column names/values")
        return ast.Insert(table, columns, values, using, if_not_exists, markers=self.markers)

    def insert_json(self, parts: Parts) -> ast.Insert:
        table, json, default_unset, if_not_exists, using = parts
        return ast.Insert(table, (), (), using, if_not_exists, json, default_unset, markers=self.markers)

    def assign(self, parts: Parts) -> ast.Assignment:
        return ast.Assignment("set", parts[0], parts[1])

    def _same(self, parts: Parts, other: str, form: str) -> None:
        if parts[0] != other:
            raise SyntaxException(f"Only expressions of the form X = {form} are supported.")

    def prepend(self, parts: Parts) -> ast.Assignment:
        self._same(parts, parts[2], "<value> + X")
        return ast.Assignment("prepend", parts[0], parts[1])

    def add(self, parts: Parts) -> ast.Assignment:
        self._same(parts, parts[1], "X + <value>")
        return ast.Assignment("add", parts[0], parts[2])

    def subtract(self, parts: Parts) -> ast.Assignment:
        self._same(parts, parts[1], "X - <value>")
        return ast.Assignment("subtract", parts[0], parts[2])

    def add_signed(self, parts: Parts) -> ast.Assignment:
        # "c = c -1" is cut into c, =, c, -1.
        if not parts[2].text.startswith("-"):
            raise SyntaxException(f"no viable alternative at input '{parts[2].text}'")
        self._same(parts, parts[1], "X - <value>")
        return ast.Assignment("subtract", parts[0], ast.Constant("integer", parts[2].text[1:]))

    def assign_element(self, parts: Parts) -> ast.Assignment:
        return ast.Assignment("element", parts[0], parts[2], parts[1])

    def assign_list_cell(self, parts: Parts) -> ast.Assignment:
        # A call, so that the engine tells a cell's timeuuid from the index of l[i].
        key = ast.Call(None, "scylla_timeuuid_list_index", (parts[1],))
        return ast.Assignment("element", parts[0], parts[2], key)

    def assign_field(self, parts: Parts) -> ast.Assignment:
        return ast.Assignment("field", parts[0], parts[2], parts[1])

    def conditions(self, parts: Parts) -> tuple[bool, tuple[ast.Relation, ...]]:
        return (False, parts[0] if parts else ())

    def condition_exists(self, _: Parts) -> tuple[bool, tuple[ast.Relation, ...]]:
        return (True, ())

    def update(self, parts: Parts) -> ast.Update:
        table, using, *assignments, where, (if_exists, conditions) = parts
        return ast.Update(table, _tuple(assignments), where, using, if_exists, conditions, markers=self.markers)

    def deletion(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0])

    def delete_element(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0], key=parts[1])

    def delete_field(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0], field=parts[1])

    deletions = staticmethod(_tuple)

    def guardrails(self, _: Parts) -> None:
        """BYPASS LARGE_DATA_GUARDRAILS: there are none."""

    def delete(self, parts: Parts) -> ast.Delete:
        deletions, table, using, where, (if_exists, conditions), _ = parts
        if using.ttl is not None:
            raise SyntaxException("DELETE takes USING TIMESTAMP and TIMEOUT, not TTL")
        return ast.Delete(table, deletions, where, using, if_exists, conditions, markers=self.markers)

    def logged(self, _: Parts) -> str:
        return "logged"

    def unlogged(self, _: Parts) -> str:
        return "unlogged"

    def counter(self, _: Parts) -> str:
        return "counter"

    def batch(self, parts: Parts) -> ast.Batch:
        kind, using, *statements = parts
        return ast.Batch(kind, using, _tuple(statements), markers=self.markers)

    def truncate(self, parts: Parts) -> ast.Truncate:
        return ast.Truncate(*parts)

    def use(self, parts: Parts) -> ast.Use:
        return ast.Use(parts[0])


class _Schema:
    """Keyspaces, tables and types."""

    def property_(self, parts: Parts) -> tuple[str, Any]:
        return (parts[0], _property_value(parts[1]))

    def properties(self, parts: Parts) -> dict[str, Any]:
        return _options(parts)

    def with_properties(self, parts: Parts) -> dict[str, Any]:
        return parts[0] if parts else {}

    def create_keyspace(self, parts: Parts) -> ast.CreateKeyspace:
        return ast.CreateKeyspace(name=parts[1], if_not_exists=parts[0], options=parts[2])

    def alter_keyspace(self, parts: Parts) -> ast.AlterKeyspace:
        return ast.AlterKeyspace(name=parts[0], options=parts[1])

    def drop_keyspace(self, parts: Parts) -> ast.DropKeyspace:
        return ast.DropKeyspace(name=parts[1], if_exists=parts[0])

    def column(self, parts: Parts) -> tuple[str, Any]:
        name, type_text, expires, static = parts
        return ("column", ast.ColumnDef(name, type_text, static, expires))

    column_def = staticmethod(lambda parts: ast.ColumnDef(*parts))

    def key_column(self, parts: Parts) -> tuple[str, Any]:
        return ("key_column", self.column(parts)[1])

    def primary_key(self, parts: Parts) -> tuple[str, Any]:
        return ("key", (parts[0], tuple(parts[1:])))

    partition_key = staticmethod(_tuple)

    def composite_key(self, parts: Parts) -> Any:
        return parts[0]

    def compact_storage(self, _: Parts) -> tuple[str, Any]:
        return ("compact storage", True)

    def clustering_order(self, parts: Parts) -> tuple[str, Any]:
        return ("clustering order", tuple(parts))

    table_options = staticmethod(_tuple)

    def create_table(self, parts: Parts) -> ast.CreateTable:
        if_not_exists, table, *items, options = parts
        items = [item for item in items if item is not None]
        columns = tuple(value for kind, value in items if kind != "key")
        keys = [value for kind, value in items if kind == "key"]
        keys += [((value.name,), ()) for kind, value in items if kind == "key_column"]
        if len(keys) > 1:
            raise InvalidRequest("Multiple PRIMARY KEYs specified (exactly one required)")
        partition_key, clustering_key = keys[0] if keys else ((), ())
        # The two special options have names with a space, which no property can have.
        special = {name: value for name, value in options if " " in name}
        return ast.CreateTable(
            table=table,
            if_not_exists=if_not_exists,
            columns=columns,
            partition_key=partition_key,
            clustering_key=clustering_key,
            clustering_order=special.get("clustering order", ()),
            compact_storage="compact storage" in special,
            options=_options([option for option in options if " " not in option[0]]),
        )

    def add_columns(self, parts: Parts) -> dict[str, Any]:
        return {"add": tuple(parts)}

    def drop_column(self, parts: Parts) -> dict[str, Any]:
        return {"drop": (parts[0],), "drop_timestamp": parts[1]}

    def drop_columns(self, parts: Parts) -> dict[str, Any]:
        return {"drop": parts[0], "drop_timestamp": parts[1]}

    renaming = staticmethod(_tuple)

    def rename_columns(self, parts: Parts) -> dict[str, Any]:
        return {"rename": tuple(parts)}

    def alter_column(self, parts: Parts) -> dict[str, Any]:
        return {"alter_type": (parts[0], parts[1])}

    def set_row_ttl(self, parts: Parts) -> dict[str, Any]:
        return {"row_ttl": parts[0]}

    def drop_row_ttl(self, _: Parts) -> dict[str, Any]:
        return {"drop_row_ttl": True}

    def alter_properties(self, parts: Parts) -> dict[str, Any]:
        return {"options": parts[0]}

    def alter_table(self, parts: Parts) -> ast.AlterTable:
        return ast.AlterTable(parts[0], **parts[1])

    def drop_table(self, parts: Parts) -> ast.DropTable:
        return ast.DropTable(parts[1], if_exists=parts[0])

    type_field = staticmethod(_tuple)

    def no_item(self, _: Parts) -> None:
        return None

    def create_type(self, parts: Parts) -> ast.CreateType:
        return ast.CreateType(parts[1], if_not_exists=parts[0], fields=tuple(filter(None, parts[2:])))

    def add_field(self, parts: Parts) -> dict[str, Any]:
        return {"add": (parts[0],)}

    rename_fields = rename_columns

    def retype_field(self, parts: Parts) -> dict[str, Any]:
        return {"retype": (parts[0], parts[1])}

    def alter_type(self, parts: Parts) -> ast.AlterType:
        return ast.AlterType(parts[0], **parts[1])

    def plain_type_name(self, parts: Parts) -> str:
        name = str(parts[0])
        if name in NATIVE_TYPE_NAMES:
            raise SyntaxException(f"Invalid (reserved) user type name {name}")
        return name

    def drop_type(self, parts: Parts) -> ast.DropType:
        return ast.DropType(parts[1], if_exists=parts[0])


def _options(pairs: Parts) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in pairs:
        if name in options:
            raise SyntaxException(f"Multiple definition for property '{name}'")
        options[name] = value
    return options


def _property_value(value: Any) -> Any:
    """Return a property as text: str, a dict of str for a map (of lists of str where lists were written)."""
    match value:
        case str():
            return value
        case ast.Constant():
            # The tree holds null without text and blobs without 0x; properties show them as they were written.
            return {"null": "null", "blob": "0x" + value.text}.get(value.kind, value.text)
        case ast.MapTerm():
            return _options([(_property_word(key), _property_item(item)) for key, item in value.items])
        # The grammar reads {} as a set; among properties only an empty map makes sense.
        case ast.SetTerm() if not value.items:
            return {}
    raise SyntaxException("a property takes a constant or a map of constants")


def _property_item(value: Any) -> Any:
    if isinstance(value, ast.ListTerm):
        return [_property_word(item) for item in value.items]
    return _property_word(value)


def _property_word(value: Any) -> str:
    if not isinstance(value, ast.Constant) or value.kind == "null":
        raise SyntaxException("a property takes a constant or a map of constants")
    return value.text


def _describe(what: str) -> Any:
    def build(_: _Describing, parts: Parts) -> ast.Describe:
        target = parts[0] if parts else None
        if isinstance(target, ast.TableName):
            return ast.Describe(what, target.keyspace, target.name, internals=False)
        return ast.Describe(what, target, None, internals=False)

    return build


class _Describing:
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


class _Listing:
    """LIST ROLES and LIST USERS."""

    norecursive = staticmethod(_false)

    def of_role(self, parts: Parts) -> str | None:
        # Role names may be string literals.
        return getattr(parts[0], "text", parts[0]) if parts else None

    def list_roles(self, parts: Parts) -> ast.ListRoles:
        return ast.ListRoles(parts[0])

    def list_users(self, _: Parts) -> ast.ListUsers:
        return ast.ListUsers()


class Builder(_Words, _Writing, _Schema, _Describing, _Listing):
    """Builds one statement at a time; not safe to share between threads."""

    def reset(self) -> None:
        """Begin a new statement: its first marker has index 0."""
        self.markers = 0
        self.named = {}
        self.levels = {}

    def start(self, parts: Parts) -> ast.Statement:
        return parts[0]  # type: ignore[no-any-return]
