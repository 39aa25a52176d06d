"""The page of the event sourcing example: an order is placed, and seen to be shipped; what goes wrong is shown."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from browsing import Open, Shown

pytest.importorskip("fastapi", reason="pip install 'rscylla[examples]'")

from runningshop import RunningShop, running_shop

from rscylla.eventsourcing import AggregateID, EventRecord


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with running_shop(pay_within=timedelta(hours=1)) as shop:
        yield shop


def opened(open_page: Open, shop: RunningShop, **settings: Any) -> Shown:
    shown = open_page(shop.url, **settings)
    shown.page.goto(shop.url)
    shown.until("document.getElementById('health').className === 'good'")
    shown.until("document.querySelector('#new-order select').options.length > 0")
    return shown


def placed(shown: Shown) -> str:
    """Register a customer and place an order by the forms; return its id."""
    page = shown.page
    for label, text in (("First name", "Anna"), ("Last name", "Berg"), ("E-mail", "anna@example.com")):
        page.get_by_label(label).fill(text)
    page.get_by_role("button", name="Register").click()
    shown.until("document.getElementById('said').textContent.endsWith('is registered.')")
    page.get_by_label("Product").select_option("pot")
    page.get_by_label("Quantity").fill("2")
    page.get_by_role("button", name="Place the order").click()
    shown.until("document.getElementById('said').textContent.endsWith('is placed.')")
    order: str = page.locator("#said").inner_text().split()[1]
    return order


def test_an_order_is_placed_and_seen_to_be_shipped(open_page: Open, shop: RunningShop) -> None:
    shown = opened(open_page, shop)
    order = placed(shown)
    row = shown.page.locator("#orders tbody tr").filter(has_text=order)
    assert row.locator("td").nth(2).inner_text() == "€68.00"
    for action, state in (("Confirm", "confirmed"), ("Pay", "paid"), ("Ship", "shipped")):
        shown.page.get_by_role("button", name=f"{action} order {order}").click()
        shown.until(
            "([order, state]) => [...document.querySelectorAll('#orders tbody tr')]"
            ".some((row) => row.textContent.includes(order) && row.cells[2].textContent.startsWith(state))",
            [order, state],
        )
    assert shop.get(f"/api/orders/{order}")["status"] == "shipped"
    shown.page.get_by_role("button", name=f"Events of order {order}").click()
    shown.until("document.querySelectorAll('#stream tbody tr').length === 4")
    events = [text.split("\t")[1] for text in shown.page.locator("#stream tbody tr").all_inner_texts()]
    assert [event.split()[0] for event in events] == ["OrderCreated", "OrderConfirmed", "OrderPaid", "OrderShipped"]
    assert shown.page.get_by_role("button", name=f"Deliver order {order}").is_visible()


def test_what_is_refused_is_told(open_page: Open, shop: RunningShop) -> None:
    shown = opened(open_page, shop)
    shown.forgiven = ("409",)  # the browser logs each answer that is an error
    shown.page.get_by_role("combobox", name="Customer").fill("nobody")
    shown.page.get_by_role("button", name="Place the order").click()
    shown.until("document.getElementById('said').textContent === 'Refused: there is no such customer'")
    assert shown.page.locator("#said").get_attribute("class") == "bad"


def test_everything_can_be_done_by_keyboard(open_page: Open, shop: RunningShop) -> None:
    shown = opened(open_page, shop)
    order = placed(shown)
    shown.page.get_by_role("button", name=f"Confirm order {order}").focus()
    shown.page.keyboard.press("Enter")
    shown.until("document.getElementById('said').textContent.includes('is confirmed')")
    shown.page.get_by_role("button", name=f"Events of order {order}").focus()
    shown.page.keyboard.press("Space")
    shown.until("document.activeElement.id === 'stream-title'")


def test_a_dead_letter_is_shown_and_replayed(open_page: Open, shop: RunningShop) -> None:
    order = AggregateID("order", str(uuid.uuid4()))
    shop.shop.store.append([EventRecord(order, 1, uuid.uuid4(), "OrderGiven", 1, "{}", datetime.now(UTC))])
    shown = opened(open_page, shop)
    shown.forgiven = ("404",)
    shown.until("document.querySelectorAll('#letters tbody tr').length === 2")
    assert {f"order/{order.id}"} == set(shown.page.locator("#letters tbody td:nth-child(2)").all_inner_texts())
    shop.shop.types.upcaster("OrderGiven", 1, to=("OrderCreated", 2))(
        lambda data: {"customer_id": "anna", "items": [], "currency": "EUR"}
    )
    for left in (1, 0):
        shown.page.locator("#letters button").first.click()
        shown.until(f"document.querySelectorAll('#letters tbody tr').length === {left}")
    assert shown.page.locator("#letters").inner_text() == "None: each event was handled."
    assert shop.get(f"/api/orders/{order.id}")["total"] == 0


def test_it_asks_for_nothing_but_itself(open_page: Open, shop: RunningShop) -> None:
    shown = opened(open_page, shop)
    assert [url for url in shown.asked if not url.startswith((shop.url, "data:"))] == []
    assert shown.page.context.cookies() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(open_page: Open, shop: RunningShop, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    shown = opened(open_page, shop, color_scheme=scheme, reduced_motion="reduce")
    order = placed(shown)
    shown.page.get_by_role("button", name=f"Events of order {order}").click()
    shown.until("document.querySelectorAll('#stream tbody tr').length === 1")
    shown.page.get_by_role("button", name="Pause updates").click()
    found = Axe().run(shown.page)
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20


@pytest.mark.parametrize("width", [320, 1280])
def test_it_fits_a_phone_and_a_desk(open_page: Open, shop: RunningShop, width: int) -> None:
    shown = opened(open_page, shop, viewport={"width": width, "height": 800})
    placed(shown)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
