"""Standard streams that are closed, full, or not UTF-8: each command says so in one line, and loses no value."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cursorstore import ScyllaCursorStore, ScyllaDeadLetters
from rscylla.cli.app import run
from rscylla.cli.shared.standard import prepare

from .conftest import Shop

WORDS = ("é", "日本", "\U0001f600", "plain")


def shell(redirection: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command line with its standard streams redirected by a shell."""
    command = [sys.executable, "-c", "from rscylla.cli import main; main()", *arguments]
    path = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.fixture
def words(shop: Shop) -> Shop:
    for number, word in enumerate(WORDS):
        shop.session.execute(f"INSERT INTO {shop.orders} (id, status) VALUES (%s, %s)", (number, word))
    ScyllaCursorStore(shop.session, shop.keyspace, create=True).reset_cursor("büro", "", reason="日本")
    ScyllaDeadLetters(shop.session, shop.keyspace).create_schema()
    return shop


def commands(shop: Shop) -> dict[str, list[str]]:
    """A line of each command that writes something, by its name."""
    host = ["--host", shop.host]
    store = ["--store", shop.keyspace]
    to_head = ["--to-head", "--json"]
    return {
        "help": ["--help"],
        "version": ["--version"],
        "demo": ["demo", "--events", "20"],
        "serve": ["serve", "--port", "0"],
        "tail": ["tail", shop.orders, "--lag", "0", "--to-head", *host],
        "topology": ["topology", shop.orders, *host],
        "doctor": ["doctor", shop.orders, *host],
        "replicate": ["replicate", shop.orders, f"{shop.keyspace}.copy", "--lag", "0", "--create", *to_head, *host],
        "cursor list": ["cursor", "list", *store, *host],
        "cursor get": ["cursor", "get", "büro", "--history", *store, *host],
        "schema": ["schema", *store],
        "deadletter list": ["deadletter", "list", *store, *host],
    }


NAMES = list(commands(Shop("k", None, "h")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("name", ["help", "tail"])
def test_output_that_cannot_be_written_is_one_line_and_an_exit_code(
    words: Shop, name: str, redirection: str, why: str
) -> None:
    ended = shell(redirection, *commands(words)[name])
    errors = [line for line in ended.stderr.decode().splitlines() if line.startswith("error:")]
    assert (ended.returncode, errors) == (1, [f"error: cannot write the output: {why}"])
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_command_finds_that_the_disk_is_full(
    words: Shop, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full))
        prepare()
        code = run(commands(words)[name])
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert (code, errors) == (1, ["error: cannot write the output: No space left on device"])


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_messages_that_cannot_be_written_change_nothing(words: Shop, redirection: str) -> None:
    ended = shell(redirection, *commands(words)["tail"], "--json")
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == len(WORDS)
    assert shell(redirection, "topology", "orders").returncode == 2


def test_closed_input_is_not_a_terminal(words: Shop) -> None:
    ended = shell("<&-", "topology", words.orders, "--host", words.host, "--username", "ann")
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"error: --username requires a password")


def test_a_closed_stream_does_not_become_a_socket(words: Shop) -> None:
    """A connection that got descriptor 2 would be sent the messages."""
    ended = shell("<&- 2>&-", *commands(words)["tail"], "--json")
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, len(WORDS))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16"])
def test_output_is_utf_8_whatever_the_locale_says(words: Shop, encoding: str) -> None:
    ended = shell("", *commands(words)["tail"], "--json", PYTHONIOENCODING=encoding)
    assert ended.returncode == 0
    events = [json.loads(line) for line in ended.stdout.decode().splitlines()]
    assert sorted(event["metadata"]["after"]["status"] for event in events) == sorted(WORDS)


def test_errors_are_utf_8_whatever_the_locale_says(words: Shop) -> None:
    ended = shell(
        "", "cursor", "get", "日本", "--store", words.keyspace, "--host", words.host, "--json", PYTHONIOENCODING="ascii"
    )
    assert ended.returncode == 5
    assert "日本" in json.loads(ended.stderr.decode().splitlines()[-1])["message"]


@pytest.mark.parametrize("name", ["help", "cursor list", "topology"])
def test_a_closed_output_pipe_is_not_a_failure(
    words: Shop, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with ``rscylla ... | head -1``."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as pipe:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
        prepare()
        code = run(commands(words)[name])
    assert (code, [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]) == (0, [])
