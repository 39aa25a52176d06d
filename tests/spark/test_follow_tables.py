"""Queries of several tables as lanes of a service, without Java: the queries are played."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry
from py4j.protocol import Py4JError
from waiting import eventually

import rscylla
from cursorstore import MemoryCursorStore
from rscylla import spark as rs
from rscylla.errors import SparkFailed
from rscylla.event import EventID, LogMark
from rscylla.spark.loops import follow_tables
from rscylla.spark.source.offsets import Offset

LOG = "00" * 16
OPTIONS = {"contactPoints": "n", "lag": "30s"}
QUICK = rscylla.Restarts(
    give_up="park", backoff=rscylla.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=2))
)


@attrs.define
class Progress:
    json: str


class Query:
    """What a lane uses of a ``StreamingQuery``."""

    def __init__(self) -> None:
        self.isActive = True
        self.looks = 0
        self._last: Progress | None = None
        self.failure: Exception | None = None
        self.stopped = threading.Event()

    def done(self, us: int) -> None:
        offset = Offset(LOG, us, 1, ttl_s=60).as_json()
        self._last = Progress(json.dumps({"sources": [{"endOffset": offset}]}))

    @property
    def lastProgress(self) -> Progress | None:
        self.looks += 1
        return self._last

    def end(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.isActive = False

    def exception(self) -> Exception | None:
        return self.failure

    def stop(self) -> None:
        self.isActive = False
        self.stopped.set()


class Sink:
    def apply(self, changes: Any, window: Any) -> bool:
        return True


class Table(Sink):
    cursor = ""


class Played:
    """Stands in for ``follow``: keeps what was asked, and the queries of each table in the order of their starts."""

    def __init__(self) -> None:
        self.queries: dict[str, list[Query]] = defaultdict(list)
        self.asked: dict[str, list[Any]] = defaultdict(list)
        self.begin: Callable[[str, Query], None] = lambda _table, _query: None

    def __call__(self, _spark: Any, options: Any, sink: Any, **more: Any) -> Query:
        table = f"{options['keyspace']}.{options['table']}"
        query = Query()
        self.asked[table].append((options, sink, more))
        self.queries[table].append(query)
        self.begin(table, query)
        return query


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()
    monkeypatch.setattr(follow_tables, "follow", found)
    return found


def service(tables: Any, store: Any = None, sink_of: Any = lambda _: Sink(), **more: Any) -> rscylla.Service:
    more = {"restarts": QUICK, "registry": CollectorRegistry(), "checkpoints": "/c/", **more}
    return rs.follow_tables(None, OPTIONS, tables, sink_of, store=store, **more)


def at(us: int) -> str:
    return str(EventID(1, us, mark=LogMark(bytes(16), ttl_s=60)))


def test_each_table_has_a_query_and_the_store_knows_how_far_it_is(played: Played) -> None:
    store = MemoryCursorStore()
    running = service({"shop.a": {"lag": "1m"}, "shop.b": {}}, store, trigger={"availableNow": True})
    with running:
        [a], [b] = (eventually(lambda t=t: played.queries[t]) for t in ("shop.a", "shop.b"))
        a.done(5)
        eventually(lambda: store.get_cursor("spark.shop.a") == at(5))
        a.done(9)
        a.end()
        b.done(7)
        b.end()
        assert running.wait(timedelta(seconds=30))
    assert (running.exit_code, running.failure) == (0, None)
    assert [store.get_cursor(f"spark.shop.{t}") for t in "ab"] == [at(9), at(7)], "also of the last batch"
    [(options, _, more)] = played.asked["shop.a"]
    assert (options["lag"], played.asked["shop.b"][0][0]["lag"]) == ("1m", "30s")
    assert more == {"checkpoint": "/c/shop.a", "trigger": {"availableNow": True}, "name": "spark.shop.a"}
    assert a.stopped.is_set()


def test_a_query_that_fails_starts_again_and_the_others_continue(played: Played) -> None:
    def begin(table: str, query: Query) -> None:
        if table == "shop.a" and len(played.queries[table]) < 4:
            query.end(Py4JError("an executor was lost"))

    played.begin = begin
    running = service(["shop.a", "shop.b"])
    with running:
        eventually(lambda: len(played.queries["shop.a"]) == 4)
        eventually(lambda: {f.state for f in running.facts().lanes} == {"streaming"})
        lanes = {f.consumer: f for f in running.facts().lanes}
        assert (lanes["spark.shop.a"].restarts, lanes["spark.shop.b"].restarts) == (3, 0)
        assert lanes["spark.shop.a"].source == "shop.a"
        assert "Spark failed: Py4JError" in lanes["spark.shop.a"].last_error
    assert len(played.queries["shop.b"]) == 1
    assert all(queries[-1].stopped.is_set() for queries in played.queries.values())
    assert running.exit_code == 0


def test_a_query_that_cannot_continue_is_parked(played: Played) -> None:
    def begin(table: str, query: Query) -> None:
        if table == "shop.a":
            query.end(Py4JError("x rscylla.errors.ConfigError: the table ends before the checkpoint"))

    played.begin = begin
    running = service(["shop.a", "shop.b"], trigger={"availableNow": True})
    running.start()
    eventually(lambda: {f.state for f in running.facts().lanes} == {"parked", "streaming"})
    [why] = [f.why for f in running.facts().lanes if f.state == "parked"]
    assert "the table ends before the checkpoint" in why
    assert running.ready()["status"] != "ok"
    played.queries["shop.b"][0].end()
    assert running.wait(timedelta(seconds=30))
    assert (running.exit_code, len(played.queries["shop.a"])) == (1, 1)


def test_only_a_sink_without_a_cursor_starts_at_that_of_the_store(played: Played) -> None:
    store = MemoryCursorStore(cursors={f"spark.shop.{t}": at(50) for t in "ab"})
    sinks = {"shop.a": Sink(), "shop.b": Table()}
    with service(list(sinks), store, sinks.__getitem__):
        [a] = eventually(lambda: played.queries["shop.a"])
        eventually(lambda: played.queries["shop.b"])
        a.done(20)  # the checkpoint is behind: the table has these batches
        looks = a.looks
        eventually(lambda: a.looks > looks + 1)
        a.done(60)
        eventually(lambda: store.get_cursor("spark.shop.a") == at(60))
    assert played.asked["shop.a"][0][0]["startingposition"] == at(50)
    assert "startingposition" not in played.asked["shop.b"][0][0]


@pytest.mark.parametrize("tables", ["shop.a", ["shop.a", "shop.a"], [], {}])
def test_names_that_are_no_list_of_tables_are_refused(tables: Any) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"^tables must be a list of different names, .*, not ") as caught:
        service(tables)
    assert str(caught.value).endswith(repr(tables))


@pytest.mark.parametrize("table", ["a", "shop.", ".a", ("shop", "a")])
@pytest.mark.parametrize("options", [{}, {"keyspace": "shop"}])
def test_a_name_without_its_keyspace_is_refused(table: Any, options: dict[str, str]) -> None:
    nothing: Any = None  # no session, as none is asked
    with pytest.raises(rscylla.ConfigError, match=r"^tables must have names as keyspace\.table, such as") as caught:
        rs.follow_tables(nothing, OPTIONS | options, [table], lambda _: Sink(), checkpoints="/c")
    assert f"not {table!r}; the keyspace is part of each name" in str(caught.value)


@pytest.mark.parametrize(
    "trigger",
    [
        *("30 seconds", {}, {"every": "1 minute"}, {"once": True, "availableNow": True}),
        *({"availableNow": False}, {"once": 1}, {"processingTime": 30}, {"processingTime": " "}),
        *({"once": None}, {"every": None, "once": True}, {"continuous": "1 second"}, {"realTime": "5 minutes"}),
    ],
)
def test_what_is_no_trigger_is_refused_before_anything_starts(trigger: Any) -> None:
    nothing: Any = None
    given = {**OPTIONS, "keyspace": "k", "table": "t"}
    for call in (
        lambda: rs.follow(nothing, given, Sink(), checkpoint="/c", trigger=trigger),
        lambda: rs.QueryStream(nothing, given, Sink(), checkpoint="/c", trigger=trigger),
        lambda: service(["k.t"], trigger=trigger),
    ):
        with pytest.raises(rscylla.ConfigError, match=r"^trigger must be a mapping with one of availableNow, ") as told:
            call()
        assert str(told.value).endswith(f" or {{'processingTime': '30 seconds'}}, not {trigger!r}")


@pytest.mark.parametrize("text", ["", " ", 5, Path("/c")])
def test_what_is_no_text_is_refused_before_anything_starts(text: Any) -> None:
    nothing: Any = None
    given = {**OPTIONS, "keyspace": "k", "table": "t"}
    for name, call in (
        ("checkpoint", lambda: rs.follow(nothing, given, Sink(), checkpoint=text)),
        ("checkpoint", lambda: rs.QueryStream(nothing, given, Sink(), checkpoint=text)),
        ("name", lambda: rs.follow(nothing, given, Sink(), checkpoint="/c", name=text)),
        ("name", lambda: rs.QueryStream(nothing, given, Sink(), checkpoint="/c", name=text)),
        ("checkpoints", lambda: service(["k.t"], checkpoints=text)),
    ):
        with pytest.raises(rscylla.ConfigError) as told:
            call()
        assert str(told.value) == f"{name}= requires a text that is not empty, not {text!r}"


def test_a_query_that_could_not_be_stopped_is_stopped_before_its_lane_starts_it_again(played: Played) -> None:
    spark: Any = None
    stream = rs.QueryStream(spark, {**OPTIONS, "keyspace": "k", "table": "t"}, Table(), checkpoint="c", name="lane")
    stream("")
    [first] = played.queries["k.t"]
    played.begin = lambda _table, _query: first.stopped.is_set() or pytest.fail("its name is in use")
    stream("")
    assert len(played.queries["k.t"]) == 2


@pytest.mark.parametrize(
    ("trigger", "wanted"),
    [
        ({"availableNow": True}, rscylla.HeadReached),
        ({"once": True}, rscylla.HeadReached),
        ({"processingTime": "1 second", "once": None}, SparkFailed),
        ({"processingTime": "1 second"}, SparkFailed),
        (None, SparkFailed),
    ],
)
def test_a_query_without_an_end_that_somebody_stopped_is_not_done(
    played: Played, trigger: dict[str, Any] | None, wanted: type[Exception]
) -> None:
    options = {**OPTIONS, "keyspace": "k", "table": "t"}
    spark: Any = None
    client = rs.QueryStream(spark, options, Table(), checkpoint="c", trigger=trigger)("")
    client._query.stop()
    with pytest.raises(wanted):
        client.recv()
