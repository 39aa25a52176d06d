"""``Properties``: formats, references, verdicts by name, secrets; and what becomes of them for librdkafka and TLS."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from connectorcases import cases
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from cursorstore import MemoryCursorStore
from rscylla.debezium import PROPERTIES as OF_RECORDS
from rscylla.errors import ConfigError
from rscylla.kafka import Connector
from rscylla.kafka.config.client import producer_config, producer_findings
from rscylla.kafka.config.keystores import kafka_stores, read_store, scylla_context
from rscylla.kafka.config.properties import PROPERTIES, Properties, property_of
from rscylla.kafka.config.redaction import HIDDEN
from rscylla.kafka.producer.publisher import KafkaPublisher

NEEDED = {
    "topic.prefix": "demo",
    "scylla.cluster.ip.addresses": "127.0.0.1:9042",
    "scylla.table.names": "shop.items",
}

SEED = r"""
name=ScyllaCDCSourceConnector
connector.class=com.scylladb.cdc.debezium.connector.ScyllaConnector
scylla.name=MyScyllaCluster
scylla.cluster.ip.addresses=127.0.0.1:9042,127.0.0.2:9042
scylla.table.names=ks.my_table

tasks.max=10
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true

auto.create.topics.enable=true
"""


def levels(properties: Properties) -> dict[str, str]:
    return {finding.property: finding.level for finding in properties.findings}


def of(**more: str) -> Properties:
    return Properties.of(NEEDED | {name.replace("_", "."): value for name, value in more.items()})


def test_the_file_of_the_connectors_own_documentation_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(SEED)
    properties = Properties.read(path)
    assert properties.errors == []
    assert properties["topic.prefix"] == "MyScyllaCluster"
    assert properties.parts("scylla.cluster.ip.addresses") == ["127.0.0.1:9042", "127.0.0.2:9042"]
    assert levels(properties) == {"tasks.max": "warning"}


def test_javas_format_has_continuations_escapes_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    path.write_text(
        "# comment\n! comment\ntopic.prefix : d\\u00e4mo\nscylla.table.names = a.b,\\\n    c.d\n"
        "scylla.cluster.ip.addresses h\\:9042\nname = \\ lead\\tä\n",
        "utf-8",
    )
    found = Properties.read(path)
    assert dict(found) == {
        "topic.prefix": "dämo",
        "scylla.table.names": "a.b,c.d",
        "scylla.cluster.ip.addresses": "h:9042",
        "name": " lead\tä",
    }


def test_json_is_taken_as_connects_rest_interface_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"name": "orders", "config": NEEDED | {"tasks.max": 1, "tombstones.on.delete": False}}))
    found = Properties.read(path)
    assert (found["name"], found["tombstones.on.delete"], found.errors) == ("orders", "false", [])
    path.write_text(json.dumps(NEEDED))
    assert dict(Properties.read(path)) == NEEDED
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        Properties.read(path)


def test_a_workers_file_gives_what_the_connectors_does_not(tmp_path: Path) -> None:
    worker, connector = tmp_path / "worker.properties", tmp_path / "connector.properties"
    worker.write_text("bootstrap.servers=kafka:9092\nkey.converter=x\ngroup.id=connect\n")
    connector.write_text("\n".join(f"{k}={v}" for k, v in NEEDED.items()) + "\nkey.converter=y\n")
    found = Properties.read(connector, worker)
    assert (found["bootstrap.servers"], found["key.converter"]) == ("kafka:9092", "y")


@pytest.mark.parametrize("half", ["key", "value", "header"])
@pytest.mark.parametrize(
    ("own", "of_worker", "found"),
    [
        ({"": "A"}, {"": "B", ".x": "2", ".schema.registry.url": "u"}, {"": "A"}),
        ({"": "A", ".x": "1"}, {"": "B", ".x": "2"}, {"": "A", ".x": "1"}),
        ({".x": "1"}, {"": "B", ".y": "2"}, {"": "B", ".y": "2"}),
        ({"": " ", ".x": "1"}, {"": "B"}, {"": "B"}),
        ({".x": "1"}, {}, {".x": "1"}),
        ({}, {"": "B", ".x": "2"}, {"": "B", ".x": "2"}),
    ],
)
def test_options_of_a_converter_count_beside_its_class(
    tmp_path: Path, half: str, own: dict[str, str], of_worker: dict[str, str], found: dict[str, str]
) -> None:
    def written(name: str, values: dict[str, str]) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(f"{name}={value}" for name, value in values.items()))
        return path

    def named(values: dict[str, str]) -> dict[str, str]:
        return {f"{half}.converter{name}": value for name, value in values.items()}

    properties = Properties.read(written("c", NEEDED | named(own)), written("w", named(of_worker)))
    assert {name: value for name, value in properties.items() if "converter" in name} == named(found)
    unread = {f.property for f in properties.findings if "the converter is the worker's" in f.message}
    assert unread == ({f"{half}.converter.x"} if ".x" in own and ".x" not in found else set())


def test_the_heartbeats_of_a_worker_in_its_group_are_no_heartbeats_of_a_connector(tmp_path: Path) -> None:
    worker, connector = tmp_path / "worker.properties", tmp_path / "connector.properties"
    worker.write_text("heartbeat.interval.ms=1000\n")
    connector.write_text("\n".join(f"{k}={v}" for k, v in NEEDED.items()))
    assert Properties.read(connector, worker).number("heartbeat.interval.ms") == 30_000


BOMS = {"utf-8-sig": b"", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", *BOMS])
@pytest.mark.parametrize("kind", ["java", "json"])
def test_files_are_read_in_the_encodings_that_java_and_tools_write(tmp_path: Path, encoding: str, kind: str) -> None:
    path, values = tmp_path / "c", NEEDED | {"name": "Schl\u00fcssel"}
    text = json.dumps(values, ensure_ascii=False)
    if kind == "java":
        text = "\n".join(["# \u00fcber", *(f"{name}={value}" for name, value in values.items())])
    path.write_bytes(BOMS.get(encoding, b"") + text.encode(encoding))
    if (kind, encoding) == ("json", "latin-1"):
        with pytest.raises(ConfigError, match="is not UTF-8, at byte"):
            Properties.read(path)
        return
    assert dict(Properties.read(path)) == values
    if kind == "java":
        referring = Properties.of(NEEDED | {"name": f"${{file:{path}:name}}"})
        assert referring["name"] == values["name"]


def test_a_secret_in_a_file_of_its_own_may_have_a_byte_order_mark_and_any_end_of_line(tmp_path: Path) -> None:
    (tmp_path / "pw").write_bytes(b"\xef\xbb\xbfp\xc3\xa4ss\r\n")
    assert Properties.of(NEEDED | {"name": f"${{directory:{tmp_path}:pw}}"})["name"] == "p\u00e4ss"
    (tmp_path / "pw").write_bytes(b"p\xe4ss")
    with pytest.raises(ConfigError, match=r"pw cannot be read: it is not UTF-8, at byte 1"):
        Properties.of(NEEDED | {"name": f"${{directory:{tmp_path}:pw}}"})


def test_references_are_resolved_and_never_shown(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("pw=hunter22\n")
    (tmp_path / "token").write_text("t0ken\n")
    given = NEEDED | {
        "scylla.user": "${env:WHO}",
        "scylla.password": f"${{file:{secrets}:pw}}",
        "producer.override.sasl.jaas.config": f'x required username="u" password="${{directory:{tmp_path}:token}}";',
    }
    found = Properties.of(given, env={"WHO": "scylla"})
    assert (found["scylla.user"], found["scylla.password"]) == ("scylla", "hunter22")
    for shown in (repr(found), str(found.shown()), found.redacted("login of scylla with hunter22 failed")):
        assert "hunter22" not in shown
        assert "t0ken" not in shown
    assert found.shown()["scylla.password"] == HIDDEN


@pytest.mark.parametrize("reference", ["${env:NONE}", "${file:/none:x}", "${vault:a:b}", "${directory:/none:x}"])
def test_a_reference_that_leads_nowhere_is_refused_with_the_name_of_the_property(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"scylla\.password|/none"):
        Properties.of(NEEDED | {"scylla.password": reference}, env={})


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("scylla.table.name", "a.b", "warning"),  # unknown
        ("scylla.query.time.window.size", "60000", "warning"),  # inert
        ("scylla.query.time.window.size", "30000", None),  # inert, at its default
        ("scylla.query.time.window.size", "-1", "error"),
        ("converters", "x", "warning"),  # unsupported
        ("cdc.output.format", "modern", "error"),
        ("tombstones.on.delete", "yes", "error"),
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector", "error"),
        ("scylla.table.names", 'shop."Orders"', "error"),
        ("scylla.table.names", "shop.*", None),
        ("scylla.cluster.ip.addresses", "localhost", "error"),
        ("header.converter", "org.apache.kafka.connect.json.JsonConverter", "error"),
        ("exactly.once.support", "required", None),
        ("heartbeat.interval.ms", "1" * 30, "error"),
    ],
)
def test_each_property_has_its_verdict(name: str, value: str, level: str | None) -> None:
    found = Properties.of(NEEDED | {name: value})
    assert levels(found).get(name) == level or {"warning", "error"} & {levels(found).get(name)} == {level}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "0") for name in ("scylla.query.time.window.size", "scylla.confidence.window.size")),
        *((f"worker.{name}", "0") for name in ("retry.backoff.base", "maximum.backoff", "pooling.core.pool.local")),
        *((f"worker.pooling.max.{name}", "0") for name in ("pool.local", "requests.per.connection", "queue.size")),
        ("worker.jitter.percentage", "2147483647"),
        ("scylla.consistency.level", "LOCAL_SERIAL"),
        ("scylla.consistency.level", " Local_Quorum "),
        ("snapshot.mode", "schema_only"),
        ("snapshot.mode", "Always"),
        ("tombstones.on.delete", " TRUE "),
        ("max.queue.size.in.bytes", "9223372036854775807"),
        ("heartbeat.interval.ms", "+5"),
        ("scylla.table.names", "a.b , c.d,"),
        ("cdc.include.primary-key.placement", "KAFKA-KEY, payload-diff"),
        ("skipped.operations", "c,u,"),
    ],
)
def test_what_the_java_connector_takes_is_taken(name: str, value: str) -> None:
    found = Properties.of(NEEDED | {name: value})
    assert found.errors == []
    assert Connector(found, None, MemoryCursorStore(), lambda keyspace: MemoryCursorStore())  # type: ignore[arg-type]


def test_modes_of_snapshots_that_the_connector_ignores_publish_no_rows() -> None:
    for mode in ("always", "NO_DATA", "recovery"):
        found = of(snapshot_mode=mode)
        assert (found.snapshot_mode, [f.level for f in found.findings]) == ("never", ["warning"])
    assert of(snapshot_mode="Initial").snapshot_mode == "initial"
    assert of().snapshot_mode == "never"


def test_a_name_that_is_nearly_right_is_corrected() -> None:
    [finding] = of(scylla_table_name="a.b").findings
    assert "did you mean scylla.table.names?" in finding.message


def test_an_option_that_a_transform_does_not_have_is_named() -> None:
    unwrap = "com.scylladb.cdc.debezium.connector.transforms.ScyllaExtractNewRecordState"
    properties = of(transforms="t", transforms_t_type=unwrap, transforms_t_drop_tombstone="true")
    (finding,) = properties.findings
    assert (finding.property, finding.level) == ("transforms.t.drop.tombstone", "warning")
    assert "no option of the transform" in finding.message


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_what_is_missing_is_named(missing: str) -> None:
    found = Properties.of({name: value for name, value in NEEDED.items() if name != missing})
    assert [finding.property for finding in found.errors] == [missing]
    with pytest.raises(ConfigError, match=missing.replace(".", r"\.")):
        found.require()


def test_user_and_password_belong_together() -> None:
    assert [f.property for f in of(scylla_user="u").errors] == ["scylla.password"]
    assert [f.property for f in of(scylla_password="p").errors] == ["scylla.user"]
    assert of(scylla_user="u", scylla_password="p").findings == ()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("value.converter.schema.registry.url", "http://u:sword%2Ffish@r:8081,http://u:other1@s", "for sword/fish: no"),
        ("value.converter.schema.registry.url", "http://u:sword%2Ffish@r:8081,http://u:other1@s", "http://u:other1@s"),
        ("value.converter.basic.auth.user.info", "u:sword:fish", "Basic sword:fish"),
        ("value.converter.schema.registry.basic.auth.user.info", "u:swordfish", "'swordfish'"),
        ("value.converter.bearer.auth.token", "swordfish", "Bearer swordfish"),
        ("producer.override.sasl.jaas.config", 'x required username="u" password="sword\\"fish";', 'is sword"fish'),
        ("producer.override.sasl.jaas.config", "x required username=u password=swordfish;", "is swordfish"),
        ("producer.override.ssl.key.pem", "-----BEGIN KEY", "-----BEGIN KEY"),
    ],
)
def test_passwords_within_values_are_secrets(name: str, value: str, said: str) -> None:
    properties = of(**{name: value})
    for shown in (repr(properties), properties.redacted(value), properties.redacted(said)):
        for secret in ("fish", "other1", "KEY"):
            assert secret not in shown


def test_where_credentials_come_from_is_no_secret() -> None:
    properties = of(**{"value.converter.basic.auth.credentials.source": "USER_INFO"})
    assert properties.redacted("USER_INFO") == "USER_INFO"


def test_no_value_of_a_secret_is_in_a_verdict() -> None:
    assert "swordfish" not in str(of(scylla_password="swordfish").findings)


@pytest.mark.parametrize("case", [case for case in cases().values() if not case.is_refused], ids=lambda case: case.name)
def test_recorded_configurations_are_taken(case: Any) -> None:
    found = Properties.of({"scylla.cluster.ip.addresses": "h:9042"} | case.properties)
    assert found.errors == []
    assert [f for f in found.findings if "is not known" in f.message] == []


def test_the_table_has_each_name_once_and_all_that_decide_about_records() -> None:
    names = [one.name for one in PROPERTIES]
    assert len(set(names)) == len(names)
    for name in OF_RECORDS.values():
        known = property_of(name)
        assert known is not None, name
        assert known.status == "supported"


def test_defaults_are_what_their_checks_take() -> None:
    for one in PROPERTIES:
        assert one.default is None or one.check(one.default) == "", one.name


# ---------------------------------------------------------------- the producer


def test_javas_names_of_the_producer_become_librdkafkas() -> None:
    found = Properties.of(
        NEEDED
        | {
            "bootstrap.servers": "kafka:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'org.apache...ScramLoginModule required username="u" password="p\\"q";',
            "producer.linger.ms": "1",
            "producer.override.linger.ms": "50",
            "producer.override.buffer.memory": "33554432",
            "producer.override.max.request.size": "2000000",
            "producer.override.compression.type": "lz4",
            "producer.override.partitioner.class": "org.example.Mine",
            "producer.override.metric.reporters": "org.example.Mine",
            "producer.override.max.block.ms": "1",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    config, findings = producer_config(found)
    assert config == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'p"q',
        "linger.ms": "50",
        "queue.buffering.max.kbytes": 32768,
        "message.max.bytes": "2000000",
        "compression.type": "lz4",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert sorted(f.property.removeprefix("producer.override.") for f in findings) == [
        "max.block.ms",
        "metric.reporters",
        "partitioner.class",
    ]


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def as_pkcs12(authority: trustme.CA, password: str, *, identity: bool) -> bytes:
    leaf = authority.issue_cert("client")
    encryption = BestAvailableEncryption(password.encode())
    ca = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    if not identity:
        return pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], encryption)
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    own = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    return pkcs12.serialize_key_and_certificates(b"me", key, own, [ca], encryption)  # type: ignore[arg-type]


def test_stores_of_java_are_read_as_pkcs12(authority: trustme.CA, tmp_path: Path) -> None:
    trust, keys = tmp_path / "trust.jks", tmp_path / "keys.p12"  # Java writes PKCS12 under either name
    trust.write_bytes(as_pkcs12(authority, "changeit", identity=False))
    keys.write_bytes(as_pkcs12(authority, "changeit", identity=True))
    given = {
        "scylla.ssl.enabled": "true",
        "scylla.ssl.truststore.path": str(trust),
        "scylla.ssl.truststore.password": "changeit",
        "scylla.ssl.keystore.path": str(keys),
        "scylla.ssl.keystore.password": "changeit",
    }
    context = scylla_context(Properties.of(NEEDED | given))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
    found = kafka_stores({"ssl.truststore.location": str(trust), "ssl.truststore.password": "changeit"})
    assert found["ssl.ca.pem"].startswith("-----BEGIN CERTIFICATE-----")
    with pytest.raises(ConfigError, match="its password is wrong"):
        scylla_context(Properties.of(NEEDED | given | {"scylla.ssl.keystore.password": "wrong"}))


def test_pem_is_read_for_either_provider(authority: trustme.CA, tmp_path: Path) -> None:
    leaf = authority.issue_cert("client")
    chain, key, ca = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    leaf.private_key_pem.write_to_path(str(key))
    leaf.cert_chain_pems[0].write_to_path(str(chain))
    authority.cert_pem.write_to_path(str(ca))
    given = {
        "scylla.ssl.enabled": "true",
        "scylla.ssl.provider": "OPENSSL",
        "scylla.ssl.truststore.path": str(ca),
        "scylla.ssl.openssl.keyCertChain": str(chain),
        "scylla.ssl.openssl.privateKey": str(key),
    }
    assert scylla_context(Properties.of(NEEDED | given)) is not None
    other = tmp_path / "other.pem"
    authority.issue_cert("other").private_key_pem.write_to_path(str(other))
    with pytest.raises(ConfigError, match="do not fit together"):
        scylla_context(Properties.of(NEEDED | given | {"scylla.ssl.openssl.privateKey": str(other)}))
    assert scylla_context(Properties.of(NEEDED)) is None


def test_pem_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path, pem = tmp_path / "ca.pem", trustme.CA().cert_pem.bytes()
    path.write_bytes(b"\xef\xbb\xbf" + pem)
    assert read_store("x", str(path)).authorities.splitlines() == pem.decode().splitlines()


def test_a_java_key_store_is_answered_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigError, match=f"keytool -importkeystore -srckeystore {path}"):
        read_store("scylla.ssl.truststore.path", str(path), "changeit")
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="neither PEM nor PKCS12"):
        read_store("x", str(path), "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"acks": "all"}, {}),
        ({"acks": "1"}, {"enable.idempotence": "false"}),
        ({"enable.idempotence": "false"}, {}),
        ({"enable.idempotence": "false", "max.in.flight.requests.per.connection": "5"}, {}),
    ],
)
def test_a_producer_has_one_request_on_its_way_unless_told(given: dict[str, str], expected: dict[str, str]) -> None:
    found = Properties.of(NEEDED | {f"producer.override.{name}": value for name, value in given.items()})
    config, findings = producer_config(found)
    assert config == given | expected
    assert findings == []
    with KafkaPublisher({"bootstrap.servers": "localhost:1", "log_level": 0, **config}) as publisher:
        on_its_way = int(publisher._config["max.in.flight.requests.per.connection"])
    assert on_its_way == int(given.get("max.in.flight.requests.per.connection", 1))


LEGAL = [
    # Java's setting, what librdkafka is told (None: nothing), and whether that is another thing, so that it is said.
    ("batch.size", "0", "batch.size", "1", False),
    ("batch.size", "16384", "batch.size", "16384", False),
    ("linger.ms", "3600000", "linger.ms", "900000", True),
    ("retries", "0", "retries", None, True),
    ("retries", "2147483647", "retries", "2147483647", False),
    ("max.in.flight.requests.per.connection", "10", "max.in.flight.requests.per.connection", "5", True),
    ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0", False),
    ("receive.buffer.bytes", "-1", "socket.receive.buffer.bytes", "0", False),
    ("receive.buffer.bytes", "2147483647", "socket.receive.buffer.bytes", "100000000", True),
    ("connections.max.idle.ms", "-1", "connections.max.idle.ms", "0", False),
    ("connections.max.idle.ms", "9223372036854775807", "connections.max.idle.ms", "2147483647", True),
    ("retry.backoff.ms", "0", "retry.backoff.ms", "1", False),
    ("retry.backoff.max.ms", "0", "retry.backoff.max.ms", "1", False),
    ("retry.backoff.max.ms", "600000", "retry.backoff.max.ms", "300000", True),
    ("reconnect.backoff.ms", "20000", "reconnect.backoff.max.ms", "20000", False),
    ("reconnect.backoff.max.ms", "0", "reconnect.backoff.max.ms", "100", False),
    ("reconnect.backoff.max.ms", "7200000", "reconnect.backoff.max.ms", "3600000", True),
    ("metadata.max.age.ms", "0", "metadata.max.age.ms", "1000", True),
    ("metadata.recovery.strategy", "rebootstrap", "metadata.recovery.strategy", "rebootstrap", False),
    ("request.timeout.ms", "0", "request.timeout.ms", "1", True),
    ("max.request.size", "0", "message.max.bytes", "1000", True),
    ("max.request.size", "2147483647", "message.max.bytes", "1000000000", True),
    ("buffer.memory", "0", "queue.buffering.max.kbytes", 1, False),
    ("buffer.memory", "9223372036854775807", "queue.buffering.max.kbytes", 2147483647, False),
    ("socket.connection.setup.timeout.ms", "500", "socket.connection.setup.timeout.ms", "1000", True),
    ("transaction.timeout.ms", "500", "transaction.timeout.ms", "1000", True),
    ("delivery.timeout.ms", "2147483647", "delivery.timeout.ms", "2147483647", False),
    ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "ssl.cipher.suites", None, False),
    (
        *("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.cipher.suites"),
        *("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", False),
    ),
    ("security.protocol", "ssl", "security.protocol", "ssl", False),
    ("interceptor.classes", "org.example.Mine", "interceptor.classes", None, True),
]


@pytest.mark.parametrize(("name", "value", "in_librdkafka", "becomes", "is_said"), LEGAL)
@pytest.mark.parametrize("mode", ["requested", "required"])
@pytest.mark.slow
def test_what_javas_producer_takes_starts(
    name: str, value: str, in_librdkafka: str, becomes: str | int | None, is_said: bool, mode: str
) -> None:
    given = {f"producer.override.{name}": value, "exactly.once.support": mode}
    config, findings = producer_config(Properties.of(NEEDED | given))
    assert config.get(in_librdkafka) == becomes
    assert [finding.property for finding in findings] == [f"producer.override.{name}"] * is_said
    assert producer_findings(Properties.of(NEEDED | given)) == findings
    KafkaPublisher({"bootstrap.servers": "localhost:1", "log_level": 0, **config}).close()


def test_a_producer_that_is_told_not_to_be_idempotent_may_send_once_and_have_more_on_its_way() -> None:
    given = {"enable.idempotence": "false", "retries": "0", "max.in.flight.requests.per.connection": "10"}
    override = {f"producer.override.{name}": value for name, value in given.items()}
    assert producer_config(Properties.of(NEEDED | override)) == (given, [])
    exactly, findings = producer_config(Properties.of(NEEDED | override | {"exactly.once.support": "required"}))
    assert exactly == {"max.in.flight.requests.per.connection": "5"}
    assert {finding.property for finding in findings} == override.keys()


def test_levels_of_compression_are_of_the_kind_that_is_used() -> None:
    levels = {"compression.gzip.level": "9", "compression.lz4.level": "17", "compression.zstd.level": "-5"}
    for kind, level in (("gzip", "9"), ("lz4", "12"), ("zstd", "-1"), ("none", None)):
        given = {f"producer.override.{name}": value for name, value in (levels | {"compression.type": kind}).items()}
        config, findings = producer_config(Properties.of(NEEDED | given))
        assert (config.get("compression.level"), findings) == (level, [])


@pytest.mark.parametrize(
    ("jaas", "expected"),
    [
        ("x required username=u password=p;", {"sasl.username": "u", "sasl.password": "p"}),
        ("x required username='u' password='p\"q';", {"sasl.username": "u", "sasl.password": 'p"q'}),
        (
            'x required clientId="c" clientSecret="s" scope="a b";',
            {
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
    ],
)
def test_logins_of_jaas(jaas: str, expected: dict[str, str]) -> None:
    assert producer_config(Properties.of(NEEDED | {"producer.override.sasl.jaas.config": jaas})) == (expected, [])


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("compression.type", "rar", 'Invalid value "rar"'),
        ("batch.size", "many", "producer.override.batch.size must be a whole number, not 'many'"),
        ("buffer.memory", "1.5", "producer.override.buffer.memory must be a whole number"),
        ("acks", "some", "request.required.acks"),
        ("sasl.mechanism", "GSSAPI", "recompile librdkafka"),
        ("ssl.cipher.suites", "NONE_OF_THESE", "no cipher match"),
    ],
)
def test_what_librdkafka_refuses_is_an_error_before_anything_is_connected(name: str, value: str, wrong: str) -> None:
    protocol = {"sasl.mechanism": "SASL_PLAINTEXT", "ssl.cipher.suites": "SSL"}.get(name, "PLAINTEXT")
    given = {f"producer.override.{name}": value, "security.protocol": protocol, "bootstrap.servers": "localhost:1"}
    (error,) = producer_findings(Properties.of(NEEDED | given))
    assert error.level == "error"
    assert wrong in f"{error.property} {error.message}"


def test_a_producer_without_transactions_has_no_name_for_them() -> None:
    config, [finding] = producer_config(Properties.of(NEEDED | {"producer.override.transactional.id": "t"}))
    assert (config, finding.message) == ({}, "has no effect in librdkafka")
