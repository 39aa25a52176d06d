"""Slices of a table in one process, which are read together."""

from __future__ import annotations

import dis
import gc
import random
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from fakelog import NOW_US, SECOND, FakeLog, Written, stream_id
from hypothesis import HealthCheck, given, settings
from slicescripts import build, key_of, name_of, scripts
from waiting import eventually

from rscylla._timeuuid import datetime_of
from rscylla._tokens import slice_at
from rscylla.cdc.client import Client
from rscylla.cdc.log.source import METADATA_EVERY_S
from rscylla.cdc.read import shared as sharing_module
from rscylla.cdc.read.feed import SliceFeed
from rscylla.cdc.read.merge_policy import Backlog
from rscylla.cdc.read.reader import Resume, Step
from rscylla.cdc.read.scan import Limits
from rscylla.cdc.read.settings import StreamSettings
from rscylla.cdc.read.shared import SharedReaders
from rscylla.cdc.rows import new_rows
from rscylla.cdc.rows.events import NO_EVENTS
from rscylla.cdc.stream import NewStream, Stream
from rscylla.clock import Stop
from rscylla.embedded.storage.tokens import murmur3_token
from rscylla.errors import CursorExpired, HeadReached, MalformedData, SourceError, Stopped, TableChanged
from rscylla.event import Event, EventID, Progress
from rscylla.options import StreamLag, StreamToHead
from rscylla.testing import ManualClock

HEAD = StreamLag(seconds=30), StreamToHead()


class FastClock(ManualClock):
    """A wall clock that stands still, while time passes faster than elsewhere."""

    def __init__(self, factor: float = 500) -> None:
        super().__init__(NOW_US)
        self._factor = factor

    def monotonic(self) -> float:
        return time.monotonic() * self._factor

    def wait(self, stop: Any, seconds: float) -> bool:
        return bool(stop.wait(seconds / self._factor))


class StillClock(ManualClock):
    """A clock that stands still: who waits, waits until somebody calls."""

    def wait(self, stop: Any, seconds: float) -> bool:
        return bool(stop.wait())


def parts(log: FakeLog, count: int, **more: Any) -> list[Stream]:
    whole = NewStream(log, "ks", "t", clock=log.clock, **more)  # type: ignore[arg-type]
    return [whole.sliced(i, count) for i in range(count)]


def readers_of(stream: Stream) -> SharedReaders:
    assert stream._shared is not None
    return stream._shared


def opened(streams: list[Stream], *options: Any, after: str = "", stop: Stop | None = None) -> list[Client]:
    """Open the streams as threads do that begin at the same time."""
    with ExitStack() as stack:
        stack.enter_context(readers_of(streams[0]).opens())
        return [stream(after, *options, stop=stop) for stream in streams]


def receive(client: Client) -> None:
    while True:
        client.recv()


def drain(client: Client) -> list[Event]:
    """Return the events up to the head, and close."""
    got: list[Event] = []
    try:
        while True:
            new = client.recv()
            if isinstance(new, Event):
                got.append(new)
    except HeadReached:
        return got
    finally:
        client.close()


def drain_all(clients: list[Client]) -> list[list[Event]]:
    with ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(drain, clients))


def table(rows: int = 200, clock: ManualClock | None = None, streams: int = 4) -> FakeLog:
    """Return a log whose every stream has keys of all slices, because their ids do not name a vnode."""
    log = FakeLog(clock or StillClock(NOW_US), ttl_s=0)
    log.generation(NOW_US - 8_000 * SECOND, [t.to_bytes(8, "big") + bytes(7) + b"\x07" for t in range(streams)])
    for i in range(rows):
        log.write(NOW_US - (7_000 - 30 * i) * SECOND, at=i, pk=i)
    return log


def feed_of(client: Client) -> SliceFeed:
    assert isinstance(client._feed, SliceFeed)
    return client._feed


# ---------------------------------------------------------------- all of them


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_slices_that_share_are_the_whole_once_and_each_key_is_in_order(script: dict[str, Any]) -> None:
    """Whatever the speed of each: one is asked at a time, by chance, and some stop and resume at their cursors."""
    log = build(script, FastClock())
    dice = random.Random(script["seed"])
    more = {"granularity": script["granularity"], "limits": script["limits"], "progress_every": timedelta()}
    streams = parts(log, script["count"], prefetch=dice.choice([1, 2]), **more)
    clients = dict(enumerate(opened(streams, *HEAD)))
    cursors = dict.fromkeys(clients, "")
    weights = [dice.random() ** 3 + 0.001 for _ in streams]
    got: list[tuple[int, Event]] = []
    ends: list[int] = []
    while clients:
        at = dice.choices(list(clients), [weights[i] for i in clients])[0]
        try:
            new = clients[at].recv()
        except HeadReached as head:
            ends.append(EventID.parse(head.cursor).exact_us)
            clients.pop(at).close()
            continue
        if isinstance(new, Progress):
            cursors[at] = new.cursor
        else:
            cursors[at] = new.id
            got.append((at, new))
        if dice.random() < script["stops"]:
            clients[at].close()
            clients[at] = streams[at](cursors[at], *HEAD)
    assert ends == [NOW_US - 30 * SECOND] * script["count"]
    names = [name_of(event) for _, event in got]
    assert sorted(names) == sorted(log.expected())
    assert len(set(names)) == len(names)
    if not script["lost_keys"]:
        for key in {key_of(w) for w in log.written}:
            mine = [w for w in log.written if key_of(w) == key]
            assert [name_of(e) for _, e in got if e.key["pk"] == key] == log.expected(mine)
            assert {i for i, e in got if e.key["pk"] == key} == {owner(key, script["count"])}
    assert not readers_of(streams[0]).running or eventually(lambda: not readers_of(streams[0]).running)


def owner(key: int, count: int) -> int:
    return slice_at(murmur3_token(key.to_bytes(4, "big")), count)


def rows_sent(log: FakeLog) -> int:
    """Return how often a row was sent."""
    sent = 0
    for asked in log.asked:
        if not asked.is_probe and asked.state is None:
            sent += sum(w.stream in asked.streams and asked.start_us <= w.us < asked.end_us for w in log.written)
    return sent


def test_slices_that_are_opened_together_read_each_row_once() -> None:
    log = table()
    got = drain_all(opened(parts(log, 8), *HEAD))
    assert sorted(name_of(e) for events in got for e in events) == sorted(log.expected())
    assert rows_sent(log) == len(log.written)


def test_their_metadata_is_read_once() -> None:
    log = table()
    first = NewStream(log, "ks", "t", clock=log.clock)  # type: ignore[arg-type]
    first.describe()
    alone = len(log.metadata)
    log.metadata.clear()
    clients = opened(parts(log, 8), *HEAD)
    assert len(log.metadata) <= 2 * alone
    drain_all(clients)


def test_slices_whose_cursors_differ_meet_where_the_later_one_is() -> None:
    """The first reads alone up to there, and each gets what comes after its own cursor."""
    log = table()
    one, two = parts(log, 2)
    row = next(w for w in log.written[100:] if owner(key_of(w), 2) == 1)
    (all_of_two,) = drain_all(opened([two], *HEAD))
    after = next(e for e in all_of_two if name_of(e) == row.name)
    log.asked.clear()
    earlier_us = row.us - 50 * SECOND
    with readers_of(one).opens():
        clients = [one(one.cursor_at(datetime_of(earlier_us)), *HEAD), two(after.id, *HEAD)]
    first, second = drain_all(clients)
    assert [name_of(e) for e in first] == log.expected(w for w in of_slice(log, 0, 2) if w.us >= earlier_us)
    assert [name_of(e) for e in second] == log.expected(w for w in of_slice(log, 1, 2) if w.order > row.order)
    assert rows_sent(log) == sum(w.us >= earlier_us for w in log.written)


def of_slice(log: FakeLog, index: int, count: int) -> list[Written]:
    return [w for w in log.written if owner(key_of(w), count) == index]


def test_several_consumers_of_one_slice_read_once() -> None:
    log = table()
    (one, _) = parts(log, 2)
    got = drain_all(opened([one, one, one], *HEAD))
    expected = log.expected(of_slice(log, 0, 2))
    assert [[name_of(e) for e in events] for events in got] == [expected] * 3
    assert rows_sent(log) == len(log.written)


# ---------------------------------------------------------------- the slow, the failing and the stopped


def test_a_slice_that_takes_nothing_starves_no_other_and_keeps_little() -> None:
    log = table(clock=FastClock())
    limits = Limits(window_rows=10, page_size=5)
    slow, *others = opened(parts(log, 4, limits=limits), *HEAD)
    got = drain_all(others)
    for index, events in enumerate(got, 1):
        assert [name_of(e) for e in events] == log.expected(of_slice(log, index, 4))
    assert sum(step.rows is not None for step in feed_of(slow)._steps) == 1
    assert [name_of(e) for e in drain(slow)] == log.expected(of_slice(log, 0, 4))


def test_one_that_is_closed_disturbs_no_other() -> None:
    log = table(clock=FastClock())
    one, two, three = opened(parts(log, 3, limits=Limits(window_rows=10, page_size=5)), *HEAD)
    while not isinstance(two.recv(), Event):
        pass
    two.close()
    with pytest.raises(Stopped):
        receive(two)
    first, third = drain_all([one, three])
    assert [name_of(e) for e in first] == log.expected(of_slice(log, 0, 3))
    assert [name_of(e) for e in third] == log.expected(of_slice(log, 2, 3))


def test_a_failed_query_is_an_error_of_each() -> None:
    log = table()
    log.on_fetch = lambda asked: ValueError("broken")
    clients = opened(parts(log, 3), *HEAD)
    errors = []
    for client in clients:
        with pytest.raises(SourceError) as failed:
            client.recv()
        errors.append(failed.value)
        client.close()
    assert len({id(e) for e in errors}) == 3, "each thread adds its own lines to what it raises"
    assert all(isinstance(e.__cause__, ValueError) for e in errors)


def test_rows_that_expired_are_an_error_of_each_to_whom_they_were_promised() -> None:
    """Also if all of them were: they do not join again before each has found out by itself."""
    log = table()
    log.ttl_s = 7_200
    one, two, three = parts(log, 3)
    start = one.cursor_at(datetime_of(NOW_US - 7_050 * SECOND))
    with readers_of(one).opens():
        clients = [one(start, *HEAD), two(start, *HEAD), three("", *HEAD)]
        log.clock.advance(300.0)
    for client in clients[:2]:
        with pytest.raises(CursorExpired):
            receive(client)
        client.close()
    expected = [w for w in of_slice(log, 2, 3) if w.us >= NOW_US - 6_900 * SECOND]
    assert [name_of(e) for e in drain(clients[2])] == log.expected(expected)


def test_a_log_that_was_created_again_is_an_error_of_each() -> None:
    log = table()
    streams = parts(log, 3)
    with readers_of(streams[0]).opens():
        clients = [stream("", *HEAD) for stream in streams]
        log.log_id = uuid.uuid4()
        log.clock.advance(METADATA_EVERY_S)
    for client in clients:
        with pytest.raises(TableChanged):
            receive(client)
        client.close()
    eventually(lambda: not readers_of(streams[0]).running)


def test_a_slice_of_the_former_log_does_not_go_on_with_one_of_the_new_log() -> None:
    """It is told that changes are lost, although the other one is at the same point and takes readers over."""
    log = table()
    one, two = parts(log, 2, prefetch=1)
    with readers_of(one).opens():
        first = one("", *HEAD)
        log.log_id = uuid.uuid4()
        log.clock.advance(METADATA_EVERY_S)
        second = two("", *HEAD)
    with pytest.raises(TableChanged):
        receive(first)
    first.close()
    assert [name_of(e) for e in drain(second)] == log.expected(of_slice(log, 1, 2))


def test_malformed_data_is_an_error_of_those_who_read_it() -> None:
    log = FakeLog(StillClock(NOW_US), ttl_s=0)
    vnodes = [stream_id(-(2**63) + (2 * vnode + 1) * 2**60, vnode) for vnode in range(8)]
    log.generation(NOW_US - 8_000 * SECOND, vnodes)
    for i in range(100):
        log.write(NOW_US - (7_000 - 30 * i) * SECOND, at=i, pk=i)
    alone = NewStream(log, "ks", "t", clock=log.clock, key_slice=(1, 2))  # type: ignore[arg-type]
    expected = [name_of(e) for e in drain(alone("", *HEAD))]
    assert len(expected) > 40
    answer, of_the_first = log._page, vnodes[2]

    def broken(*args: Any) -> Any:
        page = answer(*args)
        return attrs.evolve(page, body=page.body[:-1]) if of_the_first in page.body else page

    log._page = broken  # type: ignore[method-assign]
    first, second = opened(parts(log, 2), *HEAD)
    with pytest.raises(MalformedData):
        receive(first)
    first.close()
    assert [name_of(e) for e in drain(second)] == expected


def test_a_slice_that_cannot_read_by_itself_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left behind, and the process cannot start another thread."""
    log = table(clock=FastClock())
    slow, other = opened(parts(log, 2, limits=Limits(window_rows=10, page_size=5)), *HEAD)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == feed_of(slow).shared.thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [name_of(e) for e in drain(other)] == log.expected(of_slice(log, 1, 2))
    with pytest.raises(RuntimeError, match="new thread"):
        receive(slow)
    slow.close()


def test_a_consumer_that_never_waits_leaves_no_signals_behind() -> None:
    log = table()
    (one,) = opened(parts(log, 2, prefetch=4, limits=Limits(window_rows=10, page_size=5))[:1], *HEAD)
    eventually(lambda: not feed_of(one).has_room)
    assert feed_of(one)._signal.qsize() <= 1
    one.close()


def test_a_stop_ends_all_at_once_and_no_thread_stays() -> None:
    log = FakeLog(FastClock(1), ttl_s=0)
    log.generation(NOW_US - 4_000 * SECOND, [stream_id(5)])
    stop = Stop()
    streams = parts(log, 3)
    clients = opened(streams, StreamLag(seconds=30), stop=stop)
    threads = {feed_of(client).shared.thread for client in clients}

    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(receive, client) for client in clients]
        stop.set()
        for end in ends:
            with pytest.raises(Stopped):
                end.result()
    eventually(lambda: not readers_of(streams[0]).running)
    eventually(lambda: not any(thread.is_alive() for thread in threads))


def test_a_client_that_is_dropped_leaves() -> None:
    log = FakeLog(FastClock(), ttl_s=0)
    log.generation(NOW_US - 4_000 * SECOND, [stream_id(5)])
    streams = parts(log, 2)
    clients = opened(streams, StreamLag(seconds=30))
    clients.clear()
    gc.collect()
    eventually(lambda: not readers_of(streams[0]).running)


def test_a_stream_that_reads_nothing_ahead_reads_by_itself() -> None:
    log = table()
    for stream in parts(log, 2, prefetch=0):
        client = stream("", *HEAD)
        assert not isinstance(client._feed, SliceFeed)
        client.close()


# ---------------------------------------------------------------- who is woken


class Waiting:
    """Some feeds of one reader, each with a thread that waits for its next step; no thread reads."""

    def __init__(self, count: int, quiet_s: float = 10.0) -> None:
        self.clock = ManualClock(NOW_US)
        self.readers = SharedReaders()
        shared: Any = SimpleNamespace(makes_room=lambda feed: None, is_asked=lambda: None, dismiss=lambda: None)
        done = EventID(0, 0)
        settings = StreamSettings(clock=self.clock)
        self.stops = [Stop() for _ in range(count)]
        self.feeds = [SliceFeed(self.readers, settings, Resume(done, 0, b"", 0, 0), stop) for stop in self.stops]
        self.taken: list[int] = []
        self.threads = [
            threading.Thread(target=self._take, args=(at, self.clock.monotonic() + quiet_s), daemon=True)
            for at in range(count)
        ]
        for feed, stop, thread in zip(self.feeds, self.stops, self.threads, strict=True):
            feed.shared = shared
            stop.on_set(feed.leave)
            thread.start()
        eventually(lambda: all(feed._idle_since is not None for feed in self.feeds))

    def _take(self, at: int, quiet_until: float) -> None:
        with suppress(Stopped):
            self.feeds[at].take(quiet_until)
            self.taken.append(at)

    def put(self, at: int, rows: Any = None, *, us: int = NOW_US, must_save: bool = False) -> bool:
        """Give a feed a step; return whether it is to be called."""
        done = EventID(NOW_US // 1000, us)
        with self.readers.lock:
            self.feeds[at].put(Step(NO_EVENTS, done, must_save=must_save, rows=rows))
        return self.feeds[at] in self.readers.calls


def test_a_share_is_not_woken_for_empty_windows_before_its_progress_is_due() -> None:
    waiting = Waiting(3)
    assert not waiting.put(0, us=NOW_US + 1)
    assert waiting.feeds[0].reached_us == NOW_US + 1, "which shows in the status"
    assert waiting.feeds[0].has_room, "windows are read on"
    assert not waiting.put(0, us=NOW_US + 2)
    assert len(waiting.feeds[0]._steps) == 1
    assert waiting.put(1, must_save=True)
    assert waiting.put(2, new_rows())
    waiting.clock.advance(10)
    assert waiting.put(0, us=NOW_US + 3)
    assert waiting.feeds[0].resume.done.exact_us == NOW_US + 3
    waiting.readers.call_all()
    eventually(lambda: sorted(waiting.taken) == [0, 1, 2])


def test_an_idle_share_has_waited_since_its_last_window() -> None:
    waiting = Waiting(1)
    waiting.clock.advance(3)
    waiting.put(0)
    waiting.clock.advance(2)
    assert waiting.feeds[0].backlog(waiting.clock.monotonic()) == Backlog(False, 2.0)
    waiting.stops[0].set()


def test_shares_with_rows_call_each_other_one_by_one() -> None:
    waiting = Waiting(5)
    for at in (2, 0, 4, 1):
        assert waiting.put(at, new_rows())
    waiting.feeds[0].leave()  # was put, but does not take
    waiting.readers.call()
    eventually(lambda: not waiting.readers.calls)
    eventually(lambda: {1, 2, 4} <= set(waiting.taken))
    assert 3 not in waiting.taken
    waiting.stops[3].set()


def test_a_share_that_was_called_and_does_not_come_holds_up_no_other() -> None:
    log = table(60, clock=FastClock())
    clients = opened(parts(log, 4), *HEAD)
    readers = feed_of(clients[0])._readers
    with ThreadPoolExecutor(3) as threads:
        gone, *others = clients
        feed = feed_of(gone)
        feed._idle_since, feed._quiet_until = 0.0, 0.0  # as if a thread were interrupted while it waits
        got = list(threads.map(drain, others))
    assert [name_of(e) for events in got for e in events] == [
        name for at in range(1, 4) for name in log.expected(of_slice(log, at, 4))
    ]
    assert [name_of(e) for e in drain(gone)] == log.expected(of_slice(log, 0, 4))
    assert not readers.calls


@pytest.mark.parametrize(
    ("together", "every_s", "expected_s"), [(1, 10, 10), (2, 10, 20), (64, 10, 30), (64, 60, 60), (64, 0, 0)]
)
def test_clients_that_read_together_save_their_progress_less_often(
    together: int, every_s: int, expected_s: float
) -> None:
    clock = ManualClock(NOW_US)
    feed: Any = SimpleNamespace(together=together)
    first = Step(NO_EVENTS, EventID(0, 0))
    client = Client(feed, StreamSettings(clock=clock, progress_every=timedelta(seconds=every_s)), Stop(), first)
    assert client._due_at == clock.monotonic() + expected_s


# ---------------------------------------------------------------- interrupts


def test_an_interrupt_of_who_reads_the_metadata_leaves_no_other_waiting() -> None:
    """Python runs signal handlers after calls, jumps back, and at starts of functions: one raises at each of them."""
    made: Any = SimpleNamespace(clock=ManualClock(NOW_US), until=lambda stop: made)
    interrupts = 0
    while True:
        readers = SharedReaders()
        interrupt = Interrupt(interrupts)
        try:
            with interrupt:
                readers.source(lambda: made, Stop())
            break
        except KeyboardInterrupt:
            interrupts += 1
        given_up = Stop()
        given_up.set()  # so it gives up if it has to wait
        assert readers.source(lambda: made, given_up) is made, f"waits after interrupt {interrupts}"
    assert interrupts >= 5


class Interrupt:
    """Within it, raises ``KeyboardInterrupt`` in the module at the point *number* where a signal could be handled."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._before: Any = None
        self._last: dict[int, str] = {}

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks in settrace whether any frame has asked
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != sharing_module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            last, self._last[id(frame)] = self._last.get(id(frame)), name
            if last in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME") and name != "PUSH_EXC_INFO":
                self._left -= 1
                if self._left == -1:
                    raise KeyboardInterrupt
        return self._trace
