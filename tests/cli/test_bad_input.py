"""Each kind of bad input gets one clear line that says what to do, the exit code of its kind, and changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import socket
import subprocess
import sys

import pytest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.cli.app import run as command_line
from rscylla.embedded import EmbeddedScylla

from .conftest import Run, Shop

OLD = str(rscylla.EventID(1_577_836_800_000, 1_577_836_805_000_000))
"""A cursor of the year 2020."""


@pytest.fixture(scope="module")
def closed_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_help_lists_the_exit_codes(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    text = " ".join(" ".join(ran.out).split())
    for part in ("0 done", "1 failed", "2 wrong usage", "3 no connection", "4 no such table", "5 a cursor", "130"):
        assert part in text


def test_server_that_is_not_there(run: Run, closed_port: int) -> None:
    for command in (
        ["tail", "shop.orders", "--lag", "1"],
        ["topology", "shop.orders"],
        ["cursor", "list", "--store", "s"],
    ):
        ran = run(*command, "--host", f"127.0.0.1:{closed_port}", "--json")
        assert ran.code == 3
        assert "check the address, the port, and that Scylla runs" in ran.error
        assert ran.err[-1].startswith('{"error":"ConnectionFailed"')


@pytest.mark.parametrize("host", ["127.0.0.1:http", "127.0.0.1:", "[::1]9042", "[::1]:", "[::1", ":9042", ""])
def test_text_that_is_not_a_host_is_refused(run: Run, host: str) -> None:
    ran = run("topology", "shop.orders", "--host", host)
    assert (ran.code, ran.error) == (2, f"error: {host!r} is not a host; write name, name:port, or [ipv6]:port")


def test_missing_lag(run: Run) -> None:
    ran = run("tail", "shop.orders")
    assert ran.code == 2
    assert ran.error.startswith("error: tail needs --lag SECONDS; 30 or more is safe")


def test_tls_file_that_is_not_there(run: Run) -> None:
    ran = run("topology", "shop.orders", "--tls-ca", "/nowhere/ca.pem")
    assert ran.code == 2
    assert "'/nowhere/ca.pem' cannot be read" in ran.error


def test_unknown_keyspace_and_table(run: Run, shop: Shop) -> None:
    ran = run("tail", "nowhere.orders", "--lag", "0", "--host", shop.host)
    assert ran.code == 4
    assert ran.error.startswith("error: there is no keyspace nowhere;")
    ran = run("topology", f"{shop.keyspace}.invoices", "--host", shop.host)
    assert ran.code == 4
    assert ran.error.startswith(f"error: keyspace {shop.keyspace} has no table invoices;")


def test_table_without_cdc(run: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.plain (id int PRIMARY KEY)")
    ran = run("tail", f"{shop.keyspace}.plain", "--lag", "0", "--to-head", "--host", shop.host)
    assert ran.code == 4
    assert "has no CDC log; enable it with ALTER TABLE" in ran.error


def test_name_that_needs_quoting(run: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.\"Returns\" (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    ran = run("topology", f"{shop.keyspace}.Returns", "--host", shop.host)
    assert ran.code == 4
    assert f'did you mean {shop.keyspace}."Returns"?' in ran.error
    assert run("topology", f'{shop.keyspace}."Returns"', "--host", shop.host).code == 0


def test_wrong_credentials(run: Run) -> None:
    with EmbeddedScylla(users={"ann": "secret"}) as scylla:
        host = f"127.0.0.1:{scylla.port}"
        ran = run("topology", "shop.orders", "--host", host, "--username", "ann", "--password", "hunter2")
        assert ran.code == 3
        assert "refused the user name or password; check both" in ran.error
        assert not any("hunter2" in line for line in ran.out + ran.err)
        # The right credentials, from the environment: the error is now that there is no table.
        ran = run("topology", "shop.orders", "--host", host, RSCYLLA_USERNAME="ann", RSCYLLA_PASSWORD="secret")
        assert ran.code == 4


def test_user_without_a_password_where_none_can_be_asked_for(run: Run) -> None:
    ran = run("topology", "shop.orders", "--username", "ann")
    assert ran.code == 2
    assert "--username requires a password; set RSCYLLA_PASSWORD" in ran.error


def test_password_is_asked_for_on_a_terminal_and_not_echoed() -> None:
    ours, terminal = pty.openpty()
    with (
        EmbeddedScylla(users={"ann": "secret"}) as scylla,
        subprocess.Popen(
            [
                *(sys.executable, "-c", "from rscylla.cli import main; main()"),
                *("topology", "shop.orders", "--host", f"127.0.0.1:{scylla.port}", "--username", "ann"),
            ],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no other terminal to ask on
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        ) as child,
    ):
        os.close(terminal)
        assert child.stderr is not None
        try:
            asked = child.stderr.read(len("Password: "))
            os.write(ours, b"secret\n")
            # The login was accepted: the error is that there is no table.
            assert child.wait(30) == 4
        finally:
            child.kill()
        assert asked == b"Password: "
        assert b"secret" not in child.stderr.read()
    echoed = b""
    with contextlib.suppress(OSError):  # the other end is closed
        echoed = os.read(ours, 1000)
    os.close(ours)
    assert b"secret" not in echoed


def test_password_is_not_shown_by_help(run: Run) -> None:
    assert not any("secret" in line for line in run("tail", "--help", RSCYLLA_PASSWORD="secret").out)


@pytest.mark.parametrize("text", ['{"cursor":1}', "{", '{"cursor_gen":"x"}'])
def test_cursor_that_is_not_ours(run: Run, shop: Shop, text: str) -> None:
    ran = run("tail", shop.orders, "--lag", "0", "--from", text, "--host", shop.host)
    assert ran.code == 5
    assert "the text is not a cursor of rscylla" in ran.error


def test_start_that_is_nothing_known(run: Run, shop: Shop) -> None:
    ran = run("tail", shop.orders, "--lag", "0", "--from", "yesterday", "--host", shop.host)
    assert ran.code == 2
    assert "'yesterday' is neither oldest, head, a time such as" in ran.error


def test_consumer_and_store_go_together(run: Run) -> None:
    ran = run("tail", "shop.orders", "--lag", "1", "--consumer", "audit")
    assert ran.code == 2
    assert "--consumer NAME and --store KEYSPACE require each other" in ran.error


def test_expired_cursor_stays_as_it_was(run: Run, shop: Shop) -> None:
    shop.insert(1)
    store = ScyllaCursorStore(shop.session, shop.keyspace, create=True)
    store.set_cursor("audit", OLD)
    ran = run(
        *("tail", shop.orders, "--lag", "0", "--to-head", "--host", shop.host),
        *("--consumer", "audit", "--store", shop.keyspace),
    )
    assert ran.code == 5
    assert "before the first CDC generation of this cluster" in ran.error
    assert ran.error.endswith("(on the command line: --on-expired oldest)")
    assert ran.out == []
    assert store.get_cursor("audit") == OLD


def test_expired_cursor_continues_at_the_oldest_on_request(run: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = run(
        *("tail", shop.orders, "--lag", "0", "--to-head", "--host", shop.host, "--json"),
        *("--from", OLD, "--on-expired", "oldest"),
    )
    assert (ran.code, len(ran.out)) == (0, 1)
    (warning,) = [line for line in ran.err if "before the first CDC generation" in line]
    assert warning.startswith("warning: the cursor of ")
    assert not any(line.startswith("error:") for line in ran.err)


def test_cursor_of_another_cluster_stays_as_it_was(run: Run, shop: Shop) -> None:
    stranger = rscylla.EventID.parse(rscylla.GetCursor(shop.session, shop.keyspace, "orders"))
    cursor = str(rscylla.EventID(stranger.generation + 1, stranger.time + 1_000_000))
    store = ScyllaCursorStore(shop.session, shop.keyspace, create=True)
    store.set_cursor("audit", cursor)
    ran = run(
        *("tail", shop.orders, "--lag", "0", "--to-head", "--host", shop.host),
        *("--consumer", "audit", "--store", shop.keyspace),
    )
    assert ran.code == 5
    named = json.loads(cursor)["cursor_gen"]
    assert f"names the CDC generation of {named}, which this cluster does not have; check that" in ran.error
    assert "check that the cursor is not from another cluster" in ran.error
    assert store.get_cursor("audit") == cursor


def test_missing_cursor_table(run: Run, shop: Shop) -> None:
    ran = run(
        *("tail", shop.orders, "--lag", "0", "--to-head", "--host", shop.host),
        *("--consumer", "audit", "--store", shop.keyspace),
    )
    assert ran.code == 4
    assert "--create-store of `rscylla tail`, or the statement that `rscylla schema cursors` prints" in ran.error


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"])
@pytest.mark.parametrize("option", ["--from", "--until"])
def test_time_beyond_the_calendar(run: Run, shop: Shop, option: str, time: str) -> None:
    ran = run("tail", shop.orders, "--lag", "0", option, time, "--host", shop.host)
    assert ran.code == 2
    assert ran.error == f"error: {option}: '{time}' is outside the years 1 to 9999 in UTC"


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_times_at_the_ends_of_the_calendar(run: Run, shop: Shop, time: str) -> None:
    shop.insert(1)
    limits = ["--lag", "1", "--to-head", "--host", shop.host]
    assert run("tail", shop.orders, "--until", time, *limits).code == 0
    ScyllaCursorStore(shop.session, shop.keyspace).create_schema()
    ran = run("tail", shop.orders, "--from", time, "--until", "2026-01-01T00:00:00Z", *limits)
    assert ran.code in (0, 2), ran.err
    of = ["--of", shop.orders, "--store", shop.keyspace, "--host", shop.host]
    ran = run("cursor", "reset", "audit", time, "--reason", "test", *of)
    assert ran.code in (0, 2), ran.err


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("tail shop.orders --lag soon", "'--lag'"),
        ("tail shop.orders --lag 1 --limit many", "'--limit'"),
        ("tail shop.orders --lag 1 --limit 0", "'--limit'"),
        ("tail shop.orders --lag 1 --limit 1.5", "'--limit'"),
        ("replicate a.b c.d --lag 1 --workers 0", "'--workers'"),
        ("cursor reslice audit --store s --from 0 --to 2", "'--from'"),
        ("doctor shop.orders --lag 1s", "'--lag'"),
        ("serve --port 70000", "'--port'"),
        ("serve --nodes 65", "'--nodes'"),
        ("demo --events 1", "'--events'"),
        ("demo --seed -1", "'--seed'"),
    ],
)
def test_numbers_that_make_no_sense(capsys: pytest.CaptureFixture[str], line: str, name: str) -> None:
    assert command_line(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: Invalid value for {name}: ")
    assert re.search(r"; see `rscylla [a-z ]+ --help`\n$", error)


def test_table_copied_to_itself(run: Run, closed_port: int) -> None:
    """Two names of one table are wrong usage, whether a server is there or not."""
    ran = run("replicate", "shop.orders", 'Shop."orders"', "--lag", "1", "--host", f"127.0.0.1:{closed_port}")
    assert ran.code == 2
    assert ran.error.startswith("error: shop.orders cannot be copied to itself; name another table, or another cluster")


def test_short_lag_of_a_table_that_is_not_there(run: Run, shop: Shop) -> None:
    """The error comes alone: advice on reading the table is of no use yet."""
    ran = run("tail", f"{shop.keyspace}.invoices", "--lag", "0", "--host", shop.host)
    assert (ran.code, len(ran.err)) == (4, 1)
