"""Contract suites of leases, as test classes to subclass."""

from __future__ import annotations

import contextlib
import threading
import uuid
from typing import ClassVar

import pytest

from rscylla.abc import Lease
from rscylla.clock import Stop
from rscylla.errors import LeaseLost, QueryTimeout, Stopped

__all__ = ["ExpiringLeaseContract", "LeaseContract"]


class LeaseContract:
    """The contract of ``Lease`` while no lease expires: leases must last a minute or more."""

    def open_lease(self, name: str, owner: str = "") -> Lease:
        """Return a new lease. Called once for each process that a test simulates; all of them compete."""
        raise NotImplementedError("a contract suite needs open_lease(), which returns the lease to test")

    @pytest.fixture
    def name(self) -> str:
        return f"contract-{uuid.uuid4()}"

    def test_free_lease_is_acquired_and_released(self, name: str) -> None:
        lease = self.open_lease(name, "a")
        assert (lease.name, lease.owner, lease.epoch, lease.held()) == (name, "a", 0, False)
        assert lease.try_acquire()
        assert (lease.epoch, lease.held()) == (1, True)
        lease.release()
        assert not lease.held()

    def test_lease_has_one_holder(self, name: str) -> None:
        holder, standby = self.open_lease(name), self.open_lease(name)
        assert holder.acquire() == 1
        for _ in range(3):
            assert not standby.try_acquire()
            assert (standby.epoch, standby.held()) == (0, False)
            holder.renew()
        assert holder.held()
        holder.release()
        assert standby.try_acquire()
        assert not holder.try_acquire()

    def test_lease_tells_whether_somebody_may_hold_it(self, name: str) -> None:
        holder, standby = self.open_lease(name), self.open_lease(name)
        assert standby.trouble
        holder.acquire()
        assert not standby.try_acquire()
        assert (holder.trouble, standby.trouble) == ("", "")
        holder.release()
        assert holder.trouble
        assert standby.try_acquire()
        assert standby.trouble == ""

    def test_acquiring_a_held_lease_keeps_its_epoch(self, name: str) -> None:
        lease = self.open_lease(name)
        assert [lease.acquire(), lease.acquire(), lease.try_acquire(), lease.epoch] == [1, 1, True, 1]

    def test_holder_raises_its_epoch_above_one_that_was_found(self, name: str) -> None:
        holder, standby = self.open_lease(name), self.open_lease(name)
        with pytest.raises(LeaseLost):
            standby.outgrow(7)
        holder.acquire()
        for found in (7, 3):
            holder.outgrow(found)
            assert (holder.epoch, holder.held(), standby.try_acquire()) == (8, True, False)
        holder.renew()
        holder.release()
        assert (standby.acquire(), standby.epoch) == (9, 9)
        with pytest.raises(LeaseLost):
            holder.outgrow(20)
        assert (standby.epoch, standby.held()) == (9, True)
        standby.renew()

    def test_owners_with_the_same_name_compete(self, name: str) -> None:
        assert self.open_lease(name, "same").try_acquire()
        assert not self.open_lease(name, "same").try_acquire()

    def test_epoch_grows_with_each_acquisition(self, name: str) -> None:
        leases = [self.open_lease(name) for _ in range(3)]
        epochs = []
        for lease in [*leases, leases[0], *reversed(leases)]:
            assert lease.try_acquire()
            epochs.append(lease.epoch)
            lease.release()
        assert epochs == list(range(1, 8))

    def test_only_the_holder_can_renew(self, name: str) -> None:
        holder, standby = self.open_lease(name), self.open_lease(name)
        with pytest.raises(LeaseLost, match=name):
            standby.renew()
        holder.acquire()
        with pytest.raises(LeaseLost, match=name):
            standby.renew()
        holder.renew()
        holder.release()
        with pytest.raises(LeaseLost, match=name):
            holder.renew()

    def test_release_can_be_repeated_and_frees_no_lease_of_another_owner(self, name: str) -> None:
        first, second = self.open_lease(name), self.open_lease(name)
        first.release()
        first.acquire()
        first.release()
        first.release()
        second.acquire()
        first.release()
        assert not self.open_lease(name).try_acquire()
        second.renew()

    def test_leases_with_other_names_are_independent(self, name: str) -> None:
        assert self.open_lease(name).try_acquire()
        assert self.open_lease(f"{name} größe '").try_acquire()

    def test_standing_by_ends_with_the_stop_signal(self, name: str) -> None:
        holder, standby, stop = self.open_lease(name), self.open_lease(name), Stop()
        holder.acquire()
        stop.set()
        with pytest.raises(Stopped):
            standby.acquire(stop)
        assert not standby.held()

    def test_threads_that_compete_for_a_lease_get_one_holder(self, name: str) -> None:
        leases = [self.open_lease(name) for _ in range(5)]
        gate = threading.Barrier(len(leases))
        failures: list[BaseException] = []

        def rush(lease: Lease) -> None:
            gate.wait()
            try:
                with contextlib.suppress(QueryTimeout):  # concurrent conditional writes may time out
                    lease.try_acquire()
            except BaseException as e:  # noqa: BLE001  shown by the assertion below
                failures.append(e)

        threads = [threading.Thread(target=rush, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        # All of them may be refused; then the next round decides.
        holders = [lease for lease in leases if lease.held() or lease.try_acquire()]
        assert len(holders) == 1


class ExpiringLeaseContract(LeaseContract):
    """The contract of ``Lease`` as time passes, on a clock that the test drives."""

    ttl: ClassVar[float] = 60.0

    def pass_time(self, seconds: float) -> None:
        """Advance all clocks: those of the owners and that of the storage."""
        raise NotImplementedError("this contract suite needs pass_time(), which moves the clocks")

    def test_lease_of_a_dead_holder_can_be_acquired_once_it_expires(self, name: str) -> None:
        dead, standby = self.open_lease(name), self.open_lease(name)
        dead.acquire()
        self.pass_time(self.ttl + 1)
        assert not dead.held()
        assert standby.try_acquire()
        assert standby.epoch == 2

    def test_holder_stops_before_another_owner_can_acquire(self, name: str) -> None:
        paused, standby = self.open_lease(name), self.open_lease(name)
        paused.acquire()
        held = [paused.held()]
        while not standby.try_acquire():
            held.append(paused.held())
            self.pass_time(0.5)
            assert len(held) < 4 * self.ttl, "the lease never expires"
        assert held[0]
        assert not held[-1]
        assert held == sorted(held, reverse=True)

    def test_renewed_lease_does_not_expire(self, name: str) -> None:
        holder, standby = self.open_lease(name), self.open_lease(name)
        holder.acquire()
        for _ in range(12):
            self.pass_time(holder.renew_every)
            assert holder.held()
            holder.renew()
            assert not standby.try_acquire()
        assert holder.epoch == 1

    def test_renewed_lease_of_a_dead_holder_expires(self, name: str) -> None:
        dead, standby = self.open_lease(name), self.open_lease(name)
        dead.acquire()
        self.pass_time(dead.renew_every)
        dead.renew()
        self.pass_time(self.ttl + 1)
        assert not dead.held()
        assert standby.try_acquire()

    def test_two_renewals_may_fail(self, name: str) -> None:
        holder = self.open_lease(name)
        holder.acquire()
        self.pass_time(2.9 * holder.renew_every)
        assert holder.held()
        holder.renew()

    def test_expired_lease_cannot_be_renewed_by_its_old_holder(self, name: str) -> None:
        paused, standby = self.open_lease(name), self.open_lease(name)
        paused.acquire()
        self.pass_time(self.ttl + 1)
        with pytest.raises(LeaseLost, match="acquire it again"):
            paused.renew()
        assert standby.try_acquire()
        with pytest.raises(LeaseLost):
            paused.renew()
        assert not paused.try_acquire()
        standby.renew()

    def test_old_holder_may_acquire_it_again_with_a_new_epoch(self, name: str) -> None:
        lease = self.open_lease(name)
        lease.acquire()
        self.pass_time(self.ttl + 1)
        assert lease.try_acquire()
        assert (lease.epoch, lease.held()) == (2, True)

    def test_old_holder_without_a_successor_may_acquire_it_again(self, name: str) -> None:
        """The holder stops before its claim expires. Its own claim, still in the table, must not make it stand by."""
        lease = self.open_lease(name)
        lease.acquire()
        while lease.held():
            self.pass_time(0.5)
        assert lease.try_acquire()
        assert (lease.epoch, lease.held()) == (2, True)

    def test_late_release_of_an_old_holder_frees_nothing(self, name: str) -> None:
        paused, standby = self.open_lease(name), self.open_lease(name)
        paused.acquire()
        self.pass_time(self.ttl + 1)
        standby.acquire()
        paused.release()
        assert not paused.try_acquire()
        standby.renew()

    def test_standby_takes_over(self, name: str) -> None:
        dead, standby = self.open_lease(name), self.open_lease(name)
        dead.acquire()
        assert standby.acquire() == 2  # the driven clock advances while it waits
        assert standby.held()
        assert not dead.held()
