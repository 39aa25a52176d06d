"""``Record``: what goes to a topic, before it becomes bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..types import Schema

__all__ = ["Header", "Record", "RowTopic", "told"]


class RowTopic(str):
    """The name of a topic that has a value of a row."""

    __slots__ = ()


def told(topic: str) -> str:
    """Return *topic* as errors tell it: without values of rows."""
    return "a topic that is named by a row" if isinstance(topic, RowTopic) else topic


class Header(NamedTuple):
    """A header of a record. ``value``: as Connect has it; see ``rscylla.types.connect``."""

    key: str
    schema: Schema
    value: Any


class Record(NamedTuple):
    """A record of Kafka Connect.

    ``key``, ``value``: a dict with all fields of its schema, in their order; None for none. Immutable by convention:
    records share schemas and parts of values. ``partition``: where the record goes; None leaves it to the producer.
    ``shared``: one list of a delete and its tombstone, which have one set of headers in Connect: what transforms add to
    those of the delete, the tombstone has, too. None for all other records, and for what a transform makes anew.
    """

    topic: str
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    shared: list[Header] | None = None

    def with_shared(self) -> Record:
        """Return the record with the headers that were added to those it shares; without a list of its own."""
        return self._replace(headers=(*self.headers, *self.shared), shared=None) if self.shared else self
