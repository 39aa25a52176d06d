"""Cursors as records of a topic: what a record says, and how it is read."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from cursorstore import process_name

from ...abc import CursorRecord, Message

__all__ = ["last_of", "message_of", "record_of"]

log = logging.getLogger("rscylla.kafka")


def message_of(record: CursorRecord, at: datetime, topic: str, partition: int) -> Message:
    """Return the record of a cursor that this process writes *at* a time."""
    key = {"consumer": record.consumer, "epoch": record.epoch}
    value = {"cursor": record.cursor, "at": at.isoformat(), "by": process_name()}
    if record.reason:
        value["reason"] = record.reason
    return Message(topic, _json(key), _json(value), partition=partition)


def record_of(key: bytes | None, value: bytes | None) -> CursorRecord | None:
    """Return the cursor of a record; None if it is none of ours."""
    try:
        named, given = json.loads(key or b""), json.loads(value or b"")
        at = datetime.fromisoformat(given["at"])
        return CursorRecord(named["consumer"], given["cursor"], named["epoch"], at, given.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        log.warning("a record of the topic of cursors is not a cursor; it is passed over")
        return None


def last_of(records: Iterable[CursorRecord], names: Collection[str]) -> dict[str, tuple[int, str]]:
    """Return the last epoch and cursor of each consumer of *names* that has one."""
    ordered = sorted(records, key=lambda record: record.epoch)
    return {record.consumer: (record.epoch, record.cursor) for record in ordered if record.consumer in names}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
