"""Builds the programs of go/ and rust/ that work through Scylla's own drivers and CDC libraries.

RSCYLLA_INTEROP says which: "go,rust" is the default, "go" leaves the slower Rust build out, "none" leaves out both.
Programs and what is built for them are kept in pytest's cache directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from peers.programs import DoesNotCompile, NoProgram, built, go, rust

HERE = Path(__file__).parent
WANTED = os.environ.get("RSCYLLA_INTEROP", "go,rust").split(",")

RECIPES = {
    "go": ("go", go("interop")),
    "go-legacy": ("go", go("interop", "-modfile=legacy.mod", "-tags=legacy")),
    "rust": ("rust", rust("interop")),
}
"""The directory of a program, and how to build it."""


@pytest.fixture(scope="session")
def peer_program(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Return a function from the name of a recipe to its built program; it skips the test if there can be none."""
    outcomes: dict[str, Path | str] = {}

    def program(name: str) -> Path:
        if name not in outcomes:
            cache = request.config.cache
            assert cache is not None, "the interop tests need pytest's cache plugin"
            outcomes[name] = _built(name, Path(cache.mkdir(f"rscylla-interop-{name}")))
        outcome = outcomes[name]
        if isinstance(outcome, str):
            pytest.skip(outcome)
        return outcome

    return program


def _built(name: str, cache: Path) -> Path | str:
    """Return the program, or why this machine cannot have it. A program that does not compile is a failure."""
    language, recipe = RECIPES[name]
    if language not in WANTED:
        return f"RSCYLLA_INTEROP leaves {language} out"
    try:
        return built(recipe, HERE / language, cache)
    except NoProgram as none:
        return str(none)
    except DoesNotCompile as error:
        pytest.fail(str(error), pytrace=False)
