"""``rscylla replicate``: from one cluster to another, what it prints, and its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest

import rscylla
from rscylla.cli.replicate import _Target
from rscylla.cli.shared.options import Connection, Login
from rscylla.embedded import EmbeddedScylla

from .conftest import Ran, Run, Shop

COMMAND = sys.modules["rscylla.cli.replicate"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMMAND, "ON_ITS_WAY", timedelta())


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(users={"bob": "other"}) as server:
        yield server


@pytest.fixture
def copy(run: Run, shop: Shop) -> Run:
    keyspace = f"{shop.keyspace}_copy"
    shop.cql(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")

    def command(*arguments: str, table: str = "orders", **environment: str) -> Ran:
        names = (f"{shop.keyspace}.{table}", f"{keyspace}.orders")
        return run("replicate", *names, "--lag", "0.001", "--host", shop.host, *arguments, **environment)

    return command


def test_a_copy_and_its_differences(copy: Run, shop: Shop) -> None:
    shop.insert(1, 2, 3)
    ran = copy("--to-head", "--create", "--json")
    assert (ran.code, ran.objects[-1]["applied"]) == (0, 3)
    assert copy("--verify").out == ["3 rows compared, 0 differ"]
    shop.cql(f"UPDATE {shop.keyspace}_copy.orders SET status = 'secret' WHERE id = 2")
    ran = copy("--verify")
    assert ran.code == 1
    assert ran.out == ['different  {"id":2}  status', "3 rows compared, 1 differ"]
    assert copy("--verify", "--json").objects == [
        {"kind": "different", "key": {"id": 2}, "columns": ["status"]},
        {"rows": 3, "differences": 1, "more": False, "unsettled": 0},
    ]


def test_a_comparison_shows_its_progress_on_a_terminal_alone(copy: Run, shop: Shop) -> None:
    shop.insert(1)
    assert copy("--to-head", "--create").code == 0
    assert copy("--verify").err == []
    shown = copy("--verify", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")  # rich takes it for a terminal then
    assert shown.out == ["1 rows compared, 0 differ"]
    assert any("64/64" in line for line in shown.err), shown.err


def test_two_tables_that_are_copied_to_one_keep_a_cursor_each(copy: Run, shop: Shop) -> None:
    shop.cql(f"CREATE TABLE {shop.keyspace}.former (id int PRIMARY KEY, status text) WITH cdc = {{'enabled': true}}")
    shop.cql(f"INSERT INTO {shop.keyspace}.former (id, status) VALUES (7, 'old')")
    shop.insert(1)
    assert copy("--to-head", "--create").code == 0
    assert copy("--to-head", table="former").code == 0
    assert {row.id for row in shop.cql(f"SELECT id FROM {shop.keyspace}_copy.orders")} == {1, 7}


def test_a_target_that_is_not_there(copy: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = copy("--to-head")
    assert ran.code == 4
    assert "does not exist; create it, or use create=True" in ran.error


def test_another_cluster_with_other_users(copy: Run, shop: Shop, elsewhere: EmbeddedScylla) -> None:
    session = rscylla.connect(elsewhere.contact_points, port=elsewhere.port, username="bob", password="other")
    session.execute(
        f"CREATE KEYSPACE {shop.keyspace}_copy "
        "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    there = ["--to-host", f"{elsewhere.contact_points[0]}:{elsewhere.port}", "--to-username", "bob", "--to-password"]
    shop.insert(1, 2)
    assert "refused the user name or password" in copy("--to-head", *there, "wrong").error
    assert copy("--to-head", "--create", *there, "other").code == 0
    assert len(list(session.execute(f"SELECT id FROM {shop.keyspace}_copy.orders"))) == 2
    assert copy("--verify", *there, "other").out == ["2 rows compared, 0 differ"]
    session.cluster.shutdown()


def test_users_of_another_cluster_need_one(copy: Run) -> None:
    ran = copy("--to-head", "--to-username", "bob", "--to-password", "other")
    assert ran.code == 2
    assert "require --to-host" in ran.error


def test_a_table_is_not_copied_to_itself_by_another_way(run: Run, shop: Shop) -> None:
    shop.insert(1)
    ran = run(
        "replicate",
        shop.orders,
        shop.orders,
        "--lag",
        "0.001",
        "--host",
        shop.host,
        "--to-host",
        shop.host,
        "--to-head",
    )
    assert ran.code == 4
    assert "cannot be copied to itself" in ran.error


def test_the_target_has_the_connection_of_the_source_by_default() -> None:
    login = Login("ann", "secret", Path("pass"))
    source = Connection(["a"], login, Path("ca"), Path("cert"), Path("key"), tls_no_check_hostname=True)
    assert _Target(["b"]).connection(source) == attrs.evolve(source, hosts=["b"])
    own = _Target(["b"], "bob", None, Path("own"), Path("other")).connection(source)
    assert own == attrs.evolve(source, hosts=["b"], login=Login("bob", None, Path("own")), tls_ca=Path("other"))
    checked = attrs.evolve(source, tls_no_check_hostname=False)
    unchecked = _Target(["b"], to_tls_no_check_hostname=True)
    assert unchecked.connection(checked) == attrs.evolve(source, hosts=["b"])
    assert _Target().connection(source) is None
