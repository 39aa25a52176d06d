"""What differs between two values of JSON: a list of changes, each a path and the value there, or a path alone.

A path alone is of a member that is not there. Members of objects, and elements of arrays of the same length, are
compared one by one; anything else is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Change", "changes", "patched"]

Change = list[Any]
"""``[path, value]``, or ``[path]``."""


def changes(before: Any, after: Any, path: tuple[str | int, ...] = ()) -> Iterator[Change]:
    """Yield what makes *after* of *before*."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - after.keys():
            yield [[*path, key]]
        for key, value in after.items():
            if key in before:
                yield from changes(before[key], value, (*path, key))
            else:
                yield [[*path, key], value]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, pair in enumerate(zip(before, after, strict=True)):
            yield from changes(*pair, (*path, n))
    elif type(before) is not type(after) or before != after:
        yield [list(path), after]


def patched(value: Any, by: Iterable[Change]) -> Any:
    """Return *value*, which may be changed, with the changes *by*."""
    root = [value]
    for path, *new in by:
        holder: Any = root
        steps = [0, *path]
        for step in steps[:-1]:
            holder = holder[step]
        if new:
            holder[steps[-1]] = new[0]
        else:
            del holder[steps[-1]]
    return root[0]
