"""The Scylla store against a database in memory: the register that only grows, resets, and what can go wrong."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from datetime import timedelta

import cassandra
import pytest
from cassandra import ConsistencyLevel, cluster, connection, protocol
from fake_scylla import FakePrepared, FakeScylla, Mutation, Replica
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorstore import IntCursorCodec, ScyllaCursorStore, schema_cql
from rscylla.clock import Stop
from rscylla.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorError,
    CursorRegression,
    QueryFailed,
    QueryTimeout,
    RscyllaError,
    TableNotFound,
)

TABLE = '"shop"."rscylla_cursors"'
EPOCH_CHECK = 10.0


class HandClock:
    """A clock that a test turns."""

    def __init__(self, us: int = 1_795_255_205_250_000) -> None:
        self.us = us

    def now_us(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self.us / 1e6

    def wait(self, stop: Stop, seconds: float) -> bool:
        self.advance(seconds)
        return stop.is_set()

    def advance(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)


@pytest.fixture
def scylla() -> FakeScylla:
    return FakeScylla()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def open_store(scylla: FakeScylla, clock: HandClock | None = None, **options: object) -> ScyllaCursorStore:
    options = {"create": True, "codec": IntCursorCodec(), "clock": clock or HandClock(), **options}
    return ScyllaCursorStore(scylla.session(), "shop", **options)


# The register


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_saved_cursor_is_the_highest_of_all_processes_in_any_interleaving(data: st.DataObject) -> None:
    """Processes of one name read, save, pause, reset, start again in random order: nothing moves a cursor back."""
    scylla, clock = FakeScylla(), HandClock()
    processes = [open_store(scylla, clock) for _ in range(3)]
    epoch_of: list[int | None] = [None] * 3
    epoch, highest = 0, 0
    steps = st.tuples(st.integers(0, 2), st.sampled_from(["set", "set", "set", "get", "pause", "reset", "restart"]))
    for who, what in data.draw(st.lists(steps, max_size=40)):
        if what == "set":
            value = data.draw(st.integers(1, 30))
            if epoch_of[who] is None:
                epoch_of[who] = epoch  # a first save reads
            try:
                processes[who].set_cursor("c", str(value))
            except CursorConflict:
                assert epoch_of[who] != epoch
            except CursorRegression:
                assert epoch_of[who] != epoch or value < highest
            else:
                highest = max(highest, value) if epoch_of[who] == epoch else highest
        elif what == "get":
            assert int(processes[who].get_cursor("c") or 0) == highest
            epoch_of[who] = epoch
        elif what == "pause":
            clock.advance(EPOCH_CHECK)
        elif what == "reset":
            highest = data.draw(st.integers(1, 30))
            processes[who].reset_cursor("c", str(highest), reason="test")
            epoch += 1
        else:
            processes[who], epoch_of[who] = open_store(scylla, clock), None
        assert int(open_store(scylla).get_cursor("c") or 0) == highest


@given(st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=2, max_size=4), st.randoms(), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_replicas_agree_on_the_highest_in_whatever_order_writes_arrive(
    writers: list[list[int]], random: object, resets: int
) -> None:
    """Hints, repairs and retries bring writes late and twice; every replica ends with the same cursor."""
    scylla = FakeScylla()
    for turn in range(resets + 1):
        stores = [open_store(scylla, HandClock(1_795_255_205_250_000 + turn)) for _ in writers]
        for store in stores:
            store.get_cursor("c")
        for store, values in zip(stores, writers, strict=True):
            for value in sorted(values):
                with contextlib.suppress(CursorRegression):
                    store.set_cursor("c", str(value))
        if turn < resets:
            stores[0].reset_cursor("c", "", reason="again")
    arrived: list[Mutation] = scylla.mutations + scylla.mutations[::2]
    random.shuffle(arrived)  # type: ignore[attr-defined]
    replica = Replica()
    for mutation in arrived:
        replica.apply(mutation)
    assert replica.rows("c") == scylla.tables[TABLE].rows("c")
    highest = max(itertools.chain.from_iterable(writers), default=0)
    if highest:
        assert int(replica.rows("c")[0]["position"]) == highest


def test_all_positions_of_an_epoch_have_one_timestamp(scylla: FakeScylla, clock: HandClock) -> None:
    """The timestamp must never decide, or the clock of a writer would."""
    store = open_store(scylla, clock)
    for value in (1, 2):
        store.set_cursor("c", str(value))
        clock.advance(1)
    store.reset_cursor("c", "1", reason="replay")
    store.get_cursor("c")
    for value in (2, 3):
        store.set_cursor("c", str(value))
        clock.advance(-1000)
    stamps = [(m.epoch, m.timestamp) for m in scylla.mutations if "position" in m.cells]
    opened_us = next(m.cells["stamp"] for m in scylla.mutations if "stamp" in m.cells)
    assert stamps == [(0, 1), (0, 1), (1, opened_us), (1, opened_us)]


def test_saving_takes_one_write_and_no_read_and_no_condition(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.get_cursor("c")
    store.set_cursor("c", "1")
    del scylla.statements[:]
    for value in range(2, 52):
        store.set_cursor("c", str(value))
    assert [text.split()[0] for text in scylla.statements] == ["UPDATE"] * 50


def test_same_cursor_again_costs_nothing(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "1")
    del scylla.statements[:]
    store.set_cursor("c", "1")
    assert scylla.statements == []


def test_lower_than_known_is_refused_without_asking_the_database(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "5")
    del scylla.statements[:]
    with pytest.raises(CursorRegression, match="reset the cursor"):
        store.set_cursor("c", "4")
    assert scylla.statements == []


def test_process_that_was_passed_learns_it_at_the_next_check(scylla: FakeScylla, clock: HandClock) -> None:
    stale, ahead = open_store(scylla, clock), open_store(scylla, clock)
    stale.set_cursor("c", "1")
    ahead.set_cursor("c", "9")
    stale.set_cursor("c", "2")
    assert ahead.get_cursor("c") == "9"
    clock.advance(EPOCH_CHECK)
    with pytest.raises(CursorRegression) as caught:
        stale.set_cursor("c", "3")
    assert (caught.value.stored, caught.value.given) == ("9", "3")


# Resets


def test_reset_is_noticed_at_the_next_check_and_not_asked_for_more_often(scylla: FakeScylla, clock: HandClock) -> None:
    worker, operator = open_store(scylla, clock), open_store(scylla, clock)
    worker.set_cursor("c", "5")
    operator.reset_cursor("c", "2", reason="replay")
    clock.advance(EPOCH_CHECK - 0.1)
    worker.set_cursor("c", "6")
    clock.advance(0.1)
    for value in ("7", "8"):
        with pytest.raises(CursorConflict):
            worker.set_cursor("c", value)
    assert worker.get_cursor("c") == "2"
    worker.set_cursor("c", "3")
    assert operator.get_cursor("c") == "3"


def test_only_the_newest_epochs_are_kept(scylla: FakeScylla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursorstore.cursors.scylla.KEPT_EPOCHS", 10)
    monkeypatch.setattr("cursorstore.cursors.scylla._PRUNE_EVERY", 5)
    clock = HandClock(next(scylla.clock) + 10**9)
    store = open_store(scylla, clock)
    for number in range(1, 20):
        store.reset_cursor("c", str(number), reason="again")
        store.get_cursor("c")
        store.set_cursor("c", str(number + 1))
    assert [(r.epoch, r.cursor) for r in store.cursor_history("c")] == [(n, str(n + 1)) for n in range(19, 5, -1)]
    clock.advance(-3600)
    store.reset_cursor("c", "20", reason="again")
    assert [r.epoch for r in store.cursor_history("c")] == list(range(20, 10, -1))
    assert scylla.count("DELETE") == 3, "each deletion leaves a tombstone"


def test_failure_to_delete_old_epochs_does_not_fail_a_reset(
    scylla: FakeScylla, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cursorstore.cursors.scylla.KEPT_EPOCHS", 1)
    monkeypatch.setattr("cursorstore.cursors.scylla._PRUNE_EVERY", 1)
    store = open_store(scylla)
    store.reset_cursor("c", "1", reason="again")
    scylla.fail("DELETE", cassandra.WriteTimeout("t", write_type=0))
    store.reset_cursor("c", "2", reason="again")
    assert store.get_cursor("c") == "2"
    assert "are not deleted yet" in caplog.text


def test_saving_works_after_a_reset_to_the_far_past_although_the_reset_was_written_later(scylla: FakeScylla) -> None:
    """A conditional insert has the time of its Paxos round, which is later than the timestamps of the positions."""
    store = open_store(scylla)
    store.reset_cursor("c", "3", reason="replay")
    assert store.get_cursor("c") == "3"
    for value in ("4", "5"):
        store.set_cursor("c", value)
    assert open_store(scylla).get_cursor("c") == "5"


def test_record_shows_when_the_cursor_was_last_saved(scylla: FakeScylla, clock: HandClock) -> None:
    store = open_store(scylla, clock)
    store.reset_cursor("c", "2", reason="wrong prices")
    opened = store.find_cursor("c")
    assert store.get_cursor("c") == "2"
    clock.advance(60)
    store.set_cursor("c", "3")
    saved = store.find_cursor("c")
    assert opened is not None
    assert saved is not None
    assert opened.updated_at is not None
    assert saved.updated_at == opened.updated_at + timedelta(seconds=60)


def test_history_has_every_reset(scylla: FakeScylla, clock: HandClock) -> None:
    store = open_store(scylla, clock)
    store.set_cursor("c", "5")
    clock.advance(60)
    store.reset_cursor("c", "2", reason="wrong prices")
    assert store.get_cursor("c") == "2"
    store.set_cursor("c", "3")
    store.reset_cursor("c", "", reason="start over")
    history = store.cursor_history("c")
    assert [(r.epoch, r.cursor, r.reason) for r in history] == [
        (2, "", "start over"),
        (1, "3", "wrong prices"),
        (0, "5", ""),
    ]
    assert history[0].updated_at is not None
    assert history[2].updated_at is not None
    assert history[0].updated_at - history[2].updated_at == timedelta(seconds=60)
    assert store.find_cursor("c") == history[0]
    assert store.find_cursor("other") is None


def test_reset_whose_outcome_is_unknown_is_counted_once(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "5")
    scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0), when="after")
    store.reset_cursor("c", "2", reason="replay")
    assert [r.epoch for r in store.cursor_history("c")] == [1, 0]


def test_reset_that_timed_out_undone_is_repeated(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "5")
    for _ in range(3):
        scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0))
    store.reset_cursor("c", "2", reason="replay")
    assert [(r.epoch, r.cursor) for r in store.cursor_history("c")] == [(1, "2"), (0, "5")]


def test_reset_that_was_not_done_says_so(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "5")
    for _ in range(16):
        scylla.fail("INSERT", cassandra.WriteTimeout("t", write_type=0))
    with pytest.raises(QueryTimeout, match="16 attempts"):
        store.reset_cursor("c", "2", reason="replay")
    assert store.get_cursor("c") == "5"
    store.set_cursor("c", "6")


def test_reset_beaten_by_another_takes_the_next_epoch(scylla: FakeScylla) -> None:
    store, other = open_store(scylla), open_store(scylla)
    store.get_cursor("c")

    def interfere(text: str) -> None:
        if text.startswith("INSERT"):
            scylla.before = lambda text: None
            other.reset_cursor("c", "7", reason="faster")

    scylla.before = interfere
    store.reset_cursor("c", "2", reason="slower")
    assert [(r.epoch, r.reason) for r in store.cursor_history("c")] == [(2, "slower"), (1, "faster")]


# Rows deleted manually


def test_row_deleted_by_hand_is_noticed_at_the_first_save(scylla: FakeScylla) -> None:
    """The tombstone would hide everything that is saved: a consumer would start over at each restart for days."""
    open_store(scylla).set_cursor("c", "5")
    scylla.delete_partition("c")
    store = open_store(scylla)
    assert store.get_cursor("c") == ""
    with pytest.raises(CursorConflict, match="deleted or restored manually"):
        store.set_cursor("c", "1")


def test_row_deleted_under_a_running_process_is_noticed_at_the_next_check(scylla: FakeScylla, clock: HandClock) -> None:
    store = open_store(scylla, clock)
    store.set_cursor("c", "5")
    scylla.delete_partition("c")
    clock.advance(EPOCH_CHECK)
    with pytest.raises(CursorConflict, match="deleted or restored manually"):
        store.set_cursor("c", "6")


def test_reset_repairs_a_manual_deletion(scylla: FakeScylla) -> None:
    store = open_store(scylla, HandClock(next(scylla.clock)))
    store.set_cursor("c", "5")
    scylla.delete_partition("c")
    store = open_store(scylla, HandClock(next(scylla.clock)))
    store.reset_cursor("c", "1", reason="deleted by mistake")
    assert store.get_cursor("c") == "1"
    store.set_cursor("c", "2")
    assert open_store(scylla).get_cursor("c") == "2"


def test_reset_under_a_clock_that_went_back_is_not_hidden_by_an_earlier_deletion(scylla: FakeScylla) -> None:
    """The write timestamps of an epoch follow those of the epoch before, not a clock that goes back."""
    store = open_store(scylla, HandClock(next(scylla.clock)))
    store.set_cursor("c", "5")
    scylla.delete_partition("c")
    clock = HandClock(next(scylla.clock))
    store = open_store(scylla, clock)
    store.reset_cursor("c", "1", reason="deleted by mistake")
    clock.advance(-3600)
    store.reset_cursor("c", "1", reason="once more")
    assert store.get_cursor("c") == "1"
    store.set_cursor("c", "2")
    assert open_store(scylla).get_cursor("c") == "2"


@pytest.mark.parametrize("start", ["1", "9"])
def test_reset_after_a_deletion_is_noticed_although_it_has_the_same_epoch(scylla: FakeScylla, start: str) -> None:
    clock = HandClock(next(scylla.clock))
    worker = open_store(scylla, clock)
    worker.reset_cursor("c", "2", reason="first")
    worker.get_cursor("c")
    worker.set_cursor("c", "5")
    scylla.delete_partition("c")
    clock.advance(EPOCH_CHECK)
    operator = open_store(scylla, clock)
    operator.reset_cursor("c", start, reason="second")
    assert [r.epoch for r in operator.cursor_history("c")] == [1]
    with pytest.raises(CursorConflict, match="was reset"):
        worker.set_cursor("c", "10")
    assert operator.get_cursor("c") == start


def test_position_that_vanished_from_its_row_is_noticed(scylla: FakeScylla, clock: HandClock) -> None:
    """As after a restore of an old backup under a running process."""
    store = open_store(scylla, clock)
    store.set_cursor("c", "5")
    backup = list(scylla.mutations)
    store.set_cursor("c", "8")
    scylla.tables[TABLE] = Replica()
    for mutation in backup:
        scylla.tables[TABLE].apply(mutation)
    clock.advance(EPOCH_CHECK)
    with pytest.raises(CursorConflict):
        store.set_cursor("c", "9")
    assert store.get_cursor("c") == "5"


# The table


def test_missing_table_is_one_clear_error(scylla: FakeScylla) -> None:
    store = open_store(scylla, create=False)
    for call in (lambda: store.get_cursor("c"), lambda: store.set_cursor("c", "1"), store.list_cursors):
        with pytest.raises(TableNotFound, match=r'"shop"."rscylla_cursors".*create=True.*rscylla schema cursors'):
            call()
    store.create_schema()
    store.set_cursor("c", "1")
    assert store.get_cursor("c") == "1"


def test_missing_keyspace_is_one_clear_error(scylla: FakeScylla) -> None:
    store = ScyllaCursorStore(scylla.session(), "Shop", create=True)
    with pytest.raises(TableNotFound, match="keyspace 'Shop' does not exist"):
        store.get_cursor("c")


def test_table_that_is_there_is_not_created_again(scylla: FakeScylla) -> None:
    """Who may only read and write rows can keep create=True."""
    open_store(scylla).create_schema()
    scylla.fail("CREATE", cassandra.Unauthorized("no"))
    open_store(scylla).set_cursor("c", "1")


def test_table_dropped_under_a_running_process_is_a_clear_error(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "1")
    del scylla.tables[TABLE]
    with pytest.raises(TableNotFound, match="cursor table"):
        store.set_cursor("c", "2")


def test_schema_is_printed_with_quoted_names() -> None:
    text = schema_cql("Shop", "my_cursors")
    assert text.startswith('CREATE TABLE IF NOT EXISTS "Shop"."my_cursors" (')
    assert "PRIMARY KEY ((consumer), epoch)" in text
    assert "default_time_to_live = 0" in text


@pytest.mark.parametrize("name", ["", "a b", 'x"; DROP TABLE y; --', "a.b", "ä", "a" * 193])
def test_names_that_no_table_can_have_are_refused(scylla: FakeScylla, name: str) -> None:
    with pytest.raises(ConfigError):
        ScyllaCursorStore(scylla.session(), "shop", name)
    with pytest.raises(ConfigError):
        ScyllaCursorStore(scylla.session(), name)


# Consistency and arguments


@pytest.mark.parametrize(
    ("level", "expected", "serial"),
    [
        ("local_quorum", ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL),
        (ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL),
        ("ALL", ConsistencyLevel.ALL, ConsistencyLevel.SERIAL),
    ],
)
def test_statements_use_the_consistency_asked_for(
    scylla: FakeScylla, level: int | str, expected: int, serial: int
) -> None:
    store = open_store(scylla, consistency=level)
    store.set_cursor("c", "1")
    store.reset_cursor("c", "0", reason="replay")
    assert ("UPDATE", expected, serial) in scylla.levels
    assert ("INSERT", expected, serial) in scylla.levels
    assert ("SELECT", expected, serial) in scylla.levels
    assert ("SELECT", serial, serial) in scylla.levels  # the read before a reset


@pytest.mark.parametrize("level", ["ONE", "ANY", "EACH_QUORUM", "SERIAL", "nonsense", ConsistencyLevel.LOCAL_ONE, 99])
def test_consistency_that_may_not_see_earlier_writes_is_refused(scylla: FakeScylla, level: int | str) -> None:
    with pytest.raises(ConfigError, match="LOCAL_QUORUM"):
        open_store(scylla, consistency=level)


def test_negative_epoch_check_is_refused(scylla: FakeScylla) -> None:
    with pytest.raises(ConfigError, match="epoch_check"):
        open_store(scylla, epoch_check=timedelta(seconds=-1))


# Errors of the driver

NO_HOST = cluster.NoHostAvailable("no", {"127.0.0.1": connection.ConnectionShutdown("gone")})
BAD_LOGIN = cluster.NoHostAvailable("no", {"127.0.0.1": cassandra.AuthenticationFailed("bad credentials")})


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (NO_HOST, ConnectionFailed),
        (cluster.NoHostAvailable("no", ["127.0.0.1"]), ConnectionFailed),
        (BAD_LOGIN, AuthenticationFailed),
        (cassandra.AuthenticationFailed("no"), AuthenticationFailed),
        (connection.ConnectionShutdown("gone"), ConnectionFailed),
        (ConnectionResetError("gone"), ConnectionFailed),
        (cassandra.Unavailable("u", consistency=6, required_replicas=2, alive_replicas=1), QueryTimeout),
        (cassandra.OperationTimedOut(), QueryTimeout),
        (cassandra.WriteTimeout("t", write_type=0), QueryTimeout),
        (cassandra.ReadTimeout("t"), QueryTimeout),
        (cassandra.WriteFailure("f", write_type=0), QueryTimeout),
        (protocol.OverloadedErrorMessage(0x1001, "busy", None), QueryTimeout),
        (cassandra.Unauthorized("no"), QueryFailed),
        (cassandra.InvalidRequest("unconfigured table rscylla_cursors"), TableNotFound),
        (cassandra.InvalidRequest("table rscylla_cursors does not exist"), TableNotFound),
        (cassandra.InvalidRequest("LWT is not yet supported with tablets"), QueryFailed),
        (cassandra.InvalidRequest("Unrecognized name position with secret value"), QueryFailed),
        (protocol.ServerError(0, "oops", None), QueryTimeout),
    ],
)
def test_errors_of_the_driver_become_ours(scylla: FakeScylla, error: Exception, ours: type[RscyllaError]) -> None:
    store = open_store(scylla)
    store.set_cursor("c", "1")
    for word, call in (
        ("UPDATE", lambda: store.set_cursor("c", "2")),
        ("SELECT", lambda: store.get_cursor("c")),
        ("SELECT", store.list_cursors),
        ("SELECT", lambda: store.cursor_history("c")),
        ("INSERT", lambda: store.reset_cursor("c", "1", reason="replay")),
    ):
        if word == "INSERT" and ours is QueryTimeout:
            continue  # tried again, see above
        scylla.fail(word, error)
        with pytest.raises(ours) as caught:
            call()
        assert type(caught.value) is ours
        assert caught.value.__cause__ is error
        assert "secret value" not in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    store.set_cursor("c", "2")
    assert store.get_cursor("c") == "2"


def test_errors_that_are_not_the_drivers_pass(scylla: FakeScylla) -> None:
    store = open_store(scylla)
    scylla.fail("SELECT", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        store.get_cursor("c")


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["", "before", "after"])), max_size=20))
@settings(max_examples=80, deadline=None)
def test_write_that_failed_can_be_repeated_whether_it_took_effect_or_not(steps: list[tuple[int, str]]) -> None:
    scylla = FakeScylla()
    store = open_store(scylla)
    done, tried = 0, 0
    for value, when in steps:
        if when:
            scylla.faults.clear()
            scylla.fail("UPDATE", cassandra.WriteTimeout("t", write_type=0), when=when)
        with contextlib.suppress(CursorError):
            try:
                store.set_cursor("c", str(value))
            except QueryTimeout:
                tried = max(tried, value)
                store.set_cursor("c", str(value))
            done = max(done, value)
        saved = int(open_store(scylla).get_cursor("c") or 0)
        assert done <= saved <= max(done, tried)


def test_store_says_where_it_is(scylla: FakeScylla) -> None:
    assert repr(open_store(scylla)) == '<ScyllaCursorStore "shop"."rscylla_cursors">'


def test_table_that_another_client_has_just_created_is_waited_for(scylla: FakeScylla) -> None:
    """The nodes learn of it one after the other, and the one that is asked to prepare may be the last."""
    session = scylla.session()
    waited: list[tuple[str, str]] = []

    class Cluster:
        def refresh_table_metadata(self, keyspace: str, table: str) -> None:
            waited.append((keyspace, table))

    def prepare(text: str) -> FakePrepared:
        if not waited:
            raise cassandra.InvalidRequest("table rscylla_cursors does not exist")
        return FakePrepared(text)

    session.cluster = Cluster()  # type: ignore[attr-defined]
    session.prepare = prepare  # type: ignore[method-assign]
    ScyllaCursorStore(session, "shop", create=True, codec=IntCursorCodec()).set_cursor("c", "1")
    assert waited == [("shop", "rscylla_cursors")]
    waited.clear()
    with pytest.raises(TableNotFound):
        ScyllaCursorStore(session, "shop", codec=IntCursorCodec()).get_cursor("c")
