"""Records of changes as bytes, made at once from what the log sent, by compiled code: no value is made on the way.

``Emitter``, transforms, and converters are its twin, which says what the bytes are. They also make the records that it
leaves to them: the first of each layout, those of deletes of more than a row, with headers, with transforms, by schemas
that a registry has in another form, and with cells that cannot be decoded, which they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from .._decoder import compiled
from ..cdc.rows import Layout
from ..types import Schema
from .emitter import Emitter
from .formats.converters import Converters
from .formats.json import Form
from .outline import Slot

__all__ = ["Direct", "direct"]


def direct(emitter: Emitter, converters: Converters, message: type[tuple[Any, ...]]) -> Direct | None:
    """Return what makes messages of events by *converters*, without transforms; None where no code is compiled.

    Args:
        message: the class of messages, with the fields of ``rscylla.abc.Message``.
    """
    fast, events = compiled("debezium"), compiled("cdc.rows")
    if fast is None or events is None:
        return None
    return Direct(emitter, converters, fast, fast.Direct(events.ChangeEvent, message))


@attrs.define(eq=False)
class Direct:
    """Makes messages of events of the layouts that it has learned."""

    _emitter: Emitter
    _converters: Converters
    _fast: Any
    messages: Any
    """Returns the messages of an event at a time in microseconds; None if they are left to the twin. Raises nothing."""

    def learn(self, event: Any) -> None:
        """Know the layout of *event*, of which the twin has made a record with a value."""
        self.messages.learn(event, self._made)

    def _made(self, layout: Layout) -> Any:
        """Return the ``ChangeBytes`` of *layout*; None if the twin is needed."""
        outline = self._emitter.outline(layout)
        if outline is None:
            return None
        framed = self._converters.framed
        of_value = framed("value", outline.value_schema, outline.topic)
        key_schema = outline.key_schema
        of_key = None if key_schema is None else framed("key", key_schema, outline.topic)
        if of_value is None or (key_schema is not None and of_key is None):
            return None
        row = self._row(of_value.form)
        columns = {Slot.BEFORE: outline.before, Slot.AFTER: outline.after, Slot.KEY: outline.key}
        found: list[tuple[bytes, int, Any]] = []
        lead = of_value.head
        for part in _parts(self._fast, of_value.form, outline.value_schema, outline.envelope):
            if isinstance(part, bytes):
                lead += part
                continue
            slot, schema = part
            target = row(schema, columns[slot]) if slot in columns else of_value.form.encoder(self._fast, schema)
            found.append((lead, int(slot), target))
            lead = b""
        key = None
        if of_key is not None and key_schema is not None:
            key = self._row(of_key.form)(key_schema, outline.key), of_key.head, of_key.tail
        return self._fast.ChangeBytes(
            len(layout.columns),
            layout.operation,
            layout.time,
            outline.topic,
            outline.codes,
            outline.images,
            outline.is_legacy,
            outline.doubted_us,
            outline.has_preimages,
            outline.has_tombstones,
            key,
            found,
            lead + of_value.tail,
        )

    def _row(self, form: Form) -> Callable[[Schema, Sequence[Any]], Any]:
        def made(schema: Schema, columns: Sequence[Any]) -> Any:
            encoders: list[Any] = []
            wrapped: list[tuple[bytes, bytes, bytes] | None] = []
            for column, field in zip(columns, schema.fields, strict=True):
                if field.schema is column.schema:
                    encoders.append(form.encoder(self._fast, field.schema))
                    wrapped.append(None)
                else:  # the struct of a cell, of the legacy format
                    null, opened, (lead,), closed = form.struct(field.schema)
                    encoders.append(form.encoder(self._fast, column.schema))
                    wrapped.append((null, opened + lead, closed))
            return self._fast.RowBytes(columns, form.struct(schema), encoders, wrapped)

        return made


def _parts(fast: Any, form: Form, schema: Schema, value: Any) -> Iterator[bytes | tuple[Slot, Schema]]:
    """Yield the bytes of *value* of *schema*, and the slots in it."""
    if isinstance(value, Slot):
        yield value, schema
    elif isinstance(value, dict):
        _, opened, leads, closed = form.struct(schema)
        yield opened
        for lead, field in zip(leads, schema.fields, strict=True):
            yield lead
            yield from _parts(fast, form, field.schema, value[field.name])
        yield closed
    else:
        yield fast.Payload(b"", form.encoder(fast, schema), b"")(value)
