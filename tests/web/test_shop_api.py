"""The web of the event sourcing example: commands, queries, problems, and who may ask."""

from __future__ import annotations

import json
import logging
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="pip install 'rscylla[examples]'")
pytest.importorskip("confluent_kafka", reason="pip install 'rscylla[kafka]'")

from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable
from confluent_kafka import Consumer
from eventshapes import found_in
from everywhere import all_tables
from mockkafka import MockKafka
from runningshop import RunningShop, running_shop

import rscylla
from rscylla.embedded import Statements
from rscylla.eventsourcing import AggregateID, EventRecord

ANNA = {"customer_id": "anna", "email": "anna@example.com", "first_name": "Anna", "last_name": "Berg"}
SHIP = {"carrier": "DHL", "tracking_number": "JD01"}
CUPS = [{"product_id": "cup", "quantity": 2}]


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with running_shop(pay_within=timedelta(hours=1), snapshot_every=3) as shop:
        shop.do("POST", "/api/customers", ANNA)
        yield shop


def placed(shop: RunningShop, *steps: str) -> str:
    """Return the id of a new order that went through *steps*."""
    order: str = shop.do("POST", "/api/orders", {"customer_id": "anna", "items": CUPS})["id"]
    bodies: dict[str, Any] = {
        "confirm": None,
        "pay": {"amount": 1800, "reference": "pay-1"},
        "ship": SHIP,
        "deliver": {"signed_by": "A. Berg"},
        "cancel": {"reason": "too late", "cancelled_by": "anna"},
    }
    for step in steps:
        shop.do("POST", f"/api/orders/{order}/{step}", bodies[step])
    return order


def metric(shop: RunningShop, name: str, **labels: str) -> float:
    return shop.shop.registry.get_sample_value(name, labels) or 0.0


# ---------------------------------------------------------------- commands and queries


def test_what_a_command_did_is_seen_by_the_next_query(shop: RunningShop) -> None:
    order = placed(shop, "confirm", "pay", "ship", "deliver")
    shown = shop.get(f"/api/orders/{order}")
    assert (shown["status"], shown["version"], shown["total"], shown["carrier"]) == ("delivered", 5, 1800, "DHL")
    assert order in [one["order_id"] for one in shop.get("/api/orders?customer_id=anna&status=delivered")]
    assert order not in [one["order_id"] for one in shop.get("/api/orders?status=created&status=shipped")]


def test_a_client_that_does_not_wait_is_told_that_it_may_not_see_it_yet(shop: RunningShop) -> None:
    order = placed(shop)
    late = metric(shop, "shop_visible_late_total")
    answer = shop.ask("POST", f"/api/orders/{order}/confirm", Prefer="wait=0")
    assert (answer.status, answer.content["visible"], answer.content["version"]) == (202, False, 2)
    assert metric(shop, "shop_visible_late_total") == late + 1
    shop.until(lambda: shop.get(f"/api/orders/{order}")["version"] == 2, "the order confirmed")


def test_a_command_that_is_sent_again_is_carried_out_once(shop: RunningShop) -> None:
    key = str(uuid.uuid4())
    body = {"customer_id": "anna", "items": CUPS}
    first, again = (shop.do("POST", "/api/orders", body, Idempotency_Key=key) for _ in range(2))
    assert first == again
    order = first["id"]
    confirmed = [shop.do("POST", f"/api/orders/{order}/confirm", Idempotency_Key="c") for _ in range(2)]
    assert confirmed[0] == confirmed[1]
    assert [event["type"] for event in shop.get(f"/api/orders/{order}/events")] == ["OrderCreated", "OrderConfirmed"]


def test_the_key_of_another_command_is_refused(shop: RunningShop) -> None:
    order, key = placed(shop), str(uuid.uuid4())
    shop.do("POST", f"/api/orders/{order}/confirm", Idempotency_Key=key)
    for path, body in (("cancel", {}), ("pay", {"amount": 1, "reference": "r"})):
        refused = shop.ask("POST", f"/api/orders/{order}/{path}", body, Idempotency_Key=key)
        assert (refused.status, refused.content["type"]) == (422, "/problems/key-reused")
    assert [event["type"] for event in shop.get(f"/api/orders/{order}/events")] == ["OrderCreated", "OrderConfirmed"]


def test_an_order_that_is_placed_again_is_the_same_whatever_its_customer_is_by_now(shop: RunningShop) -> None:
    shop.do("POST", "/api/customers", {**ANNA, "customer_id": "berta"})
    body, key = {"customer_id": "berta", "items": CUPS}, str(uuid.uuid4())
    first = shop.do("POST", "/api/orders", body, Idempotency_Key=key)
    shop.do("POST", "/api/customers/berta/suspend", {"reason": "owes"})
    assert shop.do("POST", "/api/orders", body, Idempotency_Key=key) == first
    assert shop.ask("POST", "/api/orders", body).content["code"] == "customer_not_active"


def test_a_command_is_refused_at_another_version_than_its_client_has_seen(shop: RunningShop) -> None:
    order = placed(shop)
    seen = shop.ask("GET", f"/api/orders/{order}").headers["etag"]
    key = str(uuid.uuid4())
    for _ in range(2):  # the answer of the first may have been lost
        shop.do("POST", f"/api/orders/{order}/confirm", If_Match=seen, Idempotency_Key=key)
    late = shop.ask("POST", f"/api/orders/{order}/cancel", {}, If_Match=seen)
    assert (late.status, late.content["type"]) == (409, "/problems/conflict")
    assert late.content["detail"].endswith("has version 2, and not 1; load it again, and decide again")
    shop.do("POST", f"/api/orders/{order}/cancel", {}, If_Match='"2"')
    assert shop.ask("POST", f"/api/orders/{order}/cancel", {}, If_Match="2").status == 422


def test_events_keep_who_asked_and_what_they_belong_to(shop: RunningShop) -> None:
    headers = {"Idempotency_Key": "k1", "X_Correlation_ID": "campaign-7", "X_User": "support"}
    order = shop.do("POST", "/api/orders", {"customer_id": "anna", "items": CUPS}, **headers)["id"]
    (event,) = shop.get(f"/api/orders/{order}/events")
    assert (event["causation_id"], event["correlation_id"], event["user"]) == ("k1", "campaign-7", "support")
    assert event["data"]["items"] == [{"product_id": "cup", "quantity": 2, "unit_price": 900}]


def test_a_customer_is_changed_and_shown(shop: RunningShop) -> None:
    bert = shop.do("POST", "/api/customers", ANNA | {"customer_id": "bert"})["id"]
    home = {"street": "Kajen 3", "city": "Lund", "postal_code": "22100", "country": "SE"}
    for method, path, body in (
        ("PUT", "profile", {"first_name": "Bert", "last_name": "Ek"}),
        ("PUT", "email", {"email": "b@example.com"}),
        ("PUT", "phone", {"phone": "+46"}),
        ("POST", "addresses", home | {"address_id": "home", "is_default": True}),
        ("PUT", "addresses/home", home | {"city": "Malmö"}),
        ("POST", "payment-methods", {"method_id": "card", "token": "tok_1"}),
        ("DELETE", "payment-methods/card", None),
        ("PUT", "tier", {"tier": "gold"}),
        ("POST", "suspend", {"reason": "fraud"}),
        ("POST", "reactivate", {}),
    ):
        shop.do(method, f"/api/customers/{bert}/{path}", body)
    shown = shop.ask("GET", f"/api/customers/{bert}")
    assert shown.headers["etag"] == '"11"'
    assert shown.content == {
        "customer_id": "bert",
        "version": 11,
        "email": "b@example.com",
        "first_name": "Bert",
        "last_name": "Ek",
        "phone": "+46",
        "status": "active",
        "tier": "gold",
        "addresses": {"home": home | {"city": "Malmö"}},
        "default_address": "home",
        "payment_methods": [],
    }


def test_a_customer_who_is_forgotten_is_forgotten_in_the_orders_too(shop: RunningShop) -> None:
    shop.do("POST", "/api/customers", ANNA | {"customer_id": "carl"})
    order = shop.do("POST", "/api/orders", {"customer_id": "carl", "items": CUPS})["id"]
    for step, body in (
        ("confirm", None),
        ("pay", {"amount": 1800, "reference": "p"}),
        ("ship", {"carrier": "DHL", "tracking_number": "1"}),
        ("deliver", {"signed_by": "Carl Ek"}),
    ):
        shop.do("POST", f"/api/orders/{order}/{step}", body)
    assert shop.ask("DELETE", "/api/customers/carl/personal-data").status == 204
    shown = shop.get("/api/customers/carl")
    assert (shown["first_name"], shown["email"], shown["status"]) == ("[forgotten]", "[forgotten]", "active")
    everything = json.dumps([shop.get(f"/api/orders/{order}/events"), shop.get(f"/api/orders/{order}")])
    rows = " ".join(row.data or "" for row in shop.session.execute('SELECT data FROM shop."events"'))
    assert "Carl Ek" not in everything + rows
    refused = shop.ask("PUT", "/api/customers/carl/email", {"email": "carl@example.com"})
    assert (refused.status, refused.content["type"]) == (409, "/problems/forgotten")


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("steps", "path", "body", "code"),
    [
        ((), "ship", {"carrier": "DHL", "tracking_number": "1"}, "not_confirmed"),
        (("confirm",), "ship", {"carrier": "DHL", "tracking_number": "1"}, "not_paid"),
        (("confirm",), "pay", {"amount": 1, "reference": "p"}, "wrong_amount"),
        (("cancel",), "confirm", None, "already_cancelled"),
    ],
)
def test_a_rule_that_is_broken_is_named(
    shop: RunningShop, steps: tuple[str, ...], path: str, body: Any, code: str
) -> None:
    order = placed(shop, *steps)
    answer = shop.ask("POST", f"/api/orders/{order}/{path}", body)
    assert answer.status == 409
    assert (answer.content["type"], answer.content["code"]) == ("/problems/rule-broken", code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(shop.get(f"/api/orders/{order}/events")) == 1 + len(steps), "nothing was written"


def test_an_order_needs_an_active_customer_and_a_product(shop: RunningShop) -> None:
    shop.do("POST", "/api/customers", ANNA | {"customer_id": "dora"})
    shop.do("POST", "/api/customers/dora/suspend", {"reason": "fraud"})
    for body, code in (
        ({"customer_id": "nobody", "items": CUPS}, "no_customer"),
        ({"customer_id": "dora", "items": CUPS}, "customer_not_active"),
        ({"customer_id": "anna", "items": [{"product_id": "gold", "quantity": 1}]}, "no_product"),
    ):
        answer = shop.ask("POST", "/api/orders", body)
        assert (answer.status, answer.content["code"]) == (409, code)


def test_what_does_not_exist_is_not_found(shop: RunningShop) -> None:
    for method, path in (
        ("GET", "/api/orders/none"),
        ("GET", "/api/orders/none/events"),
        ("POST", "/api/orders/none/confirm"),
        ("GET", "/api/customers/none"),
    ):
        answer = shop.ask(method, path)
        assert (answer.status, answer.content["type"]) == (404, "/problems/not-found"), path
    assert shop.ask("GET", "/api/nothing").headers["content-type"] == "application/problem+json"


def test_a_malformed_request_is_told_where_and_not_repeated(shop: RunningShop) -> None:
    secret = "4111 1111 1111 1111"
    body = {"customer_id": "anna", "items": [{"product_id": "cup", "quantity": 0, "card": secret}]}
    answer = shop.ask("POST", "/api/orders", body)
    assert (answer.status, answer.content["type"]) == (422, "/problems/invalid")
    assert sorted(one["at"][-1] for one in answer.content["errors"]) == ["card", "quantity"]
    assert secret not in json.dumps(answer.content)


@pytest.mark.parametrize(
    "error", [NoHostAvailable("no host", {}), OperationTimedOut(), rscylla.QueryTimeout("no answer in time")]
)
def test_a_database_that_does_not_answer_is_no_fault_of_the_client(
    shop: RunningShop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unanswered(order_id: str) -> None:
        raise error

    monkeypatch.setattr(shop.shop, "events_of_order", unanswered)
    answer = shop.ask("GET", "/api/orders/o1/events")
    assert (answer.status, answer.content["type"]) == (503, "/problems/unavailable")
    assert answer.headers["retry-after"] == "2"


# ---------------------------------------------------------------- readers


def test_an_order_that_is_not_paid_in_time_is_cancelled_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_shop(pay_within=timedelta(hours=1)) as shop:
        shop.do("POST", "/api/customers", ANNA)
        paid = placed(shop, "confirm", "pay")
        monkeypatch.setattr(shop.shop, "payment_due_at", lambda: datetime.now(UTC) + timedelta(seconds=1))
        late = placed(shop, "confirm")
        shown = shop.until(
            lambda: next(iter(shop.get("/api/orders?status=cancelled")), None), "an order that is cancelled"
        )
        assert (shown["order_id"], shown["cancelled_because"]) == (late, "not paid in time")
        confirmed, cancelled = shop.get(f"/api/orders/{late}/events")[1:]
        assert cancelled["type"] == "OrderCancelled"
        assert cancelled["at"] >= confirmed["data"]["payment_due_at"][:19]
        assert shop.get(f"/api/orders/{paid}")["status"] == "paid"


def test_events_reach_the_broker_in_order_and_hold_nothing_personal(shop: RunningShop) -> None:
    order = placed(shop, "confirm", "pay", "ship", "deliver")
    consumer = Consumer(
        {"bootstrap.servers": shop.servers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["shop.orders", "shop.customers"])
    records: list[Any] = []

    def arrived() -> bool:
        found = consumer.poll(0.1)
        if found is not None and found.error() is None:
            records.append(found)
        mine = [one for one in records if one.key().decode() == order]
        return len(mine) == 5 and any(one.topic() == "shop.customers" for one in records)

    try:
        shop.until(arrived, "five records of the order, and one of a customer")
    finally:
        consumer.close()
    mine = [one for one in records if one.key().decode() == order]
    assert [json.loads(one.value())["version"] for one in mine] == [1, 2, 3, 4, 5]
    assert {one.topic() for one in mine} == {"shop.orders"}
    assert dict(mine[0].headers())["type"] == b"OrderCreated"
    assert b"Anna" not in b"".join(one.value() for one in records)
    assert b"A. Berg" not in b"".join(one.value() for one in records)


def test_nothing_that_people_write_is_left_anywhere_once_their_customer_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts = iter(f"Secret-{n:02d}-{uuid.uuid4().hex}" for n in range(100))
    secrets: list[str] = []

    def secret() -> str:
        secrets.append(next(texts))
        return secrets[-1]

    def address() -> dict[str, str]:
        return {"street": secret(), "city": secret(), "postal_code": secret(), "country": "SE"}

    with caplog.at_level(logging.DEBUG), running_shop(snapshot_every=2, pay_within=timedelta(hours=1)) as shop:
        name = {"first_name": secret(), "last_name": secret()}
        shop.do("POST", "/api/customers", {"customer_id": "eve", "email": f"{secret()}@x", "phone": secret(), **name})
        for method, path, body in (
            ("PUT", "profile", {"first_name": secret(), "last_name": secret()}),
            ("PUT", "email", {"email": f"{secret()}@x"}),
            ("PUT", "phone", {"phone": secret()}),
            ("POST", "addresses", address() | {"address_id": "home"}),
            ("PUT", "addresses/home", address()),
            ("POST", "payment-methods", {"method_id": "card", "token": secret()}),
            ("POST", "suspend", {"reason": secret()}),
            ("POST", "reactivate", {"notes": secret()}),
        ):
            shop.do(method, f"/api/customers/eve/{path}", body)
        orders = []
        for last in ("deliver", "cancel"):
            order = shop.do("POST", "/api/orders", {"customer_id": "eve", "items": CUPS})["id"]
            orders.append(order)
            items = [{"product_id": "cup", "quantity": 1}]
            shop.do("PUT", f"/api/orders/{order}/items", {"items": items, "reason": secret()})
            number = secret()
            for step, body in (
                ("confirm", None),
                ("pay", {"amount": 900, "reference": "pay-1"}),
                ("ship", {"carrier": "DHL", "tracking_number": number}),
                (
                    last,
                    {"signed_by": secret()} if last == "deliver" else {"reason": secret(), "cancelled_by": secret()},
                ),
            ):
                shop.do("POST", f"/api/orders/{order}/{step}", body)
            assert shop.get(f"/api/orders/{order}")["tracking_number"] == number
        shop.do("POST", "/api/customers/eve/deactivate", {"reason": secret()})
        assert shop.get("/api/orders?status=cancelled")[0]["cancelled_because"] == "on request"
        shop.shop.forget("eve")

        records = b"".join(one.value() for one in published(shop, 12 + 10))
        answers = [shop.get(f"/api/orders/{order}{path}") for order in orders for path in ("", "/events")]
        answers += [shop.get(path) for path in ("/api/customers/eve", "/api/orders?customer_id=eve", "/api/operations")]
        written = all_tables(shop.session, "shop") + records + json.dumps(answers).encode()
    assert found_in(written + caplog.text.encode(), secrets) == []


def published(shop: RunningShop, count: int) -> list[Any]:
    """Return the records of all topics, once there are *count*."""
    consumer = Consumer(
        {"bootstrap.servers": shop.servers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["shop.orders", "shop.customers"])
    records: list[Any] = []

    def arrived() -> bool:
        found = consumer.poll(0.1)
        if found is not None and found.error() is None:
            records.append(found)
        return len(records) >= count

    try:
        shop.until(arrived, f"{count} records")
    finally:
        consumer.close()
    return records


def test_an_event_that_cannot_be_read_is_set_aside_with_those_behind_it_and_replayed(shop: RunningShop) -> None:
    order = AggregateID("order", str(uuid.uuid4()))
    data = {"customer_id": "anna", "items": [{"product_id": "cup", "quantity": 1, "unit_price": 900}], "money": "EUR"}
    now = datetime.now(UTC)
    due = json.dumps({"payment_due_at": (now + timedelta(hours=1)).isoformat()})
    shop.shop.store.append(  # as a newer version of the shop would, of which this process knows nothing
        [
            EventRecord(order, 1, uuid.uuid4(), "OrderCreated", 3, json.dumps(data), now),
            EventRecord(order, 2, uuid.uuid4(), "OrderConfirmed", 1, due, now),
        ]
    )

    def letters(consumer: str) -> list[dict[str, Any]]:
        found = shop.get("/api/operations")["letters"]
        return [one for one in found if one["consumer"] == consumer and one["key"] == str(order)]

    shop.until(lambda: len(letters("orders")) == 2 and len(letters("payment-deadline")) == 2, "both set aside")
    paid = json.dumps({"amount": 900, "reference": "pay-1"})
    shop.shop.store.append([EventRecord(order, 3, uuid.uuid4(), "OrderPaid", 1, paid, now)])
    shop.until(lambda: all(len(letters(name)) >= 3 for name in ("orders", "payment-deadline")), "a later one waits")
    assert {one["error"] for one in letters("orders")} == {"UnreadableEvent", "KeyParked"}
    other = placed(shop, "confirm")
    assert shop.get(f"/api/orders/{other}")["version"] == 2, "other orders go on"
    assert shop.ask("GET", f"/api/orders/{order.id}").status == 404

    again = shop.ask("POST", "/api/operations/replay", {"consumer": "orders"})
    assert again.content == {"replayed": 0, "failed": 3}, "nothing has changed"
    shop.shop.types.upcaster("OrderCreated", 3, to=("OrderCreated", 2))(
        lambda data: {**data, "currency": data["money"]}
    )
    for consumer in (letters("orders")[0]["consumer"], "payment-deadline"):
        assert shop.ask("POST", "/api/operations/replay", {"consumer": consumer}).content == {
            "replayed": 3,  # the change of "head", which is no event, never waits
            "failed": 0,
        }
    assert shop.get(f"/api/orders/{order.id}")["version"] == 3
    assert letters("orders") == letters("payment-deadline") == []
    assert shop.ask("POST", "/api/operations/replay", {"consumer": "nobody"}).status == 404


@pytest.mark.slow
def test_outages_of_the_broker_and_of_the_read_model_are_waited_for_and_seen() -> None:
    with MockKafka() as kafka, running_shop(kafka.servers, pay_within=timedelta(hours=1)) as shop:
        shop.do("POST", "/api/customers", ANNA)
        placed(shop)

        def state_of(consumer: str) -> dict[str, Any]:
            found = {one["consumer"]: one for one in shop.get("/api/operations")["consumers"]}
            return found[consumer]

        kafka.down()
        order = placed(shop, "confirm", "pay")  # commands and queries go on
        shop.until(lambda: shop.get("/api/operations")["broker"], "the broker's trouble")
        writes = Statements(kind="insert", table="order_views_1")
        with shop.scylla.faults.fail("write_timeout", writes, times=None):
            late = shop.ask("POST", f"/api/orders/{order}/ship", SHIP, Prefer="wait=1")
            assert (late.status, late.content["version"]) == (202, 4)
            shop.until(lambda: shop.get("/api/operations")["breakers"][0]["state"] == "open", "an open breaker")
            shop.until(lambda: state_of("orders")["trouble"], "lanes that wait for the breaker")
            assert shop.get(f"/api/orders/{order}")["status"] == "paid"
        shop.until(lambda: shop.get(f"/api/orders/{order}")["status"] == "shipped", "what waited")
        assert shop.get("/api/operations")["breakers"][0]["state"] == "closed"
        kafka.up()

        def versions() -> list[int]:
            found = [json.loads(one.value) for one in kafka.read("shop.orders")]
            return list(dict.fromkeys(one["version"] for one in found if one["aggregate_id"] == order))

        shop.until(lambda: len(versions()) == 4, "the events of the outage")
        assert versions() == [1, 2, 3, 4]
        assert shop.get("/api/operations")["letters"] == []


def test_the_read_model_is_built_again_while_queries_go_on(shop: RunningShop) -> None:
    orders = {placed(shop) for _ in range(3)}
    before = shop.get("/api/operations")["read_model"]["active"]
    listed = shop.get("/api/orders?limit=200")
    assert shop.ask("POST", "/api/operations/rebuild").content == {"build": before + 1}
    orders.add(placed(shop, "confirm"))
    shop.until(lambda: shop.get("/api/operations")["read_model"]["active"] == before + 1, "the new build")
    shop.until(lambda: orders <= {one["order_id"] for one in shop.get("/api/orders?limit=200")}, "all orders")
    now = {one["order_id"]: one for one in shop.get("/api/orders?limit=200")}
    assert [now[one["order_id"]] for one in listed] == listed


def test_what_happens_is_measured(shop: RunningShop) -> None:
    done = metric(shop, "shop_commands_total", command="CancelOrder", outcome="done")
    refused = metric(shop, "shop_commands_total", command="ConfirmOrder", outcome="refused")
    seen = metric(shop, "shop_visible_seconds_count")
    order = placed(shop, "cancel")
    assert shop.ask("POST", f"/api/orders/{order}/confirm").status == 409
    assert metric(shop, "shop_commands_total", command="CancelOrder", outcome="done") == done + 1
    assert metric(shop, "shop_commands_total", command="ConfirmOrder", outcome="refused") == refused + 1
    assert metric(shop, "shop_visible_seconds_count") == seen + 2
    host, port = shop.shop.service.address or ("", 0)
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    for name in (
        "shop_command_seconds_bucket",
        "shop_read_model_build",
        "reflex_consumer_lag_seconds",
        "rscylla_circuit_breaker_state",
        "rscylla_dead_letters",
        "rscylla_group_slices_held",
    ):
        assert f"\n{name}" in text, name
    with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=60) as answer:
        assert answer.status == 200


# ---------------------------------------------------------------- who may ask


def test_commands_of_other_sites_and_names_are_refused(shop: RunningShop) -> None:
    order = placed(shop)
    for headers in (
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        answer = shop.ask("POST", f"/api/orders/{order}/confirm", **headers)
        assert (answer.status, answer.content["type"]) == (403, "/problems/foreign"), headers
    assert shop.ask("GET", "/api/orders", Host="rebound.example.com").status == 400
    assert shop.ask("POST", f"/api/orders/{order}/confirm", Origin=shop.url.rstrip("/")).status == 200
    assert len(shop.get(f"/api/orders/{order}/events")) == 2


def test_a_body_is_bounded(shop: RunningShop) -> None:
    answer = shop.ask("POST", "/api/customers", ANNA | {"customer_id": "erik", "phone": "1" * 300_000})
    assert (answer.status, answer.content["type"]) == (413, "/problems/too-large")


def test_every_answer_keeps_browsers_strict(shop: RunningShop) -> None:
    for path in ("/", "/openapi.json", "/api/orders", "/api/orders/none", "/docs"):
        headers = {name.lower(): value for name, value in shop.ask("GET", path).headers.items()}
        assert headers["content-security-policy"].startswith("default-src 'none'"), path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_openapi_describes_every_command_and_its_problems(shop: RunningShop) -> None:
    described = shop.get("/openapi.json")
    commands = [
        (path, method, about)
        for path, methods in described["paths"].items()
        for method, about in methods.items()
        if method != "get" and not path.startswith("/api/operations") and "personal-data" not in path
    ]
    assert len(commands) == 20
    for path, method, about in commands:
        assert about["description"], path
        assert {"202", "404", "409", "422", "503"} <= set(about["responses"]), (path, method)
        names = {one["name"].lower() for one in about["parameters"]}
        assert {"idempotency-key", "prefer", "x-correlation-id", "x-user"} <= names, path
    assert "ProblemDetails" in described["components"]["schemas"]
    assert "http" not in json.dumps(described["paths"]), "nothing from elsewhere"
