"""Errors of Spark as errors of rscylla: those that can be created without Java."""

from __future__ import annotations

import pickle
import traceback
from datetime import UTC, datetime

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PySparkRuntimeError

import rscylla
from rscylla.spark import spark_errors


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """One whose text needs no gateway."""

    def __init__(self, kind: str, text: str) -> None:
        Exception.__init__(self)
        self.java_exception = self
        self._kind, self._text = kind, text

    def getClass(self) -> JavaError:
        return self

    def getSimpleName(self) -> str:
        return self._kind

    def __str__(self) -> str:
        return f"An error occurred while calling o1.load.\n: org.apache.spark.{self._kind}: {self._text}\n\tat x.y(z)"


def told(error: Exception) -> rscylla.RscyllaError:
    with pytest.raises(rscylla.RscyllaError) as caught, spark_errors():
        raise error
    assert caught.value.__cause__ is error
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value


def test_a_source_that_is_not_found_is_reported_with_its_causes() -> None:
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure the provider name is correct"
    found = told(JavaError("SparkClassNotFoundException", text.format("scylla-cdc")))
    assert type(found) is rscylla.ConfigError
    for cause in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "editable install", "another pyspark_"):
        assert cause in str(found)
    assert "\n" not in str(found)
    other = told(JavaError("SparkClassNotFoundException", text.format("delta")))
    assert str(other).startswith("Spark failed: JavaError, SparkClassNotFoundException, DATA_SOURCE_NOT_FOUND;")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (rscylla.TableNotFound("keyspace ks has no table t"), rscylla.TableNotFound),
        (rscylla.errors.MissingLag("x"), rscylla.ConfigError),
    ],
)
def test_an_error_of_ours_comes_back_from_a_worker(raised: rscylla.RscyllaError, kind: type[Exception]) -> None:
    line = f"{type(raised).__module__}.{type(raised).__name__}: {raised}"
    text = (
        f"[PYTHON_EXCEPTION] x\nTraceback (most recent call last):\n  File a\nrscylla.errors.Stopped: old\n{line}\n\n"
    )
    for error in (PySparkException(text), JavaError("SparkException", text)):
        found = told(error)
        assert type(found) is kind
        assert str(found) == str(raised)


def test_an_expired_cursor_comes_back_with_its_gap() -> None:
    gap = datetime(2026, 11, 27, 10, 0, 0, 5, UTC), datetime(2026, 11, 27, 11, tzinfo=UTC)
    raised = rscylla.CursorExpired("changes may be lost", gap_from=gap[0], gap_to=gap[1])
    text = "".join(traceback.format_exception(raised))
    for error in (PySparkException(text), JavaError("SparkException", f"PythonException: {text}\n\n\tat org.apache")):
        found = told(error)
        assert isinstance(found, rscylla.CursorExpired)
        assert (str(found), found.gap_from, found.gap_to) == ("changes may be lost", *gap)


def test_one_that_has_more_to_say_comes_back_as_the_kind_above_it() -> None:
    found = told(PySparkException("rscylla.errors.CursorExpired: the cursor is too old"))
    assert type(found) is rscylla.errors.CursorError
    assert str(found) == "the cursor is too old"
    assert type(told(PySparkException("rscylla.errors.NoSuch: text"))) is rscylla.RscyllaError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Py4JNetworkError("Answer from Java side is empty: secret"), "Spark failed: Py4JNetworkError;"),
        (Py4JError("secret"), "Spark failed: Py4JError;"),
        (JavaError("SparkException", "Job aborted, secret"), "Spark failed: JavaError, SparkException;"),
        (
            PySparkException("[CAST_INVALID_INPUT] The value 'secret'"),
            "Spark failed: PySparkException, CAST_INVALID_INPUT;",
        ),
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "Spark failed: PySparkRuntimeError, JAVA_GATEWAY_EXITED;",
        ),
    ],
)
def test_only_the_kind_of_any_other_error_is_reported(error: Exception, text: str) -> None:
    found = told(error)
    assert type(found) is rscylla.errors.SparkFailed
    assert str(found).startswith(text)
    assert "secret" not in str(found)


def test_errors_of_others_pass() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("x")
