"""A value computed from a row, or from a group of rows, and how such values are made of one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from ...schema.tables import Column
from ...types import CqlType
from ..binding import Request
from ..rows import RowView, column_value

__all__ = ["Collector", "Combine", "Evaluate", "Expression", "aggregated", "applied", "column_expression"]

Evaluate = Callable[[RowView], bytes | None]
Combine = Callable[[Sequence[bytes | None]], bytes | None]


class Collector(Protocol):
    """Takes the rows of one group, then gives the value of the group."""

    def add(self, view: RowView) -> None: ...

    def result(self) -> bytes | None: ...


@attrs.frozen
class Expression:
    """``column`` is set when it is nothing but that column, ``grouped`` when an aggregate stands in it.

    ``grouped`` gives, for a request, the function that begins a group. ``counts``: it only counts rows,
    whatever is in them.
    """

    name: str
    type: CqlType
    for_request: Callable[[Request], Evaluate]
    column: Column | None = None
    grouped: Callable[[Request], Callable[[], Collector]] | None = None
    counts: bool = False

    def collectors(self, request: Request) -> Callable[[], Collector]:
        """Return the function that begins a group. A value without an aggregate is that of the group's first row."""
        if self.grouped is not None:
            return self.grouped(request)
        read = self.for_request(request)
        return lambda: _First(read)


class _First:
    __slots__ = ("_is_empty", "_read", "_value")

    def __init__(self, read: Evaluate) -> None:
        self._read = read
        self._value: bytes | None = None
        self._is_empty = True

    def add(self, view: RowView) -> None:
        if self._is_empty:
            self._value = self._read(view)
            self._is_empty = False

    def result(self) -> bytes | None:
        return self._value


class _All:
    __slots__ = ("_finish", "_read", "_values")

    def __init__(self, read: Evaluate, finish: Callable[[list[bytes | None]], bytes | None]) -> None:
        self._read = read
        self._finish = finish
        self._values: list[bytes | None] = []

    def add(self, view: RowView) -> None:
        self._values.append(self._read(view))

    def result(self) -> bytes | None:
        return self._finish(self._values)


class _Combined:
    __slots__ = ("_combine", "_parts")

    def __init__(self, parts: list[Collector], combine: Combine) -> None:
        self._parts = parts
        self._combine = combine

    def add(self, view: RowView) -> None:
        for part in self._parts:
            part.add(view)

    def result(self) -> bytes | None:
        return self._combine([part.result() for part in self._parts])


def column_expression(column: Column) -> Expression:
    read = column_value(column)
    return Expression(column.name, column.type, lambda request: read, column)


def aggregated(
    name: str, cql_type: CqlType, inner: Callable[[Request], Evaluate], finish: Callable[[list[Any]], bytes | None]
) -> Expression:
    """Return the aggregate of *inner* over the rows of a group."""

    def grouped(request: Request) -> Callable[[], Collector]:
        read = inner(request)
        return lambda: _All(read, finish)

    return Expression(name, cql_type, inner, grouped=grouped)


def applied(
    name: str, cql_type: CqlType, parts: Sequence[Expression], combine: Callable[[Request], Combine]
) -> Expression:
    """Return a function of the values of *parts*, which are those of a group if an aggregate is among them."""

    def for_request(request: Request) -> Evaluate:
        readers = [part.for_request(request) for part in parts]
        function = combine(request)
        return lambda view: function([read(view) for read in readers])

    def grouped(request: Request) -> Callable[[], Collector]:
        makers = [part.collectors(request) for part in parts]
        function = combine(request)
        return lambda: _Combined([make() for make in makers], function)

    is_grouped = any(part.grouped is not None for part in parts)
    return Expression(name, cql_type, for_request, grouped=grouped if is_grouped else None)
