"""``Emitter``: changes to records. A plan for each layout of the log has the schemas, and what each column becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..cdc.log import Table
from ..cdc.rows import PARTITION_DELETES, RANGE_STARTS, RANGES, Cells, Change, Layout
from ..driver import Column
from ..errors import ConfigError, MetadataError, RscyllaError
from ..event import Event
from .formats.json import JsonConverter
from .outline import Outline, Slot
from .record import Header, Record
from .rows import us_of
from .settings import Settings
from .shape import REQUIRED_LONG, REQUIRED_TEXT, Row, RowReader, Shape, struct_of

__all__ = ["Emitter", "RowReader", "keys_only"]

_HEARTBEAT_KEY: Final = struct_of(
    (("serverName", REQUIRED_TEXT),),
    optional=False,
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
)
_HEARTBEAT: Final = struct_of(
    (("ts_ms", REQUIRED_LONG),), optional=False, name="io.debezium.connector.common.Heartbeat", version=1
)


class Emitter:
    """Makes records of changes, as the Scylla CDC source connector does; see docs/debezium.md.

    Not thread-safe: it keeps a plan for each layout of a table's log. *warn* gets the text of each warning.

    >>> emitter = Emitter(Settings(prefix="demo"))
    """

    def __init__(self, settings: Settings, warn: Callable[[str], object] = lambda _: None) -> None:
        self.settings = settings
        self._warn = warn
        self._plans: dict[int, tuple[Layout, _Plan]] = {}  # by identity, as a stream makes each layout once

    def records(self, change: Change | Event, now_ns: int) -> list[Record]:
        """Return the records of a change: usually one, two for a delete with a tombstone, none if it is skipped.

        Args:
            change: or its event, of a stream with ``granularity="change"``.
            now_ns: the time of processing, which the envelope has: nanoseconds since the epoch.

        Raises:
            ConfigError: the event is not of a stream of ``rscylla``, or a setting is not possible for the table.
            MalformedData: a cell has bytes that are not a value of its type.
            MetadataError: the operation is not known.
        """
        found = change if isinstance(change, Change) else getattr(change, "change", None)
        if not isinstance(found, Change):
            raise ConfigError("records are made of changes; use a stream with granularity='change'")
        layout = found.layout
        try:
            return self._plan(layout).records(found, now_ns)
        except RscyllaError:
            raise
        except ValueError as e:
            raise layout.malformed(found.raw_rows) from e

    def outline(self, layout: Layout) -> Outline | None:
        """Return what records of *layout* have in common; None if they have headers.

        Raises:
            ConfigError: a setting is not possible for the table.
        """
        return self._plan(layout).outline()

    def _plan(self, layout: Layout) -> _Plan:
        known = self._plans.get(id(layout))
        if known is None:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            known = self._plans[id(layout)] = (layout, _Plan(self.settings, layout, self._warn))
        return known[1]

    def reader(self, table: Table, columns: Sequence[Column]) -> RowReader:
        """Return what makes records of rows of the base table, for snapshots.

        Args:
            table: the base table.
            columns: what each cell of a row is, as a page has them. Those that are not of the table are left out.

        Raises:
            ConfigError: a setting is not possible for the table.
            MetadataError: a column of the key is not read.
        """
        return RowReader(self.settings, table, columns)

    def heartbeat(self, now_ms: int) -> Record:
        """Return the record that says that the connector runs. *now_ms*: milliseconds since the epoch."""
        settings = self.settings
        topic, key = settings.topic(settings.heartbeat_prefix, settings.prefix), {"serverName": settings.prefix}
        return Record(topic, _HEARTBEAT_KEY, key, _HEARTBEAT, {"ts_ms": now_ms}, (), 0)


_PLANS_KEPT: Final = 256


def keys_only(table: Table) -> str:
    """Return why the legacy format has no records of *table*, whose log has only keys."""
    name = table.full_name
    return (
        f"{name} has only keys ('delta': 'keys'), and in the legacy format all columns would look untouched; use "
        f"cdc.output.format=advanced, or ALTER TABLE {name} WITH cdc = {{'delta': 'full'}}"
    )


class _Plan(Shape):
    """What becomes of the changes of one layout."""

    def __init__(self, settings: Settings, layout: Layout, warn: Callable[[str], object]) -> None:
        super().__init__(settings, layout.table, layout.keys, layout.values)
        if self._is_legacy and layout.table.delta == "keys":
            raise ConfigError(f"the log of {keys_only(layout.table)}")
        self._layout = layout
        self._codes = self._codes_of(has_clustering=bool(layout.table.clustering_key))
        self._image = self._legacy_images if self._is_legacy else self._advanced_images
        self._warn = warn
        self._doubted = False  # whether an insert that may lack its values was told
        self._record: tuple[bytes | None, bytes | None] | None = None  # the record of _firsts
        self._firsts: dict[Cells, int] = {}

    def records(self, change: Change, now_ns: int) -> list[Record]:
        rows = change.raw_rows
        cells = rows[0]
        known = self._codes.get(cells[self._layout.operation])
        if known is None:
            return self._without_code(change)
        code, of_row = known
        key = self._key_of(cells, of_row)
        preimage = rows[1]
        if preimage is not None and self._is_legacy and not (self._settings.preimages and self._is_first(change)):
            preimage = None
        before, after, has_clock = self._image(code, cells, preimage, rows[2], of_row)
        source = self._source_at(us_of(cells[self._layout.time]))  # type: ignore[arg-type]
        value = self._value(code, key, source, before, after, now_ns, has_clock)
        headers = self._headers(cells, of_row) if self._headed else ()
        if not of_row:
            headers = (*headers, *self._extent(change))
        record = Record(self._topic, self._record_key, self._kept_key(key), self._value_schema, value, headers)
        if code != "d" or not of_row or not self._settings.tombstones:
            return [record]
        delete = record._replace(shared=[])
        return [delete, delete._replace(value_schema=None, value=None)]

    def outline(self) -> Outline | None:
        if self._headed:
            return None
        settings = self._settings
        times = {"ts_ms": Slot.SOURCE_MS, "ts_us": Slot.SOURCE_US, "ts_ns": Slot.SOURCE_NS}
        envelope = self._value("", {}, {**self._source, **times}, None, None, 0, has_clock=True)
        envelope |= {"before": Slot.BEFORE, "after": Slot.AFTER, "op": Slot.CODE}
        envelope |= {"ts_ms": Slot.NOW_MS, "ts_us": Slot.NOW_US, "ts_ns": Slot.NOW_NS}
        if self._payload_key is not None:
            envelope[self._payload_key] = Slot.KEY
        return Outline(
            topic=self._topic,
            key_schema=self._record_key,
            value_schema=self._value_schema,
            envelope=envelope,
            key=self._keys,
            before=self._before_columns,
            after=self._after_columns,
            codes={raw: code for raw, (code, of_row) in self._codes.items() if of_row and raw is not None},
            images=(settings.before, settings.after),
            is_legacy=self._is_legacy,
            doubted_us=self._layout.table.altered_us or 0,
            has_preimages=settings.preimages,
            has_tombstones=settings.tombstones,
        )

    def _codes_of(self, *, has_clustering: bool) -> dict[bytes | None, tuple[str, bool]]:
        """Return, by the bytes of operations that have records, their code, and whether they are of one row."""
        skipped = self._settings.skipped
        codes = dict.fromkeys(_ROW_DELETES, ("d", True))
        wide = dict.fromkeys(PARTITION_DELETES, ("d", not has_clustering)) | dict.fromkeys(RANGES, ("d", False))
        if "silent-deletes" in self._settings.like_connector:
            wide = {raw: found for raw, found in wide.items() if found[1]}
        codes |= {_INSERT: ("c", True), _UPDATE: ("u", True), **wide}
        return {raw: found for raw, found in codes.items() if found[0] not in skipped}

    def _without_code(self, change: Change) -> list[Record]:
        """Return no records for what is skipped, and for an image without its write, which does not say what happened.

        Raises:
            MetadataError: the operation is not known.
        """
        if change.raw_rows[0][self._layout.operation] is not None and change.operation.name.startswith("UNKNOWN"):
            raise MetadataError(
                f"a change of {self._layout.table.full_name} has the operation {change.operation.value}, which this "
                "rscylla does not know; upgrade rscylla"
            )
        return []

    def _is_first(self, change: Change) -> bool:
        """Return whether the change is the first of its row in its record: only that one has the preimage."""
        if not change.batch_index:
            return True
        layout, cells = self._layout, change.raw_rows[0]
        record = cells[layout.stream_id], cells[layout.time]
        if self._record != record:
            firsts: dict[Cells, int] = {}
            batch = change.batch
            for index in range(batch.size):
                row, preimage, *_ = batch.raw_rows(index)
                if preimage is not None:
                    firsts.setdefault(layout.raw_key(row), index)
            self._record, self._firsts = record, firsts
        return self._firsts.get(layout.raw_key(cells)) == change.batch_index

    def _extent(self, change: Change) -> list[Header]:
        """Return the headers that say what a delete of more than a row deleted."""
        found = [("cdc.delete", "partition")]
        cells, *_, end = change.raw_rows
        if cells[self._layout.operation] in RANGES:
            found = [("cdc.delete", "range")]
            is_start = cells[self._layout.operation] in RANGE_STARTS
            for name, row in (("start", cells if is_start else None), ("end", end if is_start else cells)):
                if row is None:
                    continue
                columns = [c for c in self._clustering if row[c.index] is not None]
                schema = struct_of([(c.name, c.schema) for c in columns], optional=False)
                bound = JsonConverter.once(schema, {c.name: c.value_in(row) for c in columns})
                operation = row[self._layout.operation]
                found.append((f"cdc.range.{name}", bound))
                found.append((f"cdc.range.{name}.inclusive", "true" if operation in _INCLUSIVE else "false"))
        return [Header(name, REQUIRED_TEXT, text) for name, text in found]

    # ------------------------------------------------------------ images

    def _legacy_images(
        self, code: str, cells: Cells, preimage: Cells | None, postimage: Cells | None, of_row: bool
    ) -> tuple[Row | None, Row | None, bool]:
        """Return before, after, and whether the envelope has microseconds and nanoseconds."""
        if code == "u":
            self._check_touched(cells)
        elif code == "c" and not self._doubted and (text := self._layout.lacking_values(cells)):
            self._doubted = True
            self._warn(f"{text} in records; if they are, begin after it, with a snapshot")
        if code == "d":
            return self._in_before.cells(cells if preimage is None else preimage, cells, of_row), None, True
        before = None if preimage is None else self._in_before.cells(preimage, cells, of_row=True)
        return before, self._in_before.cells(cells, cells, of_row=True), before is None

    def _advanced_images(
        self, code: str, cells: Cells, preimage: Cells | None, postimage: Cells | None, of_row: bool
    ) -> tuple[Row | None, Row | None, bool]:
        settings = self._settings
        is_update = code == "u"
        before = after = None
        if settings.after == "none":
            postimage = None
        if settings.before != "none" and preimage is not None:
            if not is_update:
                before = self._in_before.row(preimage)
            elif settings.before == "only-updated":
                self._check_touched(cells)
                before = self._in_before.updated(preimage, cells)
            elif postimage is not None:
                self._check_touched(cells)
                before = self._in_before.joined(preimage, postimage, cells)
            else:
                before = self._in_before.row(preimage)
        if postimage is not None:
            only_updated = is_update and settings.after == "only-updated"
            if only_updated:
                self._check_touched(cells)
            after = self._in_after.updated(postimage, cells) if only_updated else self._in_after.row(postimage)
        return before, after, False

    def _check_touched(self, cells: Cells) -> None:
        """Raise ``MetadataError`` if an update does not say which columns it touched, as all would look untouched."""
        if any(column.touched_in(cells) for column in self._layout.values):
            return
        table = self._layout.table
        if table.lacks_values(us_of(cells[self._layout.time])):  # type: ignore[arg-type]
            raise MetadataError(
                f"an update of {table.full_name} does not say which columns it touched, because the log had only keys "
                "('delta': 'keys') when it was written; use cdc.output.format=advanced with cdc.include.after=full "
                "alone, or begin after it, with a snapshot"
            )


_UPDATE: Final = b"\x01"
_INSERT: Final = b"\x02"
_ROW_DELETES: Final = (b"\x03", b"\xfd")
_INCLUSIVE: Final = (b"\x05", b"\x07")
