"""``Record``: what goes to a topic, before it becomes bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..types.connect import Schema

__all__ = ["Header", "Record"]


class Header(NamedTuple):
    """A header of a record. ``value``: as Connect has it; see ``rscylla.types.connect``."""

    key: str
    schema: Schema
    value: Any


class Record(NamedTuple):
    """A record of Kafka Connect.

    ``key``, ``value``: a dict with all fields of its schema, in their order; None for none. Immutable by convention:
    records share schemas and parts of values. ``partition``: where the record goes; None leaves it to the producer.
    """

    topic: str
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    headers: tuple[Header, ...] = ()
    partition: int | None = None
