"""Two replicas of a service pass a lease to and fro and save cursors, while a node is killed -9 and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest
from suites import OnTheCluster

from cursorstore import ScyllaCursorStore, ScyllaLease
from rscylla.clock import Stop, SystemClock
from rscylla.errors import LeaseLost, SourceError, Stopped

TENURES = 6
"""How many more each phase has to see before the next one begins."""

PHASE_S = 300


@attrs.define
class Seen:
    """What both replicas came to know, in the order in which it happened.

    Something is written down under ``lock``, and only by a replica that holds the lease at that moment. One that was
    paused since it acquired the lease would write down an epoch that others have passed.
    """

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    confirmed: int = 0  # the highest cursor that was saved by somebody who held the lease before and after that
    epochs: list[int] = attrs.field(factory=list)
    starts: list[int] = attrs.field(factory=list)  # the cursor that each of these epochs began with
    errors: list[str] = attrs.field(factory=list)
    failures: list[BaseException] = attrs.field(factory=list)


class Replica:
    """One replica: stands by, reads the cursor, saves some, gives the lease back. Errors that may pass are counted."""

    def __init__(self, consumer: str, lease: ScyllaLease, store: ScyllaCursorStore, seen: Seen, stop: Stop) -> None:
        self.consumer, self.lease, self.store, self.seen, self.stop = consumer, lease, store, seen, stop
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self) -> None:
        while not self.stop.is_set():
            try:
                epoch = self.lease.acquire(self.stop)
                self.tenure(epoch)
                self.lease.release()
            except Stopped:
                return
            except (SourceError, LeaseLost) as e:
                self.seen.errors.append(type(e).__name__)
                if not e.resumable:
                    self.seen.failures.append(e)
            except BaseException as e:  # noqa: BLE001  told by the test
                self.seen.failures.append(e)
                return

    def tenure(self, epoch: int) -> None:
        with self.seen.lock:
            confirmed = self.seen.confirmed
        number = int(self.store.get_cursor(self.consumer) or 0)
        assert number >= confirmed, "a cursor that was saved is gone"
        with self.seen.lock:
            if not self.lease.held():
                raise LeaseLost(f"epoch {epoch} was over before its cursor was read")
            if self.seen.epochs[-1:] != [epoch]:  # else it goes on after an error that passed
                self.seen.epochs.append(epoch)
                self.seen.starts.append(number)
        for _ in range(10):
            number += 1
            self.store.set_cursor(self.consumer, str(number))
            with self.seen.lock:
                if self.lease.held():
                    self.seen.confirmed = max(self.seen.confirmed, number)
        self.lease.renew()


class TestNodeKilled(OnTheCluster):
    @pytest.fixture
    def replicas(self, database: Any) -> Iterator[tuple[Seen, list[Replica]]]:
        if database.nodes is None:
            pytest.skip("the nodes of a cluster that is named by RSCYLLA_CONTACT_POINTS are not killed")
        seen, stop = Seen(), Stop()
        replicas = []
        for name in ("a", "b"):
            options: dict[str, Any] = {"consistency": "QUORUM"}
            lease = self.scylla_lease(self.lease_name, ttl=timedelta(seconds=10), owner=name, **options)
            store = self.number_store(lease=lease, **options)
            replicas.append(Replica(self.lease_name, lease, store, seen, stop))
        for replica in replicas:
            replica.thread.start()
        yield seen, replicas
        self.finish(seen, replicas)

    def finish(self, seen: Seen, replicas: list[Replica]) -> None:
        for replica in replicas:
            replica.stop.set()
        for replica in replicas:
            replica.thread.join(PHASE_S)
            assert not replica.thread.is_alive(), f"{replica.lease} did not stop; {seen.errors}"
        assert seen.failures == []
        assert seen.epochs == sorted(set(seen.epochs)), "each tenure has an epoch of its own, and epochs grow"
        assert seen.starts == sorted(seen.starts), "no tenure began below the one before"

    def await_tenures(self, seen: Seen) -> None:
        wanted, clock, stop = len(seen.epochs) + TENURES, SystemClock(), Stop()
        deadline = clock.monotonic() + PHASE_S
        while len(seen.epochs) < wanted and not seen.failures:
            assert clock.monotonic() < deadline, f"nobody works any more: {seen.epochs} {seen.errors}"
            clock.wait(stop, 0.05)
        assert seen.failures == []

    def test_no_cursor_is_lost_and_epochs_grow(self, database: Any, replicas: tuple[Seen, list[Replica]]) -> None:
        seen, both = replicas
        self.await_tenures(seen)
        node = database.nodes.nodes[0]
        database.nodes.kill(node)
        self.await_tenures(seen)  # before the others noticed, and
        database.nodes.await_down(node)
        self.await_tenures(seen)  # when they have
        database.nodes.launch(node)
        database.nodes.await_up(node)
        self.await_tenures(seen)
        self.finish(seen, both)
        record = self.number_store(consistency="QUORUM").find_cursor(self.lease_name)
        assert record is not None
        assert int(record.cursor) >= seen.confirmed >= len(seen.epochs)
        history = self.number_store().cursor_history(self.lease_name)
        assert [r.epoch for r in history] == sorted((r.epoch for r in history), reverse=True)
