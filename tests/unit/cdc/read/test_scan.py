"""The scanner: one limit for queries in flight, retries per page, and when it gives up."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadFailure, Unavailable
from cassandra.connection import ConnectionShutdown
from fakelog import FakeBound, FakeStatement, blobs_of, body_of, type_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rscylla._retry import Backoff
from rscylla.cdc.log.query import ScanTask, StreamGroup
from rscylla.cdc.log.routing import routing_key_of
from rscylla.cdc.read.scan import Limits, Scanner, TooMuch
from rscylla.clock import Stop
from rscylla.driver.pages import Column, Page
from rscylla.errors import ConfigError, ConnectionFailed, QueryFailed, QueryTimeout, SourceError, Stopped
from rscylla.testing import ManualClock

COLUMNS = (Column("v", type_of("blob")),)
STATEMENT = FakeStatement("cql", type, 1, 10)


class Cluster:
    """Answers from a thread of its own, in any order. Each task has *pages* pages, named by stream and number."""

    def __init__(self, pages: int, seed: int = 0) -> None:
        self.pages = pages
        self.fault: Callable[[bytes, int], BaseException | None] = lambda stream, page: None
        self.is_empty: Callable[[bytes, int], bool] = lambda stream, page: False
        self.senders: list[int] = []
        self.in_flight = self.most = self.asked = 0
        self.hold = False
        self._lock = threading.Lock()
        self._dice = random.Random(seed)
        self._waiting: list[Callable[[], None]] = []
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def send(
        self,
        bound: FakeBound,
        state: bytes | None,
        *,
        on_page: Callable[[Page], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        number = int(state or b"0")
        (stream,) = blobs_of(bound.values[0])
        with self._lock:
            self.asked += 1
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            error = self.fault(stream, number)
            following = str(number + 1).encode() if number + 1 < self.pages else None
            rows = [] if self.is_empty(stream, number) else [(stream + b"/" + str(number).encode(),)]
            page = Page(COLUMNS, body_of(rows), 0, following)
            self.senders.append(threading.get_ident())
            self._waiting.append(lambda: on_error(error) if error is not None else on_page(page))
        if not self.hold:
            self._wake.put(True)

    def release(self) -> None:
        """Answer the requests that were held back."""
        self.hold = False
        for _ in range(len(self._waiting)):
            self._wake.put(True)

    def close(self) -> None:
        self._wake.put(False)
        self._thread.join(60)

    def _answer(self) -> None:
        while self._wake.get():
            with self._lock:
                answer = self._waiting.pop(self._dice.randrange(len(self._waiting)))
                self.in_flight -= 1
            answer()


class Scripted:
    """Answers as a test says, which gets the stream, and what gives its page or an error. ``asked``: the streams."""

    def __init__(self, answer: Callable[[bytes, Callable[[], None], Callable[[BaseException], None]], None]) -> None:
        self.asked: list[bytes] = []
        self.routing_keys: list[bytes | None] = []
        self.page = lambda stream: Page(COLUMNS, body_of([(stream,)]), 0, None)
        self._answer = answer

    def send(self, bound: FakeBound, state: bytes | None, *, on_page: Any, on_error: Any) -> None:
        (stream,) = blobs_of(bound.values[0])
        self.asked.append(stream)
        self.routing_keys.append(bound.routing_key)
        self._answer(stream, lambda: on_page(self.page(stream)), on_error)


def tasks(count: int) -> list[ScanTask]:
    return [ScanTask("ks", "t", 0, StreamGroup([b"%d" % n]), 0, 10) for n in range(count)]


def scan(cluster: Cluster, count: int, limits: Limits, **how: Any) -> list[bytes]:
    """Return what all pages held, in the order they came."""
    scanner = Scanner(cluster, clock=ManualClock(), limits=limits)  # type: ignore[arg-type]
    pages = scanner.pages(STATEMENT, tasks(count), Stop(), **how)
    return [cell[0] or b"" for page in pages for cell in page.cells("ks.t")]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.integers(0, 999), st.floats(0, 1)
)
def test_every_page_with_rows_comes_once_and_never_more_queries_than_the_limit(
    count: int, pages: int, in_flight: int, failures: int, seed: int, share_empty: float
) -> None:
    cluster = Cluster(pages, seed)
    dice = random.Random(seed)
    empty = {(b"%d" % n, p) for n in range(count) for p in range(pages) if dice.random() < share_empty}
    cluster.is_empty = lambda stream, page: (stream, page) in empty
    left = {(b"%d" % n, p): failures for n in range(count) for p in range(pages)}

    def fault(stream: bytes, page: int) -> BaseException | None:
        left[stream, page] -= 1
        return OperationTimedOut("late") if left[stream, page] >= 0 else None

    cluster.fault = fault
    try:
        got = scan(cluster, count, Limits(in_flight=in_flight), may_give_up=False)
    finally:
        cluster.close()
    full = [[b"%d/%d" % (n, p) for p in range(pages) if (b"%d" % n, p) not in empty] for n in range(count)]
    assert sorted(got) == sorted(g for each in full for g in each)
    for n, each in enumerate(full):
        assert [g for g in got if g.startswith(b"%d/" % n)] == each
    assert cluster.most <= in_flight
    assert cluster.asked == count * pages * (failures + 1)


def test_queries_that_find_nothing_go_on_without_the_reading_thread() -> None:
    cluster = Cluster(1)
    cluster.is_empty = lambda stream, page: True
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits(in_flight=4))  # type: ignore[arg-type]
    try:
        for _ in range(3):
            cluster.senders.clear()
            got = list(scanner.pages(STATEMENT, tasks(200), Stop()))
            assert len(got) == 1, "one page for its columns"
            assert len(cluster.senders) == 200
            assert cluster.senders.count(threading.get_ident()) < 50
        other = (Column("v", type_of("text")),)
        answers = iter([COLUMNS, COLUMNS, other, other])
        session = Scripted(lambda stream, give, fail: give())
        session.page = lambda stream: Page(next(answers), body_of([]), 0, None)
        scanner = Scanner(session, clock=ManualClock(), limits=Limits())  # type: ignore[arg-type]
        got = list(scanner.pages(STATEMENT, tasks(4), Stop()))
        assert [page.columns for page in got] == [COLUMNS, other]
    finally:
        cluster.close()


def test_answers_that_come_while_their_queries_are_sent_do_not_nest() -> None:
    session = Scripted(lambda stream, give, fail: give())
    session.page = lambda stream: Page(COLUMNS, body_of([]), 0, None)
    scanner = Scanner(session, clock=ManualClock(), limits=Limits(in_flight=1))  # type: ignore[arg-type]
    list(scanner.pages(STATEMENT, tasks(3000), Stop()))
    assert len(session.asked) == 3000


def test_a_read_that_has_ended_sends_nothing_more() -> None:
    held: list[Callable[[], None]] = []
    session = Scripted(lambda stream, give, fail: held.append(give))
    session.page = lambda stream: Page(COLUMNS, body_of([]), 0, None)
    scanner = Scanner(session, clock=ManualClock(), limits=Limits(in_flight=2))  # type: ignore[arg-type]
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        list(scanner.pages(STATEMENT, tasks(5), stop))
    assert not session.asked
    stop = Stop()
    session._answer = lambda stream, give, fail: (held.append(give), stop.set() if len(held) == 2 else None)  # type: ignore[assignment]
    with pytest.raises(Stopped):
        list(scanner.pages(STATEMENT, tasks(5), stop))
    for give in held:
        give()
    assert session.asked == [b"0", b"1"]


@pytest.mark.timeout(30)
def test_a_query_that_cannot_be_made_fails_as_one_that_a_node_refuses() -> None:
    """Also on the driver's thread, where an exception would be lost and the read would wait for ever."""
    session = Scripted(lambda stream, give, fail: give())
    session.page = lambda stream: Page(COLUMNS, body_of([]), 0, None)
    broken = [*tasks(2), ScanTask("ks", "t", 0, StreamGroup([None]), 0, 10)]  # type: ignore[list-item]
    scanner = Scanner(session, clock=ManualClock(), limits=Limits(in_flight=1))  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"ks\.t"):
        list(scanner.pages(STATEMENT, broken, Stop()))


def test_queries_of_a_read_that_was_given_up_still_count() -> None:
    cluster = Cluster(1)
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits(in_flight=3, window_rows=1))  # type: ignore[arg-type]
    try:
        for _ in range(20):
            with pytest.raises(TooMuch):
                list(scanner.pages(STATEMENT, tasks(6), Stop()))
        got = list(scanner.pages(STATEMENT, tasks(1), Stop()))
    finally:
        cluster.close()
    assert len(got) == 1
    assert got[0].cells("ks.t") == [(b"0/0",)]
    assert cluster.most <= 3


@pytest.mark.timeout(30)
@pytest.mark.parametrize("chance", [0, 0.019612, 1])  # the second: a pause of 99,019.4 us, which the clock cuts
def test_a_page_is_asked_again_when_it_is_due_though_another_query_hangs(
    chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: chance)
    clock = ManualClock()
    held: list[Callable[[], None]] = []

    def answer(stream: bytes, give: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        if stream == b"1":
            held.append(give)
        elif session.asked.count(b"0") == 1:
            fail(OperationTimedOut("late"))
        else:
            give()
            held[0]()

    session = Scripted(answer)
    began = clock.monotonic()
    scanner = Scanner(session, clock=clock, limits=Limits())  # type: ignore[arg-type]
    got = list(scanner.pages(STATEMENT, tasks(2), Stop()))
    assert session.asked == [b"0", b"1", b"0"]
    assert len(got) == 2
    (pause,) = clock.waits
    assert pause == Limits().backoff.seconds(1, chance), "the back-off and no more"
    assert clock.monotonic() - began == pytest.approx(pause, abs=1e-6)


@pytest.mark.timeout(30)
def test_an_answer_ends_the_wait_for_a_page_that_is_due_later() -> None:
    arrived: list[Page] = []
    held: list[Callable[[], None]] = []

    def answer(stream: bytes, give: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        if stream == b"0" and not arrived:
            fail(OperationTimedOut("late"))
        elif stream == b"1":
            held.append(give)
        else:
            give()

    class Waits(ManualClock):
        def wait(self, stop: Stop, seconds: float) -> bool:
            while held:
                held.pop()()
            return stop.is_set() or super().wait(stop, seconds)

    clock = Waits()
    began = clock.monotonic()

    def on_page(page: Page) -> None:
        if not arrived:
            assert clock.monotonic() == began, "it did not wait for what is due"
        arrived.append(page)

    scanner = Scanner(Scripted(answer), clock=clock, limits=Limits())  # type: ignore[arg-type]
    for page in scanner.pages(STATEMENT, tasks(2), Stop()):
        on_page(page)
    assert len(arrived) == 2


@pytest.mark.timeout(30)
def test_slots_of_an_abandoned_read_come_back_with_its_answers() -> None:
    """However often a read is given up, the next one may send as many queries as ever."""
    held: list[Callable[[], None]] = []
    at_once = False

    def answer(stream: bytes, give: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        held.append(give)
        if len(held) == 3 or at_once:
            for each in held[:]:
                held.remove(each)
                each()

    scanner = Scanner(Scripted(answer), clock=ManualClock(), limits=Limits(in_flight=3, window_rows=1))  # type: ignore[arg-type]
    for _ in range(5):
        with pytest.raises(TooMuch):
            list(scanner.pages(STATEMENT, tasks(6), Stop()))
    at_once = True
    got = list(scanner.pages(STATEMENT, tasks(3), Stop(), may_give_up=False))
    assert sorted(page.cells("ks.t")[0][0] or b"" for page in got) == [b"0", b"1", b"2"]


def test_a_failed_page_is_asked_of_any_node() -> None:
    """The owner may hang, and the driver would choose it again and again."""
    failures = iter([True, True])

    def answer(stream: bytes, give: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        fail(OperationTimedOut("late")) if next(failures, False) else give()

    session = Scripted(answer)
    pages = iter([b"more", None])
    session.page = lambda stream: Page(COLUMNS, body_of([(stream,)]), 0, next(pages))
    scanner = Scanner(session, clock=ManualClock(), limits=Limits())  # type: ignore[arg-type]
    stream = bytes(range(16))
    list(scanner.pages(STATEMENT, [ScanTask("ks", "t", 0, StreamGroup([stream]), 0, 10)], Stop()))
    owners = routing_key_of(stream)
    assert session.routing_keys == [owners, None, None, None]


@pytest.mark.parametrize("limits", [Limits(window_rows=5), Limits(window_bytes=40)])
def test_a_window_with_too_much_is_given_up_unless_it_must_be_read(limits: Limits) -> None:
    cluster = Cluster(10)
    try:
        with pytest.raises(TooMuch):
            scan(cluster, 1, limits)
        assert cluster.asked < 10
        assert len(scan(cluster, 1, limits, may_give_up=False)) == 10
    finally:
        cluster.close()


def test_pages_that_are_not_dropped_have_no_limits() -> None:
    cluster = Cluster(10)
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits(window_rows=1, window_bytes=1))  # type: ignore[arg-type]
    try:
        assert len(list(scanner.pages(STATEMENT, tasks(2), Stop(), whole=False))) == 20
    finally:
        cluster.close()


def test_pages_that_are_not_dropped_are_given_up_before_the_first_row_only() -> None:
    cluster = Cluster(2)
    cluster.is_empty = lambda stream, page: page == 0
    cluster.fault = lambda stream, page: OperationTimedOut("late") if page == 1 else None
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits(attempts=5))  # type: ignore[arg-type]
    try:
        with pytest.raises(TooMuch):
            list(scanner.pages(STATEMENT, tasks(1), Stop(), whole=False))
        assert cluster.asked == 1 + 3
        cluster.is_empty = lambda stream, page: False
        pages = scanner.pages(STATEMENT, tasks(1), Stop(), whole=False)
        assert next(pages).row_count == 1
        with pytest.raises(QueryTimeout):
            next(pages)
        assert cluster.asked == 1 + 3 + 1 + 5
    finally:
        cluster.close()


def test_a_window_that_times_out_again_and_again_is_given_up_for_a_narrower_one() -> None:
    cluster = Cluster(1)
    cluster.fault = lambda stream, page: OperationTimedOut("late")
    try:
        with pytest.raises(TooMuch):
            scan(cluster, 1, Limits())
        assert cluster.asked == 3
        with pytest.raises(QueryTimeout, match=r"reading the CDC log of ks\.t"):
            scan(cluster, 1, Limits(attempts=5), may_give_up=False)
        assert cluster.asked == 3 + 5
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("error", "ours"), [(ConnectionShutdown("gone"), ConnectionFailed), (Unavailable("too few"), QueryTimeout)]
)
def test_a_lost_node_does_not_narrow_windows(error: Exception, ours: type[Exception]) -> None:
    cluster = Cluster(1)
    cluster.fault = lambda stream, page: error
    try:
        with pytest.raises(ours):
            scan(cluster, 1, Limits(attempts=6))
        assert cluster.asked == 6
    finally:
        cluster.close()


@pytest.mark.parametrize("error", [InvalidRequest("no column"), InvalidRequest("dropped")])
def test_a_permanent_error_is_raised_at_once(error: BaseException) -> None:
    cluster = Cluster(1)
    cluster.fault = lambda stream, page: error if stream == b"0" else None
    try:
        with pytest.raises(QueryFailed) as e:
            scan(cluster, 1, Limits())
        assert e.value.__cause__ is error
        assert cluster.asked == 1
    finally:
        cluster.close()


def test_retries_wait_longer_each_time() -> None:
    cluster = Cluster(1)
    failures = iter([ReadFailure("bad")] * 5)
    cluster.fault = lambda stream, page: next(failures, None)
    clock = ManualClock()
    scanner = Scanner(cluster, clock=clock, limits=Limits())  # type: ignore[arg-type]
    try:
        list(scanner.pages(STATEMENT, tasks(1), Stop(), may_give_up=False))
    finally:
        cluster.close()
    assert cluster.asked == 6
    waits = [w for w in clock.waits if w > 0.05]
    assert all(b > a for a, b in pairwise(waits))


def test_stop_ends_a_wait_for_answers() -> None:
    cluster = Cluster(1)
    cluster.hold = True
    stop, ended = Stop(), SimpleQueue[BaseException]()
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits())  # type: ignore[arg-type]

    def read() -> None:
        try:
            list(scanner.pages(STATEMENT, tasks(2), stop))
        except BaseException as e:  # noqa: BLE001 - handed to the test
            ended.put(e)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    stop.set()
    assert isinstance(ended.get(timeout=60), Stopped)
    thread.join(60)
    cluster.release()
    cluster.close()


@pytest.mark.parametrize(
    "name",
    ["in_flight", "page_size", "window_rows", "window_bytes", "attempts", "head_queries_per_s", "rows_per_s"],
)
def test_limits_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: 0})


@pytest.mark.timeout(30)
def test_each_page_is_asked_again_when_it_is_due_itself() -> None:
    held: list[Callable[[], None]] = []

    def answer(stream: bytes, give: Callable[[], None], fail: Callable[[BaseException], None]) -> None:
        asked = session.asked.count(stream)
        if asked > (3 if stream == b"1" else 1):
            give()
        elif stream == b"0":
            held.append(lambda: fail(OperationTimedOut("late")))
        else:
            fail(ReadFailure("bad"))
            if asked == 3:
                held[0]()

    session = Scripted(answer)
    clock = ManualClock()
    even = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=10), jitter=0)
    scanner = Scanner(session, clock=clock, limits=Limits(backoff=even))  # type: ignore[arg-type]
    list(scanner.pages(STATEMENT, tasks(2), Stop()))
    assert clock.waits == pytest.approx([1, 2, 1, 3])
    assert session.asked == [b"0", b"1", b"1", b"1", b"0", b"1"]


def test_the_next_page_is_asked_for_before_a_page_is_worked_on_and_nothing_stays_with_the_stop() -> None:
    cluster, stop = Cluster(3), Stop()
    scanner = Scanner(cluster, clock=ManualClock(), limits=Limits())  # type: ignore[arg-type]
    try:
        asked = [cluster.asked for _ in scanner.pages(STATEMENT, tasks(1), stop)]
    finally:
        cluster.close()
    assert asked == [2, 3, 3]
    assert not stop._callbacks, "a stream reads for months"
