"""The contract suites of the stores on a real cluster with all its nodes, and what its clock decides."""

from __future__ import annotations

from datetime import timedelta

import pytest
import suites
from suites import FOREVER, OnTheCluster

from cursorstore import list_leases
from rscylla.clock import SystemClock
from rscylla.errors import LeaseLost


class TestCursors(suites.Cursors):
    pass


class TestCursorsCheckedAlways(suites.CursorsCheckedAlways):
    pass


class TestBuffered(suites.Buffered):
    pass


class TestCursorsUnderALease(suites.CursorsUnderALease):
    pass


class TestLeases(suites.Leases):
    pass


class TestLeasesOfAllDatacenters(suites.LeasesOfAllDatacenters):
    pass


class TestMemberships(suites.Memberships):
    pass


class TestMembershipsOfAllDatacenters(suites.MembershipsOfAllDatacenters):
    pass


class TestCursorsOfAGroup(suites.CursorsOfAGroup):
    pass


class TestBufferedCursorsOfAGroup(suites.BufferedCursorsOfAGroup):
    pass


class TestDeadLetters(suites.Letters):
    pass


class TestExpiry(OnTheCluster):
    """What the database's own clock decides. Nothing here fails because it takes long."""

    def test_expired_lease_goes_to_a_standby_and_keeps_its_epochs(self) -> None:
        name, clock = self.lease_name, SystemClock()
        dead = self.scylla_lease(name, ttl=timedelta(seconds=3))
        standby = self.scylla_lease(name, ttl=timedelta(seconds=60), owner="standby")
        began = clock.monotonic()
        assert dead.acquire() == 1
        assert standby.acquire() == 2
        assert clock.monotonic() - began > 3 - 1, "a TTL may end up to a second early, and no more"
        assert not dead.held()
        with pytest.raises(LeaseLost):
            dead.renew()
        assert not dead.try_acquire()
        [record] = [r for r in list_leases(next(self.sessions), self.keyspace) if r.name == name]
        assert (record.epoch, record.owner) == (2, "standby")
        assert timedelta() < record.expires_in <= timedelta(seconds=60)

    def test_expired_member_loses_its_slices_and_epochs_grow(self) -> None:
        name, clock = self.lease_name, SystemClock()
        dead = self.scylla_membership(name, "dead", ttl=timedelta(seconds=3))
        other = self.scylla_membership(name, "other")
        dead.join()
        other.join()
        began = clock.monotonic()
        while not dead.held():  # again, where this machine is so slow that it expired on the way
            dead.join()
            dead.take(dead.look(), {5})
        taken = 0
        while not other.take(other.look(), {5}):
            assert clock.monotonic() - began < 300, "the member never expires"
            taken += 1
        assert taken, "it was there for a while"
        assert not dead.held()
        with pytest.raises(LeaseLost):
            dead.renew()
        seen = other.look()
        assert [member.owner for member in seen.members] == ["other"]
        assert (seen.slices[5].owner, seen.slices[5].before) == ("other", "dead")
        assert seen.slices[5].epoch >= 2

    def test_lease_that_expired_long_ago_still_has_its_epoch(self) -> None:
        name = self.lease_name
        self.scylla_lease(name, ttl=timedelta(seconds=3)).acquire()
        deadline = SystemClock().monotonic() + 60
        while True:
            [record] = [r for r in list_leases(next(self.sessions), self.keyspace) if r.name == name]
            if not record.owner:
                break
            assert SystemClock().monotonic() < deadline, "the lease never expires"
        assert (record.epoch, record.since, record.expires_in) == (1, None, timedelta())

    def test_old_holder_that_was_paused_cannot_move_the_cursor(self) -> None:
        """The old one's own clock stood still with it, so that it does not notice: the epoch has to stop it."""
        old = self.scylla_lease(self.lease_name, ttl=timedelta(seconds=3))
        new = self.scylla_lease(self.lease_name, ttl=timedelta(seconds=60))
        consumer = self.lease_name
        old.acquire()
        old.held = lambda: True  # type: ignore[method-assign]
        paused = self.number_store(lease=old, epoch_check=FOREVER)
        assert paused.get_cursor(consumer) == ""
        paused.set_cursor(consumer, "5")
        new.acquire()
        working = self.number_store(lease=new)
        assert working.get_cursor(consumer) == "5"
        paused.set_cursor(consumer, "99")
        assert working.get_cursor(consumer) == "5"
        working.set_cursor(consumer, "6")
        paused.set_cursor(consumer, "100")
        record = self.number_store().find_cursor(consumer)
        assert record is not None
        assert record.cursor == "6"
        with pytest.raises(LeaseLost, match="later holder"):
            paused.get_cursor(consumer)
