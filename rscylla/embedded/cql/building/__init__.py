"""Statements built from the rules of ``cql.lark``: one method for each rule, called when the parser completes it."""

from __future__ import annotations

from .. import ast
from .describing import Describing, Listing
from .parts import Parts
from .schema import Schema
from .terms import Words
from .writing import Writing

__all__ = ["Builder"]


class Builder(Words, Writing, Schema, Describing, Listing):
    """Builds one statement at a time; not safe to share between threads."""

    def reset(self) -> None:
        """Begin a new statement: its first marker has index 0."""
        self.markers = 0
        self.named = {}
        self.levels = {}

    def start(self, parts: Parts) -> ast.Statement:
        return parts[0]  # type: ignore[no-any-return]
