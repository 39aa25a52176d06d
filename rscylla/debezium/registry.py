"""A registry of schemas, through Confluent's own client: which id a schema has. The only room here that does I/O."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import attrs

from ..errors import AuthenticationFailed, ConfigError, PublishFailed, RscyllaError

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
            PublishFailed: the registry does not answer.
            AuthenticationFailed: it refuses the credentials.
            ConfigError: it refuses the schema, or does not have it.
        """


@attrs.define(eq=False)
class ConfluentRegistry:
    """A registry with Confluent's API, such as Confluent's own, Karapace, Redpanda's, or Apicurio's ``ccompat``.

    Args:
        options: of ``confluent_kafka.schema_registry.SchemaRegistryClient``; ``url`` may be ``mock://name``.
        auto_register: schemas that are new are registered.
        use_latest: without *auto_register*: the latest schema of the subject is used.
        normalize: the registry brings schemas to a normal form before it compares them.

    The client is made at the first call, and closed when this object is gone. Safe to use from several threads.
    """

    options: Mapping[str, Any] = attrs.field(repr=False)
    auto_register: bool = attrs.field(default=True, kw_only=True)
    use_latest: bool = attrs.field(default=False, kw_only=True)
    normalize: bool = attrs.field(default=False, kw_only=True)
    _client: Any = attrs.field(default=None, init=False, repr=False)

    def registered(self, subject: str, form: Form, text: str) -> Registered:
        """See ``SchemaRegistry``."""
        try:
            return self._asked(subject, form, text)
        except RscyllaError:
            raise
        except Exception as e:  # the client hands on the errors of its libraries
            raise _error(e, subject, self.options["url"]) from e

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
                self._client = client = SchemaRegistryClient.new_client(dict(self.options))
            except (TypeError, ValueError, OSError) as e:
                raise ConfigError(f"the options of the schema registry are not possible: {e}") from e
            weakref.finalize(self, client.close)
        return self._client, Schema


_UNAUTHORIZED: Final = (401, 403)
_NOT_FOUND: Final = 404
_REFUSED: Final = {
    409: "it is not compatible with those before it; set the compatibility of the subject, or use another subject",
    422: "it is not valid there",
}


def _error(error: Exception, subject: str, url: str) -> RscyllaError:
    status = getattr(error, "http_status_code", None)
    said = str(error)
    if status in _UNAUTHORIZED:
        return AuthenticationFailed(f"the schema registry {_bare(url)} refuses the credentials: {said}")
    if status == _NOT_FOUND:
        return ConfigError(
            f"the schema registry has no such schema under {subject!r}; register it, or set "
            f"auto.register.schemas=true: {said}"
        )
    if status in _REFUSED:
        return ConfigError(f"the schema registry refuses a schema under {subject!r}: {_REFUSED[status]}: {said}")
    return PublishFailed(
        f"the schema registry {_bare(url)} does not answer for {subject!r}: {said or type(error).__name__}"
    )


def _bare(url: str) -> str:
    """Return *url* without the user and password that it may have."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


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
