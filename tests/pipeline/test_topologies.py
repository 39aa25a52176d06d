"""The same workload on vnodes, on tablets, and over the upgrade from 4.3, with new streams every few seconds.

One client reads all the time, on a driven clock: whenever it waits at the head, the world goes on. Nothing written may
be lost, come twice, or be out of order for its key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import attrs
import pytest
from cassandra import ConsistencyLevel, InvalidRequest

import rscylla
from rscylla.abc import StreamClient
from rscylla.cdc.log.topology import topology_for
from rscylla.driver.session import ReadSession
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError
from rscylla.testing import ManualClock

LAG_S = 30
SECOND = 1_000_000
NETWORK = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@attrs.define
class World:
    """A server on a driven clock, the changes written to it, and the changes of its streams over time."""

    scylla: EmbeddedScylla
    clock: ManualClock
    session: rscylla.Session
    dice: random.Random
    tables: list[str]
    switch: Callable[[int], None]
    """Called each second with its number; makes new generations, splits, merges, upgrades."""
    seconds: int = 80
    second: int = 0
    written: dict[str, list[tuple[int, int, int]]] = attrs.Factory(dict)
    refused: int = 0

    def go_on(self, waited: float) -> None:
        """One wait of the reader at its head: about a second in which things happen."""
        if self.second >= self.seconds:
            return
        self.second += 1
        self.switch(self.second)
        for table in self.tables:
            for _ in range(self.dice.randrange(8)):
                self.write(table)

    def write(self, table: str) -> None:
        late_us = int(self.dice.random() ** 3 * (LAG_S - 2) * SECOND)
        time_us = self.clock.now_us() - late_us
        pk, ck = self.dice.randrange(20), len(self.written.setdefault(table, []))
        try:
            self.session.execute(f"INSERT INTO {table} (pk, ck) VALUES ({pk}, {ck}) USING TIMESTAMP {time_us}")
        except InvalidRequest:
            self.refused += 1  # vnodes take no write of a generation that is over
        else:
            self.written[table].append((time_us, pk, ck))

    def stream(self, table: str, **options: Any) -> rscylla.Stream:
        return rscylla.NewStream(
            self.session,
            *table.split("."),
            clock=self.clock,
            prefetch=0,
            limits=rscylla.Limits(page_size=self.dice.choice([3, 50, 5000])),
            streams_per_query=self.dice.choice([1, 3, 100]),
            **options,
        )

    def read(self, table: str, *, restart: float = 0.0) -> list[rscylla.Event]:
        """Return all events until the world has stopped; *restart*: how probably the client is left after an event."""
        end = datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC) + timedelta(seconds=self.seconds + 60)
        self.clock.on_wait = self.go_on
        stream, cursor, events = self.stream(table), "", list[rscylla.Event]()
        while True:
            client = stream(cursor, rscylla.StreamLag(seconds=LAG_S), rscylla.StreamUntil(end))
            try:
                while True:
                    got = client.recv()
                    cursor = got.cursor if isinstance(got, rscylla.Progress) else got.id
                    if isinstance(got, rscylla.Event):
                        events.append(got)
                    if self.dice.random() < restart:
                        break
            except rscylla.HeadReached:
                return events
            finally:
                client.close()

    def check(self, table: str, events: list[rscylla.Event]) -> None:
        got = [(e.timestamp_us, e.key["pk"], e.key["ck"]) for e in events]
        assert sorted(got) == sorted(self.written[table]), "lost, or twice"
        for pk in range(20):
            times = [time for time, of, _ in got if of == pk]
            assert times == sorted(times), "out of order"
        assert len(got) > self.seconds


@contextmanager
def world(
    model: str, seed: int, tables: tuple[str, ...] = ("ks.t",), *, how: str = "held", **options: Any
) -> Iterator[World]:
    clock, dice = ManualClock(), random.Random(seed)
    version: Any = "4.3" if model == "legacy" else None
    with EmbeddedScylla(clock=clock, seed=seed, shards=2, vnodes=3, version=version, **options) as scylla:
        clock.advance(LAG_S)  # a late write must not be older than the first generation
        session = scylla.connect()
        for table in tables:
            keyspace = table.split(".")[0]
            option = ""
            if version is None:
                option = f" AND tablets = {{'enabled': {str(model == 'tablets' or keyspace == 'tab').lower()}}}"
            session.execute(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {NETWORK}{option}")
            session.execute(
                f"CREATE TABLE {table} (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}"
            )
        clock.advance(LAG_S)
        yield World(scylla, clock, session, dice, list(tables), SWITCHES[model](scylla, dice, how))


def vnodes(scylla: EmbeddedScylla, dice: random.Random, how: str = "") -> Callable[[int], None]:
    def switch(second: int) -> None:
        if second % 4 == 0:
            generation(scylla, dice)

    return switch


def generation(scylla: EmbeddedScylla, dice: random.Random) -> None:
    with suppress(EmbeddedScyllaError):  # it would start before one that is already on its way
        scylla.new_generation(timedelta(seconds=dice.uniform(5, 8)))


def tablets(scylla: EmbeddedScylla, dice: random.Random, how: str = "") -> Callable[[int], None]:
    count = 2

    def switch(second: int) -> None:
        nonlocal count
        if second % 4 == 0:
            is_split = count == 1 or (count < 32 and dice.random() < 0.6)
            count = count * 2 if is_split else count // 2
            resize = scylla.split_tablets if is_split else scylla.merge_tablets
            resize("tab" if how == "both" else "ks", "t", timedelta(seconds=dice.uniform(5, 8)))

    return switch


def legacy(scylla: EmbeddedScylla, dice: random.Random, how: str = "held") -> Callable[[int], None]:
    def switch(second: int) -> None:
        if second == 16:
            scylla.upgrade(how)  # type: ignore[arg-type]
        if second == 72 and how == "held":
            scylla.finish_rewriting()
        if second % 4 == 0:
            generation(scylla, dice)

    return switch


def both(scylla: EmbeddedScylla, dice: random.Random, how: str = "") -> Callable[[int], None]:
    of_vnodes, of_tablets = vnodes(scylla, dice), tablets(scylla, dice, "both")

    def switch(second: int) -> None:
        of_vnodes(second)
        of_tablets(second + 2)

    return switch


SWITCHES = {"vnodes": vnodes, "tablets": tablets, "legacy": legacy, "both": both}


def generations_of(events: list[rscylla.Event]) -> set[int]:
    return {rscylla.EventID.parse(e.id).generation for e in events}


def to_head(w: World, cursor: str) -> tuple[list[str], list[int], str]:
    """Return ids and clustering keys of what is read from *cursor* to the head, and the cursor there."""
    client = w.stream("ks.t")(cursor, rscylla.StreamLag(seconds=LAG_S), rscylla.StreamToHead())
    ids: list[str] = []
    found: list[int] = []
    try:
        while True:
            got = client.recv()
            if isinstance(got, rscylla.Event):
                ids.append(got.id)
                found.append(got.key["ck"])
    except rscylla.HeadReached as e:
        return ids, found, e.cursor
    finally:
        client.close()


@pytest.mark.parametrize("how", ["held", "done", "disabled"])
def test_streams_are_found_over_the_upgrade_by_those_who_list_no_generations(how: str) -> None:
    """Executors of Spark only look streams up."""
    with world("legacy", 4, how=how) as w:
        session = ReadSession(w.session, consistency=ConsistencyLevel.ONE)
        reader, lister = (topology_for(session, "ks", "t") for _ in range(2))
        for second in range(1, 80):
            w.switch(second)
            w.clock.advance(1)
            if second % 8 == 1:
                fresh = topology_for(session, "ks", "t")
                for generation in lister.generations():
                    assert reader.streams(generation) == fresh.streams(generation) == lister.streams(generation)


@pytest.mark.parametrize("restart", [0.0, 0.02], ids=["one client", "restarts"])
@pytest.mark.parametrize(
    ("model", "how"),
    [("vnodes", ""), ("tablets", ""), ("legacy", "held"), ("legacy", "done"), ("legacy", "disabled")],
)
def test_nothing_is_lost_or_out_of_order_while_streams_change(model: str, how: str, restart: float) -> None:
    with world(model, seed=len(model + how), how=how) as w:
        events = w.read("ks.t", restart=restart)
        w.check("ks.t", events)
        assert len(generations_of(events)) > 12, "streams changed all the time"
        assert (w.refused > 0) == (model != "tablets"), "only vnodes refuse the past"


@pytest.mark.parametrize("restart", [0.0, 0.02], ids=["one client", "restarts"])
def test_nothing_is_lost_or_out_of_order_while_alter_table_splits_and_merges(restart: float) -> None:
    with world("tablets", seed=11, ring_delay=timedelta(0)) as w:
        hints = {8: "{'min_tablet_count': 16}", 40: "{'min_tablet_count': 4}", 52: "{'max_tablet_count': 1}"}

        def alter(second: int) -> None:
            if second in hints:
                w.session.execute(f"ALTER TABLE ks.t WITH tablets = {hints[second]}")

        w.switch = alter
        events = w.read("ks.t", restart=restart)
        w.check("ks.t", events)
        current = "SELECT timestamp FROM system.cdc_streams WHERE stream_state = 0 ALLOW FILTERING"
        sizes = Counter(row["timestamp"] for row in w.scylla.execute(current))
        assert [sizes[time] for time in sorted(sizes)] == [2, 4, 8, 16, 8, 4, 2, 1]
        assert generations_of(events) == set(sizes)


def test_a_stream_can_continue_from_any_event() -> None:
    with world("tablets", seed=5) as w:
        w.seconds = 40
        events = w.read("ks.t")
        w.check("ks.t", events)
        ids = [e.id for e in events]
        for at in range(0, len(ids), 29):
            assert to_head(w, ids[at])[0] == [e.id for e in events[at + 1 :]]


def test_tables_of_vnodes_and_of_tablets_are_read_in_one_process() -> None:
    with world("both", seed=3, tables=("ks.t", "tab.t", "tab.u")) as w:
        first = w.read("tab.t")
        w.check("tab.t", first)
        for table in ("ks.t", "tab.u"):
            events = w.read(table)
            w.check(table, events)
            assert (
                len(generations_of(events)) > 12 if table == "ks.t" else generations_of(events) != generations_of(first)
            )
        models = {table: w.stream(table).describe().topology.model for table in w.tables}
        assert models == {"ks.t": "vnodes", "tab.t": "tablets", "tab.u": "tablets"}


# ---------------------------------------------------------------- what goes away


@contextmanager
def quiet(ttl_s: int = 600) -> Iterator[World]:
    """A tablets table in which only what the test does happens."""
    with world("tablets", seed=1) as w:
        w.switch, w.seconds = lambda _: None, 0
        w.session.execute(f"ALTER TABLE ks.t WITH cdc = {{'enabled': true, 'ttl': {ttl_s}}}")
        yield w


def insert(w: World, ck: int) -> None:
    w.session.execute(f"INSERT INTO ks.t (pk, ck) VALUES (1, {ck})")


def test_a_set_that_is_no_longer_listed_is_an_expired_cursor_and_not_an_unknown_one() -> None:
    with quiet() as w:
        insert(w, 1)
        w.clock.advance(LAG_S + 1)
        _, found, cursor = to_head(w, "")
        assert found == [1]
        w.scylla.split_tablets("ks", "t", timedelta(seconds=5))
        w.clock.advance(700)
        insert(w, 2)
        w.clock.advance(LAG_S + 1)
        assert len(w.stream("ks.t").describe().generations) == 1
        with pytest.raises(rscylla.CursorExpired):
            to_head(w, cursor)
        _, found, _ = to_head(w, "")
        assert found == [2]


def test_a_cursor_at_the_end_of_an_expired_set_continues_with_the_next() -> None:
    with quiet() as w:
        first = w.stream("ks.t").describe().generations[0]
        w.scylla.split_tablets("ks", "t", timedelta(seconds=5))
        second = w.stream("ks.t").describe().generations[1]
        w.clock.advance(second.start_us / 1e6 + 600 - w.clock.now_us() / 1e6)
        insert(w, 7)
        w.clock.advance(60)
        kept = w.stream("ks.t").describe()
        assert kept.generations == (second,)
        # The TTL is longer now, so that only the list of sets, and not the time, is what the cursor is measured by.
        w.session.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'ttl': 6000}")
        w.clock.advance(LAG_S)
        _, found, _ = to_head(w, str(rscylla.EventID(first.time, second.start_us)))
        assert found == [7]
        with pytest.raises(
            rscylla.errors.InvalidCursor,
            match="which this table does not have; check that the cursor is not from another table",
        ):
            to_head(w, str(rscylla.EventID(second.time + 1, second.start_us + SECOND)))


def only_progress(client: StreamClient) -> NoReturn:
    while True:
        assert isinstance(client.recv(), rscylla.Progress), "no event of the new table"


def test_a_log_that_is_created_again_while_it_is_read_is_reported() -> None:
    with quiet() as w:
        insert(w, 1)
        w.clock.advance(LAG_S + 1)
        client = w.stream("ks.t")("", rscylla.StreamLag(seconds=LAG_S))
        got = client.recv()
        while isinstance(got, rscylla.Progress):
            got = client.recv()
        assert got.key["ck"] == 1
        w.session.execute("DROP TABLE ks.t")
        w.session.execute("CREATE TABLE ks.t (pk int, ck int, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}")
        insert(w, 2)
        with pytest.raises(rscylla.TableChanged):
            only_progress(client)
        client.close()


def test_a_table_that_is_dropped_while_it_is_read_is_reported() -> None:
    with quiet() as w:
        client = w.stream("ks.t")("", rscylla.StreamLag(seconds=LAG_S))
        w.session.execute("DROP TABLE ks.t")
        with pytest.raises(rscylla.TableNotFound):
            only_progress(client)
        client.close()
