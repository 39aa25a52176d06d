"""Builds programs in other languages from their registries. The tests in tests/interop build theirs so, too."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import attrs

FETCH_S = 180
BUILD_S = 900


class NoProgram(Exception):
    """There can be no program on this machine; the message says why."""


class DoesNotCompile(Exception):
    """The program has an error; the message is what the compiler said."""


@attrs.frozen
class Recipe:
    """How to make ``program`` of a directory in a cache: get what it needs, then build it."""

    tool: str
    fetch: tuple[str, ...]
    build: Callable[[Path], tuple[str, ...]]
    program: str
    settings: Callable[[Path], dict[str, str]]


def go(program: str, *flags: str) -> Recipe:
    modules = tuple(flag for flag in flags if flag.startswith("-modfile"))
    return Recipe(
        "go",
        ("go", "mod", "download", *modules),
        lambda cache: ("go", "build", "-mod=readonly", *flags, "-o", str(cache / program), "."),
        program,
        # A toolchain that is too old is to say so, not to fetch a newer one.
        lambda _: {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"},
    )


def rust(program: str, *, release: bool = False) -> Recipe:
    flags = ("--release",) if release else ()
    return Recipe(
        "cargo",
        ("cargo", "fetch", "--locked"),
        lambda _: ("cargo", "build", "--locked", "--quiet", *flags),
        f"{'release' if release else 'debug'}/{program}",
        lambda cache: {"CARGO_TARGET_DIR": str(cache)},
    )


COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def java() -> Recipe:
    """Return a recipe whose program is the directory of the jars that it needs; see ``class_path``."""
    return Recipe(
        "mvn",
        ("mvn", "-B", "-version"),  # to fetch and to compile is one step
        lambda cache: (
            *("mvn", "-B", "-q", f"-Dbuild={cache}", "compile", COPY_DEPENDENCIES),
            f"-DoutputDirectory={cache / 'jars'}",
        ),
        "jars",
        lambda _: {},
    )


def class_path(jars: Path, module: str) -> str:
    """Return where Java finds the classes of a *module* of the program, and those that it needs."""
    return f"{jars}/*{os.pathsep}{jars.parent / module / 'classes'}"


def built(recipe: Recipe, directory: Path, cache: Path) -> Path:
    """Return the program of *directory*; what was built before is kept in *cache*.

    Raises:
        NoProgram: the tool is not installed, or cannot fetch what the program needs.
        DoesNotCompile: the program is wrong.
    """
    if shutil.which(recipe.tool) is None:
        raise NoProgram(f"{recipe.tool} is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **recipe.settings(cache)}
    try:
        fetched = _run(recipe.fetch, directory, environment, FETCH_S)
        if fetched.returncode:
            lines = fetched.stderr.splitlines() or ["no message"]
            told = next((line for line in lines if "error" in line), lines[0])
            raise NoProgram(f"{' '.join(recipe.fetch)} failed: {told}")
        made = _run(recipe.build(cache), directory, environment, BUILD_S)
    except subprocess.TimeoutExpired as error:
        raise NoProgram(f"{' '.join(error.cmd)} was not done in {error.timeout:.0f} s") from error
    if made.returncode:
        raise DoesNotCompile(f"{directory} does not compile:\n{made.stdout}{made.stderr}")
    return cache / recipe.program


def _run(
    command: tuple[str, ...], directory: Path, environment: dict[str, str], timeout: int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
