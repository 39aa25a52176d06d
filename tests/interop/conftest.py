"""Builds the programs of go/ and rust/ that work through Scylla's own drivers and CDC libraries.

RSCYLLA_INTEROP says which: "go,rust" is the default, "go" leaves the slower Rust build out, "none" leaves out both.
Programs and what is built for them are kept in pytest's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

HERE = Path(__file__).parent
WANTED = os.environ.get("RSCYLLA_INTEROP", "go,rust").split(",")

FETCH_S = 180
BUILD_S = 900


@attrs.frozen
class Recipe:
    """How to make ``program`` of the directory *language* in a cache: get what it needs, then build it."""

    language: str
    tool: str
    fetch: tuple[str, ...]
    build: Callable[[Path], tuple[str, ...]]
    program: str
    settings: Callable[[Path], dict[str, str]]


def _go(*flags: str) -> Recipe:
    modules = tuple(flag for flag in flags if flag.startswith("-modfile"))
    return Recipe(
        "go",
        "go",
        ("go", "mod", "download", *modules),
        lambda cache: ("go", "build", "-mod=readonly", *flags, "-o", str(cache / "interop"), "."),
        "interop",
        # A toolchain that is too old is to say so, not to fetch a newer one.
        lambda _: {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"},
    )


RECIPES = {
    "go": _go(),
    "go-legacy": _go("-modfile=legacy.mod", "-tags=legacy"),
    "rust": Recipe(
        "rust",
        "cargo",
        ("cargo", "fetch", "--locked"),
        lambda _: ("cargo", "build", "--locked", "--quiet"),
        "debug/interop",
        lambda cache: {"CARGO_TARGET_DIR": str(cache)},
    ),
}


@pytest.fixture(scope="session")
def peer_program(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Return a function from the name of a recipe to its built program; it skips the test if there can be none."""
    outcomes: dict[str, Path | str] = {}

    def program(name: str) -> Path:
        if name not in outcomes:
            cache = request.config.cache
            assert cache is not None, "the interop tests need pytest's cache plugin"
            outcomes[name] = _built(RECIPES[name], Path(cache.mkdir(f"rscylla-interop-{name}")))
        outcome = outcomes[name]
        if isinstance(outcome, str):
            pytest.skip(outcome)
        return outcome

    return program


def _built(recipe: Recipe, cache: Path) -> Path | str:
    """Return the program, or why this machine cannot have it. A program that does not compile is a failure."""
    if recipe.language not in WANTED:
        return f"RSCYLLA_INTEROP leaves {recipe.language} out"
    if shutil.which(recipe.tool) is None:
        return f"{recipe.tool} is not installed"
    directory, environment = HERE / recipe.language, {**os.environ, **recipe.settings(cache)}
    try:
        fetched = _run(recipe.fetch, directory, environment, FETCH_S)
        if fetched.returncode:
            lines = fetched.stderr.splitlines() or ["no message"]
            return f"{' '.join(recipe.fetch)} failed: {next((line for line in lines if 'error' in line), lines[0])}"
        built = _run(recipe.build(cache), directory, environment, BUILD_S)
    except subprocess.TimeoutExpired as error:
        return f"{' '.join(error.cmd)} was not done in {error.timeout:.0f} s"
    if built.returncode:
        pytest.fail(f"tests/interop/{recipe.language} does not compile:\n{built.stderr}", pytrace=False)
    return cache / recipe.program


def _run(
    command: tuple[str, ...], directory: Path, environment: dict[str, str], timeout: int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
