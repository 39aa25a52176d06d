"""``Properties``: a connector's configuration as users have it: read, resolved, checked against one table, redacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from os import environ
from pathlib import Path
from typing import Any, Final, Literal, Self

import attrs

from ...debezium import options_of, unknown_options, words
from ...errors import ConfigError
from .files import merged, read, resolved
from .redaction import HIDDEN, Secrets, is_secret

__all__ = ["PROPERTIES", "Finding", "Properties", "Property", "Status", "property_of"]

Status = Literal["supported", "inert", "unsupported"]
"""``inert``: accepted without effect, since nothing is lost by it. ``unsupported``: what it asks for is not done."""

Check = Callable[[str], str]
"""Returns what is wrong with a value; "" if nothing is."""

_INT, _LONG = 2**31 - 1, 2**63 - 1


def _whole(least: int, most: int | None = None) -> Check:
    def check(value: str) -> str:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", value) and least <= int(value) <= (_LONG if most is None else most):
            return ""
        return f"must be a whole number of at least {least}" + (f" and at most {most}" if most is not None else "")

    return check


def _flag(value: str) -> str:
    return "" if value.lower() in ("true", "false") else "must be true or false"


def _one_of(*choices: str) -> Check:
    return lambda value: "" if value.lower() in choices else f"must be one of {', '.join(choices)}"


def _any(value: str) -> str:
    return ""


def _filled(value: str) -> str:
    return "" if value.strip() else "is missing"


TABLE_NAME: Final = re.compile(r"[a-zA-Z_0-9*?]{1,48}\.[a-zA-Z_0-9*?]{1,48}")


def _tables(value: str) -> str:
    names = words(value)
    wrong = [name for name in names if not TABLE_NAME.fullmatch(name)]
    if wrong:
        return f"has {wrong[0]!r}; names are KEYSPACE.TABLE of letters, digits, and _, or patterns of them with * and ?"
    return "" if names else "is missing; name a table, such as shop.orders"


def _hosts(value: str) -> str:
    for host in words(value):
        name, _, port = host.rpartition(":")
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            return f"has {host!r}; it is made of HOST:PORT, such as 10.0.0.1:9042"
    return "" if words(value) else "is missing; name a node, such as 10.0.0.1:9042"


def _snapshots(value: str) -> str:
    return "" if value.lower() in _OTHER_SNAPSHOTS else _one_of(*_SNAPSHOTS)(value)


@attrs.frozen
class Property:
    """A property that is known. A name that ends with ``*`` stands for all with this beginning."""

    name: str
    default: str | None
    status: Status
    meaning: str
    check: Check = attrs.field(default=_any, eq=False, repr=False)
    secret: bool = False
    required: bool = False

    def matches(self, name: str) -> bool:
        return name == self.name or (self.name.endswith("*") and name.startswith(self.name[:-1]))


_S: Final[Status] = "supported"
_I: Final[Status] = "inert"
_U: Final[Status] = "unsupported"
_LEVELS: Final = (
    *("any", "one", "two", "three", "quorum", "all", "local_quorum", "each_quorum", "local_one", "serial"),
    "local_serial",
)
_IMAGES: Final = _one_of("none", "full", "only-updated")
_SNAPSHOTS: Final = ("never", "initial", "initial_only", "when_needed")
_OTHER_SNAPSHOTS: Final = (
    *("always", "no_data", "recovery", "schema_only", "schema_only_recovery", "configuration_based", "custom"),
)
"""Modes of Debezium by which the connector publishes no rows, as it does by all."""
_MARKS: Final = ("insert_delete", "insert_insert")
_BOUNDARIES: Final = ("poll", "interval", "connector")
_CLASS: Final = _one_of("com.scylladb.cdc.debezium.connector.scyllaconnector", "scyllaconnector", "scylla")


def _table(*rows: tuple[Any, ...], **more: Any) -> list[Property]:
    return [Property(*row, **more) for row in rows]


PROPERTIES: Final[tuple[Property, ...]] = (
    # ------------------------------------------------------------ the connector's own
    *_table(
        ("topic.prefix", None, _S, "the first part of topics and names of schemas", _filled),
        ("scylla.cluster.ip.addresses", None, _S, "the nodes to connect to first, as HOST:PORT,...", _hosts),
        ("scylla.table.names", None, _S, "the tables, as KEYSPACE.TABLE,...; `*` and `?` stand for letters", _tables),
        required=True,
    ),
    *_table(
        ("scylla.name", None, _S, "`topic.prefix` of connectors before version 2"),
        ("scylla.user", None, _S, "the user name; with `scylla.password`"),
        ("scylla.consistency.level", "QUORUM", _S, "the consistency of reads of the log", _one_of(*_LEVELS)),
        ("scylla.query.options.fetch.size", "0", _S, "rows of a page; 0 is the default of rscylla", _whole(0, _INT)),
        ("scylla.local.dc", None, _S, "the data center to prefer"),
        ("scylla.ssl.enabled", "false", _S, "TLS to the cluster", _flag),
        (
            *("scylla.ssl.provider", "JDK", _S, "which of the next files are read: JDK: stores; OPENSSL: PEM"),
            _one_of("jdk", "openssl", "openssl_refcnt"),
        ),
        ("scylla.ssl.truststore.path", None, _S, "authorities of the nodes: PEM or PKCS12"),
        ("scylla.ssl.keystore.path", None, _S, "the identity of the client: PEM or PKCS12"),
        ("scylla.ssl.cipherSuites", None, _S, "TLS 1.2 cipher suites, by the names of OpenSSL"),
        ("scylla.ssl.openssl.keyCertChain", None, _S, "the client's certificates as PEM"),
        ("scylla.ssl.openssl.privateKey", None, _S, "the client's key as PEM"),
        ("scylla.query.time.window.size", "30000", _I, "windows follow the backlog", _whole(0, _INT)),
        ("scylla.confidence.window.size", "30000", _S, "ms to stay behind the clock: the lag", _whole(0, _INT)),
        ("scylla.minimal.wait.for.window.time", "0", _I, "idle logs cost next to nothing", _whole(0, _INT)),
        ("scylla.initial.lookback.ms", "0", _S, "how far back a first start reads; 0: all the log has", _whole(0)),
        ("cdc.output.format", "legacy", _S, "`legacy` or `advanced`", _one_of("legacy", "advanced")),
        ("experimental.preimages.enabled", "false", _S, "legacy: `before` has the preimage", _flag),
        ("cdc.include.before", "none", _S, "advanced: `full`, `only-updated`, or `none`", _IMAGES),
        ("cdc.include.after", "none", _S, "advanced: `full`, `only-updated`, or `none`", _IMAGES),
        (
            *("cdc.include.primary-key.placement", "kafka-key,payload-after,payload-before", _S),
            "advanced: where the primary key is",
        ),
        ("cdc.include.primary-key.payload-key-name", "key", _S, "the field for `payload-key`"),
        ("cdc.incomplete.task.timeout.ms", "15000", _I, "images are never waited for", _whole(1)),
        ("worker.retry.backoff.base", "50", _S, "ms before the first restart of a table", _whole(0, _INT)),
        ("worker.maximum.backoff", "30000", _S, "ms between restarts at most", _whole(0, _INT)),
        ("worker.jitter.percentage", "20", _I, "pauses are always spread", _whole(1, _INT)),
        ("worker.max.retries", "20", _S, "failures of a table in ten minutes; −1: no limit", _whole(-1, _INT)),
        ("worker.shared.session.enabled", "false", _I, "there is one session a process", _flag),
        ("worker.pooling.core.pool.local", "1", _I, "the driver has a connection for each shard", _whole(0, _INT)),
        ("worker.pooling.max.pool.local", "1", _I, "as above", _whole(0, _INT)),
        ("worker.pooling.max.requests.per.connection", "256", _I, "queries in flight are limited", _whole(0, _INT)),
        ("worker.pooling.max.queue.size", "256", _I, "as above", _whole(0, _INT)),
        ("worker.pooling.pool.timeout.ms", "5000", _I, "as above", _whole(0, _INT)),
        ("heartbeat.interval.ms", "30000", _S, "ms between heartbeats; 0: none", _whole(0, _INT)),
        ("scylla.worker.config", None, _U, "internal to the connector's tasks"),
    ),
    *_table(
        ("scylla.password", None, _S, "the password of `scylla.user`"),
        ("scylla.ssl.truststore.password", None, _S, "the password of that file"),
        ("scylla.ssl.keystore.password", None, _S, "the password of that file"),
        secret=True,
    ),
    # ------------------------------------------------------------ inherited from Debezium
    *_table(
        (
            *("event.processing.failure.handling.mode", "fail", _S),
            "a change that cannot become records: `fail`, or `warn` or `skip` (logged, and passed over)",
            _one_of("fail", "warn", "skip", "ignore"),
        ),
        ("max.batch.size", "2048", _I, "records go out as they come", _whole(1, _INT)),
        ("max.queue.size", "8192", _S, "changes of a table on their way at most", _whole(1, _INT)),
        ("max.queue.size.in.bytes", "0", _S, "bytes of a table on their way at most; 0: 64 MiB", _whole(0)),
        ("poll.interval.ms", "500", _I, "records go out as they come", _whole(1, _INT)),
        ("skipped.operations", "t", _S, "operations without records"),
        ("streaming.delay.ms", "0", _I, "reading begins at once", _whole(0)),
        ("retriable.restart.connector.wait.ms", "10000", _I, "see `worker.retry.backoff.base`", _whole(1)),
        ("errors.max.retries", "-1", _I, "see `worker.max.retries`", _whole(-1, _INT)),
        ("converters", None, _U, "custom converters are Java classes"),
        ("post.processors", None, _U, "post processors are Java classes"),
        ("tombstones.on.delete", "true", _S, "a record without a value follows each delete of a row", _flag),
        ("topic.heartbeat.prefix", "__debezium-heartbeat", _S, "the first part of the topic of heartbeats"),
        ("topic.delimiter", ".", _S, "what is between the parts of a topic"),
        ("schema.name.adjustment.mode", "none", _S, "how names of schemas are adjusted for Avro"),
        ("field.name.adjustment.mode", "none", _S, "how names of fields are adjusted for Avro"),
        ("topic.cache.size", "10000", _I, "names of topics are made once a table", _whole(1)),
        ("topic.naming.strategy", None, _I, "the connector ignores it, too"),
        ("signal.data.collection", None, _U, "signals are not read"),
        ("signal.poll.interval.ms", "5000", _S, "how often requests of snapshots are looked for", _whole(1, _INT)),
        ("signal.enabled.channels", "source", _I, "signals are not read"),
        ("notification.enabled.channels", None, _U, "notifications are not sent; see metrics and health"),
        ("notification.sink.topic.name", None, _U, "as above"),
        ("custom.metric.tags", None, _U, "metrics have the table's name as label"),
        ("sourceinfo.struct.maker", None, _I, "`source` is as the connector makes it"),
        ("snapshot.mode", "never", _S, "rows of the base tables before changes; see docs/snapshots.md", _snapshots),
        ("snapshot.mode.custom.*", None, _I, "as in the connector"),
        ("snapshot.mode.configuration.based.*", None, _I, "as in the connector", _flag),
        ("incremental.snapshot.watermarking.strategy", None, _I, "as in the connector", _one_of(*_MARKS)),
        ("log.position.check.enable", None, _I, "as in the connector"),
        ("provide.transaction.metadata", None, _U, "removed from the connector, too"),
        ("snapshot.delay.ms", None, _U, "removed from the connector, too"),
        ("snapshot.include.collection.list", None, _U, "removed from the connector, too"),
        ("snapshot.fetch.size", None, _U, "removed from the connector, too"),
        ("snapshot.max.threads", None, _U, "removed from the connector, too"),
        ("query.fetch.size", None, _U, "see `scylla.query.options.fetch.size`"),
    ),
    # ------------------------------------------------------------ of Kafka Connect
    *_table(
        ("name", None, _S, "the name of the connector in Connect; cursors are named after `topic.prefix`"),
        ("connector.class", None, _S, "must be that of the connector", _CLASS),
        ("tasks.max", "1", _I, "one process reads all; several share the keys by `rscylla.group`", _whole(1)),
        ("key.converter", None, _S, "how keys become bytes"),
        ("key.converter.*", None, _S, "options of that converter"),
        ("value.converter", None, _S, "how values become bytes"),
        ("value.converter.*", None, _S, "options of that converter"),
        (
            *("header.converter", None, _S, "headers become text"),
            _one_of("org.apache.kafka.connect.storage.simpleheaderconverter"),
        ),
        ("config.action.reload", "restart", _I, "secrets are read at the start"),
        ("transforms", None, _S, "the chain of transforms"),
        ("transforms.*", None, _S, "options of transforms"),
        ("predicates", None, _S, "conditions of transforms"),
        ("predicates.*", None, _S, "options of predicates"),
        ("errors.tolerance", "none", _S, "`all`: what can never be sent is passed over", _one_of("none", "all")),
        ("errors.deadletterqueue.topic.name", None, _S, "where to such records go; with `errors.tolerance=all`"),
        ("errors.retry.timeout", "0", _I, "records wait for brokers without end", _whole(-1)),
        ("errors.retry.delay.max.ms", "60000", _I, "see `producer.override.retry.backoff.max.ms`", _whole(0)),
        ("errors.log.enable", "false", _I, "errors are always logged", _flag),
        ("errors.log.include.messages", "false", _I, "logs have no values of rows", _flag),
        ("topic.creation.groups", None, _S, "groups of topics with settings of their own"),
        ("topic.creation.*", None, _S, "settings of topics that rscylla creates"),
        ("auto.create.topics.enable", None, _S, "`true`: rscylla creates topics that do not exist", _flag),
        (
            *("exactly.once.support", "requested", _S, "`required`: exactly-once mode, also without the worker's word"),
            _one_of("requested", "required"),
        ),
        ("transaction.boundary", "poll", _I, "transactions end by time and size", _one_of(*_BOUNDARIES)),
        ("transaction.boundary.interval.ms", "1000", _S, "ms that a transaction stays open at most", _whole(1, _INT)),
        ("offsets.storage.topic", None, _I, "see `rscylla.store.topic`"),
        ("producer.override.*", None, _S, "settings of the producer, by Java's names"),
        ("admin.override.*", None, _I, "topics are created with the producer's settings"),
        ("consumer.override.*", None, _I, "nothing is consumed"),
    ),
    # ------------------------------------------------------------ of rscylla
    *_table(
        ("rscylla.start", "oldest", _S, "where a first start reads from: `oldest`, `head`, or a time in ISO 8601"),
        ("rscylla.store.keyspace", None, _S, "where cursors are; default: the keyspace of each table"),
        ("rscylla.store.table", "rscylla_cursors", _S, "the table of cursors"),
        ("rscylla.store.create", "true", _S, "create that table if it does not exist", _flag),
        ("rscylla.store.topic", "rscylla_cursors", _S, "the topic of cursors in exactly-once mode"),
        ("rscylla.group", None, _S, "the name of the group of processes that share the tables' keys"),
        ("rscylla.group.slices", "64", _S, "into how many slices a new group cuts the keys", _whole(1, 4096)),
        ("rscylla.snapshot.rows.per.second", "0", _S, "of each table in a snapshot, at most; 0: no limit", _whole(0)),
        ("rscylla.tables.interval.ms", "10000", _S, "how often tables are looked for", _whole(100, _INT)),
        ("rscylla.source.version", "2.0.4-SNAPSHOT", _S, "`source.version`"),
        ("rscylla.like.connector", None, _S, "what is done as in the connector; see docs/debezium.md"),
        (
            *("rscylla.on.expired", "raise", _S),
            "a cursor older than the log, or of a former log of the table: `raise`, or `oldest`",
            _one_of("raise", "oldest"),
        ),
    ),
    # ------------------------------------------------------------ of a Connect worker
    *_table(
        ("bootstrap.servers", None, _S, "where Kafka is; of the worker, or `--bootstrap-servers`"),
        ("security.protocol", None, _S, "of the worker"),
        ("sasl.*", None, _S, "of the worker"),
        ("ssl.*", None, _S, "of the worker"),
        ("client.*", None, _S, "of the worker"),
        ("producer.*", None, _S, "of the worker: settings of producers"),
        ("group.id", None, _I, "of the worker"),
        ("plugin.*", None, _I, "of the worker"),
        ("rest.*", None, _I, "of the worker"),
        ("listeners", None, _I, "of the worker"),
        ("offset.*", None, _I, "of the worker; see `rscylla.store.keyspace`"),
        ("config.*", None, _I, "of the worker"),
        ("status.*", None, _I, "of the worker"),
        ("internal.*", None, _I, "of the worker"),
        ("consumer.*", None, _I, "of the worker"),
        ("admin.*", None, _I, "of the worker"),
        ("task.*", None, _I, "of the worker"),
        ("worker.*", None, _I, "of the worker"),
        ("connector.client.config.override.policy", None, _I, "of the worker"),
        (
            *("exactly.once.source.support", "disabled", _S, "of the worker; `enabled`: exactly-once mode"),
            _one_of("disabled", "preparing", "enabled"),
        ),
    ),
)
"""All properties that are known, in the order in which a name is looked for."""


def property_of(name: str) -> Property | None:
    """Return what is known of the property *name*; None if nothing is. Whole names come before beginnings."""
    return next((p for p in PROPERTIES if p.name == name), None) or next(
        (p for p in PROPERTIES if p.matches(name)), None
    )


@attrs.frozen
class Finding:
    """What is to say about a property.

    ``level``: "error" if the connector cannot run with it, else "warning". ``note``: what rscylla adds to that.
    """

    property: str
    message: str
    level: Literal["error", "warning"] = "error"
    note: str = attrs.field(default="", kw_only=True)


@attrs.frozen(repr=False)
class Properties(Mapping[str, str]):
    """The properties of a connector, with references resolved. Never shows secrets.

    Attributes:
        findings: What is to say about them: wrong values, unknown names, and names without effect.
    """

    _values: Mapping[str, str]
    _secrets: Secrets
    findings: tuple[Finding, ...] = ()

    @classmethod
    def read(
        cls,
        path: str | Path,
        *more: str | Path,
        env: Mapping[str, str] | None = None,
        also: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the properties of a file: Java's format, or JSON as Connect's REST takes it.

        JSON is UTF-8; Java's format is UTF-8 or ISO 8859-1. Either may begin with a byte order mark.

        Args:
            more: Files of a Connect worker, for what the first one does not say; earlier ones override later ones. As
                in Connect, a converter is configured where its class is named, and by that file alone.
            env: What ``${env:NAME}`` finds; default: the environment.
            also: Properties that override all.

        Raises:
            ConfigError: a file cannot be read, or a reference leads nowhere.
        """
        worker: dict[str, str] = {}
        for one in reversed(more):
            worker |= read(Path(one))
        values, unread = merged(read(Path(path)), worker)
        found = cls.of(values | dict(also or {}), env=env)
        why = "has no effect: the converter is the worker's, with options of its own; name {} beside it"
        ignored = [Finding(name, why.format(converter), "warning") for name, converter in unread]
        return attrs.evolve(found, findings=(*found.findings, *ignored))

    @classmethod
    def of(cls, values: Mapping[str, str], *, env: Mapping[str, str] | None = None) -> Self:
        """Return *values* as properties, with references resolved.

        Raises:
            ConfigError: a reference leads nowhere.
        """
        found = {name: resolved(name, value, environ if env is None else env) for name, value in values.items()}
        hidden = {name for name, value in values.items() if _is_secret(name) or found[name] != value}
        if not found.get("topic.prefix", "").strip() and found.get("scylla.name", "").strip():
            found["topic.prefix"] = found["scylla.name"]
        self = cls(found, Secrets.of(found, hidden, (f"{one.name} {one.default} {one.meaning}" for one in PROPERTIES)))
        return attrs.evolve(self, findings=tuple(self._checked()))

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self.shown()!r})"

    def text(self, name: str) -> str:
        """Return a property, or its default; "" if it has none."""
        given = self._values.get(name, "").strip()
        known = property_of(name)
        return given or (known.default if known is not None else None) or ""

    def number(self, name: str) -> int:
        return int(self.text(name) or 0)

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def parts(self, name: str) -> list[str]:
        return list(words(self.text(name)))

    @property
    def snapshot_mode(self) -> str:
        """The mode of snapshots; modes that only Debezium has are "never", as in the connector."""
        mode = self.text("snapshot.mode").lower()
        return mode if mode in _SNAPSHOTS else "never"

    @property
    def exactly_once(self) -> bool:
        """Whether records and cursors are published in transactions of Kafka."""
        worker, own = self.text("exactly.once.source.support"), self.text("exactly.once.support")
        return worker.lower() == "enabled" or own.lower() == "required"

    def without(self, *names: str) -> Self:
        """Return these properties without some of them."""
        return attrs.evolve(self, values={name: value for name, value in self._values.items() if name not in names})

    def but(self, values: Mapping[str, str]) -> Self:
        """Return these properties with other *values* of some, in which references are not resolved."""
        return attrs.evolve(self, values={**self._values, **values})

    def under(self, prefix: str) -> dict[str, str]:
        """Return the properties whose names begin with *prefix*, without it."""
        return options_of(self._values, prefix)

    def shown(self) -> dict[str, str]:
        """Return the properties as they may be shown."""
        return {name: self._shown(name, value) for name, value in self._values.items()}

    def redacted(self, text: str, about: str = "") -> str:
        """Return *text*, such as a log line or an error, without any secret of the properties.

        Args:
            about: the property that the text is about, if it does not name it itself.
        """
        return self._secrets.redacted(text, about)

    @property
    def errors(self) -> list[Finding]:
        """The findings with which the connector cannot run."""
        return [finding for finding in self.findings if finding.level == "error"]

    def require(self) -> None:
        """Raise ``ConfigError`` with all errors, if there are any."""
        if self.errors:
            raise ConfigError("; ".join(f"{finding.property} {finding.message}" for finding in self.errors))

    def _checked(self) -> Iterable[Finding]:
        for one in PROPERTIES:
            if one.required and not self._values.get(one.name, "").strip():
                yield Finding(one.name, one.check("") or "is missing")
        for name, value in sorted(self._values.items()):
            yield from self._finding(name, value)
        for name in unknown_options(self._values):
            yield Finding(name, "is no option of the transform; it has no effect", "warning")
        user, password = (bool(self.text(f"scylla.{what}")) for what in ("user", "password"))
        if user != password:
            missing, given = ("password", "user") if user else ("user", "password")
            yield Finding(f"scylla.{missing}", f"is missing; scylla.{given} is given, and they belong together")

    def _finding(self, name: str, value: str) -> Iterable[Finding]:
        known = property_of(name)
        if known is None:
            yield Finding(name, "is not known; it has no effect" + _similar(name), "warning")
            return
        wrong = known.check(value.strip()) if value.strip() else ""
        if wrong and "has '" in wrong:
            is_shown = name not in self._secrets.names
            yield Finding(name, wrong if is_shown else "has a part that is not possible, in a value that is not shown")
        elif wrong:
            yield Finding(name, f"{wrong}, not {self._shown(name, value.strip())!r}")
        elif name == "snapshot.mode" and value.strip().lower() in _OTHER_SNAPSHOTS:
            yield Finding(name, "has no effect: as in the connector, no rows are published", "warning")
        elif known.status == "inert" and value.strip() != (known.default or ""):
            yield Finding(name, f"has no effect: {known.meaning}", "warning")
        elif known.status == "unsupported" and value.strip() != (known.default or ""):
            yield Finding(name, f"is not supported: {known.meaning}", "warning")

    def _shown(self, name: str, value: str) -> str:
        return HIDDEN if name in self._secrets.names else self.redacted(value, name)


def _is_secret(name: str) -> bool:
    known = property_of(name)
    return (known is not None and known.secret) or is_secret(name)


def _similar(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, [p.name for p in PROPERTIES if not p.name.endswith("*")], 1, 0.85)
    return f"; did you mean {close[0]}?" if close else ""
