"""Where a command keeps its cursor, and objects that an option names as ``MODULE:NAME``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import attrs
from typer import Option

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore

from .options import CursorTableName

__all__ = ["Store", "load"]


@attrs.frozen
class Store:
    """The options that say where a command that follows changes keeps its cursor."""

    store: Annotated[str | None, Option(metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")] = None
    store_table: CursorTableName = DEFAULT_TABLE

    def opened(self, session: rscylla.Session, keyspace: str, *, create: bool) -> ScyllaCursorStore:
        """Return the store; its table is in *keyspace* unless an option says otherwise."""
        return ScyllaCursorStore(session, self.store or keyspace, self.store_table, create=create)


def load(name: str, *, option: str, example: str) -> Any:
    """Return the object that ``module:name`` names. The working directory is searched, too.

    Raises:
        ConfigError: there is no such object.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise rscylla.ConfigError(f"{option} {name}: write it as MODULE:FUNCTION, such as {example}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as python -m does
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise rscylla.ConfigError(f"{option} {name}: {error}; check the name and the working directory") from error
    return found
