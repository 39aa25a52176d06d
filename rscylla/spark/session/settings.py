"""Settings of a Spark session for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pyspark.errors import utils
from pyspark.sql import SparkSession

__all__ = ["planned_quickly", "unless_set", "with_setting", "without_call_sites"]


_lock = threading.Lock()
_in_use: dict[tuple[Any, str], tuple[int, str | None]] = {}
"""For each session and setting: the blocks that are in progress, and the value from before the first of them."""


@contextmanager
def with_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The session *spark* has the setting *name* in the block, and at its end what it had before.

    Blocks of several threads may overlap if they set the same value: what the session had before comes back with the
    end of the last one.
    """
    key = _session(spark), name
    with _lock:
        users, before = _in_use.get(key, (0, spark.conf.get(name, None)))
        _in_use[key] = users + 1, before
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with _lock:
            users, before = _in_use.pop(key)
            if users > 1:
                _in_use[key] = users - 1, before
            elif before is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before)


def unless_set(spark: SparkSession, name: str, value: str) -> AbstractContextManager[None]:
    """The session *spark* has the setting *name* in the block: *value*, unless the user has set another.

    In the block of another thread, or in one around this, the value stays until the end of both.
    """
    with _lock:
        present, in_a_block = spark.conf.get(name, None), (_session(spark), name) in _in_use
    if present is None:
        return with_setting(spark, name, value)
    return with_setting(spark, name, present) if in_a_block else nullcontext()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """PySpark does not note in the block where in Python each expression is made. A decorator, too.

    It takes ten more calls of Java for each expression, and half of the time of a plan; only errors of expressions show
    it, and those of this package have none. The setting ``spark.python.sql.dataFrameDebugging.enabled`` is read once in
    a process, into the variable that is set here, so meanwhile it holds for expressions of other threads, too. Without
    this variable, the block takes longer, and that is all.
    """
    notes = getattr(utils, _NOTES, False)
    if notes is None and SparkSession.getActiveSession() is not None:  # without a session, it would be False for ever
        notes = utils.is_debugging_enabled()
    if notes is not True:
        yield
        return
    setattr(utils, _NOTES, False)
    try:
        yield
    finally:
        setattr(utils, _NOTES, True)


_NOTES = "_enable_debugging_cache"


def _session(spark: SparkSession) -> Any:
    """Return what identifies the session: Python may have several objects for one."""
    of_jvm = getattr(spark, "_jsparkSession", None)
    return spark.session_id if of_jvm is None else of_jvm.sessionUUID()


def planned_quickly(spark: SparkSession) -> AbstractContextManager[None]:
    """Queries of *spark* in the block are planned without Spark's search for what columns say about each other.

    It takes time and memory by the square of the columns, finds nothing in a merge of cells, and a MERGE of Delta Lake
    into a table of fifty columns runs out of memory in it.
    """
    return with_setting(spark, "spark.sql.constraintPropagation.enabled", "false")
