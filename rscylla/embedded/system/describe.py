"""DESCRIBE: the schema as CQL text. Layout follows Scylla's ``cql3/statements/describe_statement.cc``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..cdclog.options import option_map
from ..cluster.topology import Cluster
from ..cql import ast
from ..errors import InvalidRequest
from ..result import ColumnSpec, RowsResult
from ..schema.properties import DEFAULTS
from ..schema.replication import rack_lists
from ..schema.tables import LOG_SUFFIX, PAXOS_SUFFIX, Column, Keyspace, Schema, TableSchema
from ..storage.packed import join_row
from ..types import TEXT, ListType, MapType, UdtType, quote_name
from ..versions import Release

__all__ = ["create_table_text", "describe"]

_SNITCH: Final = "org.apache.cassandra.locator.SimpleSnitch"
_PARTITIONER: Final = "org.apache.cassandra.dht.Murmur3Partitioner"
# To the letter: tools strip it to get at the statement.
_COMMENT: Final = "/* Do NOT execute this statement! It's only for informational purposes.\n   {}\n\n{}\n*/"
_LOG_REASON: Final = (
    "A CDC log table is created automatically when creating the base with CDC\n"
    "   enabled option or creating the vector index on the base table's vector column."
)
_PAXOS_REASON: Final = "A paxos state table is created automatically when enabling LWT on a base table."
# In this order, and before all others, which are extensions in Scylla.
_BASIC: Final = tuple(name for name in DEFAULTS if name != "tombstone_gc")
_LABELS: Final = {
    "table": "Table '{}' not found in keyspace '{}'",
    "type": "Type '{}' not found in keyspace '{}'",
    "function": "Function '{}' not found in keyspace '{}'",
    "aggregate": "Aggregate '{}' not found in keyspace '{}'",
    "index": "Table for existing index '{}' not found in '{}'",
    "materialized view": "Materialized view '{}' not found in keyspace '{}'",
    "": "'{}' not found in keyspace '{}'",
}

# (keyspace, type, name, statement), names as stored; the last is left out of lists
Item = tuple[str, str, str, str]


def describe(
    schema: Schema, cluster: Cluster, statement: ast.Describe, current: str | None, system: frozenset[str]
) -> RowsResult:
    """Return the rows of a DESCRIBE statement. Raises InvalidRequest for a name that is not there."""
    if statement.what == "cluster":
        return _cluster(schema, cluster, current, system)
    describing = _Describing(schema, cluster.release, statement, current, system)
    listed = statement.what in ("keyspaces", "tables", "types", "functions", "aggregates")
    names = ["keyspace_name", "type", "name"] + ([] if listed else ["create_statement"])
    specs = tuple(ColumnSpec("system", "describe", name, TEXT) for name in names)
    rows = [
        join_row([text.encode() for text in (quote_name(keyspace), kind, quote_name(name), text)[: len(names)]])
        for keyspace, kind, name, text in describing.items()
    ]
    return RowsResult(specs, rows)


def _cluster(schema: Schema, cluster: Cluster, current: str | None, system: frozenset[str]) -> RowsResult:
    values = {"cluster": cluster.name, "partitioner": _PARTITIONER, "snitch": _SNITCH}
    specs = [ColumnSpec("system", "describe", name, TEXT) for name in values]
    cells = [value.encode() for value in values.values()]
    keyspace = None if current is None or current in system else schema.keyspaces.get(current)
    if keyspace is not None and keyspace.tablets is None:
        ownership = MapType(TEXT, ListType(TEXT, frozen=True), frozen=True)
        specs.append(ColumnSpec("system", "describe", "range_ownership", ownership))
        owners = cluster.vnode_owners(keyspace)
        cells.append(ownership.encode({str(end): [node.address for node in nodes] for end, nodes in owners}))
    return RowsResult(tuple(specs), [join_row(cells)])


class _Describing:
    def __init__(
        self, schema: Schema, release: Release, statement: ast.Describe, current: str | None, system: frozenset[str]
    ) -> None:
        self._schema = schema
        self._statement = statement
        self._current = current
        self._release = release
        self._system = system

    def items(self) -> Iterable[Item]:
        what = self._statement.what
        if what == "keyspaces":
            return [(name, "keyspace", name, "") for name in sorted(self._schema.keyspaces)]
        if what in ("tables", "types", "functions", "aggregates"):
            return list(self._list(what))
        if what in ("schema", "full schema"):
            names = [n for n in sorted(self._schema.keyspaces) if what == "full schema" or n not in self._system]
            return [item for name in names for item in self._keyspace(self._schema.keyspaces[name])]
        return self._one(what)

    def _list(self, what: str) -> Iterator[Item]:
        for keyspace in self._places():
            if what == "tables":
                for table in self._shown(keyspace):
                    yield (keyspace.name, "table", table.name, "")
            elif what == "types":
                for name in sorted(keyspace.types):
                    yield (keyspace.name, "type", name, "")

    def _places(self) -> list[Keyspace]:
        """The keyspace in use, or all of them."""
        if self._current is not None:
            return [self._find_keyspace(self._current)]
        return [self._schema.keyspaces[name] for name in sorted(self._schema.keyspaces)]

    def _find_keyspace(self, name: str) -> Keyspace:
        found = self._schema.keyspaces.get(name)
        if found is None:
            raise InvalidRequest(f"'{name}' not found in keyspaces")
        return found

    def _one(self, what: str) -> list[Item]:
        name, place = self._statement.name, self._statement.keyspace
        if what in ("keyspace", "only keyspace"):
            items = self._keyspace(self._find_keyspace(place or name or self._current or ""))
            return list(items) if what == "keyspace" else [next(items)]
        assert name is not None
        if what == "" and place is None and name in self._schema.keyspaces:
            return list(self._keyspace(self._schema.keyspaces[name]))
        wanted = place or self._current
        if what == "" and (wanted is None or wanted not in self._schema.keyspaces):
            raise InvalidRequest(f"'{name}' not found in keyspaces")
        if wanted is None:
            raise InvalidRequest("No keyspace specified and no current keyspace")
        keyspace = self._find_keyspace(wanted)
        if what in ("", "table") and name in keyspace.tables:
            return self._table(keyspace, keyspace.tables[name])
        if what in ("", "type") and name in keyspace.types:
            return [_type_item(keyspace.types[name])]
        raise InvalidRequest(_LABELS[what].format(name, wanted))

    def _keyspace(self, keyspace: Keyspace) -> Iterator[Item]:
        options = keyspace.options
        text = (
            f"CREATE KEYSPACE {quote_name(keyspace.name)} WITH replication = {_replication(options)}"
            f" AND durable_writes = {str(options['durable_writes']).lower()}{self._tablets(keyspace)};"
        )
        yield (keyspace.name, "keyspace", keyspace.name, text)
        for udt in _by_use(keyspace):
            yield _type_item(udt)
        for table in self._shown(keyspace):
            yield from self._table(keyspace, table)

    def _tablets(self, keyspace: Keyspace) -> str:
        has = self._release.has
        if not has("tablets"):
            return ""  # nor would it take the property
        if keyspace.tablets is None:
            return " AND tablets = {'enabled': false}"
        if not keyspace.tablets and has("DESCRIBE with tablets enabled"):
            return " AND tablets = {'enabled': true}"
        enabled = "'enabled': true, " if has("DESCRIBE with tablets enabled and initial") else ""
        return f" AND tablets = {{{enabled}'initial': {keyspace.tablets}}}"

    def _shown(self, keyspace: Keyspace) -> list[TableSchema]:
        """Return the tables of a keyspace but those that come with others."""
        tables = [keyspace.tables[name] for name in sorted(keyspace.tables)]
        return [table for table in tables if self._reason(keyspace, table) is None]

    @staticmethod
    def _reason(keyspace: Keyspace, table: TableSchema) -> str | None:
        """Return why there is a table that the server makes by itself, None for others."""
        if table.name.endswith(PAXOS_SUFFIX):
            return _PAXOS_REASON
        base = keyspace.tables.get(table.cdc_base or "")
        is_attached = table.is_cdc_log and base is not None and base.cdc is not None and base.cdc.enabled
        return _LOG_REASON if is_attached else None

    def _table(self, keyspace: Keyspace, table: TableSchema) -> list[Item]:
        internals = self._statement.internals
        text = create_table_text(table, internals=internals)
        # As a comment: whoever runs the text must not make the log, which its base makes.
        if (reason := self._reason(keyspace, table)) is not None:
            return [(keyspace.name, "table", table.name, _COMMENT.format(reason, text))]
        items = [(keyspace.name, "table", table.name, text)]
        log = keyspace.tables.get(table.name + LOG_SUFFIX)
        if log is not None and self._reason(keyspace, log) is not None:
            # The log comes with its base, but properties that were changed do not.
            full = f"{quote_name(keyspace.name)}.{quote_name(log.name)}"
            alter = f"ALTER TABLE {full} WITH " + "\n    AND ".join(_properties(log)) + ";\n"
            items.append((keyspace.name, "table", log.name, alter))
        return items


def _replication(options: dict[str, Any]) -> str:
    """Return the replication map, with the lists of racks of those datacenters that have them."""
    lists = rack_lists(options.get("replication_v2", {}))
    items = {
        name: f"[{', '.join(map(_text, lists[name]))}]" if name in lists else _text(value)
        for name, value in options["replication"].items()
    }
    return "{" + ", ".join(f"{_text(name)}: {items[name]}" for name in _class_first(items)) + "}"


def _type_item(udt: Any) -> Item:
    assert isinstance(udt, UdtType)
    fields = zip(udt.field_names, udt.field_types, strict=True)
    body = ",\n".join(f"    {quote_name(name)} {kind.name}" for name, kind in fields)
    text = f"CREATE TYPE {quote_name(udt.keyspace)}.{quote_name(udt.type_name)} (\n{body}\n);"
    return (udt.keyspace, "type", udt.type_name, text)


def _by_use(keyspace: Keyspace) -> list[Any]:
    """Return types so that each comes after those it is made of."""
    out: list[Any] = []
    left = [keyspace.types[name] for name in sorted(keyspace.types)]
    while left:
        # Types cannot contain themselves (the statements see to it), so there always is one.
        ready = [t for t in left if not any(o is not t and t.references(keyspace.name, _name(o)) for o in left)]
        out.extend(ready)
        left = [t for t in left if t not in ready]
    return out


def _name(udt: Any) -> str:
    return str(udt.type_name)


def create_table_text(table: TableSchema, *, internals: bool) -> str:
    """Return the CREATE TABLE statement; with ``internals`` also the id and the columns dropped since."""
    full = f"{quote_name(table.keyspace)}.{quote_name(table.name)}"
    # The order of Scylla's hash table, as long as no two names share a bucket.
    dropped = sorted(table.dropped, key=str.encode, reverse=True) if internals else []
    # A column that came back is made as it was, dropped, and added as it is.
    lines = [_column(table, column) for column in table.columns if column.name not in dropped]
    lines += [f"{quote_name(name)} {table.dropped[name][0].name}" for name in dropped]
    partition = ", ".join(quote_name(column.name) for column in table.partition_key)
    if len(table.partition_key) > 1:
        partition = f"({partition})"
    keys = ", ".join([partition, *(quote_name(column.name) for column in table.clustering_key)])
    lines.append(f"PRIMARY KEY ({keys})")
    options = _properties(table)
    if table.clustering_key:
        order = ", ".join(f"{quote_name(c.name)} {'DESC' if c.descending else 'ASC'}" for c in table.clustering_key)
        options.insert(0, f"CLUSTERING ORDER BY ({order})")
    if internals:
        options.insert(0, f"ID = {table.id}")
    text = f"CREATE TABLE {full} (\n    " + ",\n    ".join(lines) + "\n) WITH " + "\n    AND ".join(options) + ";\n"
    for name in dropped:
        text += f"\nALTER TABLE {full} DROP {quote_name(name)} USING TIMESTAMP {table.dropped[name][1]};"
        if name in table.by_name:
            text += f"\nALTER TABLE {full} ADD {_column(table, table.by_name[name])};"
    return text


def _column(table: TableSchema, column: Column) -> str:
    suffix = " STATIC" if column.kind == "static" else " TTL" if column.name == table.ttl_column else ""
    return f"{quote_name(column.name)} {column.type.name}{suffix}"


def _properties(table: TableSchema) -> list[str]:
    extensions = {name: _literal(value) for name, value in table.options.items() if name not in _BASIC}
    if table.cdc is not None:
        extensions["cdc"] = _map(option_map(table.cdc))
    out = [f"{name} = {_literal(table.options[name])}" for name in _BASIC if name in table.options]
    if "tablets" in extensions:
        out.append(f"tablets = {extensions.pop('tablets')}")
    return out + [f"{name} = {extensions[name]}" for name in sorted(extensions)]


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return _map(value)
    if isinstance(value, str):
        return _text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _map(value: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_text(name)}: {_text(value[name])}" for name in _class_first(value)) + "}"


def _class_first(names: Iterable[str]) -> list[str]:
    """Return names in order, the class of a compaction or a replication before its options."""
    return sorted(names, key=lambda name: (name != "class", name))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
