"""Formats events, tables, and values: as text, or as one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import rscylla

from .standard import visible, write

__all__ = ["EventFormat", "json_line", "line_of", "listing", "moment", "show", "table"]

EventFormat = Literal["event", "change", "row"]


def json_line(value: Mapping[str, Any]) -> str:
    """Return one line of JSON; CQL values are converted by ``rscylla.to_json``."""
    return rscylla.to_json(value)


def moment(time: datetime | None) -> str:
    """Return *time* as RFC 3339 text in UTC, cut to milliseconds; a dash for none."""
    return "-" if time is None else time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write columns of text with aligned widths."""
    lines = [[visible(cell) for cell in line] for line in (head, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show(found: Mapping[str, Any], text: str, *, as_json: bool, lines: bool = False) -> None:
    """Write one result, as JSON or as text, which may have *lines*."""
    write(json_line(found) if as_json else text, lines=lines and not as_json)


def listing(
    found: Iterable[Mapping[str, Any]], head: Sequence[str], rows: Iterable[Sequence[str]], *, as_json: bool
) -> None:
    """Write several results, each as JSON, or as a table; reads one of *found* and *rows*."""
    if as_json:
        for one in found:
            write(json_line(one))
    else:
        table(head, rows)


# ---------------------------------------------------------------- events


def line_of(event: rscylla.ChangeEvent, kind: EventFormat, *, as_json: bool) -> str:
    """Return the line of *event* in the format *kind*."""
    if kind == "row":
        return json_line(event.row) if as_json else _fields(event.row)
    if kind == "change":
        return event.metadata.decode() if as_json else _change(event)
    return _event_json(event) if as_json else _event(event)


def _event_json(event: rscylla.ChangeEvent) -> str:
    """Return an event as a reflex consumer sees it, with the change as an object."""
    return (
        f'{{"id":{json.dumps(event.id)},"type":{int(event.type)},"operation":"{event.operation.name}",'
        f'"foreign_id":{json.dumps(event.foreign_id, ensure_ascii=False)},'
        f'"timestamp":{rscylla.to_json(event.timestamp)},"metadata":{event.metadata.decode()}}}'
    )


def _event(event: rscylla.ChangeEvent) -> str:
    return f"{_time(event)}  {event.operation.name}  {event.foreign_id}  {_brief(event)}".rstrip()


def _brief(event: rscylla.ChangeEvent) -> str:
    """Return the content of the change besides its key: the written values, or the deleted range."""
    change = event.change.as_dict()
    for part in ("after", "range"):
        if change.get(part) is not None:
            return rscylla.to_json(change[part])
    return ""


_NOT_SHOWN = ("operation", "changed", "timestamp", "batch")
"""Parts of a change that a line of text omits, or shows elsewhere."""


def _change(event: rscylla.ChangeEvent) -> str:
    change = event.change.as_dict()
    shown = {name: change[name] for name in change if name not in _NOT_SHOWN and change[name]}
    return f"{_time(event)}  {event.operation.name}  {_fields(shown)}"


def _fields(values: Mapping[str, Any]) -> str:
    """Return ``name=value`` pairs; values as JSON, which also keeps control characters off the terminal."""
    return " ".join(f"{name}={rscylla.to_json(value)}" for name, value in values.items())


def _time(event: rscylla.ChangeEvent) -> str:
    return str(json.loads(rscylla.to_json(event.timestamp)))
