"""Aggregates over many rows: read in steps, between which other requests have their turn, to the same result."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from rscylla.embedded import EmbeddedScylla
from rscylla.embedded.engine.reads import select
from rscylla.embedded.errors import InvalidRequest


@pytest.fixture
def scylla(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedScylla]:
    monkeypatch.setattr(select, "_STEP_ROWS", 7)
    with EmbeddedScylla(seed=1) as scylla:
        scylla.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        scylla.execute("CREATE TABLE ks.t (a int, b int, s int static, v int, PRIMARY KEY (a, b))")
        yield scylla


def fill(scylla: EmbeddedScylla, seed: int) -> list[tuple[int, int, int | None]]:
    """Write random rows, some of them deleted or with nothing but a static column; return the live ones."""
    dice = random.Random(seed)
    rows: dict[tuple[int, int], int | None] = {}
    for _ in range(300):
        a, b, v = dice.randrange(12), dice.randrange(40), dice.choice([None, dice.randrange(100)])
        if dice.random() < 0.1:
            scylla.execute(f"DELETE FROM ks.t WHERE a = {a} AND b = {b}")
            rows.pop((a, b), None)
        else:
            scylla.execute(f"INSERT INTO ks.t (a, b, v) VALUES ({a}, {b}, {'null' if v is None else v})")
            rows[a, b] = v
    scylla.execute("INSERT INTO ks.t (a, s) VALUES (99, 1)")
    return [(a, b, v) for (a, b), v in sorted(rows.items())]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_in_steps_is_what_is_there(scylla: EmbeddedScylla, seed: int) -> None:
    rows = fill(scylla, seed)
    session = scylla.connect("ks")
    assert session.execute("SELECT count(*) FROM t").one()[0] == len(rows) + 1, "a static row is a row"
    assert session.execute("SELECT count(v), sum(v), max(b) FROM t").one() == (
        sum(v is not None for *_, v in rows),
        sum(v or 0 for *_, v in rows),
        max(b for _, b, _ in rows),
    )
    counted = dict(session.execute("SELECT a, count(b) FROM t GROUP BY a"))  # type: ignore[call-overload]
    assert counted == {99: 0} | {a: sum(a == other for other, *_ in rows) for a, *_ in rows}
    found = session.execute(
        "SELECT a, b, count(*) FROM t WHERE b > 5 GROUP BY a, b PER PARTITION LIMIT 3 ALLOW FILTERING"
    )
    firsts = [(a, b, 1) for a, b, _ in rows if b > 5 and sum(a == x and 5 < y < b for x, y, _ in rows) < 3]
    assert sorted(map(tuple, found)) == firsts
    for order in ("ASC", "DESC"):
        counts = [r[0] for r in session.execute(f"SELECT count(*) FROM t WHERE a = 3 GROUP BY b ORDER BY b {order}")]
        assert counts == [1] * sum(a == 3 for a, *_ in rows)
    assert session.execute("SELECT count(*) FROM t WHERE v < 50 ALLOW FILTERING").one()[0] == sum(
        v is not None and v < 50 for *_, v in rows
    )
    assert session.execute("SELECT count(*) FROM t WHERE a IN (1, 3, 5)").one()[0] == sum(
        a in (1, 3, 5) for a, *_ in rows
    )
    assert session.execute("SELECT count(*) FROM t WHERE a = 1000").one() == (0,)


def test_a_count_of_a_log_in_steps(scylla: EmbeddedScylla) -> None:
    scylla.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true}")
    for number in range(100):
        scylla.execute(f"INSERT INTO ks.t (a, b, v) VALUES (1, {number}, 1)")
    session = scylla.connect("ks")
    assert session.execute("SELECT count(*) FROM t_scylla_cdc_log").one() == (100,)


def test_other_requests_have_their_turn(scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count ends only when a statement that was sent after it has been answered."""
    for number in range(30):
        scylla.execute(f"INSERT INTO ks.t (a, b, v) VALUES ({number}, 1, 1)")
    session, other = scylla.connect("ks"), scylla.connect("ks")
    answered: list[Session] = []
    true = select.SelectPlan.steps

    def steps(*given: object) -> Iterator[None]:
        whole = true(*given)  # type: ignore[arg-type]
        next(whole)
        while not answered:
            yield
        return (yield from whole)

    monkeypatch.setattr(select.SelectPlan, "steps", steps)
    counting = session.execute_async("SELECT count(*) FROM t")
    assert other.execute("SELECT v FROM t WHERE a = 1 AND b = 1").one() == (1,)
    session.execute("INSERT INTO t (a, b, v) VALUES (1000, 1, 1)")
    answered.append(other)
    assert counting.result().one()[0] in (30, 31)


def test_an_error_within_a_step_is_answered(scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(scylla, 1)
    true = select._Groups.add
    calls = 0

    def add(self: select._Groups, view: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise InvalidRequest("of a later step")
        true(self, view)  # type: ignore[arg-type]

    monkeypatch.setattr(select._Groups, "add", add)
    session = scylla.connect("ks")
    with pytest.raises(Exception, match="of a later step"):
        session.execute("SELECT count(*), sum(v) FROM t")
    assert session.execute("SELECT count(*) FROM t WHERE a = 1000").one() == (0,)


@pytest.mark.parametrize("statement", ["TRUNCATE ks.t", "ALTER TABLE ks.t DROP v", "DROP TABLE ks.t"])
def test_a_table_that_changes_meanwhile_ends_no_count(
    scylla: EmbeddedScylla, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    fill(scylla, 2)
    begun, changed = threading.Event(), threading.Event()
    true = select.SelectPlan.steps

    def steps(*given: object) -> Iterator[None]:
        whole = true(*given)  # type: ignore[arg-type]
        next(whole)
        begun.set()
        while not changed.is_set():
            yield
        return (yield from whole)

    monkeypatch.setattr(select.SelectPlan, "steps", steps)
    counting = scylla.connect("ks").execute_async("SELECT count(*), max(b), sum(v) FROM t")
    assert begun.wait(60)
    scylla.execute(statement)
    changed.set()
    assert counting.result().one()[0] >= 7
