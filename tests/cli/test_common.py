"""Names of tables, times, lags, credentials; errors as one line and their exit codes."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import rscylla
from rscylla.cli.shared import common
from rscylla.cli.shared.common import (
    TableName,
    credentials,
    exit_code_of,
    parse_lag,
    parse_table,
    parse_time,
    reports_errors,
    stopping,
)


@pytest.mark.parametrize(
    ("text", "keyspace", "table", "folded"),
    [
        ("shop.orders", "shop", "orders", False),
        ("Shop.ORDERS", "shop", "orders", True),
        ('"Shop"."Orders"', "Shop", "Orders", False),
        ('shop."Orders"', "shop", "Orders", False),
        ('"Shop".Orders', "Shop", "orders", True),
        ('"a""b"."c.d"', 'a"b', "c.d", False),
        ("shop.order", "shop", "order", False),
    ],
)
def test_table_names_follow_the_rules_of_cql(text: str, keyspace: str, table: str, folded: bool) -> None:
    assert parse_table(text) == TableName(keyspace, table, folded)


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_quoted_name_can_be_written(keyspace: str, table: str) -> None:
    quoted = ".".join('"' + name.replace('"', '""') + '"' for name in (keyspace, table))
    assert parse_table(quoted) == TableName(keyspace, table)


@pytest.mark.parametrize("text", ["orders", "", ".", "shop.", "a.b.c", '"shop.orders', 'shop."orders', "shop orders"])
def test_text_that_names_no_table_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"write KEYSPACE\.TABLE, such as shop\.orders"):
        parse_table(text)


@pytest.mark.parametrize("text", ["my-shop.orders", "shop.1st", "shop.ordérs", "shop._orders"])
def test_names_that_need_quotes_are_shown_with_them(text: str) -> None:
    keyspace, table = text.split(".")
    with pytest.raises(rscylla.ConfigError, match=f'\'"{keyspace}"."{table}"\''):
        parse_table(text)


def test_times_need_a_zone() -> None:
    assert datetime(2026, 11, 21, 9, tzinfo=UTC) == parse_time("2026-11-21T10:00:00+01:00", option="--until")
    with pytest.raises(rscylla.ConfigError, match="--until: '2026-11-21T10:00:00' has no time zone; add Z"):
        parse_time("2026-11-21T10:00:00", option="--until")
    with pytest.raises(rscylla.ConfigError, match="--until: 'noon' is not a time"):
        parse_time("noon", option="--until")


def test_missing_lag_is_explained_in_terms_of_the_command_line() -> None:
    with pytest.raises(rscylla.errors.MissingLag, match="tail needs --lag SECONDS; 30 or more is safe, because"):
        parse_lag(None, command="tail")


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_lag_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(rscylla.ConfigError, match="give a number of seconds, 0 or more"):
        parse_lag(seconds, command="tail")


@pytest.mark.parametrize(("seconds", "lag"), [(0.0, timedelta()), (0.25, timedelta(milliseconds=250))])
def test_lags_may_be_short(seconds: float, lag: timedelta) -> None:
    assert lag == parse_lag(seconds, command="tail")


def test_numbers_may_be_at_their_bounds() -> None:
    parse = common.number(int, least=1, most=64)
    assert [parse(text) for text in ("1", "64", 8)] == [1, 64, 8]
    assert common.count("1") == 1
    for text in ("0", "65"):
        with pytest.raises(typer.BadParameter, match=f"{text} is out of range; give a number from 1 to 64"):
            parse(text)
    assert common.seconds("0.5") == 0.5


def test_credentials_go_together() -> None:
    assert credentials(None, None) == (None, None)
    assert credentials("ann", "secret") == ("ann", "secret")
    with pytest.raises(rscylla.ConfigError, match="a password requires a user name"):
        credentials(None, "secret")


def test_a_password_may_come_from_a_file(tmp_path: Path) -> None:
    """The file wins: a password on the command line or in the environment may be that of another cluster."""
    file = tmp_path / "password"
    file.write_text(" päss word \r\nnot this\n", encoding="utf-8")
    assert credentials("ann", None, file) == ("ann", " päss word ")
    assert credentials("ann", "other", file) == ("ann", " päss word ")
    file.write_bytes(b"\xef\xbb\xbfsecret\r\n")  # with a byte order mark, as some editors write it
    assert credentials("ann", None, file) == ("ann", "secret")
    with pytest.raises(rscylla.ConfigError, match="a password requires a user name"):
        credentials(None, None, file)


@pytest.mark.parametrize(
    ("content", "wrong"), [(None, "cannot be read: No such file"), (b"\n", "no password"), (b"\xff\n", "not UTF-8")]
)
def test_password_files_that_hold_none(tmp_path: Path, content: bytes | None, wrong: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(rscylla.ConfigError, match=wrong) as raised:
        credentials("ann", None, file)
    assert str(file) in str(raised.value)


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


def test_connections_do_not_show_their_password() -> None:
    assert "secret" not in repr(common.Connection(["h"], "ann", "secret", tls_ca=Path("ca.pem")))


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
