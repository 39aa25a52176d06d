"""INSERT, UPDATE, DELETE, BATCH, TRUNCATE and USE."""

from __future__ import annotations

from ...errors import InvalidRequest, SyntaxException
from .. import ast
from .parts import Parts, as_tuple, false, word
from .reading import Reading

__all__ = ["Writing"]


class Writing(Reading):
    """INSERT, UPDATE, DELETE, BATCH, TRUNCATE, USE."""

    json_default = staticmethod(false)

    using_timestamp = staticmethod(lambda parts: ("timestamp", parts[0]))
    using_ttl = staticmethod(lambda parts: ("ttl", parts[0]))
    using_timeout = staticmethod(lambda parts: ("timeout", parts[0]))

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
        return ast.Assignment("add", parts[0], parts[2])

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

    condition_exists = staticmethod(word((True, ())))

    def update(self, parts: Parts) -> ast.Update:
        table, using, *assignments, where, (if_exists, conditions) = parts
        for at, item in enumerate(assignments):
            if any(_clash(before, item) for before in assignments[:at]):
                raise SyntaxException(f"Multiple incompatible setting of column {item.column}")
        return ast.Update(table, as_tuple(assignments), where, using, if_exists, conditions, markers=self.markers)

    def deletion(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0])

    def delete_element(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0], key=parts[1])

    def delete_field(self, parts: Parts) -> ast.Deletion:
        return ast.Deletion(parts[0], field=parts[1])

    deletions = staticmethod(as_tuple)

    guardrails = staticmethod(word(None))  # there are none

    def delete(self, parts: Parts) -> ast.Delete:
        deletions, table, using, where, (if_exists, conditions), _ = parts
        if using.ttl is not None:
            raise SyntaxException("DELETE takes USING TIMESTAMP and TIMEOUT, not TTL")
        return ast.Delete(table, deletions, where, using, if_exists, conditions, markers=self.markers)

    logged = staticmethod(word("logged"))
    unlogged = staticmethod(word("unlogged"))
    counter = staticmethod(word("counter"))

    def batch(self, parts: Parts) -> ast.Batch:
        kind, using, *statements = parts
        return ast.Batch(kind, using, as_tuple(statements), markers=self.markers)

    def truncate(self, parts: Parts) -> ast.Truncate:
        return ast.Truncate(*parts)

    def use(self, parts: Parts) -> ast.Use:
        return ast.Use(parts[0])


def _clash(first: ast.Assignment, second: ast.Assignment) -> bool:
    """Tell whether two assignments of one UPDATE cannot both be done: one of them sets what the other one edits."""
    if first.column != second.column:
        return False
    if first.kind == second.kind == "field":
        return bool(first.key == second.key)
    return "set" in (first.kind, second.kind)
