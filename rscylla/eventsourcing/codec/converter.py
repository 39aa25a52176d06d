"""The converter between classes and what JSON has: strict, so that no value is bent until it fits."""

from __future__ import annotations

import json
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, get_args, get_origin

from cattrs import Converter
from cattrs.preconf.json import make_converter

__all__ = ["MAPPINGS", "json_converter", "json_text", "key_text"]

MAPPINGS = (dict, Mapping, MutableMapping, OrderedDict, Counter)
"""Types of mappings that come back as what they were."""


def json_converter() -> Converter:
    """Return a converter between classes and what JSON has, which accepts no value of another type.

    Times are texts in ISO 8601, ``Decimal`` and ``UUID`` are texts, and so are the keys of mappings: numbers as JSON
    writes them. Attributes that a class does not have are ignored.
    """
    converter: Converter = make_converter(forbid_extra_keys=False)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    for text in (Decimal, uuid.UUID):
        converter.register_unstructure_hook(text, str)
        converter.register_structure_hook(text, lambda value, kind: kind(_text(value)))
    for moment in (datetime, date):
        converter.register_unstructure_hook(moment, lambda value: value.isoformat())
        converter.register_structure_hook(moment, lambda value, kind: kind.fromisoformat(_text(value)))
    converter.register_unstructure_hook_factory(_has_keys, _keyed_unstructure)
    converter.register_structure_hook_factory(_has_keys, _keyed_structure)
    # cattrs takes notes for arguments of some types.
    converter.register_unstructure_hook_factory(
        _has_notes, lambda kind: converter.get_unstructure_hook(kind.__origin__)
    )
    converter.register_structure_hook_factory(_has_notes, lambda kind: _without_notes(kind.__origin__, converter))
    return converter


def json_text(raw: Any) -> str:
    """Return the JSON text of *raw*. Raises ``ValueError`` for what neither JSON nor a text of a database has."""
    text = _JSON.encode(raw)
    text.encode()  # half surrogates are no text of a database
    return text


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def same(value: Any, wanted: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a {type(value).__name__} instead of a {kind.__name__}")
        # The hook of a class serves its subclasses, too, such as enumerations of texts.
        return value if wanted is kind else wanted(value)

    return same


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"a {type(value).__name__} instead of a float")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} instead of a text")
    return value


def _has_notes(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _without_notes(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    hook = converter.get_structure_hook(kind)
    return lambda value, _: hook(value, kind)


# ---------------------------------------------------------------- keys


def key_text(raw: Any) -> str:
    """Return the key of an object for *raw*, a key as JSON has it."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, bool | int | float):
        raise TypeError(f"a {type(raw).__name__} is no key")
    return json.dumps(raw, allow_nan=False)


def _has_keys(kind: Any) -> bool:
    args = get_args(kind)
    return get_origin(kind) in MAPPINGS and len(args) == 2 and args[0] is not str


def _keyed_unstructure(kind: Any, converter: Converter) -> Callable[[Any], Any]:
    keys, values = get_args(kind)
    key, value = converter.get_unstructure_hook(keys), _lazily(converter.get_unstructure_hook, values)

    def unstructure(found: Mapping[Any, Any]) -> dict[str, Any]:
        return {key_text(key(k)): value()(v) for k, v in found.items()}

    return unstructure


def _keyed_structure(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    keys, values = get_args(kind)
    key, value = converter.get_structure_hook(keys), _lazily(converter.get_structure_hook, values)
    origin = get_origin(kind)
    made = origin if origin in (OrderedDict, Counter) else dict

    def key_of(text: str) -> Any:
        try:
            return key(text, keys)
        except Exception:
            found = key(json.loads(text), keys)
            if key_text(converter.unstructure(found)) != text:
                raise
            return found

    def structure(found: Any, _: Any) -> Any:
        if not isinstance(found, dict):
            raise TypeError(f"a {type(found).__name__} instead of an object")
        return made({key_of(k): value()(v, values) for k, v in found.items()})

    return structure


def _lazily(find: Callable[[Any], Any], kind: Any) -> Callable[[], Any]:
    """Return a function that finds the hook of *kind* once it is needed: a type may hold itself."""
    found: list[Any] = []

    def hook() -> Any:
        if not found:
            found.append(find(kind))
        return found[0]

    return hook
