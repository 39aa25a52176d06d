"""The rules of customers in the event sourcing example."""

from __future__ import annotations

from functools import reduce

import pytest
from event_sourcing.domain.customers import (
    EVENTS,
    INITIAL,
    AddAddress,
    AddPaymentMethod,
    Address,
    AddressAdded,
    AddressRemoved,
    AddressUpdated,
    ChangeEmail,
    ChangePhone,
    Customer,
    CustomerCommand,
    CustomerDeactivated,
    CustomerEvent,
    CustomerReactivated,
    CustomerRegistered,
    CustomerStatus,
    CustomerSuspended,
    DeactivateCustomer,
    EmailChanged,
    PaymentMethodAdded,
    PaymentMethodRemoved,
    PhoneChanged,
    ProfileUpdated,
    ReactivateCustomer,
    RegisterCustomer,
    RemoveAddress,
    RemovePaymentMethod,
    SuspendCustomer,
    Tier,
    TierUpgraded,
    UpdateAddress,
    UpdateProfile,
    UpgradeTier,
    decide,
    evolve,
)
from event_sourcing.domain.rules import RuleBroken

HOME = Address("SE", "22100", "Lund", "Storgatan 1")
WORK = Address("SE", "21100", "Malmö", "Kajen 3")

REGISTERED = CustomerRegistered("anna", "anna@example.com", "Anna", "Berg", "")
SUSPENDED = CustomerSuspended("anna", "fraud")
DEACTIVATED = CustomerDeactivated("anna", "asked to")
AT_HOME = AddressAdded("home", HOME, True, "anna")
CARD = PaymentMethodAdded("card", "anna", "tok_1")


def after(*events: CustomerEvent) -> Customer:
    return reduce(evolve, events, INITIAL)


@pytest.mark.parametrize(
    ("events", "command", "expected"),
    [
        ((), RegisterCustomer("anna", "anna@example.com", "Anna", "Berg"), REGISTERED),
        ((REGISTERED,), UpdateProfile("Anna", "Lund"), ProfileUpdated("anna", "Anna", "Lund")),
        ((REGISTERED,), ChangeEmail("a@b.se"), EmailChanged("anna", "a@b.se")),
        ((REGISTERED,), ChangePhone("+46"), PhoneChanged("anna", "+46")),
        ((REGISTERED,), AddAddress("home", HOME, True), AT_HOME),
        ((REGISTERED, AT_HOME), UpdateAddress("home", WORK), AddressUpdated("home", WORK, "anna")),
        ((REGISTERED, AT_HOME), RemoveAddress("home"), AddressRemoved("home")),
        ((REGISTERED,), AddPaymentMethod("card", "tok_1"), CARD),
        ((REGISTERED, CARD), RemovePaymentMethod("card"), PaymentMethodRemoved("card")),
        ((REGISTERED,), UpgradeTier(Tier.GOLD), TierUpgraded(Tier.GOLD)),
        ((REGISTERED,), SuspendCustomer("fraud"), SUSPENDED),
        ((REGISTERED, SUSPENDED), ReactivateCustomer("paid"), CustomerReactivated("anna", "paid")),
        ((REGISTERED,), DeactivateCustomer("asked to"), DEACTIVATED),
        ((REGISTERED, SUSPENDED), DeactivateCustomer("asked to"), DEACTIVATED),
    ],
)
def test_what_a_customer_may_do_happens(
    events: tuple[CustomerEvent, ...], command: CustomerCommand, expected: CustomerEvent
) -> None:
    assert decide(after(*events), command) == (expected,)


@pytest.mark.parametrize(
    ("events", "command"),
    [
        ((REGISTERED,), UpdateProfile("Anna", "Berg")),
        ((REGISTERED,), ChangeEmail("anna@example.com")),
        ((REGISTERED,), ChangePhone("")),
        ((REGISTERED, AT_HOME), UpdateAddress("home", HOME)),
    ],
)
def test_what_is_so_already_is_no_event(events: tuple[CustomerEvent, ...], command: CustomerCommand) -> None:
    assert decide(after(*events), command) == ()


@pytest.mark.parametrize(
    ("events", "command", "code"),
    [
        ((REGISTERED,), RegisterCustomer("anna", "anna@example.com", "Anna", "Berg"), "already_exists"),
        ((), RegisterCustomer("anna", "anna@example.com", "", "Berg"), "no_name"),
        ((), RegisterCustomer("anna", "anna@example.com", "Anna", " "), "no_name"),
        ((), RegisterCustomer("anna", "", "Anna", "Berg"), "invalid_email"),
        ((), RegisterCustomer("anna", "anna.example.com", "Anna", "Berg"), "invalid_email"),
        ((), RegisterCustomer("anna", "anna@", "Anna", "Berg"), "invalid_email"),
        ((), ChangePhone("+46"), "not_found"),
        ((REGISTERED,), ChangeEmail("a@b@c"), "invalid_email"),
        ((REGISTERED,), UpdateProfile("", "Berg"), "no_name"),
        ((REGISTERED, AT_HOME), AddAddress("home", WORK), "address_exists"),
        ((REGISTERED,), UpdateAddress("home", HOME), "address_not_found"),
        ((REGISTERED,), RemoveAddress("home"), "address_not_found"),
        ((REGISTERED, CARD), AddPaymentMethod("card", "tok_2"), "payment_method_exists"),
        ((REGISTERED,), RemovePaymentMethod("card"), "payment_method_not_found"),
        ((REGISTERED,), UpgradeTier(Tier.BRONZE), "no_upgrade"),
        ((REGISTERED, TierUpgraded(Tier.GOLD)), UpgradeTier(Tier.SILVER), "no_upgrade"),
        ((REGISTERED, SUSPENDED), ChangePhone("+46"), "not_active"),
        ((REGISTERED, DEACTIVATED), UpgradeTier(Tier.GOLD), "not_active"),
        ((REGISTERED, SUSPENDED), SuspendCustomer("fraud"), "already_suspended"),
        ((REGISTERED, DEACTIVATED), SuspendCustomer("fraud"), "already_deactivated"),
        ((REGISTERED, DEACTIVATED), DeactivateCustomer("again"), "already_deactivated"),
        ((REGISTERED,), ReactivateCustomer(), "not_suspended"),
        ((REGISTERED, DEACTIVATED), ReactivateCustomer(), "not_suspended"),
    ],
)
def test_what_a_customer_may_not_do_is_refused(
    events: tuple[CustomerEvent, ...], command: CustomerCommand, code: str
) -> None:
    with pytest.raises(RuleBroken) as caught:
        decide(after(*events), command)
    assert caught.value.code == code


def test_events_add_up_to_the_customer() -> None:
    every: tuple[CustomerEvent, ...] = (
        REGISTERED,
        ProfileUpdated("anna", "Anna", "Lund"),
        EmailChanged("anna", "a@b.se"),
        PhoneChanged("anna", "+46"),
        AT_HOME,
        AddressAdded("work", WORK, False, "anna"),
        AddressUpdated("work", HOME, "anna"),
        AddressRemoved("home"),
        CARD,
        PaymentMethodAdded("wallet", "anna", "tok_2"),
        PaymentMethodRemoved("card"),
        TierUpgraded(Tier.SILVER),
        SUSPENDED,
        CustomerReactivated("anna", ""),
        DEACTIVATED,
    )
    assert {type(event) for event in every} == set(EVENTS)
    assert after(*every) == Customer(
        "anna",
        "a@b.se",
        "Anna",
        "Lund",
        "+46",
        CustomerStatus.DEACTIVATED,
        Tier.SILVER,
        addresses={"work": HOME},
        default_address="",
        payment_methods={"wallet": "tok_2"},
    )


def test_a_refusal_tells_nothing_personal() -> None:
    with pytest.raises(RuleBroken) as caught:
        decide(after(REGISTERED), ChangeEmail("anna.berg at home"))
    assert "anna" not in str(caught.value)
