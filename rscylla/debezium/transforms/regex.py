r"""``java_pattern``: regular expressions that mean the same in Java and in Python; what others have is named.

Some are written in another way in Python, such as ``(?<name>...)`` and ``\z``. ``tests/kafka`` compares the two.
Classes such as ``\w``, and the flag ``i``, are of ASCII, as in Java.
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
    | (?P<same>
        \[\^?(?!\])(?:[^\\\[\]&~|-]|&(?!&)|~(?!~)|\|(?!\|)|-(?!-)|{_ESCAPES})+\]
      | {_ESCAPES} | \\[bB](?!\{{) | \\A | \\[1-9](?!\d)
      | \((?:\?(?:[:=!>]|<[=!]|-?i:))? (?!\?) | \{{\d+(?:,\d*)?\}} | [^\\\[({{.$^]
      )
    """,
    re.VERBOSE,
)
_WRITTEN: Final[dict[str, Callable[[str], str]]] = {
    "same": str,
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
    ignores_case = text.startswith("(?i)")
    at, written = 4 if ignores_case else 0, []
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            construct = _CONSTRUCT.match(text, at)
            raise ConfigError(
                f"{name} has {construct[0] if construct else ''}, which rscylla does not take from Java's regular "
                "expressions; write it in another way"
            )
        written.append(_WRITTEN[found.lastgroup](found[found.lastgroup]))
        at = found.end()
    try:
        return re.compile("".join(written), re.ASCII | (re.IGNORECASE if ignores_case else 0))
    except (re.error, IndexError, OverflowError, RecursionError) as e:
        raise ConfigError(f"{name} is no regular expression: {e}") from e
