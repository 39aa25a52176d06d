"""The contract suite of dead letters in memory and over TCP, and what only a server can show."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from cassandra.query import dict_factory
from lettercontracts import DeadLettersContract

from cursorstore import MemoryDeadLetters, ScyllaDeadLetters, letter_schema_cql
from rscylla._letters import DeadLetter, KeptEvent
from rscylla.abc import DeadLetters
from rscylla.errors import ConfigError, TableNotFound
from rscylla.testing import ManualClock

KEYSPACE = "Shop"
TABLE = "Letters_of_tests"


class TestMemory(DeadLettersContract):
    @pytest.fixture(autouse=True)
    def make(self) -> None:
        self.data = MemoryDeadLetters()

    def open_letters(self) -> DeadLetters:
        return self.data


class TestScylla(DeadLettersContract):
    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any]) -> None:
        self.sessions = sessions

    def open_letters(self) -> DeadLetters:
        return ScyllaDeadLetters(next(self.sessions), KEYSPACE, TABLE, create=True)


def event() -> KeptEvent:
    return KeptEvent(str(uuid.uuid4()), 1, "", datetime(2026, 11, 21, 23, 59, 59, 999_999, tzinfo=UTC))


def test_tries_expire_and_letters_do_not(sessions: Iterator[Any]) -> None:
    session = next(sessions)
    letters = ScyllaDeadLetters(session, KEYSPACE, TABLE, create=True, keep_tries=timedelta(hours=1))
    failing = event()
    letters.set_tries("billing", failing, 2)
    [row] = session.execute(
        f'SELECT TTL(tries), status FROM "{KEYSPACE}"."{TABLE}" WHERE consumer = %s AND day = %s AND event_us = %s '
        "AND event_id = %s",
        ("billing", "2026-11-21", failing.timestamp_us, failing.id),
    )
    assert 0 < row[0] <= 3600
    assert row[1] is None


def test_a_default_ttl_of_the_table_expires_no_letter(sessions: Iterator[Any]) -> None:
    session = next(sessions)
    text = letter_schema_cql(KEYSPACE, "expiring_letters")
    session.execute(text.replace("default_time_to_live = 0", "default_time_to_live = 60"))
    letters = ScyllaDeadLetters(session, KEYSPACE, "expiring_letters")
    letter = DeadLetter("billing", event(), 1, "ValueError", "", datetime(2026, 11, 22, tzinfo=UTC))
    letters.put(letter)
    letters.resolve_letter(letter, "discarded", reason="known")
    [row] = session.execute(f'SELECT TTL(metadata), TTL(status) FROM "{KEYSPACE}".expiring_letters')
    assert tuple(row) == (None, None)


def test_the_row_factory_of_the_session_does_not_matter(scylla: Any) -> None:
    session = scylla.connect()
    session.row_factory = dict_factory
    letters = ScyllaDeadLetters(session, KEYSPACE, TABLE, create=True)
    letter = DeadLetter(f"rows-{uuid.uuid4()}", event(), 1, "ValueError", "", datetime(2026, 11, 22, tzinfo=UTC))
    letters.put(letter)
    assert letters.find_letter(letter.consumer, letter.event.id) == letter
    assert letters.count_letters()[letter.consumer] == 1


def test_a_table_that_is_not_there_is_named_with_the_way_to_get_it(sessions: Iterator[Any]) -> None:
    letters = ScyllaDeadLetters(next(sessions), KEYSPACE, "nowhere")
    with pytest.raises(TableNotFound, match=r'no dead letter table: "Shop"."nowhere"; .*rscylla schema letters'):
        letters.tries("billing", event())


def test_a_table_of_something_else_is_refused(sessions: Iterator[Any]) -> None:
    session = next(sessions)
    session.execute(f'CREATE TABLE IF NOT EXISTS "{KEYSPACE}".no_letters (id int PRIMARY KEY)')
    with pytest.raises(ConfigError, match="not a dead letter table, because it lacks the columns consumer"):
        ScyllaDeadLetters(session, KEYSPACE, "no_letters", create=True).tries("billing", event())


def session_at(scylla: Any, clock: ManualClock) -> Any:
    """Return a session whose driver writes by *clock*."""
    session = scylla.connect()
    session.cluster.timestamp_generator = clock.now_us
    return session


@pytest.mark.parametrize("hours", [-1, 1])
def test_clocks_that_differ_hide_neither_a_death_nor_a_decision(scylla: Any, hours: int) -> None:
    """The operator's machine is an hour ahead of the consumer's, or behind it; so is its driver."""
    here, there = ManualClock(datetime.now(UTC)), ManualClock(datetime.now(UTC) + timedelta(hours=hours))
    consumers, operators = (
        ScyllaDeadLetters(session_at(scylla, clock), KEYSPACE, TABLE, create=True, clock=clock)
        for clock in (here, there)
    )
    letter = DeadLetter(f"clocks-{uuid.uuid4()}", event(), 1, "ValueError", "", datetime(2026, 11, 22, tzinfo=UTC))
    for attempts in range(1, 4):
        consumers.put(attrs.evolve(letter, attempts=attempts))
        [dead] = operators.list_letters(letter.consumer)
        assert dead.attempts == attempts
        assert operators.count_letters(letter.consumer) == {letter.consumer: 1}
        operators.resolve_letter(letter, "replayed", reason="fixed")
        assert list(consumers.list_letters(letter.consumer)) == []
        assert consumers.count_letters(letter.consumer) == {}


def test_counting_reads_no_letter(sessions: Iterator[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session = next(sessions)
    letters = ScyllaDeadLetters(session, KEYSPACE, TABLE, create=True)
    letters.put(DeadLetter(f"count-{uuid.uuid4()}", event(), 1, "E", "", datetime(2026, 11, 22, tzinfo=UTC)))
    asked: list[str] = []
    execute = session.execute

    def noting(statement: Any, *values: Any, **how: Any) -> Any:
        asked.append(statement.prepared_statement.query_string)
        return execute(statement, *values, **how)

    monkeypatch.setattr(session, "execute", noting)
    letters.count_letters()
    assert asked == [f'SELECT DISTINCT consumer, day, dead FROM "{KEYSPACE}"."{TABLE}"']


def test_tries_must_be_kept_for_a_while(sessions: Iterator[Any]) -> None:
    with pytest.raises(ConfigError, match="keep_tries"):
        ScyllaDeadLetters(next(sessions), KEYSPACE, keep_tries=timedelta(0))
