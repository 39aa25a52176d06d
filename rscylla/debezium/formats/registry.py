"""A registry of schemas, through Confluent's own client: which id a schema has. The only room here that does I/O."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import attrs

from ...clock import bounded
from ...errors import ConfigError, PublishFailed, RscyllaError

__all__ = ["ConfluentRegistry", "Registered", "SchemaRegistry", "client_options"]

Form = Literal["AVRO", "JSON"]


class Registered(NamedTuple):
    """A schema of a registry: its id, and its text, by which values are encoded."""

    id: int
    text: str


class SchemaRegistry(Protocol):
    """Knows the ids of schemas. Converters ask once for each schema and subject, from the thread that uses them."""

    def registered(self, subject: str, form: Form, text: str) -> Registered:
        """Return the schema that stands for *text* under *subject*. Blocks; a later call may ask again.

        Raises:
            PublishFailed: the registry does not answer, or refuses: whoever runs it can change that.
            ConfigError: this registry can never be asked.
        """


ANSWER_S: Final = 10.0
"""How long a call may take, for each address of the registry; then it is not waited for any more."""


@attrs.define(eq=False)
class ConfluentRegistry:
    """A registry with Confluent's API, such as Confluent's own, Karapace, Redpanda's, or Apicurio's ``ccompat``.

    Args:
        options: of ``confluent_kafka.schema_registry.SchemaRegistryClient``; ``url`` may be ``mock://name``.
        auto_register: schemas that are new are registered.
        use_latest: without *auto_register*: the latest schema of the subject is used.
        normalize: the registry brings schemas to a normal form before it compares them.

    The client is made at the first call, and closed when this object is gone. Safe to use from several threads. A call
    takes at most ten seconds for each address, also if an answer comes byte by byte, which keeps all limits of parts.
    """

    options: Mapping[str, Any] = attrs.field(repr=False)
    auto_register: bool = attrs.field(default=True, kw_only=True)
    use_latest: bool = attrs.field(default=False, kw_only=True)
    normalize: bool = attrs.field(default=False, kw_only=True)
    _client: Any = attrs.field(default=None, init=False, repr=False)
    _close: Callable[[], object] = attrs.field(default=lambda: None, init=False, repr=False)

    def registered(self, subject: str, form: Form, text: str) -> Registered:
        """See ``SchemaRegistry``."""
        url = self.options["url"]
        try:
            found = bounded(lambda: self._asked(subject, form, text), seconds=ANSWER_S * len(url.split(",")))
        except RscyllaError:
            raise
        except Exception as e:  # the client hands on the errors of its libraries
            if isinstance(e, TimeoutError):  # the next call has another client, and that call ends with this one
                self._client = None
                self._close()
            raise _error(e, subject, url) from e
        if not isinstance(found.id, int) or not 0 <= found.id < 1 << 31:
            raise PublishFailed(f"the schema registry {_bare(url)} answers for {subject!r} without the id of a schema")
        return found

    def is_like(self, other: ConfluentRegistry) -> bool:
        """Return whether *other* is the same registry, with the same options."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("options", "auto_register", "use_latest", "normalize")
        )

    def _asked(self, subject: str, form: Form, text: str) -> Registered:
        client, schema_of = self._opened()
        schema = schema_of(text, form)
        if self.auto_register:
            return Registered(client.register_schema(subject, schema, normalize_schemas=self.normalize), text)
        if self.use_latest:
            client.clear_latest_caches()  # it may be asked because records do not fit into that one
            latest = client.get_latest_version(subject)
            return Registered(latest.schema_id, latest.schema.schema_str)
        found = client.lookup_schema(subject, schema, normalize_schemas=self.normalize)
        return Registered(found.schema_id, text)

    def _opened(self) -> tuple[Any, Any]:
        try:
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        except ImportError as e:
            raise ConfigError(
                f"a schema registry needs confluent-kafka with its client; install rscylla[kafka]: {e}"
            ) from e
        if self._client is None:
            try:
                client = SchemaRegistryClient.new_client({**self.options, "timeout": ANSWER_S, "max.retries": 0})
            except (TypeError, ValueError, OSError) as e:
                raise ConfigError(f"the options of the schema registry are not possible: {e}") from e
            self._client, self._close = client, weakref.finalize(self, client.close)
            return client, Schema
        return self._client, Schema


_SAID_MOST: Final = 500
_LOGINS: Final = re.compile(r"://[^,/]*@")
_UNAUTHORIZED: Final = (401, 403)
_NOT_FOUND: Final = 404
_REFUSED: Final = {
    409: "it is not compatible with those before it; set the compatibility of the subject, or use another subject",
    422: "it is not valid there",
}


def _error(error: Exception, subject: str, url: str) -> PublishFailed:
    """Return *error* as one that can be tried again: whatever a registry refuses, it is told to allow there."""
    status = getattr(error, "http_status_code", None)
    said = str(error)[:_SAID_MOST] or type(error).__name__
    if status in _UNAUTHORIZED:
        return PublishFailed(f"the schema registry {_bare(url)} refuses the credentials for {subject!r}: {said}")
    if status == _NOT_FOUND:
        return PublishFailed(
            f"the schema registry has no such schema under {subject!r}; register it, or set "
            f"auto.register.schemas=true: {said}"
        )
    if status in _REFUSED:
        return PublishFailed(f"the schema registry refuses a schema under {subject!r}: {_REFUSED[status]}: {said}")
    return PublishFailed(f"the schema registry {_bare(url)} does not answer for {subject!r}: {said}")


def _bare(urls: str) -> str:
    """Return *urls*, with commas between, without the users and passwords that they may have."""
    return _LOGINS.sub("://", urls)


# ---------------------------------------------------------------- properties

_SSL: Final = "schema.registry.ssl."
_PASSED: Final = ("bearer.auth.token", "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id")
_PEM: Final = "PEM"


def client_options(given: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the options of the client that *given*, the options of the converter *name*, say.

    Raises:
        ConfigError: the address is missing, or an option is not possible.
    """
    url = given.get("schema.registry.url", "")
    if not url:
        raise ConfigError(f"{name}.schema.registry.url is missing")
    found: dict[str, Any] = {"url": url}
    source = given.get("basic.auth.credentials.source", "URL").upper()
    user = given.get("basic.auth.user.info") or given.get("schema.registry.basic.auth.user.info")
    if source == "USER_INFO":
        if not user:
            raise ConfigError(f"{name}.basic.auth.user.info is missing: it is user:password")
        found["basic.auth.user.info"] = user
    elif source != "URL":
        raise ConfigError(f"{name}.basic.auth.credentials.source is {source}; rscylla has URL and USER_INFO")
    bearer = given.get("bearer.auth.credentials.source")
    if bearer is not None:
        if bearer.upper() not in ("STATIC_TOKEN", "USER_INFO"):
            raise ConfigError(f"{name}.bearer.auth.credentials.source is {bearer}; rscylla has STATIC_TOKEN")
        found["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        found |= {option: given[option] for option in _PASSED if option in given}
        found.setdefault("bearer.auth.logical.cluster", "")
    return found | _tls(given, name)


def _tls(given: Mapping[str, str], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for store in ("truststore", "keystore"):
        path = given.get(f"{_SSL}{store}.location")
        if path is None:
            continue
        if given.get(f"{_SSL}{store}.type", "JKS").upper() != _PEM:
            raise ConfigError(
                f"{name}.{_SSL}{store}.location is no PEM file: convert it, for example with keytool and openssl, "
                f"and set {name}.{_SSL}{store}.type=PEM"
            )
        if store == "truststore":
            found["ssl.ca.location"] = path
        else:  # the certificate and its key, in one file
            found |= {"ssl.certificate.location": path, "ssl.key.location": path}
    if found.get("ssl.key.location") and (password := given.get(f"{_SSL}key.password")):
        found["ssl.key.password"] = password
    return found
