"""A cursor store from public names only: that of the examples passes the shipped contract suite."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cursorstore
from cursorstore import BufferedCursorStore
from rscylla.abc import CursorStore
from rscylla.testing.contracts import SharedCursorStoreContract

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "sqlite_store.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sqlite_store", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE = load()


class InSqlite(SharedCursorStoreContract):
    @pytest.fixture(autouse=True)
    def take_path(self, tmp_path: Path) -> Any:
        self.path = tmp_path / "cursors.db"
        self.opened: list[Any] = []
        yield
        for store in self.opened:
            store.close()

    def sqlite_store(self) -> Any:
        self.opened.append(store := EXAMPLE.SqliteCursorStore(self.path))
        return store


class TestSqlite(InSqlite):
    def open_store(self) -> CursorStore:
        return self.sqlite_store()  # type: ignore[no-any-return]


class TestBufferedSqlite(InSqlite):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.sqlite_store(), background=False)


def test_it_takes_public_names_only() -> None:
    """Of modules that are documented, names that they export."""
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("rscylla", "cursorstore"):
            assert node.module in ("cursorstore", "rscylla.abc", "rscylla.embedded", "rscylla.errors")
            public = importlib.import_module(node.module).__all__
            assert {alias.name for alias in node.names} <= set(public)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rscylla":
            assert node.attr in sys.modules["rscylla"].__all__
    assert "CursorCodec" in cursorstore.__all__
