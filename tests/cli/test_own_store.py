"""``--store MODULE:FUNCTION``: commands on a cursor store of the user's own, that of the examples."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import rscylla
from cursorstore import MemoryCursorStore

from .conftest import Ran, Run, Shop

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAME = "sqlite_store:open_store"
NOWHERE = ("--host", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def sqlite_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("CURSORS_DB", str(tmp_path / "cursors.db"))


@pytest.fixture
def cursor(run: Run) -> Run:
    def command(action: str, *arguments: str) -> Ran:
        return run("cursor", action, *arguments, "--store", NAME, *NOWHERE)

    return command


def at(second: int) -> str:
    return str(rscylla.EventID(1_795_000_000_000, 1_795_000_000_000_000 + second * 1_000_000))


def test_cursors_are_managed_without_a_cluster(cursor: Run) -> None:
    assert cursor("set", "billing", at(2)).out == [at(2)]
    assert cursor("get", "billing").out == [at(2)]
    assert cursor("reset", "billing", at(1), "--reason", "replay").out == [at(1)]
    assert cursor("set", "billing", at(0)).code == 5
    history = cursor("get", "billing", "--history", "--json").objects
    assert [(line["epoch"], line["cursor"], line["reason"]) for line in history] == [
        (1, at(1), "replay"),
        (0, at(2), ""),
    ]
    assert cursor("reslice", "billing", "--from", "1", "--to", "2").code == 0
    names = [line["consumer"] for line in cursor("list", "--json").objects]
    assert names == ["billing", "billing[0/2]", "billing[1/2]"]


def test_a_consumer_without_a_cursor_is_said_to_have_none_there(cursor: Run) -> None:
    ran = cursor("get", "nobody")
    assert ran.code == 5
    assert f"has no cursor in {NAME}" in ran.error


def test_a_time_is_made_a_cursor_by_the_table_that_is_read(run: Run, shop: Shop) -> None:
    ran = run(
        *("cursor", "reset", "billing", "2026-11-21T10:00:00Z", "--of", shop.orders, "--reason", "test"),
        *("--store", NAME, "--host", shop.host),
    )
    assert ran.code == 0
    assert ran.out[0].startswith("{")


def of_module(monkeypatch: pytest.MonkeyPatch, made: Callable[[], object] | object) -> str:
    module = types.ModuleType("store_of_this_test")
    module.made = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"{module.__name__}:made"


class NoAdmin(MemoryCursorStore):
    find_cursor = cursor_history = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (7, "is not a function; name a function that returns a cursor store"),
        (
            object,
            "the returned object of type object lacks these methods of",
        ),
        (
            NoAdmin,
            "CursorStore and CursorAdmin: find_cursor",
        ),
    ],
)
def test_an_object_that_is_not_a_store_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, made: object, said: str
) -> None:
    ran = run("cursor", "list", "--store", of_module(monkeypatch, made), *NOWHERE)
    assert ran.code == 2
    assert said in ran.error


@pytest.mark.parametrize("name", ["sqlite_store:", ":open_store", "no_such:f", "sqlite_store:no_such"])
def test_a_name_that_leads_nowhere_is_refused(run: Run, name: str) -> None:
    ran = run("cursor", "list", "--store", name, *NOWHERE)
    assert ran.code == 2
    assert f"--store {name}: " in ran.error


def test_the_store_is_closed_at_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Store(MemoryCursorStore):
        def close(self) -> None:
            closed.append(True)

    name = of_module(monkeypatch, Store)
    assert run("cursor", "list", "--store", name, *NOWHERE).code == 0
    assert run("cursor", "get", "nobody", "--store", name, *NOWHERE).code == 5
    assert closed == [True, True]
    doctor = ("doctor", "shop.orders", "--store", name, *NOWHERE)
    assert run(*doctor).code == 2
    assert run(*doctor, "--consumer", "billing").code == 3
    assert closed == [True] * 4


def test_tail_continues_where_the_store_says(run: Run, shop: Shop) -> None:
    shop.insert(1, 2, 3)
    command = (
        *("tail", shop.orders, "--lag", "0", "--host", shop.host, "--json", "--from", "oldest"),
        *("--consumer", "audit", "--store", NAME),
    )
    first = run(*command, "--limit", "2")
    assert [line["metadata"]["key"]["id"] for line in first.objects] == [1, 2]
    again = run(*command, "--to-head")
    assert [line["metadata"]["key"]["id"] for line in again.objects] == [3]


def test_an_empty_store_that_has_a_length_is_the_store(run: Run, monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    class Sized(MemoryCursorStore):
        def __len__(self) -> int:
            return len(self.list_cursors())

    store = Sized()
    name = of_module(monkeypatch, lambda: store)
    shop.insert(1)
    ran = run(
        *("tail", shop.orders, "--lag", "0", "--host", shop.host, "--json", "--from", "oldest", "--limit", "1"),
        *("--consumer", "audit", "--store", name),
    )
    assert (ran.code, len(store)) == (0, 1), ran.err


def test_replicate_continues_where_the_store_says(run: Run, shop: Shop, cursor: Run) -> None:
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    shop.cql(f"CREATE KEYSPACE {shop.keyspace}_own WITH replication = {replication}")
    shop.insert(1, 2, 3)
    command = (
        *("replicate", f"{shop.keyspace}.orders", f"{shop.keyspace}_own.orders", "--lag", "0.001", "--host", shop.host),
        *("--to-head", "--create", "--json", "--consumer", "copy", "--store", NAME),
    )
    first = run(*command)
    assert (first.code, first.objects[-1]["applied"]) == (0, 3)
    assert cursor("get", "copy").out == [first.objects[-1]["cursor"]]
    shop.insert(4)
    assert run(*command).objects[-1]["applied"] == 1


def test_doctor_checks_the_cursor_of_a_custom_store(run: Run, cursor: Run, shop: Shop) -> None:
    doctor = ("doctor", shop.orders, "--host", shop.host, "--json", "--store", NAME)
    ran = run(*doctor, "--consumer", "billing")
    assert [o["severity"] for o in ran.objects if o["check"] == "cursor"] == ["warn"]
    cursor("set", "billing", rscylla.GetCursor(shop.session, shop.keyspace, "orders"))
    ran = run(*doctor, "--consumer", "billing")
    assert (ran.code, [o["severity"] for o in ran.objects if o["check"] == "cursor"]) == (0, ["ok"])
    assert not any(o["check"] == "cursor table" for o in ran.objects)
    assert run(*doctor).code == 2
