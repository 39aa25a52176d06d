"""``Secrets``: which values of properties are secrets, and texts without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Self
from urllib.parse import quote, unquote

import attrs

__all__ = ["HIDDEN", "Secrets", "is_secret"]

HIDDEN: Final = "[hidden]"

_SECRET = re.compile(
    r"password|secret|jaas|token|credential|basic\.auth|user\.info|ssl\.(key|key\.pem|keystore\.key)$", re.IGNORECASE
)
_NO_SECRET = re.compile(r"\.path$|\.credentials\.source$|\.endpoint\.url$", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"://([^/?#\s]*)@")
_LOGIN_OF_JAAS = re.compile(
    r"""\b(?:password|clientSecret)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+?);?(?:\s|$))"""
)
_IN_URL = re.compile(r"(://[^/?#\s:@]*:)[^/?#\s]*@")
_IN_LOGIN = re.compile(r"""(\b(?:password|clientSecret)\s*=\s*["'])(?:[^"'\\]|\\.)*(["'])""")
"""Where passwords are whatever they are."""
_LEAST: Final = 5
"""A shorter secret is in many texts by chance."""
_COMMON: Final = (
    "rscylla scylladb cassandra kafka confluent librdkafka python traceback localhost username password "
    "missing refused unknown wrong known supported possible closed"
)


def is_secret(name: str) -> bool:
    """Return whether a value is a secret by the name of its property."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


@attrs.frozen(repr=False)
class Secrets:
    """The secrets of properties.

    To replace a word that only happens to be a secret, such as the name of a table, would tell which word the password
    is. So a secret that is one word, or a number, is replaced where a text gives it as a value; and one that is short,
    or a word of the properties and of what is said about them, where a text that names its property does so.
    """

    names: frozenset[str]
    """The properties whose values are not shown at all."""
    _anywhere: tuple[re.Pattern[str], ...]
    _quoted: tuple[tuple[str, re.Pattern[str]], ...]

    @classmethod
    def of(cls, values: Mapping[str, str], names: Iterable[str], texts: Iterable[str]) -> Self:
        """Return the secrets of *values*.

        Args:
            names: of the properties whose values are secrets as a whole.
            texts: words that are shown whatever the values are.
        """
        hidden = frozenset(names)
        found = [
            (name, secret)
            for name, value in values.items()
            for secret in _parts(name, value) | ({value.strip(), value} if name in hidden else set())
        ]
        secrets = {secret for _, secret in found}
        others = {value.strip() for name, value in values.items() if name not in hidden}
        having = {value for value in others - secrets if not secrets.isdisjoint(value.split())}
        shown = (_LOGIN_IN_URL.sub("", value) for value in others - having)
        words = " ".join([_COMMON, *texts, *values, *shown]).lower()

        def is_common(secret: str) -> bool:
            return len(secret) < _LEAST or secret.lower() in words

        anywhere = sorted(
            {*having, *(one for one in secrets if not is_common(one))}, key=lambda text: (-len(text), text)
        )
        quoted = sorted({(name, secret) for name, secret in found if secret and is_common(secret)})
        return cls(
            hidden,
            tuple(re.compile(_expression(secret)) for secret in anywhere),
            tuple((name, re.compile(_QUOTED.format(re.escape(secret)))) for name, secret in quoted),
        )

    def redacted(self, text: str, about: str = "") -> str:
        """Return *text* without secrets. *about*: the property that it is about, if it does not name it itself."""
        text = _IN_URL.sub(rf"\1{HIDDEN}@", text)
        text = _IN_LOGIN.sub(rf"\1{HIDDEN}\2", text)
        for pattern in self._anywhere:
            text = pattern.sub(HIDDEN, text)
        for name, pattern in self._quoted:
            if name == about or name in text:
                text = pattern.sub(HIDDEN, text)
        return text


_QUOTED: Final = r"""(?<=['"`=:])\s?{}(?=['"`@,;]|\s|$)"""
_VALUE: Final = r"""(?:(?<=['"`=:])|(?<=%[0-9A-Fa-f]{{2}})|(?<=\bis )|(?<=\bBearer )|(?<=\bBasic )){}(?!\w|\.\w)"""


def _expression(secret: str) -> str:
    is_word = secret.isalpha() or secret.isdecimal()
    return rf"\A{secret}\Z|{_VALUE.format(secret)}" if is_word else re.escape(secret)


def _parts(name: str, value: str) -> set[str]:
    """Return the secrets that are parts of a value: passwords of addresses and logins, also as they are in URLs."""
    logins = _LOGIN_IN_URL.findall(value)
    if name.endswith("user.info"):
        logins.append(value)
    passwords = {login.partition(":")[2] for login in logins}
    passwords |= {re.sub(r"\\(.)", r"\1", a or b) or bare for a, b, bare in _LOGIN_OF_JAAS.findall(value)}
    found = {
        form for password in passwords for form in (password, unquote(password), quote(unquote(password), safe=""))
    }
    return found - {""}
