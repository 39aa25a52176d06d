"""``rscylla kafka import-offsets`` on an embedded server, with a file as Kafka Connect writes it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla import _timeuuid as tu

from .conftest import Ran, Run, Shop


def entries_of(shop: Shop, after_us: int) -> dict[bytes, bytes]:
    """Return the offsets of a connector all of whose vnodes are *after_us* after the generation's start."""
    source = rscylla.NewStream(shop.session, shop.keyspace, "orders").describe()
    generation = source.generations[-1]
    start = tu.min_timeuuid(generation.start_us + after_us)
    entries = {}
    for vnode in range(source.topology.vnodes(source.streams(generation)) or 0):
        partition = {"keyspace_name": shop.keyspace, "table_name": "orders", "vnode_id": str(vnode)}
        partition["generation_start"] = str(generation.time)
        key = json.dumps(["orders-connector", partition]).encode()
        entries[key] = json.dumps({"window_start": str(start), "window_end": str(start)}).encode()
    return entries


@pytest.fixture
def offsets(shop: Shop, tmp_path: Path) -> Path:
    """The file of a connector that has delivered nothing from a millisecond after the generation's start on."""
    file = tmp_path / "connect.offsets"
    file.write_bytes(serialized(entries_of(shop, 1_000)))
    return file


def serialized(entries: dict[bytes, bytes]) -> bytes:
    """Return what Java writes for a map of byte arrays."""
    name = b"\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03"
    parts = [b"\xac\xed\x00\x05sr", name, b"\x00\x02F\x00\x0aloadFactorI\x00\x09thresholdxp"]
    parts.append(struct.pack(">fi2sii", 0.75, 12, b"w\x08", 16, len(entries)))
    kind = b"r\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00xp"
    for array in (one for pair in entries.items() for one in pair):
        parts += [b"u", kind, struct.pack(">i", len(array)), array]
        kind = b"q\x00\x7e\x00\x02"
    return b"".join([*parts, b"x"])


@pytest.fixture
def take(run: Run, shop: Shop, offsets: Path) -> Run:
    def command(*arguments: str, connector: str = "orders-connector") -> Ran:
        where = ("--store", shop.keyspace, "--host", shop.host, "--file", str(offsets))
        return run("kafka", "import-offsets", connector, "--prefix", "demo", *where, *arguments)

    return command


def test_the_cursor_continues_where_the_connector_stopped(take: Run, shop: Shop) -> None:
    ran = take("--json")
    assert ran.code == 0
    [line] = ran.objects
    assert line["consumer"] == f"demo.{shop.keyspace}.orders"
    assert line["tasks"] == line["with_offset"] > 0
    saved = ScyllaCursorStore(shop.session, shop.keyspace).get_cursor(line["consumer"])
    assert saved == line["cursor"]
    generation = rscylla.NewStream(shop.session, shop.keyspace, "orders").describe().generations[-1]
    assert rscylla.EventID.parse(saved).exact_us == generation.start_us + 1_000
    assert take().code == 0  # once more is the same
    assert "consumer" in take().out[0]


def test_offsets_of_a_fast_clock_are_told(run: Run, shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(serialized(entries_of(shop, 3600_000_000)))
    where = ("--store", shop.keyspace, "--host", shop.host, "--file", str(file), "--prefix", "demo")
    ran = run("kafka", "import-offsets", "orders-connector", *where)
    assert ran.code == 0
    [warning] = [line for line in ran.err if line.startswith("warning: ")]
    assert f"offsets of {shop.orders} are 3" in warning
    assert "the clock of the connector's machine is fast" in warning
    saved = ScyllaCursorStore(shop.session, shop.keyspace).get_cursor(f"demo.{shop.orders}")
    source = rscylla.NewStream(shop.session, shop.keyspace, "orders").describe()
    assert rscylla.EventID.parse(saved).exact_us <= source.now_us()


def test_a_dry_run_saves_nothing(take: Run, shop: Shop) -> None:
    assert take("--dry-run").code == 0
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    store.create_schema()
    assert store.list_cursors() == []


def test_a_consumer_that_has_run_keeps_its_cursor(take: Run, shop: Shop) -> None:
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    store.create_schema()
    head = rscylla.GetCursor(shop.session, shop.keyspace, "orders")
    consumer = f"demo.{shop.keyspace}.orders"
    for name in (consumer, f"{consumer}[1/4]"):
        store.set_cursor(name, head)
        ran = take()
        assert ran.code == 5
        assert f"the consumer '{name}' already has a cursor" in ran.error
        assert store.get_cursor(name) == head


@pytest.fixture
def properties(shop: Shop, tmp_path: Path) -> str:
    file = tmp_path / "connector.properties"
    file.write_text(
        f"name=orders-connector\ntopic.prefix=demo\nscylla.cluster.ip.addresses={shop.host}\n"
        f"scylla.table.names={shop.orders}\n"
    )
    return str(file)


def test_the_properties_of_the_connector_say_what_options_say(
    run: Run, shop: Shop, offsets: Path, properties: str, tmp_path: Path
) -> None:
    worker = tmp_path / "connect-standalone.properties"
    worker.write_text(f"offset.storage.file.filename={offsets}\n")
    ran = run("kafka", "import-offsets", "--properties", properties, "--worker", str(worker), "--json")
    assert ran.code == 0, ran.err
    consumer = f"demo.{shop.orders}"
    assert [line["consumer"] for line in ran.objects] == [consumer]
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    assert store.get_cursor(consumer) == ran.objects[0]["cursor"]
    ran = run("kafka", "snapshot", shop.orders, "--properties", properties, "--json")
    assert (ran.code, ran.objects) == (0, [{"snapshot": f"{consumer}/snapshot"}])


def test_without_properties_options_are_needed(run: Run, shop: Shop, offsets: Path, properties: str) -> None:
    ran = run("kafka", "snapshot", shop.orders, "--prefix", "demo", "--host", shop.host)
    assert (ran.code, "give --properties FILE, or --prefix and --store" in ran.error) == (2, True)
    ran = run("kafka", "import-offsets", "--prefix", "demo", "--store", "s", "--file", str(offsets))
    assert (ran.code, "give CONNECTOR, the property 'name'" in ran.error) == (2, True)
    ran = run("kafka", "import-offsets", "--properties", properties)
    assert (ran.code, "give either --file" in ran.error) == (2, True)


def test_what_does_not_fit(take: Run, shop: Shop, run: Run) -> None:
    ran = take(connector="other")
    assert (ran.code, "there are those of 'orders-connector'" in ran.error) == (5, True)
    shop.session.execute(f"CREATE TABLE {shop.keyspace}.carts (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    ran = take("--of", f"{shop.keyspace}.carts")
    assert (ran.code, f"no offsets of {shop.keyspace}.carts" in ran.error) == (5, True)
    ran = take("--topic", "connect-offsets")
    assert (ran.code, "either --file" in ran.error) == (2, True)
    ran = run("kafka", "import-offsets", "c", "--prefix", "p", "--store", "s", "--topic", "t", "--kafka", "x")
    assert (ran.code, "--kafka x: give a property as NAME=VALUE" in ran.error) == (2, True)


def test_a_snapshot_is_requested(run: Run, shop: Shop) -> None:
    store = ScyllaCursorStore(shop.session, shop.keyspace)
    store.create_schema()
    where = (shop.orders, "--prefix", "demo", "--store", shop.keyspace, "--host", shop.host)
    ran = run("kafka", "snapshot", *where)
    assert (ran.code, "there is nobody to ask" in ran.error) == (2, True)
    consumer = f"demo.{shop.orders}"
    store.set_cursor(consumer, rscylla.GetCursor(shop.session, shop.keyspace, "orders"))
    ran = run("kafka", "snapshot", *where, "--reason", "a new search index", "--json")
    assert (ran.code, ran.objects) == (0, [{"snapshot": f"{consumer}/snapshot"}])
    assert store.find_cursor(f"{consumer}/snapshot").reason == "a new search index"  # type: ignore[union-attr]
