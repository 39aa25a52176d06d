"""The README and the pages under docs/ say what is true: their Python runs, and prints what they show."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cursorstore
import rscylla

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:(?:(?!^```)[^\n]*\n){0,3}?^```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks() -> list[tuple[str, str, str | None]]:
    return [
        (f"{page.name}-{i}", code, shown)
        for page in PAGES
        for i, (code, shown) in enumerate(BLOCK.findall(page.read_text()), 1)
    ]


FORMAT = re.compile(r'with_format\(.*?"(\w+)"')
NEEDS_ARROW = re.compile(r"windows_as_arrow|import (?:duckdb|polars)")


def marks_of(code: str) -> list[pytest.MarkDecorator]:
    """Return the marks of an example by what it needs: a library, or a format of tables."""
    if table_format := FORMAT.search(code):
        return [getattr(pytest.mark, table_format[1])]
    spark = [pytest.mark.spark] if "pyspark" in code else []
    return [*spark, pytest.mark.arrow] if NEEDS_ARROW.search(code) else spark


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("code", "shown"), [pytest.param(*b[1:], id=b[0], marks=marks_of(b[1])) for b in blocks()])
def test_python_of_the_docs_runs_and_prints_what_they_show(code: str, shown: str, tmp_path: Path) -> None:
    for library in ("duckdb", "polars"):
        if f"import {library}" in code:
            pytest.importorskip(library, reason="an extra that is not installed here")
    if "windows_as_arrow" in code:
        pytest.importorskip("pyarrow", reason="pip install 'rscylla[arrow]'")
    if "pyspark" in code:
        pytest.importorskip("pyspark", reason="pip install 'rscylla[spark]'")
    if table_format := FORMAT.search(code):
        # Spark says on the same stream which jars it fetches.
        assert run_with_format(code, table_format[1], tmp_path).endswith(shown)
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs", "exec"), {"__name__": "__docs__"})
    if shown:
        assert printed.getvalue() == shown


def run_with_format(code: str, name: str, directory: Path) -> str:
    """Return what *code* prints in a process of its own: the session of this one lacks the jars of the format."""
    from spark_formats import FORMAT_CONFIG, one_at_a_time, runs_here

    from rscylla.spark.session.formats import FORMATS, pyspark_version

    if not runs_here(name):
        pytest.skip(FORMATS[name].unsupported(pyspark_version()))
    settings = "".join(f"{key} {value}\n" for key, value in FORMAT_CONFIG.items())
    (directory / "spark-defaults.conf").write_text(settings)
    environment = os.environ | {"SPARK_CONF_DIR": str(directory)}
    with one_at_a_time():
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_readme_has_an_example_that_shows_its_output() -> None:
    assert [b for b in blocks() if b[0].startswith("README") and b[2]]


def test_what_users_copy_makes_keyspaces_that_every_release_takes() -> None:
    """ScyllaDB refuses ``SimpleStrategy`` from 2026.2 on, which one page shows."""
    places = ("docs", "examples", "benchmarks", "rscylla/cli", "rscylla/testing")
    files = [ROOT / "README.md", *(file for place in places for file in (ROOT / place).rglob("*.*"))]
    texts = [file for file in files if file.suffix in (".md", ".py", ".sh", ".cql", ".go", ".rs", ".java", ".ipynb")]
    found = {str(file.relative_to(ROOT)) for file in texts if "SimpleStrategy" in file.read_text(encoding="utf-8")}
    assert found == {"docs/embedded.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


HEAVY = {
    "rscylla.types.arrow": ("numpy", "pyarrow"),
    "rscylla.types.json_arrow": ("numpy", "pyarrow"),
    "rscylla.cdc.arrow": ("numpy", "pyarrow"),
    "rscylla.spark": ("numpy", "pyarrow", "pyspark"),
    "rscylla.eventsourcing": ("cattrs", "cryptography"),
}
"""Modules, and packages of them, that need what only an extra brings."""


def modules() -> list[str]:
    return [
        m.name
        for package in (rscylla, cursorstore)
        for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        if not m.name.endswith("__main__")
    ]


def libraries_of(name: str) -> tuple[str, ...]:
    """Return what the module *name* needs of extras."""
    parents = (name, name.rpartition(".")[0], ".".join(name.split(".")[:2]))
    return next((HEAVY[parent] for parent in parents if parent in HEAVY), ())


MARKS = {"pyarrow": pytest.mark.arrow, "pyspark": pytest.mark.spark}


@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=[MARKS[lib] for lib in libraries_of(m)[-1:] if lib in MARKS]) for m in modules()]
)
def test_examples_in_docstrings_are_true(name: str) -> None:
    for library in libraries_of(name):
        pytest.importorskip(library, reason="an extra that is not installed here")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
