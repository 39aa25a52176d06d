"""What is known of a log, and whether an answer that contradicts it is believed at once or asked for again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unauthorized
from fakelog import EPOCH_TICKS, NOW_US, SECOND, FakeLog, Host, log_time, stream_id

from rscylla.cdc.log.lifetimes import EARLY_US
from rscylla.cdc.log.resume import resume
from rscylla.cdc.log.same import SETTLING_US, check_log, naming_dropped_log
from rscylla.cdc.log.source import METADATA_EVERY_S, Source
from rscylla.cdc.log.walk import Gap, Width
from rscylla.cdc.read.follow import Follower
from rscylla.cdc.stream import Stream
from rscylla.clock import Stop
from rscylla.errors import CursorExpired, NoStreams, QueryFailed, QueryTimeout, Stopped, TableChanged, TableNotFound
from rscylla.event import EventID, cursor_key
from rscylla.options import StreamLag, resolve

HOUR = 3600 * SECOND
DAY = 24 * HOUR


def id_of(us: int) -> uuid.UUID:
    """Return the id of a table that was created at *us*."""
    return uuid.UUID(bytes=log_time(us))


def source_of(log: FakeLog) -> Source:
    found = Source(log, log.keyspace, log.table, log.clock, Stop())  # type: ignore[arg-type]
    log.clock.waits.clear()
    return found


@pytest.fixture
def old(log: FakeLog) -> FakeLog:
    """A log that was created an hour ago."""
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = id_of(NOW_US - HOUR)
    assert log.log_id.time == (NOW_US - HOUR) * 10 + EPOCH_TICKS
    return log


@pytest.mark.parametrize("seen_us", [NOW_US - 2 * HOUR, NOW_US])
def test_another_log_of_an_old_table_is_reported_at_once(old: FakeLog, seen_us: int) -> None:
    source = source_of(old)
    old.log_id = id_of(seen_us)
    with pytest.raises(TableChanged):
        source.reread_table(retrying=True)
    assert old.clock.waits == []


def test_a_dropped_old_table_is_reported_at_once(old: FakeLog) -> None:
    source = source_of(old)
    old.table = "other"
    with pytest.raises(TableNotFound):
        source.reread_table(retrying=True)
    assert old.clock.waits == []


@pytest.mark.parametrize("executor", [False, True], ids=["by a source", "by an executor"])
@pytest.mark.parametrize("former", [True, False], ids=["the former table", "no table"])
def test_a_new_table_is_asked_for_again_while_a_node_may_not_know_it(
    log: FakeLog, former: bool, executor: bool
) -> None:
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = new = id_of(NOW_US - SETTLING_US // 2)
    source = source_of(log)
    name = log.table

    def learn(_: float) -> None:
        if len(log.clock.waits) > 1:
            log.table, log.log_id = name, new

    log.clock.on_wait = learn
    if former:
        log.log_id = id_of(NOW_US - HOUR)
    else:
        log.table = "other"
    if executor:
        assert check_log(source.session, source.table, log.clock, Stop()) == NOW_US
    else:
        assert source.reread_table().log_id == new
    assert len(log.clock.waits) > 1


def test_a_new_table_that_was_created_again_is_reported_at_once(log: FakeLog) -> None:
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = id_of(NOW_US - SETTLING_US // 2)
    source = source_of(log)
    log.log_id = id_of(NOW_US - SETTLING_US // 4)
    with pytest.raises(TableChanged):
        source.reread_table(retrying=True)
    assert log.clock.waits == []


def test_a_dropped_table_is_reported_before_missing_generations(old: FakeLog) -> None:
    source = source_of(old)
    old.generations.clear()
    with pytest.raises(NoStreams):
        source.refresh_generations()
    old.table = "other"
    with pytest.raises(TableNotFound):
        source.refresh_generations()


@pytest.mark.parametrize(("after_s", "told"), [(-1, True), (30, True), (90, False)])
def test_a_row_that_the_log_lacks_is_of_a_former_log_if_its_stamp_may_be_from_before(
    old: FakeLog, monkeypatch: pytest.MonkeyPatch, after_s: int, told: bool
) -> None:
    """A node whose clock is ahead may have stamped a row of the former log later than the new one was created."""
    answer = old.rows

    def rows(cql: str, *given: Any, **named: Any) -> Any:
        return [] if "SELECT TTL(" in cql else answer(cql, *given, **named)

    monkeypatch.setattr(old, "rows", rows)
    monkeypatch.setattr(old, "consistency", 4, raising=False)
    monkeypatch.setattr(old, "quorum_at_least", 4, raising=False)
    row = EventID.row((NOW_US - 2 * HOUR) // 1000, stream_id(1), log_time(NOW_US - HOUR + after_s * SECOND), 0)
    stream = Stream(old, "ks", "t", clock=old.clock, prefetch=0)  # type: ignore[arg-type]
    if told:
        with pytest.raises(TableChanged):
            stream(str(row), StreamLag(seconds=30))
        start = str(resume(source_of(old), str(row), "oldest"))
        assert cursor_key(start) > cursor_key(str(row)), "a store refuses a lower cursor"
    else:
        stream(str(row), StreamLag(seconds=30)).close()


def test_a_row_that_has_expired_only_on_a_fast_node_proves_no_former_log(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    created_us = NOW_US - DAY + 300 * SECOND
    log.generation(NOW_US - 2 * DAY, [stream_id(1)])
    log.log_id = id_of(created_us)
    log.nodes = [Host("a", 0), Host("b", 600 * SECOND)]
    answer = log.rows

    def rows(cql: str, *given: Any, **named: Any) -> Any:
        assert "SELECT TTL(" not in cql, "what has expired need not be looked for"
        return answer(cql, *given, **named)

    monkeypatch.setattr(log, "rows", rows)
    row = EventID.row((NOW_US - 2 * DAY) // 1000, stream_id(1), log_time(created_us + 30 * SECOND), 0)
    stream = Stream(log, "ks", "t", clock=log.clock, prefetch=0)  # type: ignore[arg-type]
    with pytest.raises(CursorExpired):
        stream(str(row), StreamLag(seconds=30))


def test_time_before_any_generation_and_expired_rows_after_it_are_one_gap(log: FakeLog) -> None:
    log.generation(NOW_US - 3 * DAY, [stream_id(1)])
    source = source_of(log)
    expired_us = source.now_us() - DAY + EARLY_US
    assert source.gaps_after(NOW_US - 5 * DAY) == (Gap(NOW_US - 5 * DAY, expired_us, DAY // SECOND),)
    assert source.gaps_after(NOW_US - 2 * DAY) == (Gap(NOW_US - 2 * DAY, expired_us, DAY // SECOND),)
    assert source.gaps_after(NOW_US - HOUR) == ()


def test_a_young_log_is_read_from_its_very_beginning(log: FakeLog) -> None:
    log.generation(NOW_US - HOUR, [stream_id(1)])
    source = source_of(log)
    assert source.gaps_after(NOW_US - DAY) == (Gap(NOW_US - DAY, NOW_US - HOUR),)
    assert source.safe_start_us() == NOW_US - HOUR


def test_a_node_that_is_days_ahead_moves_no_start_into_the_future(log: FakeLog) -> None:
    log.generation(NOW_US - 3 * DAY, [stream_id(1)])
    log.nodes = [Host("a", 0), Host("b", 40 * DAY)]
    source = source_of(log)
    assert source.safe_start_us() == source.now_us()
    assert source.at_time(None).time <= NOW_US


def test_a_table_that_stays_unknown_is_reported_as_not_found(log: FakeLog) -> None:
    log.generation(NOW_US - 2 * HOUR, [stream_id(1)])
    log.log_id = id_of(NOW_US - SETTLING_US // 2)
    source = source_of(log)
    log.table = "other"
    with pytest.raises(TableNotFound):
        source.reread_table()


def test_a_look_at_the_table_that_fails_is_made_up_for_by_the_next_one(old: FakeLog) -> None:
    source = source_of(old)
    old.ttl_s = 600
    old.clock.advance(METADATA_EVERY_S)
    old.on_rows = lambda cql: OperationTimedOut("late") if "system_schema" in cql else None
    source.refresh_metadata()
    assert source.table.ttl_s == DAY // SECOND
    old.on_rows = lambda cql: None
    old.clock.advance(METADATA_EVERY_S)
    source.refresh_metadata()
    assert source.table.ttl_s == 600


def test_a_regular_look_at_the_table_that_is_refused_raises(old: FakeLog) -> None:
    source = source_of(old)
    old.on_rows = lambda cql: Unauthorized("no") if "system_schema" in cql else None
    old.clock.advance(METADATA_EVERY_S)
    with pytest.raises(QueryFailed):
        source.refresh_metadata()


@pytest.mark.parametrize("how", ["opened", "reread_table", "confirm"])
def test_the_log_is_known_to_be_the_same_until_the_question_and_not_until_the_answer(old: FakeLog, how: str) -> None:
    """Another log may have been created while the answer was on its way."""
    source = source_of(old)
    asked_us = old.clock.now_us()

    def slow(cql: str) -> None:
        if "FROM system_schema.tables" in cql:
            old.clock.advance(20)

    old.on_rows = slow  # type: ignore[assignment]
    if how == "opened":
        source = source_of(old)
    elif how == "reread_table":
        source.reread_table()
    else:
        source.confirm(asked_us + SECOND)
    old.on_rows = lambda cql: None
    old.log_id = id_of(asked_us + SECOND)
    source.confirm(asked_us)
    with pytest.raises(TableChanged):
        source.confirm(asked_us + 2 * SECOND)


def test_what_is_known_to_be_of_this_log_costs_no_query(old: FakeLog) -> None:
    source = source_of(old)
    old.metadata.clear()
    source.confirm(source.same_until_us)
    assert old.metadata == []


def test_the_log_is_known_to_be_the_same_no_longer_than_the_slowest_node_says(old: FakeLog) -> None:
    """A slow node that was not there before may stamp rows of a new log lower than the others did."""
    source = source_of(old)
    before_us = old.clock.now_us()
    old.nodes.append(Host("slow", -40 * SECOND))
    old.clock.advance(METADATA_EVERY_S)
    source.refresh_metadata()
    old.log_id = id_of(old.clock.now_us())
    with pytest.raises(TableChanged):
        source.confirm(before_us)


def test_a_log_that_is_gone_when_it_is_confirmed_is_reported_so(old: FakeLog) -> None:
    source = source_of(old)
    old.table = "other"
    with pytest.raises(TableNotFound):
        source.confirm(source.now_us() + SECOND)


def test_a_shorter_ttl_counts_for_rows_that_are_written_from_then_on(old: FakeLog) -> None:
    source = source_of(old)
    old.ttl_s, old.altered_us = 60, NOW_US
    old.clock.advance(120)
    source.reread_table()
    assert source.table.ttl_s == 60
    assert source.gaps_after(NOW_US - HOUR) == (Gap(NOW_US, source.latest_us() - 60 * SECOND + EARLY_US, 60),)


def test_nothing_starts_before_the_first_generation(log: FakeLog) -> None:
    began_us = NOW_US - 10 * SECOND
    log.generation(began_us, [stream_id(1)])
    source = source_of(log)
    assert source.oldest_us() == began_us
    assert source.oldest().exact_us == began_us
    assert source.at(source.watermark_us(30 * SECOND)).exact_us == began_us


@pytest.mark.parametrize("created_us", [NOW_US - HOUR - 90 * SECOND, NOW_US - HOUR])
def test_the_oldest_row_is_no_older_than_the_generation_in_which_the_log_was_created(
    log: FakeLog, created_us: int
) -> None:
    """Nodes refuse writes to earlier ones. Their clocks may differ by some seconds."""
    begins = [NOW_US - 3 * HOUR, NOW_US - 2 * HOUR, NOW_US - HOUR - 30 * SECOND, NOW_US - HOUR // 2]
    for us in begins:
        log.generation(us, [stream_id(1)])
    log.log_id = id_of(created_us)
    log.altered_us = NOW_US - HOUR // 4
    source = source_of(log)
    assert source.oldest_us() == source.safe_start_us() == begins[1]
    assert source.oldest().generation == begins[1] // 1000


@pytest.mark.parametrize(("ttl_s", "edge_s"), [(100, 10), (86_400, 60)])
def test_a_start_keeps_clear_of_what_expires_within_a_minute_or_a_tenth_of_the_ttl(
    log: FakeLog, ttl_s: int, edge_s: int
) -> None:
    log.ttl_s = ttl_s
    log.generation(NOW_US - 30 * DAY, [stream_id(1)])
    source = source_of(log)
    assert source.safe_start_us() == source.latest_us() - (ttl_s - edge_s) * SECOND


def test_a_generation_is_not_entered_once_the_log_is_another(old: FakeLog) -> None:
    """The stream sets of tablets are those of the table: the next one may be that of the new log."""
    source = source_of(old)
    start = source.read_until(source.generations[0], NOW_US - 31 * SECOND)
    follower = Follower(source, start, resolve((StreamLag(seconds=30),)), Width(), "raise", promised=True)
    old.log_id = id_of(NOW_US - 40 * SECOND)
    old.generation(NOW_US - 35 * SECOND, [stream_id(2)])
    source.refresh_generations()
    with pytest.raises(TableChanged):
        follower.next()


def test_a_refused_query_stays_the_error_if_the_schema_cannot_be_read_either() -> None:
    def reread() -> None:
        raise QueryTimeout("reading the schema")

    with pytest.raises(QueryFailed, match="refused") as failure, naming_dropped_log(reread):
        raise QueryFailed("refused")
    assert failure.value.__notes__ == ["the schema could not be read, either: reading the schema"]

    def gone() -> None:
        raise TableNotFound("no such table")

    with pytest.raises(TableNotFound) as told, naming_dropped_log(gone):
        raise QueryFailed("refused")
    assert isinstance(told.value.__cause__, QueryFailed)


# ---------------------------------------------------------------- the history of the schema

ALTERED = NOW_US - HOUR
"""When the table was altered, as the reader has seen it."""
AT_REST = (NOW_US - DAY, "bootstrap: accept a node")
COMMENTED = "ALTER TABLE ks.t WITH comment = ''"


def said(cql: str) -> str:
    return f'CQL DDL statement: "{cql}"'


@pytest.fixture
def told(old: FakeLog) -> FakeLog:
    """A log of a table that was altered an hour ago; the history of the schema goes back a day."""
    old.altered_us = ALTERED
    old.history = [AT_REST, (ALTERED, said("ALTER TABLE ks.t WITH cdc = {'enabled': true}"))]
    return old


def alter(log: FakeLog, *between: str | None, last: str = COMMENTED, at_us: int = NOW_US) -> None:
    """Let the table be altered at *at_us*; *between*: the entries right before it, a second apart."""
    for i, text in enumerate(between):
        log.history.append((at_us - (len(between) - i) * SECOND, text))
    log.history.append((at_us, said(last)))
    log.altered_us = at_us


def blanks_of(log: FakeLog, source: Source) -> list[tuple[int, int]]:
    source.reread_table()
    return [(blank.start_us, blank.end_us) for blank in source.blanks.spans]


@pytest.mark.parametrize("behind_s", [3, 3000])
@pytest.mark.parametrize("has_forgotten", [False, True])
def test_what_a_node_that_was_behind_did_not_know_is_a_gap(told: FakeLog, behind_s: int, has_forgotten: bool) -> None:
    if has_forgotten:
        del told.history[1]
        told.altered_us = AT_REST[0] - DAY
    source = source_of(told)
    off_us = told.clock.now_us()
    told.clock.advance(behind_s)
    source.refresh_generations()
    source.reread_table()  # the node has not learnt of the statement
    told.clock.advance(7)
    told.history.append((off_us, said("ALTER TABLE ks.t WITH cdc = {'enabled': false}")))
    alter(told, last="ALTER TABLE ks.t WITH cdc = {'enabled': true}", at_us=told.clock.now_us())
    assert blanks_of(told, source) == [(off_us + behind_s * SECOND, told.clock.now_us())]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        None,
        said(""),
        said(" "),
        "CQL DDL statement: DROP TYPE ks.u",
        "restore the schema",
        "update table 5e0e1d60-c6b1-11f0-8000-000000000000",
        "alter ks.t",
        said("ALTER TABLE ks.t WITH cdc = {'enabled': false}"),
        said('ALTER TABLE "ks"."t" WITH "cdc" = {\'enabled\': false}'),
        said("ALTER TABLE KS/**/.T WITH CDC = {'enabled': false}"),
        said("USE other; ALTER TABLE t WITH cdc = {'enabled': false}"),
        said("ALTER TABLE -- other.t\n t WITH cdc = {'enabled': false}"),
        said("ALTER TABLE -- other.\n t WITH cdc = {'enabled': false}"),
    ],
)
def test_an_entry_that_may_have_switched_cdc_off_is_a_gap(told: FakeLog, text: str | None) -> None:
    source = source_of(told)
    alter(told, text)
    assert len(blanks_of(told, source)) == 1


@pytest.mark.parametrize(
    "text",
    [
        said("ALTER TABLE ks.t WITH comment = 'x'"),
        said("ALTER TABLE ks.t_2 WITH cdc = {'enabled': false}"),
        said("ALTER TABLE other.t WITH cdc = {'enabled': false}"),
        said('ALTER TABLE "other"."t" WITH cdc = {\'enabled\': false}'),
        said("CREATE MATERIALIZED VIEW ks.v AS SELECT id FROM ks.t WHERE id IS NOT NULL PRIMARY KEY (id)"),
        said("DROP KEYSPACE other"),
        "insert CDC generation data (UUID: 5e0e1d60-c6b1-11f0-8000-000000000000)",
        "tablet migration",
    ],
)
def test_an_entry_that_cannot_have_switched_cdc_off_is_no_gap(told: FakeLog, text: str) -> None:
    source = source_of(told)
    alter(told, text)
    assert blanks_of(told, source) == []


def test_the_statement_that_created_the_log_is_no_gap(old: FakeLog) -> None:
    old.created_us = old.altered_us = NOW_US - 5 * SECOND
    old.history = [(old.created_us, said("CREATE TABLE ks.t (pk int PRIMARY KEY) WITH cdc = {'enabled': true}"))]
    source = source_of(old)
    alter(old)
    assert blanks_of(old, source) == []


@pytest.mark.parametrize("by", ["a node that is behind", "a time-out"])
@pytest.mark.parametrize("passes", [True, False])
def test_the_history_is_asked_for_again_while_a_node_does_not_have_it(told: FakeLog, by: str, passes: bool) -> None:
    source = source_of(told)
    alter(told)
    last = told.history.pop()

    def waited(_: float) -> None:
        if passes and len(told.clock.waits) == 2:
            told.history.append(last)
            told.on_rows = lambda _: None

    told.clock.on_wait = waited
    if by == "a time-out":
        told.on_rows = lambda cql: OperationTimedOut() if "group0_history" in cql else None
    assert len(blanks_of(told, source)) == (0 if passes else 1)
    assert len(told.clock.waits) >= 2
    assert sum(told.clock.waits) < 10


@pytest.mark.parametrize("error", [Unauthorized("no SELECT"), InvalidRequest("unconfigured table group0_history")])
def test_a_history_that_may_not_be_read_is_not_asked_for_again(told: FakeLog, error: Exception) -> None:
    source = source_of(told)
    alter(told)
    told.on_rows = lambda cql: error if "group0_history" in cql else None
    assert len(blanks_of(told, source)) == 1
    assert told.clock.waits == []


def test_a_reader_that_is_stopped_while_it_waits_for_the_history_has_not_seen_the_table(told: FakeLog) -> None:
    stop = Stop()
    source = source_of(told).until(stop)
    known = source.table
    alter(told)
    told.history.pop()
    told.clock.on_wait = lambda _: stop.set()
    with pytest.raises(Stopped):
        source.reread_table()
    assert source.table is known
