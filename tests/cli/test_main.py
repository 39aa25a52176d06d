"""The entry point: what it says when packages are missing, and that it hands on exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import rscylla
from rscylla.cli.app import app, run

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def main_with(preparation: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; {preparation}; from rscylla.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    ended = main_with("sys.modules['typer'] = None", "--version")
    assert ended.returncode == 1
    assert ended.stderr == 'error: the command line needs the package typer; pip install "rscylla[cli]"\n'


def test_server_without_its_packages_says_what_to_install() -> None:
    ended = main_with("sys.modules['lark'] = None", "serve", "--port", "0")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: the embedded Scylla needs the package lark: pip install")
    assert "Traceback" not in ended.stderr


def test_entry_point_hands_on_the_exit_code() -> None:
    ended = main_with("pass", "topology", "orders")
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: 'orders' does not name a table")


def test_run_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "--store", "shop"]) == 0
    assert run(["schema", "--store", "a b"]) == 2
    assert run(["nonsense"]) == 2
    assert "CREATE TABLE" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"rscylla {rscylla.__version__}\n"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert rscylla.__version__ == importlib.metadata.version("rscylla")


def test_the_version_is_looked_up_when_it_is_asked_for() -> None:
    """Importing the library does not pay for ``importlib.metadata``, and no other name is made up."""
    code = (
        "import sys; before = 'importlib.metadata' in sys.modules; import rscylla; "
        "rscylla.__version__, rscylla.__version__; hasattr(rscylla, 'version') and exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tree_that_is_not_installed_has_a_version_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.delitem(vars(rscylla), "__version__", raising=False)
    assert rscylla.__version__ == "0+unknown"
    monkeypatch.delitem(vars(rscylla), "__version__", raising=False)


def test_the_library_does_not_import_the_command_line() -> None:
    code = "import sys, rscylla, cursorstore; print([m for m in ('typer', 'rich', 'rscylla.cli') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tail --lag 1", "Missing argument 'KS.TABLE'; see `rscylla tail --help`"),
        ("tail shop.orders --lag soon", "Invalid value for '--lag': "),
        ("tail shop.orders --lag 1 --format xml", "Invalid value for '--format'"),
        ("tail shop.orders --lag 1 --limit 0", "Invalid value for '--limit': "),
        ("cursor reset audit oldest --store shop", "Missing option '--reason'"),
        ("deadletter list", "Missing option '--store'; see `rscylla deadletter list --help`"),
        (
            "cursor list",
            "give either --store KEYSPACE, the keyspace of the cursor table, or --properties FILE of a Kafka connector",
        ),
        ("serve --port 70000", "Invalid value for '--port': "),
        ("demo --events 1", "Invalid value for '--events': "),
        ("nonsense", "No such command 'nonsense'; see `rscylla --help`"),
    ],
)
def test_wrong_usage_is_one_line_and_with_json_an_object(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert run(line.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"error: {said}")
    assert told.err.count("\n") == 1
    assert run([*line.split(), "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    error = json.loads(told.err.splitlines()[1])
    assert (error["error"], f"error: {error['message']}") == ("ConfigError", told.err.splitlines()[0])


def test_a_command_that_is_given_nothing_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cursor"]) == 2
    told = "".join(capsys.readouterr())
    assert "error:" not in told
    assert "reset" in told


def options(command: Any, path: str = "rscylla") -> Iterator[tuple[str, str]]:
    """Yield (command, option) for *command* and all below it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{path} {name}")
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                yield path, option


def test_the_manual_names_every_option() -> None:
    manual = MANUAL.read_text()
    found = list(options(typer.main.get_command(app)))
    assert len(found) > 50
    assert [(path, option) for path, option in found if option not in manual and option != "--version"] == []


def test_the_manual_names_no_option_that_is_not_there() -> None:
    known = {option for _, option in options(typer.main.get_command(app))} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", MANUAL.read_text())) - known == set()
