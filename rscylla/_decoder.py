"""Chooses between what is compiled and its twins in Python, which give the same results; nothing else asks.

The compiled decoder is built when rscylla is installed and a C compiler is there. ``RSCYLLA_PURE=1`` in the environment
chooses the twin. A compiled module that was built from other sources than those beside it is not used: a build that
failed leaves the one of the build before.
"""

from __future__ import annotations

import importlib
import os
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

__all__ = ["SOURCES", "compiled", "decoder", "sum_of_sources", "twin", "why_pure"]

T = TypeVar("T")

_IS_PURE = os.environ.get("RSCYLLA_PURE", "") not in ("", "0")
_HERE = Path(__file__).resolve().parent
_SHARED = ("types/compiled.pxd", "types/wire.pxd")

SOURCES = {
    "types": ("types/compiled.pyx", *_SHARED),
    "cdc.rows": ("cdc/rows/compiled.pyx", *_SHARED),
    "debezium": ("debezium/compiled.pyx", *_SHARED),
}
"""Of the compiled module of each room; each room uses those before it. setup.py reads it."""


def sum_of_sources(room: str) -> int:
    """Return a checksum of what the compiled module of a room is built from, as setup.py puts it in; 0 without it."""
    found = 0
    try:
        for name in SOURCES[room]:
            found = zlib.crc32((_HERE / name).read_bytes(), found)
    except OSError:
        return 0
    return found


def compiled(room: str) -> ModuleType | None:
    """Return the compiled module of a room, such as "cdc.rows"; None if its twin in Python is to be used.

    Warns once if the module is there and cannot be used.
    """
    if _IS_PURE:
        return None
    module, why = _found(room)
    if why and room not in _told:
        _told.add(room)
        warnings.warn(f"rscylla decodes in Python, which takes longer: {why}", RuntimeWarning, stacklevel=2)
    return module


def twin(name: str, pure: T) -> T:
    """Return the compiled twin of *pure* by its name, such as "cdc.rows.LogRows"; *pure* if nothing compiled runs."""
    room, _, what = name.rpartition(".")
    module = compiled(room)
    return pure if module is None else cast("T", getattr(module, what))


_told: set[str] = set()


def _found(room: str) -> tuple[ModuleType | None, str]:
    """Return the compiled module of a room, or why it is there and cannot be used; neither if it is not there."""
    if find_spec(f"rscylla.{room}.compiled") is None:
        return None, ""
    for needed in SOURCES:
        try:
            module = importlib.import_module(f"rscylla.{needed}.compiled")
        except Exception as e:  # noqa: BLE001 - one that fits no other module of today may raise anything
            return None, f"the compiled decoder cannot be imported: {e}"
        wanted = sum_of_sources(needed)
        if wanted and getattr(module, "SUM_OF_SOURCES", 0) != wanted:
            return None, (
                f"{module.__file__} was built from other sources than those beside it; install rscylla again, or run "
                "python setup.py build_ext --inplace --force, and look for its errors"
            )
        if needed == room:
            return module, ""
    raise KeyError(room)


def decoder() -> str:
    """Return which decoder runs: "compiled" or "pure"."""
    return "pure" if why_pure() else "compiled"


def why_pure() -> str:
    """Return why the compiled decoder does not run; empty if it does."""
    if _IS_PURE:
        return "RSCYLLA_PURE is set"
    module, why = _found("cdc.rows")
    return "" if module is not None else why or "rscylla was installed without a C compiler"
