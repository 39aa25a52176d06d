"""Text of anybody, of rows, of servers, of errors, as a terminal shows it and does not obey it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

__all__ = ["made", "message_of", "shown", "visible"]

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


def made(make: Callable[[], str], of: object) -> str:
    """Return what *make* returns; if it fails, the name of the class of *of*, which is code of anybody."""
    try:
        return make()
    except Exception:  # noqa: BLE001 - the object's own code
        return f"<{type(of).__name__}>"


def shown(value: object) -> str:
    """Return the text of *value*; of an object that has none, the name of its class."""
    return made(lambda: str(value), value)


def message_of(record: logging.LogRecord) -> tuple[str, list[str] | None, str]:
    """Return the message of *record*, None, and "".

    If its arguments do not fit, or cannot be shown: the message as it is, the texts of the arguments, and the name of
    the error.
    """
    try:
        return record.getMessage(), None, ""
    except Exception as error:  # noqa: BLE001 - a record is not lost for what is wrong with it
        args = record.args.values() if isinstance(record.args, Mapping) else record.args
        return shown(record.msg), [shown(value) for value in args or ()], type(error).__qualname__
