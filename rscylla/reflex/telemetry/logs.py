"""Adds the consumer, event, and source of a lane to log records, and formats records as JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from ..._visible import made, message_of, shown, visible
from ...abc import Run

__all__ = ["JsonFormatter", "LaneFilter", "log_context", "whole_of"]

# Any code that the consumer calls may log, so only a context variable can connect a record to its run. A consumer
# receives its run as an argument.
_run: ContextVar[Run | None] = ContextVar("rscylla_run", default=None)


@contextmanager
def log_context(run: Run) -> Iterator[None]:
    """Attach the consumer, event, and source of *run* to records that are logged in this context."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def whole_of(consumer: str) -> str:
    """Return the name of *consumer* without its slice, for a function that is called in its run, but without it."""
    run = _run.get()
    return run.whole if run is not None and run.consumer == consumer else consumer


FIELDS = ("consumer", "event_id", "source")

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"asctime", "message", "taskName", *FIELDS}


class LaneFilter(logging.Filter):
    """Adds ``consumer``, ``event_id``, and ``source`` (the table) to each record, "" outside a lane; drops no record.

    Put it on a handler, so that it sees the records of all loggers, including your own and those of libraries::

        handler = logging.StreamHandler()
        handler.addFilter(rscylla.reflex.LaneFilter())
        handler.setFormatter(logging.Formatter("%(levelname)s %(consumer)s %(event_id)s %(message)s"))

    A record that already has one of the fields, from ``extra=``, keeps it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        run = _run.get()
        event = None if run is None else run.event
        known = record.__dict__
        known.setdefault("consumer", "" if run is None else run.consumer)
        known.setdefault("event_id", "" if event is None else made(lambda: event.id, event))
        known.setdefault("source", "" if run is None else run.source)
        return True


class JsonFormatter(logging.Formatter):
    """Formats each record as one line with a JSON object.

    Members: ``time`` (RFC 3339, UTC, microseconds), ``level``, ``logger``, ``message``; in a lane ``consumer``,
    ``event_id``, and ``source``; the fields of ``extra=``; ``error`` and ``traceback`` if there is an exception;
    ``stack`` of ``stack_info=``. Values that JSON cannot represent become text. No record is lost: if its arguments do
    not fit its message, the line has the message as it is, its ``args``, and why in ``unformatted``. If handlers run in
    a separate thread, like those of a ``QueueListener``, put a ``LaneFilter`` on the ``QueueHandler``: only the thread
    that logs knows its lane.

    Args:
        tracebacks: whether to include tracebacks. Their text may contain row values.
    """

    def __init__(self, *, tracebacks: bool = True) -> None:
        super().__init__()
        self._tracebacks = tracebacks
        self._lane = LaneFilter()

    def format(self, record: logging.LogRecord) -> str:
        self._lane.filter(record)
        message, args, why = message_of(record)
        line: dict[str, Any] = {
            "time": made(lambda: _time_of(record.created), record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if args is not None:
            line |= {"args": args, "unformatted": why}
        line |= {name: value for name in FIELDS if not isinstance(value := getattr(record, name), str) or value}
        line |= {name: value for name, value in record.__dict__.items() if name not in _OWN}
        info = record.exc_info
        if info and info[0] is not None:
            line["error"] = info[0].__qualname__
            if self._tracebacks:
                line["traceback"] = made(lambda: self.formatException(info), info[1])
        if record.stack_info and self._tracebacks:
            line["stack"] = record.stack_info
        members = ", ".join([f"{json.dumps(str(name))}: {_json_of(value)}" for name, value in line.items()])
        return visible(f"{{{members}}}")  # halves of surrogates are no text of a file, and terminals obey controls


def _time_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _json_of(value: Any) -> str:
    """Return *value* as JSON: of what JSON has no form for, its text."""
    try:
        return json.dumps(value, default=shown, ensure_ascii=False, allow_nan=False)
    except Exception:  # noqa: BLE001 - a key that is not a string, infinity, a value in itself, or code of its class
        return json.dumps(shown(value), ensure_ascii=False)
