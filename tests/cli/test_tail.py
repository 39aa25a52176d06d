"""``rscylla tail`` on an embedded server: where it starts and ends, what it prints, and how it continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.testing import await_cursor

from .conftest import Process, Ran, Run, Shop


@pytest.fixture
def tail(run: Run, shop: Shop) -> Run:
    def command(*arguments: str) -> Ran:
        return run("tail", shop.orders, "--lag", "0", "--host", shop.host, *arguments)

    return command


def ids(ran: Ran) -> list[int]:
    return [line["metadata"]["key"]["id"] for line in ran.objects]


def said_cursor(ran: Ran) -> str:
    """The cursor that ``--json`` prints last."""
    return str(json.loads(ran.err[-1])["cursor"])


def test_to_head_prints_exactly_the_changes(tail: Run, shop: Shop) -> None:
    shop.insert(1, 2)
    shop.cql(f"UPDATE {shop.orders} SET status = 'paid', total = 9 WHERE id = 1")
    shop.cql(f"DELETE FROM {shop.orders} WHERE id = 2")
    ran = tail("--to-head", "--json")
    assert ran.code == 0
    assert [(line["operation"], line["type"], line["foreign_id"]) for line in ran.objects] == [
        ("INSERT", 2, '{"id":1}'),
        ("INSERT", 2, '{"id":2}'),
        ("UPDATE", 1, '{"id":1}'),
        ("PARTITION_DELETE", 4, '{"id":2}'),
    ]
    assert ran.objects[2]["metadata"]["after"] == {"status": "paid", "total": 9}
    assert ran.objects[2]["metadata"]["before"]["status"] == "new"
    for line in ran.objects:
        assert str(rscylla.EventID.parse(line["id"])) == line["id"]
        assert line["timestamp"] == line["metadata"]["timestamp"]


def test_changes_are_the_metadata_of_events(tail: Run, shop: Shop) -> None:
    shop.insert(1, 2)
    events = tail("--to-head", "--json").objects
    assert tail("--to-head", "--json", "--format", "change").objects == [line["metadata"] for line in events]


def test_rows_are_those_of_the_log(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    shop.cql(f"UPDATE {shop.orders} SET status = 'paid' WHERE id = 1")
    rows = tail("--to-head", "--json", "--format", "row").objects
    stored = shop.cql(
        f'SELECT "cdc$time", "cdc$batch_seq_no", "cdc$operation", id, status FROM {shop.orders}_scylla_cdc_log'
    )
    assert [
        [row[name] for name in ("cdc$time", "cdc$batch_seq_no", "cdc$operation", "id", "status")] for row in rows
    ] == [[str(row[0]), *row[1:]] for row in stored]
    assert [row["cdc$operation"] for row in rows] == [2, 0, 1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("event", '  INSERT  {"id":1}  {"status":"a\\u001b[31mb"}'),
        ("change", '  INSERT  key={"id":1} after={"status":"a\\u001b[31mb"}'),
        ("row", ' id=1 status="a\\u001b[31mb"'),
    ],
)
def test_lines_for_people_keep_control_characters_off_the_terminal(
    tail: Run, shop: Shop, kind: str, expected: str
) -> None:
    shop.session.execute(f"INSERT INTO {shop.orders} (id, status) VALUES (1, %s)", ("a\x1b[31mb",))
    ran = tail("--to-head", "--format", kind)
    assert len(ran.out) == 1
    assert ran.out[0].endswith(expected)


def test_cursor_that_is_printed_continues_after_the_last_line(tail: Run, shop: Shop) -> None:
    shop.insert(1, 2, 3)
    first = tail("--from", "oldest", "--limit", "2", "--json")
    assert (first.code, ids(first)) == (0, [1, 2])
    assert said_cursor(first) == first.objects[-1]["id"]
    rest = tail("--from", said_cursor(first), "--to-head", "--json")
    assert ids(rest) == [3]
    assert ids(tail("--from", said_cursor(rest), "--to-head", "--json")) == []


def test_quiet_does_not_print_the_cursor(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    loud, quiet = tail("--to-head"), tail("--to-head", "--quiet")
    assert loud.err[-1].startswith("continue with --from '{")
    assert not [line for line in quiet.err if "cursor_gen" in line]


def test_from_a_time_and_until_a_time(tail: Run, shop: Shop) -> None:
    shop.insert(1, 2, 3)
    times = [line["timestamp"] for line in tail("--to-head", "--json").objects]
    assert ids(tail("--from", times[1], "--to-head", "--json")) == [2, 3]
    assert ids(tail("--until", times[1], "--json")) == [1]


def test_time_before_the_log_is_pointed_out(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = tail("--from", "2020-01-01T00:00:00Z", "--to-head", "--json")
    assert ids(ran) == [1]
    assert any(line.startswith("warning: the log has no rows from before ") for line in ran.err)


def test_from_head_to_head_is_nothing(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = tail("--from", "head", "--to-head", "--json")
    assert (ran.code, ran.out) == (0, [])


def test_lag_holds_back_what_is_too_young(run: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = run("tail", shop.orders, "--lag", "3600", "--to-head", "--host", shop.host, "--json")
    assert (ran.code, ran.out) == (0, [])


def test_short_lag_is_warned_about_once(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    assert len([line for line in tail("--to-head").err if line.startswith("warning: ")]) == 1


def test_consumer_continues_where_it_was(tail: Run, shop: Shop) -> None:
    named = ("--consumer", "audit", "--store", shop.keyspace, "--create-store", "--json")
    shop.insert(1, 2, 3)
    assert ids(tail("--from", "oldest", "--limit", "2", *named)) == [1, 2]
    # A saved cursor wins over --from, so that the same command line can be started again.
    again = tail("--from", "oldest", "--to-head", *named)
    assert ids(again) == [3]
    assert said_cursor(again) == ScyllaCursorStore(shop.session, shop.keyspace).get_cursor("audit")
    shop.insert(4)
    assert ids(tail("--to-head", *named)) == [4]


def test_cursor_table_may_have_another_name(tail: Run, shop: Shop) -> None:
    shop.insert(1)
    named = ("--consumer", "audit", "--store", shop.keyspace, "--store-table", "Places", "--create-store")
    assert tail("--to-head", *named).code == 0
    assert ScyllaCursorStore(shop.session, shop.keyspace, "Places").get_cursor("audit")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_cleanly_and_saves(start: Callable[..., Process], shop: Shop, number: int) -> None:
    shop.insert(1, 2)
    command = (
        *("tail", shop.orders, "--lag", "0", "--host", shop.host, "--json", "--from", "oldest"),
        *("--consumer", "audit", "--store", shop.keyspace, "--create-store"),
    )
    first = start(*command)
    seen: list[dict[str, Any]] = [json.loads(first.line()) for _ in range(2)]
    assert first.end(number) == 0
    saved = ScyllaCursorStore(shop.session, shop.keyspace).get_cursor("audit")
    assert rscylla.cursor_key(saved) >= rscylla.cursor_key(seen[-1]["id"])
    assert json.loads(first.err[-1])["cursor"] == saved
    shop.insert(3)
    second = start(*command)
    assert json.loads(second.line())["metadata"]["key"] == {"id": 3}
    assert second.end(number) == 0


def test_following_starts_at_the_head_and_shows_what_comes(start: Callable[..., Process], shop: Shop) -> None:
    shop.insert(1)
    store = ScyllaCursorStore(shop.session, shop.keyspace, create=True)
    before = rscylla.GetCursor(shop.session, shop.keyspace, "orders", datetime.now(UTC))
    follower = start(
        *("tail", shop.orders, "--lag", "0", "--host", shop.host, "--json"),
        *("--consumer", "audit", "--store", shop.keyspace),
    )
    await_cursor(store, "audit", before, timeout=timedelta(seconds=120))
    shop.insert(2)
    assert json.loads(follower.line())["metadata"]["key"] == {"id": 2}
    assert follower.end(signal.SIGINT) == 0


def test_reader_that_goes_away_ends_it_quietly(shop: Shop) -> None:
    """As in ``rscylla tail ... | head -1``: the next line finds that nobody reads."""
    shop.insert(1)
    arguments = ["tail", shop.orders, "--lag", "0", "--from", "oldest", "--quiet", "--host", shop.host]
    with subprocess.Popen(
        [sys.executable, "-c", "from rscylla.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            assert child.stdout.readline().endswith('INSERT  {"id":1}  {"status":"new"}\n')
            child.stdout.close()
            shop.insert(2)
            assert child.wait(30) == 0
        finally:
            child.kill()
        assert [line for line in child.stderr if not line.startswith("warning: ")] == []
