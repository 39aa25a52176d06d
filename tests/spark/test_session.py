"""Sessions of workers: shared, logged in, over TLS, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from cassandra.cluster import EXEC_PROFILE_DEFAULT

import rscylla
from rscylla import ConfigError, ConnectionFailed
from rscylla.embedded import EmbeddedScylla, Tls
from rscylla.errors import AuthenticationFailed
from rscylla.spark.loops.windows import _address, read_options
from rscylla.spark.session.session import close_sessions, session_for
from rscylla.spark.source.options import Options


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_sessions()


def options(scylla: EmbeddedScylla, **more: object) -> Options:
    given = {"contactPoints": f"127.0.0.1:{scylla.port}", "keyspace": "ks", "table": "t", "lag": "30s"}
    return Options.of(given | {name: str(value) for name, value in more.items()})


def test_equal_connections_share_a_session_until_it_is_closed() -> None:
    with EmbeddedScylla() as scylla:
        first = session_for(options(scylla).connection)
        assert session_for(options(scylla, mode="log", lag="1m").connection) is first
        assert session_for(options(scylla, consistency="ONE").connection) is not first
        close_sessions()
        assert first.session.is_shutdown
        assert session_for(options(scylla).connection) is not first
        close_sessions()


def test_a_worker_prefers_the_nodes_of_the_data_center_that_was_given() -> None:
    with EmbeddedScylla() as scylla:
        for given, local in ({"localDc": "datacenter1"}, "datacenter1"), ({}, None):
            session = session_for(options(scylla, **given).connection).session
            policy = session.get_execution_profile(EXEC_PROFILE_DEFAULT).load_balancing_policy
            assert getattr(policy._child_policy, "local_dc", None) == local
        close_sessions()


def test_who_logs_in_and_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PASSWORD", "secret")
    with EmbeddedScylla(users={"spark": "secret"}) as scylla:
        assert session_for(options(scylla, username="spark", passwordEnv="SPARK_PASSWORD").connection)
        with pytest.raises(AuthenticationFailed, match="refused the user name or password"):
            session_for(options(scylla, username="spark", password="wrong").connection)
        close_sessions()


def test_an_unknown_consistency_is_reported_before_anything_is_opened() -> None:
    with EmbeddedScylla() as scylla, pytest.raises(ConfigError, match="no consistency level is named 'SOME'"):
        session_for(options(scylla, consistency="some").connection)


def test_tls_and_the_name_in_the_nodes_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    for name, address in (("named", "127.0.0.1"), ("other", "elsewhere.example")):
        leaf = authority.issue_cert(address)
        leaf.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.crt")
        leaf.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    ca = tmp_path / "ca"
    with EmbeddedScylla(tls=Tls(tmp_path / "named.crt", tmp_path / "named.key")) as scylla:
        assert session_for(options(scylla, tlsCa=ca).connection)
        close_sessions()
    with EmbeddedScylla(tls=Tls(tmp_path / "other.crt", tmp_path / "other.key")) as scylla:
        for given in ({}, {"tlsCheckHostname": True}):
            with pytest.raises(ConnectionFailed):
                session_for(options(scylla, tlsCa=ca, **given).connection)
        assert session_for(options(scylla, tlsCa=ca, tlsCheckHostname=False).connection)
        close_sessions()


@pytest.mark.parametrize("checked", [True, False])
def test_executors_connect_as_the_session_of_the_stream_does(tmp_path: Path, checked: bool) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "crt")
    leaf.private_key_pem.write_to_path(tmp_path / "key")
    tls = Tls(tmp_path / "crt", tmp_path / "key")
    with EmbeddedScylla(tls=tls, users={"u": "secret"}) as scylla:
        session = rscylla.connect(
            [f"127.0.0.1:{scylla.port}"],
            username="u",
            password="secret",
            tls_ca=str(tmp_path / "ca"),
            tls_check_hostname=checked,
        )
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
        stream = rscylla.NewStream(session, "ks", "t")
        source = stream.describe()

        def read(**given: object) -> dict[str, str]:
            return read_options(stream, source, timedelta(seconds=30), "log", {n: str(v) for n, v in given.items()})

        user = {"username": "u", "password": "secret"}
        with pytest.raises(ConfigError, match=r"uses TLS, .* pass read={'tlsCa'"):
            read(**user)
        with pytest.raises(ConfigError, match=r"logs in, .* pass read={'username'"):
            read(tlsCa="ca")
        assert read(tlsCa="ca", credentialsFile="f")["credentialsFile"] == "f"
        for own in ("mode", "LAG", "Keyspace", "table", "startingPosition", "endingPosition"):
            with pytest.raises(ConfigError, match=f"must not contain '{own}'"):
                read(**user, tlsCa="ca", **{own: "x"})
        found = Options.of(read(**user, tlsCa=tmp_path / "ca"))
        assert (found.keyspace, found.table, found.mode, found.lag_us) == ("ks", "t", "log", 30_000_000)
        assert found.connection.contact_points == (f"127.0.0.1:{scylla.port}",)
        assert found.connection.tls_check_hostname is checked
        assert session_for(found.connection)
        assert found.connection.consistency == "QUORUM"
        stream = rscylla.NewStream(session, "ks", "t", consistency="LOCAL_ONE")
        assert read(**user, tlsCa="ca")["consistency"] == "LOCAL_ONE"
        assert read(**user, tlsCa="ca", Consistency="ALL")["Consistency"] == "ALL"
        given = Options.of(read(**user, tlsCa="ca", tlsCheckHostname=not checked, contactPoints="a:1,b:2"))
        assert given.connection.tls_check_hostname is not checked
        assert given.connection.contact_points == ("a:1", "b:2")
        assert read(**user, tlsCa="ca", port=9999)["port"] == "9999", "what is given wins over the session's"
        session.cluster.shutdown()


def test_nodes_are_named_as_contact_points() -> None:
    for address, written in (("10.0.0.1", "10.0.0.1:9042"), ("fd00::1", "[fd00::1]:9042")):
        host = SimpleNamespace(endpoint=SimpleNamespace(address=address, port=9042))
        assert _address(host) == written
