"""Parts of the trees that statements are parsed to."""

from __future__ import annotations

from rscylla.embedded.cql import ast

INT = {n: ast.Constant("integer", str(n)) for n in range(-10, 100)}

NULL = ast.Constant("null", "")


def text(value: str) -> ast.Constant:
    return ast.Constant("string", value)


def marker(index: int, name: str | None = None) -> ast.Marker:
    return ast.Marker(index, name)


def column(name: str, op: str, right: object) -> ast.Relation:
    return ast.Relation(("column", name), op, right)
