"""Objects of the user's own that an option names as ``MODULE:NAME``: handlers of events, cursor stores."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

import rscylla
from rscylla.abc import CursorAdmin, CursorStore

__all__ = ["OperableStore", "StoreFactory", "load", "load_store"]


class OperableStore(CursorStore, CursorAdmin, Protocol):
    """A cursor store that operators can use."""


StoreFactory = Annotated[
    str | None,
    typer.Option(
        "--store-factory",
        metavar="MODULE:FUNCTION",
        help="Instead of --store: called without arguments, returns the cursor store, one of your own.",
    ),
]


def load(name: str, *, option: str, example: str) -> Any:
    """Return what ``module:name`` names; the working directory is searched too.

    Raises:
        ConfigError: there is no such thing.
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
        raise rscylla.ConfigError(f"{option} {name}: {error}; is it run in the right directory?") from error
    return found


def load_store(name: str) -> OperableStore:
    """Return the cursor store that the function ``module:function`` makes.

    Raises:
        ConfigError: there is no such function, or what it returns is no cursor store that operators can use.
    """
    factory = load(name, option="--store-factory", example="billing.stores:open_store")
    if not callable(factory):
        raise rscylla.ConfigError(f"--store-factory {name}: it is not a function")
    store = factory()
    lacking = [
        method
        for protocol in (CursorStore, CursorAdmin)
        for method in vars(protocol)
        if not method.startswith("_") and not callable(getattr(store, method, None))
    ]
    if lacking:
        raise rscylla.ConfigError(
            f"--store-factory {name}: it returns a {type(store).__name__}, which is no cursor store of rscylla.abc: it "
            f"has no {', '.join(lacking)}"
        )
    made: OperableStore = store
    return made
