r"""``java_pattern``: regular expressions that mean the same in Java and in Python; what others have is named.

Some are written in another way in Python, such as ``(?<name>...)`` and ``\z``. ``tests/kafka`` compares the two.
Classes such as ``\w``, and the flag ``i``, are of ASCII, as in Java. A flag holds to the end of the whole, for later
alternatives, too, so expressions that Connect joins by ``|`` must be joined here as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ...errors import ConfigError

__all__ = ["java_pattern"]

_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_ESCAPES: Final = r"\\(?:[dDsSwWtnrfa]|x[0-9A-Fa-f]{2}|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}|[^A-Za-z0-9])"
_TOKEN: Final = re.compile(
    rf"""
      (?P<dot>\.) | (?P<end>\$) | (?P<start>\^) | (?P<last>\\z)
    | \(\?<(?P<group>[A-Za-z][A-Za-z0-9]*)> | \\k<(?P<reference>[A-Za-z][A-Za-z0-9]*)>
    | (?P<class>\[(?!\^?\])\^?(?:[^\\\[\]&~|-]|&(?!&)|~(?!~)|\|(?!\|)|-(?!-)|{_ESCAPES})+\])
    | \\Q(?!\\E)(?P<quoted>(?s:.+?))(?:\\E|\Z)
    | (?P<same>
        {_ESCAPES} | \\[bB](?!\{{) | \\A | \\[1-9](?!\d)
      | \((?:\?(?:[:=!>]|<[=!]|-?i:))? (?!\?) | \{{\d+(?:,\d*)?\}} | [^\\\[({{.$^]
      )
    """,
    re.VERBOSE,
)
_FLAGS: Final = re.compile(r"\(\?(i|s|is|si)\)")
"""Taken where an alternative of the whole begins: from there on, they hold to the end, as in Java."""
_IN_CLASS: Final = re.compile(r"\\(?:[dDsSwW](?P<plain>-)(?!\])|.)", re.DOTALL)
_IGNORING: Final = "(?i:"
_WRITTEN: Final[dict[str, Callable[[str], str]]] = {
    "same": str,
    "class": lambda text: _IN_CLASS.sub(lambda found: found[0][:2] + (r"\-" if found["plain"] else found[0][2:]), text),
    "quoted": lambda text: (rf"\x3{text[0]}" if text[0] in "0123456789" else re.escape(text[0])) + re.escape(text[1:]),
    "dot": lambda _: f"[^{_LINE_ENDS}]",
    "start": lambda _: r"\A",
    "end": lambda _: rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)",
    "last": lambda _: r"\Z",
    "group": "(?P<{}>".format,
    "reference": "(?P={})".format,
}
_CONSTRUCT: Final = re.compile(r"\\[pP](?:\{[^}]*\}?|.)|\\.?|\(\?[^:)=!>]*[:)=!>]?|\[[^\]]*\]?|.", re.DOTALL)


def java_pattern(text: str, name: str) -> re.Pattern[str]:
    """Return the regular expression *text* of Java, the value of the property *name*. Groups have Java's numbers.

    Raises:
        ConfigError: it is none, or has what may mean something else here.
    """
    at, depth, opened = 0, 0, 0
    dot, written = _WRITTEN["dot"], list[str]()
    while at < len(text):
        flags = _FLAGS.match(text, at) if depth == 0 and written[-1:] in ([], ["|"], [_IGNORING]) else None
        if flags is not None:
            at = flags.end()
            if "s" in flags[1]:
                dot = "(?s:{})".format
            if "i" in flags[1]:
                written.append(_IGNORING)
                opened += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            construct = _CONSTRUCT.match(text, at)
            raise ConfigError(
                f"{name} has {construct[0] if construct else ''}, which rscylla does not take from Java's regular "
                "expressions; write it in another way"
            )
        token, at = found[found.lastgroup], found.end()
        written.append((dot if found.lastgroup == "dot" else _WRITTEN[found.lastgroup])(token))
        depth += found[0].startswith("(") - (found[0] == ")")
        if depth < 0:
            raise ConfigError(f"{name} is no regular expression: unbalanced parenthesis")
    try:
        return re.compile("".join(written) + ")" * opened, re.ASCII)
    except (re.error, IndexError, OverflowError, RecursionError) as e:
        raise ConfigError(f"{name} is no regular expression: {e}") from e
