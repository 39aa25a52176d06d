"""Personal data that can be forgotten: sealed with a key of the person, and unreadable once the key is deleted.

Events are never changed, so what must be erasable is encrypted in them. A class marks its fields:

    @attrs.frozen
    class CustomerRegistered:
        customer_id: str = subject()
        name: str = personal()
        country: str

``EventTypes(personal=PersonalData(keys))`` then stores ``[forgotten]`` in place of the name, and beside it the sealed
name, by AES-GCM with a key of the customer of 256 bits and a random nonce. Where there is a key, readers get the name;
after ``forget`` they get the placeholder. States that are kept in snapshots are marked in the same way.

What this cannot reach: copies that readers have made, such as projections and records in a broker. Events tell these
to forget, like any other change. Nor backups of the table of keys, nor a process that holds a key: ``cache_for``.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..clock import Clock, SystemClock
from ..errors import ConfigError
from .abc import SubjectKeys

__all__ = ["FORGOTTEN", "PersonalData", "has_personal", "personal", "placeholder_of", "subject"]

FORGOTTEN: Final = "[forgotten]"

SEALED: Final = "$personal"
"""The key of the sealed fields in the data of an event. No attribute of a class has such a name."""

_PLACEHOLDER: Final = "rscylla.placeholder"
_SUBJECT: Final = "rscylla.subject"
_NONCE: Final = 12


def personal(*, placeholder: Any = FORGOTTEN, **options: Any) -> Any:
    """Return an attrs field for personal data. *placeholder* is read once the subject is forgotten.

    It must be a value of the field's type as JSON has it. *options* are those of ``attrs.field``.
    """
    return attrs.field(metadata={**options.pop("metadata", {}), _PLACEHOLDER: placeholder}, **options)


def subject(**options: Any) -> Any:
    """Return an attrs field with the name of the person whose data the personal fields are, such as a customer's id.

    A class with personal fields has one such text, itself readable for good. *options* are those of ``attrs.field``.
    """
    return attrs.field(metadata={**options.pop("metadata", {}), _SUBJECT: True}, **options)


def placeholder_of(field: attrs.Attribute[Any]) -> tuple[Any] | None:
    """Return the placeholder of a personal field, in a tuple; None for other fields."""
    return (field.metadata[_PLACEHOLDER],) if _PLACEHOLDER in field.metadata else None


def has_personal(cls: type) -> bool:
    """Return whether *cls* itself has personal fields or names a subject. Raises ``ConfigError`` for one but not both.

    Classes inside it are not looked at: their fields are personal data of the same subject.
    """
    fields = attrs.fields(cls)
    named = [f.name for f in fields if _SUBJECT in f.metadata]
    if len(named) > 1:
        raise ConfigError(f"{cls.__name__} has several subjects: {', '.join(named)}; an event is about one")
    is_personal = any(_PLACEHOLDER in f.metadata for f in fields)
    if is_personal and not named:
        raise ConfigError(f"{cls.__name__} has personal fields, but no subject(); mark the field that names the person")
    return is_personal or bool(named)


class PersonalData:
    """Seals and opens personal fields. Thread-safe; blocks where a key is not in the cache.

    Args:
        keys: The keys of the subjects.
        cache_for: How long a key is kept in memory, at most. So long can this process read what another one forgot.
        cache_size: How many keys are kept.
        clock: The clock of the cache.
    """

    def __init__(
        self,
        keys: SubjectKeys,
        *,
        cache_for: timedelta = timedelta(minutes=5),
        cache_size: int = 10_000,
        clock: Clock | None = None,
    ) -> None:
        if cache_for < timedelta() or cache_size < 0:
            raise ConfigError("cache_for and cache_size must not be negative")
        self._keys = keys
        self._for_s = cache_for.total_seconds()
        self._size = cache_size
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._forgets = 0

    def forget(self, subject: str) -> None:
        """Make all personal data of *subject* unreadable, in all events and snapshots, for good."""
        self._keys.forget(subject)
        with self._lock:
            self._forgets += 1
            self._cache.pop(subject, None)

    def seal(self, name: str, value: Any, raw: dict[str, Any]) -> None:
        """Replace the personal fields in *raw*, which is *value* as JSON has it, by placeholders and what is sealed.

        Args:
            name: of the event's type; what is sealed can only be opened as part of such an event.

        Raises:
            SubjectForgotten: the subject was forgotten, and *value* still has personal data.
            ConfigError: the subject is not a text.
        """
        sealed = []
        for path, holder, key, placeholder in list(_personal_in(value, raw, ())):
            if holder[key] != placeholder:
                sealed.append([path, holder[key]])
                holder[key] = placeholder
        if not sealed:
            return
        who = next(getattr(value, f.name) for f in attrs.fields(type(value)) if _SUBJECT in f.metadata)
        if not isinstance(who, str) or not who:
            raise ConfigError(f"{name} has personal data, but its subject is not a text, or is empty")
        forgets = self._forgets
        cipher = AESGCM(self._found(who) or self._kept(who, self._keys.make_key(who), forgets))
        nonce = os.urandom(_NONCE)
        text = json.dumps(sealed, ensure_ascii=False, allow_nan=False).encode()
        raw[SEALED] = [who, base64.b64encode(nonce + cipher.encrypt(nonce, text, _bound(name, who))).decode()]

    def open(self, name: str, raw: dict[str, Any]) -> None:
        """Put the personal fields back into *raw*, unless the subject was forgotten: then it keeps the placeholders.

        Raises:
            ValueError: what is sealed was changed, or belongs to an event of another type.
        """
        if SEALED not in raw:
            return
        who, text = raw.pop(SEALED)
        forgets = self._forgets
        key = self._found(who) or self._keys.find_key(who)
        if key is None:
            return
        cipher = AESGCM(self._kept(who, key, forgets))
        data = base64.b64decode(text, validate=True)
        try:
            fields = json.loads(cipher.decrypt(data[:_NONCE], data[_NONCE:], _bound(name, who)))
        except InvalidTag as e:
            raise ValueError("the sealed personal data were changed, or are of another event") from e
        for path, value in fields:
            holder: Any = raw
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value

    def _found(self, who: str) -> bytes | None:
        with self._lock:
            until, key = self._cache.get(who, (0.0, None))
            return key if key is not None and self._clock.monotonic() < until else None

    def _kept(self, who: str, key: bytes, forgets: int) -> bytes:
        with self._lock:
            if forgets != self._forgets:
                return key  # it may be the one that was forgotten since it was read
            if who not in self._cache or self._cache[who][0] <= self._clock.monotonic():
                self._cache[who] = self._clock.monotonic() + self._for_s, key
            self._cache.move_to_end(who)
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return key


def _bound(name: str, who: str) -> bytes:
    return json.dumps([name, who]).encode()


def _personal_in(
    value: Any, raw: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, str | int, Any]]:
    """Yield each personal field of *value*: its path, where it is in *raw*, by which key, and its placeholder."""
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            if field.name not in raw:
                continue
            if _PLACEHOLDER in field.metadata:
                yield (*path, field.name), raw, field.name, field.metadata[_PLACEHOLDER]
            else:
                yield from _personal_in(getattr(value, field.name), raw[field.name], (*path, field.name))
    elif isinstance(value, list | tuple):
        for n, inner in enumerate(value):
            yield from _personal_in(inner, raw[n], (*path, n))
    elif isinstance(value, Mapping):
        for (_, inner), key in zip(value.items(), raw, strict=True):
            yield from _personal_in(inner, raw[key], (*path, key))
