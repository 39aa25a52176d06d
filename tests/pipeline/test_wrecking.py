"""A consumer that modifies its event: other users do not see that, and neither does the consumer's next attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from draining import changes_of
from prometheus_client import CollectorRegistry
from wrecking import PARTS, wreck, wreck_event

import rscylla
from cursorstore import MemoryCursorStore, MemoryDeadLetters
from rscylla.embedded import EmbeddedScylla

LAG = rscylla.StreamLag(milliseconds=100)
PAUSES = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1))
STATEMENTS = (
    "INSERT INTO shop.t (pk, ck, l, m, z, u, f, t) VALUES (1, 1, [1, 2], {1: 2}, {3}, {a: 1, b: [2]}, {[4]}, (5, [6]))",
    "UPDATE shop.t SET l = l + [3], m[5] = 6, z = z + {7}, u.a = 8, m = m - {1} WHERE pk = 1 AND ck = 1",
    "UPDATE shop.t SET l = [9], m = {9: 9}, z = {9}, u = {a: 9, b: [9]} WHERE pk = 1 AND ck = 1",
    "UPDATE shop.t SET s = 'static' WHERE pk = 1",
    "DELETE FROM shop.t WHERE pk = 1 AND ck > 0 AND ck < 5",
    "DELETE FROM shop.t WHERE pk = 1",
)


@pytest.fixture(scope="module")
def stream() -> Iterator[rscylla.Stream]:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TYPE shop.pair (a int, b frozen<list<int>>)")
        session.execute(
            "CREATE TABLE shop.t (pk int, ck int, l list<int>, m map<int, int>, z set<int>, u pair, s text static, "
            "f frozen<set<frozen<list<int>>>>, t tuple<int, frozen<list<int>>>, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
        )
        for statement in STATEMENTS:
            session.execute(statement)
        yield rscylla.NewStream(session, "shop", "t")


def events_of(stream: rscylla.Stream) -> list[rscylla.ChangeEvent]:
    """Return the events of the table, as new objects."""
    client = stream("", LAG, rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1)))
    try:
        return changes_of(client)
    finally:
        client.close()


def told(event: Any) -> dict[str, Any]:
    """Return all that *event* says."""
    parts = {part: getattr(event.change, part) for part in PARTS}
    return parts | {"event key": event.key, "id": event.id, "fid": event.foreign_id, "metadata": event.metadata}


@pytest.mark.parametrize("part", PARTS)
def test_modifying_a_part_of_a_change_does_not_affect_the_change(stream: rscylla.Stream, part: str) -> None:
    untouched = [told(event) for event in events_of(stream)]
    assert len(untouched) >= len(STATEMENTS)
    assert any(one[part] for one in untouched), "there is nothing to be wrecked"
    for event, before in zip(events_of(stream), untouched, strict=True):
        for _ in range(3):
            got = getattr(event.change, part)
            assert got == before[part]
            wreck(got)
        assert told(event) == before


def test_attempts_letters_and_fallbacks_get_the_content_of_the_log(stream: rscylla.Stream) -> None:
    untouched = [told(event) for event in events_of(stream)]
    seen: list[dict[str, Any]] = []
    registry = CollectorRegistry()

    def fail(event: rscylla.Event, fate: rscylla.Fate) -> None:
        seen.append(told(event))
        wreck_event(event)
        raise ValueError("no")

    def take(events: Any, fate: rscylla.Fate) -> None:
        for event in events:
            wreck_event(event)
        events.clear()
        raise ValueError("no")

    def wanted(event: rscylla.Event) -> bool:
        wreck_event(event)
        return True

    letters = MemoryDeadLetters()
    single = rscylla.dead_letter(
        rscylla.Consumer("billing", fail, registry=registry, event_filter=wanted), letters, retries=1, backoff=PAUSES
    )
    consumer = rscylla.batch("billing", take, size=3, fallback=single, registry=registry, event_filter=wanted)
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
    rscylla.run_forever(rscylla.Spec(stream, MemoryCursorStore(), consumer, LAG, until))
    assert seen == [one for one in untouched for _ in range(2)]
    kept = {letter.event.id: letter.event for letter in letters.list_letters("billing")}
    assert {one: (event.foreign_id, event.metadata) for one, event in kept.items()} == {
        one["id"]: (one["fid"], one["metadata"]) for one in untouched
    }
