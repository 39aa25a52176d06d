"""Leases with a driven clock: unknown outcomes, competing owners, waiting, arguments."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memoryleases import MemoryLease, MemoryLeaseTable

from cursorstore import ScyllaLease
from cursorstore.leases.table import Claim, LeaseRow
from rscylla.clock import Stop
from rscylla.errors import ConfigError, ConnectionFailed, LeaseLost, QueryFailed, QueryTimeout, Stopped
from rscylla.testing import ManualClock

TTL = timedelta(seconds=20)


@attrs.define
class Fault:
    step: str
    when: str
    error: Exception


class FaultyTable(MemoryLeaseTable):
    """A table whose steps fail on demand, before or after they took effect."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.faults: list[Fault] = []
        self.serial_reads = 0

    def fail(self, step: str, when: str = "before", error: Exception | None = None) -> None:
        self.faults.append(Fault(step, when, error or QueryTimeout("timed out")))

    def _maybe_fail(self, step: str, when: str) -> None:
        for fault in self.faults:
            if (fault.step, fault.when) == (step, when):
                self.faults.remove(fault)
                raise fault.error

    def read(self, name: str, *, serial: bool = False) -> LeaseRow | None:
        self.serial_reads += serial
        self._maybe_fail("serial read" if serial else "read", "before")
        return super().read(name, serial=serial)

    def add(self, name: str) -> bool:
        self._maybe_fail("add", "before")
        done = super().add(name)
        self._maybe_fail("add", "after")
        return done

    def take(self, last: LeaseRow, epoch: int, claim: Claim) -> bool:
        self._maybe_fail("take", "before")
        done = super().take(last, epoch, claim)
        self._maybe_fail("take", "after")
        return done

    def keep(self, name: str, epoch: int, claim: Claim) -> bool:
        self._maybe_fail("keep", "before")
        done = super().keep(name, epoch, claim)
        self._maybe_fail("keep", "after")
        return done

    def drop(self, name: str, epoch: int, claim: Claim) -> bool:
        self._maybe_fail("drop", "before")
        done = super().drop(name, epoch, claim)
        self._maybe_fail("drop", "after")
        return done


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> FaultyTable:
    return FaultyTable(clock)


def lease_of(table: MemoryLeaseTable, owner: str = "a") -> MemoryLease:
    return MemoryLease("orders", table, owner=owner, ttl=TTL)


# What came of a conditional write is not known


@pytest.mark.parametrize("error", [QueryTimeout("late"), ConnectionFailed("gone")])
def test_acquisition_that_was_done_though_it_failed_counts(table: FaultyTable, error: Exception) -> None:
    table.fail("take", "after", error)
    lease = lease_of(table)
    assert lease.try_acquire()
    assert (lease.epoch, table.serial_reads) == (1, 1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_epoch_whose_raise_is_in_doubt_is_settled_by_a_serial_read(table: FaultyTable, when: str) -> None:
    lease = lease_of(table)
    lease.acquire()
    table.fail("take", when)
    if when == "before":
        with pytest.raises(LeaseLost):
            lease.outgrow(4)
        assert not lease.held()
        assert lease.try_acquire()
    lease.outgrow(4)
    assert (lease.epoch, lease.held(), table.serial_reads) == (5, True, 1)
    lease.renew()


def test_acquisition_that_failed_undone_is_none(table: FaultyTable) -> None:
    table.fail("take")
    lease = lease_of(table)
    assert not lease.try_acquire()
    assert not lease.held()
    assert lease.try_acquire()
    assert lease.epoch == 1


def test_acquisition_with_an_unknown_result_is_completed_later(table: FaultyTable) -> None:
    """Nobody may count on it, but it must not keep out whoever made it, either."""
    table.fail("take", "after")
    table.fail("serial read")
    lease, standby = lease_of(table), lease_of(table, "b")
    with pytest.raises(QueryTimeout):
        lease.try_acquire()
    assert not lease.held()
    assert not standby.try_acquire()
    assert lease.try_acquire()
    assert lease.epoch == 2


def test_driver_that_repeats_a_write_by_itself_is_refused_by_its_own_first_try(table: FaultyTable) -> None:
    class Repeating(FaultyTable):
        def take(self, last: LeaseRow, epoch: int, claim: Claim) -> bool:
            super().take(last, epoch, claim)
            return super().take(last, epoch, claim)

    lease = lease_of(Repeating(ManualClock()))
    assert lease.try_acquire()
    assert lease.epoch == 1


def test_own_claim_of_an_earlier_attempt_is_not_taken_for_this_one(table: FaultyTable) -> None:
    """The epoch tells the two apart: a holder must never believe in one that the table does not have."""
    table.fail("take", "after")
    table.fail("serial read")
    lease = lease_of(table)
    with pytest.raises(QueryTimeout):
        lease.try_acquire()
    table.fail("take")
    assert not lease.try_acquire()
    assert not lease.held()


def test_lease_that_changed_hands_between_look_and_take_is_refused(table: FaultyTable) -> None:
    """It is free both times, and only the epoch shows that another had it in between."""
    quick, slow = lease_of(table), lease_of(table, "b")
    quick.acquire()
    quick.release()
    take = table.take

    def overtaken(last: LeaseRow, epoch: int, claim: Claim) -> bool:
        table.take = take  # type: ignore[method-assign]
        quick.acquire()
        quick.release()
        return take(last, epoch, claim)

    table.take = overtaken  # type: ignore[method-assign]
    assert not slow.try_acquire()
    assert slow.try_acquire()
    assert (quick.epoch, slow.epoch) == (2, 3)


def test_release_that_arrives_late_does_not_end_a_later_tenure(table: FaultyTable) -> None:
    lease, standby = lease_of(table), lease_of(table, "b")
    lease.acquire()
    first, claim = lease.epoch, lease._claim("")
    lease.release()
    lease.acquire()
    assert not table.drop("orders", first, claim)
    assert not standby.try_acquire()


def test_permanent_refusal_is_raised_unchanged(table: FaultyTable) -> None:
    table.fail("take", error=QueryFailed("no"))
    with pytest.raises(QueryFailed):
        lease_of(table).acquire(Stop())


@pytest.mark.parametrize("when", ["before", "after"])
def test_new_lease_with_an_unknown_result_is_read(table: FaultyTable, when: str) -> None:
    table.fail("add", when)
    lease = lease_of(table)
    assert lease.try_acquire() == (when == "after")
    assert lease.try_acquire()


@pytest.mark.parametrize("when", ["before", "after"])
def test_renewal_that_failed_leaves_the_time_there_was(table: FaultyTable, clock: ManualClock, when: str) -> None:
    lease = lease_of(table)
    lease.acquire()
    clock.advance(10)
    table.fail("keep", when)
    with pytest.raises(QueryTimeout):
        lease.renew()
    assert lease.held()
    clock.advance(6)
    assert not lease.held()
    with pytest.raises(LeaseLost):
        lease.renew()


def test_renewal_is_counted_from_before_it_was_asked_for(table: FaultyTable, clock: ManualClock) -> None:
    """The database may have started the time at any moment until it answered."""

    class Slow(MemoryLeaseTable):
        def keep(self, name: str, epoch: int, claim: Claim) -> bool:
            done = super().keep(name, epoch, claim)
            clock.advance(10)
            return done

    lease = MemoryLease("orders", Slow(clock), ttl=TTL)
    lease.acquire()
    lease.renew()
    clock.advance(4.9)
    assert lease.held()
    clock.advance(0.2)
    assert not lease.held()


class SlowTable(MemoryLeaseTable):
    """A table whose answer to *step* comes after *seconds*, by the clock of all."""

    def __init__(self, clock: ManualClock, step: str, seconds: float) -> None:
        super().__init__(clock)
        self.step, self.seconds = step, seconds

    def take(self, last: LeaseRow, epoch: int, claim: Claim) -> bool:
        return self._late("take", super().take(last, epoch, claim))

    def keep(self, name: str, epoch: int, claim: Claim) -> bool:
        return self._late("keep", super().keep(name, epoch, claim))

    def _late(self, step: str, done: bool) -> bool:
        assert isinstance(self.clock, ManualClock)
        if step == self.step:
            self.step = ""
            self.clock.advance(self.seconds)
        return done


@pytest.mark.parametrize("seconds", [15, 20, 60])
def test_acquisition_whose_answer_comes_after_its_time_is_none(clock: ManualClock, seconds: float) -> None:
    lease = lease_of(SlowTable(clock, "take", seconds))
    assert not lease.try_acquire()
    assert not lease.held()


def test_standby_continues_until_it_has_an_epoch_that_has_not_expired(clock: ManualClock) -> None:
    lease = lease_of(SlowTable(clock, "take", 60))
    assert lease.acquire() == 2
    assert lease.held()


@pytest.mark.parametrize("seconds", [15, 20, 60])
def test_renewal_whose_answer_comes_after_its_time_says_that_the_lease_is_lost(
    clock: ManualClock, seconds: float
) -> None:
    lease = lease_of(SlowTable(clock, "keep", seconds))
    lease.acquire()
    with pytest.raises(LeaseLost, match="answer"):
        lease.renew()
    assert not lease.held()


def test_release_that_failed_still_ends_it_here(table: FaultyTable) -> None:
    lease = lease_of(table)
    lease.acquire()
    table.fail("drop")
    with pytest.raises(QueryTimeout):
        lease.release()
    assert not lease.held()


STEPS = ("read", "serial read", "add", "take", "keep", "drop")


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_there_is_one_holder_in_any_interleaving_with_any_fault(data: st.DataObject) -> None:
    clock = ManualClock()
    table = FaultyTable(clock)
    owners = [lease_of(table, str(n)) for n in range(3)]
    tenures: list[tuple[int, int]] = []  # (epoch, owner), as owners were told
    actions = st.tuples(st.integers(0, 2), st.sampled_from(["acquire", "acquire", "renew", "release", "time", "fault"]))
    for who, what in data.draw(st.lists(actions, max_size=50)):
        lease, before = owners[who], owners[who].epoch
        try:
            if what == "acquire":
                lease.try_acquire()
            elif what == "renew":
                lease.renew()
            elif what == "release":
                lease.release()
            elif what == "time":
                clock.advance(data.draw(st.sampled_from([1, 5, 14, 15, 21])))
            else:
                table.fail(data.draw(st.sampled_from(STEPS)), data.draw(st.sampled_from(["before", "after"])))
        except (QueryTimeout, LeaseLost):
            pass
        if lease.epoch != before:
            tenures.append((lease.epoch, who))
        assert sum(owner.held() for owner in owners) <= 1
    epochs = [epoch for epoch, _ in tenures]
    assert epochs == sorted(set(epochs)), "each tenure has an epoch of its own, and they grow"


# Standing by


def test_standby_retries_temporary_errors_and_polls_soon_after_the_expiry(
    table: FaultyTable, clock: ManualClock
) -> None:
    dead, standby = lease_of(table), lease_of(table, "b")
    dead.acquire()
    table.fail("read", error=ConnectionFailed("gone"))
    assert standby.acquire() == 2
    assert 20 <= clock.monotonic() <= 21
    assert all(0 < wait <= standby.renew_every for wait in clock.waits)
    assert len(set(clock.waits)) > 1, "standbys must not look all at one moment"


def test_standby_sees_a_release_at_its_next_look(table: FaultyTable, clock: ManualClock) -> None:
    holder, standby = lease_of(table), lease_of(table, "b")
    holder.acquire()
    clock.on_wait = lambda seconds: holder.release()
    assert standby.acquire() == 2
    assert clock.monotonic() <= standby.renew_every


def test_standby_that_is_stopped_while_it_waits_raises_stopped(table: FaultyTable, clock: ManualClock) -> None:
    stop = Stop()
    lease_of(table).acquire()
    clock.on_wait = lambda seconds: stop.set()
    with pytest.raises(Stopped):
        lease_of(table, "b").acquire(stop)


# The holder's clocks


class SleepingMachine(ManualClock):
    """A machine that was suspended: its monotonic clock stood still, and the wall clock is right again."""

    asleep_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() - self.asleep_s


def test_machine_that_slept_does_not_hold_its_lease_any_more() -> None:
    clock = SleepingMachine()
    lease = MemoryLease("orders", MemoryLeaseTable(clock), ttl=TTL)
    lease.acquire()
    clock.advance(60)
    clock.asleep_s = 60
    assert clock.monotonic() == 0
    assert not lease.held()


class SteppedClock(ManualClock):
    """A machine whose wall clock was set back, while its monotonic clock goes on."""

    back_s = 0.0

    def now_us(self) -> int:
        return super().now_us() - int(self.back_s * 1e6)


def test_wall_clock_that_is_set_back_does_not_prolong_a_lease() -> None:
    clock = SteppedClock()
    lease = MemoryLease("orders", MemoryLeaseTable(clock), ttl=TTL)
    lease.acquire()
    clock.back_s = 3600
    assert lease.held()
    clock.advance(15)
    assert not lease.held()


# Arguments


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=2), timedelta(seconds=4.5), timedelta(seconds=-9)])
def test_ttl_is_in_whole_seconds_and_leaves_room_for_a_margin(ttl: timedelta) -> None:
    with pytest.raises(ConfigError, match="ttl"):
        MemoryLease("orders", ttl=ttl)


@pytest.mark.parametrize("seconds", [-1, 0, 1, 20, 21])
def test_margin_is_more_than_a_second_and_less_than_the_ttl(seconds: int) -> None:
    with pytest.raises(ConfigError, match="margin"):
        MemoryLease("orders", ttl=TTL, margin=timedelta(seconds=seconds))


@pytest.mark.parametrize("name", ["", "x" * 65_536, "half \ud83d", None, 7])
def test_lease_needs_a_name(name: object) -> None:
    with pytest.raises(ConfigError, match="name"):
        MemoryLease(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["ONE", "SERIAL", "nonsense"])
def test_consistency_must_see_earlier_writes(level: str) -> None:
    with pytest.raises(ConfigError, match="LOCAL_QUORUM"):
        ScyllaLease(object(), "shop", "orders", consistency=level)


def test_lease_says_what_it_is(table: FaultyTable) -> None:
    lease = lease_of(table)
    assert repr(lease) == "<MemoryLease 'orders' of a: not held>"
    lease.acquire()
    assert repr(lease) == "<MemoryLease 'orders' of a: held, epoch 1>"
    assert "/" in MemoryLease("orders").owner


def test_owner_that_is_stopped_already_acquires_nothing() -> None:
    lease, stop = MemoryLease("orders"), Stop()
    stop.set()
    with pytest.raises(Stopped):
        lease.acquire(stop)
    assert not lease.held()


def test_a_lease_knows_whether_somebody_may_hold_it(table: FaultyTable) -> None:
    standby, holder = lease_of(table, "b"), lease_of(table)
    assert standby.trouble == "nobody holds it, as far as known: no answer yet"
    holder.acquire()
    assert not standby.try_acquire()
    assert standby.trouble == holder.trouble == ""
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(TTL.total_seconds())
    assert standby.trouble == holder.trouble == "nobody holds it, as far as known"
    assert standby.try_acquire()
    assert standby.trouble == ""


def test_a_standby_whose_table_does_not_answer_does_not_know_of_a_holder(table: FaultyTable) -> None:
    lease, stop = lease_of(table), Stop()
    table.fail("read", error=ConnectionFailed("no node answers"))
    assert isinstance(table.clock, ManualClock)
    table.clock.on_wait = lambda seconds: stop.set()
    with pytest.raises(Stopped):
        lease.acquire(stop)
    assert lease.trouble == "nobody holds it, as far as known: no node answers"
