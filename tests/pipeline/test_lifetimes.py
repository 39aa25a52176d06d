"""What has expired is judged by the TTL that rows were written with, and not by the table's option of today."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

import attrs
import pytest

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.cdc.log.walk import Action, Read
from rscylla.cdc.read.drive import Drive
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

LAG = rscylla.StreamLag(seconds=30)


@attrs.define
class Shop:
    """A table on a driven clock, and one consumer of it."""

    session: rscylla.Session
    clock: ManualClock
    store: MemoryCursorStore = attrs.Factory(MemoryCursorStore)
    seen: list[int] = attrs.Factory(list)

    def write(self, number: int) -> None:
        self.session.execute(
            f"INSERT INTO ks.orders (id, n) VALUES (1, {number}) USING TIMESTAMP {self.clock.now_us()}"
        )

    def alter(self, options: str) -> None:
        self.session.execute(f"ALTER TABLE ks.orders WITH cdc = {{{options}}}")

    def stream(self, **options: object) -> rscylla.Stream:
        return rscylla.NewStream(
            self.session,
            "ks",
            "orders",
            clock=self.clock,
            prefetch=0,
            progress_every=timedelta(0),
            **options,  # type: ignore[arg-type]
        )

    def run(self, **options: object) -> None:
        """Consume to the head."""
        consumer = rscylla.Consumer("billing", lambda event, _: self.seen.append(event.change.after["n"]))
        with suppress(rscylla.HeadReached):
            rscylla.run(rscylla.Spec(self.stream(**options), self.store, consumer, LAG, rscylla.StreamToHead()))

    def save(self, kind: str) -> None:
        """Leave a cursor as an idle stream, or one that had a row, leaves it."""
        if kind == "row":
            self.write(0)
            self.clock.advance(31)
            client = self.stream()("", LAG)
            while isinstance(got := client.recv(), rscylla.Progress):
                pass
            self.store.set_cursor("billing", got.id)
            client.close()
        else:
            self.run()
        assert rscylla.EventID.parse(self.store.get_cursor("billing")).is_row == (kind == "row")
        self.seen.clear()

    def expired(self) -> rscylla.CursorExpired:
        before = self.store.get_cursor("billing")
        with pytest.raises(rscylla.RunError) as caught:
            self.run()
        assert isinstance(caught.value.__cause__, rscylla.CursorExpired)
        assert self.store.get_cursor("billing") == before
        return caught.value.__cause__


@pytest.fixture(params=["vnodes", "tablets"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=2, shards=1) as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            f"AND tablets = {{'enabled': {str(request.param == 'tablets').lower()}}}"
        )
        session.execute("CREATE TABLE ks.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true, 'ttl': '600'}")
        clock.advance(3600)
        yield Shop(session, clock)


@pytest.mark.parametrize("kind", ["row", "point"])
@pytest.mark.parametrize("options", ["'enabled': true, 'ttl': '86400'", "'enabled': false"])
def test_expired_rows_are_reported_even_if_the_ttl_is_longer_now(shop: Shop, kind: str, options: str) -> None:
    shop.save(kind)
    shop.write(1)
    shop.clock.advance(700)
    shop.alter(options)
    shop.clock.advance(31)
    shop.expired()
    shop.expired()  # and again after each restart
    assert shop.seen == []


@pytest.mark.parametrize("kind", ["row", "point"])
@pytest.mark.parametrize("options", ["'enabled': true, 'ttl': '60'", "'enabled': false"])
def test_rows_that_are_there_are_delivered_though_the_ttl_is_shorter_now(shop: Shop, kind: str, options: str) -> None:
    shop.save(kind)
    shop.write(1)
    shop.clock.advance(400)
    shop.write(2)
    shop.alter(options)
    shop.clock.advance(31)
    with nullcontext() if "true" in options else pytest.raises(rscylla.RunError, match="is switched off"):
        shop.run()
    assert shop.seen == [1, 2]


def test_rows_before_a_gap_are_delivered_and_the_gap_is_reported_where_it_begins(shop: Shop) -> None:
    shop.save("point")
    shop.write(1)
    shop.clock.advance(10)
    shop.alter("'enabled': true, 'ttl': '60'")
    altered = datetime.fromtimestamp(shop.clock.now_us() / 1e6, UTC)
    shop.clock.advance(5)
    shop.write(2)
    shop.clock.advance(200)
    with pytest.raises(rscylla.RunError) as caught:
        shop.run()
    cause = caught.value.__cause__
    assert isinstance(cause, rscylla.CursorExpired)
    assert shop.seen == [1]
    assert cause.gap_from == altered
    shop.write(3)
    shop.clock.advance(31)
    shop.run(on_expired="oldest")
    assert shop.seen == [1, 3]


def test_an_open_stream_judges_by_the_ttl_of_the_rows(shop: Shop) -> None:
    client = shop.stream()("", LAG)
    while not isinstance(client.recv(), rscylla.Progress):
        pass
    shop.write(1)
    shop.clock.advance(1)
    shop.alter("'enabled': true, 'ttl': '60'")
    shop.clock.advance(300)
    while isinstance(got := client.recv(), rscylla.Progress):
        pass
    assert got.change.after == {"n": 1}
    client.close()


def test_rows_that_expire_while_they_are_queried_are_reported(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may be asked for again and again, or the process be paused."""
    shop.save("point")
    shop.write(1)
    shop.clock.advance(31)
    true = Drive.take

    def take(self: Drive, step: Action) -> object:
        shop.clock.advance(700 if isinstance(step, Read) else 0)
        return true(self, step)

    monkeypatch.setattr(Drive, "take", take)
    shop.expired()


def windows_of(shop: Shop, **options: object) -> rscylla.cdc.ArrowWindows:
    return rscylla.windows_as_arrow(shop.stream(), shop.store, "report", LAG, rscylla.StreamToHead(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [3, 30, 31])
@pytest.mark.parametrize("door", [lambda shop: shop.stream()("", LAG), windows_of], ids=["stream", "arrow"])
def test_a_lag_that_the_log_does_not_outlive_is_refused(shop: Shop, door: Callable[[Shop], object], ttl: int) -> None:
    shop.alter(f"'enabled': true, 'ttl': '{ttl}'")
    with pytest.raises(
        rscylla.ConfigError, match=rf"^the log of ks.orders keeps changes for {ttl} s, and .* lag of 30 s"
    ):
        door(shop)
    shop.alter("'enabled': true, 'ttl': '32'")
    door(shop)
    shop.alter("'enabled': true, 'ttl': '0'")
    door(shop)
    shop.alter("'enabled': false, 'ttl': '3'")  # what was written before is still there
    door(shop)


def test_a_lag_that_the_log_does_not_outlive_is_a_warning_and_gaps_where_the_policy_is_to_continue(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.run()
    shop.alter("'enabled': true, 'ttl': '10'")
    client = shop.stream(on_expired="oldest")(shop.store.get_cursor("billing"), LAG)
    assert "keeps changes for 10 s" in caplog.text
    for number in range(40):  # each poll finds rows that have expired although they are not due yet
        shop.write(number)
        shop.clock.advance(5)
        client.recv()
    assert client.status().expired_gaps >= 4, "the loss goes on"
    client.close()


@pytest.mark.parametrize("start", ["", "cursor"])
def test_a_ttl_that_is_lowered_below_the_lag_is_reported_while_a_stream_is_open(shop: Shop, start: str) -> None:
    shop.run()
    client = shop.stream()(start and shop.store.get_cursor("billing"), LAG)
    client.recv()
    shop.alter("'enabled': true, 'ttl': '10'")
    shop.clock.advance(16)  # the table is read again

    def write_and_read() -> None:
        for number in range(20):
            shop.write(number)
            shop.clock.advance(3)
            assert isinstance(client.recv(), rscylla.Progress), "no row lives for as long as the lag"

    with pytest.raises(rscylla.CursorExpired, match=r"fell behind what the log keeps \(10 s\)"):
        write_and_read()
    client.close()


def test_while_cdc_was_off_nothing_could_expire(shop: Shop) -> None:
    shop.save("point")
    shop.alter("'enabled': false")
    shop.clock.advance(31)
    shop.run(on_expired="oldest")
    shop.clock.advance(200_000)
    with pytest.raises(rscylla.RunError, match="is switched off") as caught:
        shop.run()
    assert isinstance(caught.value.__cause__, rscylla.errors.CDCDisabled)
    assert shop.seen == []


def test_the_oldest_row_is_delivered_though_the_ttl_is_shorter_now(shop: Shop) -> None:
    shop.write(1)
    shop.clock.advance(300)
    shop.alter("'enabled': true, 'ttl': '60'")
    shop.clock.advance(31)
    shop.run()
    assert shop.seen == [1]


def test_an_alter_that_leaves_the_ttl_alone_changes_nothing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.save("point")
    shop.session.execute("ALTER TABLE ks.orders ADD note text")
    shop.clock.advance(500)
    shop.run()
    shop.session.execute("ALTER TABLE ks.orders DROP note")
    shop.clock.advance(700)
    shop.expired()


def test_a_point_without_the_ttl_causes_a_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """As Go rscylla writes them."""
    cursor = rscylla.EventID.parse(shop.stream().cursor_at())
    now_us = shop.clock.now_us()
    shop.clock.advance(300)
    shop.alter("'enabled': true, 'ttl': '60'")
    shop.stream()(str(rscylla.EventID(cursor.generation, now_us)), LAG).close()
    assert "was altered at" in caplog.text


@pytest.mark.parametrize("shop", ["vnodes"], indirect=True)
def test_a_cursor_from_before_the_cluster_is_called_so(shop: Shop) -> None:
    """Stream sets of tablets leave the list when their rows have expired, so the first one proves nothing."""
    with pytest.raises(rscylla.CursorExpired, match="before the first CDC generation of this cluster"):
        shop.stream()(str(rscylla.EventID(0, 0)), LAG)


@pytest.mark.parametrize("after_s", [0.001, 1, 9], ids=str)
def test_an_alter_right_after_the_creation_counts(shop: Shop, after_s: float) -> None:
    shop.session.execute("DROP TABLE ks.orders")
    shop.session.execute("CREATE TABLE ks.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
    shop.write(1)
    shop.clock.advance(after_s)
    shop.alter("'enabled': true, 'ttl': '60'")
    shop.write(2)
    shop.clock.advance(300)
    shop.run()
    assert shop.seen == [1]


def test_the_oldest_row_is_delivered_however_long_rows_lived_before(shop: Shop) -> None:
    shop.alter("'enabled': true, 'ttl': '864000'")
    shop.write(1)
    shop.clock.advance(3 * 86_400)
    shop.write(2)
    shop.clock.advance(1)
    shop.alter("'enabled': true, 'ttl': '60'")
    shop.clock.advance(61)
    shop.run()
    assert shop.seen == [1, 2]


@pytest.mark.parametrize("days_ago", [None, 200, 310, 400], ids=str)
@pytest.mark.parametrize("on_expired", ["raise", "oldest"])
def test_a_start_at_the_oldest_row_of_a_table_that_was_altered_is_no_gap(
    shop: Shop, days_ago: int | None, on_expired: str
) -> None:
    shop.alter("'enabled': true, 'ttl': '86400'")
    shop.clock.advance(timedelta(days=65))
    shop.session.execute("ALTER TABLE ks.orders ADD m int")
    shop.clock.advance(timedelta(days=300))
    shop.write(1)
    shop.clock.advance(3600)
    now = datetime.fromtimestamp(shop.clock.now_us() / 1e6, UTC)
    stream = shop.stream(on_expired=on_expired)
    start = stream.cursor_at(None if days_ago is None else now - timedelta(days=days_ago))
    client = stream(start, LAG)
    while isinstance(got := client.recv(), rscylla.Progress):
        pass
    assert got.change.after["n"] == 1
    assert client.status().expired_gaps == 0
    client.close()


def test_what_expires_after_the_opening_is_reported_though_older_rows_had_expired_before(shop: Shop) -> None:
    """The gap begins before the opening, and runs past it."""
    for number in range(3):
        shop.write(number)
        shop.clock.advance(60)
    client = shop.stream()("", LAG)
    opened = datetime.fromtimestamp(shop.clock.now_us() / 1e6, UTC)
    shop.write(3)
    shop.clock.advance(3600)
    with pytest.raises(rscylla.CursorExpired) as caught:
        client.recv()
    assert caught.value.gap_from == opened
    client.close()
    client = shop.stream(on_expired="oldest")("", LAG)
    shop.write(4)
    for _ in range(3):  # each loss counts, also one that begins where the last one ended
        shop.clock.advance(3600)
        client.recv()
    assert client.status().expired_gaps == 3
    client.close()


def test_what_had_expired_before_the_opening_is_no_gap(shop: Shop) -> None:
    for number in range(12):
        shop.write(number)
        shop.clock.advance(60)
    client = shop.stream()("", LAG)
    shop.clock.advance(290)
    while isinstance(got := client.recv(), rscylla.Progress):
        pass
    assert got.change.after == {"n": 7}
    assert client.status().expired_gaps == 0
    client.close()
