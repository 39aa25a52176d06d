"""What stands for a parked key in letters: equal keys have one mark, whatever their classes. Pure."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Rational, Real
from typing import Any
from uuid import UUID

import attrs

from ....errors import ConfigError

__all__ = ["mark_of"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def mark_of(key: object) -> str:
    """Return what stands for *key* in letters: the same for equal keys, in all processes, and it tells no value.

    Raises:
        ConfigError: the key, or a part of it, has no text of its own.
    """
    return hashlib.blake2b(_text_of(key).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _text_of(key: object) -> str:
    if (plain := _plain_of(key)) is not None:
        return plain
    if isinstance(key, tuple):
        return f"({','.join(map(_text_of, key))})"
    if isinstance(key, list):
        return f"[{', '.join(map(_text_of, key))}]"
    # Of these, equal ones may have another order.
    if isinstance(key, Set):
        return f"{{{','.join(sorted(map(_text_of, key)))}}}"
    if isinstance(key, Mapping):
        return f"map{{{','.join(sorted(f'{_text_of(name)}:{_text_of(value)}' for name, value in key.items()))}}}"
    if fields := _fields_of(key):
        return f"{type(key).__qualname__}{_text_of(fields)}"
    text = repr(key)
    if type(key).__repr__ is object.__repr__ or _ADDRESS.search(text):
        raise ConfigError(
            f"park= returned a {type(key).__qualname__}, which no later process can recognize; return text, a number, "
            "or a tuple of them, such as event.foreign_id"
        )
    return text


def _plain_of(key: object) -> str | None:
    """Return the text of one value, whatever subclass its class is; None if *key* is something else."""
    if isinstance(key, str):
        return str.__repr__(key)
    if isinstance(key, bytes | bytearray):
        return repr(bytes(key))
    if isinstance(key, Real | Decimal):
        return _number_of(key)
    if isinstance(key, complex):
        return f"{_number_of(key.real)}+{_number_of(key.imag)}j" if key.imag else _number_of(key.real)
    if isinstance(key, datetime):
        # As Python compares them: times with a zone by what they are in UTC, and the second of two like hours as the
        # first. Differences, because a time near the ends of the calendar may have no UTC.
        offset, local = key.replace(fold=0).utcoffset(), datetime.combine(key.date(), key.time())
        return local.isoformat() if offset is None else f"UTC{local - datetime.min - offset!r}"
    if isinstance(key, date):
        return date.isoformat(key)
    if isinstance(key, timedelta):
        return f"timedelta{key // timedelta(microseconds=1)}"
    if isinstance(key, UUID):
        return f"UUID{key.int}"
    if isinstance(key, time):
        local_us = timedelta(hours=key.hour, minutes=key.minute, seconds=key.second, microseconds=key.microsecond)
        offset = key.utcoffset()
        return f"time{local_us!r}" if offset is None else f"UTC time{local_us - offset!r}"
    return None


def _number_of(key: Any) -> str:
    """Return the exact value of a number: digits and exponent, without zeros that change nothing."""
    shift = 0
    if isinstance(key, Integral):
        exact = Decimal(int(key))
    elif isinstance(key, Rational):
        bottom = int(key.denominator)
        shift = bottom.bit_length()
        if 10**shift % bottom:  # no decimal number
            return f"{int(key.numerator):x}/{bottom:x}"
        exact = Decimal(key.numerator * 10**shift // bottom)
    else:
        exact = key if isinstance(key, Decimal) else Decimal(float(key))
    sign, digits, exponent = exact.as_tuple()
    if not isinstance(exponent, int):
        return str(exact)  # infinite, or not a number
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    return f"{'-' * sign}{kept}e{exponent - shift + len(text) - len(kept)}" if kept else "0"


def _fields_of(key: object) -> dict[str, Any]:
    """Return the fields that tell whether two of the class of *key* are equal; none if something else tells it."""
    cls = type(key)
    if cls.__eq__ is object.__eq__:
        return {}
    if attrs.has(cls):
        fields = ((field.name, field.eq_key) for field in attrs.fields(cls) if field.eq)
        return {name: made(getattr(key, name)) if made else getattr(key, name) for name, made in fields}
    if isinstance(key, type) or not dataclasses.is_dataclass(key):
        return {}
    return {field.name: getattr(key, field.name) for field in dataclasses.fields(key) if field.compare}
