"""The pytest plugin in runs of its own: its fixtures, how long a server lives, and what it costs those who use none."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import rscylla

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = Path(rscylla.__file__).resolve().parents[1]
INSTALLED = any(e.name == "rscylla" for e in importlib.metadata.entry_points(group="pytest11"))


@attrs.frozen
class Ran:
    code: int
    out: str


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on the text of a test module, warnings as errors.

    With *found*, pytest has to find the plugin by itself, and loads all others that are installed, which takes longer.
    """

    def pytest_on(text: str, *options: str, name: str = "test_it.py", found: bool = False) -> Ran:
        (tmp_path / name).write_text(text)
        found = found and INSTALLED
        plugin = [] if found else ["-p", "pytest_rscylla"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            *plugin,
            *options,
            name,
        ]
        environment = {**os.environ, "PYTHONPATH": str(PRODUCT), "PYTEST_ADDOPTS": ""}
        if not found:
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
        return Ran(done.returncode, done.stdout + done.stderr)

    return pytest_on


def page_blocks() -> dict[str, str]:
    """Return the test modules that docs/testing.md shows, by name."""
    blocks = re.findall(
        r"^```python\n(# (test_\w+\.py)\n.*?)^```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL | re.MULTILINE
    )
    return {name: code for code, name in blocks}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_orders.py", "test_my_store.py"])
def test_the_examples_of_the_page_pass(run: Run, name: str) -> None:
    ran = run(page_blocks()[name], name=name, found=True)
    assert ran.code == 0, ran.out
    assert " passed" in ran.out


SCOPES = """
seen = []

def test_one(embedded_scylla):
    seen.append(embedded_scylla)

def test_two(embedded_scylla, scylla_session):
    seen.append(embedded_scylla)
    assert (seen[0] is seen[1]) == {shared}
    assert scylla_session.execute("SELECT key FROM system.local").one() == ("local",)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shared"),
    [
        ((), False),
        (("--embedded-scylla-scope", "module"), True),
        (("-o", "embedded_scylla_scope=session"), True),
        (("-o", "embedded_scylla_scope=session", "--embedded-scylla-scope", "function"), False),
    ],
)
def test_a_server_lives_as_long_as_its_scope(run: Run, options: tuple[str, ...], shared: bool) -> None:
    ran = run(SCOPES.format(shared=shared), *options)
    assert ran.code == 0, ran.out
    assert "2 passed" in ran.out


def test_a_scope_that_does_not_exist_is_named(run: Run) -> None:
    ran = run(SCOPES, "-o", "embedded_scylla_scope=week")
    assert ran.code == 4
    assert "embedded_scylla_scope: 'week' is not a scope" in ran.out


MARKED = """
import pytest
pytestmark = pytest.mark.embedded_scylla(nodes=2, users={"ann": "secret"})

def test_two_nodes(embedded_scylla, scylla_session):
    assert embedded_scylla.contact_points == ["127.0.0.1", "127.0.0.2"]
    assert scylla_session.cluster.auth_provider.username == "ann"
"""


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["function", "module"])
def test_a_marker_passes_arguments_to_the_server(run: Run, scope: str) -> None:
    ran = run(MARKED, "--strict-markers", "--embedded-scylla-scope", scope)
    assert ran.code == 0, ran.out


BELOW = """
import pytest

@pytest.mark.embedded_scylla(nodes=2)
def test_two_nodes(embedded_scylla):
    pass

@pytest.mark.embedded_scylla(nodes=3)
class TestThree:
    def test_three_nodes(self, scylla_session):
        pass

@pytest.mark.embedded_scylla(nodes=9)
def test_without_a_server():
    pass
"""


@pytest.mark.parametrize("scope", ["class", "module", "package", "session"])
def test_a_marker_below_the_scope_is_an_error_and_not_ignored(run: Run, scope: str) -> None:
    ran = run(BELOW, "--strict-markers", "--embedded-scylla-scope", scope)
    assert ran.code == 4
    assert (
        f"test_it.py::test_two_nodes: its marker embedded_scylla is not that of its server, whose scope is {scope}; "
        f"put the marker on the {scope}, or use --embedded-scylla-scope function"
    ) in ran.out
    assert ("TestThree" in ran.out) == (scope != "class")
    assert "test_without_a_server" not in ran.out


AWAITED = """
from datetime import timedelta
from cursorstore import MemoryCursorStore

def test_comes(await_cursor):
    store = MemoryCursorStore()
    store.set_cursor("a", CURSOR)
    await_cursor(store, "a", CURSOR)

def test_never_comes(await_cursor):
    await_cursor(MemoryCursorStore(), "a", CURSOR, timeout=timedelta(milliseconds=20))
"""


def test_await_cursor_fails_when_the_time_is_over(run: Run) -> None:
    cursor = str(rscylla.EventID(1_795_251_600_000, 1_795_251_600_000_000))
    ran = run(f"CURSOR = {cursor!r}\n{AWAITED}")
    assert ran.code == 1
    assert "1 failed, 1 passed" in ran.out
    assert 'consumer "a" did not reach the cursor within 0.02 s' in ran.out


@pytest.mark.slow
def test_nothing_of_the_server_is_loaded_for_those_who_do_not_ask(run: Run) -> None:
    heavy = ("rscylla", "cassandra", "numpy", "lark", "sortedcontainers", "typer", "rich")
    ran = run(f"import sys\n\ndef test_light():\n    assert not set({heavy!r}) & set(sys.modules)\n", found=True)
    assert ran.code == 0, ran.out


def test_fixtures_are_explained(run: Run) -> None:
    ran = run("", "--fixtures")
    for name in ("embedded_scylla", "scylla_session", "await_cursor"):
        assert re.search(rf"^{name}\b.*\n +\S", ran.out, re.MULTILINE), name
