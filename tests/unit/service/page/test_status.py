"""``/status`` and the page of a service: what they show, and what they never do. The page in a browser: tests/web."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry
from waiting import eventually

from cursorstore import MemoryDeadLetters
from rscylla._letters import DeadLetter
from rscylla._timeuuid import datetime_of
from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.event import SimpleEvent
from rscylla.reflex import CircuitBreaker, Consumer, Spec, slice_of
from rscylla.reflex.telemetry.meters import meters_for
from rscylla.service import Restarts, Service, letter_counts
from rscylla.service.health import Facts, GroupFacts, LaneFacts, Limits
from rscylla.service.letter_counts import LISTED, LetterCounts
from rscylla.service.page import status
from rscylla.service.page.history import EVERY_S, NOTES, POINTS, History
from rscylla.service.page.page import page
from rscylla.service.page.status import Watch
from rscylla.testing import FakeCursorStore, FakeStream, ManualClock

START_US = 1_790_000_000_000_000
LIMITS = Limits(900.0, 120.0)
SECRET = "4111 1111 1111 1111"


def lane(name: str = "billing", **more: Any) -> LaneFacts:
    base, fast, _ = name.partition("[fast]")
    consumer, *part = slice_of(base)
    told = {"source": "shop.orders", "state": "streaming", "part_of": consumer + fast, "key_slice": tuple(part)}
    return LaneFacts(name, **(told | more))


def facts(*lanes: LaneFacts, **more: Any) -> Facts:
    return Facts(**({"supervised": True, "stopping": False, "lanes": lanes} | more))


class Told:
    """A history that is told facts, one sample every few seconds."""

    def __init__(self) -> None:
        self.history = History()
        self.at_s = 0.0

    def sample(self, found: Facts, breakers: Mapping[str, str] | None = None) -> None:
        now_us = START_US + int(self.at_s * 1e6)
        self.history.sample(found, breakers or {}, now_us=now_us, monotonic_s=self.at_s)
        self.at_s += EVERY_S

    def noted(self) -> list[tuple[str, str]]:
        return [(note.about, note.what) for note in self.history.notes()]


@pytest.fixture
def told() -> Told:
    return Told()


# ---------------------------------------------------------------- the history


def test_slices_of_a_consumer_are_one_chart_of_the_highest_lag_and_all_events(told: Told) -> None:
    told.sample(facts(lane("billing[0/2]", watermark_lag_s=31.0), lane("billing[1/2]", watermark_lag_s=40.5)))
    told.sample(facts(lane("billing[0/2]", events=10), lane("billing[1/2]", watermark_lag_s=30.0, events=40)))
    assert told.history.charts()[1] == {"billing": {"lag_s": [40.5, 30.0], "events_s": [0.0, 10.0]}}


def test_fast_lanes_have_a_chart_of_their_own(told: Told) -> None:
    told.sample(facts(lane("billing[0/2]"), lane("billing[0/2][fast]"), lane("audit[fast]")))
    assert sorted(told.history.charts()[1]) == ["audit[fast]", "billing", "billing[fast]"]


def test_what_a_lane_counted_before_it_was_seen_is_no_rate(told: Told) -> None:
    told.sample(facts(lane(events=1_000_000)))
    told.sample(facts(lane(events=1_000_005), lane("late", events=9_999)))
    told.sample(facts(lane(events=20), lane("late", events=9_999)))  # it moved away, came back, and counts from zero
    charts = told.history.charts()[1]
    assert charts["billing"]["events_s"] == [0.0, 1.0, 4.0]
    assert charts["late"]["events_s"] == [None, 0.0, 0.0]


def test_a_history_is_bounded(told: Told) -> None:
    for i in range(POINTS + NOTES):
        generations = {"generation_us": START_US + i}
        told.sample(facts(*(lane(f"c{n}", restarts=i, **generations) for n in range(3)), lane(f"gone-{i // POINTS}")))
    times, charts = told.history.charts()
    assert len(times) == POINTS
    assert times[-1] - times[0] == (POINTS - 1) * EVERY_S * 1e6
    assert {len(values) for chart in charts.values() for values in chart.values()} == {POINTS}
    assert len(told.noted()) == len(told.history.switches()) == NOTES


def test_a_consumer_that_is_long_gone_has_no_chart(told: Told) -> None:
    told.sample(facts(lane("gone")))
    for _ in range(POINTS):
        told.sample(facts(lane()))
    assert sorted(told.history.charts()[1]) == ["billing"]


def test_a_generation_switch_is_one_for_all_slices(told: Told) -> None:
    old, new = START_US - 10**9, START_US - 10**6
    names = [f"billing[{n}/3]" for n in range(3)]
    told.sample(facts(*(lane(name, generation_us=None) for name in names)))
    told.sample(facts(*(lane(name, generation_us=old) for name in names)))
    told.sample(facts(lane(names[0], generation_us=new), *(lane(name, generation_us=old) for name in names[1:])))
    told.sample(facts(*(lane(name, generation_us=new) for name in names)))
    told.sample(facts(*(lane(name, generation_us=new) for name in names)))
    at_us = START_US + int(2 * EVERY_S * 1e6)
    (found,) = told.history.switches()
    assert attrs.astuple(found) == (at_us, "billing", old, new, 3, at_us + int(EVERY_S * 1e6))


def test_what_changes_is_noted_once_for_all_slices(told: Told) -> None:
    names = [f"billing[{n}/3]" for n in range(3)]
    told.sample(facts(*map(lane, names)), {"warehouse": "closed"})
    assert told.noted() == []
    told.sample(facts(*(lane(name, restarts=1, last_error="no node answers") for name in names)), {"warehouse": "open"})
    told.sample(facts(*(lane(name, restarts=1) for name in names)), {"warehouse": "open"})
    told.sample(facts(lane(names[0], state="parked", restarts=1, why="no such table")), {"warehouse": "closed"})
    assert told.noted() == [
        ("circuit breaker warehouse", "closed"),
        ("billing", "parked: no such table"),
        ("circuit breaker warehouse", "open"),
        ("billing", "restarted, 3 lanes: no node answers"),
    ]


def test_a_lease_that_comes_and_goes_is_noted(told: Told) -> None:
    for held, epoch in ((False, 0), (True, 4), (True, 4), (False, 4)):
        told.sample(facts(lane(), lease="shop", held=held, epoch=epoch))
    assert told.noted() == [("lease shop", "not held"), ("lease shop", "held, epoch 4")]


# ---------------------------------------------------------------- the document


class Asked:
    """Dead letters that note who asks for them."""

    def __init__(self, letters: Any) -> None:
        self.letters = letters
        self.calls: list[str] = []

    def count_letters(self, consumer: str | None = None) -> Mapping[str, int]:
        self.calls.append("count")
        counts: Mapping[str, int] = self.letters.count_letters(consumer)
        return counts

    def list_letters(self, consumer: str | None = None, **more: Any) -> Iterator[DeadLetter]:
        self.calls.append(f"list {consumer}")
        return iter(self.letters.list_letters(consumer, **more))


def letter(consumer: str, number: int) -> DeadLetter:
    event = SimpleEvent(f"e{number}", timestamp=datetime_of(START_US + number), foreign_id=f'{{"card":"{SECRET}"}}')
    failed_at = datetime(2026, 11, 21, 10, tzinfo=UTC) + timedelta(seconds=number)
    return DeadLetter.of(consumer, event, ValueError(f"bad card {SECRET}"), attempts=3, failed_at=failed_at)


def stored(*letters: DeadLetter) -> Asked:
    store = MemoryDeadLetters()
    for one in letters:
        store.put(one)
    return Asked(store)


def counted(asked: Asked, rounds: int = 1, shown: Any = lambda name: True) -> LetterCounts:
    """Return what is known after so many counts."""
    clock = ManualClock()
    counts = LetterCounts(asked, clock, lambda found: None, shown)  # type: ignore[arg-type]
    clock.on_wait = lambda seconds: counts.stop() if len(clock.waits) == rounds else None
    counts._work()
    return counts


def document(found: Facts, letters: LetterCounts | None = None, *, show_values: bool = False) -> dict[str, Any]:
    watch = Watch(lambda: found, dict, LIMITS, letters, ManualClock(START_US), show_values=show_values)
    body: dict[str, Any] = json.loads(watch.answer({}).body)
    return body


def test_a_document_of_a_service_in_slices() -> None:
    found = document(
        facts(
            lane("billing[0/2]", watermark_lag_s=31.23456, events=3, dead_letters=1, generation_us=START_US),
            lane("billing[1/2]", state="parked", why="no such table", restarts=2, events=4, dead_letters=0),
            lane("audit"),
        )
    )
    assert (found["version"], found["time"], found["service"]["state"]) == (1, "2026-09-21T14:13:20Z", "running")
    assert found["consumers"][0] == {
        "consumer": "billing",
        "source": "shop.orders",
        "lanes": 2,
        "states": {"streaming": 1, "parked": 1},
        "lag_s": 31.235,
        "events": 7,
        "events_s": 0.0,
        "restarts": 2,
        "dead_letters": 1,
        "generation": "2026-09-21T14:13:20Z",
    }
    first, second, third = found["lanes"]
    assert (first["lane"], first["consumer"], first["slice"], first["slices"]) == ("billing[0/2]", "billing", 0, 2)
    assert (first["lag_s"], first["generation"]) == (31.235, "2026-09-21T14:13:20Z")
    assert (second["state"], second["why"]) == ("parked", "no such table")
    assert (third["slice"], third["slices"], third["lag_s"]) == (None, None, None)
    assert found["checks"]["healthz"] == {"status": "ok", "failed": []}
    assert found["checks"]["readyz"]["failed"] == [{"check": 'lane "billing[1/2]"', "why": "is parked: no such table"}]
    assert (found["dead_letters"], found["lease"], found["breakers"]) == (None, None, [])


@pytest.mark.parametrize("show_values", [False, True])
def test_row_values_are_shown_only_if_asked_for(show_values: bool) -> None:
    letters = counted(stored(letter("billing", 1)))
    found = document(facts(lane()), letters, show_values=show_values)
    (newest,) = found["dead_letters"]["newest"]
    assert (newest["error"], newest["attempts"], newest["event_id"]) == ("ValueError", 3, "e1")
    assert (SECRET in json.dumps(found)) is show_values
    assert found["dead_letters"]["show_values"] is show_values
    if show_values:
        assert "bad card" in newest["traceback"]
        assert SECRET in newest["key"]


def test_the_newest_letters_come_first_whatever_consumer_they_are_of() -> None:
    asked = stored(*(letter(f"c[{n % 3}/3]", n) for n in range(30)), letter("other", 99))
    letters = counted(asked, shown=lambda name: name != "other")
    assert [one.event.id for one in letters.newest] == [f"e{n}" for n in range(29, 19, -1)]
    assert "list other" not in asked.calls
    assert letters.shown_counts == {f"c[{n}/3]": 10 for n in range(3)}


def test_letters_are_listed_again_only_when_their_number_has_changed() -> None:
    asked = stored(letter("billing", 1))
    counted(asked, rounds=3)
    assert asked.calls == ["count", "list billing", "count", "count"]


def test_so_many_letters_are_listed_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_counts, "LISTED", 5)
    assert LISTED > 5
    letters = counted(stored(*(letter("billing", n) for n in range(6))))
    assert (letters.listed_all, [one.event.id for one in letters.newest]) == (False, ["e4", "e3", "e2", "e1", "e0"])
    assert counted(stored(*(letter("billing", n) for n in range(5)))).listed_all


def test_a_document_serves_many_readers_for_a_moment() -> None:
    made: list[None] = []
    clock = ManualClock(START_US)

    def found() -> Facts:
        made.append(None)
        return facts(lane())

    watch = Watch(found, dict, LIMITS, None, clock, show_values=False)
    for _ in range(50):
        watch.answer({})
    assert len(made) == 1
    clock.advance(status.FRESH_S)
    watch.answer({})
    assert len(made) == 2


def test_breakers_of_the_registry_are_shown_with_their_states() -> None:
    registry = CollectorRegistry()
    breaker = CircuitBreaker("warehouse", outage=ConnectionError, registry=registry)
    assert meters_for(registry).breakers() == {"warehouse": "closed"}
    breaker._machine.open()
    assert meters_for(registry).breakers() == {"warehouse": "open"}


def test_a_document_of_a_group_names_members_by_ids_that_prove_nothing() -> None:
    since = datetime(2026, 11, 21, 9, tzinfo=UTC)
    mine, other = GroupMember("0" * 32, "a:1", since, timedelta(seconds=20)), GroupMember("1" * 32, "b:2", drains=True)
    view = GroupView(
        "orders",
        3,
        6,
        (mine, other),
        (
            GroupSlice(0, 4, mine.token, "a:1", since, "b:2", "handed over"),
            GroupSlice(1, 1, other.token, "b:2"),
            GroupSlice(2, 7, "token of one that is gone", "c:3", since),
        ),
    )
    group = GroupFacts("orders", "a:1", mine.token, (0,), since, view, 1.25, {"received": 1})
    found = document(facts(group=group))["group"]
    assert mine.token not in json.dumps(found)
    first, second = found["members"]
    assert (first["id"], first["here"], first["slices"], first["expires_in_s"]) == ("0" * 12, True, [0], 20.0)
    assert (second["here"], second["slices"], second["drains"], second["since"]) == (False, [1], True, None)
    assert [one["holder"] for one in found["slices"]] == [first["id"], second["id"], None]
    assert (found["slices"][0]["before"], found["slices"][0]["why"]) == ("b:2", "handed over")
    assert (found["joined"], found["held"], found["next_count"]) == (True, [0], 6)


def test_a_document_of_a_process_that_is_no_member_yet() -> None:
    found = document(facts(group=GroupFacts("orders", "a:1")))
    assert (found["group"]["joined"], found["group"]["members"], found["group"]["slices"]) == (False, [], [])


# ---------------------------------------------------------------- a service


def get(service: Service, path: str) -> tuple[dict[str, str], bytes]:
    assert service.address is not None
    with urllib.request.urlopen("http://{}:{}".format(*service.address) + path, timeout=60) as answer:
        return dict(answer.headers), answer.read()


def service_of(consumer: Consumer, **more: Any) -> Service:
    registry = CollectorRegistry()
    spec = Spec(FakeStream(), FakeCursorStore(), consumer, registry=registry)
    return Service([spec], registry=registry, port=0, **more)


def test_a_service_answers_its_page_and_its_status_without_a_query() -> None:
    asked = stored(letter("billing", 1))
    with service_of(Consumer("billing", print, registry=CollectorRegistry()), dead_letters=asked) as service:  # type: ignore[arg-type]
        headers, body = get(service, "/")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        for _ in range(20):
            found = json.loads(get(service, "/status")[1])
        assert found["lanes"][0]["lane"] == "billing"
    assert asked.calls in ([], ["count"], ["count", "list billing"]), "the half-minute's count, and none for a reader"
    assert b"billing" not in body


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_a_consumer_raises_is_not_shown(kind: type[BaseException]) -> None:
    raised = threading.Event()

    def fail(event: Any, run: Any) -> None:
        raised.set()
        raise kind(f"bad card {SECRET}")

    registry = CollectorRegistry()
    failing = Spec(
        FakeStream([letter("billing", 1).event]),
        FakeCursorStore(),
        Consumer("billing", fail, registry=registry),
        registry=registry,
    )
    idle = Spec(FakeStream(), FakeCursorStore(), Consumer("audit", print, registry=registry), registry=registry)
    restarts = Restarts(most=0, give_up="park")
    service = Service([failing, idle], registry=registry, restarts=restarts, port=0)
    service.start()
    assert raised.wait(60)  # a stop may come before the first event
    if kind is ValueError:
        eventually(lambda: service._shown.watch._document()["lanes"][0]["state"] == "parked", 60)
    service.stop()
    service.wait()
    shown = json.dumps([service._shown.watch._document(), service.ready(), service.alive()])
    assert SECRET not in shown
    assert kind.__name__ in shown


def test_the_page_loads_nothing_and_its_policy_names_all_that_runs() -> None:
    answer = page({})
    html, policy = answer.body.decode(), dict(part.split(" ", 1) for part in answer.policy.split("; "))
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert len(text) > 1000
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert "unsafe" not in answer.policy
    markup = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    assert not re.search(r"\son\w+=|\sstyle=|<link[^>]+stylesheet|<script[^>]+src|https?://(?!www\.w3\.org)", markup)
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)[0]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|https?://(?!www\.w3\.org)", script
    )
