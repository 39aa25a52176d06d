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
from datetime import timedelta
from typing import Any, Final

import attrs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..clock import Clock, SystemClock
from ..errors import ConfigError
from .abc import SubjectKeys

__all__ = ["FORGOTTEN", "PersonalData", "personal", "subject"]

FORGOTTEN: Final = "[forgotten]"

PLACEHOLDER: Final = "rscylla.placeholder"
SUBJECT: Final = "rscylla.subject"
"""What fields are marked with, in their metadata."""

_NONCE: Final = 12


def personal(*, placeholder: Any = FORGOTTEN, **options: Any) -> Any:
    """Return an attrs field for personal data. *placeholder* is read once the subject is forgotten.

    It must be a value of the field's type as JSON has it. The ``repr`` of an object has ``<personal>`` for the value,
    so that no text of an error or a log quotes it. *options* are those of ``attrs.field``.
    """
    options.setdefault("repr", _hidden)
    return attrs.field(metadata={**options.pop("metadata", {}), PLACEHOLDER: placeholder}, **options)


def _hidden(_: object) -> str:
    return "<personal>"


def subject(**options: Any) -> Any:
    """Return an attrs field with the name of the person whose data the personal fields are, such as a customer's id.

    A class has one such text at most, itself readable for good. Personal fields of classes inside it are data of the
    same subject, unless these name their own. *options* are those of ``attrs.field``.
    """
    return attrs.field(metadata={**options.pop("metadata", {}), SUBJECT: True}, **options)


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

    def seal(self, name: str, who: str, value: Any) -> str:
        """Return *value*, which JSON has, sealed with the key of *who* for data of type *name*.

        Raises:
            SubjectForgotten: *who* was forgotten.
        """
        forgets = self._forgets
        cipher = AESGCM(self._found(who) or self._kept(who, self._keys.make_key(who), forgets))
        nonce = os.urandom(_NONCE)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return base64.b64encode(nonce + cipher.encrypt(nonce, text, _bound(name, who))).decode()

    def unseal(self, name: str, who: str, sealed: str) -> Any:
        """Return the value that ``seal`` returned *sealed* for; an empty list if *who* was forgotten.

        Raises:
            ValueError: what is sealed was changed, or belongs to data of another type.
        """
        forgets = self._forgets
        key = self._found(who) or self._keys.find_key(who)
        if key is None:
            return []
        cipher = AESGCM(self._kept(who, key, forgets))
        data = base64.b64decode(sealed, validate=True)
        try:
            return json.loads(cipher.decrypt(data[:_NONCE], data[_NONCE:], _bound(name, who)))
        except InvalidTag as e:
            raise ValueError("the sealed personal data were changed, or are of another event") from e

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
