"""The README and the pages under docs/ say what is true: their Python runs, and prints what they show."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("code", "shown"), [b[1:] for b in blocks()], ids=[b[0] for b in blocks()])
def test_python_of_the_docs_runs_and_prints_what_they_show(code: str, shown: str) -> None:
    for library in ("duckdb", "polars"):
        if f"import {library}" in code:
            pytest.importorskip(library, reason="an extra that is not installed here")
    if "windows_as_arrow" in code:
        pytest.importorskip("pyarrow", reason="pip install 'rscylla[arrow]'")
    if "pyspark" in code:
        pytest.importorskip("pyspark", reason="pip install 'rscylla[spark]'")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs", "exec"), {"__name__": "__docs__"})
    if shown:
        assert printed.getvalue() == shown


def test_the_readme_has_an_example_that_shows_its_output() -> None:
    assert [b for b in blocks() if b[0].startswith("README") and b[2]]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


HEAVY = {
    "rscylla.types.arrow": ("numpy", "pyarrow"),
    "rscylla.types.json_arrow": ("numpy", "pyarrow"),
    "rscylla.cdc.batches": ("numpy", "pyarrow"),
    "rscylla.cdc.changeview": ("numpy", "pyarrow"),
    "rscylla.cdc.columnar": ("numpy", "pyarrow"),
    "rscylla.cdc.eventview": ("numpy", "pyarrow"),
    "rscylla.cdc.spanbatches": ("numpy", "pyarrow"),
    "rscylla.spark": ("numpy", "pyarrow", "pyspark"),
    "rscylla.eventsourcing": ("cattrs", "cryptography"),
    "rscylla.testing.eventcontracts": ("cattrs", "cryptography"),
}
"""Modules, and packages of them, that need what only an extra brings."""


def modules() -> list[str]:
    return [
        m.name
        for package in (rscylla, cursorstore)
        for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        if not m.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name: str) -> None:
    for library in HEAVY.get(name, HEAVY.get(".".join(name.split(".")[:2]), ())):
        pytest.importorskip(library, reason="an extra that is not installed here")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0
