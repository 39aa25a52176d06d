"""Cursors under a lease, against a database in memory: what old holders write after they lost it is never seen.

The leases here never notice that they expired, as if each holder were paused between its check and its write: what
keeps old holders out is the epoch alone.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from datetime import timedelta

import cassandra
import pytest
from cassandra import ConsistencyLevel
from fake_scylla import FakeScylla
from hypothesis import given, settings
from hypothesis import strategies as st
from memorygroups import MemoryGroupTable, MemoryMembership
from memoryleases import MemoryLease, MemoryLeaseTable

from cursorstore import BufferedCursorStore, IntCursorCodec, ScyllaCursorStore
from cursorstore.cursors.table import CursorRow
from rscylla.abc import NOBODY, CursorRecord
from rscylla.errors import CursorConflict, CursorRegression, LeaseLost, QueryTimeout
from rscylla.testing import ManualClock

CODEC = IntCursorCodec()
NEVER = timedelta(days=365)


class BlindLease(MemoryLease):
    """A lease whose holder does not notice that it expired."""

    blind = True

    def held(self) -> bool:
        return super().held() or (self.blind and self.epoch > 0)


class World:
    """A database, a clock, and processes that compete for the lease on the cursor of one consumer."""

    def __init__(self) -> None:
        self.scylla = FakeScylla()
        self.clock = ManualClock()
        self.leases = MemoryLeaseTable(self.clock)

    def store(self, lease: MemoryLease | None = None, epoch_check: timedelta = NEVER) -> ScyllaCursorStore:
        """Return a store of a process of its own; without a lease it is an operator's."""
        return ScyllaCursorStore(
            self.scylla.session(),
            "shop",
            create=True,
            codec=CODEC,
            lease=lease,
            epoch_check=epoch_check,
            clock=self.clock,
        )

    def process(self, owner: str = "a", epoch_check: timedelta = NEVER) -> tuple[BlindLease, ScyllaCursorStore]:
        lease = BlindLease("orders", self.leases, owner=owner)
        return lease, self.store(lease, epoch_check)

    def holder(self, owner: str = "a", epoch_check: timedelta = NEVER) -> tuple[BlindLease, ScyllaCursorStore]:
        """Return a process that has the lease."""
        lease, store = self.process(owner, epoch_check)
        self.acquire(lease)
        return lease, store

    def succession(self, epoch_check: timedelta = NEVER) -> tuple[ScyllaCursorStore, ScyllaCursorStore]:
        """Return the store of a holder that saved 5 and paused, and that of the next one, which has read nothing."""
        _, paused = self.holder("old", epoch_check)
        paused.set_cursor("c", "5")
        return paused, self.holder("new")[1]

    def once_before(self, step: str, then: Callable[[], None]) -> None:
        """Call *then* before the next statement that begins with *step*."""

        def look(text: str) -> None:
            if text.startswith(step):
                self.scylla.before = lambda text: None
                then()

        self.scylla.before = look

    def acquire(self, lease: BlindLease) -> None:
        """Let the lease of its holder expire, and acquire it with *lease*."""
        self.clock.advance(31)
        lease.blind = False
        assert lease.try_acquire()
        lease.blind = True

    @property
    def cursor(self) -> str:
        """The cursor that any process reads."""
        record = self.store().find_cursor("c")
        return record.cursor if record else ""


@pytest.fixture
def world() -> World:
    return World()


def dies_once_its_epoch_is_open(store: ScyllaCursorStore, *, first: Callable[[], None] = lambda: None) -> None:
    """Have the process of *store* die as it reads its cursor, before it took up what the old holder saved."""
    open_epoch = store._table.open_epoch

    def die(row: CursorRow) -> bool:
        first()
        open_epoch(row)
        raise KeyboardInterrupt

    store._table.open_epoch = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        store.get_cursor("c")


def test_new_holder_reads_the_result_of_conditional_writes_in_progress(world: World) -> None:
    """A plain read may miss the epoch that an attempt which timed out is about to open."""
    _, store = world.holder("a")
    world.scylla.levels.clear()
    assert store.get_cursor("c") == ""
    assert ("SELECT", ConsistencyLevel.LOCAL_SERIAL, ConsistencyLevel.LOCAL_SERIAL) in world.scylla.levels


def test_old_holder_writes_to_an_epoch_that_is_no_longer_read(world: World) -> None:
    paused, working = world.succession()
    assert working.get_cursor("c") == "5"
    paused.set_cursor("c", "99")
    assert world.cursor == "5"
    working.set_cursor("c", "6")
    paused.set_cursor("c", "100")
    assert world.cursor == "6"
    assert working.get_cursor("c") == "6"


def test_two_groups_with_one_consumer_name_are_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    table = MemoryGroupTable(world.clock)
    stores = {}
    for group in ("workers", "others"):
        member = MemoryMembership(group, table, owner=f"pod of {group}", slices=4)
        member.join()
        member.take(member.look(), range(4))
        stores[group] = world.store(member, epoch_check=timedelta())  # type: ignore[arg-type]
    for index in range(4):
        stores["workers"].get_cursor(f"c[{index}/4]")
        stores["workers"].set_cursor(f"c[{index}/4]", "5")
    assert not caplog.records
    for index in range(4):
        stores["others"].get_cursor(f"c[{index}/4]")
    [warned] = [record.getMessage() for record in caplog.records]
    assert "'c[0/4]' was under lease 'workers[0/4]' and is under 'others[0/4]' from now on" in warned
    with pytest.raises(
        CursorConflict,
        match=r"'c\[1/4\]' was taken over \(lease 'others\[1/4\]', epoch 1, acquired by pod of others\), while this "
        r"process works under lease 'workers\[1/4\]': they work against each other; give each group",
    ):
        stores["workers"].set_cursor("c[1/4]", "6")


def test_old_holder_learns_of_it_at_its_next_check(world: World) -> None:
    paused, working = world.succession(epoch_check=timedelta(seconds=10))
    working.get_cursor("c")
    world.clock.advance(10)
    for _ in range(2):
        with pytest.raises(LeaseLost, match=r"'c' belongs to a later holder of lease 'orders', epoch 2"):
            paused.set_cursor("c", "6")
    with pytest.raises(LeaseLost, match="later holder"):
        paused.get_cursor("c")
    assert world.cursor == "5"


def test_holder_that_knows_that_it_lost_the_lease_sends_no_query(world: World) -> None:
    lease, store = world.holder()
    store.set_cursor("c", "5")
    lease.blind = False
    lease.release()
    asked = len(world.scylla.statements)
    with pytest.raises(LeaseLost, match="acquire the lease"):
        store.set_cursor("c", "6")
    with pytest.raises(LeaseLost, match="acquire the lease"):
        store.get_cursor("c")
    assert len(world.scylla.statements) == asked
    assert world.cursor == "5"


def test_lease_that_was_lost_and_acquired_again_needs_the_cursor_to_be_read_again(world: World) -> None:
    (lease, store), (other, between) = world.process(), world.process("b")
    world.acquire(lease)
    store.set_cursor("c", "5")
    world.acquire(other)
    between.get_cursor("c")
    between.set_cursor("c", "8")
    world.acquire(lease)
    for _ in range(2):
        with pytest.raises(LeaseLost, match="read the cursor again"):
            store.set_cursor("c", "6")
    assert store.get_cursor("c") == "8"
    store.set_cursor("c", "9")
    assert world.cursor == "9"


def test_without_the_lease_nothing_is_read_for_work_but_operators_look_and_reset(world: World) -> None:
    _, store = world.process()
    with pytest.raises(LeaseLost):
        store.get_cursor("c")
    with pytest.raises(LeaseLost):
        store.set_cursor("c", "1")
    store.reset_cursor("c", "3", reason="start here")
    record = store.find_cursor("c")
    assert record is not None
    assert (record.cursor, [r.cursor for r in store.list_cursors()]) == ("3", ["3"])


def test_reset_under_a_lease_is_noticed_and_keeps_the_fence(world: World) -> None:
    paused, working = world.succession()
    working.set_cursor("c", "7")
    operator = world.store()
    operator.reset_cursor("c", "2", reason="replay")
    with pytest.raises(LeaseLost, match="later holder"):
        paused.get_cursor("c")
    assert working.get_cursor("c") == "2"
    working.set_cursor("c", "3")
    assert world.cursor == "3"
    assert [(r.epoch, r.cursor) for r in operator.cursor_history("c")] == [(3, "3"), (2, "7"), (1, "5")]


def test_working_consumer_learns_of_a_reset_by_its_check(world: World) -> None:
    _, store = world.holder(epoch_check=timedelta(0))
    store.set_cursor("c", "5")
    world.store().reset_cursor("c", "2", reason="replay")
    with pytest.raises(CursorConflict, match="was reset"):
        store.set_cursor("c", "6")
    assert store.get_cursor("c") == "2"


def test_what_the_old_holder_saved_while_it_was_read_counts(world: World) -> None:
    """Between the read of the cursor and the opening of the new epoch there is room for a write."""
    paused, working = world.succession()

    world.once_before("INSERT", lambda: paused.set_cursor("c", "7"))
    assert working.get_cursor("c") == "7"
    paused.set_cursor("c", "8")
    assert (world.cursor, working.get_cursor("c")) == ("7", "7")


@pytest.mark.parametrize("deaths", [1, 2])
def test_what_was_saved_is_not_lost_though_the_next_holder_died_before_it_caught_up(world: World, deaths: int) -> None:
    (first, old), (last, working) = world.process("first"), world.process("last")
    world.acquire(first)
    old.set_cursor("c", "90")
    for number in range(deaths):
        _, store = world.holder(f"dies-{number}")
        dies_once_its_epoch_is_open(store, first=lambda: old.set_cursor("c", "100"))
    world.acquire(last)
    assert working.get_cursor("c") == world.cursor == "100"


def test_cursor_of_an_old_holder_does_not_count_after_the_next_one_found_none(world: World) -> None:
    (first, old), (last, working) = world.process("first"), world.process("last")
    world.acquire(first)
    assert old.get_cursor("c") == ""
    world.acquire(last)
    assert working.get_cursor("c") == ""
    old.set_cursor("c", "1")
    world.acquire(first)
    assert old.get_cursor("c") == ""


def test_catching_up_does_not_look_behind_a_reset(world: World) -> None:
    (first, old), (dying, store), (last, working) = world.process("a"), world.process("b"), world.process("c")
    world.acquire(first)
    old.set_cursor("c", "90")
    old.reset_cursor("c", "10", reason="again")
    world.acquire(dying)
    dies_once_its_epoch_is_open(store)
    world.acquire(last)
    assert working.get_cursor("c") == world.cursor == "10"


@pytest.mark.parametrize("when", ["before", "after"])
def test_opening_with_an_unknown_result_is_finished_or_repeated(world: World, when: str) -> None:
    paused, working = world.succession()
    world.scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0), when=when)
    assert working.get_cursor("c") == "5"
    assert len(working.cursor_history("c")) == 2
    paused.set_cursor("c", "9")
    assert world.cursor == "5"


def test_opening_that_was_interrupted_is_finished_by_the_next_read(world: World) -> None:
    """The epoch is open, but the cursor that the old holder saved in the meantime has not been taken over yet."""
    paused, working = world.succession()

    world.once_before("INSERT", lambda: paused.set_cursor("c", "7"))
    world.scylla.fail("SELECT position FROM", cassandra.ReadTimeout("t"))
    with pytest.raises(QueryTimeout):
        working.get_cursor("c")
    assert working.get_cursor("c") == "7"


@pytest.mark.parametrize("step", ["SELECT consumer", "INSERT", "SELECT position", "UPDATE"])
def test_read_that_outlasts_the_lease_is_refused(world: World, step: str) -> None:
    """Whichever statement is slow, the holder may no longer start from the cursor."""
    lease, store = world.holder()
    lease.blind = False

    def dawdle(text: str) -> None:
        if text.startswith(step):
            world.clock.advance(31)

    world.scylla.before = dawdle
    with pytest.raises(LeaseLost, match="acquire the lease"):
        store.get_cursor("c")
    with pytest.raises(LeaseLost):
        store.set_cursor("c", "1")


def test_read_that_lasts_into_another_tenure_of_the_same_owner_is_refused(world: World) -> None:
    (lease, store), (other, _) = world.process(), world.process("b")
    world.acquire(lease)

    def change_hands() -> None:
        world.acquire(other)
        world.acquire(lease)

    world.once_before("INSERT", change_hands)
    with pytest.raises(LeaseLost, match="was lost since the cursor was read"):
        store.get_cursor("c")
    assert store.get_cursor("c") == ""


def test_tenure_that_begins_while_the_lease_is_checked_is_not_taken_for_the_one_that_was_held(world: World) -> None:
    """Its epoch is announced before its time is known: no epoch of the cursor may be opened for it yet."""
    lease, store = world.holder()

    class Changing(MemoryLease):
        epoch = 1

        def held(self) -> bool:
            was_held, self.epoch = self.epoch == 1, 2
            return was_held

    changing = Changing("orders", world.leases, owner=lease.owner)
    store._fence_of = lambda consumer: changing
    with pytest.raises(LeaseLost):
        store.get_cursor("c")
    store._fence_of = lambda consumer: lease
    assert store.get_cursor("c") == ""
    assert [row.fence for row in store._table.history("c")] == [1]


def test_holder_catches_up_once(world: World) -> None:
    """A second store in the same tenure does not take up what the old holder saved after the first one had begun."""
    _, paused = world.holder("old")
    paused.set_cursor("c", "5")
    new, working = world.holder("new")
    assert working.get_cursor("c") == "5"
    paused.set_cursor("c", "7")
    assert world.store(new).get_cursor("c") == world.cursor == "5"


def test_read_that_outlasts_the_lease_does_not_return_what_later_holders_have_passed(world: World) -> None:
    """Its epoch is opened, the answer is lost, and six others have worked by the time it asks what came of it."""
    (first, before), (slow, late), (quick, working) = world.process("a"), world.process("b"), world.process("c")
    world.acquire(first)
    before.set_cursor("c", "5")
    world.acquire(slow)

    def overtake() -> None:
        for number in range(6, 12):
            world.acquire(quick)
            assert int(working.get_cursor("c")) == number - 1
            working.set_cursor("c", str(number))

    world.scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0), when="after")
    world.once_before("INSERT", lambda: world.once_before("", overtake))
    with pytest.raises(LeaseLost, match="later holder of lease 'orders', epoch 8"):
        late.get_cursor("c")
    assert world.cursor == "11"


def test_race_of_old_and_new_holder_for_the_next_epoch_is_won_by_the_new_one(world: World) -> None:
    """The old one wakes up as it is about to open an epoch for a cursor that it had not read before."""
    (old, paused), (new, working) = world.process("old"), world.process("new")
    world.acquire(old)
    world.acquire(new)

    world.once_before("INSERT", lambda: working.set_cursor("c", "3"))
    with pytest.raises(LeaseLost, match="later holder"):
        paused.get_cursor("c")
    assert world.cursor == "3"


@pytest.mark.parametrize("when", ["before", "after"])
def test_reset_with_an_unknown_result_counts_once(world: World, when: str) -> None:
    """The first attempt may be done by the time that the second one is refused."""
    _, store = world.process()
    world.scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0), when=when)
    store.reset_cursor("c", "5", reason="replay")
    assert [(r.epoch, r.cursor) for r in store.cursor_history("c")] == [(1, "5")]


def test_reset_that_the_driver_sent_twice_counts_once(world: World) -> None:
    """When a connection breaks, the driver repeats a statement on another node, and returns only the second result."""
    _, store = world.process()
    open_epoch = store._table.open_epoch

    def send_twice(row: CursorRow) -> bool:
        store._table.open_epoch = open_epoch  # type: ignore[method-assign]
        open_epoch(row)
        return open_epoch(row)

    store._table.open_epoch = send_twice  # type: ignore[method-assign]
    store.reset_cursor("c", "5", reason="replay")
    assert [(r.epoch, r.cursor) for r in store.cursor_history("c")] == [(1, "5")]


def test_lease_of_another_name_takes_the_cursor_over(world: World) -> None:
    (old, before), renamed = world.process("old"), MemoryLease("billing", world.leases)
    for _ in range(3):
        world.acquire(old)
    before.set_cursor("c", "5")
    renamed.acquire()
    store = world.store(renamed)
    assert store.get_cursor("c") == "5"
    store.set_cursor("c", "6")
    assert world.cursor == "6"


def test_consumer_that_never_saved_has_no_cursor_though_its_epochs_are_open(world: World) -> None:
    (first, one), (second, two) = world.process("a"), world.process("b")
    for lease, store in ((first, one), (second, two)):
        world.acquire(lease)
        assert store.get_cursor("c") == ""
        assert (store.find_cursor("c"), store.list_cursors(), store.cursor_history("c")) == (None, [], [])
    one.set_cursor("c", "4")
    assert (world.cursor, two.get_cursor("c")) == ("", "")


def test_reset_to_the_oldest_is_not_forgotten_by_the_next_holder(world: World) -> None:
    (first, one), (second, two) = world.process("a"), world.process("b")
    world.acquire(first)
    one.set_cursor("c", "4")
    one.reset_cursor("c", "", reason="from the start")
    world.acquire(second)
    assert two.get_cursor("c") == ""
    record = two.find_cursor("c")
    assert record is not None
    assert record.cursor == ""


def test_history_names_the_lease_holders(world: World) -> None:
    _, store = world.holder("pod-1")
    store.set_cursor("c", "4")
    [record] = store.cursor_history("c")
    assert (record.reason, record.takeover) == ("lease 'orders', epoch 1, acquired by pod-1", True)
    store.reset_cursor("c", "2", reason="again")
    assert next((r.reason, r.takeover) for r in store.cursor_history("c")) == ("again", False)


@pytest.mark.parametrize("deaths", [0, 5])
def test_old_epochs_go_only_once_the_holder_has_caught_up(
    world: World, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """Holders that die before they caught up leave epochs without a cursor: the one that has it must stay."""
    monkeypatch.setattr("cursorstore.cursors.scylla.KEPT_EPOCHS", 2)
    monkeypatch.setattr("cursorstore.cursors.scylla._PRUNE_EVERY", 1)
    world.scylla.clock = itertools.count(1)  # the server's clock is behind, as that of a node may be
    (first, old), (last, working) = world.process("first"), world.process("last")
    world.acquire(first)
    old.set_cursor("c", "90")
    for number in range(deaths):
        _, store = world.holder(f"dies-{number}")

        def die(row: CursorRow) -> CursorRow:
            raise KeyboardInterrupt

        store._caught_up = die  # type: ignore[method-assign]
        old.set_cursor("c", str(91 + number))
        with pytest.raises(KeyboardInterrupt):
            store.get_cursor("c")
    world.acquire(last)
    assert working.get_cursor("c") == world.cursor == str(90 + deaths)
    for _ in range(4):
        world.acquire(last)
        assert working.get_cursor("c") == str(90 + deaths)
    assert [r.epoch for r in working.cursor_history("c")] == [deaths + 6, deaths + 5]


def test_buffered_cursors_of_an_old_holder_are_dropped(world: World) -> None:
    (old, store), (new, working) = world.process("old"), world.process("new")
    paused = BufferedCursorStore(store, codec=CODEC, background=False, clock=world.clock)
    world.acquire(old)
    paused.set_cursor("c", "5")
    paused.flush()
    paused.set_cursor("c", "50")
    old.blind = False
    world.acquire(new)
    assert working.get_cursor("c") == "5"
    with pytest.raises(LeaseLost):
        paused.flush()
    with pytest.raises(LeaseLost):
        paused.set_cursor("c", "51")
    assert world.cursor == "5"
    working.set_cursor("c", "6")
    world.acquire(old)
    assert paused.get_cursor("c") == "6"
    paused.set_cursor("c", "7")
    paused.flush()
    assert world.cursor == "7"


def test_what_was_buffered_in_an_earlier_tenure_is_not_read_in_the_next_one(world: World) -> None:
    """Nothing wrote the buffer, or noticed that it cannot be written, while another holder was at work."""
    (old, store), (new, working) = world.process("old"), world.process("new")
    buffered = BufferedCursorStore(store, codec=CODEC, background=False, clock=ManualClock())
    world.acquire(old)
    buffered.set_cursor("c", "4")
    buffered.flush()
    buffered.set_cursor("c", "5")
    old.blind = False
    world.acquire(new)
    assert working.get_cursor("c") == "4"
    working.set_cursor("c", "90")
    world.acquire(old)
    assert buffered.get_cursor("c") == "90"
    buffered.set_cursor("c", "91")
    buffered.flush()
    assert world.cursor == "91"


def test_what_was_buffered_is_not_read_by_who_has_lost_the_lease(world: World) -> None:
    lease, store = world.process()
    buffered = BufferedCursorStore(store, codec=CODEC, background=False, clock=ManualClock())
    world.acquire(lease)
    buffered.set_cursor("c", "4")
    lease.blind = False
    lease.release()
    with pytest.raises(LeaseLost):
        buffered.get_cursor("c")


def test_returning_holder_gets_no_error_for_cursors_from_before_it_lost_the_lease(world: World) -> None:
    (old, store), (new, working) = world.process("old"), world.process("new")
    buffered = BufferedCursorStore(store, codec=CODEC, background=False, clock=world.clock)
    world.acquire(old)
    buffered.set_cursor("c", "4")
    buffered.flush()
    buffered.set_cursor("c", "5")
    old.blind = False
    world.acquire(new)
    assert working.get_cursor("c") == "4"
    working.set_cursor("c", "6")
    buffered.write_quietly()  # as the background does while the service stands by
    world.acquire(old)
    assert buffered.get_cursor("c") == "6"
    buffered.set_cursor("c", "7")
    buffered.flush()
    assert world.cursor == "7"


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_cursor_is_what_the_holder_saved_in_any_interleaving(data: st.DataObject) -> None:
    """Holders come and go, read and save in random order, and never know that they lost the lease."""
    world = World()
    processes = [world.process(str(n)) for n in range(3)]
    read_in: list[int] = [0, 0, 0]  # the tenure in which a process read the cursor last
    owner_of_cursor, value = 0, 0  # the latest tenure that read the cursor; from then on only it may save
    actions = st.tuples(st.integers(0, 2), st.sampled_from(["acquire", "get", "get", "set", "set", "set", "reset"]))
    for who, what in data.draw(st.lists(actions, max_size=50)):
        lease, store = processes[who]
        given_value = data.draw(st.integers(1, 30))
        if what == "acquire":
            world.acquire(lease)
        elif what == "reset":
            store.reset_cursor("c", str(given_value), reason="test")
            value = given_value
            read_in = [0, 0, 0]  # all have to read again, and those that do not write where nobody looks
        elif what == "get":
            try:
                assert int(store.get_cursor("c") or 0) == value
                owner_of_cursor = read_in[who] = lease.epoch
            except LeaseLost:
                assert lease.epoch < owner_of_cursor or lease.epoch == 0
        elif read_in[who]:
            try:
                store.set_cursor("c", str(given_value))
            except LeaseLost:
                assert lease.epoch != read_in[who]
            except CursorRegression:
                assert given_value < value or read_in[who] < owner_of_cursor
            else:
                if read_in[who] == owner_of_cursor:
                    value = max(value, given_value)
        assert int(world.cursor or 0) == value


# ---------------------------------------------------------------- epochs that were lost


def emptied(world: World) -> None:
    """Have all leases forgotten: their table was emptied, or replaced by a backup of an earlier time."""
    world.leases = MemoryLeaseTable(world.clock)


@pytest.mark.parametrize("tenures", [1, 2, 3])
def test_cursors_go_on_after_the_epochs_of_a_lease_were_lost(
    world: World, tenures: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(tenures):
        world.holder(f"holder {number}")[1].set_cursor("c", str(number))
    emptied(world)
    lease, store = world.holder("heir")
    assert lease.epoch == 1
    assert store.get_cursor("c") == str(tenures - 1)
    assert lease.epoch == tenures + 1
    store.set_cursor("c", "7")
    assert world.cursor == store.get_cursor("c") == "7"
    assert sum("above one that was found with a cursor" in line for line in caplog.messages) == 1


def test_a_former_holder_with_the_epoch_of_the_present_one_is_kept_out(world: World) -> None:
    """Each had epoch 1: one before the table was emptied, and one after."""
    _, paused = world.holder("old")
    paused.set_cursor("c", "5")
    emptied(world)
    _, working = world.holder("new")
    assert working.get_cursor("c") == "5"
    paused.set_cursor("c", "99")
    assert world.cursor == working.get_cursor("c") == "5"


def test_a_reset_does_not_keep_the_holder_out_after_its_epochs_were_lost(world: World) -> None:
    for owner in ("first", "second"):
        world.holder(owner)[1].set_cursor("c", "5")
    emptied(world)
    _, store = world.holder("heir")
    world.store().reset_cursor("c", "3", reason="replay")
    assert store.get_cursor("c") == "3"
    store.set_cursor("c", "4")
    assert world.cursor == "4"


def test_whoever_holds_the_lease_no_more_raises_no_epoch(world: World) -> None:
    lease, store = world.holder("paused")
    store.set_cursor("c", "5")
    other, working = world.holder("present")
    working.set_cursor("c", "6")
    with pytest.raises(LeaseLost, match="later holder") as caught:
        store.get_cursor("c")
    assert isinstance(caught.value.__cause__, LeaseLost)
    assert (lease.epoch, other.epoch, working.get_cursor("c")) == (1, 2, "6")


@pytest.mark.parametrize("restored", [False, True], ids=["emptied", "restored from a backup"])
def test_slices_go_on_after_the_epochs_of_their_group_were_lost(world: World, restored: bool) -> None:
    def member(table: MemoryGroupTable, owner: str) -> tuple[MemoryMembership, ScyllaCursorStore]:
        joined = MemoryMembership("workers", table, owner=owner, slices=2)
        joined.join()
        joined.take(joined.look(), {0, 1})
        store = ScyllaCursorStore(
            world.scylla.session(), "shop", create=True, codec=CODEC, lease=joined, epoch_check=NEVER, clock=world.clock
        )
        return joined, store

    table, backup = MemoryGroupTable(world.clock), MemoryGroupTable(world.clock)
    for number in range(4):
        joined, store = member(table, f"pod {number}")
        store.set_cursor("c[0/2]", str(number))
        joined.leave()
        if restored and number == 1:
            backup._groups = copy.deepcopy(table._groups)
    joined, store = member(backup, "heir")
    fence = joined.fence_of("c[0/2]")
    assert fence.epoch == (3 if restored else 1)
    assert store.get_cursor("c[0/2]") == "3"
    assert (fence.epoch, fence.held(), joined.fence_of("c[1/2]").epoch) == (5, True, 3 if restored else 1)
    store.set_cursor("c[0/2]", "9")
    first = joined.look().slices[0]
    assert (first.epoch, first.owner, first.holder) == (5, "heir", joined.token)
    assert (world.store().find_cursor("c[0/2]") or fail()).cursor == "9"


def test_a_group_that_is_restored_while_its_members_run_goes_on(world: World) -> None:
    table = MemoryGroupTable(world.clock)
    joined = MemoryMembership("workers", table, owner="pod", slices=1)
    joined.join()
    store = ScyllaCursorStore(
        world.scylla.session(), "shop", create=True, codec=CODEC, lease=joined, epoch_check=NEVER, clock=world.clock
    )
    joined.take(joined.look(), {0})
    backup = copy.deepcopy(table._groups)
    for _ in range(3):
        joined.give(0, NOBODY)
        joined.take(joined.look(), {0})
    store.set_cursor("c", "5")
    table._groups = backup
    joined.look()
    with pytest.raises(LeaseLost):  # the run ends, and another one begins
        store.set_cursor("c", "6")
    assert store.get_cursor("c") == "5"
    store.set_cursor("c", "6")
    assert world.cursor == "6"


def fail() -> CursorRecord:
    raise AssertionError("there is no cursor")
