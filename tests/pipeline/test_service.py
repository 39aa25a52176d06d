"""A service over a cluster: tables, a lease, dead letters, a breaker; it shows what rules and panels ask for."""

from __future__ import annotations

import http.client
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaLease
from rscylla.abc import BatchProgress
from rscylla.cdc.log import source as source_module
from rscylla.reflex.telemetry.batch_metrics import batch_metrics_for

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
RULES = MONITORING / "prometheus-rules.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"
LAG = rscylla.StreamLag(milliseconds=100)
PATIENCE_S = 60.0
QUICK = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until *condition* holds; only a minute without it is a failure."""
    clock, never = rscylla.SystemClock(), rscylla.Stop()
    deadline = clock.monotonic() + PATIENCE_S
    while not condition():
        assert clock.monotonic() < deadline, f"a minute passed without: {what}"
        clock.wait(never, 0.01)


class Shop:
    """Two tables with CDC, and a service that reads both: a replica of any number."""

    def __init__(self, session: rscylla.Session, keyspace: str) -> None:
        self.session = session
        self.keyspace = keyspace
        self.seen: list[tuple[str, int]] = []
        self.refuses: set[int] = set()
        self.down = threading.Event()
        self.lock = threading.Lock()
        for table in ("orders", "parcels"):
            session.execute(
                f"CREATE TABLE {keyspace}.{table} (id int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
            )

    def write(self, table: str, *ids: int) -> None:
        for one in ids:
            self.session.execute(f"INSERT INTO {self.keyspace}.{table} (id, v) VALUES (%s, 1)", (one,))

    def ids(self, table: str) -> list[int]:
        with self.lock:
            return sorted({one for name, one in self.seen if name == table})

    def service(self, registry: CollectorRegistry, on_expired: str = "raise", **more: Any) -> rscylla.Service:
        lease = ScyllaLease(self.session, self.keyspace, "shop", ttl=timedelta(seconds=20), create=True)
        store = BufferedCursorStore(ScyllaCursorStore(self.session, self.keyspace, create=True, lease=lease))
        letters = ScyllaDeadLetters(self.session, self.keyspace, create=True)
        breaker = rscylla.CircuitBreaker(
            "warehouse",
            outage=ConnectionError,
            failures=2,
            reset_after=timedelta(milliseconds=20),
            backoff=QUICK,
            registry=registry,
        )
        specs = [
            rscylla.Spec(
                rscylla.NewStream(
                    self.session,
                    self.keyspace,
                    table,
                    progress_every=timedelta(milliseconds=100),
                    on_expired=on_expired,  # type: ignore[arg-type]
                ),
                store,
                rscylla.dead_letter(
                    breaker.guard(rscylla.Consumer(table, self._consumer(table), registry=registry)),
                    letters,
                    retries=2,
                    backoff=QUICK,
                ),
                LAG,
                registry=registry,
            )
            for table in ("orders", "parcels")
        ]
        return rscylla.Service(specs, lease=lease, dead_letters=letters, registry=registry, port=0, **more)

    def _consumer(self, table: str) -> Callable[[rscylla.Event, rscylla.Fate], None]:
        def consume(event: rscylla.Event, fate: rscylla.Fate) -> None:
            if self.down.is_set():
                raise ConnectionError("refused")
            if event.key["id"] in self.refuses:
                raise ValueError("a bad order")
            with self.lock:
                self.seen.append((table, event.key["id"]))

        return consume


@pytest.fixture
def shop(session: rscylla.Session, keyspace: str) -> Shop:
    return Shop(session, keyspace)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def page(service: rscylla.Service, path: str, accept: str = "") -> str:
    assert service.address is not None
    host, port = service.address
    request = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def samples(service: rscylla.Service) -> dict[tuple[str, ...], float]:
    """Return a scrape's values by name and label values."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page(service, "/metrics"))
        for sample in family.samples
    }


def expressions() -> Iterator[tuple[str, str]]:
    """Yield all queries of the rules and of the dashboard, with where they are."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rscylla|reflex)_[a-z0-9_]+", expression))


def test_what_rules_and_dashboard_ask_for_is_in_the_scrape_of_a_running_service(
    shop: Shop, registry: CollectorRegistry
) -> None:
    shop.refuses.add(3)
    queries = batch_metrics_for(registry)
    queries.query("lake").started()
    span = {"start_us": 1, "watermark_us": 2, "head_us": 3}
    queries(BatchProgress(query="lake", batch="1", **span, rows=4, seconds=5, windows_behind=6, log_ttl_s=7))
    with shop.service(registry) as service:
        shop.write("orders", 1, 2, 3, 4)
        until(lambda: shop.ids("orders") == [1, 2, 4], "the orders that can be handled")
        until(lambda: samples(service).get(("rscylla_log_ttl_seconds", "parcels")) == 86_400, "both streams are open")
        until(lambda: ("rscylla_dead_letters", "orders") in samples(service), "dead letters were counted")
        there = {name for name, *_ in samples(service)}
        text = page(service, "/metrics", "application/openmetrics-text")
    # Counters of what has not happened yet have no sample before it does; their family is there.
    families = {family.name for family in parse_openmetrics(text)}
    there |= {f"{name}_total" for name in families}
    there |= {name for name in families if name.startswith("rscylla_group_")}  # of a service without a group
    asked = list(expressions())
    assert len(asked) > 30
    missing = {(where, name) for where, expression in asked for name in metrics_in(expression) - there}
    assert missing == set()
    assert all(metrics_in(expression) for _, expression in asked)


def test_rules_are_whole() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
    text = (MONITORING.parent / "services.md").read_text()
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in text] == [], "each is told in services.md"


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard, "Grafana gives it one"
    variables = {one["name"]: one["type"] for one in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "consumer": "query"}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_poison_goes_to_the_dead_letters_and_an_outage_does_not(shop: Shop, registry: CollectorRegistry) -> None:
    shop.refuses.add(2)
    with shop.service(registry) as service:
        shop.write("orders", 1, 2)
        shop.write("parcels", 7)
        until(lambda: shop.ids("orders") == [1] and shop.ids("parcels") == [7], "what can be handled")
        shop.down.set()
        shop.write("orders", 5, 6)
        shop.write("parcels", 8)
        until(lambda: samples(service)["rscylla_circuit_breaker_state", "warehouse"] > 0, "the breaker is open")
        assert json.loads(page(service, "/healthz"))["status"] == "ok"
        shop.down.clear()
        until(lambda: shop.ids("orders") == [1, 5, 6] and shop.ids("parcels") == [7, 8], "all but the bad order")
        assert json.loads(page(service, "/readyz"))["status"] == "ok"
    letters = ScyllaDeadLetters(shop.session, shop.keyspace)
    assert [letter.event.key for letter in letters.list_letters()] == [{"id": 2}]
    assert samples_of(registry)["rscylla_lane_restarts_total", "orders"] == 0


def samples_of(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_replica_that_stands_by_takes_over_where_the_other_stopped(shop: Shop) -> None:
    with shop.service(CollectorRegistry()) as first:
        until(lambda: first.facts().held is True, "the first holds the lease")
        with shop.service(CollectorRegistry()) as second:
            shop.write("orders", 1, 2)
            until(lambda: shop.ids("orders") == [1, 2], "the first reads")
            until(lambda: {lane.state for lane in second.facts().lanes} == {"standby"}, "the second stands by")
            assert json.loads(page(second, "/readyz"))["status"] == "ok"
            first.stop()
            assert first.wait(timedelta(seconds=PATIENCE_S))
            shop.write("orders", 3)
            until(lambda: shop.ids("orders") == [1, 2, 3], "the second reads on")
            assert second.facts().epoch > first.facts().epoch
            assert samples(second)["rscylla_lease_held", "shop"] == 1


def test_slices_and_a_swept_lane_run_in_one_service(shop: Shop, registry: CollectorRegistry) -> None:
    store = ScyllaCursorStore(shop.session, shop.keyspace, create=True)

    def consumer(name: str) -> rscylla.Consumer:
        table = "orders" if name.startswith("billing") else "parcels"
        return rscylla.Consumer(name, shop._consumer(table), registry=registry)

    orders = rscylla.NewStream(shop.session, shop.keyspace, "orders")
    parcels = rscylla.NewStream(shop.session, shop.keyspace, "parcels")
    lanes = rscylla.fast_and_sweep(
        parcels,
        store,
        consumer("shipping"),
        fast=LAG,
        sweep=rscylla.StreamLag(milliseconds=400),
        force=True,
        registry=registry,
    )
    slices = rscylla.slice_specs("billing", 2, orders, store, consumer, LAG, registry=registry)
    with rscylla.Service([slices, lanes], registry=registry, port=0) as service:
        shop.write("orders", *range(10))
        shop.write("parcels", *range(10))
        until(lambda: shop.ids("orders") == shop.ids("parcels") == list(range(10)), "all of both")
        states = {name[1] for name, value in samples(service).items() if name[0] == "rscylla_lane_state" and value}
        assert states == {"billing[0/2]", "billing[1/2]", "shipping", "shipping[fast]"}
    assert service.exit_code == 0


def test_the_cursors_are_saved_when_it_stops(shop: Shop, registry: CollectorRegistry) -> None:
    with shop.service(registry):
        shop.write("orders", 1)
        shop.write("parcels", 2)
        until(lambda: shop.ids("orders") == [1] and shop.ids("parcels") == [2], "all")
    saved = {record.consumer for record in ScyllaCursorStore(shop.session, shop.keyspace).list_cursors()}
    assert saved == {"orders", "parcels"}
    before = list(shop.seen)
    again = CollectorRegistry()
    with shop.service(again):
        shop.write("orders", 9)
        until(lambda: 9 in shop.ids("orders"), "the new order")
    assert shop.seen[len(before) :] == [("orders", 9)]


def test_a_table_whose_cdc_is_switched_off_is_not_read(
    shop: Shop, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "METADATA_EVERY_S", 0.05)

    def status() -> int:
        host, port = service.address or ("", 0)
        connection = http.client.HTTPConnection(host, port)
        connection.request("GET", "/readyz")
        return connection.getresponse().status

    with shop.service(registry, on_expired="oldest") as service:
        until(lambda: status() == 200, "both read")
        assert samples(service)["rscylla_cdc_enabled", "orders"] == 1
        shop.session.execute(f"ALTER TABLE {shop.keyspace}.orders WITH cdc = {{'enabled': false}}")
        until(lambda: status() == 503, "it is noticed")
        failed = [(check["check"], check["why"]) for check in service.ready()["checks"] if not check["ok"]]
        assert [check for check, _ in failed] == ['lane "orders"']
        assert f"CDC of {shop.keyspace}.orders is switched off" in failed[0][1]
        assert samples(service)["rscylla_cdc_enabled", "orders"] == 0
        assert samples(service)["rscylla_cdc_enabled", "parcels"] == 1
        shop.session.execute(f"ALTER TABLE {shop.keyspace}.orders WITH cdc = {{'enabled': true}}")
        until(lambda: status() == 200, "it is on again")


def test_nothing_warns_that_it_cannot_be_watched(shop: Shop, registry: CollectorRegistry) -> None:
    """The scrape has what the facts are: lag, polls, skew, TTL of both lanes."""
    with shop.service(registry) as service:
        until(lambda: all(lane.state == "streaming" for lane in service.facts().lanes), "both read")
        until(lambda: ("rscylla_watermark_lag_seconds", "parcels") in samples(service), "the watermark is known")
        found = samples(service)
        for lane in ("orders", "parcels"):
            assert found["rscylla_unsafe_lag", lane] == 1
            assert found["rscylla_log_ttl_seconds", lane] == 86_400
            assert abs(found["rscylla_clock_skew_seconds", lane]) < 60
            assert found["rscylla_poll_age_seconds", lane] >= 0
            assert found["rscylla_lane_state", lane, "streaming"] == 1
        facts = json.loads(page(service, "/status"))["lanes"][0]
        assert facts["source"] == f"{shop.keyspace}.orders"
        assert facts["dead_letters"] in (0, None)
