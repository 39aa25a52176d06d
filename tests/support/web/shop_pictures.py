"""Makes event-sourcing-light.png and event-sourcing-dark.png of the page of the shop: shop_pictures.py docs.

It needs what the tox environment "web" has.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

from browsing import MISSING, chromium, opening
from runningshop import RunningShop, running_shop

from rscylla.eventsourcing import AggregateID, EventRecord

STEPS = {
    "confirm": None,
    "ship": {"carrier": "DHL", "tracking_number": "JD014600003SE"},
    "deliver": {"signed_by": "A. Berg"},
    "cancel": {"reason": "ordered twice"},
}


def fill(shop: RunningShop) -> str:
    """Let some orders go their ways, and one event be unreadable; return the id of the order to show."""
    for key, first, last in (("anna-berg", "Anna", "Berg"), ("bert-ek", "Bert", "Ek")):
        body = {"customer_id": key, "email": f"{key}@example.com", "first_name": first, "last_name": last}
        shop.do("POST", "/api/customers", body)
    for number, customer, product, quantity, steps in (
        (1038, "anna-berg", "tea-100", 3, "confirm pay ship deliver"),
        (1039, "bert-ek", "pot", 1, "confirm cancel"),
        (1040, "anna-berg", "cup", 4, "confirm"),
        (1041, "bert-ek", "strainer", 1, ""),
        (1042, "anna-berg", "pot", 1, "confirm pay ship"),
    ):
        order = f"order-{number}"
        items = [{"product_id": product, "quantity": quantity}]
        shop.do("POST", "/api/orders", {"order_id": order, "customer_id": customer, "items": items}, X_User="web")
        for step in steps.split():
            pay = {"amount": shop.get(f"/api/orders/{order}")["total"], "reference": f"pay-{number}"}
            shop.do("POST", f"/api/orders/{order}/{step}", pay if step == "pay" else STEPS[step], X_User="web")
    record = (AggregateID("order", "order-1043"), 1, uuid.uuid4(), "OrderGiftWrapped", 1, "{}", datetime.now(UTC))
    shop.shop.store.append([EventRecord(*record)])
    shop.until(lambda: len(shop.get("/api/operations")["letters"]) == 2, "the unreadable event set aside")
    return order


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of the page of the shop.")
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    executable = chromium()
    if executable is None:
        sys.exit(MISSING)
    with running_shop(pay_within=timedelta(minutes=30)) as shop, opening(executable) as open_page:
        order = fill(shop)
        for scheme in ("light", "dark"):
            shown = open_page(shop.url, color_scheme=scheme, viewport={"width": 1200, "height": 800})
            shown.page.goto(shop.url)
            shown.page.get_by_role("button", name=f"Events of order {order}").click()
            shown.until("document.querySelectorAll('#stream tbody tr').length === 4")
            shown.until("document.querySelectorAll('#letters tbody tr').length === 2")
            shown.page.screenshot(path=directory / f"event-sourcing-{scheme}.png", full_page=True)


if __name__ == "__main__":
    main()
