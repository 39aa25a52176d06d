"""A table that is dropped and created again between two runs; its new log knows nothing of the old one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.cdc.log import same as same_module
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock
from tests.support.drivenclock import until

LAG = rscylla.StreamLag(seconds=30)
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
AGAIN = "was dropped and created again"


@attrs.define
class Shop:
    """A table, its cluster on a driven clock, and one consumer of it."""

    scylla: EmbeddedScylla
    session: rscylla.Session
    clock: ManualClock
    model: str
    store: MemoryCursorStore = attrs.Factory(MemoryCursorStore)
    seen: list[int] = attrs.Factory(list)

    def create(self) -> None:
        self.session.execute("CREATE TABLE ks.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")

    def recreate(self) -> None:
        self.session.execute("DROP TABLE ks.orders")
        self.create()

    def write(self, number: int, *, ago_s: float = 0) -> None:
        time_us = self.clock.now_us() - round(ago_s * 1e6)
        self.session.execute(f"INSERT INTO ks.orders (id, n) VALUES (1, {number}) USING TIMESTAMP {time_us}")

    def stream(self, **options: object) -> rscylla.Stream:
        return rscylla.NewStream(self.session, "ks", "orders", clock=self.clock, prefetch=0, **options)  # type: ignore[arg-type]

    def run(self, **options: object) -> None:
        """Consume to the head."""
        consumer = rscylla.Consumer("billing", lambda event, _: self.seen.append(event.change.after["n"]))
        with suppress(rscylla.HeadReached):
            rscylla.run(rscylla.Spec(self.stream(**options), self.store, consumer, LAG, rscylla.StreamToHead()))

    def consume_one(self) -> None:
        """Leave the cursor at one row that was written, as a crash right after it would."""
        self.write(1)
        self.clock.advance(31)
        with suppress(rscylla.RunError):
            self.run_until_crash()
        assert rscylla.EventID.parse(self.store.get_cursor("billing")).is_row
        self.seen.clear()

    def run_until_crash(self) -> None:
        client = self.stream()("", LAG)
        while isinstance(got := client.recv(), rscylla.Progress):
            pass
        self.store.set_cursor("billing", got.id)
        client.close()


@pytest.fixture(params=["vnodes", "tablets"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=2, shards=1) as scylla:
        session = scylla.connect()
        session.execute(
            f"CREATE KEYSPACE ks WITH replication = {NETWORK} "
            f"AND tablets = {{'enabled': {str(request.param == 'tablets').lower()}}}"
        )
        clock.advance(3600)
        made = Shop(scylla, session, clock, request.param)
        made.create()
        clock.advance(60)
        yield made


def cause_of(shop: Shop) -> BaseException | None:
    before = shop.store.get_cursor("billing")
    with pytest.raises(rscylla.RunError) as caught:
        shop.run()
    assert shop.store.get_cursor("billing") == before, "a failure moves no cursor"
    assert not caught.value.resumable
    return caught.value.__cause__


def test_a_row_cursor_of_the_former_table_is_reported(shop: Shop) -> None:
    shop.consume_one()
    shop.write(2)  # dropped with the table, and never delivered
    shop.recreate()
    shop.write(3)
    shop.clock.advance(31)
    cause = cause_of(shop)
    assert isinstance(cause, rscylla.TableChanged)
    assert AGAIN in str(cause)
    assert shop.seen == []


def test_the_policy_may_be_to_continue_with_the_new_table(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.consume_one()
    shop.recreate()
    shop.write(3)
    shop.clock.advance(31)
    shop.run(on_expired="oldest")
    assert shop.seen == [3]
    assert [r.levelno for r in caplog.records if AGAIN in r.message] == [logging.ERROR]


@pytest.mark.parametrize("shop", ["vnodes"], indirect=True)
def test_going_on_with_the_new_table_does_not_go_back(shop: Shop) -> None:
    """Generations of vnodes are older than the table, and stores refuse a cursor below the saved one."""
    shop.consume_one()
    shop.recreate()
    shop.write(3, ago_s=40)
    shop.write(4)
    shop.clock.advance(31)
    shop.run(on_expired="oldest")
    assert shop.seen == [4]


def test_an_idle_cursor_of_the_former_table_is_reported(shop: Shop) -> None:
    shop.write(1)
    shop.clock.advance(31)
    shop.run()
    assert not rscylla.EventID.parse(shop.store.get_cursor("billing")).is_row
    shop.seen.clear()
    shop.clock.advance(0.001)
    shop.recreate()
    shop.write(3)
    shop.clock.advance(31)
    assert isinstance(cause_of(shop), rscylla.TableChanged)
    assert shop.seen == []


def test_cursors_of_an_unchanged_table_are_accepted(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Neither at the head of a table that is younger than the lag, nor at rows written by a clock that is behind."""
    shop.recreate()
    shop.store.reset_cursor("billing", shop.stream().head_cursor(timedelta(seconds=30)), reason="test")
    if shop.model == "tablets":  # its streams are younger than the head: no row can be from before them
        shop.store.reset_cursor("billing", shop.stream().cursor_at(), reason="test")
    shop.write(1, ago_s=4)
    shop.clock.advance(31)
    shop.run()
    first = shop.store.get_cursor("billing")
    shop.run()
    assert shop.seen == [1]
    assert rscylla.EventID.parse(first).time > 0
    assert not [r for r in caplog.records if AGAIN in r.message]


@pytest.mark.parametrize("shop", ["vnodes"], indirect=True)
def test_a_cursor_at_a_row_from_before_the_table_is_not_taken_for_another_table(shop: Shop) -> None:
    """Rows may have timestamps in the past, and vnodes, unlike tablets, accept those from before the table."""
    shop.write(1, ago_s=1800)
    shop.write(2, ago_s=900)
    shop.clock.advance(31)
    shop.run_until_crash()
    cursor = rscylla.EventID.parse(shop.store.get_cursor("billing"))
    assert cursor.is_row
    shop.run()
    assert shop.seen == [2]


def test_disabling_and_enabling_cdc_keeps_the_log(shop: Shop) -> None:
    shop.consume_one()
    shop.session.execute("ALTER TABLE ks.orders WITH cdc = {'enabled': false}")
    shop.clock.advance(60)
    shop.session.execute("ALTER TABLE ks.orders WITH cdc = {'enabled': true}")
    shop.write(2)
    shop.clock.advance(31)
    shop.run()
    assert shop.seen == [2]


def test_the_id_of_a_log_contains_its_creation_time(shop: Shop) -> None:
    created_us = shop.stream().describe().table.log_created_us
    assert created_us is not None
    assert datetime.fromtimestamp(created_us / 1e6, UTC) == datetime.fromtimestamp(shop.clock.now_us() / 1e6 - 60, UTC)


def test_a_start_from_before_the_table_is_not_warned_of(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.write(1)
    shop.clock.advance(31)
    stream = shop.stream()
    client = stream(stream.cursor_at(), LAG)
    while isinstance(got := client.recv(), rscylla.Progress):
        pass
    client.close()
    assert got.change.after == {"n": 1}
    assert caplog.records == []


def progress_of(shop: Shop, client: rscylla.abc.StreamClient, until_us: int) -> str:
    """Read until a Progress has reached a time; return it."""
    while True:
        got = client.recv()
        assert isinstance(got, rscylla.Progress)
        if got.time_us >= until_us:
            return got.cursor


def test_idle_progress_that_was_returned_before_the_drop_was_noticed_is_of_the_former_table(shop: Shop) -> None:
    """Each run that starts from the stored cursor raises again, in any process."""
    shop.write(1)
    stream = shop.stream(progress_every=timedelta(0))
    client = stream("", rscylla.StreamLag(seconds=1))
    shop.clock.advance(5)

    def save(got: rscylla.Progress | rscylla.Event) -> None:
        assert not isinstance(got, rscylla.Event) or got.change.after["n"] == 1, "nothing of the new table"
        shop.store.set_cursor("billing", got.cursor if isinstance(got, rscylla.Progress) else got.id)

    save(client.recv())
    shop.write(2)  # gone with the table
    shop.recreate()
    shop.write(3)
    noticed: BaseException | None = None
    for _ in range(100):
        try:
            save(client.recv())
        except rscylla.TableChanged as e:
            noticed = e
            break
    assert noticed is not None
    shop.clock.advance(100)
    for _ in range(2):
        cause = cause_of(shop)
        assert isinstance(cause, rscylla.TableChanged)
    assert shop.seen == []


@pytest.mark.parametrize("shop", ["tablets"], indirect=True)
@pytest.mark.parametrize("on_expired", ["raise", "oldest"])
def test_an_open_stream_whose_stream_sets_are_gone_reports_the_new_table(shop: Shop, on_expired: str) -> None:
    """The stream sets go with the table, and their list is read at other times than the table."""
    poll = timedelta(milliseconds=100)
    stream = shop.stream(progress_every=timedelta(0), poll=poll, on_expired=on_expired)
    client = stream(stream.cursor_at(), LAG)
    shop.clock.advance(15)  # the table is looked at again, the list of sets is not
    progress_of(shop, client, shop.clock.now_us() - 30_000_000)
    shop.recreate()
    shop.clock.advance(1)  # now it is the other way round
    with pytest.raises(rscylla.TableChanged, match=AGAIN):
        client.recv()
    assert client.status().expired_gaps == 0


@pytest.mark.parametrize("shop", ["tablets"], indirect=True)
def test_a_start_before_which_the_former_table_was_split_can_continue_with_the_new_one(shop: Shop) -> None:
    """The new table's stream sets are younger than each one that the cursor may name."""
    start = datetime.fromtimestamp(shop.clock.now_us() / 1e6 + 60, UTC)
    shop.store.set_cursor("billing", shop.stream().cursor_at(start))
    shop.scylla.split_tablets("ks", "orders", timedelta(seconds=30))
    shop.run()
    shop.recreate()
    shop.clock.advance(70)
    shop.write(3)
    shop.clock.advance(31)
    shop.run(on_expired="oldest")
    assert shop.seen == [3]


@pytest.mark.parametrize("shop", ["tablets"], indirect=True)
def test_a_cursor_above_the_new_table_has_to_be_reset(shop: Shop) -> None:
    """No store takes a lower one; the first stream set of a table is a little older than the table."""
    shop.scylla.split_tablets("ks", "orders", timedelta(0))
    shop.clock.advance(2)
    client = shop.stream(progress_every=timedelta(0))("", rscylla.StreamLag(seconds=1))
    cursor = progress_of(shop, client, shop.clock.now_us() - 1_500_000)
    client.close()
    shop.recreate()
    shop.clock.advance(31)
    with pytest.raises(rscylla.TableChanged, match="reset its cursor: the rows of the new log"):
        shop.stream(on_expired="oldest")(cursor, LAG)


@pytest.mark.parametrize("shop", ["tablets"], indirect=True)
def test_a_start_outlives_the_stream_set_that_it_names(shop: Shop) -> None:
    """Nothing before a start is read, so a set that has ended, and left the list since, is not missed."""
    start = datetime.fromtimestamp(shop.clock.now_us() / 1e6 + 3 * 86_400, UTC)
    shop.store.set_cursor("billing", shop.stream().cursor_at(start))
    shop.scylla.split_tablets("ks", "orders", timedelta(seconds=30))
    shop.clock.advance(2 * 86_400)
    shop.run()
    shop.clock.advance(86_401)
    shop.write(3)
    shop.clock.advance(31)
    shop.run()
    assert shop.seen == [3]


@pytest.mark.parametrize("lag_s", [1, 30, 600])
def test_the_lag_of_the_next_run_does_not_matter(shop: Shop, lag_s: int) -> None:
    client = shop.stream(progress_every=timedelta(0))("", LAG)
    shop.store.set_cursor("billing", progress_of(shop, client, shop.clock.now_us() - 31_000_000))
    client.close()
    shop.recreate()
    shop.write(3)
    shop.clock.advance(1000)
    cursor = shop.store.get_cursor("billing")
    with pytest.raises(rscylla.TableChanged):
        shop.stream()(cursor, rscylla.StreamLag(seconds=lag_s))


def test_a_row_cursor_is_looked_up_whatever_the_lag(shop: Shop) -> None:
    shop.consume_one()
    shop.recreate()
    shop.clock.advance(1000)
    with pytest.raises(rscylla.TableChanged):
        shop.stream()(shop.store.get_cursor("billing"), rscylla.StreamLag(seconds=600))


def test_a_start_that_was_stored_is_not_taken_for_a_cursor_of_a_former_table(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.write(1)
    shop.store.set_cursor(
        "billing", shop.stream().cursor_at(datetime.fromtimestamp(shop.clock.now_us() / 1e6 - 50, UTC))
    )
    shop.clock.advance(31)
    shop.run()
    assert shop.seen == [1]
    assert caplog.records == []


def test_a_start_that_was_stored_before_the_table_was_created_again_is_reported(shop: Shop) -> None:
    shop.store.set_cursor(
        "billing", shop.stream().cursor_at(datetime.fromtimestamp(shop.clock.now_us() / 1e6 - 10, UTC))
    )
    shop.recreate()
    shop.clock.advance(31)
    assert isinstance(cause_of(shop), rscylla.TableChanged)


@pytest.mark.parametrize("shop", ["vnodes"], indirect=True)
def test_a_point_that_does_not_name_its_log_is_warned_of(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A cursor as Go rscylla writes it. With tablets, each table has its own stream sets, which show the difference."""
    of_log = rscylla.EventID.parse(shop.stream().cursor_at())
    shop.recreate()
    shop.stream()(str(rscylla.EventID(of_log.generation, shop.clock.now_us() - 1_000_000)), LAG).close()
    assert "the cursor is older than the CDC log" in caplog.text


def test_a_node_with_an_outdated_schema_stops_no_consumer(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a re-creation nodes disagree for a while about which table there is."""
    former = shop.stream().describe().table
    shop.recreate()
    source = shop.stream().describe()
    true = same_module.read_table
    answers: list[object] = [former, rscylla.TableNotFound("not here"), rscylla.errors.CDCDisabled("not yet")]

    def read_table(*args: object, **known: object) -> object:
        if not answers:
            return true(*args, **known)  # type: ignore[arg-type]
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(same_module, "read_table", read_table)
    shop.clock.advance(16)
    source.refresh_metadata()
    assert answers == []
    assert source.table.log_id != former.log_id
    shop.clock.advance(60)
    answers.append(rscylla.TableNotFound("dropped"))
    with pytest.raises(rscylla.TableNotFound):
        source.reread_table()


# ---------------------------------------------------------------- while it is read


def test_an_open_stream_says_that_opening_it_again_helps(shop: Shop) -> None:
    client = shop.stream()(shop.stream().cursor_at(), LAG)
    shop.clock.advance(40)
    shop.recreate()
    shop.clock.advance(40)
    with pytest.raises(rscylla.TableChanged, match="open it again") as caught:
        progress_of(shop, client, shop.clock.now_us() - 31_000_000)
    assert caught.value.resumable


@attrs.define
class Running:
    """Lanes of a service over one table on the system's clock, and what they have handled."""

    session: rscylla.Session
    keyspace: str
    store: MemoryCursorStore = attrs.Factory(MemoryCursorStore)
    seen: set[int] = attrs.Factory(set)
    registry: CollectorRegistry = attrs.Factory(CollectorRegistry)

    def create(self) -> None:
        self.session.execute(f"CREATE TABLE {self.keyspace}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")

    def write(self, *ids: int) -> None:
        for number in ids:
            self.session.execute(f"INSERT INTO {self.keyspace}.t (id) VALUES ({number})")

    def service(self, slices: int, **options: Any) -> rscylla.Service:
        specs = rscylla.slice_specs(
            "billing",
            slices,
            rscylla.NewStream(self.session, self.keyspace, "t", **options),
            self.store,
            lambda name: rscylla.Consumer(name, self.note, registry=self.registry),
            rscylla.StreamLag(milliseconds=100),
            registry=self.registry,
        )
        restarts = rscylla.Restarts(backoff=rscylla.Backoff(initial=timedelta(milliseconds=50)), give_up="park")
        return rscylla.Service([specs], restarts=restarts, registry=self.registry)

    def note(self, event: rscylla.Event, run: rscylla.Run) -> None:
        self.seen.add(event.key["id"])


@pytest.fixture
def running(session: rscylla.Session, keyspace: str) -> Running:
    made = Running(session, keyspace)
    made.create()
    return made


def replaced(running: Running) -> None:
    """Drop the table and create it again, with a change before and after."""
    running.write(*range(10))
    until(lambda: running.seen == set(range(10)), "what was written before")
    running.session.execute(f"DROP TABLE {running.keyspace}.t")
    running.create()
    running.write(*range(10, 20))


@pytest.mark.parametrize("slices", [1, 3])
def test_a_running_service_goes_on_with_a_table_that_is_created_again(running: Running, slices: int) -> None:
    with running.service(slices, on_expired="oldest") as service:
        replaced(running)
        until(lambda: running.seen == set(range(20)), "what was written after")
        until(lambda: all(lane.state == "streaming" for lane in service.facts().lanes), "all lanes read")
        gaps = [
            running.registry.get_sample_value("rscylla_cursor_expired_total", {"consumer_name": lane.consumer})
            for lane in service.facts().lanes
        ]
        assert gaps == [1.0] * slices


@pytest.mark.parametrize("slices", [1, 3])
def test_a_running_service_waits_for_a_table_that_is_created_again_later(running: Running, slices: int) -> None:
    with running.service(slices, on_expired="oldest") as service:
        running.write(*range(10))
        until(lambda: running.seen == set(range(10)), "what was written before")
        running.session.execute(f"DROP TABLE {running.keyspace}.t")

        def waits() -> bool:
            return all(lane.restarts >= 2 and "has no table" in lane.why for lane in service.facts().lanes)

        until(waits, "all lanes have looked for it again")
        failed = [check for check in service.ready()["checks"] if not check["ok"]]
        assert len(failed) == slices
        running.create()
        running.write(*range(10, 20))
        until(lambda: running.seen == set(range(20)), "what was written after")
        until(lambda: service.ready()["status"] == "ok", "it is ready again")


@pytest.mark.parametrize("slices", [1, 3])
def test_a_running_service_parks_what_may_not_go_on_and_says_what_to_do(running: Running, slices: int) -> None:
    service = running.service(slices)
    service.start()
    replaced(running)
    until(lambda: service.wait(timedelta()), "all lanes are parked, and it ends")
    assert running.seen == set(range(10))
    for lane in service.facts().lanes:
        assert lane.state == "parked"
        assert "then reset its cursor, or open the stream with on_expired='oldest'" in lane.why
