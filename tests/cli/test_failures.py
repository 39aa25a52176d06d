"""Errors as one line and their exit codes; stopping."""

from __future__ import annotations

import signal

import pytest
import typer
from typer.testing import CliRunner

import rscylla
from rscylla.cli.shared.failures import exit_code_of, reports_errors, stopping

_CODES = {
    rscylla.ConfigError: 2,
    rscylla.errors.MissingLag: 2,
    rscylla.ConnectionFailed: 3,
    rscylla.errors.AuthenticationFailed: 3,
    rscylla.QueryTimeout: 3,
    rscylla.TableNotFound: 4,
    rscylla.errors.CDCDisabled: 4,
    rscylla.TableChanged: 4,
    rscylla.errors.NoStreams: 4,
    rscylla.errors.QueryFailed: 4,
    rscylla.errors.InvalidCursor: 5,
    rscylla.CursorConflict: 5,
    rscylla.errors.FateError: 1,
    rscylla.Stopped: 130,
    KeyboardInterrupt: 130,
    ZeroDivisionError: 1,
}


@pytest.mark.parametrize(("kind", "code"), _CODES.items(), ids=lambda v: getattr(v, "__name__", None))
def test_exit_codes(kind: type[BaseException], code: int) -> None:
    assert exit_code_of(kind("what")) == code


def test_what_ended_a_run_counts_by_its_cause() -> None:
    ended = rscylla.RunError("consumer", stage="recv", consumer="tail", resumable=False)
    ended.__cause__ = rscylla.TableChanged("dropped")
    assert exit_code_of(ended) == 4


def command_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @reports_errors
    def command(as_json: bool = False) -> None:
        raise error

    return app


def test_errors_are_one_line_and_with_json_an_object_more() -> None:
    app = command_that_raises(rscylla.TableNotFound("there is no\nkeyspace shop"))
    result = CliRunner().invoke(app, ["--as-json"])
    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: there is no keyspace shop",
        '{"error":"TableNotFound","message":"there is no keyspace shop"}',
    ]


def test_unexpected_errors_name_their_kind_and_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a foreign error may hold row values."""
    monkeypatch.delenv("RSCYLLA_DEBUG", raising=False)
    result = CliRunner().invoke(command_that_raises(KeyError("row value")), [])
    assert result.exit_code == 1
    assert result.stderr.splitlines() == ["error: unexpected KeyError; set RSCYLLA_DEBUG=1 to see the traceback"]


def test_debugging_shows_the_traceback() -> None:
    result = CliRunner().invoke(command_that_raises(KeyError("x")), [], env={"RSCYLLA_DEBUG": "1"})
    assert "Traceback (most recent call last):" in result.stderr


def test_an_interrupted_command_ends_with_130_and_without_a_word() -> None:
    result = CliRunner().invoke(command_that_raises(KeyboardInterrupt()), [])
    assert (result.exit_code, result.stderr) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_set_the_stop_and_a_second_ctrl_c_interrupts(number: int) -> None:
    before = signal.getsignal(number)
    with stopping() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) is before
