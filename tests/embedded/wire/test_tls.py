"""TLS and mutual TLS: scylla-driver, ``rscylla.connect`` and the command line over it; strangers are turned away."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trustme
from typer.testing import CliRunner

import rscylla
from rscylla.cli.app import app
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, Tls

LOCAL = "SELECT key FROM system.local"


@attrs.frozen
class Files:
    """PEM files of one authority, a certificate of the nodes, and one of a client."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path


def files(directory: Path) -> Files:
    directory.mkdir()
    authority = trustme.CA()
    made = Files(*(directory / f"{name}.pem" for name in ("ca", "cert", "key", "client-cert", "client-key")))
    authority.cert_pem.write_to_path(made.ca)
    for leaf, cert, key in (
        (authority.issue_cert("127.0.0.1", "127.0.0.2", "127.0.0.3"), made.cert, made.key),
        (authority.issue_cert("client.example"), made.client_cert, made.client_key),
    ):
        leaf.cert_chain_pems[0].write_to_path(cert)
        leaf.private_key_pem.write_to_path(key)
    return made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return files(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return files(tmp_path_factory.mktemp("tls") / "strangers")


@pytest.fixture(scope="module")
def scylla(ours: Files) -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(3, tls=Tls(ours.cert, ours.key)) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(ours: Files) -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(tls=Tls(ours.cert, ours.key, ours.ca)) as server:
        yield server


def connect(scylla: EmbeddedScylla, **tls: Path) -> rscylla.Session:
    return rscylla.connect([f"127.0.0.1:{scylla.port}"], connect_timeout_s=60, **tls)


def test_the_owners_session_needs_no_words_about_tls(scylla: EmbeddedScylla) -> None:
    session = scylla.connect()
    assert len(session.cluster.metadata.all_hosts()) == 3
    assert {session.execute(LOCAL).one() for _ in range(6)} == {("local",)}


def test_rscylla_connects_and_reads_a_log_in_large_pages(scylla: EmbeddedScylla, ours: Files) -> None:
    session = connect(scylla, tls_ca=ours.ca)
    try:
        session.execute("CREATE KEYSPACE tls WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE tls.t (pk int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
        for i in range(50):
            session.execute("INSERT INTO tls.t (pk, v) VALUES (%s, %s)", (i, "x" * 50_000))
        client = rscylla.NewStream(session, "tls", "t")("", rscylla.StreamLag(milliseconds=0), rscylla.StreamToHead())
        with contextlib.closing(client):
            events = (client.recv() for _ in range(50))
            assert sorted(e.key["pk"] for e in events if isinstance(e, rscylla.Event)) == list(range(50))
    finally:
        session.cluster.shutdown()


def test_an_authority_that_did_not_sign_is_refused_by_the_client(scylla: EmbeddedScylla, strangers: Files) -> None:
    with pytest.raises(rscylla.ConnectionFailed):
        connect(scylla, tls_ca=strangers.ca)


def test_plain_text_is_rejected_and_other_clients_continue(scylla: EmbeddedScylla) -> None:
    with socket.create_connection(("127.0.0.1", scylla.port), timeout=10) as plain:
        plain.sendall(b"\x04\0\0\0\x05\0\0\0\0")
        answer = b""
        while chunk := plain.recv(4096):
            answer += chunk
        assert b"SCYLLA" not in answer
    assert scylla.connect().execute(LOCAL).one() == ("local",)


def test_old_tls_is_refused(scylla: EmbeddedScylla) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the very version that is tried here
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", scylla.port), timeout=10) as raw, pytest.raises(OSError):
        context.wrap_socket(raw)


def test_mutual_tls_lets_in_who_shows_a_certificate_of_the_authority(mutual: EmbeddedScylla, ours: Files) -> None:
    session = connect(mutual, tls_ca=ours.ca, tls_cert=ours.client_cert, tls_key=ours.client_key)
    (host,) = session.cluster.metadata.all_hosts()
    ports = host.sharding_info.shard_aware_port, host.sharding_info.shard_aware_port_ssl
    assert ports == (None, mutual.shard_aware_port), "only the port for TLS is named"
    try:
        assert session.execute(LOCAL).one() == ("local",)
    finally:
        session.cluster.shutdown()
    assert mutual.connect().execute(LOCAL).one() == ("local",)


def test_mutual_tls_turns_others_away(mutual: EmbeddedScylla, ours: Files, strangers: Files) -> None:
    with pytest.raises(rscylla.ConnectionFailed):
        connect(mutual, tls_ca=ours.ca)
    with pytest.raises(rscylla.ConnectionFailed):
        connect(mutual, tls_ca=ours.ca, tls_cert=strangers.client_cert, tls_key=strangers.client_key)


def test_a_server_of_its_own_process_speaks_tls(ours: Files) -> None:
    with EmbeddedScyllaProcess(tls=Tls(ours.cert, ours.key, ours.ca)) as server:
        assert server.connect().execute(LOCAL).one() == ("local",)


@pytest.mark.parametrize("wrong", ["missing.pem", "cert.pem"])
def test_files_that_cannot_be_used_are_named(ours: Files, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(EmbeddedScyllaError, match=wrong):
        EmbeddedScylla(tls=Tls(ours.cert, ours.cert.parent / wrong))
    with pytest.raises(EmbeddedScyllaError, match=r"missing\.pem"):
        EmbeddedScylla(tls=Tls(ours.cert, ours.key, tmp_path / "missing.pem"))


def test_client_files_that_cannot_be_used_are_named(ours: Files, tmp_path: Path) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"missing\.pem"):
        rscylla.connect(tls_ca=ours.ca, tls_cert=ours.cert, tls_key=tmp_path / "missing.pem")
    with pytest.raises(rscylla.ConfigError, match="require each other"):
        rscylla.connect(tls_ca=ours.ca, tls_cert=ours.cert)
    with pytest.raises(rscylla.ConfigError, match="require each other"):
        rscylla.connect(tls_cert=ours.cert, tls_key=ours.key)


def test_the_command_line_reads_over_mutual_tls(mutual: EmbeddedScylla, ours: Files) -> None:
    session = mutual.connect()
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY) WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO shop.orders (id) VALUES (7)")
    host = ["--host", f"127.0.0.1:{mutual.port}", "--tls-ca", str(ours.ca)]
    tail = ["tail", "shop.orders", "--lag", "0", "--to-head", "--json", "--quiet", *host]
    ran = CliRunner().invoke(app, [*tail, "--tls-cert", str(ours.client_cert), "--tls-key", str(ours.client_key)])
    assert ran.exit_code == 0, ran.stderr
    (event,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert event["foreign_id"] == '{"id":7}'
    refused = CliRunner().invoke(app, tail)
    assert refused.exit_code == 3


def test_serve_asks_for_both_files(ours: Files) -> None:
    ran = CliRunner().invoke(app, ["serve", "--port", "0", "--tls-cert", str(ours.cert)])
    assert ran.exit_code == 2
    assert "--tls-cert and --tls-key require each other" in ran.stderr


# ---------------------------------------------------------------- the name in the certificate


@pytest.fixture(scope="module")
def misnamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedScylla, Path]]:
    """A node whose certificate names another host than the one it is reached by, and its authority."""
    directory = tmp_path_factory.mktemp("misnamed")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    leaf = authority.issue_cert("node.example")
    leaf.cert_chain_pems[0].write_to_path(directory / "cert.pem")
    leaf.private_key_pem.write_to_path(directory / "key.pem")
    with EmbeddedScylla(tls=Tls(directory / "cert.pem", directory / "key.pem")) as server:
        yield server, directory / "ca.pem"


def test_a_certificate_of_another_host_is_refused_unless_the_check_is_off(
    misnamed: tuple[EmbeddedScylla, Path],
) -> None:
    scylla, ca = misnamed
    with pytest.raises(rscylla.ConnectionFailed, match=r"does not name that address.*tls_check_hostname=False"):
        connect(scylla, tls_ca=ca)
    session = rscylla.connect([f"127.0.0.1:{scylla.port}"], tls_ca=ca, tls_check_hostname=False)
    assert session.execute(LOCAL).one() == ("local",)
    session.cluster.shutdown()
    assert scylla.connect().execute(LOCAL).one() == ("local",)


def test_without_tls_there_is_no_name_to_check() -> None:
    with EmbeddedScylla() as scylla:
        session = rscylla.connect([f"127.0.0.1:{scylla.port}"], tls_check_hostname=True)
        session.cluster.shutdown()


COMMANDS = [
    ["tail", "shop.orders", "--lag", "0", "--to-head"],
    ["topology", "shop.orders"],
    ["doctor", "shop.orders"],
    ["replicate", "shop.orders", "shop.copy", "--lag", "0"],
    ["cursor", "list", "--store", "shop"],
    ["cursor", "get", "audit", "--store", "shop"],
    ["cursor", "set", "audit", "oldest", "--store", "shop"],
    ["cursor", "reset", "audit", "oldest", "--store", "shop", "--reason", "test"],
    ["cursor", "reslice", "audit", "--from", "1", "--to", "2", "--store", "shop"],
    ["deadletter", "list", "--store", "shop"],
    ["deadletter", "show", "audit", "id", "--store", "shop"],
    ["deadletter", "replay", "audit", "--all", "--to", "builtins:print", "--store", "shop"],
    ["deadletter", "discard", "audit", "--all", "--store", "shop", "--reason", "test"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_each_command_checks_the_name_unless_the_check_is_off(
    misnamed: tuple[EmbeddedScylla, Path], command: list[str]
) -> None:
    scylla, ca = misnamed
    line = [*command, "--host", f"127.0.0.1:{scylla.port}", "--tls-ca", str(ca)]
    ran = CliRunner().invoke(app, line)
    assert ran.exit_code == 3
    assert "verify the authority alone with --tls-no-check-hostname" in ran.stderr
    # Connected: the error is now that the table does not exist.
    assert CliRunner().invoke(app, [*line, "--tls-no-check-hostname"]).exit_code in (0, 4)


def test_the_target_of_a_replication_is_checked_too(misnamed: tuple[EmbeddedScylla, Path]) -> None:
    scylla, ca = misnamed
    with EmbeddedScylla() as source:
        line = ["replicate", "shop.orders", "shop.orders", "--lag", "0", "--host", f"127.0.0.1:{source.port}"]
        line += ["--to-host", f"127.0.0.1:{scylla.port}", "--to-tls-ca", str(ca)]
        ran = CliRunner().invoke(app, line)
        assert (ran.exit_code, "does not name that address" in ran.stderr) == (3, True)
        ran = CliRunner().invoke(app, [*line, "--to-tls-no-check-hostname"])
        assert (ran.exit_code, "there is no table shop.orders" in ran.stderr) == (4, True)


def test_an_unchecked_name_needs_tls() -> None:
    ran = CliRunner().invoke(app, ["topology", "shop.orders", "--tls-no-check-hostname"])
    assert ran.exit_code == 2
    assert "--tls-no-check-hostname requires --tls-ca" in ran.stderr


# ---------------------------------------------------------------- what a refused connection says


def test_a_plain_client_gets_a_hint_about_tls(scylla: EmbeddedScylla) -> None:
    with pytest.raises(rscylla.ConnectionFailed, match=r"if it speaks TLS, give tls_ca$"):
        connect(scylla)
    ran = CliRunner().invoke(app, ["topology", "shop.orders", "--host", f"127.0.0.1:{scylla.port}"])
    assert ran.stderr.rstrip().endswith("if it speaks TLS, give --tls-ca")


@contextlib.contextmanager
def hanging_up(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen; to the first bytes of each client comes *answer*, then the end. Yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listening.accept()[0] as connected:
                        connected.recv(1024)
                        answer(connected)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def alert(connected: socket.socket) -> None:
    """OpenSSL and GnuTLS answer plain text with this before they hang up."""
    connected.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


def reset(connected: socket.socket) -> None:
    """The alert that says why is lost when the client has sent on before it came."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(("answer", "text"), [(alert, ""), (reset, "reset by peer.*")])
def test_a_plain_client_that_is_disconnected_gets_a_hint_about_tls(
    answer: Callable[[socket.socket], None], text: str
) -> None:
    with (
        hanging_up(answer) as address,
        pytest.raises(rscylla.ConnectionFailed, match=rf"{text}if it speaks TLS, give tls_ca$"),
    ):
        rscylla.connect([address], connect_timeout_s=60)


def test_reasons_why_tls_is_refused(
    scylla: EmbeddedScylla, mutual: EmbeddedScylla, ours: Files, strangers: Files
) -> None:
    with pytest.raises(rscylla.ConnectionFailed, match="authority in tls_ca has not signed"):
        connect(scylla, tls_ca=strangers.ca)
    with pytest.raises(rscylla.ConnectionFailed, match=r"give tls_cert and tls_key$"):
        connect(mutual, tls_ca=ours.ca)
    with pytest.raises(rscylla.ConnectionFailed, match=r"signed the certificate in tls_cert$"):
        connect(mutual, tls_ca=ours.ca, tls_cert=strangers.client_cert, tls_key=strangers.client_key)
    with EmbeddedScylla() as plain, pytest.raises(rscylla.ConnectionFailed, match="does not speak TLS on this port"):
        connect(plain, tls_ca=ours.ca)


def test_a_refused_connection_gets_no_hint_about_tls(ours: Files) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host = f"127.0.0.1:{closed.getsockname()[1]}"
    for tls in ({}, {"tls_ca": ours.ca}):
        with pytest.raises(rscylla.ConnectionFailed, match=r"and that Scylla runs$"):
            rscylla.connect([host], **tls)
