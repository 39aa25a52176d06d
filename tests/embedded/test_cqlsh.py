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

pytestmark = [
    pytest.mark.slow,  # each test starts cqlsh, a process of its own
    pytest.mark.skipif(not importlib.util.find_spec("cqlsh"), reason="needs the package scylla-cqlsh"),
]

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


WRITES = """
CREATE TYPE shop.money (amount decimal, currency text);
CREATE TABLE shop.accounts (
    owner text, id int, name text, note text static, price money, tags set<text>, stock map<text, int>, steps list<int>,
    PRIMARY KEY (owner, id)
) WITH CLUSTERING ORDER BY (id DESC) AND cdc = {'enabled': true, 'preimage': true, 'postimage': 'true', 'ttl': 3600};
INSERT INTO shop.accounts (owner, id, name, note) VALUES ('ann', 1, 'one', 'hers') USING TTL 600;
INSERT INTO shop.accounts JSON '{"owner": "ann", "id": 2, "tags": ["a", "b"], "stock": {"x": 1}}' DEFAULT UNSET;
UPDATE shop.accounts SET stock['x'] = 2, tags = tags - {'a'} WHERE owner = 'ann' AND id = 2;
UPDATE shop.accounts SET price = {amount: 1.50, currency: 'EUR'}, steps = [1, 2] WHERE owner = 'ann' AND id = 2;
BEGIN BATCH
    UPDATE shop.accounts SET name = 'three' WHERE owner = 'ann' AND id = 3;
    DELETE FROM shop.accounts WHERE owner = 'ann' AND id = 1;
APPLY BATCH;
INSERT INTO shop.accounts (owner, id) VALUES ('ann', 3) IF NOT EXISTS;
DELETE FROM shop.accounts WHERE owner = 'ann' AND id > 2 AND id <= 9;
DELETE FROM shop.accounts WHERE owner = 'ann';
ALTER TABLE shop.accounts ADD extra int;
ALTER TABLE shop.accounts DROP name;
INSERT INTO shop.accounts (owner, id, extra) VALUES ('bob', 7, 8);
TRUNCATE shop.accounts;
ALTER TABLE shop.accounts WITH cdc = {'enabled': false};
"""


def test_a_script_of_everything(scylla: EmbeddedScylla, home: Path) -> None:
    """DDL and DML of all kinds in one run; what they did to the log, and DESCRIBE of it all, in another."""
    done = cqlsh(scylla, home, WRITES)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row[0] for row in table(done.stdout)] == ["[applied]", "False"]
    columns = '"cdc$operation", id, "cdc$ttl", note, tags, "cdc$deleted_elements_tags", extra, "cdc$end_of_batch"'
    done = cqlsh(
        scylla,
        home,
        f"""
        SELECT {columns} FROM shop.accounts_scylla_cdc_log WHERE owner = 'ann' ALLOW FILTERING;
        SELECT JSON "cdc$operation" AS op, id, extra FROM shop.accounts_scylla_cdc_log WHERE owner = 'bob'
            ALLOW FILTERING;
        SELECT count(*) FROM shop.accounts;
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = table(done.stdout)
    assert header == [name.strip().strip('"') for name in columns.split(",")]
    null = "null"
    assert rows == [
        ["1", null, "600", "hers", null, null, null, null],
        ["2", "1", "600", null, null, null, null, null],
        ["9", null, null, "hers", null, null, null, null],
        ["9", "1", null, null, null, null, null, "True"],
        ["2", "2", null, null, "{'a', 'b'}", null, null, null],
        ["9", "2", null, null, "{'a', 'b'}", null, null, "True"],
        ["0", "2", null, null, "{'a', 'b'}", null, null, null],
        ["1", "2", null, null, null, "{'a'}", null, null],
        ["9", "2", null, null, "{'b'}", null, null, "True"],
        ["0", "2", null, null, null, null, null, null],
        ["1", "2", null, null, null, null, null, null],
        ["9", "2", null, null, "{'b'}", null, null, "True"],
        # DESC: row 3 is walked before row 1, so a delete follows an update, and the record is split.
        ["0", "1", null, null, null, null, null, null],
        ["1", "3", null, null, null, null, null, null],
        ["3", "1", null, null, null, null, null, null],
        ["9", "3", null, null, null, null, null, "True"],
        ["5", "9", null, null, null, null, null, null],
        ["8", "2", null, null, null, null, null, "True"],
        ["4", null, null, null, null, null, null, "True"],
    ]
    assert '{"op": 2, "id": 7, "extra": 8}' in done.stdout
    assert '{"op": 9, "id": 7, "extra": 8}' in done.stdout
    assert done.stdout.rstrip().endswith("0\n\n(1 rows)")


def test_describe_of_all_that_the_script_made(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(
        scylla,
        home,
        """
        CREATE TABLE shop.described (id int PRIMARY KEY, v int, gone bigint TTL) WITH cdc = {'enabled': true};
        ALTER TABLE shop.described DROP v;
        DESCRIBE TABLE shop.described_scylla_cdc_log WITH INTERNALS;
        DESCRIBE TABLE shop.described WITH INTERNALS;
        DESCRIBE ONLY KEYSPACE shop;
        DESCRIBE SCHEMA;
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout
    assert printed.lstrip().startswith("/*")
    log, rest = printed.split("*/", 1)
    assert 'ALTER TABLE shop.described_scylla_cdc_log DROP "cdc$deleted_v" USING TIMESTAMP' in log
    assert "    gone bigint TTL" in rest
    assert "ALTER TABLE shop.described DROP v USING TIMESTAMP" in rest
    assert "ALTER TABLE shop.described_scylla_cdc_log WITH bloom_filter_fp_chance = 0.01" in rest
    assert rest.count("CREATE KEYSPACE shop") == 2
    assert "CREATE TABLE shop.described_scylla_cdc_log" not in rest


def test_a_trace_is_shown(scylla: EmbeddedScylla, home: Path) -> None:
    done = cqlsh(scylla, home, "TRACING ON; SELECT customer FROM shop.orders;")
    assert done.returncode == 0, done.stderr
    assert "Tracing session:" in done.stdout
    assert "Processing a statement" in done.stdout
