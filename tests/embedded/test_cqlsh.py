"""cqlsh against the embedded server: the shell of package ``scylla-cqlsh``, run as its users run it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rscylla.embedded import EmbeddedScylla

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("cqlsh"), reason="needs the package scylla-cqlsh")

# ``python -m cqlsh``, but for its end: there the driver often waits five seconds for its own thread.
CQLSH = """
import os, sys
from cqlsh.__main__ import main
code = 0
try:
    main()
except SystemExit as end:
    code = end.code
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
sys.stdout.flush()
sys.stderr.flush()
os._exit(code or 0)
"""

SCHEMA = """
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE shop.orders (customer text, id int, total decimal, PRIMARY KEY (customer, id))
    WITH CLUSTERING ORDER BY (id DESC) AND cdc = {'enabled': true};
"""


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(users={"ann": "right"}) as server:
        yield server


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", autouse=True)
def schema(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(scylla, home, SCHEMA)
    assert (done.returncode, done.stderr) == (0, "")


def cqlsh(
    scylla: EmbeddedScylla, home: Path, script: str, *, password: str = "right"
) -> subprocess.CompletedProcess[str]:
    """Run a script file through cqlsh with a home of its own."""
    file = home / "script.cql"
    file.write_text(f"{script.strip().rstrip(';')};\n")
    command = [sys.executable, "-c", CQLSH, scylla.contact_points[0], str(scylla.port), "--no-color"]
    command += ["-u", "ann", "-p", password, "--insecure-password-without-warning", "-f", str(file)]
    environment = {**os.environ, "HOME": str(home), "COLUMNS": "500", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def table(output: str) -> list[list[str]]:
    """Return the cells of a printed result, header first."""
    return [[cell.strip() for cell in line.split("|")] for line in output.splitlines() if "|" in line]


def test_the_main_job(scylla: EmbeddedScylla, home: Path) -> None:
    """Create a CDC table, insert, change, delete, and read the log."""
    done = cqlsh(
        scylla,
        home,
        """
        CREATE TABLE shop.carts (id int PRIMARY KEY, items int) WITH cdc = {'enabled': true};
        INSERT INTO shop.carts (id, items) VALUES (1, 5);
        UPDATE shop.carts SET items = 6 WHERE id = 1;
        DELETE FROM shop.carts WHERE id = 1;
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    # In a run of its own: cqlsh prints only tables it knows, and it takes up to two seconds to notice a new log.
    columns = '"cdc$batch_seq_no", "cdc$operation", id, items, "cdc$end_of_batch"'
    done = cqlsh(scylla, home, f"SELECT {columns} FROM shop.carts_scylla_cdc_log")
    assert (done.returncode, done.stderr) == (0, "")
    assert table(done.stdout) == [
        ["cdc$batch_seq_no", "cdc$operation", "id", "items", "cdc$end_of_batch"],
        ["0", "2", "1", "5", "True"],
        ["0", "1", "1", "6", "True"],
        ["0", "4", "1", "null", "True"],
    ]


def test_describe_table_shows_the_base_and_how_the_log_is_kept(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(scylla, home, "DESCRIBE TABLE shop.orders")
    assert (done.returncode, done.stderr) == (0, "")
    assert "CREATE TABLE shop.orders" in done.stdout
    assert "CLUSTERING ORDER BY (id DESC)" in done.stdout
    assert "'enabled': 'true'" in done.stdout
    assert "ALTER TABLE shop.orders_scylla_cdc_log WITH" in done.stdout


def test_describe_lists(scylla: EmbeddedScylla, home: Path) -> None:
    keyspaces = cqlsh(scylla, home, "DESCRIBE KEYSPACES").stdout.split()
    assert {"shop", "system", "system_schema", "system_distributed"} <= set(keyspaces)
    tables = cqlsh(scylla, home, "USE shop;\nDESCRIBE TABLES").stdout.split()
    assert "orders" in tables
    assert "orders_scylla_cdc_log" not in tables
    done = cqlsh(scylla, home, "DESCRIBE KEYSPACE shop;\nDESCRIBE CLUSTER")
    assert (done.returncode, done.stderr) == (0, "")
    assert "CREATE KEYSPACE shop" in done.stdout
    assert "CREATE TABLE shop.orders" in done.stdout


def test_what_describe_prints_can_be_run_again(scylla: EmbeddedScylla, home: Path) -> None:
    printed = cqlsh(scylla, home, "DESCRIBE TABLE shop.orders").stdout
    create = printed[printed.index("CREATE TABLE") : printed.index(";") + 1]
    done = cqlsh(scylla, home, create.replace("shop.orders", "shop.orders_again"))
    assert (done.returncode, done.stderr) == (0, "")
    again = cqlsh(scylla, home, "DESCRIBE TABLE shop.orders_again").stdout
    assert again[again.index("CREATE TABLE") : again.index(";") + 1] == create.replace(
        "shop.orders", "shop.orders_again"
    )


def test_errors_are_printed_with_the_servers_text(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(scylla, home, "SELECT * FROM shop.nosuch")
    assert done.returncode != 0
    assert "nosuch" in done.stderr
    done = cqlsh(scylla, home, "SELEKT 1")
    assert done.returncode != 0
    assert "SyntaxException" in done.stderr


def test_wrong_credentials_are_refused(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(scylla, home, "SELECT key FROM system.local", password="wrong")
    assert done.returncode != 0
    assert "Username and/or password are incorrect" in done.stderr


def test_paging_and_values_print(scylla: EmbeddedScylla, home: Path) -> None:
    inserts = "".join(
        f"INSERT INTO shop.orders (customer, id, total) VALUES ('ann', {n}, {n}.50);\n" for n in range(120)
    )
    done = cqlsh(scylla, home, inserts + "PAGING OFF;\nSELECT id, total FROM shop.orders WHERE customer = 'ann'")
    assert (done.returncode, done.stderr) == (0, "")
    assert table(done.stdout)[1:] == [[str(n), f"{n}.50"] for n in reversed(range(120))]
    done = cqlsh(scylla, home, "PAGING 50;\nSELECT count(*) FROM shop.orders;\nSELECT id FROM shop.orders LIMIT 110")
    assert "(110 rows)" in done.stdout
