"""The rules of orders in the event sourcing example: each is one test, without a table, a clock or a broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce

import attrs
import pytest
from event_sourcing.domain.orders import (
    EVENTS,
    INITIAL,
    MAX_ITEMS,
    CancelCause,
    CancelOrder,
    CancelUnpaidOrder,
    ConfirmOrder,
    CreateOrder,
    DeliverOrder,
    Order,
    OrderCancelled,
    OrderCommand,
    OrderConfirmed,
    OrderCreated,
    OrderDelivered,
    OrderEvent,
    OrderItem,
    OrderItemsUpdated,
    OrderPaid,
    OrderShipped,
    OrderStatus,
    PayOrder,
    ShipOrder,
    UpdateItems,
    decide,
    evolve,
)
from event_sourcing.domain.rules import RuleBroken
from hypothesis import given
from hypothesis import strategies as st

TEA = OrderItem("tea", 2, 450)
DUE = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)

CREATED = OrderCreated("anna", (TEA,), "EUR")
CONFIRMED = OrderConfirmed(DUE)
PAID = OrderPaid(900, "pay-1")
SHIPPED = OrderShipped("DHL", "anna", "JD01")
DELIVERED = OrderDelivered("anna", "A. Berg")
CANCELLED = OrderCancelled(CancelCause.ASKED, 0, "anna", "changed my mind", "anna")

PATH: tuple[OrderEvent, ...] = (CREATED, CONFIRMED, PAID, SHIPPED, DELIVERED)


def after(*events: OrderEvent) -> Order:
    return reduce(evolve, events, INITIAL)


def refused(order: Order, command: OrderCommand) -> str:
    with pytest.raises(RuleBroken) as caught:
        decide(order, command)
    return caught.value.code


def test_an_order_goes_its_way() -> None:
    commands: tuple[OrderCommand, ...] = (
        CreateOrder("anna", (TEA,)),
        ConfirmOrder(DUE),
        PayOrder(900, "pay-1"),
        ShipOrder("DHL", "JD01"),
        DeliverOrder("A. Berg"),
    )
    order = INITIAL
    written: list[OrderEvent] = []
    for command in commands:
        events = decide(order, command)
        written += events
        order = reduce(evolve, events, order)
    assert tuple(written) == PATH
    assert order == Order("anna", (TEA,), "EUR", OrderStatus.DELIVERED, 900, "JD01")


@pytest.mark.parametrize(
    ("events", "command", "code"),
    [
        ((CREATED,), CreateOrder("anna", (TEA,)), "already_exists"),
        ((), CreateOrder(" ", (TEA,)), "no_customer_id"),
        ((), CreateOrder("anna", ()), "no_items"),
        ((), CreateOrder("anna", (TEA,) * (MAX_ITEMS + 1)), "too_many_items"),
        ((), CreateOrder("anna", (OrderItem("", 1, 1),)), "no_product_id"),
        ((), CreateOrder("anna", (OrderItem("tea", 0, 1),)), "invalid_quantity"),
        ((), CreateOrder("anna", (OrderItem("tea", -1, 1),)), "invalid_quantity"),
        ((), CreateOrder("anna", (OrderItem("tea", 1, -1),)), "invalid_price"),
        ((), CreateOrder("anna", (TEA,), "eur"), "invalid_currency"),
        ((), ConfirmOrder(DUE), "not_found"),
        ((), CancelUnpaidOrder(), "not_found"),
        ((CREATED,), UpdateItems(()), "no_items"),
        ((CREATED, CONFIRMED), UpdateItems((TEA, TEA)), "not_open"),
        ((CREATED, CANCELLED), UpdateItems((TEA, TEA)), "already_cancelled"),
        ((CREATED, CONFIRMED), ConfirmOrder(DUE), "already_confirmed"),
        ((CREATED, CONFIRMED, PAID), ConfirmOrder(DUE), "not_open"),
        ((CREATED, CANCELLED), ConfirmOrder(DUE), "already_cancelled"),
        ((CREATED,), PayOrder(900, "pay-1"), "not_confirmed"),
        ((CREATED, CONFIRMED), PayOrder(899, "pay-1"), "wrong_amount"),
        ((CREATED, CONFIRMED), PayOrder(900, ""), "no_reference"),
        ((CREATED, CONFIRMED, PAID), PayOrder(900, "pay-2"), "already_paid"),
        ((CREATED, CANCELLED), PayOrder(900, "pay-1"), "already_cancelled"),
        ((CREATED,), ShipOrder("DHL", "JD01"), "not_confirmed"),
        ((CREATED, CONFIRMED), ShipOrder("DHL", "JD01"), "not_paid"),
        ((CREATED, CONFIRMED, PAID), ShipOrder("", "JD01"), "no_carrier"),
        ((CREATED, CONFIRMED, PAID), ShipOrder("DHL", ""), "no_tracking_number"),
        ((CREATED, CONFIRMED, PAID, SHIPPED), ShipOrder("DHL", "JD02"), "already_shipped"),
        ((CREATED, CONFIRMED, CANCELLED), ShipOrder("DHL", "JD01"), "already_cancelled"),
        ((CREATED, CONFIRMED, PAID), DeliverOrder(), "not_shipped"),
        (PATH, DeliverOrder(), "already_delivered"),
        ((CREATED, CANCELLED), DeliverOrder(), "already_cancelled"),
        ((CREATED, CANCELLED), CancelOrder(), "already_cancelled"),
        (PATH, CancelOrder(), "already_delivered"),
    ],
)
def test_what_an_order_may_not_do_is_refused(events: tuple[OrderEvent, ...], command: OrderCommand, code: str) -> None:
    assert refused(after(*events), command) == code


def test_items_change_until_the_order_is_confirmed() -> None:
    order = after(CREATED)
    assert decide(order, UpdateItems((TEA, TEA), "hungry")) == (OrderItemsUpdated((TEA, TEA), "anna", "hungry"),)
    assert decide(order, UpdateItems((TEA,))) == (), "these are its items already"
    changed = after(CREATED, OrderItemsUpdated((TEA, TEA), "anna", ""))
    assert changed.total == 1800


def test_what_was_paid_goes_back_when_an_order_is_cancelled() -> None:
    for events, refund in (((CREATED,), 0), ((CREATED, CONFIRMED), 0), (PATH[:3], 900), (PATH[:4], 900)):
        (event,) = decide(after(*events), CancelOrder("late", "anna"))
        assert event == OrderCancelled(CancelCause.ASKED, refund, "anna", "late", "anna")
        found = after(*events, event)
        assert (found.status, found.paid) == (OrderStatus.CANCELLED, 0)


@pytest.mark.parametrize("reached", range(1, len(PATH) + 1))
def test_a_payment_timer_cancels_only_an_order_that_waits_for_its_payment(reached: int) -> None:
    found = decide(after(*PATH[:reached]), CancelUnpaidOrder())
    assert found == ((OrderCancelled(CancelCause.NOT_PAID, 0, "anna", "", ""),) if reached == 2 else ())
    assert decide(after(CREATED, CANCELLED), CancelUnpaidOrder()) == (), "it may fire late, or twice"


def test_an_error_names_its_rule_and_keeps_it_when_it_travels() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(RuleBroken("not_paid", "an order must be paid before it is shipped")))
    assert (error.code, str(error)) == ("not_paid", "an order must be paid before it is shipped")


def test_a_stream_that_does_not_begin_with_a_creation_is_damaged() -> None:
    with pytest.raises(ValueError, match="its stream is damaged"):
        evolve(INITIAL, CONFIRMED)


# ---------------------------------------------------------------- faults of other event stores

items = st.builds(OrderItem, st.sampled_from(["tea", "cup"]), st.integers(1, 5), st.integers(0, 999))
bags = st.lists(items, min_size=1, max_size=3).map(tuple)
commands = st.one_of(
    st.builds(CreateOrder, st.just("anna"), bags),
    st.builds(UpdateItems, bags),
    st.just(ConfirmOrder(DUE)),
    st.builds(PayOrder, st.integers(0, 2000), st.just("pay-1")),
    st.just(ShipOrder("DHL", "JD01")),
    st.just(DeliverOrder()),
    st.just(CancelOrder()),
    st.just(CancelUnpaidOrder()),
)


def settled(order: Order, command: OrderCommand) -> OrderCommand:
    """Return *command*, with the right amount half of the time: else hardly any order is ever paid."""
    if isinstance(command, PayOrder) and command.amount % 2:
        return attrs.evolve(command, amount=order.total)
    return command


@given(st.lists(commands, max_size=20))
def test_replay_gives_the_state_that_the_commands_saw(given: list[OrderCommand]) -> None:
    """No command sees a state that differs from that of a replay, and a second creation never gets in."""
    order = INITIAL
    written: list[OrderEvent] = []
    for command in given:
        try:
            events = decide(order, settled(order, command))
        except RuleBroken:
            continue
        order = reduce(evolve, events, order)
        written += events
    assert after(*written) == order == after(*written), "a replay depends on nothing but the events"
    assert [type(event) for event in written].count(OrderCreated) == (1 if written else 0)
    if written:
        assert isinstance(written[0], OrderCreated)


NO_CLOCK = ("datetime.now", "utcnow", "time.time", "uuid", "random")


@pytest.mark.parametrize("function", [decide, evolve])
def test_deciding_and_evolving_reads_no_clock_and_makes_no_ids(function: Callable[..., object]) -> None:
    """An id made, or a time read, at a replay would differ from that of the first time."""
    import inspect

    module = inspect.getmodule(function)
    assert module is not None
    assert [name for name in NO_CLOCK if name in inspect.getsource(module)] == []


def test_every_event_of_an_order_changes_its_state_or_is_named_here() -> None:
    order = after(CREATED)
    others: tuple[OrderEvent, ...] = (
        OrderItemsUpdated((TEA, TEA), "anna", ""),
        CONFIRMED,
        PAID,
        SHIPPED,
        DELIVERED,
        CANCELLED,
    )
    assert {type(event) for event in (CREATED, *others)} == set(EVENTS)
    assert all(evolve(order, event) != order for event in others)
