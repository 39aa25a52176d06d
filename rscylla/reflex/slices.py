"""Splits a consumer into slices that share the work: each reads some of the keys and has its own cursor.

``first_cursor`` finds where a run of one starts, and whether its consumer has been read in other slices before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Protocol, Unpack, cast

from .._tokens import MOST, Slice, slice_named
from ..abc import Consumer, CursorAdmin, CursorRecord, CursorStore, StreamFunc, flush_cursor
from ..errors import ConfigError
from ..options import StreamOption
from .spec import RunOptions, Spec

__all__ = ["Sliceable", "first_cursor", "slice_name", "slice_of", "slice_specs", "take_along"]

_NEVER = datetime.min.replace(tzinfo=UTC)


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


def first_cursor(store: CursorStore, name: str, key_slice: tuple[int, int], *, from_whole: bool = False) -> str:
    """Return the saved cursor of *name*, "" if its consumer is new. Raises what ``take_along`` does."""
    take_along(store, name, key_slice, from_whole=from_whole)
    return store.get_cursor(name)


def take_along(store: CursorStore, name: str, key_slice: tuple[int, int], *, from_whole: bool) -> None:
    """Refuse to begin anew where the consumer of *name*, which reads *key_slice*, has cursors, but none for its slices.

    Otherwise, it would begin at the oldest event, or at the head, as if it had never run. With *from_whole*, a slice
    gets the cursor of the whole consumer.

    Raises:
        ConfigError: the consumer has cursors for another number of slices only.
        The errors of *store*.
    """
    part = Slice.of(key_slice)
    whole = part.whole(name)
    if whole is None:  # it is not named after its slice, so nothing tells what it was before
        return
    others = _others(store, name, whole, part.count)
    if not others:
        return
    last, count = max(others, key=lambda pair: pair[0].updated_at or _NEVER)
    if not (from_whole and count == 1):
        raise ConfigError(_refusal(store, name, whole, last, count, part.count))
    store.get_cursor(name)
    store.set_cursor(name, last.cursor)
    flush_cursor(store, name)


def _others(store: CursorStore, name: str, whole: str, count: int) -> list[tuple[CursorRecord, int]]:
    """Return the cursors of a consumer in other numbers of slices than *count*; none if *name* has one of its own."""
    if not all(callable(getattr(store, method, None)) for method in ("find_cursor", "list_cursors")):
        return []
    admin = cast("CursorAdmin", store)
    try:
        # Before the cursor is read for work, which lets a fenced store write a row.
        if admin.find_cursor(name) is not None:
            return []
        found = ((record, record.slice_of(whole)) for record in admin.list_cursors() if record.cursor)
        return [(record, part[1]) for record, part in found if part is not None and part[1] != count]
    except ConfigError:  # a wrapper around a store that cannot list cursors
        return []


def _refusal(store: CursorStore, name: str, whole: str, last: CursorRecord, count: int, now: int) -> str:
    option = ""
    if getattr(store, "slices_stay", False):
        do = f"go on with {count}, the number that the cursors of this store keep"
    else:
        option = " To take it along without the command, pass from_whole=True." if count == 1 and now > 1 else ""
        command = f"rscylla cursor reslice {whole} --from {count} --to {now}"
        do = f"move the cursors with `{command}` while none of its processes runs"
    return (
        f"{last.consumer!r} has a cursor, and {name!r} has none, so the consumer would not go on where it was; {do}, "
        f"or set that of {name!r} with `rscylla cursor reset` to begin anew.{option}"
    )
