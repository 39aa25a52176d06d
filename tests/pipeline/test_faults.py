"""The source on a cluster that breaks: nothing is lost, nothing comes out of order, and a failure moves no cursor."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.cdc.log import clocks
from rscylla.driver import session as driver
from rscylla.embedded import EmbeddedScylla, Faults, Rule, Statements
from rscylla.reflex import Backoff

NODES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
LOG = Statements(kind="select", table="orders_scylla_cdc_log")
LATER_PAGES = Statements(kind="select", table="orders_scylla_cdc_log", later_pages=True)
LAG = rscylla.StreamLag(milliseconds=100)
LIMITS = rscylla.Limits(
    page_size=7, backoff=Backoff(initial=timedelta(milliseconds=10), maximum=timedelta(milliseconds=50))
)
KEYS = 4

_numbers = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(3, seed=7, vnodes=2) as server:
        yield server


@pytest.fixture
def scylla(running: EmbeddedScylla) -> Iterator[EmbeddedScylla]:
    yield running
    running.faults.clear()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until *condition* holds; only a minute without it is a failure."""
    clock, never = rscylla.SystemClock(), rscylla.Stop()
    deadline = clock.monotonic() + 60
    while not condition():
        assert clock.monotonic() < deadline, f"a minute passed without: {what}"
        clock.wait(never, 0.005)


class Orders:
    """A new table, the changes written to it, and a consumer with all its events and saved cursors."""

    def __init__(self, scylla: EmbeddedScylla) -> None:
        hosts = [f"{node}:{scylla.port}" for node in NODES]
        self.session = rscylla.connect(hosts)
        self.session._default_timeout = 1.0  # that of preparing a statement
        self._owner = scylla
        self.keyspace = f"ks{next(_numbers)}"
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        scylla.execute(f"CREATE KEYSPACE {self.keyspace} WITH replication = {replication}")
        scylla.execute(
            f"CREATE TABLE {self.keyspace}.orders (pk int, n int, PRIMARY KEY (pk, n)) WITH cdc = {{'enabled': true}}"
        )
        self.written = 0
        self.delivered: list[tuple[int, int]] = []
        self.ids: list[str] = []
        self.errors: list[rscylla.RunError] = []
        self.store = CheckedStore(self)

    def write(self, rows: int) -> None:
        """Write past the protocol, so that no fault meets it."""
        for _ in range(rows):
            self._owner.execute(
                f"INSERT INTO {self.keyspace}.orders (pk, n) VALUES ({self.written % KEYS}, {self.written})"
            )
            self.written += 1

    def stream(self, **options: Any) -> rscylla.Stream:
        return rscylla.NewStream(self.session, self.keyspace, "orders", **{"limits": LIMITS, **options})

    def spec(self, stream: rscylla.Stream) -> rscylla.Spec:
        consumer = rscylla.Consumer("billing", self._consume, lag_alert=None, activity_ttl=None)
        until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
        return rscylla.Spec(stream, self.store, consumer, LAG, until)

    def _consume(self, event: rscylla.Event, _fate: rscylla.Fate) -> None:
        self.delivered.append((event.key["pk"], event.key["n"]))
        self.ids.append(event.id)

    def run_to_the_end(self, stream: rscylla.Stream | None = None, *, attempts: int = 1) -> None:
        """Run until every change so far is delivered; collect failures that a retry may fix."""
        spec = self.spec(stream or self.stream())
        for _ in range(attempts):
            try:
                rscylla.run(spec)
            except rscylla.HeadReached:
                return
            except rscylla.RunError as error:
                self.errors.append(error)
                if not error.resumable:
                    raise
                rscylla.Stop().wait(0.1)
        raise self.errors[-1]

    def check(self) -> None:
        """Everything was delivered, once, and in the order it was written within each partition."""
        assert sorted(n for _, n in self.delivered) == list(range(self.written))
        for key in range(KEYS):
            numbers = [n for pk, n in self.delivered if pk == key]
            assert numbers == sorted(numbers)

    def close(self) -> None:
        self._owner.faults.clear()  # a driver that shuts down waits for the answer of a node that hangs
        self.session.cluster.shutdown()


class CheckedStore(MemoryCursorStore):
    """Compares each cursor with the deliveries: it is the last event, or a time before which all were delivered."""

    def __init__(self, orders: Orders) -> None:
        super().__init__()
        self._orders = orders

    def set_cursor(self, consumer: str, cursor: str) -> None:
        at = rscylla.EventID.parse(cursor)
        if at.is_row:
            assert cursor == self._orders.ids[-1]
        elif self._orders.ids:
            assert at.exact_us >= rscylla.EventID.parse(self._orders.ids[-1]).exact_us
        super().set_cursor(consumer, cursor)


@pytest.fixture
def orders(scylla: EmbeddedScylla) -> Iterator[Orders]:
    with contextlib.closing(Orders(scylla)) as made:
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests time out soon."""
    monkeypatch.setattr(driver, "REQUEST_TIMEOUT_S", 0.4)
    monkeypatch.setattr(driver, "METADATA_TIMEOUT_S", 0.4)
    monkeypatch.setattr(clocks, "SAMPLE_TIMEOUT_S", 0.4)


def seeded(name: Any) -> Callable[[Faults], Rule]:
    return lambda faults: faults.fail(name, LOG, times=None, probability=0.15, seed=5)


ANSWERS: dict[str, Callable[[Faults], Rule]] = {
    "unavailable": seeded("unavailable"),
    "read_timeout": seeded("read_timeout"),
    "read_failure": seeded("read_failure"),
    "overloaded": seeded("overloaded"),
    "bootstrapping": seeded("bootstrapping"),
    "rate_limit": seeded("rate_limit"),
    "server_error": seeded("server_error"),
    "unprepared": seeded("unprepared"),
    "between pages": lambda faults: faults.drop_connection(LATER_PAGES, times=2),
    "within a page": lambda faults: faults.drop_connection(LATER_PAGES, times=2, partway=True),
    "empty pages": lambda faults: faults.cut_pages(2, LOG, empty=True),
    "one row a page": lambda faults: faults.cut_pages(1, LOG),
    "slow pages": lambda faults: faults.delay(timedelta(milliseconds=20), LOG, times=None, probability=0.3, seed=1),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_one_run_survives(scylla: EmbeddedScylla, orders: Orders, name: str) -> None:
    orders.write(120)
    rule = ANSWERS[name](scylla.faults)
    orders.run_to_the_end()
    orders.check()
    assert rule.hits > 0
    assert orders.errors == []


@pytest.mark.parametrize("prefetch", [0, 1])
def test_requests_that_are_never_answered(
    scylla: EmbeddedScylla, impatient: None, orders: Orders, prefetch: int
) -> None:
    orders.write(60)
    rule = scylla.faults.no_answer(LOG, times=3)
    orders.run_to_the_end(orders.stream(prefetch=prefetch))
    orders.check()
    assert rule.hits == 3


def test_a_node_that_hangs(scylla: EmbeddedScylla, impatient: None, orders: Orders) -> None:
    orders.write(60)
    scylla.faults.stall_node(NODES[1])
    orders.run_to_the_end(attempts=20)
    orders.check()


def test_a_stop_does_not_wait_for_a_query_that_is_never_answered(
    scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch, orders: Orders
) -> None:
    """A service that loses its lease, or is to end, on a cluster that hangs: it has to stand by, or end, in time."""
    orders.write(3)
    stop, ended = rscylla.Stop(), threading.Event()

    def run() -> None:
        consumer = rscylla.Consumer("billing", orders._consume)
        with contextlib.suppress(rscylla.Stopped):
            rscylla.run(rscylla.Spec(orders.stream(), orders.store, consumer, LAG), stop=stop)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    until(lambda: len(orders.ids) == 3, "all is delivered")
    monkeypatch.setattr(driver, "METADATA_TIMEOUT_S", 600.0)
    rule = scylla.faults.no_answer(Statements(kind="select", keyspace="system_distributed"), times=None)
    until(lambda: rule.hits > 0, "a node is asked in vain")
    stop.set()
    assert ended.wait(60)


@pytest.mark.parametrize("asked", ["system_schema", "system", "system_distributed"])
def test_a_stop_does_not_wait_for_a_stream_that_cannot_be_opened(
    scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch, orders: Orders, asked: str
) -> None:
    """A service that is to end while it starts on a cluster that hangs."""
    stop, ended = rscylla.Stop(), threading.Event()
    monkeypatch.setattr(driver, "METADATA_TIMEOUT_S", 600.0)
    monkeypatch.setattr(clocks, "SAMPLE_TIMEOUT_S", 600.0)
    rule = scylla.faults.no_answer(Statements(kind="select", keyspace=asked), times=None)

    def run() -> None:
        consumer = rscylla.Consumer("billing", orders._consume)
        try:
            rscylla.run(rscylla.Spec(orders.stream(), orders.store, consumer, LAG), stop=stop)
        except rscylla.Stopped:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    until(lambda: rule.hits > 0, "a node is asked in vain")
    stop.set()
    assert ended.wait(60)


def test_a_node_that_is_lost_within_a_window(scylla: EmbeddedScylla, orders: Orders) -> None:
    orders.write(120)
    rules = {
        node: scylla.faults.delay(
            timedelta(seconds=1), Statements(kind="select", table="orders_scylla_cdc_log", node=node), times=None
        )
        for node in NODES
    }
    lost: list[str] = []

    def stop_one_that_is_asked() -> None:
        never = threading.Event()
        while not (asked := [node for node, rule in rules.items() if rule.hits]):
            never.wait(0.005)
        lost.append(asked[-1])
        scylla.faults.stop_node(lost[0])
        for rule in rules.values():
            rule.remove()

    killer = threading.Thread(target=stop_one_that_is_asked)
    killer.start()
    orders.run_to_the_end()
    killer.join()
    orders.check()
    orders.write(30)
    orders.run_to_the_end()
    scylla.faults.start_node(lost[0])
    orders.write(30)
    orders.run_to_the_end()
    orders.check()


@pytest.mark.parametrize("keyspace", ["system_distributed", "system_schema"])
def test_metadata_that_cannot_be_read_for_a_while(scylla: EmbeddedScylla, orders: Orders, keyspace: str) -> None:
    orders.write(40)
    rule = scylla.faults.fail("read_timeout", Statements(kind="select", keyspace=keyspace), times=3)
    orders.run_to_the_end(attempts=5)
    orders.check()
    assert rule.hits == 3


def test_a_cluster_that_is_down_for_longer_fails_the_run_and_leaves_the_cursor(
    scylla: EmbeddedScylla, orders: Orders
) -> None:
    orders.write(40)
    orders.run_to_the_end()
    saved = orders.store.get_cursor("billing")
    orders.write(40)
    with scylla.faults.fail("unavailable", LOG, times=None):
        with pytest.raises(rscylla.RunError) as caught:
            orders.run_to_the_end()
        assert isinstance(caught.value.__cause__, rscylla.QueryTimeout)
    assert orders.store.get_cursor("billing") == saved
    assert len(orders.delivered) == 40
    orders.run_to_the_end()
    orders.check()


@pytest.mark.parametrize("fault", ["invalid", "unauthorized"])
def test_errors_that_stay_stop_at_once(scylla: EmbeddedScylla, orders: Orders, fault: Any) -> None:
    orders.write(40)
    one_at_a_time = orders.stream(limits=rscylla.Limits(in_flight=1, page_size=7), prefetch=0)
    with scylla.faults.fail(fault, LOG, times=None) as rule:
        with pytest.raises(rscylla.RunError) as caught:
            rscylla.run(orders.spec(one_at_a_time))
        assert not caught.value.resumable
        assert isinstance(caught.value.__cause__, rscylla.errors.QueryFailed)
        assert rule.hits == 1
    assert orders.delivered == []
    assert not orders.store.get_cursor("billing")
    orders.run_to_the_end()
    orders.check()


def test_a_write_that_is_logged_twice_comes_twice_with_two_ids(scylla: EmbeddedScylla, orders: Orders) -> None:
    scylla.faults.replay_writes(orders.keyspace, "orders")
    orders.write(8)
    orders.run_to_the_end()
    assert sorted(n for _, n in orders.delivered) == [0, *range(8)]
    assert len(set(orders.ids)) == 9


def test_rows_that_come_late_are_delivered_if_the_lag_covers_them(scylla: EmbeddedScylla, orders: Orders) -> None:
    scylla.faults.hold_writes(orders.keyspace, "orders", times=2)
    orders.write(20)
    spec = orders.spec(orders.stream())
    spec = rscylla.Spec(spec.stream, orders.store, spec.consumer, rscylla.StreamLag(seconds=2), rscylla.StreamToHead())
    with contextlib.suppress(rscylla.HeadReached):
        rscylla.run(spec)  # nothing is old enough yet
    assert orders.delivered == []
    assert scylla.faults.deliver_held() == 2
    orders.run_to_the_end()
    orders.check()


@pytest.mark.parametrize("seed", range(2))
def test_everything_at_once(scylla: EmbeddedScylla, impatient: None, orders: Orders, seed: int) -> None:
    """Writes continue while answers fail, connections break, pages are empty, and a node stops, stalls, and returns."""
    dice = random.Random(seed)
    names = ("unavailable", "read_timeout", "overloaded", "rate_limit", "unprepared", "server_error")
    for name in names:
        scylla.faults.fail(name, LOG, times=None, probability=0.03, seed=dice.randrange(1000))
    scylla.faults.drop_connection(LOG, times=3, probability=0.05, seed=seed)
    scylla.faults.drop_connection(LOG, times=3, probability=0.05, seed=seed, partway=True)
    scylla.faults.no_answer(LOG, times=3, probability=0.05, seed=seed)
    scylla.faults.cut_pages(3, LOG, empty=True, probability=0.5, seed=seed)
    for step in range(3):
        node = dice.choice(NODES)
        if step == 0:
            scylla.faults.stop_node(node)
        elif step == 1:
            scylla.faults.stall_node(node)
        orders.write(40)
        orders.run_to_the_end(attempts=60)
        scylla.faults.resume_node(node)
        scylla.faults.start_node(node)
    scylla.faults.clear()
    orders.run_to_the_end(attempts=3)
    orders.check()
