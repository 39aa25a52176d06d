"""What all sinks have in common, without Java."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import spark_history as h
from py4j.protocol import Py4JError
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegerType, MapType, StringType, StructType

import rscylla
from rscylla import spark as rs
from rscylla.event import LogMark
from rscylla.spark.pipeline.evolving import evolutions
from rscylla.spark.pipeline.tables import changes_after, check_begins


class Collected:
    """A sink of a user: the frames by the name of their window."""

    def __init__(self, error: Exception | None = None) -> None:
        self.frames: dict[str, Any] = {}
        self._error = error

    def apply(self, changes: Any, window: rs.PlannedWindow) -> bool:
        if self._error is not None:
            raise self._error
        is_new = window.name not in self.frames
        self.frames[window.name] = changes
        return is_new


def test_a_custom_sink_gets_the_changes_and_their_window() -> None:
    sink, frame, window = Collected(), object(), h.window(0, 0, 1)
    assert rs.apply_changes(frame, sink, window=window)
    assert not rs.apply_changes(frame, sink, window=window)
    assert sink.frames == {window.name: frame}


def test_errors_of_spark_in_a_sink_become_errors_of_rscylla() -> None:
    with pytest.raises(rscylla.RscyllaError, match="Spark failed: Py4JError") as caught:
        rs.apply_changes(object(), Collected(Py4JError("row values")), window=h.window(0, 0, 1))
    assert "row values" not in str(caught.value)
    with pytest.raises(rscylla.ConfigError, match="cannot take these"):
        rs.apply_changes(object(), Collected(rscylla.ConfigError("cannot take these")), window=h.window(0, 0, 1))


@pytest.mark.parametrize("sink", ["orders", None, rs.ParquetTable])
def test_what_is_no_sink_is_refused_before_anything_starts(sink: Any) -> None:
    nothing: Any = None  # no session, as none is asked
    given = {"contactPoints": "n", "keyspace": "k", "table": "t", "lag": "30s"}
    wanted = r"must have apply\(changes, window\), such as ParquetTable\(spark, path\)$"
    for call in (
        lambda: rs.apply_changes(nothing, sink, window=h.window(0, 0, 1)),
        lambda: rs.follow(nothing, given, sink, checkpoint="/c"),
        lambda: rs.QueryStream(nothing, given, sink, checkpoint="/c"),
    ):
        with pytest.raises(rscylla.ConfigError, match=f"^sink= {wanted}"):
            call()
    with pytest.raises(rscylla.ConfigError, match=f"^what sink_of returns {wanted}"):
        rs.follow_tables(nothing, given, ["k.t"], lambda _: sink, checkpoints="/c")


@pytest.mark.parametrize("sink", [rs.ParquetTable, rs.MergeTable, rs.ScyllaTable])
def test_the_sinks_of_rscylla_have_the_method_of_the_protocol(sink: type) -> None:
    assert inspect.signature(sink.apply) == inspect.signature(rs.Sink.apply)


def test_a_table_has_a_repeated_window_whatever_became_of_the_key_since() -> None:
    window = h.window(0, 0, 1)
    no_columns: Any = None  # the changes are not looked at
    assert changes_after(no_columns, window, window.end, no_columns, "t") is None


@pytest.mark.parametrize("end_us", [10, 30], ids=["a window that the table has", "a window that it lacks"])
def test_a_table_refuses_changes_of_another_log(end_us: int) -> None:
    cursors = [str(rscylla.EventID(0, us, mark=LogMark(log))) for us, log in ((20, b"a" * 16), (end_us, b"b" * 16))]
    window = rs.PlannedWindow(0, 0, end_us, str(rscylla.EventID(0, 0)), cursors[1])
    no_columns: Any = None
    with pytest.raises(rscylla.ConfigError, match="the table t has the changes of another log"):
        changes_after(no_columns, window, cursors[0], no_columns, "t")


CHOSEN = LogMark(b"a" * 16, is_start=True)


@pytest.mark.parametrize("start", [rscylla.EventID(0, 10), rscylla.EventID(0, 10, mark=CHOSEN)])
def test_a_table_begins_where_its_reader_chose_to(start: rscylla.EventID) -> None:
    check_begins(rs.PlannedWindow(0, 10, 20, str(start), str(rscylla.EventID(0, 20))), "t")


def test_a_table_that_is_gone_does_not_begin_in_the_middle() -> None:
    start, end = (str(rscylla.EventID(0, us, mark=LogMark(b"a" * 16))) for us in (10, 20))
    with pytest.raises(rscylla.ConfigError, match="the table t has no rows yet, but the window begins at 1970"):
        check_begins(rs.PlannedWindow(0, 10, 20, start, end), "t")


TEXT, NUMBER = StringType(), DecimalType(38, 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TEXT, NUMBER),
        (NUMBER, TEXT),
        (DecimalType(38, 0), NUMBER),
        (MapType(TEXT, TEXT), MapType(TEXT, NUMBER)),
        (ArrayType(TEXT), ArrayType(NUMBER)),
        (ArrayType(ArrayType(TEXT)), ArrayType(ArrayType(NUMBER))),
        (StructType().add("a", TEXT), StructType().add("a", NUMBER)),
    ],
)
def test_a_table_names_the_column_whose_type_has_changed_and_the_options_that_change_it(
    before: DataType, after: DataType
) -> None:
    told = (
        r"^the column 'v(\.a)?' of the table /data/t has values of the type (string|decimal\(38,.\)), and not "
        r"(string|decimal\(38,3\)); set the options decimalAs and varintAs as they were before, or check that"
    )
    with pytest.raises(rscylla.ConfigError, match=told):
        evolutions("v", before, after, "/data/t")


def test_a_type_that_no_option_changes_is_told_without_options() -> None:
    with pytest.raises(rscylla.ConfigError, match=r"values of the type string, and not int; check that it belongs"):
        evolutions("v", TEXT, IntegerType(), "t")
