"""Loads custom objects that an option names as ``MODULE:NAME``: handlers of events, and cursor stores."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Protocol

import attrs
from typer import Option

import rscylla
from cursorstore import DEFAULT_TABLE, ScyllaCursorStore
from rscylla.abc import CursorAdmin, CursorStore

from .options import CursorTableName

__all__ = ["OperableStore", "Store", "StoreFactory", "load", "load_store"]


class OperableStore(CursorStore, CursorAdmin, Protocol):
    """A cursor store that operators can use."""


StoreFactory = Annotated[
    str | None,
    Option(
        metavar="MODULE:FUNCTION",
        help="Use the custom cursor store that this function returns, instead of --store.",
    ),
]


@attrs.frozen
class Store:
    """The options that say where a command that follows changes keeps its cursor."""

    store: Annotated[str | None, Option(metavar="KEYSPACE", help="Keyspace of the cursor table, as stored.")] = None
    store_factory: StoreFactory = None
    store_table: CursorTableName = DEFAULT_TABLE

    def __attrs_post_init__(self) -> None:
        if self.store is not None and self.store_factory is not None:
            raise rscylla.ConfigError(
                "--store KEYSPACE and --store-factory MODULE:FUNCTION exclude each other; give one"
            )

    @property
    def is_given(self) -> bool:
        return self.store is not None or self.store_factory is not None

    def opened(self, session: rscylla.Session, keyspace: str, *, create: bool) -> OperableStore:
        """Return the store; its table is in *keyspace* unless an option says otherwise."""
        if self.store_factory is not None:
            return load_store(self.store_factory)
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


def load_store(name: str) -> OperableStore:
    """Return the cursor store that the function ``module:function`` returns.

    Raises:
        ConfigError: there is no such function, or it returns an object that is not an ``OperableStore``.
    """
    factory = load(name, option="--store-factory", example="billing.stores:open_store")
    if not callable(factory):
        raise rscylla.ConfigError(
            f"--store-factory {name} is not a function; name a function that returns a cursor store"
        )
    store = factory()
    # Checked here, so that the command does not fail halfway.
    lacking = [
        method
        for protocol in (CursorStore, CursorAdmin)
        for method in vars(protocol)
        if not method.startswith("_") and not callable(getattr(store, method, None))
    ]
    if lacking:
        raise rscylla.ConfigError(
            f"--store-factory {name}: the returned object of type {type(store).__name__} lacks these methods of "
            f"rscylla.abc.CursorStore and CursorAdmin: {', '.join(lacking)}"
        )
    made: OperableStore = store
    return made
