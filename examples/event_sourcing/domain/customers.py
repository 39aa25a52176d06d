"""A customer: registered, changed, suspended, reactivated, deactivated.

Fields that ``personal`` marks are sealed with a key of the customer before they are stored. Once the key is deleted,
the person is forgotten: in the store, in its snapshots, in the CDC log, and in the broker. The events stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar, assert_never

import attrs

from rscylla.eventsourcing import personal, subject

from .rules import RuleBroken

__all__ = [
    "EVENTS",
    "INITIAL",
    "NAME",
    "AddAddress",
    "AddPaymentMethod",
    "Address",
    "AddressAdded",
    "AddressRemoved",
    "AddressUpdated",
    "ChangeEmail",
    "ChangePhone",
    "Customer",
    "CustomerCommand",
    "CustomerDeactivated",
    "CustomerEvent",
    "CustomerReactivated",
    "CustomerRegistered",
    "CustomerStatus",
    "CustomerSuspended",
    "DeactivateCustomer",
    "EmailChanged",
    "PaymentMethodAdded",
    "PaymentMethodRemoved",
    "PhoneChanged",
    "ProfileUpdated",
    "ReactivateCustomer",
    "RegisterCustomer",
    "RemoveAddress",
    "RemovePaymentMethod",
    "SuspendCustomer",
    "Tier",
    "TierUpgraded",
    "UpdateAddress",
    "UpdateProfile",
    "UpgradeTier",
    "decide",
    "evolve",
]

T = TypeVar("T")

NAME = "customer"
"""The aggregate type, as it is stored."""


class CustomerStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"
    DEACTIVATED = "deactivated"


class Tier(StrEnum):
    """How good a customer is, worst first."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PLATINUM = "platinum"


@attrs.frozen
class Address:
    country: str
    postal_code: str = personal()
    city: str = personal()
    street: str = personal()


# ---------------------------------------------------------------- commands


@attrs.frozen
class RegisterCustomer:
    customer_id: str
    email: str
    first_name: str
    last_name: str
    phone: str = ""


@attrs.frozen
class UpdateProfile:
    first_name: str
    last_name: str


@attrs.frozen
class ChangeEmail:
    email: str


@attrs.frozen
class ChangePhone:
    """An empty number removes it."""

    phone: str


@attrs.frozen
class AddAddress:
    address_id: str
    address: Address
    is_default: bool = False


@attrs.frozen
class UpdateAddress:
    address_id: str
    address: Address


@attrs.frozen
class RemoveAddress:
    address_id: str


@attrs.frozen
class AddPaymentMethod:
    """``token`` is what a payment provider gave out; a card number never comes near an event store."""

    method_id: str
    token: str


@attrs.frozen
class RemovePaymentMethod:
    method_id: str


@attrs.frozen
class UpgradeTier:
    tier: Tier


@attrs.frozen
class SuspendCustomer:
    reason: str


@attrs.frozen
class ReactivateCustomer:
    notes: str = ""


@attrs.frozen
class DeactivateCustomer:
    reason: str


CustomerCommand = (
    RegisterCustomer
    | UpdateProfile
    | ChangeEmail
    | ChangePhone
    | AddAddress
    | UpdateAddress
    | RemoveAddress
    | AddPaymentMethod
    | RemovePaymentMethod
    | UpgradeTier
    | SuspendCustomer
    | ReactivateCustomer
    | DeactivateCustomer
)


# ---------------------------------------------------------------- events


@attrs.frozen
class CustomerRegistered:
    customer_id: str = subject()
    email: str = personal()
    first_name: str = personal()
    last_name: str = personal()
    phone: str = personal(placeholder="")


@attrs.frozen
class ProfileUpdated:
    customer_id: str = subject()
    first_name: str = personal()
    last_name: str = personal()


@attrs.frozen
class EmailChanged:
    customer_id: str = subject()
    email: str = personal()


@attrs.frozen
class PhoneChanged:
    customer_id: str = subject()
    phone: str = personal(placeholder="")


@attrs.frozen
class AddressAdded:
    address_id: str
    address: Address
    is_default: bool
    customer_id: str = subject()


@attrs.frozen
class AddressUpdated:
    address_id: str
    address: Address
    customer_id: str = subject()


@attrs.frozen
class AddressRemoved:
    address_id: str


@attrs.frozen
class PaymentMethodAdded:
    method_id: str
    customer_id: str = subject()
    token: str = personal()


@attrs.frozen
class PaymentMethodRemoved:
    method_id: str


@attrs.frozen
class TierUpgraded:
    tier: Tier


@attrs.frozen
class CustomerSuspended:
    customer_id: str = subject()
    reason: str = personal()


@attrs.frozen
class CustomerReactivated:
    customer_id: str = subject()
    notes: str = personal(placeholder="")


@attrs.frozen
class CustomerDeactivated:
    customer_id: str = subject()
    reason: str = personal()


CustomerEvent = (
    CustomerRegistered
    | ProfileUpdated
    | EmailChanged
    | PhoneChanged
    | AddressAdded
    | AddressUpdated
    | AddressRemoved
    | PaymentMethodAdded
    | PaymentMethodRemoved
    | TierUpgraded
    | CustomerSuspended
    | CustomerReactivated
    | CustomerDeactivated
)

EVENTS = (
    CustomerRegistered,
    ProfileUpdated,
    EmailChanged,
    PhoneChanged,
    AddressAdded,
    AddressUpdated,
    AddressRemoved,
    PaymentMethodAdded,
    PaymentMethodRemoved,
    TierUpgraded,
    CustomerSuspended,
    CustomerReactivated,
    CustomerDeactivated,
)


# ---------------------------------------------------------------- state


@attrs.frozen
class Customer:
    """What the rules need to know of a customer, and what an order asks of one. Without a status, there is none yet."""

    customer_id: str = subject(default="")
    email: str = personal(default="")
    first_name: str = personal(default="")
    last_name: str = personal(default="")
    phone: str = personal(default="", placeholder="")
    status: CustomerStatus | None = None
    tier: Tier = Tier.BRONZE
    addresses: Mapping[str, Address] = attrs.field(factory=dict)
    default_address: str = ""
    payment_methods: Mapping[str, str] = personal(factory=dict, placeholder={})


INITIAL = Customer()
"""The state before the first event."""


def evolve(customer: Customer, event: CustomerEvent) -> Customer:
    """Return the customer after *event*. Pure and total."""
    if isinstance(event, CustomerRegistered):
        name = event.first_name, event.last_name
        return Customer(event.customer_id, event.email, *name, event.phone, CustomerStatus.ACTIVE)
    if customer.status is None:
        raise ValueError(f"{type(event).__name__} is the first event of a customer; its stream is damaged")
    match event:
        case ProfileUpdated(first_name=first, last_name=last):
            return attrs.evolve(customer, first_name=first, last_name=last)
        case EmailChanged(email=email):
            return attrs.evolve(customer, email=email)
        case PhoneChanged(phone=phone):
            return attrs.evolve(customer, phone=phone)
        case AddressAdded(address_id=key, address=address, is_default=is_default):
            default = key if is_default else customer.default_address
            return attrs.evolve(customer, addresses={**customer.addresses, key: address}, default_address=default)
        case AddressUpdated(address_id=key, address=address):
            return attrs.evolve(customer, addresses={**customer.addresses, key: address})
        case AddressRemoved(address_id=key):
            default = "" if customer.default_address == key else customer.default_address
            return attrs.evolve(customer, addresses=_without(customer.addresses, key), default_address=default)
        case PaymentMethodAdded(method_id=key, token=token):
            return attrs.evolve(customer, payment_methods={**customer.payment_methods, key: token})
        case PaymentMethodRemoved(method_id=key):
            return attrs.evolve(customer, payment_methods=_without(customer.payment_methods, key))
        case TierUpgraded(tier=tier):
            return attrs.evolve(customer, tier=tier)
        case CustomerSuspended():
            return attrs.evolve(customer, status=CustomerStatus.SUSPENDED)
        case CustomerReactivated():
            return attrs.evolve(customer, status=CustomerStatus.ACTIVE)
        case CustomerDeactivated():
            return attrs.evolve(customer, status=CustomerStatus.DEACTIVATED)
        case _:
            assert_never(event)


def _without(mapping: Mapping[str, T], key: str) -> dict[str, T]:
    return {name: value for name, value in mapping.items() if name != key}


# ---------------------------------------------------------------- decisions


def decide(customer: Customer, command: CustomerCommand) -> Sequence[CustomerEvent]:
    """Return what happens because of *command*; nothing, if it asks for what is already so.

    Raises:
        RuleBroken: the customer may not do that now.
    """
    if isinstance(command, RegisterCustomer):
        if customer.status is not None:
            raise RuleBroken("already_exists", "there is a customer with this id already")
        _check_name(command.first_name, command.last_name)
        _check_email(command.email)
        name = command.first_name, command.last_name
        return (CustomerRegistered(command.customer_id, command.email, *name, command.phone),)
    if customer.status is None:
        raise RuleBroken("not_found", "there is no such customer")
    if isinstance(command, SuspendCustomer | ReactivateCustomer | DeactivateCustomer):
        return _moved(customer, command)
    if customer.status is not CustomerStatus.ACTIVE:
        raise RuleBroken("not_active", f"the customer is {customer.status}")
    return _changed(customer, command)


def _moved(
    customer: Customer, command: SuspendCustomer | ReactivateCustomer | DeactivateCustomer
) -> Sequence[CustomerEvent]:
    status = customer.status
    if isinstance(command, ReactivateCustomer):
        if status is not CustomerStatus.SUSPENDED:
            raise RuleBroken("not_suspended", f"only a suspended customer can be reactivated; this one is {status}")
        return (CustomerReactivated(customer.customer_id, command.notes),)
    if status is CustomerStatus.DEACTIVATED:
        raise RuleBroken("already_deactivated", "the customer is already deactivated")
    if isinstance(command, DeactivateCustomer):
        return (CustomerDeactivated(customer.customer_id, command.reason),)
    if status is CustomerStatus.SUSPENDED:
        raise RuleBroken("already_suspended", "the customer is already suspended")
    return (CustomerSuspended(customer.customer_id, command.reason),)


_Change = (
    UpdateProfile
    | ChangeEmail
    | ChangePhone
    | AddAddress
    | UpdateAddress
    | RemoveAddress
    | AddPaymentMethod
    | RemovePaymentMethod
    | UpgradeTier
)


def _changed(customer: Customer, command: _Change) -> Sequence[CustomerEvent]:
    """Return what changes of an active customer."""
    match command:
        case UpdateProfile(first_name=first, last_name=last):
            _check_name(first, last)
            is_same = (first, last) == (customer.first_name, customer.last_name)
            return () if is_same else (ProfileUpdated(customer.customer_id, first, last),)
        case ChangeEmail(email=email):
            _check_email(email)
            return () if email == customer.email else (EmailChanged(customer.customer_id, email),)
        case ChangePhone(phone=phone):
            return () if phone == customer.phone else (PhoneChanged(customer.customer_id, phone),)
        case AddAddress(address_id=key, address=address, is_default=is_default):
            if key in customer.addresses:
                raise RuleBroken("address_exists", "there is an address with this id already")
            return (AddressAdded(key, address, is_default, customer.customer_id),)
        case UpdateAddress(address_id=key, address=address):
            _check_known(key, customer.addresses, "address")
            return () if customer.addresses[key] == address else (AddressUpdated(key, address, customer.customer_id),)
        case RemoveAddress(address_id=key):
            _check_known(key, customer.addresses, "address")
            return (AddressRemoved(key),)
        case AddPaymentMethod(method_id=key, token=token):
            if key in customer.payment_methods:
                raise RuleBroken("payment_method_exists", "there is a payment method with this id already")
            return (PaymentMethodAdded(key, customer.customer_id, token),)
        case RemovePaymentMethod(method_id=key):
            _check_known(key, customer.payment_methods, "payment_method")
            return (PaymentMethodRemoved(key),)
        case UpgradeTier(tier=tier):
            if _rank(tier) <= _rank(customer.tier):
                raise RuleBroken("no_upgrade", f"{tier} is not above {customer.tier}")
            return (TierUpgraded(tier),)
        case _:
            assert_never(command)


def _rank(tier: Tier) -> int:
    return list(Tier).index(tier)


def _check_name(first: str, last: str) -> None:
    if not first.strip() or not last.strip():
        raise RuleBroken("no_name", "a customer has a first name and a last name")


def _check_email(email: str) -> None:
    local, _, domain = email.partition("@")
    if not local or not domain or "@" in domain:
        raise RuleBroken("invalid_email", "an e-mail address is a name and a domain, with @ between them")


def _check_known(key: str, known: Mapping[str, object], what: str) -> None:
    if key not in known:
        raise RuleBroken(f"{what}_not_found", f"the customer has no such {what.replace('_', ' ')}")
