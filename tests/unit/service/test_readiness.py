"""Whether a service is ready: whatever nobody reads is named, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.reflex.telemetry.meters import meters_for
from rscylla.service.health import Facts, GroupFacts, LaneFacts, Limits, alive, report
from rscylla.service.readiness import LOOK_EVERY_S, TELL_EVERY_S, Readiness, ready
from rscylla.testing import ManualClock

LIMITS = Limits(stuck_after_s=900.0, poll_timeout_s=120.0)


def lane(**more: Any) -> LaneFacts:
    return LaneFacts(**({"consumer": "billing", "source": "shop.orders", "state": "streaming"} | more))


def facts(*lanes: LaneFacts, **more: Any) -> Facts:
    return Facts(**({"supervised": True, "stopping": False, "lanes": lanes} | more))


def failed(found: Facts) -> dict[str, str]:
    return {check.check: check.why for check in ready(found, LIMITS) if not check.ok}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"state": "done"}, ""),
        ({"state": "idle"}, "is idle"),
        ({"state": "starting"}, "is starting"),
        ({"state": "restarting", "why": "no node answers"}, "is restarting: no node answers"),
        ({"state": "stopped"}, "is stopped"),
        ({"state": "parked", "why": "no such table"}, "is parked: no such table"),
        ({"state": "failed", "why": "no such table"}, "is failed: no such table"),
        ({"pause": "circuit breaker is open"}, "waits: circuit breaker is open"),
        ({"poll_age_s": 120.0}, ""),
        ({"poll_age_s": 121.0}, "has had no answer from shop.orders for 121 s"),
        ({"poll_age_s": 121.0, "source": ""}, "has had no answer from its source for 121 s"),
        ({"busy_s": 900.0, "event_id": "e1"}, ""),
        ({"busy_s": 901.0, "event_id": "e1"}, "has been working on event e1 for 901 s"),
        ({"still_s": 900.0}, ""),
        ({"still_s": 901.0}, "has neither read nor finished anything for 901 s"),
        ({"unsaved_s": 121.0}, "has saved no cursor for 121 s"),
        ({"unproven": True, "open_s": 5.0, "last_error": "recv failed"}, "cursor has not moved since: recv failed"),
        ({"unproven": True, "open_s": 120.0, "last_error": "recv failed"}, ""),
        ({"unproven": True, "event_id": "e1"}, "cursor has not moved since: event e1"),
        ({"cdc_enabled": True}, ""),
        ({"cdc_enabled": False}, "gets no new changes: CDC of shop.orders is switched off"),
    ],
)
def test_a_lane_that_does_not_read_says_why(more: dict[str, Any], why: str) -> None:
    found = failed(facts(lane(**more)))
    assert found.keys() == ({'lane "billing"'} if why else set())
    assert why in found.get('lane "billing"', "")


def test_a_lane_on_standby_is_ready_only_if_another_process_may_have_the_lease() -> None:
    waiting = lane(state="standby")
    assert failed(facts(waiting, lease="shop", held=False)) == {}
    assert failed(facts(waiting, lease="shop", held=True)) == {'lane "billing"': "is standby"}
    trouble = "nobody holds it, as far as known: no node answers"
    assert failed(facts(waiting, lease="shop", held=False, lease_trouble=trouble)) == {'lease "shop"': trouble}


def test_a_service_that_stops_or_is_not_supervised_is_not_ready() -> None:
    assert failed(facts(lane(), stopping=True)) == {"service": "it is stopping"}
    assert failed(facts(lane(), supervised=False)) == {"service": "it does not run"}
    assert failed(facts(lane(), supervisor_age_s=120.0)) == {}
    assert failed(facts(lane(), supervisor_age_s=121.0)) == {"service": "its supervisor has not looked for 121 s"}


def test_a_supervisor_that_hangs_fails_the_other_health_check_later() -> None:
    assert all(check.ok for check in alive(facts(lane(), supervisor_age_s=900.0), LIMITS))
    (why,) = [check.why for check in alive(facts(lane(), supervisor_age_s=901.0), LIMITS) if not check.ok]
    assert why == "has not looked for 901 s: a function of the user hangs"


def test_what_has_no_lane_is_named() -> None:
    found = facts(lane(), unread={'table "shop.parcels"': "does not exist"})
    assert failed(found) == {'table "shop.parcels"': "does not exist"}


# ---------------------------------------------------------------- groups


def member(token: str, *reads: str, unknown: bool = False, expires_s: float = 30.0) -> GroupMember:
    told = None if unknown else frozenset(reads)
    return GroupMember(token, f"pod-{token}", expires_in=timedelta(seconds=expires_s), reads=told)


def view(held: str, *members: GroupMember, next_count: int = 0) -> GroupView:
    """Return a group whose slices are held by these tokens, one letter each; "-" is nobody."""
    slices = tuple(GroupSlice(i, holder="" if one == "-" else one) for i, one in enumerate(held))
    return GroupView("shop", len(held), next_count, members, slices)


def group(seen: GroupView | None, **more: Any) -> GroupFacts:
    held = () if seen is None else tuple(one.index for one in seen.slices if one.holder == "a")
    given = {"name": "shop", "owner": "pod-a", "token": "a", "view": seen, "view_age_s": 0.0, "held": held}
    return GroupFacts(**({**given, "readers": {"billing": frozenset(held)}} | more))


def unread(found: GroupFacts) -> str:
    return failed(facts(group=found)).get('group "shop"', "")


def test_a_group_whose_slices_all_have_holders_that_run_the_same_is_ready() -> None:
    assert unread(group(view("aabb", member("a", "billing"), member("b", "billing")))) == ""


def test_a_member_without_slices_is_ready_while_others_hold_all() -> None:
    assert unread(group(view("bb", member("a", unknown=True), member("b", "billing")))) == ""


@pytest.mark.parametrize(
    ("held", "why"),
    [("--", "nobody holds slices 0-1"), ("ab-a", "nobody holds slice 2"), ("aaxx", "nobody holds slices 2-3")],
)
def test_slices_that_nobody_holds_are_not_read(held: str, why: str) -> None:
    assert unread(group(view(held, member("a", "billing"), member("b", "billing")))) == why


def test_a_group_without_members_says_so() -> None:
    assert view("--").unread() == ("nobody holds slices 0-1, because the group has no members",)


def test_an_unfinished_change_of_the_number_of_slices_is_named_with_what_ends_it() -> None:
    why = unread(group(view("----", member("a", "billing"), next_count=8)))
    assert "change from 4 to 8" in why
    assert "`rscylla group reslice shop --to 8 --store KEYSPACE`" in why
    assert "--abort" in why


def test_two_services_in_one_group_are_told_what_the_other_does_not_read() -> None:
    why = unread(group(view("aabb", member("a", "orders"), member("b", "parcels"))))
    assert 'slices 0-1: not read by consumer "parcels", which pod-a, their holder, does not run' in why
    assert 'slices 2-3: not read by consumer "orders", which pod-b, their holder, does not run' in why
    assert "groups of their own" in why


def test_only_a_holder_that_has_told_what_it_runs_can_lack_something() -> None:
    assert unread(group(view("aab", member("a", "x", "y"), member("b", unknown=True)))) == ""
    assert unread(group(view("aa", member("a", "x", "y"), member("b", "x")))) == ""
    why = unread(group(view("aab", member("a", *"uvwxyz"), member("b", "x"))))
    assert 'slice 2: not read by consumers "u", "v", "w" and 2 more' in why


def test_slices_of_a_member_that_does_not_renew_are_not_read() -> None:
    seen = view("abb", member("a", "billing"), member("b", "billing"))
    assert (
        unread(group(seen, absent=frozenset("b"))) == "slices 1-2: held by pod-b, which does not renew its membership"
    )


def test_slices_that_are_held_here_and_have_no_lane_are_not_read() -> None:
    seen = view("aaa", member("a", "billing"))
    assert unread(group(seen, readers={"billing": frozenset({1})})) == "slices 0, 2: held here, and no lane reads"


def test_a_consumer_that_has_no_lanes_for_some_slices_here_does_not_read_them() -> None:
    readers = {"billing": frozenset({0, 1, 2}), "audit of shop.orders": frozenset({1})}
    why = unread(group(view("aaa", member("a", "billing", "audit of shop.orders")), readers=readers))
    assert why == 'slices 0, 2: not read by consumer "audit of shop.orders", which has lanes for other slices here'


def test_what_is_not_known_of_a_group_is_not_ready() -> None:
    assert unread(group(None)) == "has not been looked at yet"
    assert unread(group(view("a", member("a")), view_age_s=121.0)) == "has not been looked at for 121 s"
    assert unread(group(view("a", member("a")), token="", why="no node answers")) == "is not joined: no node answers"


# ---------------------------------------------------------------- the log and the gauge


class Told:
    """A service whose state a test sets, on a driven clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.facts = facts(lane())
        self.readiness = Readiness(lambda: self.facts, LIMITS, self.clock)

    def looks(self, times: int, *lanes: LaneFacts) -> None:
        self.facts = facts(*lanes)
        for _ in range(times):
            self.clock.advance(LOOK_EVERY_S)
            self.readiness.tell()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterable[Told]:
    caplog.set_level(logging.INFO, "rscylla.service")
    return Told()


def test_what_lasts_is_logged_once_and_again_after_a_while(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    parked = lane(state="parked", why="no such table")
    told.looks(1, parked)
    told.looks(1, lane())
    assert caplog.messages == [], "it passed"
    told.looks(2, parked)
    line = 'not ready: lane "billing": is parked: no such table'
    assert caplog.messages == [line]
    told.looks(int(TELL_EVERY_S / LOOK_EVERY_S) - 1, parked)
    assert caplog.messages == [line]
    told.looks(1, parked)
    assert caplog.messages == [line, line]
    told.looks(2, lane())
    assert caplog.messages == [line, line, "everything is read again"]


def test_a_line_has_a_few_of_many(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    told.looks(2, *(lane(consumer=f"c{n}", state="parked") for n in range(5)))
    (line,) = caplog.messages
    assert line.endswith('lane "c2": is parked; and 2 more, which /readyz names')


def test_nothing_is_looked_at_too_often(told: Told) -> None:
    told.looks(1, lane())
    told.readiness._facts = lambda: pytest.fail("it is not time to look")
    told.readiness.tell()


def test_the_gauge_and_the_page_say_the_same(told: Told) -> None:
    registry = CollectorRegistry()
    meters = meters_for(registry)

    def gauge() -> float | None:
        return registry.get_sample_value("rscylla_service_ready")

    assert gauge() is None, "there is no service"
    meters.show_ready(told.readiness.holds)
    assert (gauge(), report(ready(told.facts, LIMITS))["status"]) == (1.0, "ok")
    told.facts = facts(lane(state="parked"))
    assert (gauge(), report(ready(told.facts, LIMITS))["status"]) == (0.0, "failed")
    other = Told()
    meters.show_ready(other.readiness.holds)
    assert gauge() == 0.0
    meters.hide_ready(told.readiness.holds)
    assert gauge() == 1.0, "the other service runs on"
    meters.hide_ready(other.readiness.holds)
    assert gauge() == 0.0
