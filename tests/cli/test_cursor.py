"""``rscylla cursor`` on an embedded server: list, get, set, reset."""

from __future__ import annotations

import pytest

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaLease

from .conftest import Ran, Run, Shop


@pytest.fixture
def store(shop: Shop) -> ScyllaCursorStore:
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    store.create_schema()
    return store


@pytest.fixture
def cursor(run: Run, shop: Shop, store: ScyllaCursorStore) -> Run:
    def command(action: str, *arguments: str) -> Ran:
        return run("cursor", action, *arguments, "--store", shop.keyspace, "--host", shop.host)

    return command


def at(second: int) -> str:
    return str(rscylla.EventID(1_795_000_000_000, 1_795_000_000_000_000 + second * 1_000_000))


def test_list_shows_all_consumers(cursor: Run, store: ScyllaCursorStore) -> None:
    assert cursor("list", "--json").out == []
    store.set_cursor("billing", at(2))
    store.set_cursor("audit", at(1))
    ran = cursor("list", "--json")
    assert ran.code == 0
    assert [(line["consumer"], line["cursor"], line["epoch"]) for line in ran.objects] == [
        ("audit", at(1), 0),
        ("billing", at(2), 0),
    ]
    lines = cursor("list").out
    assert lines[0].split() == ["consumer", "saved", "epoch", "cursor"]
    assert [line.split()[0] for line in lines[1:]] == ["audit", "billing"]


def test_get_prints_the_cursor_alone(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing", at(2))
    assert cursor("get", "billing").out == [at(2)]
    assert cursor("get", "billing", "--json").objects[0]["cursor"] == at(2)


def test_get_of_an_unknown_consumer(cursor: Run, shop: Shop) -> None:
    ran = cursor("get", "nobody")
    assert ran.code == 5
    assert f"consumer 'nobody' has no cursor in {shop.keyspace}.rscylla_cursors" in ran.error
    assert ran.out == []


def test_set_moves_forward_and_refuses_to_go_back(cursor: Run, store: ScyllaCursorStore) -> None:
    assert cursor("set", "billing", at(2)).out == [at(2)]
    assert store.get_cursor("billing") == at(2)
    ran = cursor("set", "billing", at(1), "--json")
    assert ran.code == 5
    assert "lower than the saved one, which does not change" in ran.error
    assert ran.err[-1].startswith('{"error":"CursorRegression"')
    assert store.get_cursor("billing") == at(2)


@pytest.mark.parametrize("text", ["12", "{}", "2026-11-21T10:00:00Z"])
def test_text_that_is_not_a_cursor_changes_nothing(cursor: Run, store: ScyllaCursorStore, text: str) -> None:
    store.set_cursor("billing", at(2))
    for action in (("set",), ("reset", "--reason", "test")):
        ran = cursor(action[0], "billing", text, *action[1:])
        assert ran.code == 5
        assert "not a cursor of rscylla" in ran.error
    assert store.list_cursors()[0].epoch == 0
    assert store.get_cursor("billing") == at(2)


def test_reset_goes_back_and_keeps_the_reason(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing", at(2))
    assert cursor("reset", "billing", at(1), "--reason", "replay after a bug").out == [at(1)]
    assert cursor("get", "billing").out == [at(1)]
    history = cursor("get", "billing", "--history", "--json").objects
    assert [(line["epoch"], line["cursor"], line["reason"]) for line in history] == [
        (1, at(1), "replay after a bug"),
        (0, at(2), ""),
    ]
    assert cursor("get", "billing", "--history").out[0].endswith("reset: replay after a bug")


def test_history_distinguishes_takeovers_from_resets(cursor: Run, store: ScyllaCursorStore, shop: Shop) -> None:
    lease = ScyllaLease(shop.session, shop.keyspace, "billing", owner="pod-1", create=True)
    lease.acquire()
    ScyllaCursorStore(shop.session, shop.keyspace, lease=lease).set_cursor("billing", at(1))
    store.reset_cursor("billing", at(2), reason="skip")
    reset, takeover = cursor("get", "billing", "--history").out
    assert reset.endswith("  reset: skip")
    assert takeover.endswith("  takeover: lease 'billing', epoch 1, acquired by pod-1")
    assert [line["takeover"] for line in cursor("get", "billing", "--history", "--json").objects] == [False, True]


def test_reset_to_the_oldest(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing", at(2))
    assert cursor("reset", "billing", "oldest", "--reason", "all again").out == ["oldest"]
    assert store.get_cursor("billing") == ""


def test_reset_needs_a_reason(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing", at(2))
    assert cursor("reset", "billing", at(1)).code == 2
    ran = cursor("reset", "billing", at(1), "--reason", " ")
    assert ran.code == 2
    assert "a reset requires a reason" in ran.error
    assert store.get_cursor("billing") == at(2)


def test_time_is_a_cursor_of_a_table(cursor: Run, run: Run, shop: Shop) -> None:
    shop.insert(1, 2, 3)
    tail = ("tail", shop.orders, "--lag", "0", "--to-head", "--host", shop.host, "--json")
    moment = run(*tail).objects[1]["timestamp"]
    ran = cursor("reset", "billing", moment, "--of", shop.orders, "--reason", "replay")
    assert ran.code == 0
    rest = run(*tail, "--consumer", "billing", "--store", shop.keyspace).objects
    assert [line["metadata"]["key"]["id"] for line in rest] == [2, 3]


def test_reslice_starts_each_slice_at_the_lowest_it_takes_over(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing[0/2]", at(3))
    store.set_cursor("billing[1/2]", at(2))
    ran = cursor("reslice", "billing", "--from", "2", "--to", "3", "--json")
    assert [(o["consumer"], o["cursor"]) for o in ran.objects] == [
        ("billing[0/3]", at(3)),
        ("billing[1/3]", at(2)),
        ("billing[2/3]", at(2)),
    ]
    assert [store.get_cursor(f"billing[{i}/3]") for i in range(3)] == [at(3), at(2), at(2)]
    assert cursor("reslice", "billing", "--from", "2", "--to", "1").out[1].split() == ["billing", *at(2).split()]


def test_reslice_refuses_what_would_lose_or_go_back(cursor: Run, store: ScyllaCursorStore) -> None:
    store.set_cursor("billing", at(2))
    store.set_cursor("billing[1/2]", at(3))
    ran = cursor("reslice", "billing", "--from", "2", "--to", "1")
    assert (ran.code, "'billing[0/2]' has no cursor" in ran.error) == (5, True)
    ran = cursor("reslice", "billing", "--from", "1", "--to", "2")
    assert (ran.code, "ahead of the old slices" in ran.error) == (5, True)
    assert store.get_cursor("billing[0/2]") == ""
    assert cursor("reslice", "billing", "--from", "1", "--to", "2", "--rewind", "--reason", "again").code == 0
    assert cursor("reslice", "billing", "--from", "1", "--to", "1").code == 2
    assert cursor("reslice", "billing", "--from", "0", "--to", "1").code == 2


def test_missing_cursor_table(run: Run, shop: Shop) -> None:
    ran = run("cursor", "list", "--store", shop.keyspace, "--host", shop.host)
    assert ran.code == 4
    assert "no cursor table" in ran.error
