"""Files of TLS: PEM and PKCS12 are read; Java's own key stores are answered with the command that converts them."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from ...errors import ConfigError
from .properties import Properties

__all__ = ["TlsStore", "kafka_stores", "read_store", "scylla_context"]

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


@attrs.frozen(repr=False)
class TlsStore:
    """What a file has, as PEM: certificates of authorities, and a key with its certificates ("" if none)."""

    authorities: str = ""
    key: str = ""
    chain: str = ""


def read_store(name: str, path: str, password: str = "") -> TlsStore:
    """Return what the file *path*, the property *name*, has.

    Raises:
        ConfigError: it cannot be read, its password is wrong, or it is a Java key store, which must be converted.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    if data.startswith(_JKS):
        into = str(Path(path).with_suffix(".p12"))
        raise ConfigError(
            f"{name} is a Java key store; convert it with `keytool -importkeystore -srckeystore {path} "
            f"-destkeystore {into} -deststoretype PKCS12`, and name {into}"
        )
    if b"-----BEGIN" in data:
        return _of_pem(data.decode("utf-8-sig", "replace"))
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        raise ConfigError(f"{name} is neither PEM nor PKCS12, or its password is wrong: {path}") from error
    others = "".join(c.certificate.public_bytes(Encoding.PEM).decode() for c in found.additional_certs)
    if found.key is None:
        own = "" if found.cert is None else found.cert.certificate.public_bytes(Encoding.PEM).decode()
        return TlsStore(own + others)
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = "" if found.cert is None else found.cert.certificate.public_bytes(Encoding.PEM).decode()
    return TlsStore(others, key, own + others)


def _of_pem(text: str) -> TlsStore:
    blocks: list[str] = []
    for line in text.splitlines():
        if line.startswith("-----BEGIN"):
            blocks.append("")
        if blocks:
            blocks[-1] += line + "\n"
    keys = [block for block in blocks if "PRIVATE KEY-----" in block.split("\n", 1)[0]]
    certificates = "".join(block for block in blocks if block not in keys)
    return TlsStore(certificates, "".join(keys), certificates if keys else "")


def kafka_stores(given: Mapping[str, str]) -> dict[str, str]:
    """Return the certificates and key of Java's ``ssl.truststore.`` and ``ssl.keystore.``, for librdkafka.

    Raises:
        ConfigError: as ``read_store``.
    """
    config = {}
    if path := given.get("ssl.truststore.location", "").strip():
        found = read_store("ssl.truststore.location", path, given.get("ssl.truststore.password", ""))
        config["ssl.ca.pem"] = found.authorities
    if path := given.get("ssl.keystore.location", "").strip():
        found = read_store("ssl.keystore.location", path, given.get("ssl.keystore.password", ""))
        if not found.key:
            raise ConfigError("ssl.keystore.location has no key")
        config |= {"ssl.certificate.pem": found.chain, "ssl.key.pem": found.key}
    return config


def scylla_context(properties: Properties) -> ssl.SSLContext | None:
    """Return the TLS of connections to the cluster, as ``scylla.ssl.`` says; None without TLS.

    As in the connector, names of hosts are not checked, and without a file of authorities, those of the system count.

    Raises:
        ConfigError: a file cannot be used.
    """
    if not properties.flag("scylla.ssl.enabled"):
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    path = properties.text("scylla.ssl.truststore.path")
    if path:
        found = read_store("scylla.ssl.truststore.path", path, properties.text("scylla.ssl.truststore.password"))
        if not found.authorities:
            raise ConfigError("scylla.ssl.truststore.path has no certificates")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=found.authorities)
    if suites := properties.parts("scylla.ssl.cipherSuites"):
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError as error:
            raise ConfigError("scylla.ssl.cipherSuites has no suite that OpenSSL knows by this name") from error
    identity = _identity(properties)
    if identity is not None:
        _load(context, identity)
    return context


def _identity(properties: Properties) -> TlsStore | None:
    if properties.text("scylla.ssl.provider").lower() != "jdk":
        chain, key = (properties.text(f"scylla.ssl.openssl.{what}") for what in ("keyCertChain", "privateKey"))
        if not chain and not key:
            return None
        return TlsStore(
            "",
            read_store("scylla.ssl.openssl.privateKey", key).key,
            read_store("scylla.ssl.openssl.keyCertChain", chain).authorities,
        )
    if not (path := properties.text("scylla.ssl.keystore.path")):
        return None
    return read_store("scylla.ssl.keystore.path", path, properties.text("scylla.ssl.keystore.password"))


def _load(context: ssl.SSLContext, identity: TlsStore) -> None:
    """Load a key, which Python's ssl takes from a file only: one that nobody else can read, and that is gone after."""
    descriptor, path = tempfile.mkstemp(prefix="rscylla-")
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(identity.key + identity.chain)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError("the client's key and certificates for TLS do not fit together") from error
    finally:
        Path(path).unlink()
