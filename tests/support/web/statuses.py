"""Documents of ``/status`` about services that no test has to run: large, in trouble, hostile."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cursorstore import MemoryDeadLetters
from rscylla._letters import DeadLetter
from rscylla._timeuuid import us_of
from rscylla.abc import GroupMember, GroupSlice, GroupView
from rscylla.event import SimpleEvent
from rscylla.service.health import Facts, GroupFacts, LaneFacts, Limits
from rscylla.service.letter_counts import LetterCounts
from rscylla.service.page.history import EVERY_S, POINTS, History
from rscylla.service.page.status import status
from rscylla.testing import ManualClock

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

HOSTILE = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>\'"&lt;</style>{{7*7}}`${window.hurt=1}`'
"""A name that is to be shown as it is."""

CONSUMERS = (
    *("billing", "billing[fast]", "audit", "shipping", "search", "mailing"),
    *("fraud", "inventory", "replica", "cache", "reports", "warehouse"),
)


def group_view(count: int = 64, members: int = 3, *, name: str = "orders-{}.shop:42") -> GroupView:
    """Return a group that shares its slices evenly. The first was just handed over, the last one is free."""
    who = [
        GroupMember(f"token-{m:06}", name.format(m), NOW - (30 - m) * MINUTE, timedelta(seconds=24 - m), renewals=m)
        for m in range(members)
    ]
    owners = [who[index * members // count] for index in range(count)]
    slices = [
        GroupSlice(index, 3, owner.token, owner.owner, owner.since, "", "taken") for index, owner in enumerate(owners)
    ]
    slices[0] = GroupSlice(0, 4, who[0].token, who[0].owner, NOW - MINUTE, who[-1].owner, "given")
    slices[-1] = GroupSlice(count - 1, 5, "token-gone", "orders-9.shop:42", NOW - 2 * MINUTE, "", "taken")
    return GroupView("orders", count, 0, tuple(who), tuple(slices))


def document(
    *,
    consumers: tuple[str, ...] = CONSUMERS,
    view: GroupView | None = None,
    in_group: bool = True,
    at: datetime = NOW,
    slices: int = 64,
    seed: float = 0.0,
    show_values: bool = False,
) -> dict[str, Any]:
    """Return the document of a service in which one lane restarts, a breaker is open, and letters are dead.

    In a group, nobody has the last slice; without one, it has all slices itself. Another *seed* gives other numbers.
    """
    view = (view or group_view(slices)) if in_group else None
    mine = [one.index for one in view.slices if one.holder == view.members[0].token] if view else range(slices)

    def lane(consumer: str, index: int, step: int) -> LaneFacts:
        base, fast, _ = consumer.partition("[fast]")
        restarts = consumer == "audit" and index == 3
        phase = CONSUMERS.index(consumer) if consumer in CONSUMERS else 0
        return LaneFacts(
            f"{base}[{index}/{slices}]{fast}",
            "shop.orders",
            "restarting" if restarts else "streaming",
            restarts=int(restarts and step > POINTS // 2),
            watermark_lag_s=(1.2 if fast else 31)
            + 3 * math.sin(step / 9 + phase) ** 2
            + (60 if phase == 2 else 0) * math.exp(-(((step - 90) / 9) ** 2))
            + seed,
            last_event_age_s=32.0,
            poll_age_s=0.0,
            dead_letters=2 * (consumer == "audit" and index == 3),
            why="no node answers; start one" if restarts else "",
            last_error="no node answers; start one" if restarts else "",
            events=int(step * 40 + 90 * math.sin(step / 7 + phase) + 500),
            generation_us=us_of(NOW - (600 if step < POINTS - 50 else 4) * MINUTE),
            part_of=consumer,
            key_slice=(index, slices),
        )

    history = History()
    for step in range(POINTS):
        lanes = tuple(lane(consumer, index, step) for consumer in consumers for index in (list(mine)[:4] or [0]))
        before_s = EVERY_S * (POINTS - 1 - step)
        history.sample(
            Facts(True, False, lanes),
            {"warehouse": "open" if step > POINTS - 20 else "closed"},
            now_us=us_of(at - timedelta(seconds=before_s)),
            monotonic_s=EVERY_S * step,
        )
    lanes = tuple(lane(consumer, index, POINTS - 1) for consumer in consumers for index in mine)
    group = None
    if view is not None:
        first = view.members[0]
        group = GroupFacts(
            *(view.name, first.owner, first.token, tuple(mine), first.since, view, 1.2, {"taken": 21}),
            readers={"shop.orders": frozenset(mine)},
        )
    document = status(
        Facts(True, False, lanes, group=group),
        Limits(900.0, 120.0),
        history,
        {"mail": "closed", "warehouse": "open"},
        _letters(consumers[-1]),
        now_us=us_of(at),
        show_values=show_values,
    )
    document["service"] |= {"host": "orders-0.shop", "pid": 42}
    return document


def _letters(consumer: str) -> LetterCounts:
    clock, store = ManualClock(), MemoryDeadLetters()
    for number in range(2):
        event = SimpleEvent(f'{{"cursor_gen":"2026-11-21T09:00:00Z","stream_seq":{number},"v":2}}', timestamp=NOW)
        failed_at = NOW - number * MINUTE
        store.put(DeadLetter.of(f"{consumer}[3/64]", event, ValueError("4111"), attempts=3, failed_at=failed_at))
    counts = LetterCounts(store, clock, lambda found: None, lambda name: True)
    clock.on_wait = lambda seconds: counts.stop()
    counts._work()  # one count, in this thread
    return counts


def hostile(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return *found* with ``HOSTILE`` at the end of every text that a person, a row or a database may have chosen."""
    chosen = {
        "why",
        "pause",
        "what",
        "error",
        "member",
        "owner",
        "before",
        "name",
        "host",
        "failure",
        "event_id",
        "lane",
    }
    chosen |= {"about", "consumer", "source", "check", "key", "traceback"}

    def spoil(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                (name + HOSTILE if key in ("consumers", "counts") else name): spoil(name, one)
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [spoil("", one) for one in value]
        return value + HOSTILE if key in chosen and isinstance(value, str) else value

    spoiled: dict[str, Any] = json.loads(json.dumps(spoil("", found)))
    return spoiled
