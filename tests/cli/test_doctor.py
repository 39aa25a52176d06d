"""``rscylla doctor`` on an embedded server: what it finds, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

import rscylla
from cursorstore import ScyllaCursorStore
from rscylla.cdc.log.clocks import SAMPLE_TIMEOUT_S
from rscylla.embedded import Clock, EmbeddedScylla, SystemClock
from rscylla.testing import ManualClock

from .conftest import Ran, Run, Shop


def found(ran: Ran) -> dict[str, tuple[str, str]]:
    """Return severity and text of what is not ok, by check."""
    return {o["check"]: (o["severity"], o["what"]) for o in ran.objects if o["severity"] != "ok"}


@pytest.fixture
def examine(run: Run, shop: Shop) -> Run:
    return lambda *arguments: run("doctor", shop.orders, "--host", shop.host, "--json", *arguments)


@pytest.fixture
def store(shop: Shop) -> ScyllaCursorStore:
    return ScyllaCursorStore(shop.session, shop.keyspace, create=True)


@contextmanager
def served(clock: Clock | None = None, **options: object) -> Iterator[tuple[EmbeddedScylla, str]]:
    with EmbeddedScylla(clock=clock, **options) as scylla:  # type: ignore[arg-type]
        scylla.execute("CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        scylla.execute("CREATE TABLE s.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        yield scylla, f"{scylla.contact_points[0]}:{scylla.port}"


def test_a_table_that_is_well(examine: Run, store: ScyllaCursorStore, shop: Shop) -> None:
    store.set_cursor("billing", rscylla.GetCursor(shop.session, shop.keyspace, "orders"))
    ran = examine("--lag", "30", "--store", shop.keyspace, "--consumer", "billing")
    assert (ran.code, found(ran)) == (0, {})
    assert all(set(o) == {"check", "severity", "what", "do"} for o in ran.objects)
    checks = {o["check"] for o in ran.objects}
    assert {"cdc", "log table", "generations", "streams", "permissions", "clock", "cursor table", "cursor"} <= checks


def test_looking_changes_nothing(examine: Run, store: ScyllaCursorStore, shop: Shop) -> None:
    store.create_schema()
    assert examine("--store", shop.keyspace, "--consumer", "billing").code == 0
    assert shop.cql(f"SELECT * FROM {shop.keyspace}.rscylla_cursors") == []


def test_for_people(run: Run, shop: Shop) -> None:
    ran = run("doctor", shop.orders, "--host", shop.host, "--lag", "1")
    assert ran.code == 0
    assert ran.out[0].startswith(f"ok     cdc           CDC of {shop.orders} is enabled")
    (at,) = [i for i, line in enumerate(ran.out) if line.startswith("warn   lag           a lag of 1 s")]
    assert ran.out[at + 1].strip().startswith("-> use 30 s or more")


def test_without_cdc_it_ends_with_4(run: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.plain (id int PRIMARY KEY)")
    ran = run("doctor", f"{shop.keyspace}.plain", "--host", shop.host, "--json")
    assert ran.code == 4
    (only,) = ran.objects
    assert (only["check"], only["severity"]) == ("cdc", "error")
    assert "has no CDC log" in only["what"]
    assert only["do"].startswith("enable it with ALTER TABLE")


def test_missing_tables_and_wrong_options(run: Run, examine: Run, shop: Shop) -> None:
    assert run("doctor", f"{shop.keyspace}.ordesr", "--host", shop.host).code == 4
    assert examine("--consumer", "billing").code == 2
    assert examine("--consistency", "most").code == 2
    assert run("doctor", "orders").code == 2
    assert run("doctor", "a.b", "--host", "127.0.0.1:1").code == 3


def test_cdc_switched_off_and_a_table_that_went_on(examine: Run, shop: Shop) -> None:
    shop.cql(f"ALTER TABLE {shop.orders} WITH cdc = {{'enabled': false}}")
    ran = examine()
    assert (ran.code, found(ran)["cdc"][0]) == (4, "error")
    shop.cql(f"ALTER TABLE {shop.orders} ADD later int")
    assert found(examine())["log table"] == (
        "warn",
        "the log does not fit its table: column 'later' is missing; column 'cdc$deleted_later' is missing",
    )


def test_a_log_that_was_altered_by_hand(examine: Run, shop: Shop) -> None:
    shop.cql(f"ALTER TABLE {shop.orders}_scylla_cdc_log WITH compaction = {{'class': 'SizeTieredCompactionStrategy'}}")
    assert "altered to SizeTieredCompactionStrategy" in found(examine())["log table"][1]


def test_an_ordinary_table_with_the_name_of_a_log(run: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.t (id int PRIMARY KEY) WITH cdc = {{'enabled': false}}")
    shop.cql(f"CREATE TABLE {shop.keyspace}.t_scylla_cdc_log (id int PRIMARY KEY)")
    ran = run("doctor", f"{shop.keyspace}.t", "--host", shop.host, "--json")
    assert ran.code == 4
    assert "an ordinary table" in found(ran)["log table"][1]


def test_a_ttl_that_is_too_short_for_the_lag(examine: Run, shop: Shop) -> None:
    shop.cql(f"ALTER TABLE {shop.orders} WITH cdc = {{'enabled': true, 'ttl': 60, 'delta': 'keys'}}")
    ran = examine("--lag", "45")
    assert ran.code == 4
    assert {check: severity for check, (severity, _) in found(ran).items()} == {"options": "warn", "ttl": "error"}


def test_every_kind_of_column_is_known(run: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TYPE {shop.keyspace}.address (street text, no int)")
    shop.cql(
        f'CREATE TABLE {shop.keyspace}."Kinds" (pk int, "Ck" text, s text static, l list<int>, e set<text>, '
        "m map<int, frozen<list<text>>>, fl frozen<list<int>>, u address, fu frozen<address>, t tuple<int, text>, "
        "d duration, PRIMARY KEY (pk, \"Ck\")) WITH cdc = {'enabled': true}"
    )
    ran = run("doctor", f'{shop.keyspace}."Kinds"', "--host", shop.host, "--json")
    assert (ran.code, found(ran)) == (0, {})


def test_levels_that_miss_writes(examine: Run, shop: Shop) -> None:
    assert examine("--consistency", "ONE", "--writes", "one").code == 0  # of one replica
    shop.cql(
        f"ALTER KEYSPACE {shop.keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
    )
    ran = examine("--consistency", "ONE", "--writes", "QUORUM")
    assert (ran.code, "reads can miss writes permanently" in found(ran)["consistency"][1]) == (4, True)


def test_a_cursor_table_that_is_not_there(examine: Run, shop: Shop) -> None:
    ran = examine("--store", shop.keyspace)
    assert (ran.code, found(ran)["cursor table"][0]) == (4, "error")


def test_cursors_of_slices_the_last_ones_count(examine: Run, store: ScyllaCursorStore, shop: Shop) -> None:
    cursor = rscylla.GetCursor(shop.session, shop.keyspace, "orders")
    store.create_schema()
    options = ("--store", shop.keyspace, "--consumer", "billing")
    assert found(examine(*options))["cursor"][0] == "warn"
    store.set_cursor("billing", "")
    store.set_cursor("billing[0/3]", cursor)
    store.set_cursor("billing[0/2]", cursor)
    store.set_cursor("other", cursor)
    ran = examine(*options)
    names = [o["what"].split("'")[1] for o in ran.objects if o["check"] == "cursor"]
    assert names == ["billing[0/2]", "billing[1/2]"]
    assert found(ran)["cursor"] == ("warn", "'billing[1/2]' has no cursor yet: it will start at the oldest row")


def test_a_cursor_whose_changes_are_lost(run: Run) -> None:
    clock = ManualClock(rscylla.SystemClock().now_us() - 7_200_000_000)
    with served(clock) as (scylla, host):
        session = scylla.connect()
        store = ScyllaCursorStore(session, "s", create=True)
        store.set_cursor("billing", rscylla.NewStream(session, "s", "t", clock=clock).head_cursor(timedelta()))
        scylla.execute("ALTER TABLE s.t WITH cdc = {'enabled': true, 'ttl': 3600}")
        clock.advance(7200)
        ran = run("doctor", "s.t", "--host", host, "--json", "--store", "s", "--consumer", "billing")
    assert (ran.code, found(ran)["cursor"][0]) == (4, "error")
    assert "is older than what the log keeps (3600 s)" in found(ran)["cursor"][1]


@pytest.mark.parametrize(("before", "after", "severity"), [(3600, 86_400, "error"), (86_400, 5400, None)])
def test_a_cursor_is_judged_by_the_ttl_that_its_rows_were_written_with(
    run: Run, before: int, after: int, severity: str | None
) -> None:
    """As the reader judges it."""
    clock = ManualClock(rscylla.SystemClock().now_us() - 14_400_000_000)
    with served(clock) as (scylla, host):
        scylla.execute(f"ALTER TABLE s.t WITH cdc = {{'enabled': true, 'ttl': {before}}}")
        clock.advance(3600)
        session = scylla.connect()
        store = ScyllaCursorStore(session, "s", create=True)
        stream = rscylla.NewStream(session, "s", "t", clock=clock, progress_every=timedelta(0))
        lag = rscylla.StreamLag(seconds=30)
        consumer = rscylla.Consumer("billing", lambda event, fate: None)
        with suppress(rscylla.HeadReached):
            rscylla.run(rscylla.Spec(stream, store, consumer, lag, rscylla.StreamToHead()))
        clock.advance(7200)
        scylla.execute(f"ALTER TABLE s.t WITH cdc = {{'enabled': true, 'ttl': {after}}}")
        clock.advance(3600)
        ran = run("doctor", "s.t", "--host", host, "--json", "--store", "s", "--consumer", "billing")
        try:
            stream(store.get_cursor("billing"), lag).close()
            expired = False
        except rscylla.CursorExpired:
            expired = True
    assert (found(ran).get("cursor", (None,))[0], expired) == (severity, severity == "error")


class MinuteAhead(SystemClock):
    def now_us(self) -> int:
        return super().now_us() + 60_000_000


def test_a_clock_that_is_off_and_the_next_generation(run: Run) -> None:
    with served(MinuteAhead()) as (scylla, host):
        scylla.add_node(timedelta(hours=1))
        ran = run("doctor", "s.t", "--host", host, "--json")
    # The only generation is of the server's time, which is a minute from now.
    assert {check: severity for check, (severity, _) in found(ran).items()} == {
        "clock": "error",
        "generations": "error",
        "permissions": "warn",
    }
    # What the answer took on its way is taken off: at most the time that a node has to answer.
    (off,) = re.findall(r"([+-]\d+\.\d) s different", found(ran)["clock"][1])
    assert 60 - SAMPLE_TIMEOUT_S <= float(off) <= 60


def test_a_generation_that_is_coming_and_tablets(run: Run) -> None:
    with served() as (scylla, host):
        scylla.add_node(timedelta(hours=1))
        scylla.execute(
            "CREATE KEYSPACE tab WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            "AND tablets = {'initial': 4}"
        )
        scylla.execute("CREATE TABLE tab.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        ran = run("doctor", "s.t", "--host", host, "--json")
        (generations,) = [o["what"] for o in ran.objects if o["check"] == "generations"]
        assert "2 known" in generations
        assert "the next one starts in 59 min" in generations or "in 1 h" in generations
        tablets = run("doctor", "tab.t", "--host", host, "--json")
    assert (ran.code, found(ran), tablets.code, found(tablets)) == (0, {}, 0, {})
    assert any(o["what"].startswith("4 streams (tablets)") for o in tablets.objects)


def test_a_node_that_is_down_or_hangs(run: Run) -> None:
    with served(nodes=2) as (scylla, host):
        scylla.execute("CREATE KEYSPACE two WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
        scylla.execute("CREATE TABLE two.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        scylla.faults.stop_node(scylla.contact_points[1])
        ran = run("doctor", "two.t", "--host", host, "--json")
    assert found(ran)["nodes"][0] == "warn"
    assert scylla.contact_points[1] in found(ran)["nodes"][1]
