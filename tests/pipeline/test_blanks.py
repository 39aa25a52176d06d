"""What is written while CDC is off is in no log: readers say so, and a time that they cannot vouch for is a gap."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

import rscylla
from cursorstore import MemoryCursorStore
from rscylla._timeuuid import us_of
from rscylla.driver import ReadSession
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import CDCDisabled
from rscylla.testing import ManualClock

OFF, ON = "WITH cdc = {'enabled': false}", "WITH cdc = {'enabled': true}"


@attrs.define
class Shop:
    """A table on a driven clock, and what a consumer of it has seen: by a stream, or by windows of Arrow."""

    session: rscylla.Session
    clock: ManualClock
    lag_s: float
    by: str
    store: MemoryCursorStore = attrs.field(factory=MemoryCursorStore)
    seen: list[int] = attrs.field(factory=list)

    def alter(self, what: str) -> None:
        self.clock.advance(1)
        self.session.execute(f"ALTER TABLE ks.t {what}")
        self.clock.advance(1)

    def write(self, number: int) -> None:
        self.session.execute(f"INSERT INTO ks.t (id, v) VALUES ({number}, {number})")
        self.clock.advance(1)

    def stream(self, **options: str) -> rscylla.Stream:
        given = {"prefetch": 0, "progress_every": timedelta(0), **options}
        return rscylla.NewStream(self.session, "ks", "t", clock=self.clock, **given)  # type: ignore[arg-type]

    def run(self, on_expired: str = "raise") -> None:
        """Consume to the head."""
        self.clock.advance(self.lag_s + 1)
        options = rscylla.StreamLag(seconds=self.lag_s), rscylla.StreamToHead()
        stream = self.stream(on_expired=on_expired)
        if self.by == "arrow":
            given = {"shortest": timedelta(seconds=1), "on_expired": on_expired}
            for _, rows in rscylla.windows_as_arrow(stream, self.store, "c", *options, **given):  # type: ignore[arg-type]
                self.seen += rows.table().column("id").to_pylist()
            return
        consumer = rscylla.Consumer("c", lambda event, _: self.seen.append(event.key["id"]))
        try:
            rscylla.run(rscylla.Spec(stream, self.store, consumer, *options))
        except rscylla.HeadReached as end:
            self.store.set_cursor("c", end.cursor)
        except rscylla.RunError as e:
            raise (e.__cause__ or e) from None

    def gap(self) -> rscylla.CursorExpired:
        """Return the gap that is reported, and again when the reader starts again; the cursor stays."""
        with pytest.raises(rscylla.CursorExpired):
            self.run()
        before, seen = self.store.get_cursor("c"), list(self.seen)
        with pytest.raises(rscylla.CursorExpired) as caught:
            self.run()
        assert (self.store.get_cursor("c"), self.seen) == (before, seen)
        return caught.value


@pytest.fixture(params=["stream", "arrow"])
def by(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[0, 30])
def shop(request: pytest.FixtureRequest, by: str) -> Iterator[Shop]:
    clock = ManualClock()
    with EmbeddedScylla(clock=clock, vnodes=2, shards=1) as scylla:
        session = scylla.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (id int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        clock.advance(100)
        shop = Shop(session, clock, request.param, by)
        shop.write(1)
        shop.run()
        yield shop


def test_while_cdc_is_off_a_reader_ends_behind_what_was_logged(shop: Shop) -> None:
    shop.write(2)
    shop.alter(OFF)
    shop.write(3)
    for _ in range(2):
        with pytest.raises(CDCDisabled, match=r"CDC of ks\.t is switched off since .* on_expired='oldest'"):
            shop.run()
        assert shop.seen == [1, 2]


def test_what_was_written_while_cdc_was_off_is_a_gap(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.write(2)
    off_us = shop.clock.now_us()
    shop.alter(OFF)
    shop.write(3)
    on_us = shop.clock.now_us()
    shop.alter(ON)
    shop.write(4)
    gap = shop.gap()
    assert us_of(gap.gap_from) <= off_us
    assert on_us <= us_of(gap.gap_to) <= on_us + 1_000_000
    assert "altered" in str(gap)
    shop.run("oldest")
    assert shop.seen == [1, 2, 4]
    assert "changes of that time may be lost" in caplog.text
    shop.run()


def test_what_was_written_while_cdc_was_seen_off_is_a_gap_whatever_else_was_altered(shop: Shop) -> None:
    shop.alter(OFF)
    with pytest.raises(rscylla.errors.CDCDisabled):
        shop.run()
    shop.write(2)
    shop.alter("WITH cdc = {'enabled': true, 'preimage': true}")
    shop.write(3)
    assert "was switched off between" in str(shop.gap())
    shop.run("oldest")
    assert shop.seen == [1, 3]


def test_a_reader_that_may_go_on_while_cdc_is_off_has_the_gap_when_it_may_not(shop: Shop) -> None:
    shop.alter(OFF)
    shop.write(2)
    shop.run("oldest")
    shop.alter(ON)
    shop.write(3)
    shop.gap()
    shop.run("oldest")
    assert shop.seen == [1, 3]


@pytest.mark.parametrize(
    "what",
    [
        ["ADD w int"],
        ["ADD w int", "DROP w"],
        ["WITH cdc = {'enabled': true, 'ttl': 90000}"],
        ["WITH cdc = {'enabled': true, 'preimage': true}"],
        ["WITH comment = 'mine'", "WITH gc_grace_seconds = 7"],
        ["WITH compaction = {'class': 'SizeTieredCompactionStrategy'}"],
        ["WITH speculative_retry = 'none'"],
        ["WITH bloom_filter_fp_chance = 0.5"],
        ["WITH crc_check_chance = 0.5"],
        ["WITH max_index_interval = 4096 AND min_index_interval = 256"],
        ["WITH memtable_flush_period_in_ms = 70000"],
        ["WITH tombstone_gc = {'mode': 'immediate'}"],
        ["WITH paxos_grace_seconds = 5"],
    ],
)
def test_other_alterations_are_no_gap(shop: Shop, what: list[str]) -> None:
    for each in what:
        shop.alter(each)
    shop.write(2)
    shop.run()
    assert shop.seen == [1, 2]


@pytest.mark.parametrize(
    "what", ["WITH cdc = {'enabled': true}", "WITH comment = ''", "WITH gc_grace_seconds = 864000"]
)
def test_an_alteration_that_changes_nothing_is_no_gap(shop: Shop, what: str) -> None:
    shop.session.execute("CREATE TABLE ks.cdc_other (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    shop.write(2)
    shop.alter(what)
    shop.session.execute("ALTER TABLE ks.cdc_other WITH cdc = {'enabled': false}")
    shop.write(3)
    shop.run()
    shop.alter(what)
    shop.run()
    assert shop.seen == [1, 2, 3]


@pytest.mark.parametrize("by", ["stream"], indirect=True)
@pytest.mark.parametrize(
    "off", [OFF, "WITH CDC = {'enabled': 'false'} AND comment = ''", "with \"cdc\"={'enabled':false}"]
)
@pytest.mark.parametrize("advance", [0, 1])
def test_an_alteration_that_may_have_switched_cdc_off_is_a_gap_however_it_is_written(
    shop: Shop, off: str, advance: int
) -> None:
    shop.clock.advance(1)
    for each in (off, ON):
        shop.session.execute(f"ALTER TABLE \n ks . T {each}")
        shop.clock.advance(advance)
    shop.write(2)
    shop.gap()


@pytest.mark.parametrize("by", ["stream"], indirect=True)
def test_an_alteration_that_no_history_shows_is_a_gap(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.alter("WITH comment = ''")
    rows, kept = ReadSession.rows, (0, 0)

    def forgotten(session: ReadSession, cql: str, *args: Any, **more: Any) -> Any:
        if "group0_history" not in cql:
            return rows(session, cql, *args, **more)
        if kept is None:
            raise rscylla.errors.QueryFailed("this user may not read it")
        return rows(session, cql, *args, **more)[slice(*kept)]  # the newest is the first

    monkeypatch.setattr(ReadSession, "rows", forgotten)
    for part in (None, (0, 1), (1, None), (0, 0)):
        kept = part
        shop.gap()
    kept = 0, None
    shop.run()


def test_a_field_that_a_type_gets_is_no_gap(shop: Shop) -> None:
    shop.session.execute("CREATE TYPE ks.u (a int)")
    shop.alter("ADD u frozen<u>")
    shop.run()
    shop.session.execute("ALTER TYPE ks.u ADD b int")
    shop.write(2)
    shop.run()
    assert shop.seen == [1, 2]


@pytest.mark.parametrize("by", ["stream"], indirect=True)
def test_a_stream_that_is_open_reports_the_gap_where_it_is(shop: Shop) -> None:
    client = shop.stream()(shop.store.get_cursor("c"), rscylla.StreamLag(seconds=shop.lag_s))
    shop.write(2)
    shop.alter(OFF)
    shop.write(3)
    shop.alter(ON)
    shop.write(4)
    told: list[rscylla.Event] = []

    def read() -> None:
        while shop.clock.advance(1) is None:
            told.append(client.recv())

    with pytest.raises(rscylla.CursorExpired, match="switching CDC off and on"):
        read()
    client.close()
    assert [event.key["id"] for event in told if isinstance(event, rscylla.ChangeEvent)] in ([], [2])
    if told:
        shop.store.set_cursor("c", told[-1].cursor)
    shop.gap()
    shop.run("oldest")
    assert shop.seen == [1, 2, 4]


@pytest.mark.parametrize("by", ["stream"], indirect=True)
def test_who_starts_at_the_oldest_row_was_not_promised_what_came_before(shop: Shop) -> None:
    shop.alter(OFF)
    shop.write(2)
    shop.alter(ON)
    shop.write(3)
    other = attrs.evolve(shop, store=MemoryCursorStore(), seen=[])
    other.run()
    assert other.seen == [1, 3]


@pytest.mark.parametrize("by", ["stream"], indirect=True)
def test_each_reader_of_slices_reports_the_gap(shop: Shop) -> None:
    cursor = shop.store.get_cursor("c")
    shop.alter(OFF)
    shop.alter(ON)
    shop.clock.advance(shop.lag_s + 1)
    stream = shop.stream()

    def read(index: int) -> None:
        client = stream.sliced(index, 2)(cursor, rscylla.StreamLag(seconds=shop.lag_s), rscylla.StreamToHead())
        try:
            while True:
                client.recv()
        finally:
            client.close()

    for index in range(2):
        with pytest.raises(rscylla.CursorExpired):
            read(index)
