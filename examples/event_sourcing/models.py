"""The bodies of requests and answers, as OpenAPI shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from .domain import customers, orders
from .domain.catalogue import price_of
from .views import OrderView

__all__ = [
    "AddressBody",
    "AmountBody",
    "CancelBody",
    "CommandDone",
    "CustomerShown",
    "DeliverBody",
    "EmailBody",
    "EventShown",
    "ItemBody",
    "ItemShown",
    "ItemsBody",
    "LettersOf",
    "NewAddress",
    "NewCustomer",
    "NewOrder",
    "NewPaymentMethod",
    "NotesBody",
    "OrderShown",
    "PhoneBody",
    "ProfileBody",
    "ReasonBody",
    "ShipBody",
    "TierBody",
]

Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._~-]+$")]
Text = Annotated[str, Field(max_length=200)]
Needed = Annotated[str, Field(min_length=1, max_length=200)]
Cents = Annotated[int, Field(ge=0, le=10**12, description="In the smallest unit of the currency.")]


class Body(BaseModel):
    """A body: names that it does not know are refused, so that a misspelled one is not lost."""

    model_config = ConfigDict(extra="forbid")


# ---------------------------------------------------------------- commands of orders


class ItemBody(Body):
    product_id: Needed
    quantity: int = Field(ge=1, le=10_000)

    def value(self) -> orders.OrderItem:
        """The item, at the price of now."""
        return orders.OrderItem(self.product_id, self.quantity, price_of(self.product_id))


class NewOrder(Body):
    order_id: Id | None = Field(default=None, description="Chosen by the client, or by this service if left out.")
    customer_id: Id
    items: list[ItemBody] = Field(min_length=1, max_length=orders.MAX_ITEMS)


class ItemsBody(Body):
    items: list[ItemBody] = Field(min_length=1, max_length=orders.MAX_ITEMS)
    reason: Text = ""


class AmountBody(Body):
    amount: Cents
    reference: Needed = Field(description="The id of the payment at the provider; it is kept in the clear.")


class ShipBody(Body):
    carrier: Needed
    tracking_number: Needed


class DeliverBody(Body):
    signed_by: Text = ""


class CancelBody(Body):
    reason: Text = ""
    cancelled_by: Text = ""


# ---------------------------------------------------------------- commands of customers


class NewCustomer(Body):
    customer_id: Id | None = Field(default=None, description="Chosen by the client, or by this service if left out.")
    email: Needed
    first_name: Needed
    last_name: Needed
    phone: Text = ""


class ProfileBody(Body):
    first_name: Needed
    last_name: Needed


class EmailBody(Body):
    email: Needed


class PhoneBody(Body):
    phone: Text = Field(description="Empty: the number is removed.")


class AddressBody(Body):
    street: Needed
    city: Needed
    postal_code: Needed
    country: Needed

    def value(self) -> customers.Address:
        return customers.Address(self.country, self.postal_code, self.city, self.street)


class NewAddress(AddressBody):
    address_id: Id
    is_default: bool = False


class NewPaymentMethod(Body):
    method_id: Id
    token: Needed = Field(description="Of the payment provider; never a card number.")


class TierBody(Body):
    tier: customers.Tier


class ReasonBody(Body):
    reason: Needed


class NotesBody(Body):
    notes: Text = ""


# ---------------------------------------------------------------- answers


class CommandDone(BaseModel):
    """The command is carried out, and its events are stored for good."""

    id: str
    version: int = Field(description="Of the order or customer, after the command.")
    events: list[str] = Field(description="What happened; nothing, if it was so already.")
    command_id: str = Field(description="The Idempotency-Key: the same key again does nothing again.")
    visible: bool = Field(description="Whether queries show it yet; if not, the status is 202.")


class ItemShown(BaseModel):
    product_id: str
    quantity: int
    unit_price: int = Field(description="When it was ordered, in the smallest unit of the currency.")


class OrderShown(BaseModel):
    """An order, as the read model has it."""

    order_id: str
    customer_id: str
    status: orders.OrderStatus
    items: list[ItemShown]
    currency: str
    total: int
    paid: int
    version: int
    placed_at: datetime
    updated_at: datetime
    payment_due_at: datetime | None
    carrier: str
    tracking_number: str = Field(default="", description="Where a single order is asked for; empty once forgotten.")
    cancelled_because: str = Field(description="`on request`, or `not paid in time`; empty if it is not cancelled.")

    @classmethod
    def of(cls, view: OrderView) -> OrderShown:
        return cls.model_validate(view, from_attributes=True)


class CustomerShown(BaseModel):
    """A customer, made of the events: no read model has personal data. Empty names: the customer was forgotten."""

    customer_id: str
    version: int
    email: str
    first_name: str
    last_name: str
    phone: str
    status: customers.CustomerStatus | None
    tier: customers.Tier
    addresses: dict[str, AddressBody]
    default_address: str
    payment_methods: list[str]


class EventShown(BaseModel):
    """An event of the stream of an order, as it is stored."""

    version: int
    event_id: str
    type: str
    schema_number: int
    at: datetime
    data: Any
    correlation_id: str
    causation_id: str
    user: str


class LettersOf(Body):
    """Whose dead letters to replay; a slice of a consumer stands for all of it."""

    consumer: Needed
