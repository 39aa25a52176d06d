"""The patterns over a CDC log, with faults all the way: nothing is lost, keys stay in order, letters are the poison."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaDeadLetters
from rscylla.abc import Consumer

WRITES, KEYS = 240, 12
POISON = {17, 101, 102, 200}
QUICK = rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))


class Orders:
    """A table of numbered changes, and what came of them."""

    def __init__(self, session: rscylla.Session, keyspace: str) -> None:
        self.session, self.keyspace = session, keyspace
        session.execute(
            f"CREATE TABLE {keyspace}.orders (pk int, ck int, n int, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true}"
        )
        for n in range(WRITES):
            session.execute(f"INSERT INTO {keyspace}.orders (pk, ck, n) VALUES ({n % KEYS}, {n % 2}, {n})")
        self.got: list[tuple[int, int]] = []
        self.letters = ScyllaDeadLetters(session, keyspace, create=True)
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()

    def take(self, event: rscylla.Event) -> None:
        assert event.change is not None
        assert event.change.after is not None
        n = event.change.after["n"]
        if n in POISON:
            raise ValueError(f"order {n}")
        with self._lock:
            self.got.append((event.key["pk"], n))

    def run(self, consumer: Consumer, fate: rscylla.Fate) -> int:
        """Run to the head, over all errors that fate makes; return how many runs it took."""
        stream = rscylla.NewStream(self.session, self.keyspace, "orders", poll=timedelta(milliseconds=20))
        store = ScyllaCursorStore(self.session, self.keyspace, create=True)
        options = rscylla.StreamLag(seconds=0), rscylla.StreamToHead()
        errors: list[Exception] = []
        rscylla.run_forever(
            rscylla.Spec(stream, store, consumer, *options, fate=fate), backoff=QUICK, on_error=errors.append
        )
        assert all(isinstance(error.__cause__, rscylla.errors.FateError) for error in errors), errors
        return len(errors) + 1


def single(orders: Orders, fn: Any) -> Consumer:
    inner = rscylla.Consumer("billing", fn, registry=orders.registry)
    return rscylla.dead_letter(inner, orders.letters, retries=2, backoff=QUICK)


def dead_letter(orders: Orders) -> Consumer:
    return single(orders, lambda event, fate: orders.take(event))


def concurrent(orders: Orders) -> Consumer:
    return rscylla.concurrent(dead_letter(orders), workers=4)


def batch(orders: Orders) -> Consumer:
    def take(events: Sequence[rscylla.Event], fate: Any) -> None:
        for event in events:
            orders.take(event)

    return rscylla.batch("billing", take, size=9, fallback=dead_letter(orders), registry=orders.registry)


def ack(orders: Orders) -> Consumer:
    """Acknowledges seven events at a time, the last first, from another thread."""
    handler = dead_letter(orders)
    waiting: list[Any] = []

    def acknowledge(handed: list[Any]) -> None:
        for done in reversed(handed):
            done()

    def take(event: rscylla.Event, fate: Any, done: rscylla.reflex.Ack) -> None:
        handler.consume(event, fate)
        waiting.append(done)
        if len(waiting) == 7 or event.change.after["n"] == WRITES - 1:  # type: ignore[union-attr, index]
            thread = threading.Thread(target=acknowledge, args=([waiting.pop(0) for _ in list(waiting)],))
            thread.start()
            thread.join()

    return rscylla.ack("billing", take, registry=orders.registry)


@pytest.mark.parametrize("pattern", [dead_letter, concurrent, batch, ack])
def test_nothing_is_lost_and_exactly_the_poison_becomes_letters(
    session: rscylla.Session, keyspace: str, pattern: Any
) -> None:
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    orders = Orders(session, keyspace)
    runs = orders.run(pattern(orders), rscylla.Fate(0.01, seed=seed))
    assert {n for _, n in orders.got} == set(range(WRITES)) - POISON
    for pk in range(KEYS):
        firsts = list(dict.fromkeys(n for key, n in orders.got if key == pk))
        assert firsts == sorted(firsts)
    letters = list(orders.letters.list_letters("billing"))
    assert {letter.event.change.after["n"] for letter in letters} == POISON  # type: ignore[union-attr, index]
    print(f"{runs} runs, {len(orders.got) - (WRITES - len(POISON))} repeats")


def table(session: rscylla.Session, keyspace: str) -> rscylla.Stream:
    session.execute(f"CREATE TABLE {keyspace}.places (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
    return rscylla.NewStream(session, keyspace, "places", poll=timedelta(milliseconds=20))


def test_a_new_consumer_starts_at_the_head_that_it_had_before_it_failed(
    session: rscylla.Session, keyspace: str
) -> None:
    stream = table(session, keyspace)
    insert = session.prepare(f"INSERT INTO {keyspace}.places (id) VALUES (?)")
    for place in range(5):
        session.execute(insert, (place,))
    seen: list[int] = []

    def take(event: rscylla.Event, fate: rscylla.Fate) -> None:
        if not seen and event.key["id"] == 5 and not failed:
            failed.append(5)
            raise rscylla.errors.FateError("before anything was saved")
        seen.append(event.key["id"])

    failed: list[int] = []
    options = rscylla.StreamLag(seconds=0), rscylla.StreamToHead()
    consumer = rscylla.Consumer("places", take, registry=CollectorRegistry())
    store = ScyllaCursorStore(session, keyspace, create=True)
    spec = rscylla.reflex.bootstrap(rscylla.Spec(stream, store, consumer, *options))
    with pytest.raises(rscylla.HeadReached):
        rscylla.run(spec)
    assert seen == []
    for place in (5, 6):
        session.execute(insert, (place,))
    with pytest.raises(rscylla.RunError):
        rscylla.run(spec)
    with pytest.raises(rscylla.HeadReached):
        rscylla.run(spec)
    assert seen == [5, 6]


def test_an_event_that_comes_while_it_is_polled_for_is_not_missed(session: rscylla.Session, keyspace: str) -> None:
    stream = table(session, keyspace)
    polls: list[int] = []

    def poll() -> bool:
        polls.append(1)
        if len(polls) == 1:
            session.execute(f"INSERT INTO {keyspace}.places (id) VALUES (7)")
        return False

    lag = rscylla.StreamLag(seconds=0)
    found = rscylla.reflex.await_event(stream, poll, lag, foreign_id='{"id":7}', timeout=timedelta(seconds=60))
    assert found is not None
    assert found.key == {"id": 7}
