"""Schema changes while a window is read: each page means what its own columns say, whichever page comes first."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import Any

import attrs
import pytest

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.cdc.rows import ColumnState
from rscylla.driver.session import RawRead, ReadSession
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

LAG = rscylla.StreamLag(seconds=30)


@attrs.define
class Shop:
    """A table on a driven clock, and statements that are executed while its log is read.

    ``old_page_last``: the first page comes after the second, which was read after the statements.
    """

    scylla: EmbeddedScylla
    session: rscylla.Session
    clock: ManualClock
    between: list[tuple[str, ...]] = attrs.Factory(list)
    old_page_last: bool = False
    held: SimpleQueue[Callable[[], None]] = attrs.Factory(SimpleQueue)
    store: MemoryCursorStore = attrs.Factory(MemoryCursorStore)
    keys: list[dict[str, Any]] = attrs.Factory(list)

    def run(self, *statements: str) -> None:
        for cql in statements:
            self.session.execute(cql)
            self.clock.advance(0.001)

    def later(self, *statements: str) -> None:
        """Execute *statements* before the second page of a log is read; those of the next call before the third."""
        self.between.append(statements)

    def send(self, ask: Callable[..., None], read: RawRead, state: bytes | None, on_page: Any, on_error: Any) -> None:
        """Ask for a page, after the statements that are due before it."""
        if "*" not in read.statement.prepared.query_string or not self.between:
            ask(on_page=on_page, on_error=on_error)
        elif self.old_page_last and self.held.empty():
            ask(on_page=lambda page: self.held.put(lambda: on_page(page)), on_error=on_error)
            self.held.put(self.held.get(timeout=60))  # the page has come
        elif self.old_page_last:
            self._execute_due()
            release = self.held.get()
            ask(on_page=lambda page: (on_page(page), release()), on_error=on_error)
        else:
            if state is not None:
                self._execute_due()
            ask(on_page=on_page, on_error=on_error)

    def _execute_due(self) -> None:
        for cql in self.between.pop(0):
            self.scylla.execute(cql)

    def stream(self, *, page_size: int = 2, **options: Any) -> rscylla.Stream:
        limits = rscylla.Limits(page_size=page_size)
        return rscylla.NewStream(self.session, "ks", "t", clock=self.clock, prefetch=0, limits=limits, **options)

    def events(self, since_us: int | None = None, **options: Any) -> list[rscylla.ChangeEvent]:
        """Return all that was written until now."""
        self.clock.advance(31)
        stream = self.stream(**options)
        cursor = "" if since_us is None else stream.cursor_at(datetime.fromtimestamp(since_us / 1e6, UTC))
        client = stream(cursor, LAG, rscylla.StreamToHead())
        found = []
        with suppress(rscylla.HeadReached):
            while True:
                got = client.recv()
                if isinstance(got, rscylla.ChangeEvent):
                    found.append(got)
        client.close()
        assert not self.between
        return found

    def consume(self, **options: Any) -> None:
        """Run a consumer with a saved cursor to the head."""
        self.clock.advance(31)
        consumer = rscylla.Consumer("c", lambda event, _: self.keys.append(dict(event.key)), registry=None)
        spec = rscylla.Spec(self.stream(**options), self.store, consumer, LAG, rscylla.StreamToHead(), clock=self.clock)
        with suppress(rscylla.HeadReached):
            rscylla.run(spec)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A keyspace of one stream, or as many as the parameter says."""
    clock = ManualClock()
    send = ReadSession.send
    with EmbeddedScylla(clock=clock, seed=7, tablets=True) as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            f"AND tablets = {{'initial': {getattr(request, 'param', 1)}}}"
        )
        shop = Shop(scylla, session, clock)

        def send_between(self: ReadSession, read: RawRead, state: bytes | None, **answers: Any) -> None:
            shop.send(partial(send, self, read, state), read, state, **answers)

        monkeypatch.setattr(ReadSession, "send", send_between)
        yield shop


def six_rows(shop: Shop, columns: str, **values: str) -> None:
    """Make a table, which may have addresses, and write six rows; a % in *values* is the row's id."""
    shop.run("CREATE TYPE ks.addr (street text)")
    shop.run(f"CREATE TABLE ks.t (id int PRIMARY KEY, {columns}) WITH cdc = {{'enabled': true}}")
    for i in range(6):
        texts = ", ".join(v.replace("%", str(i)) for v in values.values())
        shop.run(f"INSERT INTO ks.t (id, {', '.join(values)}) VALUES ({i}, {texts})")


def afters(events: list[rscylla.ChangeEvent]) -> dict[int, Any]:
    return {e.key["id"]: dict(e.change.after or {}) for e in events}


# ---------------------------------------------------------------- user-defined types


def test_a_type_gets_a_field_while_a_window_is_read(shop: Shop) -> None:
    six_rows(shop, "a frozen<addr>, b addr", a="{street: 'a%'}", b="{street: 'b%'}")
    shop.later("ALTER TYPE ks.addr ADD zip int")
    events = shop.events()
    more = [{}, {}, *[{"zip": None}] * 4]
    assert afters(events) == {
        i: {"a": {"street": f"a{i}"} | more[i], "b": {"street": f"b{i}"} | more[i]} for i in range(6)
    }
    assert {e.change.columns["b"].state for e in events} == {ColumnState.OVERWRITTEN}
    assert events[0].change.cql_types == {"id": "int", "a": "frozen<addr>", "b": "addr"}


NESTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "frozen<list<frozen<addr>>>": ("[{street: 'x%'}]", lambda v: v[0]),
    "list<frozen<addr>>": ("[{street: 'x%'}]", lambda v: v[0]),
    "set<frozen<addr>>": ("{{street: 'x%'}}", lambda v: v[0]),
    "map<int, frozen<addr>>": ("{1: {street: 'x%'}}", lambda v: v[1]),
    "map<frozen<addr>, int>": ("{{street: 'x%'}: 1}", lambda v: dict(next(iter(v)))),
    "tuple<int, frozen<addr>>": ("(1, {street: 'x%'})", lambda v: v[1]),
    "frozen<map<int, frozen<set<frozen<addr>>>>>": ("{1: {{street: 'x%'}}}", lambda v: v[1][0]),
}


@pytest.mark.parametrize("type_", NESTED)
def test_a_type_inside_of_others_gets_fields_while_a_window_is_read(shop: Shop, type_: str) -> None:
    text, inner = NESTED[type_]
    six_rows(shop, f"v {type_}", v=text)
    shop.later("ALTER TYPE ks.addr ADD zip int")
    shop.later("ALTER TYPE ks.addr ADD town text")
    found = {i: inner(after["v"]) for i, after in afters(shop.events()).items()}
    more = [{}, {}, *[{"zip": None}] * 2, *[{"zip": None, "town": None}] * 2]
    assert found == {i: {"street": f"x{i}"} | more[i] for i in range(6)}


def test_a_type_of_which_a_field_is_renamed_while_a_window_is_read(shop: Shop) -> None:
    six_rows(shop, "a frozen<addr>, b addr", a="{street: 'a%'}", b="{street: 'b%'}")
    shop.later("ALTER TYPE ks.addr RENAME street TO road")
    names = ["street", "street", "road", "road", "road", "road"]
    assert afters(shop.events()) == {i: {"a": {n: f"a{i}"}, "b": {n: f"b{i}"}} for i, n in enumerate(names)}


@pytest.mark.parametrize("shop", [2], indirect=True)
@pytest.mark.parametrize("old_page_last", [False, True])
def test_pages_of_two_streams_come_in_any_order(shop: Shop, old_page_last: bool) -> None:
    began_us = shop.clock.now_us()
    six_rows(shop, "a frozen<addr>, b addr, l list<int>", a="{street: 'a%'}", b="{street: 'b%'}", l="[%]")
    shop.old_page_last = old_page_last
    shop.later("ALTER TYPE ks.addr ADD zip int", "ALTER TABLE ks.t DROP l", "ALTER TABLE ks.t ADD n int")
    events = shop.events(began_us, streams_per_query=1, page_size=100 if old_page_last else 1)
    found = afters(events)
    old = {i for i in found if "l" in found[i]}
    assert 0 < len(old) < 6
    for i, after in found.items():
        more, others = ({}, {"l": [i]}) if i in old else ({"zip": None}, {})
        assert after == {"a": {"street": f"a{i}"} | more, "b": {"street": f"b{i}"} | more, **others}
    assert [e.key["id"] for e in events] == list(range(6))


# ---------------------------------------------------------------- records of several pages


def test_a_change_and_its_images_are_read_in_one_way(shop: Shop) -> None:
    shop.run("CREATE TYPE ks.addr (street text)")
    options = "{'enabled': true, 'preimage': true, 'postimage': true}"
    shop.run(f"CREATE TABLE ks.t (id int PRIMARY KEY, b addr) WITH cdc = {options}")
    shop.run("INSERT INTO ks.t (id, b) VALUES (0, {street: 'x'})", "UPDATE ks.t SET b.street = 'y' WHERE id = 0")
    shop.later()
    shop.later()
    shop.later("ALTER TYPE ks.addr ADD zip int")  # between the second preimage and its delta
    first, second = shop.events(page_size=1)
    assert first.change.after == {"b": {"street": "x"}}
    assert second.change.before == {"b": {"street": "x", "zip": None}}
    assert second.change.column("b").added == {"street": "y"}
    assert second.change.after == {"b": {"street": "y", "zip": None}}
    assert second.change.batch.complete


def test_a_batch_that_lies_on_pages_of_different_columns_is_whole(shop: Shop) -> None:
    shop.run("CREATE TYPE ks.addr (street text)")
    columns = "id int, ck int, b frozen<addr>, gone list<text>, PRIMARY KEY (id, ck)"
    shop.run(f"CREATE TABLE ks.t ({columns}) WITH cdc = {{'enabled': true}}")
    rows = [f"(0, {i}, {{street: 'b{i}'}}, ['g{i}'])" for i in range(6)]
    inserts = "; ".join(f"INSERT INTO ks.t (id, ck, b, gone) VALUES {row}" for row in rows)
    shop.run(f"BEGIN BATCH {inserts}; APPLY BATCH")
    shop.later("ALTER TABLE ks.t DROP gone")
    shop.later("ALTER TYPE ks.addr ADD zip int", "ALTER TABLE ks.t ADD more int")
    events = shop.events()
    assert [e.change.after["b"] for e in events] == [{"street": f"b{i}", "zip": None} for i in range(6)]
    assert [e.change.after.get("gone") for e in events] == [["g0"], ["g1"], None, None, None, None]
    assert [e.change.batch_end for e in events] == [False] * 5 + [True]
    assert {(e.change.batch.complete, e.change.batch.size) for e in events} == {(True, 6)}


# ---------------------------------------------------------------- lists


def test_a_list_that_is_dropped_while_a_window_is_read_stays_a_list(shop: Shop) -> None:
    six_rows(shop, "l list<text>, n int", l="['x%', 'y']", n="%")
    shop.later("ALTER TABLE ks.t DROP l")
    events = shop.events()
    assert afters(events) == {i: {"n": i, "l": [f"x{i}", "y"]} if i < 2 else {"n": i} for i in range(6)}
    assert events[0].change.cql_types == {"id": "int", "l": "list<text>", "n": "int"}
    assert events[-1].change.cql_types == {"id": "int", "n": "int"}


def test_a_list_that_comes_and_goes_while_a_window_is_read_is_a_list(shop: Shop) -> None:
    """The reader never sees the table with the columns; only its dropped columns show what they were."""
    key = "00000000-0000-1000-8080-808080808080"
    six_rows(shop, "n int", n="%")
    later_us = shop.clock.now_us() - 3_500  # between the third and the fourth row
    shop.later(
        "ALTER TABLE ks.t ADD (l list<text>, m map<timeuuid, text>)",
        f"INSERT INTO ks.t (id, l, m) VALUES (9, ['x'], {{{key}: 'y'}}) USING TIMESTAMP {later_us}",
    )
    shop.later("ALTER TABLE ks.t DROP (l, m)")
    found = afters(shop.events())
    assert found == {9: {"l": ["x"], "m": {uuid.UUID(key): "y"}}} | {i: {"n": i} for i in range(6)}


# ---------------------------------------------------------------- keys


def keyed(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE ks.t (id int, ck int, v int, s int static, PRIMARY KEY (id, ck)) WITH cdc = {'enabled': true}"
    )


LOST = r"a key column of ks\.t was renamed at .* UTC, and the log no longer has the keys"


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO ks.t (id, ck, v) VALUES (1, 2, 2)",
        "UPDATE ks.t SET v = 2 WHERE id = 1 AND ck = 2",
        "DELETE v FROM ks.t WHERE id = 1 AND ck = 2",
        "DELETE FROM ks.t WHERE id = 1 AND ck = 2",
        "DELETE FROM ks.t WHERE id = 1 AND ck >= 2",
        "DELETE FROM ks.t WHERE id = 1 AND ck > 2 AND ck < 4",
    ],
)
def test_a_change_whose_key_went_with_a_rename_is_an_error_and_no_other_change(shop: Shop, write: str) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)")
    shop.consume()
    written_us = shop.clock.now_us()
    shop.run(write, "ALTER TABLE ks.t RENAME ck TO cc")
    with pytest.raises(rscylla.RunError, match=LOST) as told:
        shop.consume()
    assert isinstance(told.value.__cause__, rscylla.TableChanged)
    assert not told.value.resumable
    assert shop.keys == [{"id": 1, "ck": 1}]
    assert rscylla.EventID.parse(shop.store.get_cursor("c")).exact_us <= written_us


def test_a_partition_key_that_was_renamed_is_lost_in_all_changes(shop: Shop) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)")
    shop.consume()
    shop.run("DELETE FROM ks.t WHERE id = 1", "ALTER TABLE ks.t RENAME id TO pid")
    with pytest.raises(rscylla.RunError, match=LOST):
        shop.consume()


def test_what_does_not_need_the_renamed_column_is_delivered(shop: Shop) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)")
    shop.consume()
    shop.run("UPDATE ks.t SET s = 1 WHERE id = 2", "DELETE s FROM ks.t WHERE id = 3", "DELETE FROM ks.t WHERE id = 4")
    shop.run("ALTER TABLE ks.t RENAME ck TO cc", "DELETE FROM ks.t WHERE id = 5 AND cc > 1")
    shop.consume()
    assert shop.keys[1:] == [{"id": 2}, {"id": 3}, {"id": 4}, {"id": 5}]


def test_keys_that_are_lost_behind_the_first_event_are_an_error_also_if_the_names_come_back(shop: Shop) -> None:
    keyed(shop)
    cursor = shop.stream().cursor_at(datetime.fromtimestamp(shop.clock.now_us() / 1e6, UTC))
    for i in range(3):
        shop.run(f"INSERT INTO ks.t (id, ck, v) VALUES (1, {i}, {i})")
        shop.clock.advance(100)
    client = shop.stream()(cursor, LAG, rscylla.StreamToHead())
    found = [client.recv()]
    for old, new in (("ck", "other"), ("other", "ck")):
        shop.run(f"ALTER TABLE ks.t RENAME {old} TO {new}")
        shop.clock.advance(6)  # Scylla lets no column come back at once, and the table was read 12 s ago
    with pytest.raises(rscylla.TableChanged, match=LOST):
        found += iter(client.recv, None)
    client.close()
    assert [dict(e.key) for e in found if isinstance(e, rscylla.ChangeEvent)] == [{"id": 1, "ck": 0}]


@pytest.mark.parametrize("late", [False, True])
def test_a_consumer_that_has_read_everything_continues_after_a_rename(shop: Shop, late: bool) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)")
    shop.consume()
    last = shop.events()[-1].id
    shop.run("ALTER TABLE ks.t RENAME ck TO cc")
    if late:
        shop.store.reset_cursor("c", last, reason="as a crash right after the last event leaves it")
    shop.run("INSERT INTO ks.t (id, cc, v) VALUES (1, 2, 2)")
    shop.consume()
    assert shop.keys == [{"id": 1, "ck": 1}, {"id": 1, "cc": 2}]


def test_pages_from_before_a_rename_have_the_names_of_their_time(shop: Shop) -> None:
    keyed(shop)
    for i in range(2):
        shop.run(f"INSERT INTO ks.t (id, ck, v) VALUES (1, {i}, {i})")
    shop.later("ALTER TABLE ks.t RENAME ck TO cc", "INSERT INTO ks.t (id, cc, v) VALUES (1, 2, 2)")
    shop.run("DELETE FROM ks.t WHERE id = 2")
    events = shop.events()
    assert [dict(e.key) for e in events] == [{"id": 1, "ck": 0}, {"id": 1, "ck": 1}, {"id": 2}]
    shop.run("UPDATE ks.t SET v = 7 WHERE id = 1 AND cc = 1")
    assert shop.stream().lookup(events[1]) == {"id": 1, "cc": 1, "s": None, "v": 7}


def test_changes_whose_keys_are_lost_are_left_out_where_that_is_asked_for(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)")
    shop.consume()
    for i in range(5):
        shop.run(f"INSERT INTO ks.t (id, ck, v) VALUES (1, {i}, {i})")
        shop.clock.advance(3)
    shop.run("UPDATE ks.t SET s = 1 WHERE id = 2", "ALTER TABLE ks.t RENAME ck TO cc")
    shop.run("INSERT INTO ks.t (id, cc, v) VALUES (1, 2, 2)")
    shop.consume(on_expired="oldest")
    assert shop.keys[1:] == [{"id": 2}, {"id": 1, "cc": 2}]
    assert len([r for r in caplog.records if "was renamed at" in r.getMessage()]) == 1


def test_a_new_consumer_gets_no_error_for_keys_that_were_lost_before_it_started(shop: Shop) -> None:
    keyed(shop)
    shop.run("INSERT INTO ks.t (id, ck, v) VALUES (1, 1, 1)", "ALTER TABLE ks.t RENAME ck TO cc")
    shop.run("INSERT INTO ks.t (id, cc, v) VALUES (1, 2, 2)")
    assert [dict(e.key) for e in shop.events()] == [{"id": 1, "cc": 2}]
