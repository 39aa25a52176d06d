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
class Toolchain:
    """How to build the program in the directory *name*: get what it needs, then make ``program`` of it in a cache."""

    name: str
    tool: str
    fetch: tuple[str, ...]
    build: Callable[[Path], tuple[str, ...]]
    program: str
    settings: Callable[[Path], dict[str, str]]


TOOLCHAINS = {
    "go": Toolchain(
        "go",
        "go",
        ("go", "mod", "download"),
        lambda cache: ("go", "build", "-mod=readonly", "-o", str(cache / "interop"), "."),
        "interop",
        # A toolchain that is too old is to say so, not to fetch a newer one.
        lambda _: {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"},
    ),
    "rust": Toolchain(
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
    """Return a function from the name of a language to its built program; it skips the test if there can be none."""
    outcomes: dict[str, Path | str] = {}

    def program(language: str) -> Path:
        if language not in outcomes:
            cache = request.config.cache
            assert cache is not None, "the interop tests need pytest's cache plugin"
            outcomes[language] = _built(TOOLCHAINS[language], Path(cache.mkdir(f"rscylla-interop-{language}")))
        outcome = outcomes[language]
        if isinstance(outcome, str):
            pytest.skip(outcome)
        return outcome

    return program


def _built(toolchain: Toolchain, cache: Path) -> Path | str:
    """Return the program, or why this machine cannot have it. A program that does not compile is a failure."""
    if toolchain.name not in WANTED:
        return f"RSCYLLA_INTEROP leaves {toolchain.name} out"
    if shutil.which(toolchain.tool) is None:
        return f"{toolchain.tool} is not installed"
    directory, environment = HERE / toolchain.name, {**os.environ, **toolchain.settings(cache)}
    try:
        fetched = _run(toolchain.fetch, directory, environment, FETCH_S)
    except subprocess.TimeoutExpired:
        return f"{' '.join(toolchain.fetch)} got nowhere in {FETCH_S} s"
    if fetched.returncode:
        return f"{' '.join(toolchain.fetch)} failed: {(fetched.stderr.strip() or 'no message').splitlines()[-1]}"
    built = _run(toolchain.build(cache), directory, environment, BUILD_S)
    if built.returncode:
        pytest.fail(f"tests/interop/{toolchain.name} does not compile:\n{built.stderr}", pytrace=False)
    return cache / toolchain.program


def _run(
    command: tuple[str, ...], directory: Path, environment: dict[str, str], timeout: int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
