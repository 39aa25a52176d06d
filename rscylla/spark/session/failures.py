"""Converts the errors of Spark to errors of rscylla with one-line messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ... import errors
from ...errors import ConfigError, CursorExpired, RscyllaError, SparkFailed

__all__ = ["spark_errors"]

_OURS = re.compile(r"^(?:.*\s)?rscylla\.errors\.(\w+): (.+)$", re.MULTILINE)
_GAP = re.compile(r"^\s*gap: (\S+) to (\S+)\s*$", re.MULTILINE)
_CONDITION = re.compile(r"^(?:: )?(?:[\w.$]+: )?\[([A-Z][A-Z0-9_.]+)\]", re.MULTILINE)

NOT_FOUND = (
    "Spark does not find the data source scylla-cdc. If its workers run another Python, without rscylla: "
    "activate the script's environment, set PYSPARK_PYTHON, or call rscylla.spark.ensure_java() before "
    "the session starts. If PYSPARK_DRIVER_PYTHON is set (Spark looks for sources with that program, such as jupyter, "
    "and not with PYSPARK_PYTHON), rscylla is an editable install, or another pyspark_* package on the path is broken: "
    "call rscylla.spark.register(spark)"
)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Convert errors of Spark and its Java gateway in the block to errors of rscylla. The cause is Spark's
    error.

    Spark's messages may contain row values, so the new message names only the kind of any other error.

    Raises:
        ConfigError: Spark does not find the data source; the message names the possible causes.
        SparkFailed: Spark failed for another reason.
        RscyllaError: an error that rscylla raised in one of Spark's processes; it keeps its class.
    """
    try:
        yield
    except (Py4JError, PySparkException) as e:
        raise _translated(e) from e


def _translated(error: Exception) -> RscyllaError:
    text = str(error)
    if "[DATA_SOURCE_NOT_FOUND]" in text and "scylla-cdc" in text:
        return ConfigError(NOT_FOUND)
    ours = _OURS.findall(text)
    if ours:
        # Spark's text holds tracebacks; the last line that names an error of rscylla is the one that was raised.
        name, message = ours[-1]
        kind, gaps = getattr(errors, name, RscyllaError), _GAP.findall(text)
        if kind is CursorExpired and gaps:
            gap_from, gap_to = map(datetime.fromisoformat, gaps[-1])
            return CursorExpired(message.strip(), gap_from=gap_from, gap_to=gap_to)
        return _made(kind, message.strip())
    kinds = [type(error).__name__]
    if isinstance(error, Py4JJavaError):
        kinds.append(str(error.java_exception.getClass().getSimpleName()))
    condition = _CONDITION.search(text)
    if condition is not None:
        kinds.append(condition[1])
    return SparkFailed(f"Spark failed: {', '.join(kinds)}; see the cause of this error for the message")


def _made(kind: type[RscyllaError], message: str) -> RscyllaError:
    """Return an error of *kind*, or of its nearest base class that takes only a message."""
    for each in kind.__mro__:
        try:
            made = each(message)
        except TypeError:
            continue
        if isinstance(made, RscyllaError) and str(made) == message:
            return made
    return RscyllaError(message)
