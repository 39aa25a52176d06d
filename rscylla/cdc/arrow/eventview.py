"""The view of a log as events, column by column: the same texts as events have, although none is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...event import GRID_US, Operation
from ...types import Type, dumps
from ...types.arrow import TIMESTAMP, builder_for
from ...types.json_arrow import BuildText, hex_of, joined, json_builder_for, times_text
from ..rows import Change, EventContext, Layout, ValueColumn
from .columnar import Changes, Part, built, names_of_operations, nulls_in, timestamps

__all__ = ["EventView"]

_WRITES = (Operation.INSERT, Operation.UPDATE)

_flags = builder_for(Type("boolean"))
_uuids = builder_for(Type("timeuuid"))
_ints = builder_for(Type("int"))
_bigints = builder_for(Type("bigint"))


class EventView:
    """Events as a consumer gets them: id, type, foreign id, time, and metadata. Takes ``Changes``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.table = layout.table.full_name
        self._foreign = {c.name: json_builder_for(c.type, sort_keys=True) for c in layout.keys}
        self._keys = {c.name: json_builder_for(c.type) for c in layout.keys}
        self._values = {c.name: json_builder_for(c.type, loose=c.kind == "udt") for c in layout.values}
        self._split = len(layout.table.partition_key)
        self.schema = pa.schema(
            [
                ("id", pa.string()),
                ("type", pa.string()),
                ("foreign_id", pa.string()),
                ("timestamp", TIMESTAMP),
                ("metadata", pa.string()),
            ]
        )

    def columns(self, part: Changes, names: Sequence[str]) -> list[Any]:
        of = _Texts(part, self._layout)
        return [self._column(name, of) for name in names]

    def _column(self, name: str, part: _Texts) -> Any:
        match name:
            case "id":
                return self._ids(part)
            case "type":
                return part.operation_names(names_of_operations(upper=False))
            case "foreign_id":
                return self._key(part, sorted(self._layout.keys, key=lambda c: c.name), self._foreign)
            case "timestamp":
                return timestamps(part.us)
            case "metadata":
                return self._metadata(part)
        raise KeyError(name)

    def _ids(self, part: _Texts) -> Any:
        seconds = pa.array(part.us // GRID_US, pa.int64()).dictionary_encode()
        prefix = EventContext(part.changes.generation).id_prefix
        prefixes = pa.array([prefix(s.as_py() * GRID_US) for s in seconds.dictionary], pa.string())
        start = prefixes.take(seconds.indices)
        return joined(start, part.streams, '","stream_time":"', part.times, '","stream_seq":', part.numbers, ',"v":2}')

    def _key(self, part: _Texts, columns: Sequence[ValueColumn], builders: Mapping[str, BuildText]) -> Any:
        """Return the primary keys; of a range delete, the partition key. Parts that the change lacks are absent."""
        clustering = {c.name for c in self._layout.keys[self._split :]}
        members = []
        for column in columns:
            text = built(column.name, builders[column.name], part.column(column.index))
            is_member = ~part.is_range if column.name in clustering else None
            if text.null_count:
                is_cell = text.is_valid().to_numpy(zero_copy_only=False)
                is_member = is_cell if is_member is None else is_cell & is_member
            members.append((column.name, text, is_member))
        return _objects(members, len(part))

    def _metadata(self, part: _Texts) -> Any:
        values = self._layout.values
        described = joined(
            '{"operation":"',
            part.operation_names(names_of_operations(upper=True)),
            '","key":',
            self._key(part, self._layout.keys, self._keys),
            ',"before":',
            self._before(part),
            ',"after":',
            self._after(part),
            ',"changed":',
            _name_lists({c.name: part.touched(c) for c in values}, len(part)),
            ',"deleted":',
            _name_lists({c.name: part.marked(c) for c in values}, len(part)),
        )
        special = part.is_range.copy()
        for column in values:
            if column.kind != "value":
                special |= part.touched(column)
        if special.any():
            # Ranges, and edits of collections, are rare and have many forms.
            places = np.flatnonzero(special)
            texts = pa.array([dumps(c.contents())[:-1] for c in _changes_at(part, places)], pa.string())
            described = pc.replace_with_mask(described, pa.array(special), texts)
        complete = part.is_complete
        return joined(
            described,
            ',"ttl":',
            pc.cast(_bigints(part.column(self._layout.ttl)), pa.string()).fill_null("null"),
            ',"timestamp":"',
            times_text(part.us),
            '","batch":{"stream_id":"0x',
            part.streams,
            '","time":"',
            part.times,
            '","size":',
            pc.cast(pa.array(part.changes.size), pa.string()),
            pc.if_else(pa.array(complete), ',"complete":true,"index":', ',"complete":false,"index":'),
            pc.cast(pa.array(part.changes.index), pa.string()),
            "}}",
        )

    def _before(self, part: _Texts) -> Any:
        absent = part.before < 0
        return _or_null(absent, lambda: self._image(part, part.before, whole=False))

    def _after(self, part: _Texts) -> Any:
        """Return the postimages, or what is known of the rows that were written."""
        has_image = part.after >= 0
        is_write = part.is_op(*_WRITES) & ~has_image
        if not has_image.any():
            return _or_null(~is_write, lambda: self._known(part))
        images = _or_null(~has_image, lambda: self._image(part, part.after, whole=True))
        return pc.if_else(pa.array(is_write), self._known(part), images) if is_write.any() else images

    def _known(self, part: _Texts) -> Any:
        """Return the columns that each change set or made null, for columns that are written as a whole."""
        members = []
        for column in self._layout.values:
            if column.kind == "value":
                text = built(column.name, self._values[column.name], part.column(column.index))
                is_member = None
                if text.null_count:
                    is_member = text.is_valid().to_numpy(zero_copy_only=False) | part.marked(column)
                    text = text.fill_null("null")
                members.append((column.name, text, is_member))
        return _objects(members, len(part))

    def _image(self, part: _Texts, numbers: Any, *, whole: bool) -> Any:
        """Return the images in the rows *numbers*; see ``Change._image``."""
        layout = self._layout
        members = []
        for column in layout.values:
            text = built(column.name, self._values[column.name], part.column(column.index, numbers))
            is_member = _has_value(text)
            if is_member is not None:
                is_null = part.static_in(numbers) == column.static
                if not whole:
                    is_null &= part.marked_in(column, numbers)
                is_member |= is_null
                text = text.fill_null("null")
            members.append((column.name, text, is_member))
        return _objects(members, len(part))


class _Texts(Part):
    """Changes of which the view of events shows columns."""

    @cached_property
    def streams(self) -> Any:
        return hex_of(self.stream_ids)

    @cached_property
    def times(self) -> Any:
        return _uuids(self.column(self.layout.time))

    @cached_property
    def numbers(self) -> Any:
        return pc.cast(self.seqs, pa.string())

    @cached_property
    def is_complete(self) -> Any:
        """Whether all log rows of the record were present."""
        first, last = self.changes.first, self.changes.last
        ends = _flags(self.column(self.layout.end_of_batch, last)).fill_null(False)
        seqs = _ints(self.column(self.layout.seq, last)).to_numpy(zero_copy_only=False)
        return ends.to_numpy(zero_copy_only=False) & (seqs == last - first)

    def static_in(self, numbers: Any) -> Any:
        """Return which of the rows *numbers* concern the static row: their clustering key is null."""
        clustering = self.layout.keys[len(self.layout.table.partition_key) :]
        found = np.full(len(self), bool(clustering))
        for column in clustering:
            found &= nulls_in(self.column(column.index, numbers))
        return found


def _has_value(text: Any) -> Any:
    """Return which values of an image are not null; None if all are not."""
    is_null = pc.or_kleene(text.is_null(), pc.equal(text, "null").fill_null(True))
    found = is_null.to_numpy(zero_copy_only=False)
    return ~found if found.any() else None


def _objects(members: Sequence[tuple[str, Any, Any]], count: int) -> Any:
    """Return JSON objects with *members*: name, texts of values, and in which objects it is (None: in all)."""
    if not members:
        return pa.array(["{}"] * count, pa.string())
    if all(is_member is None for _, _, is_member in members):
        pieces = [piece for name, text, _ in members for piece in (f",{dumps(name)}:", text)]
        pieces[0] = pieces[0][1:]
        return joined("{", *pieces, "}")
    pieces = []
    for name, text, is_member in members:
        member = joined(f",{dumps(name)}:", text)
        pieces.append(member if is_member is None else pc.if_else(pa.array(is_member), member, ""))
    inner = joined(*pieces)
    return joined("{", pc.binary_replace_slice(inner, 0, 1, ""), "}")


def _or_null(absent: Any, make: Callable[[], Any]) -> Any:
    """Return what *make* makes, with the text "null" where it is absent."""
    if absent.all():
        return "null"
    return pc.if_else(pa.array(absent), "null", make()) if absent.any() else make()


def _name_lists(marks: Mapping[str, Any], count: int) -> Any:
    """Return, for each row, the JSON of the sorted names of the columns that are marked in it."""
    names = sorted(marks)
    if not any(mark.any() for mark in marks.values()):
        return "[]"
    packed = np.packbits(np.array([marks[n] for n in names], bool).T, axis=1)
    width = packed.shape[1]
    patterns = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(packed.tobytes())])
    known = patterns.dictionary_encode()  # few sets of columns are written together
    bits = [np.unpackbits(np.frombuffer(p.as_py(), "u1")) for p in known.dictionary]
    texts = [dumps([n for n, bit in zip(names, of, strict=False) if bit]) for of in bits]
    return pa.array(texts, pa.string()).take(known.indices)


def _changes_at(part: Part, places: Any) -> Iterator[Change]:
    """Yield the changes at *places*, without their records."""
    some = part.changes.at(places)
    columns = range(len(part.layout.columns))
    rows = []
    for numbers in (some.delta, some.before, some.after, some.range_end):
        cells = zip(*(part.column(c, numbers) for c in columns), strict=True)
        rows.append([row if n >= 0 else None for row, n in zip(cells, numbers, strict=True)])
    for delta, before, after, range_end in zip(*rows, strict=True):
        assert delta is not None
        yield Change(part.layout, delta, before, after, range_end)
