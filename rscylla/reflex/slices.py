"""Splits a consumer into slices that share the work: each reads some of the keys and has its own cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, Unpack

from .._tokens import MOST, Slice, slice_named
from ..abc import Consumer, CursorStore, StreamFunc
from ..errors import ConfigError
from ..options import StreamOption
from .spec import RunOptions, Spec

__all__ = ["Sliceable", "slice_name", "slice_of", "slice_specs"]


class Sliceable(Protocol):
    """A stream that can be read in slices, as ``rscylla.Stream`` can."""

    def sliced(self, index: int, count: int) -> StreamFunc:
        """Return the stream of slice *index*, from 0, of *count*. A key never changes its slice."""


def slice_name(consumer: str, index: int, count: int) -> str:
    """Return the name under which a slice of *consumer* keeps its cursor.

    >>> slice_name("billing", 0, 4), slice_name("billing", 0, 1)
    ('billing[0/4]', 'billing')
    """
    return Slice.of((index, count)).name(consumer)


def slice_of(name: str) -> tuple[str, int, int]:
    """Return the consumer, the slice, and the number of slices that *name* stands for if it is the name of a slice.

    For people who have but a name. A consumer may be named like a slice of another: where the consumer, the group, or
    the run is known, ask these, such as ``CursorRecord.slice_of``.

    >>> slice_of("billing[0/4]"), slice_of("billing")
    (('billing', 0, 4), ('billing', 0, 1))
    """
    part = slice_named(name, range(1, MOST + 1)) or Slice(0, 1)
    return part.whole(name) or name, part.index, part.count


def slice_specs(
    consumer: str,
    count: int,
    stream: Sliceable,
    store: CursorStore,
    make: Callable[[str], Consumer],
    *options: StreamOption,
    only: Iterable[int] | None = None,
    **more: Unpack[RunOptions],
) -> tuple[Spec, ...]:
    """Return the specs of a consumer in *count* slices, each for ``run_forever`` in its own process or thread.

    Together they read the table about once. All changes of a key are in one slice, in order, even when nodes or
    tablets come and go; there is no order between keys of different slices. To change *count* later, stop all
    slices and move their cursors with ``cursorstore.reslice_cursors`` or ``rscylla cursor reslice``.

    Args:
        make: returns the consumer of a slice; called with the name of the slice, such as ``billing[0/4]``.
        options: options of each stream.
        only: the slices to run here; default: all.
        more: ``fate``, ``clock``, ``flush_timeout``, ``from_whole``, and ``registry``, as for ``Spec``.

    Raises:
        ConfigError: *count* or a slice is invalid, or *make* returned a consumer with another name.
    """
    chosen = [Slice.of((index, count)) for index in (range(count) if only is None else only)]
    if not chosen:
        raise ConfigError(
            f'consumer "{consumer}": no slice to read; count must be at least 1, and only= must not be empty'
        )
    specs = []
    for key_slice in chosen:
        name = key_slice.name(consumer)
        made = make(name)
        # With another name, two slices could share a cursor, and each would skip the other's changes.
        if made.name != name:
            raise ConfigError(f'the consumer for "{name}" has the name "{made.name}"; create it with the given name')
        part = key_slice.index, count
        specs.append(Spec(stream.sliced(*part), store, made, *options, key_slice=part, **more))
    return tuple(specs)
