"""Bytes that are no page or no value: one error of the library's own, with no value in it, and no cursor moves past."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from fakelog import NOW_US, SECOND, FakeLog, body_of, stream_id
from logcells import LAYOUT, cells

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import _decoder
from rscylla.cdc.read import reader
from rscylla.cdc.rows import LogRows
from rscylla.cdc.rows.events import ChangeEvent, EventContext, changes_of
from rscylla.driver.pages import Page
from rscylla.errors import DeserializationError, EventTypeError, FilterError, MalformedData, RunError

compiled: Any = _decoder.compiled("cdc.rows")
TWINS = [LogRows] + ([] if compiled is None else [compiled.LogRows])
HEAD_US = NOW_US - 30 * SECOND
SECRET = b"\xffsecret"


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__module__)
def twin(request: pytest.FixtureRequest) -> Callable[[], LogRows]:
    return request.param


def page_of(*rows: dict[str, Any]) -> Page:
    return Page(
        LAYOUT.columns, body_of([cells({"cdc$batch_seq_no": 0, **row}, LAYOUT.columns) for row in rows]), 0, None
    )


def event_of(twin: Callable[[], LogRows], *rows: dict[str, Any]) -> ChangeEvent:
    (event,) = changes_of(twin().add(page_of(*rows), LAYOUT), EventContext(0))
    return event


@pytest.mark.parametrize("cut", [1, 30])
def test_a_page_that_is_cut_short_is_named(twin: Callable[[], LogRows], cut: int) -> None:
    page = page_of({"w": b"secret"}, {"w": b"secret"})
    with pytest.raises(MalformedData, match=r"^the log of ks\.t has a malformed page: (the page|a row) ends") as caught:
        twin().add(attrs.evolve(page, body=page.body[:-cut]), LAYOUT)
    assert (caught.value.table, caught.value.resumable) == ("ks.t", False)
    assert isinstance(caught.value.__cause__, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.table) == (MalformedData, str(caught.value), "ks.t")


@pytest.mark.parametrize("name", ["cdc$stream_id", "cdc$time", "cdc$batch_seq_no"])
@pytest.mark.parametrize("cell", [None, b"\x01"])
def test_a_row_that_lacks_a_part_of_its_key_is_named(twin: Callable[[], LogRows], name: str, cell: Any) -> None:
    with pytest.raises(MalformedData, match=r"the log of ks\.t has a malformed page: a row .* lacks its time"):
        _ = twin().add(page_of({name: cell}), LAYOUT).positions


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("cdc$operation", b""),
        ("cdc$operation", b"\x01\x01"),
        ("cdc$ttl", b""),
        ("cdc$ttl", b"\x01"),
        ("cdc$ttl", bytes(9)),
    ],
)
def test_a_row_whose_operation_or_ttl_has_a_wrong_size_is_named(
    twin: Callable[[], LogRows], name: str, cell: bytes
) -> None:
    with pytest.raises(MalformedData, match=r"a malformed page: a row .* has an operation or TTL of a wrong size$"):
        _ = twin().add(page_of({name: cell}), LAYOUT).positions
    assert len(twin().add(page_of({name: None}), LAYOUT).positions) == 1


READS: dict[str, Callable[[ChangeEvent], object]] = {
    "key": lambda e: e.key,
    "foreign_id": lambda e: e.foreign_id,
    "metadata": lambda e: e.metadata,
    "row": lambda e: e.row,
    "change.key": lambda e: e.change.key,
    "change.before": lambda e: e.change.before,
    "change.after": lambda e: e.change.after,
    "change.values": lambda e: e.change.values,
    "change.columns": lambda e: e.change.columns,
    "change.deleted_elements": lambda e: e.change.deleted_elements,
}
OF_KEYS = ("key", "foreign_id", "metadata", "row", "change.key")
OF_VALUES = ("metadata", "row", "change.after", "change.values", "change.columns")


@pytest.mark.parametrize(
    ("column", "row", "read"),
    [("ck", {"ck": SECRET}, read) for read in OF_KEYS]
    + [("v", {"v": SECRET}, read) for read in OF_VALUES]
    + [("w", {"w": SECRET}, read) for read in OF_VALUES]
    + [("tags", {"tags": SECRET}, read) for read in OF_VALUES]
    + [("tags", {"cdc$deleted_elements_tags": SECRET}, read) for read in ("change.columns", "change.deleted_elements")]
    + [("v", {"v": SECRET, "op": 0}, "change.before"), ("v", {"v": SECRET, "op": 9}, "change.after")],
)
def test_a_cell_that_is_no_value_is_named(twin: Callable[[], LogRows], column: str, row: Any, read: str) -> None:
    event = event_of(twin, row)
    for _ in range(2):  # some parts are kept from the second read on
        with pytest.raises(MalformedData) as caught:
            READS[read](event)
        assert str(caught.value) == f"the log of ks.t has bytes in column {column!r} that are not a value of its type"
        assert (caught.value.table, caught.value.column) == ("ks.t", column)
        assert isinstance(caught.value.__cause__, ValueError)
    assert event.id  # a letter of it, or a message about it, can still name it


@pytest.mark.parametrize("of", ["before", "after"])
def test_an_image_that_holds_no_value_is_named(twin: Callable[[], LogRows], of: str) -> None:
    rows = [{"op": op, "ck": 1, "v": 5, "cdc$batch_seq_no": n} for n, op in enumerate((0, 1, 9))]
    rows[0 if of == "before" else 2]["v"] = SECRET
    with pytest.raises(MalformedData, match="in column 'v' that"):
        READS[f"change.{of}"](event_of(twin, *rows))


@pytest.mark.parametrize("read", ["metadata", "change.as_dict"])
@pytest.mark.parametrize("column", ["tags", "cdc$deleted_elements_tags"])
def test_metadata_names_a_cell_of_the_delta_although_the_images_are_values(
    twin: Callable[[], LogRows], column: str, read: str
) -> None:
    rows = [{"op": op, "ck": 1, "cdc$batch_seq_no": n} for n, op in enumerate((0, 1, 9))]
    rows[1][column] = SECRET
    event = event_of(twin, *rows)
    assert event.change is not None
    with pytest.raises(MalformedData, match="in column 'tags' that"):
        _ = event.metadata if read == "metadata" else event.change.as_dict()


@pytest.mark.parametrize("mode", ["log", "changes", "events"])
@pytest.mark.parametrize("row", [{"v": SECRET}, {"ck": SECRET}, {"tags": SECRET}])
@pytest.mark.arrow
def test_a_column_with_a_cell_that_is_no_value_is_named(twin: Callable[[], LogRows], mode: Any, row: Any) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'rscylla[spark]'")
    from rscylla.cdc.arrow.batches import table_of

    rows = twin().add(page_of({}, row), LAYOUT)
    rows.sort()
    with pytest.raises(MalformedData) as caught:
        table_of(mode, rows, 0, b"")
    (column,) = row
    assert str(caught.value) == f"the log of ks.t has bytes in column {column!r} that are not a value of its type"


# ---------------------------------------------------------------- through a stream


@pytest.fixture
def written(log: FakeLog, twin: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLog]:
    monkeypatch.setattr(reader, "new_rows", twin)
    log.generation(HEAD_US - 100 * SECOND, [stream_id(1)])
    return log


def ended(log: FakeLog, store: MemoryCursorStore, seen: list[Any]) -> RunError:
    """Return the error that ends a run of a consumer that reads values."""

    def consume(event: rscylla.Event, _: rscylla.Run) -> None:
        assert event.change is not None
        seen.append(event.change.after)

    stream = rscylla.NewStream(log, "ks", "t", clock=log.clock, prefetch=0)  # type: ignore[arg-type]
    spec = rscylla.Spec(stream, store, rscylla.Consumer("c", consume), rscylla.StreamLag(seconds=30))
    with pytest.raises(RunError) as caught:
        rscylla.run(spec)
    return caught.value


def test_no_cursor_moves_past_an_event_that_cannot_be_decoded(written: FakeLog) -> None:
    for n, value in enumerate((1, SECRET, 3)):
        written.write(HEAD_US - 10 * SECOND + n, v=value)
    store, seen = MemoryCursorStore(), []  # type: ignore[var-annotated]
    error = ended(written, store, seen)
    assert (error.stage, error.resumable, seen) == ("consume", False, [{"v": 1}])
    assert isinstance(error.__cause__, MalformedData)
    # With the value mended, what was not consumed comes, and nothing comes twice.
    written.written[1].cells["v"] = bytes(3) + b"\x02"
    written.written[2].cells["v"] = SECRET
    assert ended(written, store, seen).stage == "consume"
    assert seen == [{"v": 1}, {"v": 2}]


def _reads_values(event: rscylla.Event | None) -> bool:
    assert event is not None
    assert event.change is not None
    return bool(event.change.after)


@pytest.mark.parametrize(
    ("error", "stream", "consumer"),
    [
        (EventTypeError, {"event_type": lambda change: len(change.after)}, {"filter_types": [1]}),
        (FilterError, {}, {"event_filter": _reads_values}),
        (DeserializationError, {}, {"event_filter": rscylla.reflex.metadata_event_filter(json.loads, bool)}),
    ],
)
def test_functions_that_meet_malformed_data_are_not_tried_again(
    written: FakeLog, error: type[Exception], stream: dict[str, Any], consumer: dict[str, Any]
) -> None:
    written.write(HEAD_US - 10 * SECOND, v=SECRET)
    spec = rscylla.Spec(
        rscylla.NewStream(written, "ks", "t", clock=written.clock, **stream),  # type: ignore[arg-type]
        MemoryCursorStore(),
        rscylla.Consumer("c", lambda event, run: None, **consumer),
        rscylla.StreamLag(seconds=30),
    )
    with pytest.raises(RunError) as caught:
        rscylla.run(spec)
    assert isinstance(caught.value.__cause__, error)
    assert isinstance(caught.value.__cause__.__cause__, MalformedData)
    assert not caught.value.resumable


def test_no_cursor_moves_past_a_page_that_cannot_be_split(written: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2):
        written.write(HEAD_US - 10 * SECOND + n, v=n)
    whole = written._page

    def cut(*args: Any) -> Page:
        page = whole(*args)
        return attrs.evolve(page, body=page.body[:-1]) if page.row_count and not args[1].is_probe else page

    store, seen = MemoryCursorStore(), []  # type: ignore[var-annotated]
    monkeypatch.setattr(written, "_page", cut)
    error = ended(written, store, seen)
    assert (error.stage, error.resumable, seen) == ("recv", False, [])
    assert isinstance(error.__cause__, MalformedData)
    monkeypatch.setattr(written, "_page", whole)
    written.write(HEAD_US - 10 * SECOND + 3, v=SECRET)
    ended(written, store, seen)
    assert seen == [{"v": 1}, {"v": 2}]
