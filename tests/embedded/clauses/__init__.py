"""The clauses of CQL and what the embedded server does with each: the table in ``docs/embedded.md``, as data.

``test_clauses.py`` tries each clause and compares the page with it. To add one, put a line into the list of its
statement and run ``python -m tests.embedded.clauses``, which rewrites the page.
"""

from __future__ import annotations

from . import (
    batches,
    deletes,
    describing,
    functions,
    inserts,
    keyspaces,
    others,
    selects,
    tables,
    tablets,
    types,
    updates,
)
from .model import SCHEMA, Clause

__all__ = ["GROUPS", "SCHEMA", "Clause"]

GROUPS = {
    "Keyspaces": keyspaces.CLAUSES,
    "Tables": tables.CLAUSES,
    "Tablets": tablets.CLAUSES,
    "Types": types.CLAUSES,
    "Reads": selects.CLAUSES,
    "Functions and aggregates": functions.CLAUSES,
    "INSERT": inserts.CLAUSES,
    "UPDATE": updates.CLAUSES,
    "DELETE and TRUNCATE": deletes.CLAUSES,
    "BATCH": batches.CLAUSES,
    "DESCRIBE": describing.CLAUSES,
    "Other statements": others.CLAUSES,
}
"""Headings of the page, and the clauses below each."""
