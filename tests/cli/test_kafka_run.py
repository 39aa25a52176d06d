"""``rscylla kafka run``: the connector's files, verdicts, a dry run, and a run with a stop."""

from __future__ import annotations

import io
import json
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from mockkafka import MockKafka
from waiting import eventually

from rscylla.cli.kafka_run import snapshot_bars
from rscylla.cli.shared.failures import reports_errors
from rscylla.cli.shared.standard import hide, say
from rscylla.errors import ConfigError

from .conftest import Process, Run, Shop

SEED = """name=ScyllaCDCSourceConnector
connector.class=com.scylladb.cdc.debezium.connector.ScyllaConnector
scylla.name=MyScyllaCluster
scylla.cluster.ip.addresses={host}
scylla.table.names={keyspace}.orders

tasks.max=10
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true

auto.create.topics.enable=true
"""


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=1) as cluster:
        yield cluster


@pytest.fixture
def file(tmp_path: Path, shop: Shop) -> Callable[..., str]:
    def write(text: str = SEED, **more: str) -> str:
        path = tmp_path / "connector.properties"
        lines = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in more.items())
        path.write_text(text.format(host=shop.host, keyspace=shop.keyspace) + lines)
        return str(path)

    return write


def test_a_dry_run_prints_records_as_json_lines(run: Run, shop: Shop, file: Callable[..., str]) -> None:
    shop.insert(1, 2)
    path = file(scylla_confidence_window_size="1", value_converter_schemas_enable="false")
    ran = run("kafka", "run", path, "--dry-run")
    assert ran.code == 0, ran.err
    assert [line["key"]["payload"]["id"] for line in ran.objects] == [1, 2]
    assert {line["topic"] for line in ran.objects} == {f"MyScyllaCluster.{shop.keyspace}.orders"}
    assert [line["value"]["op"] for line in ran.objects] == ["c", "c"]
    assert [line for line in ran.err if "tasks.max" in line] == [
        "warning: tasks.max has no effect: one process reads all; several share the keys by `rscylla.group`"
    ]
    assert len(run("kafka", "run", path, "--dry-run").out) == 2  # no cursor is saved


def test_the_file_of_the_documentation_runs_unchanged(
    start: Callable[..., Process], file: Callable[..., str], kafka: MockKafka
) -> None:
    process = start("kafka", "run", file(), "--bootstrap-servers", kafka.servers)
    eventually(lambda: any("publishing" in line for line in process.err), 30)
    assert process.end(signal.SIGTERM) == 0
    assert not [line for line in process.err if "Traceback" in line]


def test_a_run_publishes_until_a_signal_and_continues_after_it(
    start: Callable[..., Process], shop: Shop, file: Callable[..., str], kafka: MockKafka
) -> None:
    topic = f"MyScyllaCluster.{shop.keyspace}.orders"
    kafka.create(topic)
    path = file(
        scylla_confidence_window_size="50",
        key_converter_schemas_enable="false",
        auto_create_topics_enable="false",
    )

    def keys() -> list[int]:
        return [json.loads(message.key or b"")["id"] for message in kafka.read(topic)]

    for done in ([1], [1, 2]):
        shop.insert(done[-1])
        process = start("kafka", "run", path, "--bootstrap-servers", kafka.servers, "--port", "0")
        eventually(lambda expected=done: keys() == expected, 30)
        assert process.end(signal.SIGTERM) == 0, process.err
    assert keys() == [1, 2]


def test_a_dry_run_asks_no_registry_and_joins_no_group(run: Run, shop: Shop, file: Callable[..., str]) -> None:
    shop.insert(1)
    avro = "io.confluent.connect.avro.AvroConverter"
    text = SEED.replace("value.converter=org.apache.kafka.connect.json.JsonConverter", f"value.converter={avro}")
    path = file(
        text.replace("value.converter.schemas.enable=true\n", ""),
        scylla_confidence_window_size="1",
        value_converter_schema_registry_url="http://user:pw@127.0.0.1:1",  # nobody listens there
        value_converter_auto_register_schemas="false",
        value_converter_use_latest_version="true",
        rscylla_group="shippers",
        rscylla_store_keyspace=shop.keyspace,
        exactly_once_support="required",
    )
    ran = run("kafka", "run", path, "--dry-run")
    assert ran.code == 0, ran.err
    assert [list(json.loads(line)) for line in ran.out] == [["topic", "key", "value_base64"]]
    tables = shop.cql(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{shop.keyspace}'")
    assert {row.table_name for row in tables} == {"orders", "orders_scylla_cdc_log"}


def test_verdicts_are_json_and_the_exit_code_says_whether_the_connector_refuses(
    run: Run, file: Callable[..., str], shop: Shop
) -> None:
    ran = run("kafka", "run", file(), "--validate")
    assert (ran.code, [one["property"] for one in json.loads("".join(ran.out))]) == (0, ["tasks.max"])
    ran = run("kafka", "run", file(cdc_output_format="advanced", cdc_include_after="full"), "--validate")
    [refused] = [one for one in json.loads("".join(ran.out)) if one["level"] == "error"]
    assert (ran.code, refused["property"]) == (1, "cdc.include.after")
    assert f"{shop.keyspace}.orders has 'postimage': false" in refused["message"]
    ran = run("kafka", "run", file(topic_delimiter="", tombstones_on_delete="maybe"), "--validate")
    assert ran.code == 1


def test_secrets_are_in_no_error(run: Run, file: Callable[..., str]) -> None:
    path = file(scylla_user="u", scylla_password="${env:PW}", rscylla_start="${env:PW}")
    ran = run("kafka", "run", path, "--dry-run", PW="swordfish")
    assert ran.code != 0
    assert "swordfish" not in "".join([*ran.err, *ran.out])
    topics = file(topic_prefix="a swordfish b", scylla_user="u", scylla_password="swordfish")
    assert "swordfish" not in "".join(run("kafka", "run", topics, "--validate").out)


def test_a_bar_shows_the_part_of_each_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    with snapshot_bars() as bars:
        assert bars is None  # no terminal
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    with snapshot_bars() as bars:
        assert bars is not None
        bars("shop.orders", 0.25, 1000)
        bars("shop.items", 0.5, 10)
        bars("shop.orders", 0.75, 3000)
        bars("shop.items", 1.0, 20)
    shown = terminal.getvalue()
    assert "snapshot of shop.orders" in shown
    assert "75.0 %" in shown
    assert "3,000 rows" in shown


def test_secrets_are_in_no_traceback_and_no_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @reports_errors
    def command() -> None:
        hide(lambda text: text.replace("swordfish", "[hidden]"))
        try:
            raise ValueError("swordfish")
        except ValueError as e:
            logging.getLogger("rscylla.kafka").warning("it failed", exc_info=True)
            raise ConfigError("it is wrong: swordfish") from e

    monkeypatch.setenv("RSCYLLA_DEBUG", "1")
    with pytest.raises(typer.Exit):
        command()
    shown = capsys.readouterr().err
    assert shown.count("Traceback") >= 2
    assert "error: it is wrong: [hidden]" in shown
    assert "swordfish" not in shown
    say("swordfish")
    assert capsys.readouterr().err == "swordfish\n"


def test_what_is_wrong_is_one_line(run: Run, file: Callable[..., str], tmp_path: Path) -> None:
    assert "cannot be read" in run("kafka", "run", str(tmp_path / "none")).error
    assert "exclude each other" in run("kafka", "run", file(), "--validate", "--dry-run").error
    assert "cdc.output.format must be one of" in run("kafka", "run", file(cdc_output_format="x")).error
    assert "bootstrap.servers is missing" in run("kafka", "run", file()).error
