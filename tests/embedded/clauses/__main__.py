"""Rewrites the table of clauses in ``docs/embedded.md``."""

from .page import PAGE, rewritten

PAGE.write_text(rewritten(PAGE.read_text()))
