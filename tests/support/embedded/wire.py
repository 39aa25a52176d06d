"""An embedded cluster and a driver in one thread: the bytes go from one to the other without sockets or real time.

The driver's messages, frames, pools, policies and reconnections are its own, and so are the server's frames, codec and
engine. What is replaced is what lies between and what waits: the sockets, the server's event loop, and the threads by
which the driver does things later. A request is answered before the call that sent it returns, what the driver hands to
its own thread is done by then too, and what it puts off is due by a clock that the test drives. So a test that uses one
thread at a time is the same each time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import cassandra.connection
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.connection import ConnectionShutdown
from cassandra.policies import ExponentialReconnectionPolicy, RoundRobinPolicy, TokenAwarePolicy

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.loopthread import LoopThread
from rscylla.embedded.sessions import Timestamps
from rscylla.embedded.wire.server import Server
from rscylla.testing import ManualClock

__all__ = ["Wire", "WiredScylla"]

PATIENCE_S = 600.0
"""Real time after which something hangs."""

_EOF = b""


class _Listening:
    """What the server takes for its listening socket."""

    def __init__(self, wire: Wire, address: tuple[str, int], protocol: Callable[[], Any]) -> None:
        self._wire = wire
        self._address = address
        self.protocol = protocol
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._wire.listening.pop(self._address, None)


class _Transport(asyncio.Transport):
    """The server's end of a connection. What it writes waits until the server is done with the request."""

    def __init__(self, wire: Wire, client: _Connection, protocol: Any) -> None:
        super().__init__()
        self._wire = wire
        self._client = client
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing and data:
            self._client.outbox.append(bytes(data))
            self._wire.answered.append(self._client)

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._client.outbox.append(_EOF)
            self._wire.answered.append(self._client)
            self._wire.call_soon(self._protocol.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here for long."""

    def pause_reading(self) -> None:
        """What comes while the server does not read, it keeps itself."""

    resume_reading = pause_reading

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self

    def setsockopt(self, *_: Any) -> None:
        """There is no socket whose options could be set."""


class Wire(asyncio.AbstractEventLoop):
    """The server's event loop, which runs in the thread of whoever has something for it, and all that is between."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._ready: deque[asyncio.Handle] = deque()
        self._ports = itertools.count(20_000)
        self.listening: dict[tuple[str, int], _Listening] = {}
        self.answered: deque[_Connection] = deque()
        self.clusters: list[_Cluster] = []

    # ------------------------------------------------------------ what the server asks of its loop

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return self._clock.monotonic()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(f"the server failed: {context}")

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        if isinstance(getattr(callback, "__self__", None), Server):  # it looks for clients that do not log in; all do
            return asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        raise AssertionError("requests that take their time are not for a wire; use the server on its sockets")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It would not have run."""

    async def create_server(self, protocol: Any, address: Any = None, port: Any = None, **_: Any) -> Any:
        where = (str(address), int(port) or next(self._ports))
        self.listening[where] = _Listening(self, where, protocol)
        return self.listening[where]

    def remove_reader(self, fd: Any) -> bool:
        return False

    # ------------------------------------------------------------ running it

    def do(self, work: Callable[[], Any]) -> Any:
        """Run *work* as if in the server's loop, then all that it called for, then hand out the answers."""
        with self._lock:
            outer = asyncio._get_running_loop()
            asyncio._set_running_loop(self)
            try:
                result = work()
                while self._ready:
                    self._ready.popleft()._run()
            finally:
                asyncio._set_running_loop(outer)
        while True:
            try:
                client = self.answered.popleft()
            except IndexError:
                return result
            client.take_answers()

    def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine that waits for nothing but other turns of the loop."""

        def run() -> Any:
            while True:
                try:
                    work.send(None)
                except StopIteration as end:
                    return end.value
                while self._ready:
                    self._ready.popleft()._run()

        return self.do(run)

    def pause(self) -> None:
        """Let the drivers' own threads finish what a request gave them to do, so that the order is always the same."""
        for cluster in list(self.clusters):
            if not cluster.executor.is_here():
                cluster.executor.wait_until_idle()

    def settle(self) -> None:
        """Start what the drivers had put off and is due, and wait until their threads have nothing left to do."""
        for cluster in list(self.clusters):
            cluster.settle()


class _Connection(cassandra.connection.Connection):
    """The driver's end of a connection. Each wire has a subclass of its own."""

    wire: Wire

    @classmethod
    def create_timer(cls, timeout: float, callback: Any) -> Any:
        return _NEVER  # every request is answered or its connection cut

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.outbox: deque[bytes] = deque()
        self._taking = threading.Lock()
        where = (self.endpoint.address, self.endpoint.port)
        listening = self.wire.listening.get(where)
        if listening is None:
            raise ConnectionRefusedError(111, f"nobody listens on {where}")
        protocol = listening.protocol()
        self._protocol = protocol
        self._transport = _Transport(self.wire, self, protocol)
        self.wire.do(lambda: protocol.connection_made(self._transport))
        self._send_options_message()

    def push(self, data: bytes) -> None:
        def serve() -> None:
            if not self._transport.is_closing():
                self._protocol.data_received(data)

        self.wire.do(serve)
        self.wire.pause()

    def take_answers(self) -> None:
        """Give the driver what came for it, in order, unless another thread is at it: that one sees the new too."""
        while self.outbox and self._taking.acquire(blocking=False):
            try:
                while self.outbox:
                    self._take(self.outbox.popleft())
            finally:
                self._taking.release()

    def _take(self, data: bytes) -> None:
        if self.is_closed:
            return
        if data == _EOF:
            self.defunct(ConnectionShutdown(f"Connection to {self.endpoint} was closed by server"))
            return
        self._iobuf.write(data)
        self.process_io_buffer()

    def close(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
        self.wire.do(self._transport.abort)
        if not self.is_defunct:
            self.error_all_requests(ConnectionShutdown(f"Connection to {self.endpoint} was closed"))
            self.connected_event.set()


class _Never:
    def cancel(self) -> None:
        """It would never have come anyway."""


_NEVER = _Never()


class _Pool(Executor):
    """The driver's threads, with a count of what they have to do, callbacks of what is done included."""

    def __init__(self, max_workers: int) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._busy = 0
        self._idle = threading.Condition()
        self._is_shutdown = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(max_workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        with self._idle:
            self._busy += 1
        self._work.put((future, lambda: fn(*args, **kwargs)))
        return future

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            try:
                if future.set_running_or_notify_cancel():
                    try:
                        result = work()
                    except BaseException as e:  # noqa: BLE001 - what an executor does
                        future.set_exception(e)
                    else:
                        future.set_result(result)
            finally:
                del future, work, item
                with self._idle:
                    self._busy -= 1
                    self._idle.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shutdown = True
        for _ in self._threads:
            self._work.put(None)
        if wait:
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(PATIENCE_S)

    def is_here(self) -> bool:
        """Return whether the current thread is one of these."""
        return threading.current_thread() in self._threads

    def wait_until_idle(self) -> None:
        with self._idle:
            assert self._idle.wait_for(lambda: not self._busy, PATIENCE_S), "the driver's threads hang"


class _Scheduler:
    """What the driver puts off, by a driven clock; the interface is that of the driver's own."""

    def __init__(self, executor: _Pool, clock: ManualClock) -> None:
        self._executor = executor
        self._clock = clock
        self._lock = threading.Lock()
        self._tasks: list[tuple[float, int, tuple[Any, ...], Callable[[], None] | None]] = []
        self._count = itertools.count()
        self.is_shutdown = False

    def schedule(self, delay: float, fn: Any, *args: Any, **kwargs: Any) -> bool:
        return self.schedule_with_shutdown(delay, None, fn, *args, **kwargs)

    def schedule_unique(self, delay: float, fn: Any, *args: Any, **kwargs: Any) -> None:
        with self._lock:
            if any(task == (fn, args, kwargs) for _, _, task, _ in self._tasks):
                return
        self.schedule(delay, fn, *args, **kwargs)

    def schedule_with_shutdown(self, delay: float, on_shutdown: Any, fn: Any, *args: Any, **kwargs: Any) -> bool:
        if delay <= 0 and not self.is_shutdown:  # so it tries requests again, and somebody waits for those
            self._executor.submit(fn, *args, **kwargs)
            return True
        with self._lock:
            if not self.is_shutdown:
                due = self._clock.monotonic() + delay
                heapq.heappush(self._tasks, (due, next(self._count), (fn, args, kwargs), on_shutdown))
                return True
        if on_shutdown is not None:
            on_shutdown()
        return False

    def run_due(self) -> bool:
        """Hand what is due to the driver's threads; return whether there was any."""
        due = []
        with self._lock:
            while self._tasks and self._tasks[0][0] <= self._clock.monotonic():
                due.append(heapq.heappop(self._tasks)[2])
        for fn, args, kwargs in due:
            self._executor.submit(fn, *args, **kwargs)
        return bool(due)

    def shutdown(self) -> None:
        with self._lock:
            self.is_shutdown = True
            left, self._tasks = self._tasks, []
        for *_, on_shutdown in left:
            if on_shutdown is not None:
                on_shutdown()


class _Cluster(Cluster):
    """The driver's cluster object, with threads that can be waited for and a driven clock for what is put off."""

    def __init__(self, clock: ManualClock, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scheduler.shutdown()
        self.scheduler = _Scheduler(self.executor, clock)

    def _create_thread_pool_executor(self, **kwargs: Any) -> _Pool:
        return _Pool(1)  # with more, which one is first would be up to the machine

    def settle(self) -> None:
        self._look_at_connections()
        self.executor.wait_until_idle()
        while self.scheduler.run_due():
            self.executor.wait_until_idle()

    def _look_at_connections(self) -> None:
        """Do what the driver's heartbeat does every half minute: let go of connections that were cut while idle."""
        for owner in self.get_connection_holders():
            for connection in owner.get_connections():
                if connection.is_closed or connection.is_defunct:
                    if connection.is_control_connection:
                        owner.return_connection(connection)
                    else:
                        owner.return_connection(connection, stream_was_orphaned=True)


class _WireLoop(LoopThread):
    """The loop of the wire, which runs in the thread that asks for something."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._wire.finish(work)


class WiredScylla(EmbeddedScylla):
    """An embedded cluster without sockets, threads and real time, for sessions from its own ``connect`` only."""

    def __init__(self, nodes: int, *, clock: ManualClock, seed: int, **options: Any) -> None:
        super().__init__(nodes, clock=clock, seed=seed, **options)
        self.wire = Wire(clock)
        self._loop = _WireLoop(self.wire)
        self._driven = clock
        self._engine.writer._random.seed(seed)  # it gives each record of a log its random bits

    def start(self) -> WiredScylla:
        self._loop.wait(self._open())
        return self

    def __enter__(self) -> WiredScylla:
        return self.start()

    def stop(self) -> None:
        for cluster in self.wire.clusters:
            cluster.shutdown()
        self.wire.clusters.clear()

    def connect(self, keyspace: str | None = None, **options: Any) -> Session:
        """Return a session with the settings of ``rscylla.connect``, for this cluster."""
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()), consistency_level=ConsistencyLevel.ONE
        )
        settings: dict[str, Any] = {
            "contact_points": self.contact_points,
            "port": self.port,
            "protocol_version": 4,
            "compression": False,
            "connection_class": type("WireConnection", (_Connection,), {"wire": self.wire}),
            "execution_profiles": {EXEC_PROFILE_DEFAULT: profile},
            "prepare_on_all_hosts": False,
            "reconnection_policy": ExponentialReconnectionPolicy(0.5, 30.0, max_attempts=None),
            "idle_heartbeat_interval": 0,
            "schema_metadata_enabled": False,  # rscylla reads the tables that it needs itself
            "schema_event_refresh_window": -1,  # 0 and more draw random numbers by the real time
            "topology_event_refresh_window": 0,
            "status_event_refresh_window": 0,
            "timestamp_generator": Timestamps(self._driven),
        }
        cluster = _Cluster(self._driven, **{**settings, **options})
        self.wire.clusters.append(cluster)
        session = cluster.connect(keyspace)
        self.wire.settle()
        return session

    def heal(self, session: Session, *, step: timedelta = timedelta(milliseconds=250)) -> None:
        """Let time pass until the driver uses all nodes that listen again."""
        for _ in range(1000):
            self.wire.settle()
            up = {host.address for host, pool in session._pools.items() if host.is_up and not pool.is_shutdown}
            if {address for address, _ in self.wire.listening} <= up:
                return
            self._driven.advance(step)
        raise AssertionError("the driver does not come back to a node")
