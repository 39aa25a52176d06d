"""Sessions of workers: shared, logged in, over TLS, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from rscylla import AuthenticationFailed, ConfigError, ConnectionFailed
from rscylla.embedded import EmbeddedScylla, Tls
from rscylla.spark.options import Options
from rscylla.spark.session import close_sessions, session_for


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


def test_who_logs_in_and_who_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PASSWORD", "secret")
    with EmbeddedScylla(users={"spark": "secret"}) as scylla:
        assert session_for(options(scylla, username="spark", passwordEnv="SPARK_PASSWORD").connection)
        with pytest.raises(AuthenticationFailed, match="refused the user name or password"):
            session_for(options(scylla, username="spark", password="wrong").connection)
        close_sessions()


def test_an_unknown_consistency_is_told_before_anything_is_opened() -> None:
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
        assert session_for(options(scylla, sslCa=ca, sslCheckHostname=True).connection)
        close_sessions()
    with EmbeddedScylla(tls=Tls(tmp_path / "other.crt", tmp_path / "other.key")) as scylla:
        assert session_for(options(scylla, sslCa=ca).connection)
        with pytest.raises(ConnectionFailed):
            session_for(options(scylla, sslCa=ca, sslCheckHostname=True).connection)
        with pytest.raises(ConfigError, match="with tls_ca"):
            session_for(options(scylla, sslCheckHostname=True).connection)
        close_sessions()
