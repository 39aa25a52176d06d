"""The contract suite of cursor stores over TCP, and what only a server can show."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from cassandra.cluster import Cluster
from cassandra.query import dict_factory, tuple_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorstore import (
    BufferedCursorStore,
    IntCursorCodec,
    ScyllaCursorStore,
    schema_cql,
)
from rscylla.abc import CursorStore
from rscylla.embedded import EmbeddedScylla
from rscylla.errors import (
    ConfigError,
    ConnectionFailed,
    CursorConflict,
    CursorRegression,
    QueryTimeout,
    TableNotFound,
)
from rscylla.testing.contracts import SharedCursorStoreContract

KEYSPACE = "Shop"
TABLE = "Cursors_of_tests"


class OverTcp(SharedCursorStoreContract):
    @pytest.fixture(autouse=True)
    def take_sessions(self, sessions: Iterator[Any]) -> None:
        self.sessions = sessions

    def scylla_store(self, **options: Any) -> ScyllaCursorStore:
        return ScyllaCursorStore(next(self.sessions), KEYSPACE, TABLE, create=True, **options)


class TestScylla(OverTcp):
    def open_store(self) -> CursorStore:
        return self.scylla_store()


class TestScyllaThatChecksAlways(OverTcp):
    def open_store(self) -> CursorStore:
        return self.scylla_store(epoch_check=timedelta(0), consistency="QUORUM")


class TestBuffered(OverTcp):
    def open_store(self) -> CursorStore:
        return BufferedCursorStore(self.scylla_store(), interval=timedelta(hours=1))


@pytest.fixture
def consumer() -> str:
    return f"contract-{uuid.uuid4()}"


@pytest.fixture
def open_store(sessions: Iterator[Any]) -> Callable[..., ScyllaCursorStore]:
    def open_(**options: Any) -> ScyllaCursorStore:
        options = {"create": True, "codec": IntCursorCodec(), **options}
        return ScyllaCursorStore(next(sessions), KEYSPACE, TABLE, **options)

    return open_


def test_position_and_its_timestamp_as_cql_shows_them(
    open_store: Callable[..., ScyllaCursorStore], sessions: Iterator[Any], consumer: str
) -> None:
    store = open_store()
    for value in ("3", "20"):
        store.set_cursor(consumer, value)
    query = f'SELECT epoch, position, updated, WRITETIME(position), TTL(position) FROM "{KEYSPACE}"."{TABLE}" '
    [row] = next(sessions).execute(query + "WHERE consumer = %s", (consumer,))
    assert (row[0], row[1], row[3], row[4]) == (0, "00000000000000000020", 1, None)
    assert row[2].endswith(f"/{os.getpid()}")


def test_default_ttl_of_a_table_made_by_others_does_not_expire_cursors(scylla: EmbeddedScylla, consumer: str) -> None:
    session = scylla.connect()
    text = schema_cql(KEYSPACE, "expiring")
    session.execute(text.replace("default_time_to_live = 0", "default_time_to_live = 60"))
    store = ScyllaCursorStore(session, KEYSPACE, "expiring", codec=IntCursorCodec())
    store.set_cursor(consumer, "1")
    [row] = session.execute(f'SELECT TTL(position), TTL(updated) FROM "{KEYSPACE}".expiring')
    assert tuple(row) == (None, None)


@pytest.mark.parametrize("factory", [dict_factory, tuple_factory])
def test_row_factory_of_the_session_does_not_matter(
    scylla: EmbeddedScylla, consumer: str, factory: Callable[..., Any]
) -> None:
    session = scylla.connect()
    session.row_factory = factory
    store = ScyllaCursorStore(session, KEYSPACE, TABLE, create=True, codec=IntCursorCodec())
    store.set_cursor(consumer, "4")
    store.reset_cursor(consumer, "2", reason="replay")
    assert store.get_cursor(consumer) == "2"
    assert [(r.epoch, r.cursor) for r in store.cursor_history(consumer)] == [(1, "2"), (0, "4")]
    assert session.row_factory is factory


def test_more_consumers_than_fit_in_a_page_are_all_listed(scylla: EmbeddedScylla) -> None:
    session = scylla.connect()
    session.default_fetch_size = 7
    store = ScyllaCursorStore(session, KEYSPACE, "many", create=True, codec=IntCursorCodec())
    for n in range(30):
        store.set_cursor(f"c{n:02}", str(n + 1))
        store.reset_cursor(f"c{n:02}", str(n), reason="replay")
    assert [(r.consumer, r.cursor) for r in store.list_cursors()] == [(f"c{n:02}", str(n)) for n in range(30)]


def test_missing_table_and_keyspace_are_clear_errors(scylla: EmbeddedScylla) -> None:
    session = scylla.connect()
    with pytest.raises(TableNotFound, match=r'"Shop"."missing".*create=True'):
        ScyllaCursorStore(session, KEYSPACE, "missing").get_cursor("c")
    with pytest.raises(TableNotFound, match="keyspace 'shop' does not exist"):
        ScyllaCursorStore(session, "shop", create=True).get_cursor("c")


def test_table_dropped_under_a_running_process_is_a_clear_error(scylla: EmbeddedScylla) -> None:
    session = scylla.connect()
    store = ScyllaCursorStore(session, KEYSPACE, "dropped", create=True, codec=IntCursorCodec())
    store.set_cursor("c", "1")
    session.execute(f'DROP TABLE "{KEYSPACE}".dropped')
    with pytest.raises(TableNotFound, match="cursor table"):
        store.set_cursor("c", "2")


def test_table_of_other_columns_is_refused(scylla: EmbeddedScylla) -> None:
    session = scylla.connect()
    session.execute(f'CREATE TABLE "{KEYSPACE}".foreign_table (id text PRIMARY KEY, last_event_id bigint)')
    store = ScyllaCursorStore(session, KEYSPACE, "foreign_table", create=True)
    with pytest.raises(ConfigError, match=r"foreign_table.*lacks the columns consumer, epoch"):
        store.get_cursor("c")


def test_row_deleted_manually_is_noticed_and_a_reset_repairs_it(
    open_store: Callable[..., ScyllaCursorStore], sessions: Iterator[Any], consumer: str
) -> None:
    open_store().set_cursor(consumer, "5")
    next(sessions).execute(f'DELETE FROM "{KEYSPACE}"."{TABLE}" WHERE consumer = %s', (consumer,))
    store = open_store()
    assert store.get_cursor(consumer) == ""
    with pytest.raises(CursorConflict, match="deleted or restored manually"):
        store.set_cursor(consumer, "1")
    store.reset_cursor(consumer, "1", reason="deleted by mistake")
    assert store.get_cursor(consumer) == "1"
    store.set_cursor(consumer, "2")
    assert open_store().get_cursor(consumer) == "2"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.booleans()), max_size=25))
@settings(max_examples=30, deadline=None)
def test_highest_cursor_wins_in_any_interleaving_of_processes(
    sessions: Iterator[Any], steps: list[tuple[int, int, bool]]
) -> None:
    """Three processes of one name save in random order; now and then one of them resets, which the others learn."""
    consumer = str(uuid.uuid4())
    codec, never = IntCursorCodec(), timedelta(hours=1)
    processes = [
        ScyllaCursorStore(next(sessions), KEYSPACE, TABLE, create=True, codec=codec, epoch_check=never)
        for _ in range(3)
    ]
    epochs: list[int | None] = [None] * 3
    epoch, highest = 0, ""
    for who, value, reset in steps:
        cursor = str(value)
        if reset and value > 30:
            processes[who].reset_cursor(consumer, str(value - 30), reason="test")
            epoch, highest = epoch + 1, str(value - 30)
        else:
            epochs[who] = epoch if epochs[who] is None else epochs[who]
            with contextlib.suppress(CursorRegression, CursorConflict):
                processes[who].set_cursor(consumer, cursor)
                if epochs[who] == epoch:
                    highest = max(highest, cursor, key=codec.encode)
        fresh = ScyllaCursorStore(next(sessions), KEYSPACE, TABLE, codec=codec)
        assert fresh.get_cursor(consumer) == highest


STALE_PROCESS = """
import sys
from cassandra.cluster import Cluster
from cursorstore import IntCursorCodec, ScyllaCursorStore
from rscylla.errors import CursorError

host, port, keyspace, table, consumer = sys.argv[1:]
cluster = Cluster([host], port=int(port))
store = ScyllaCursorStore(cluster.connect(), keyspace, table, codec=IntCursorCodec())
print(store.get_cursor(consumer), flush=True)
for line in sys.stdin:
    try:
        store.set_cursor(consumer, line.strip())
        print("saved", flush=True)
    except CursorError as e:
        print(type(e).__name__, flush=True)
cluster.shutdown()
"""


@pytest.mark.slow
def test_stale_process_of_the_same_name_cannot_move_the_cursor_back(
    scylla: EmbeddedScylla, open_store: Callable[..., ScyllaCursorStore], consumer: str
) -> None:
    """A separate process is paused while another one works, and then continues where it was."""
    store = open_store()
    store.set_cursor(consumer, "5")
    arguments = [scylla.contact_points[0], str(scylla.port), KEYSPACE, TABLE, consumer]
    with subprocess.Popen(
        [sys.executable, "-c", STALE_PROCESS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stale:
        assert stale.stdin is not None
        assert stale.stdout is not None
        assert stale.stdout.readline() == "5\n"

        def tell(cursor: str) -> str:
            assert stale.stdin is not None
            assert stale.stdout is not None
            stale.stdin.write(f"{cursor}\n")
            stale.stdin.flush()
            return stale.stdout.readline().strip()

        store.set_cursor(consumer, "100")
        assert tell("6") == "saved"  # without any effect
        assert open_store().get_cursor(consumer) == "100"
        store.reset_cursor(consumer, "50", reason="replay")
        assert tell("200") in ("saved", "CursorConflict")
        assert open_store().get_cursor(consumer) == "50"
        stale.stdin.close()
    assert stale.returncode == 0


def test_server_that_is_gone_is_a_clear_error_and_the_cursor_stays(consumer: str) -> None:
    with EmbeddedScylla(seed=2) as server:
        cluster = Cluster(server.contact_points, port=server.port)
        session = cluster.connect()
        session.execute(
            "CREATE KEYSPACE shop WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        store = ScyllaCursorStore(session, "shop", create=True, codec=IntCursorCodec())
        store.set_cursor(consumer, "1")
    with pytest.raises((ConnectionFailed, QueryTimeout)) as caught:
        store.set_cursor(consumer, "2")
    assert consumer in str(caught.value)
    with pytest.raises(CursorRegression):
        store.set_cursor(consumer, "0")
    cluster.shutdown()
