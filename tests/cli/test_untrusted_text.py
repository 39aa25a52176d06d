"""Text of rows, servers, errors, and arguments reaches a terminal without its control characters, on one line."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import unicodedata
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaGroupTable, ScyllaMembership
from rscylla._visible import visible
from rscylla.cli.kafka_run import snapshot_bars
from rscylla.cli.shared.failures import catch_strays, quiet_logs, reports_errors
from rscylla.cli.shared.standard import binary_output

from .conftest import Ran, Run, Shop

BAD = "\x1b[2J\x9b1A\x07\u202e\x7f\rover\nerror: forged\u2028line"
"""Clears the screen, goes up, rings, turns text around, writes over a line, and begins others."""


def is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(char) in ("RLO", "RLI")


def check(ran: Ran, *, traceback: bool = False) -> str:
    """Return what a command wrote, after a check that nothing of ``BAD`` acts; tracebacks have lines."""
    lines = [*ran.out, *ran.err]
    assert not [line for line in lines if any(map(is_control, line))]
    assert traceback or not [line for line in lines if line.startswith("error: forged")]
    return "\n".join(lines)


@pytest.fixture
def hostile(shop: Shop) -> Shop:
    """A shop in whose rows, cursors, letters, and groups is ``BAD``."""
    shop.session.execute(
        f"CREATE TABLE {shop.keyspace}.names (id text PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}"
    )
    shop.session.execute(f"INSERT INTO {shop.keyspace}.names (id, v) VALUES (%s, %s)", (BAD, BAD))
    cursors = ScyllaCursorStore(shop.session, shop.keyspace, create=True)
    cursors.reset_cursor(BAD, "", reason=BAD)
    letters = ScyllaDeadLetters(shop.session, shop.keyspace, create=True)

    def refuse(event: rscylla.Event, fate: rscylla.Fate) -> None:
        raise ValueError(BAD)

    quick = rscylla.Backoff(initial=timedelta(microseconds=1), maximum=timedelta(microseconds=1))
    consumer = rscylla.dead_letter(
        rscylla.Consumer(BAD, refuse, registry=CollectorRegistry()), letters, retries=1, backoff=quick
    )
    stream = rscylla.NewStream(shop.session, shop.keyspace, "names")
    with pytest.raises(rscylla.HeadReached):
        rscylla.run(
            rscylla.Spec(stream, MemoryCursorStore(), consumer, rscylla.StreamLag(seconds=0), rscylla.StreamToHead())
        )
    ScyllaGroupTable(shop.session, shop.keyspace).create()
    member = ScyllaMembership(shop.session, shop.keyspace, "workers", owner=BAD, slices=2, ttl=timedelta(minutes=10))
    member.join()
    return shop


def commands(shop: Shop) -> dict[str, list[str]]:
    """A line of each command that writes what it has read, by its name."""
    there = ["--host", shop.host]
    store = ["--store", shop.keyspace, *there]
    names = f"{shop.keyspace}.names"
    event = [letter.event.id for letter in ScyllaDeadLetters(shop.session, shop.keyspace).list_letters(BAD)][:1]
    tail = ["tail", names, "--lag", "0", "--to-head", *there]
    return {
        "tail": tail,
        "tail changes": [*tail, "--format", "change"],
        "tail rows": [*tail, "--format", "row"],
        "cursor list": ["cursor", "list", *store],
        "cursor get": ["cursor", "get", BAD, *store],
        "cursor history": ["cursor", "get", BAD, "--history", *store],
        "cursor reset": ["cursor", "reset", BAD, "oldest", "--reason", BAD, *store],
        "deadletter list": ["deadletter", "list", *store],
        "deadletter count": ["deadletter", "list", "--count", *store],
        "deadletter show": ["deadletter", "show", BAD, *event, *store],
        "deadletter discard": ["deadletter", "discard", BAD, *event, "--reason", BAD, *store],
        "group list": ["group", "list", *store],
        "group show": ["group", "show", "workers", *store],
        "doctor": ["doctor", names, "--consumer", BAD, *store],
        "replicate": ["replicate", names, f"{shop.keyspace}.copy", "--lag", "0", "--create", "--to-head", *there],
        "verify": ["replicate", names, f"{shop.keyspace}.orders", "--verify", "--lag", "0", *there],
    }


NAMES = (
    *("tail", "tail changes", "tail rows", "cursor list", "cursor get", "cursor history", "cursor reset"),
    *("deadletter list", "deadletter count", "deadletter show", "deadletter discard", "group list", "group show"),
    *("doctor", "replicate", "verify"),
)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("name", NAMES)
def test_no_command_writes_what_a_terminal_obeys(run: Run, hostile: Shop, name: str, form: list[str]) -> None:
    known = commands(hostile)
    assert tuple(known) == NAMES
    shown = check(run(*known[name], *form), traceback=name == "deadletter show")
    assert shown or name == "cursor get"  # it has none
    if form:
        for line in shown.splitlines():
            assert not line.startswith("{") or json.loads(line)


@pytest.mark.parametrize(
    "arguments",
    [
        [BAD],
        ["tail", BAD, "--lag", "0"],
        ["tail", "a.b", "--lag", BAD],
        ["tail", "a.b", "--lag", "0", "--host", BAD],
        ["cursor", "get", BAD, "--store", BAD, "--host", "127.0.0.1:1"],
        ["deadletter", "list", "--store", "k", "--status", BAD],
        ["kafka", "run", BAD],
        ["kafka", "snapshot", BAD],
        ["serve", "ctl", "--to", BAD, "status"],
        ["deadletter", "replay", "c", "--all", "--to", BAD, "--store", "k"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]).replace(BAD, "BAD"),
)
def test_no_argument_comes_back_as_it_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from rscylla.cli.app import run as run_line

    code = run_line(arguments)
    out, err = capsys.readouterr()
    assert code != 0
    check(Ran(code, out.split("\n"), err.split("\n")))


@pytest.mark.parametrize("flag", ["--validate", "--dry-run"])
def test_no_property_comes_back_as_it_is(run: Run, shop: Shop, tmp_path: Path, flag: str) -> None:
    path = tmp_path / "c.json"
    needed = {"topic.prefix": BAD, "scylla.cluster.ip.addresses": shop.host, "scylla.table.names": shop.orders}
    for more in ({}, {BAD: BAD}, {"cdc.output.format": BAD}, {"transforms": BAD}, {"scylla.table.names": BAD}):
        path.write_text(json.dumps(needed | more))
        check(run("kafka", "run", str(path), flag))


def test_logs_and_tracebacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @reports_errors
    def command() -> None:
        log = logging.getLogger("rscylla.service")
        try:
            raise ValueError(BAD)
        except ValueError:
            log.exception("lane %s failed: %s", BAD, BAD)
        raise rscylla.ConfigError(f"{BAD} is wrong")

    for debug in ("0", "1"):
        monkeypatch.setenv("RSCYLLA_DEBUG", debug)
        with pytest.raises(typer.Exit):
            command()
        out, err = capsys.readouterr()
        check(Ran(0, out.split("\n"), err.split("\n")), traceback=debug == "1")
        assert ("Traceback" in err) is (debug == "1")


def test_a_log_line_whose_arguments_are_wrong_is_said_and_raises_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_logs()
    monkeypatch.setattr(logging.getLogger("rscylla"), "propagate", False)  # to pytest, which raises
    broken = type("Broken", (), {"__str__": lambda _: 1 / 0})()
    log = logging.getLogger("rscylla.service")
    log.warning("order %d of %s", BAD)
    log.warning(broken)
    first, second, end = capsys.readouterr().err.split("\n")
    assert first.startswith("warning: order %d of %s (not formatted, TypeError; arguments: ")
    assert (second, end) == ("warning: <Broken> (not formatted, ZeroDivisionError; arguments: )", "")
    assert not any(map(is_control, first))


def test_what_nobody_catches_is_said_without_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (sys, "excepthook"),
        (sys, "unraisablehook"),
        (threading, "excepthook"),
        (logging, "lastResort"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.delenv("RSCYLLA_DEBUG", raising=False)
    catch_strays()
    error = KeyError(BAD)
    sys.excepthook(KeyError, error, None)
    threading.excepthook(threading.ExceptHookArgs((KeyError, error, None, None)))
    said = "warning: unexpected KeyError; set RSCYLLA_DEBUG=1 to see the traceback\n"
    assert capsys.readouterr().err == said * 2
    other = logging.getLogger("some.library")
    monkeypatch.setattr(other, "propagate", False)
    other.warning("it is %s", BAD)
    (line, end) = capsys.readouterr().err.split("\n")
    assert (line[:15], end) == ("warning: it is ", "")
    assert not any(map(is_control, line))
    quiet_logs()


def test_records_on_a_terminal_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, "utf-8")
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        out = binary_output()
        line = json.dumps({"value": BAD}, ensure_ascii=False).encode() + b"\n"
        out.write(line)
        out.flush()
        assert json.loads(raw.getvalue()) == {"value": BAD}
        assert (raw.getvalue() == line) is not is_terminal
        assert any(map(is_control, raw.getvalue().decode().rstrip("\n"))) is not is_terminal


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xff\xfe", b"\x80"])
def test_bytes_that_are_no_text_are_written_on_a_terminal(monkeypatch: pytest.MonkeyPatch, bad: bytes) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    out = binary_output()
    assert out.write(b"a" + bad + b"z\n") == len(bad) + 3
    assert raw.getvalue().decode().isascii()


def test_names_on_bars_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with snapshot_bars() as bars:
        assert bars is not None
        bars("[red]x[/red]\x1b[2J", 0.5, 1)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "[red]x[/red]\\u001b[2J" in shown


@pytest.mark.parametrize("text", ["a\tb", "é", "日本", "\U0001f600", "~", "\xa0", "‑"])
def test_other_text_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_lines_stay_where_they_are_wanted() -> None:
    assert visible("a\nb\r\n", lines=True) == "a\nb\\u000d\n"
    assert visible("a\nb") == "a\\nb"
