"""Chooses the decoder of log pages: the compiled one, or its twin in Python, which gives the same results.

The compiled decoder is built when rscylla is installed and a C compiler is there. ``RSCYLLA_PURE=1`` in the environment
chooses the twin.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

__all__ = ["compiled", "decoder", "why_pure"]

_IS_PURE = os.environ.get("RSCYLLA_PURE", "") not in ("", "0")


def compiled(room: str) -> ModuleType | None:
    """Return the compiled module of a room, such as "cdc"; None if its twin in Python is to be used."""
    if _IS_PURE:
        return None
    try:
        return importlib.import_module(f"rscylla.{room}.compiled")
    except ImportError:
        return None


def decoder() -> str:
    """Return which decoder runs: "compiled" or "pure"."""
    return "pure" if why_pure() else "compiled"


def why_pure() -> str:
    """Return why the compiled decoder does not run; empty if it does."""
    if _IS_PURE:
        return "RSCYLLA_PURE is set"
    name = "rscylla.cdc.compiled"
    try:
        importlib.import_module(name)
    except ImportError as e:
        if isinstance(e, ModuleNotFoundError) and e.name == name:
            return "rscylla was installed without a C compiler"
        return f"the compiled decoder cannot be imported: {e}"
    return ""
