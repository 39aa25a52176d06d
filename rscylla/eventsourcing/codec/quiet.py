"""Errors without values: what failed and where, but nothing of the data, for letters, logs, and whoever reads them.

A library that converts data quotes them in its errors, and so does code of applications. Such a text ends in dead
letters and logs, which nobody erases when a person is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from cattrs import AttributeValidationNote

from ...errors import ConcealedError, RscyllaError, is_resumable
from .values import personal_leaves

__all__ = ["calling", "quietly", "tell"]

T = TypeVar("T")

_SHOWN = 5
"""Places of one error, at most."""


def quiet(error: Exception) -> ConcealedError:
    """Return an error that says of which classes *error* is, and in which fields, and holds nothing else of it."""
    places = list(dict.fromkeys(_places(error, ())))
    more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    found = ConcealedError(f"{', '.join(places[:_SHOWN])}{more} (without its text)", resumable=is_resumable(error))
    return found.with_traceback(error.__traceback__)


def _places(error: BaseException, path: tuple[str, ...]) -> Iterator[str]:
    # Only names of attributes: keys and indexes of containers are data.
    notes = getattr(error, "__notes__", ())
    path = (*path, *(note.name for note in notes if isinstance(note, AttributeValidationNote)))
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _places(inner, path)
    else:
        yield f"{'.'.join(path)}: {type(error).__qualname__}" if path else type(error).__qualname__


def quietly(function: Callable[[], T], failed: Callable[[], Exception]) -> T:
    """Return what *function* returns; instead of an error of other code, raise the one of *failed*, without its text.

    Raises:
        Others: those of rscylla.
    """
    try:
        return function()
    except RscyllaError:
        raise
    except Exception as e:  # noqa: BLE001 - its class is told
        cause = quiet(e)
    # Not in the handler: there, the error would stay reachable as the context of this one.
    raise failed() from cause


def calling(function: Callable[[], T], value: object) -> T:
    """Return what *function* returns. Errors of it that quote a personal field of *value* lose their texts.

    Raises:
        Others: what *function* raises. Where such an error has its text from elsewhere, ``ConcealedError`` instead.
    """
    try:
        return function()
    except Exception as error:
        quotes = _Quotes([value, *(getattr(one, _ABOUT, None) for one in _chain(error))])
        for one in _chain(error):
            if quotes.are_in(one):
                one.args = (LEFT_OUT,)
                one.__dict__.pop("__notes__", None)
        if not any(map(quotes.are_in, _chain(error))):
            raise
        concealed = quiet(error)
    raise concealed  # not in the handler, as above


def tell(error: Exception, *values: object) -> None:
    """Have ``calling`` know that *error* is about *values*, and may quote what is personal in them."""
    with suppress(AttributeError):  # of a class whose objects have no attributes of their own
        setattr(error, _ABOUT, values)


_ABOUT = "_rscylla_about"

LEFT_OUT = "the text is left out, for it quotes personal data"


class _Quotes:
    """Finds personal data of a value in errors."""

    def __init__(self, value: object) -> None:
        leaves = [form for leaf in personal_leaves(value) for form in (str(leaf), repr(leaf))]
        self._whole = {form for leaf in leaves for form in _forms(leaf)}
        self._words = {form for leaf in leaves for word in re.findall(r"\w{3,}", leaf) for form in _forms(word)}

    def are_in(self, error: BaseException) -> bool:
        if not self._whole:
            return False
        try:
            text = "\n".join((str(error), repr(error.args), *map(str, getattr(error, "__notes__", ()))))
            text = text.replace(LEFT_OUT, "").casefold()
        except Exception:  # noqa: BLE001 - an error that cannot be printed prints nothing
            return False
        # Errors of rscylla name keys and tables, which may be words of a text by chance.
        needles = self._whole if isinstance(error, RscyllaError) else self._whole | self._words
        return any(needle in text for needle in needles)


def _forms(text: str) -> Iterator[str]:
    for form in (text, repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode(errors="replace"))[2:-1]):
        if form.strip():
            yield form.casefold()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and all that a traceback of it may print."""
    seen: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen[id(one)] = one
            waiting += one.__cause__, one.__context__, *getattr(one, "exceptions", ())
    yield from seen.values()
