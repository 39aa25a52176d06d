"""Names that CQL allows in quotes, and that other systems read in another way, or not at all."""

from __future__ import annotations

ODD_NAMES = (
    *("two words", " first", "a.b", ".", "a`b", 'q"q', "q'q", "x;y", "(p)", "{c}", "[s]", "a,b", "a=b", "tab\there"),
    *("new\nline", "$d", "a:b", "a/b", "..", "%s", "\\", "*", "a->b", "#", "@", "1", "_1", "ÄÖ", "名前", "😀"),
    *("element", "key", "value", "select", "null", "table", "inclusive", "number", "text", "start", "end"),
)
"""Pairwise different, whatever their case."""
