"""``Codec``: between a value and its JSON text, in which personal fields are sealed."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any, Final

from ...errors import ConfigError
from ..shredding import PersonalData
from .converter import json_converter, json_text
from .fields import Field, resolved_types
from .quiet import quietly
from .shapes import Checked, Shapes
from .values import Hiding, difference, patched

__all__ = ["Codec"]

SEALED: Final = "$personal"
"""The key of the sealed changes: texts by turns, a subject and what is sealed with its key."""

VALUE: Final = "$value"
"""The key of a value that has sealed changes and is not an object itself."""


class Codec:
    """Makes JSON text of values, and values of it. Thread-safe.

    What ``dump`` returns is proven to be read: it is read at once, and has to be the same.
    """

    def __init__(self, personal: PersonalData | None) -> None:
        self._converter = json_converter()
        self._personal = personal
        self._checked: dict[Any, Checked] = {}
        self._placeholders: dict[tuple[type, str], Any] = {}

    def check(self, name: str, kind: Any) -> Checked:
        """Return what values of type *kind* can have. *name* is for the errors.

        Raises:
            ConfigError: values of the type may come back as others, or cannot be looked into; or its marks make no
                sense.
        """
        if kind not in self._checked:
            found = Shapes(self._converter, self._placeholder, name).check(kind)
            if found.has_personal and self._personal is None:
                raise ConfigError(f"{name} has personal fields; pass EventTypes(personal=PersonalData(keys))")
            self._checked[kind] = found
        return self._checked[kind]

    def dump(self, name: str, kind: Any, value: object) -> str:
        """Return the text of *value*, which is a *kind*.

        Raises:
            ConfigError: its type is not one that ``check`` accepts, it would not come back as it is, or what is
                personal in it cannot be sealed.
            SubjectForgotten: it has personal data of a subject that was forgotten.
        """

        def written() -> str:
            text, raw = self._proven(name, kind, value)
            if isinstance(raw, dict) and SEALED in raw:
                raise ConfigError(f"{name} has a key {SEALED}, which is reserved")
            return self._sealed(name, kind, value, text, raw) if has_personal else text

        has_personal = self.check(name, kind).has_personal
        return quietly(written, lambda: ConfigError(f"{name} has personal data that cannot be sealed; see the cause"))

    def prove(self, name: str, kind: Any, value: object) -> None:
        """Raise ``ConfigError`` if *value*, which is a *kind*, would not come back as it is."""
        self._proven(name, kind, value)

    def _proven(self, name: str, kind: Any, value: object) -> tuple[str, Any]:
        """Return *value* in the clear, as text and as JSON has it, once it is known to come back as it is."""
        text = quietly(
            lambda: self._written(kind, value),
            lambda: ConfigError(f"{name} has a value that JSON does not have; see the cause"),
        )

        def compared() -> tuple[str, Any]:
            raw = json.loads(text)
            return difference(value, self._converter.structure(raw, kind)), raw

        where, raw = quietly(
            compared, lambda: ConfigError(f"{name} would not be read as it was written; see the cause")
        )
        if where:
            raise ConfigError(f"{name} would not be read as it was written: {where}")
        return text, raw

    def _written(self, kind: Any, value: object) -> str:
        return json_text(self._converter.unstructure(value, unstructure_as=kind))

    def _sealed(self, name: str, kind: Any, value: object, text: str, raw: Any) -> str:
        """Return *text*, which is *raw* and *value*, with placeholders, and with what is in their place sealed."""
        hiding = Hiding(self._placeholder)
        clear = hiding(value, raw)
        if json_text(patched(json.loads(json_text(clear)), chain(*hiding.found.values()))) != text:
            raise ConfigError(f"{name} would not be the same once its personal data are put back")
        sealed: list[str] = []
        for who, found in hiding.found.items():
            if not who:
                raise ConfigError(f"{name} has personal data, but its subject is not a text, or is empty")
            assert self._personal is not None  # or the type would have been refused
            sealed += who, self._personal.seal(name, who, found)
        if not sealed:
            return text
        # This is what is left of it one day.
        self._converter.structure(clear, kind)
        if not isinstance(clear, dict):
            return json_text({SEALED: sealed, VALUE: clear})
        if VALUE in clear:
            raise ConfigError(f"{name} has a key {VALUE}, which is reserved")
        return json_text({**clear, SEALED: sealed})

    def _placeholder(self, cls: type, field: Field) -> Any:
        """Return the placeholder of a personal field as JSON has it."""
        found = self._placeholders.get((cls, field.name), _UNKNOWN)
        if found is _UNKNOWN:
            kind = resolved_types(cls)[field.name]
            found = self._placeholders[cls, field.name] = quietly(
                lambda: json.loads(self._written(kind, self._converter.structure(field.placeholder, kind))),
                lambda: ConfigError(
                    f"the placeholder of {cls.__name__}.{field.name} is not a value of its type; pass "
                    "personal(placeholder=...)"
                ),
            )
        return found

    # ------------------------------------------------------------ reading

    def opened(self, name: str, text: str) -> Any:
        """Return what JSON has in *text*, with personal data of those who are not forgotten.

        Raises:
            Others: those of JSON and of the keys.
        """
        raw = json.loads(text)
        if not isinstance(raw, dict) or SEALED not in raw:
            return raw
        sealed = raw.pop(SEALED)
        value = raw.get(VALUE, raw)
        if self._personal is None:
            return value  # without keys, a reader has the placeholders
        for who, what in zip(sealed[::2], sealed[1::2], strict=True):
            value = patched(value, self._personal.unseal(name, who, what))
        return value

    def structured(self, kind: Any, raw: Any) -> Any:
        """Return the value of type *kind* that *raw*, as JSON has it, is. Raises the errors of the converter."""
        return self._converter.structure(raw, kind)

    def loaded(self, name: str, kind: Any, text: str) -> Any:
        """Return the value that ``dump`` returned *text* of. Raises the errors of ``opened`` and ``structured``."""
        return self.structured(kind, self.opened(name, text))


_UNKNOWN: Final = object()
