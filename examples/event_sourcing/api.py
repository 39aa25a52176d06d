"""Commands and queries over HTTP, described by OpenAPI, and the page.

A command answers when its events are stored and the read model shows them, so that a client that asks next sees what it
did. If that takes longer than the client waits, the answer is 202: the command is carried out all the same.

There is no page of documentation, for FastAPI's loads its scripts from elsewhere; ``/openapi.json`` describes all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import attrs
from fastapi import APIRouter, FastAPI, Path, Query, Response
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp

from . import models
from .asked import Asked, AskedBy
from .domain import customers, orders
from .domain.catalogue import PRODUCTS
from .guards import guarded
from .page import page
from .problems import RESPONSES, Problem, install
from .shop import Shop

__all__ = ["application"]

Id = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._~-]+$")]


def application(shop: Shop, names: Sequence[str] = ()) -> ASGIApp:
    """Return the web application over *shop*, answering to loopback and to *names*."""
    app = FastAPI(
        title="Tea shop",
        description="A shop that is event-sourced on ScyllaDB. Commands append events; queries read what follows.",
        version="1",
        docs_url=None,
        redoc_url=None,
    )
    app.add_api_route("/", page, include_in_schema=False, response_class=HTMLResponse)
    for router in (_orders(shop), _customers(shop), _operations(shop)):
        app.include_router(router, prefix="/api", responses=RESPONSES)
    install(app)
    return guarded(app, names)


COMMAND: dict[str, Any] = {
    "response_model": models.CommandDone,
    "responses": {202: {"model": models.CommandDone, "description": "Carried out; queries do not show it yet."}},
}


# ---------------------------------------------------------------- orders


def _orders(shop: Shop) -> APIRouter:
    router = APIRouter(tags=["orders"])

    def done(order_id: str, command: orders.OrderCommand, asked: Asked, response: Response) -> models.CommandDone:
        return _answer(shop, shop.orders_do(order_id, command, asked), asked, response)

    @router.get("/products")
    def products() -> list[dict[str, Any]]:
        """Return what can be ordered."""
        return [{"product_id": key, **attrs.asdict(product)} for key, product in PRODUCTS.items()]

    @router.post("/orders", status_code=201, **COMMAND)
    def create_order(body: models.NewOrder, asked: AskedBy, response: Response) -> models.CommandDone:
        """Place an order of an active customer."""
        items = tuple(item.value() for item in body.items)
        order_id = body.order_id or asked.new_id()
        response.headers["Location"] = f"/api/orders/{order_id}"
        return _answer(shop, shop.place(order_id, orders.CreateOrder(body.customer_id, items), asked), asked, response)

    @router.put("/orders/{order_id}/items", **COMMAND)
    def update_items(order_id: Id, body: models.ItemsBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Replace the items of an order that is not confirmed yet, at the prices of now."""
        items = tuple(item.value() for item in body.items)
        return done(order_id, orders.UpdateItems(items, body.reason), asked, response)

    @router.post("/orders/{order_id}/confirm", **COMMAND)
    def confirm_order(order_id: Id, asked: AskedBy, response: Response) -> models.CommandDone:
        """Confirm an order. It is cancelled if it is not paid in time."""
        return done(order_id, orders.ConfirmOrder(shop.payment_due_at()), asked, response)

    @router.post("/orders/{order_id}/pay", **COMMAND)
    def pay_order(order_id: Id, body: models.AmountBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Record the payment of all that an order costs."""
        return done(order_id, orders.PayOrder(body.amount, body.reference), asked, response)

    @router.post("/orders/{order_id}/ship", **COMMAND)
    def ship_order(order_id: Id, body: models.ShipBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Record that an order, which is paid, is on its way."""
        return done(order_id, orders.ShipOrder(body.carrier, body.tracking_number), asked, response)

    @router.post("/orders/{order_id}/deliver", **COMMAND)
    def deliver_order(order_id: Id, body: models.DeliverBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Record that an order has arrived."""
        return done(order_id, orders.DeliverOrder(body.signed_by), asked, response)

    @router.post("/orders/{order_id}/cancel", **COMMAND)
    def cancel_order(order_id: Id, body: models.CancelBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Cancel an order that is not delivered yet. What was paid goes back."""
        return done(order_id, orders.CancelOrder(body.reason, body.cancelled_by), asked, response)

    @router.get("/orders")
    def list_orders(
        status: Annotated[list[orders.OrderStatus] | None, Query(description="Only orders in these states.")] = None,
        customer_id: Annotated[str | None, Query(max_length=64, description="Only orders of this customer.")] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> list[models.OrderShown]:
        """Return the newest orders, newest first."""
        views = shop.views()
        if customer_id is None:
            found = views.in_states(status or list(orders.OrderStatus), limit)
        else:
            found = [v for v in views.of_customer(customer_id, limit) if not status or v.status in status]
        return [models.OrderShown.of(view) for view in found]

    @router.get("/orders/{order_id}")
    def get_order(order_id: Id, response: Response) -> models.OrderShown:
        """Return an order, with its version as the ETag."""
        view = shop.views().find(order_id)
        if view is None:
            raise Problem(404, "not-found", "Not found", "there is no such order, or no query shows it yet")
        response.headers["ETag"] = f'"{view.version}"'
        return models.OrderShown.of(view).model_copy(update={"tracking_number": shop.tracking_number(order_id)})

    @router.get("/orders/{order_id}/events")
    def get_events(order_id: Id) -> list[models.EventShown]:
        """Return the stream of an order from the event store: all that ever happened to it."""
        records = shop.events_of_order(order_id)
        if not records:
            raise Problem(404, "not-found", "Not found", "there is no such order")
        return [
            models.EventShown(
                version=one.version,
                event_id=str(one.event_id),
                type=one.type,
                schema_number=one.schema,
                at=one.at,
                data=json.loads(one.data),
                correlation_id=one.correlation_id,
                causation_id=one.causation_id,
                user=one.user,
            )
            for one in records
        ]

    return router


# ---------------------------------------------------------------- customers


def _customers(shop: Shop) -> APIRouter:
    router = APIRouter(tags=["customers"])
    one = "/customers/{customer_id}"

    def done(key: str, command: customers.CustomerCommand, asked: Asked, response: Response) -> models.CommandDone:
        return _answer(shop, shop.customers_do(key, command, asked), asked, response)

    @router.post("/customers", status_code=201, **COMMAND)
    def register(body: models.NewCustomer, asked: AskedBy, response: Response) -> models.CommandDone:
        """Register a customer."""
        customer_id = body.customer_id or asked.new_id()
        command = customers.RegisterCustomer(customer_id, body.email, body.first_name, body.last_name, body.phone)
        response.headers["Location"] = f"/api/customers/{customer_id}"
        return done(customer_id, command, asked, response)

    @router.get(one)
    def get_customer(customer_id: Id, response: Response) -> models.CustomerShown:
        """Return a customer, made of the events, with the version as the ETag."""
        version, found = shop.customer(customer_id)
        response.headers["ETag"] = f'"{version}"'
        return models.CustomerShown(
            customer_id=customer_id,
            version=version,
            email=found.email,
            first_name=found.first_name,
            last_name=found.last_name,
            phone=found.phone,
            status=found.status,
            tier=found.tier,
            addresses={key: models.AddressBody(**attrs.asdict(at)) for key, at in found.addresses.items()},
            default_address=found.default_address,
            payment_methods=sorted(found.payment_methods),
        )

    @router.put(one + "/profile", **COMMAND)
    def update_profile(
        customer_id: Id, body: models.ProfileBody, asked: AskedBy, response: Response
    ) -> models.CommandDone:
        """Change the name."""
        return done(customer_id, customers.UpdateProfile(body.first_name, body.last_name), asked, response)

    @router.put(one + "/email", **COMMAND)
    def change_email(customer_id: Id, body: models.EmailBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Change the e-mail address."""
        return done(customer_id, customers.ChangeEmail(body.email), asked, response)

    @router.put(one + "/phone", **COMMAND)
    def change_phone(customer_id: Id, body: models.PhoneBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Change or remove the telephone number."""
        return done(customer_id, customers.ChangePhone(body.phone), asked, response)

    @router.post(one + "/addresses", **COMMAND)
    def add_address(customer_id: Id, body: models.NewAddress, asked: AskedBy, response: Response) -> models.CommandDone:
        """Add an address."""
        return done(customer_id, customers.AddAddress(body.address_id, body.value(), body.is_default), asked, response)

    @router.put(one + "/addresses/{address_id}", **COMMAND)
    def update_address(
        customer_id: Id, address_id: Id, body: models.AddressBody, asked: AskedBy, response: Response
    ) -> models.CommandDone:
        """Change an address."""
        return done(customer_id, customers.UpdateAddress(address_id, body.value()), asked, response)

    @router.delete(one + "/addresses/{address_id}", **COMMAND)
    def remove_address(customer_id: Id, address_id: Id, asked: AskedBy, response: Response) -> models.CommandDone:
        """Remove an address."""
        return done(customer_id, customers.RemoveAddress(address_id), asked, response)

    @router.post(one + "/payment-methods", **COMMAND)
    def add_payment_method(
        customer_id: Id, body: models.NewPaymentMethod, asked: AskedBy, response: Response
    ) -> models.CommandDone:
        """Add a way to pay."""
        return done(customer_id, customers.AddPaymentMethod(body.method_id, body.token), asked, response)

    @router.delete(one + "/payment-methods/{method_id}", **COMMAND)
    def remove_payment_method(customer_id: Id, method_id: Id, asked: AskedBy, response: Response) -> models.CommandDone:
        """Remove a way to pay."""
        return done(customer_id, customers.RemovePaymentMethod(method_id), asked, response)

    @router.put(one + "/tier", **COMMAND)
    def upgrade_tier(customer_id: Id, body: models.TierBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Give the customer a better tier."""
        return done(customer_id, customers.UpgradeTier(body.tier), asked, response)

    @router.post(one + "/suspend", **COMMAND)
    def suspend(customer_id: Id, body: models.ReasonBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """Suspend the customer, who can then order nothing."""
        return done(customer_id, customers.SuspendCustomer(body.reason), asked, response)

    @router.post(one + "/reactivate", **COMMAND)
    def reactivate(customer_id: Id, body: models.NotesBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """End the suspension."""
        return done(customer_id, customers.ReactivateCustomer(body.notes), asked, response)

    @router.post(one + "/deactivate", **COMMAND)
    def deactivate(customer_id: Id, body: models.ReasonBody, asked: AskedBy, response: Response) -> models.CommandDone:
        """End the relation with the customer for good."""
        return done(customer_id, customers.DeactivateCustomer(body.reason), asked, response)

    @router.delete(one + "/personal-data", status_code=204)
    def forget(customer_id: Id) -> None:
        """Forget the person: delete the key of the personal data, in all events and all copies of them. For good."""
        shop.forget(customer_id)

    return router


# ---------------------------------------------------------------- operations


def _operations(shop: Shop) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/operations")
    def operations() -> dict[str, Any]:
        """Return who reads the events and how far they are, breakers, dead letters, and the group."""
        return {"time": datetime.now(UTC), **shop.operations()}

    @router.post("/operations/replay")
    def replay(body: models.LettersOf) -> dict[str, int]:
        """Handle the dead letters of a consumer again, in the order of their events."""
        replayed, failed = shop.replay(body.consumer)
        return {"replayed": replayed, "failed": failed}

    @router.post("/operations/rebuild", status_code=202)
    def rebuild() -> dict[str, int]:
        """Build the read model again from all events, beside the one that queries use until it is complete."""
        return {"build": shop.rebuild()}

    return router


def _answer(shop: Shop, done: models.CommandDone, asked: Asked, response: Response) -> models.CommandDone:
    response.headers["ETag"] = f'"{done.version}"'
    if not done.visible:
        response.status_code = 202
    return done
