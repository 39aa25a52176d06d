"""Text of anybody, of rows, of servers, of errors, as a terminal shows it and does not obey it."""

from __future__ import annotations

import re

__all__ = ["visible"]

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, ends of lines but that of Unix, what turns the direction of text, and halves of surrogates."""


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return *text* with control characters as JSON escapes them, which changes no value in JSON.

    Args:
        lines: newlines stay; otherwise, the text is one line.

    >>> visible("a\x1b[2J\nb")
    'a\\u001b[2J\\nb'
    """
    text = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text if lines else text.replace("\n", "\\n")
