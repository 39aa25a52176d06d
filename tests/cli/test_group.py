"""``rscylla group`` on an embedded server, and what the other commands say about groups."""

from __future__ import annotations

from datetime import timedelta

import pytest

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaGroupTable, ScyllaLease, ScyllaMembership

from .conftest import Ran, Run, Shop


@pytest.fixture
def groups(shop: Shop) -> ScyllaGroupTable:
    table = ScyllaGroupTable(shop.session, shop.keyspace)
    table.create()
    return table


@pytest.fixture
def group(run: Run, shop: Shop, groups: ScyllaGroupTable) -> Run:
    def command(action: str, *arguments: str) -> Ran:
        return run("group", action, *arguments, "--store", shop.keyspace, "--host", shop.host)

    return command


def joined(shop: Shop, owner: str, *, slices: int = 4) -> ScyllaMembership:
    member = ScyllaMembership(
        shop.session, shop.keyspace, "workers", owner=owner, slices=slices, ttl=timedelta(minutes=10)
    )
    member.join()
    return member


def at(second: int) -> str:
    return str(rscylla.EventID(1_795_000_000_000, 1_795_000_000_000_000 + second * 1_000_000))


def saving(shop: Shop, member: ScyllaMembership, *consumers: str) -> ScyllaCursorStore:
    """Return a store of *member*, in which each slice that it holds has a cursor."""
    store = ScyllaCursorStore(shop.session, shop.keyspace, create=True, lease=member)
    for consumer in consumers:
        for index in member.held():
            store.set_cursor(rscylla.slice_name(consumer, index, 4), at(index))
    return store


def test_show_lists_members_slices_and_lags(group: Run, shop: Shop) -> None:
    a, b = joined(shop, "pod-1"), joined(shop, "pod-2")
    a.take(a.look(), {0, 1, 2})
    a.look()
    a.give(2, b.token)
    b.look()
    saving(shop, a, "billing")
    b.leave()
    lines = group("show", "workers").out
    assert lines[0] == "group workers: 1 member, 4 slices, 2 held"
    assert lines[1] == "not read: nobody holds slices 2-3"
    assert lines[3].split()[:2] == ["member", "token"]
    assert lines[4].split()[:2] == ["pod-1", a.token[:8]]
    assert lines[4].split()[-1] == "2"
    assert lines[6].endswith("lag of billing")
    slices = [line.split("  ") for line in lines[7:]]
    assert [[cell.strip() for cell in line if cell][1] for line in slices] == [
        "pod-1",
        "pod-1",
        "free (pod-2 is gone)",
        "free",
    ]
    assert lines[7].rstrip().endswith(" s")
    assert lines[9].rstrip().endswith("handed over  -")
    a.announce(["parcels", "billing"])
    a.renew()
    [shown] = group("show", "workers", "--json").objects
    assert (shown["group"], shown["count"], shown["next"]) == ("workers", 4, 0)
    assert (shown["unread"], shown["members"][0]["reads"]) == (["nobody holds slices 2-3"], ["billing", "parcels"])
    [member] = shown["members"]
    assert (member["owner"], member["held"], member["drains"]) == ("pod-1", 2, False)
    assert 0 < member["expires_in"] <= 600
    assert [(s["index"], s["held"], s["epoch"]) for s in shown["slices"]] == [
        (0, True, 1),
        (1, True, 1),
        (2, False, 2),
        (3, False, 0),
    ]
    assert (shown["slices"][2]["owner"], shown["slices"][2]["before"]) == ("pod-2", "pod-1")
    lag = shown["slices"][0]["lag"]["billing"] - shown["slices"][1]["lag"]["billing"]
    assert lag == pytest.approx(1.0, abs=0.01)
    assert shown["slices"][2]["lag"] == {}


def test_show_without_cursors_and_of_no_group(group: Run, shop: Shop) -> None:
    ran = group("show", "workers")
    assert (ran.code, "no group 'workers'" in ran.error) == (2, True)
    joined(shop, "pod-1")
    ran = group("show", "workers", "--cursors", "no_such_table")
    assert (ran.code, len(ran.out)) == (0, 11)


@pytest.mark.slow
def test_list_shows_all_groups(group: Run, shop: Shop) -> None:
    assert group("list", "--json").out == []
    a = joined(shop, "pod-1")
    a.take(a.look(), {0})
    assert group("list").out[1].split() == ["workers", "1", "4", "1"]
    assert group("list", "--json").objects == [{"group": "workers", "members": 1, "count": 4, "next": 0, "held": 1}]


def test_drain_and_undo(group: Run, shop: Shop) -> None:
    a = joined(shop, "pod-1")
    a.take(a.look(), {0, 3})
    assert group("drain", "workers", "pod-1").out == ["member pod-1 of group workers hands over 2 slices"]
    assert a.look().members[0].drains
    assert group("show", "workers").out[4].endswith("drains")
    ran = group("drain", "workers", a.token[:8], "--undo", "--json")
    assert ran.objects == [
        {"group": "workers", "member": "pod-1", "token": a.token, "drains": False, "held": [0, 3]},
    ]
    assert not a.look().members[0].drains
    ran = group("drain", "workers", "pod-9")
    assert ran.code == 2
    assert "no member 'pod-9'; its members: pod-1" in ran.error


def test_reslice_moves_the_cursors_of_the_group(group: Run, shop: Shop) -> None:
    a = joined(shop, "pod-1")
    a.take(a.look(), range(4))
    store = saving(shop, a, "audit", "billing")
    for index in range(4):
        a.give(index, "")
    ran = group("reslice", "workers", "--to", "2")
    assert ran.out == ["group workers has 2 slices; 4 cursors were moved"]
    assert ran.err == ["0 slices are held"]
    assert {r.consumer: r.cursor for r in store.list_cursors()}["billing[1/2]"] == at(2)
    assert group("reslice", "workers", "--to", "2", "--json").objects == [
        {"group": "workers", "count": 2, "next": 0, "cursors": {}}
    ]


def test_reslice_that_cannot_be_done_leaves_the_group_as_it_was(
    group: Run, shop: Shop, groups: ScyllaGroupTable
) -> None:
    a = joined(shop, "busy")
    a.take(a.look(), {0})
    saving(shop, a, "billing")
    ran = group("reslice", "workers", "--to", "2", "--timeout", "0")
    assert ran.code == 3
    assert "still hold slices after 0 s: busy" in ran.error
    assert a.look().next_count == 0
    groups.plan("workers", 4, 0, 8)
    assert "from 4 to 8 slices; finish that change first" in group("reslice", "workers", "--to", "2").error
    assert group("reslice", "workers", "--abort").out == ["group workers has 4 slices"]
    assert a.look().next_count == 0


@pytest.mark.parametrize("arguments", [(), ("--to", "2", "--abort")])
def test_reslice_needs_a_number_or_abort(group: Run, shop: Shop, arguments: tuple[str, ...]) -> None:
    ran = group("reslice", "workers", *arguments)
    assert ran.code == 2
    assert "give either --to N" in ran.error


# ---------------------------------------------------------------- the other commands


def test_cursor_reslice_refuses_a_consumer_of_a_living_group(group: Run, run: Run, shop: Shop) -> None:
    a = joined(shop, "pod-1")
    a.take(a.look(), range(4))
    store = saving(shop, a, "billing")
    of = ("--store", shop.keyspace, "--host", shop.host)
    ran = run("cursor", "reslice", "billing", "--from", "4", "--to", "2", *of)
    assert ran.code == 2
    assert f"`rscylla group reslice workers --to N --store {shop.keyspace}`" in ran.error
    assert store.find_cursor("billing[0/2]") is None
    a.leave()
    assert run("cursor", "reslice", "billing", "--from", "4", "--to", "2", *of).code == 0


def test_lease_with_the_name_of_a_group_is_no_group(group: Run, run: Run, shop: Shop) -> None:
    joined(shop, "pod-1")
    lease = ScyllaLease(shop.session, shop.keyspace, "workers", create=True)
    lease.acquire()
    ScyllaCursorStore(shop.session, shop.keyspace, create=True, lease=lease).set_cursor("whole", at(1))
    of = ("--store", shop.keyspace, "--host", shop.host)
    assert run("cursor", "reslice", "whole", "--from", "1", "--to", "2", *of).code == 0


def test_cursor_get_of_a_consumer_names_its_slices(group: Run, run: Run, shop: Shop) -> None:
    a = joined(shop, "pod-1")
    a.take(a.look(), range(4))
    saving(shop, a, "billing")
    of = ("--store", shop.keyspace, "--host", shop.host)
    assert "give one of them, such as 'billing[0/4]'" in run("cursor", "get", "billing", *of).error
    assert run("cursor", "get", "billing[1/4]", "--json", *of).objects[0]["lease"] == "workers[1/4]"


def test_doctor_tells_about_the_group_of_a_consumer(run: Run, shop: Shop, groups: ScyllaGroupTable) -> None:
    a = joined(shop, "pod-1")
    a.take(a.look(), range(4))
    saving(shop, a, "billing")

    def found() -> tuple[str, str, str]:
        asked = ("--consumer", "billing", "--store", shop.keyspace, "--host", shop.host, "--json")
        ran = run("doctor", shop.orders, *asked)
        [finding] = [one for one in ran.objects if one["check"] == "group"]
        return finding["severity"], finding["what"], finding["do"]

    assert found() == ("ok", "group 'workers': 1 member, 4 of 4 slices held", "")
    a.give(0, "")
    assert found()[:2] == ("error", "group 'workers': 1 member, 3 of 4 slices held; nobody holds slice 0")
    groups.plan("workers", 4, 0, 8)
    assert "`rscylla group reslice workers --to 8" in found()[1]
    groups.plan("workers", 4, 8, 0)
    a.leave()
    assert found()[2] == "start its processes"
