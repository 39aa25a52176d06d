"""What every CQL type can do."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest

__all__ = ["CqlType", "bad_value", "marshal_error"]


class CqlType:
    """A CQL type: its name, its place in the protocol, and its values.

    Immutable, hashable and safe to share between threads. An encoded value is the content of a protocol [bytes], never
    null. ``encode`` takes natural Python values and raises InvalidRequest for others; ``decode`` gives them back:

    - timestamp: int milliseconds since the epoch; date: int days since the epoch; time: int nanoseconds since midnight
      (these ranges exceed Python's own classes; ``encode`` takes ``datetime``, ``date`` and ``time`` too, naive = UTC);
    - inet: ``ipaddress`` objects (``encode`` takes str too); duration: :class:`~.natives.Duration`;
    - list and vector: list; tuple: tuple; UDT: dict; set: frozenset and map: dict, or a list of elements or pairs when
      the element type holds a list, map, UDT or vector (Python cannot hash those).

    An empty content, which CQL allows for every native type, decodes to None except for text, ascii and blob.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """CQL text of the type, as ``system_schema`` shows it."""
        raise NotImplementedError

    @property
    def wire(self) -> bytes:
        """The [option] of the native protocol v4."""
        raise NotImplementedError

    @property
    def marshal_name(self) -> str:
        """The class name that Cassandra's storage uses, which stands in custom types and old schema tables."""
        raise NotImplementedError

    @property
    def is_frozen(self) -> bool:
        """True when a value is written and read as one cell."""
        return True

    @property
    def is_multicell(self) -> bool:
        """True for a collection or UDT whose elements are cells of their own."""
        return not self.is_frozen

    @property
    def fixed_size(self) -> int | None:
        """Bytes of every value inside a vector, None if values there carry their length."""
        return None

    @property
    def is_hashable(self) -> bool:
        """Whether decoded values can be dict keys."""
        return True

    def freeze(self) -> CqlType:
        """Return the type with one cell a value, inner types included."""
        return self

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        raise NotImplementedError

    def sort_key(self, data: bytes) -> Any:
        """Return a key that Python orders as CQL orders values of this type (ascending)."""
        raise NotImplementedError

    def validate(self, data: bytes) -> None:
        """Raise InvalidRequest if *data* is not a value of this type."""
        self.normalize(data)

    def normalize(self, data: bytes) -> bytes:
        """Return *data* validated, in the form that is stored: sets and maps in element order without repeats."""
        raise NotImplementedError

    def references(self, keyspace: str, type_name: str) -> bool:
        """Whether the UDT ``keyspace.type_name`` occurs in this type."""
        return False

    def __str__(self) -> str:
        return self.name


def marshal_error(reason: str) -> InvalidRequest:
    """Return the error for bytes that are no value of their type, in the words of Scylla's ``types/types.cc``."""
    return InvalidRequest(f"marshaling error: {reason}")


def bad_value(cql_type: CqlType, reason: str) -> InvalidRequest:
    """Return the error for bytes or a value that is not of *cql_type*; the text carries no value."""
    return marshal_error(f"Validation failed for type {cql_type.name}: {reason}")
