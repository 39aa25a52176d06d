"""``Connector``: what the Scylla CDC source connector does, in one process: looks for tables, and runs their lanes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._retry import Backoff
from .._tokens import Slice
from ..abc import CursorStore, Membership, Publisher
from ..cdc.log import logged_tables, read_table
from ..clock import Clock, Stop, SystemClock
from ..debezium import Settings
from ..driver import ReadSession, Session, connect, consistency_named
from ..errors import (
    ConfigError,
    MetadataError,
    RscyllaError,
    RunError,
    ServiceFailed,
    SourceError,
    TableNotFound,
)
from ..reflex import Spec
from ..service import Group, Restarts, Service
from .config.client import producer_config
from .config.keystores import scylla_context
from .config.properties import Properties
from .cursors.positions import lane_names
from .cursors.scylla import Stores
from .cursors.store import KafkaCursorStore
from .heartbeats import Heartbeats
from .lanes import LAG, Lanes, TableKey
from .producer.publisher import KafkaPublisher
from .producer.topics import Topics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


__all__ = ["Connector", "connect_to", "cursors_in_kafka"]

log = logging.getLogger("rscylla.kafka")

LOOK_S: Final = 0.25


def connect_to(properties: Properties) -> Session:
    """Return a session to the cluster of ``scylla.cluster.ip.addresses``; shut it down with its ``cluster``.

    Raises:
        ConnectionFailed, AuthenticationFailed, ConfigError: as ``rscylla.connect``.
    """
    user = properties.text("scylla.user") or None
    return connect(
        properties.parts("scylla.cluster.ip.addresses"),
        username=user,
        password=properties.text("scylla.password") if user else None,
        tls=scylla_context(properties),
        local_dc=properties.text("scylla.local.dc") or None,
    )


def cursors_in_kafka(
    properties: Properties, config: Mapping[str, Any] | None = None, **options: Any
) -> KafkaCursorStore:
    """Return the store of a connector in exactly-once mode; the caller closes it. A reset fences the connector.

    Args:
        config: of the producers; default: by the properties.
        options: as for ``KafkaCursorStore``.
    """
    return KafkaCursorStore(
        producer_config(properties)[0] if config is None else config,
        properties.text("rscylla.store.topic"),
        interval=timedelta(milliseconds=properties.number("transaction.boundary.interval.ms")),
        together=partial(lane_names, properties.text("topic.prefix")),
        **options,
    )


@attrs.define(eq=False)
class Connector:
    """Publishes the changes of tables to Kafka, as *properties* say, until it is stopped.

    Each table is a lane of a ``Service``, with a cursor of its own under ``consumer_name``. Tables are looked for while
    it runs: if one comes or goes, all lanes stop, save, and start again, which takes about a second.

    Args:
        properties: checked; see ``Properties.require``.
        session: to the cluster; see ``connect_to``. The caller closes it.
        publisher: where records go; default: a ``KafkaPublisher`` by the properties, which ``run`` closes. Not in
            exactly-once mode.
        store_of: returns the cursor store of a keyspace's tables, which ``run`` closes; called again after one of these
            tables was dropped. Not in exactly-once mode.
        port, host: where metrics and health are served; None: nowhere.
        to_head: end when all changes up to now are published.
        on_snapshot: called with a table (of a slice, such as ``shop.orders[0/4]``), the part of its rows that a
            snapshot has published, 0 to 1, and how many these are; by threads of lanes.
        membership: of the group with which this process shares the tables' keys; default: by ``rscylla.group``. The
            stores that ``store_of`` returns must have it as their *lease*.

    Raises:
        ConfigError: a property is wrong.
    """

    properties: Properties
    session: Session
    publisher: Publisher | None = None
    store_of: Callable[[str], CursorStore] | None = None
    port: int | None = None
    host: str = "127.0.0.1"
    to_head: bool = False
    on_snapshot: Callable[[str, float, int], None] | None = None
    membership: Membership | None = None
    registry: CollectorRegistry | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    service: Service | None = attrs.field(default=None, init=False)
    """The lanes that run now, none while there are no tables; another one after tables came or went."""
    _stores: Stores = attrs.field(init=False)
    _lanes: Lanes = attrs.field(init=False)
    _first: Mapping[TableKey, Any] = attrs.field(factory=dict, init=False)
    """The tables of the first look, with the ids of their logs. One that comes later is read from its first change."""

    def __attrs_post_init__(self) -> None:
        self.properties.require()
        if self.properties.exactly_once and (self.publisher is not None or self.store_of is not None):
            raise ConfigError(
                "exactly-once mode has publishers and a store of its own; leave out publisher and store_of"
            )
        if group := self.properties.text("rscylla.group"):
            keyspace = self.properties.text("rscylla.store.keyspace")
            if not keyspace:
                raise ConfigError("rscylla.group needs rscylla.store.keyspace, where the group and its cursors are")
            if self.to_head:
                raise ConfigError("a group has no head to end at; leave rscylla.group out")
            if self.membership is None:
                from cursorstore import ScyllaMembership

                create = self.properties.flag("rscylla.store.create")
                slices = self.properties.number("rscylla.group.slices")
                self.membership = ScyllaMembership(self.session, keyspace, group, slices=slices, create=create)
        self._stores = Stores(self.properties, self.session, self.store_of, self.membership)
        self._lanes = Lanes(
            self.properties,
            self.session,
            self._stores,
            to_head=self.to_head,
            on_snapshot=self.on_snapshot,
            registry=self.registry,
            clock=self.clock,
        )

    def run(self, stop: Stop) -> int:
        """Run until *stop* is set, or at the head if so asked; return the exit code, as ``Service`` does.

        Raises:
            ServiceFailed: no table can be read any more, with the cause chained.
            ConfigError, RscyllaError: nothing can begin as it is.
        """
        owned = self.publisher is None
        config, prepare = self._client(stop) if owned else ({}, None)
        publisher = self.publisher if self.publisher is not None else KafkaPublisher(config, prepare=prepare)
        try:
            if self.properties.exactly_once:
                self._lanes.exactly = cursors_in_kafka(
                    self.properties, config, lease=self.membership, stop=stop, clock=self.clock
                )
                self._lanes.prepare = prepare
            with Heartbeats(self.properties, publisher, self.clock):
                return self._run(publisher, stop)
        finally:
            self._lanes.close()
            if owned:
                publisher.close()

    def tables(self) -> dict[TableKey, Any]:
        """Return the tables that the properties name and that have a log, with the ids of their logs. Blocks."""
        patterns = self.properties.parts("scylla.table.names")
        found = logged_tables(self._reading())
        return {
            key: log_id
            for key, log_id in sorted(found.items())
            if any(fnmatchcase(".".join(key), pattern) for pattern in patterns)
        }

    # ------------------------------------------------------------ terms

    def _run(self, publisher: Publisher, stop: Stop) -> int:
        self._check_named()
        first = True
        while not stop.is_set():
            lanes, group, failed, kept = list[Spec](), None, dict[TableKey, str](), dict[str, Any]()
            try:
                tables = self.tables()
                missing = self._missing(tables)
                if tables:
                    names, lag_ms = ", ".join(".".join(key) for key in tables), self.properties.number(LAG)
                    log.info("publishing %s, %g s behind the clock (%s)", names, lag_ms / 1000, LAG)
                    for topic, shared in self._shared(tables).items():
                        log.warning("%s have one topic, %s, where their keys mix; see topic.delimiter", shared, topic)
                    if first:
                        self._first = tables
                    failed = self._storeless(tables, first=first)
                    missing |= {f'table "{".".join(key)}"': why for key, why in failed.items()}
                    lanes, group = self._made({k: v for k, v in tables.items() if k not in failed}, publisher)
                    kept = self._stores.tables()
                elif self.to_head:
                    return 0
                else:
                    log.warning("no table with a log has a name of scylla.table.names; looking again")
            except (SourceError, MetadataError) as error:
                if first:
                    raise
                log.warning("lanes cannot start again yet: %s", error)
                tables, missing = {}, {"tables": f"lanes cannot start again yet: {error}"}
            service = Service(
                lanes,
                group=group,
                restarts=self._restarts(),
                port=self.port,
                host=self.host,
                unread=partial(_unread, missing, publisher),
                registry=self.registry,
            )
            self.service = service
            service.start()
            try:
                stale = self._watch(service, tables, kept, failed, stop, first and bool(tables))
            finally:
                service.stop()
                service.wait()
            first = first and not tables
            if stale is None:
                if service.failure is not None:
                    raise service.failure
                return service.exit_code
            self._stores.renew(stale)
        return 0

    def _shared(self, tables: Iterable[TableKey]) -> dict[str, str]:
        """Return the topics that several tables have, and these."""
        settings = Settings.of(self.properties)
        found: dict[str, list[str]] = {}
        for key in tables:
            found.setdefault(settings.topic(settings.prefix, *key), []).append(".".join(key))
        return {topic: " and ".join(names) for topic, names in found.items() if len(names) > 1}

    def _missing(self, tables: Collection[TableKey]) -> dict[str, str]:
        """Return the tables that are named, or the pattern of all, and not there, with why, by name."""
        found = {".".join(key) for key in tables}
        named = [name for name in self.properties.parts("scylla.table.names") if not set("*?") & set(name)]
        missing = {f'table "{name}"': "does not exist, or has no CDC log" for name in named if name not in found}
        return missing if missing or tables else {"tables": "no table with a log has a name of scylla.table.names"}

    def _watch(
        self,
        service: Service,
        tables: dict[TableKey, Any],
        kept: dict[str, Any],
        failed: Collection[TableKey],
        stop: Stop,
        is_first: bool,
    ) -> set[str] | None:
        """Wait until the service ends or must end. If another one is to follow, return keyspaces that lost a table.

        Args:
            kept: the ids of the tables in which cursors are, by keyspace.
            failed: the tables that have no lane, since they have no store of cursors.
            is_first: whether these are the first lanes: if none of them can run, nothing can begin as it is.
        """
        interval_s = self.properties.number("rscylla.tables.interval.ms") / 1000
        looked = self.clock.monotonic()
        while not stop.wait(min(LOOK_S, interval_s)):
            ended = service.wait(timedelta())
            if ended and self.to_head:
                return None
            if not ended and self.clock.monotonic() - looked < interval_s:
                continue
            looked = self.clock.monotonic()
            try:
                found, now_kept = self.tables(), self._stores.tables()
            except RscyllaError as error:
                log.warning("tables cannot be looked for: %s", error)
                found, now_kept = tables, kept
            lost = {place for place, table_id in kept.items() if now_kept.get(place) != table_id}
            kept |= now_kept  # those of a slice that came to this process
            if found != tables or lost:
                come, gone = sorted(found.keys() - tables.keys()), sorted(tables.keys() - found.keys())
                log.info("tables have changed: %d more, %d less; lanes start again", len(come), len(gone))
                return lost | {key[0] for key, log_id in tables.items() if found.get(key) != log_id}
            if any(self._store_error(key) is None for key in failed):
                return set()
            if ended:
                return None if is_first or not _may_heal(service.failure) or stop.wait(interval_s) else set()
            service.retry_parked(_may_heal)
        return None

    def _store_error(self, key: TableKey) -> RscyllaError | None:
        """Return why there is no store for the cursors of a table, None if there is one."""
        try:
            self._lanes.store(key[0])
        except RscyllaError as error:
            return error
        return None

    def _storeless(self, tables: Iterable[TableKey], *, first: bool) -> dict[TableKey, str]:
        """Return the tables for whose cursors there is no store, with why; the *first* time, that is an error."""
        failed = {key: error for key in tables if (error := self._store_error(key)) is not None}
        for key, error in failed.items():
            if first:
                raise error
            log.warning("%s has no lane yet: %s", ".".join(key), error)
        return {key: str(error) for key, error in failed.items()}

    def _check_named(self) -> None:
        """Raise what is wrong with a table that is named, not matched by a pattern: nobody would miss its changes."""
        for name in self.properties.parts("scylla.table.names"):
            if not set("*?") & set(name):
                read_table(self._reading(), *name.split(".", 1))

    def _reading(self) -> ReadSession:
        return ReadSession(self.session, consistency=consistency_named("LOCAL_ONE"))

    # ------------------------------------------------------------ lanes

    def _made(self, tables: Mapping[TableKey, Any], publisher: Publisher) -> tuple[list[Spec], Group | None]:
        """Return the lanes of the tables: those of a process alone, or of the slices that a group gives to it.

        Each lane reads its cursor itself, so one that cannot keeps no other from running.
        """
        streams = {key: self._lanes.stream(key) for key in tables}  # once, so that slices of a table are read together
        first = {key for key, log_id in tables.items() if self._first.get(key) == log_id}

        def of_slice(index: int, count: int) -> list[Spec]:
            part, lane = Slice(index, count), self._lanes.lane
            return [lane(key, streams[key], publisher, part, is_first=key in first) for key in tables]

        return ([], Group(self.membership, of_slice)) if self.membership is not None else (of_slice(0, 1), None)

    def _restarts(self) -> Restarts:
        properties = self.properties
        most = properties.number("worker.max.retries")
        first = timedelta(milliseconds=max(1, properties.number("worker.retry.backoff.base")))
        last = timedelta(milliseconds=properties.number("worker.maximum.backoff"))
        return Restarts(
            most=None if most < 0 else most,
            backoff=Backoff(initial=first, maximum=max(first, last)),
            give_up="park",  # as a task of Connect fails alone; /readyz names the table
        )

    def _client(self, stop: Stop) -> tuple[dict[str, Any], Callable[[str], None] | None]:
        """Return the configuration of librdkafka, and what creates topics."""
        config, findings = producer_config(self.properties)
        for finding in findings:
            log.warning("%s %s", finding.property, finding.message)
        topics = Topics.of(self.properties, config, stop)
        return config, None if topics is None else topics.ensure


def _unread(missing: Mapping[str, str], publisher: Publisher) -> dict[str, str]:
    """Return what is not published although no lane says so, with why, by name."""
    trouble = publisher.trouble()
    return {**missing, **({"Kafka": trouble} if trouble else {})}


def _may_heal(failure: ServiceFailed | None) -> bool:
    """Return whether a lane ended since it could not begin to read, for a reason that others may take away."""
    error = None if failure is None else failure.__cause__
    if not isinstance(error, RunError) or error.stage not in ("get_cursor", "stream") or error.resumable:
        return False
    return isinstance(error.__cause__, SourceError | TableNotFound)
