"""The entry point: what it says when packages are missing, and that it hands on exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rscylla.cli.app import run


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
    assert run(["cursor", "schema", "--store", "shop"]) == 0
    assert run(["cursor", "schema", "--store", "a b"]) == 2
    assert run(["nonsense"]) == 2
    assert "CREATE TABLE" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rscylla ")


def test_the_library_does_not_import_the_command_line() -> None:
    code = "import sys, rscylla, cursorstore; print([m for m in ('typer', 'rich', 'rscylla.cli') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
