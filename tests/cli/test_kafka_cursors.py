"""``rscylla cursor`` and ``rscylla kafka snapshot`` by the properties of a connector; tests/kafka has one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mockkafka import MockKafka

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.kafka import KafkaCursorStore

from .conftest import Ran, Run, Shop


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockKafka]:
    monkeypatch.setattr(KafkaCursorStore, "_check_policy", lambda self, admin: None)  # the mock cluster knows none
    with MockKafka(partitions=2) as cluster:
        cluster.create("rscylla_cursors", 2)
        yield cluster


class Operator:
    """Runs commands on a connector whose properties are in a file."""

    def __init__(self, run: Run, shop: Shop, folder: Path, servers: str) -> None:
        self._run = run
        self._servers = servers
        self.file = folder / "connector.properties"
        self.file.write_text(
            f"topic.prefix=demo\nscylla.cluster.ip.addresses={shop.host}\nscylla.table.names={shop.orders}\n"
        )
        self.worker = folder / "connect-distributed.properties"
        self.worker.write_text(f"exactly.once.source.support=enabled\nbootstrap.servers={servers}\n")
        self.consumer = f"demo.{shop.orders}"

    def __call__(self, *arguments: str) -> Ran:
        return self._run(*arguments, "--properties", str(self.file), "--worker", str(self.worker))


@pytest.fixture
def operator(run: Run, shop: Shop, tmp_path: Path, kafka: MockKafka) -> Operator:
    return Operator(run, shop, tmp_path, kafka.servers)


@pytest.mark.slow
def test_cursors_in_kafka_are_listed_shown_and_moved(operator: Operator, shop: Shop) -> None:
    consumer, head = operator.consumer, rscylla.GetCursor(shop.session, shop.keyspace, "orders", datetime.now(UTC))
    assert operator("cursor", "list", "--json").objects == []
    ran = operator("cursor", "get", consumer)
    assert (ran.code, f"no cursor in {operator.file}" in ran.error) == (5, True)
    ran = operator("cursor", "set", consumer, head)
    assert (ran.code, ran.out) == (0, [head])
    lower = operator("cursor", "set", consumer, "oldest")
    assert lower.code == 5, lower.err
    ran = operator("cursor", "reset", consumer, "2026-11-21T10:00:00Z", "--of", shop.orders, "--reason", "replay")
    assert ran.code == 0, ran.err
    [moved] = ran.out
    assert moved != head
    assert operator("cursor", "get", consumer).out == [moved]
    history = operator("cursor", "get", consumer, "--history", "--json").objects
    assert [(r["epoch"], r["cursor"], r["reason"]) for r in history] == [(1, moved, "replay"), (0, head, "")]
    [listed] = operator("cursor", "list", "--json").objects
    assert (listed["consumer"], listed["cursor"], listed["epoch"]) == (consumer, moved, 1)
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    store.create_schema()
    assert store.list_cursors() == []


@pytest.mark.slow
def test_a_snapshot_is_requested_where_the_connector_looks(
    operator: Operator, shop: Shop, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = operator("kafka", "snapshot", shop.orders)
    assert (ran.code, "there is nobody to ask" in ran.error) == (2, True)
    head = rscylla.GetCursor(shop.session, shop.keyspace, "orders")
    assert operator("cursor", "set", operator.consumer, head).code == 0
    fenced: list[str] = []
    begin = KafkaCursorStore._begin

    def began(self: KafkaCursorStore, lane: object) -> None:
        fenced.append(lane.publisher._id)  # type: ignore[attr-defined]
        begin(self, lane)  # type: ignore[arg-type]

    monkeypatch.setattr(KafkaCursorStore, "_begin", began)
    ran = operator("kafka", "snapshot", shop.orders, "--reason", "a new search index", "--json")
    name = f"{operator.consumer}/snapshot"
    assert (ran.code, ran.objects) == (0, [{"snapshot": name}])
    assert fenced == [f"rscylla-rscylla_cursors/{operator.consumer}"]  # that of the lane, which then looks again
    kept = {r["consumer"]: r["reason"] for r in operator("cursor", "list", "--json").objects}
    assert kept == {operator.consumer: "", name: "a new search index"}


def test_in_at_least_once_mode_the_properties_name_the_table(operator: Operator, run: Run, shop: Shop) -> None:
    operator.worker.write_text("")
    ran = operator("cursor", "list")
    assert (ran.code, "give --store KEYSPACE, too" in ran.error) == (2, True)
    head = rscylla.GetCursor(shop.session, shop.keyspace, "orders")
    store = ScyllaCursorStore(shop.session, shop.keyspace, "kept")
    store.create_schema()
    store.set_cursor(operator.consumer, head)
    operator.worker.write_text("rscylla.store.table=kept\n")
    assert operator("cursor", "get", operator.consumer, "--store", shop.keyspace).out == [head]
    operator.worker.write_text(f"rscylla.store.table=kept\nrscylla.store.keyspace={shop.keyspace}\n")
    assert operator("cursor", "get", operator.consumer).out == [head]
    sliced = operator("cursor", "reslice", operator.consumer, "--from", "1", "--to", "2", "--json")
    assert [line["cursor"] for line in sliced.objects] == [head, head], sliced.err


def test_what_does_not_go_together_is_one_line(operator: Operator, run: Run, shop: Shop) -> None:
    assert "leave out --store" in operator("cursor", "list", "--store", shop.keyspace).error
    assert "number of slices cannot" in operator("cursor", "reslice", "c", "--from", "1", "--to", "2").error
    assert "--worker needs --properties" in run("cursor", "list", "--worker", str(operator.worker)).error
    operator.worker.write_text("exactly.once.source.support=enabled\n")
    assert "bootstrap.servers is missing" in operator("cursor", "list").error
