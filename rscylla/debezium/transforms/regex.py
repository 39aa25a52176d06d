"""``java_pattern``: regular expressions of Java as Python has them. What it does not know is refused by its name.

Source: the documentation of ``java.util.regex.Pattern``; ``tests/kafka`` compares the two. Classes such as ``\\w`` and
the boundary ``\\b`` are of ASCII, as in Java since version 19.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from ...errors import ConfigError

__all__ = ["java_pattern"]

_LAST: Final = 0x10FFFF
_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_END: Final = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
_LINE_BREAK: Final = rf"(?:\r\n|[\x0b\f{_LINE_ENDS}])"
_AS_IN_PYTHON: Final = "dDsSwW"
_RANGES: Final = {
    "h": "\t\t  \xa0\xa0\u1680\u1680\u180e\u180e\u2000\u200a\u202f\u202f\u205f\u205f\u3000\u3000",
    "v": "\n\r\x85\x85\u2028\u2029",
    "Lower": "az",
    "Upper": "AZ",
    "ASCII": "\0\x7f",
    "Alpha": "AZaz",
    "Digit": "09",
    "Alnum": "09AZaz",
    "Punct": "!/:@[`{~",
    "Graph": "!~",
    "Print": " ~",
    "Blank": "\t\t  ",
    "Cntrl": "\0\x1f\x7f\x7f",
    "XDigit": "09AFaf",
    "Space": "\t\r  ",
}
"""Classes by their letter, or by their name in ``\\p{}``: the first and the last of each range, in their order."""
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": _END, "R": _LINE_BREAK}
_FLAGS: Final = {"i": "i", "s": "s"}
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*>")
_OPENING: Final = ("(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!")


class _Unknown(Exception):
    """A construct that is not known; the message names it."""


def java_pattern(text: str, name: str) -> re.Pattern[str]:
    """Return the regular expression *text* of Java, the value of the property *name*. Groups have Java's numbers.

    Raises:
        ConfigError: it is none, or has what has no equal here.
    """
    try:
        return re.compile(_Reader(text).whole(), re.ASCII)
    except _Unknown as e:
        raise ConfigError(f"{name} has {e}, which rscylla does not take from Java's regular expressions") from e
    except (re.error, IndexError, OverflowError, RecursionError) as e:
        raise ConfigError(f"{name} is no regular expression: {e}") from e


@attrs.define
class _Reader:
    """Reads an expression from its start, and writes it as Python has it."""

    text: str
    at: int = 0
    groups: int = 0

    def starts(self, *words: str) -> bool:
        return self.text.startswith(words, self.at)

    def take(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        if len(taken) < count:
            raise re.error("it ends too early")
        self.at += count
        return taken

    def until(self, end: str) -> str:
        found = self.text.find(end, self.at)
        if found < 0:
            raise re.error(f"{end} is missing")
        taken = self.text[self.at : found]
        self.at = found + len(end)
        return taken

    # ------------------------------------------------------------ sequences

    def whole(self) -> str:
        made = self.branches({})
        if self.at < len(self.text):
            raise re.error("a ) has no (")
        return made

    def branches(self, flags: dict[str, bool]) -> str:
        """Return what comes up to the end of a group. Flags that are set within it hold to its end, in all branches."""
        flags, parts, opened = dict(flags), [], 0
        while self.at < len(self.text) and not self.starts(")"):
            if self.starts("|"):
                parts.append(")" * opened + self.take())
                opened = self._scope(flags, parts) if opened else 0
                continue
            if (set_here := self._flags(flags)) is not None:
                flags = set_here
                opened += self._scope(flags, parts)
                continue
            parts.append(self._quantified(self._atom(flags)))
        return "".join(parts) + ")" * opened

    @staticmethod
    def _scope(flags: dict[str, bool], parts: list[str]) -> int:
        on, off = ("".join(f for f, is_on in flags.items() if is_on is which) for which in (True, False))
        parts.append(f"(?{on}{'-' if off else ''}{off}:")
        return 1

    def _flags(self, flags: dict[str, bool]) -> dict[str, bool] | None:
        """Return the flags from here on, if they are set here; they may open a group of their own instead."""
        found = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?\)").match(self.text, self.at)
        if found is None or found[0] == "(?)":
            return None
        self.at = found.end()
        return self._changed(flags, found[1], found[2] or "")

    @staticmethod
    def _changed(flags: dict[str, bool], on: str, off: str) -> dict[str, bool]:
        for letter in on + off:
            if letter not in _FLAGS:
                raise _Unknown(f"the flag {letter!r}")
        return flags | dict.fromkeys(on, True) | dict.fromkeys(off, False)

    def _quantified(self, made: str) -> str:
        found = _QUANTIFIER.match(self.text, self.at)
        if found is None:
            return made
        self.at = found.end()
        if _QUANTIFIER.match(self.text, self.at):
            raise _Unknown(f"a second quantifier after {found[0]}")
        return f"(?:{made}){found[0]}"

    def _atom(self, flags: dict[str, bool]) -> str:
        if self.starts("("):
            return self._group(flags)
        if self.starts("["):
            self.take()
            return self._class()
        if self.starts("\\"):
            self.take()
            return self._escape()
        char = self.take()
        if char in "*+?{":
            raise re.error(f"{char} repeats nothing")
        if char == ".":
            return "." if flags.get("s") else f"[^{_LINE_ENDS}]"
        return {"^": r"\A", "$": _END}.get(char) or re.escape(char)

    def _group(self, flags: dict[str, bool]) -> str:
        opening = next((word for word in _OPENING if self.starts(word)), None)
        if opening is not None:
            self.take(len(opening))
        elif self.starts("(?<"):
            self.take(3)
            if _NAME.match(self.text, self.at) is None:
                raise re.error("a group has no possible name")
            opening = f"(?P<{self.until('>')}>"
            self.groups += 1
        elif found := re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?:").match(self.text, self.at):
            self.at = found.end()
            flags = self._changed(flags, found[1], found[2] or "")
            parts: list[str] = []
            self._scope(flags, parts)
            opening = parts[0]
        elif self.starts("(?"):
            raise _Unknown(f"a group {self.text[self.at : self.at + 3]}")
        else:
            opening = self.take()
            self.groups += 1
        made = self.branches(flags)
        if not self.starts(")"):
            raise re.error("a ) is missing")
        return f"{opening}{made}{self.take()}"

    # ------------------------------------------------------------ escapes

    def _escape(self) -> str:
        letter = self.take()
        if letter == "Q":
            return re.escape(self._quoted())
        if letter == "k" and self.starts("<"):
            self.take()
            return f"(?P={self.until('>')})"
        if letter in "123456789":
            return self._reference(letter)
        if letter == "b" and self.starts("{"):
            raise _Unknown(r"the boundary \b{")
        if letter in _ANCHORS:
            return _ANCHORS[letter]
        kind = self._set(letter)
        return f"[{kind}]" if kind is not None else re.escape(self._character(letter))

    def _quoted(self) -> str:
        """Return what is quoted up to a ``\\E``, or the end; a quantifier is of its last character, so that stays."""
        end = self.text.find(r"\E", self.at)
        quoted = self.text[self.at :] if end < 0 else self.text[self.at : end]
        after = len(self.text) if end < 0 else end + 2
        if len(quoted) > 1 and _QUANTIFIER.match(self.text, after):
            raise _Unknown(r"a quantifier after \E")
        self.at = after
        return quoted

    def _reference(self, digit: str) -> str:
        """Return a reference to a group: of as many digits as there are groups so far."""
        number = int(digit)
        if number > self.groups:
            raise _Unknown(f"a reference \\{digit} before its group")
        while self.at < len(self.text) and self.text[self.at] in "0123456789":
            longer = number * 10 + int(self.text[self.at])
            if longer > self.groups:
                break
            number, self.at = longer, self.at + 1
        return f"(?:\\{number})"

    def _set(self, letter: str) -> str | None:
        """Return the class that an escape stands for, as it is within brackets; None if it is of one character."""
        if letter in _AS_IN_PYTHON:
            return f"\\{letter}"
        if letter in "hHvV":
            return _ranges(_RANGES[letter.lower()], negated=letter.isupper())
        if letter not in "pP":
            return None
        name = self.take()
        if name == "{":
            name = self.until("}")
        if name not in _RANGES or len(name) == 1:
            raise _Unknown(f"\\{letter}{{{name}}}")
        return _ranges(_RANGES[name], negated=letter == "P")

    def _character(self, letter: str) -> str:
        if letter in _CHARACTERS:
            return _CHARACTERS[letter]
        if letter == "0":
            found = re.compile("[0-3]?[0-7]{1,2}").match(self.text, self.at)
            return self._coded(found, 8)
        if letter == "x":
            return self._coded(re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})").match(self.text, self.at), 16)
        if letter == "u":
            return self._coded(re.compile("[0-9A-Fa-f]{4}").match(self.text, self.at), 16)
        if letter == "c":
            return chr(ord(self.take()) ^ 64)
        if letter.isascii() and letter.isalpha():
            raise _Unknown(f"\\{letter}")
        return letter

    def _coded(self, found: re.Match[str] | None, base: int) -> str:
        if found is None:
            raise re.error("a character has no code")
        self.at = found.end()
        digits = next((group for group in found.groups() if group), found[0])
        code = int(digits, base)
        if 0xD800 <= code < 0xE000:
            raise _Unknown("a half of a pair of surrogates")
        if code > _LAST:
            raise re.error("a character has no code")
        return chr(code)

    # ------------------------------------------------------------ classes

    def _class(self) -> str:
        """Return a class in brackets, which are open, as an expression for one character."""
        is_negated = self.starts("^")
        if is_negated:
            self.take()
        parts = [self._union()]
        while self.starts("&&"):
            if self.starts("&&&"):
                raise _Unknown("&&&")
            self.take(2)
            parts.append(self._union())
        if not self.starts("]"):
            raise re.error("a ] is missing")
        self.take()
        if is_negated and len(parts) == 1:
            return parts[0].negated()
        made = "".join(f"(?={part.made()})" for part in parts[:-1]) + parts[-1].made()
        return f"(?:(?!{made})[\\s\\S])" if is_negated else f"(?:{made})"

    def _union(self) -> _Union:
        found = _Union()
        while not self.starts("]", "&&"):
            if self.starts("["):
                self.take()
                found.nested.append(self._class())
                continue
            kind, char = self._member()
            if char is None:
                found.members.append(kind)
            elif self.starts("-") and not self.text.startswith(("-]", "-[", "-&&"), self.at):
                self.take()
                _, last = self._member()
                if last is None or last < char:
                    raise re.error("a range of characters is not possible")
                found.members.append(f"{_in_class(char)}-{_in_class(last)}")
            else:
                found.members.append(_in_class(char))
        if not found.members and not found.nested:
            raise _Unknown("an empty class, or && without a class")
        return found

    def _member(self) -> tuple[str, str | None]:
        """Return a class that is a member, or a character."""
        char = self.take()
        if char != "\\":
            return "", char
        letter = self.take()
        if letter in "QE":
            raise _Unknown(f"\\{letter} within a class")
        if letter in _ANCHORS or letter == "k" or letter in "123456789":
            raise _Unknown(f"\\{letter} within a class")
        kind = self._set(letter)
        return ("", self._character(letter)) if kind is None else (kind, None)


@attrs.define
class _Union:
    """Members of a class as they are within brackets, and classes within it."""

    members: list[str] = attrs.field(factory=list)
    nested: list[str] = attrs.field(factory=list)

    def made(self) -> str:
        plain = [f"[{''.join(self.members)}]"] if self.members else []
        return f"(?:{'|'.join([*plain, *self.nested])})"

    def negated(self) -> str:
        if not self.nested:
            return f"[^{''.join(self.members)}]"
        return f"(?:(?!{self.made()})[\\s\\S])"


def _in_class(char: str) -> str:
    return f"\\{char}" if char in "\\]^-[&~|" else char


def _ranges(pairs: str, *, negated: bool) -> str:
    """Return ranges, or those between them, as they are within brackets."""
    codes = [ord(char) for char in pairs]
    if negated:
        codes = [0, *(code + at % 2 * 2 - 1 for at, code in enumerate(codes)), _LAST]
    bounds = zip(codes[::2], codes[1::2], strict=True)
    return "".join([f"\\U{first:08x}-\\U{last:08x}" for first, last in bounds if first <= last])
