"""``Connector``: what the Scylla CDC source connector does, in one process: tables, lanes, heartbeats, dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from .._retry import Backoff
from ..abc import CursorStore, Membership, Message, Publisher, StreamClient, StreamFunc, flush_cursor
from ..cdc import Stream
from ..cdc.log import logged_tables, read_table
from ..cdc.read import Limits
from ..clock import Clock, Stop, SystemClock
from ..debezium import Settings
from ..driver import ReadSession, Session, connect, consistency_named
from ..errors import (
    ConfigError,
    MalformedData,
    MetadataError,
    RscyllaError,
    RunError,
    ServiceFailed,
    SourceError,
    TableNotFound,
)
from ..event import Event
from ..options import StreamLag, StreamOption, StreamToHead
from ..publish import DeadLetter, DebeziumMessages, Messages, publishing
from ..reflex import Spec, metrics_for, slice_name, take_along
from ..service import Group, Restarts, Service
from .config.client import producer_config
from .config.keystores import scylla_context
from .config.properties import Properties
from .cursors.positions import lane_names
from .cursors.scylla import Stores, closed
from .cursors.store import KafkaCursorStore
from .heartbeats import Heartbeats
from .letters import letter_of
from .producer.publisher import KafkaPublisher
from .producer.topics import Topics, is_topic
from .snapshots.snapshot import Mode, Snapshots, snapshot_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


__all__ = ["Connector", "TableKey", "connect_to", "consumer_name", "cursors_in_kafka"]

log = logging.getLogger("rscylla.kafka")

TableKey = tuple[str, str]
"""Keyspace and name of a base table."""

_LAG: Final = "scylla.confidence.window.size"
MAX_BYTES: Final = 64 << 20
LEAST_BYTES: Final = 1 << 20
LOOK_S: Final = 0.25


def consumer_name(properties: Properties, keyspace: str, table: str) -> str:
    """Return the name under which the cursor of a table is kept."""
    return f"{properties.text('topic.prefix')}.{keyspace}.{table}"


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
        before: called with the table, its stream, and its store before its lane starts, for a snapshot.
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
    before: Callable[[TableKey, Stream, CursorStore], None] | None = None
    to_head: bool = False
    on_snapshot: Callable[[str, float, int], None] | None = None
    membership: Membership | None = None
    registry: CollectorRegistry | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    service: Service | None = attrs.field(default=None, init=False)
    """The lanes that run now, none while there are no tables; another one after tables came or went."""
    _stores: Stores = attrs.field(init=False)
    _named: bool = attrs.field(default=False, init=False)
    _start: Callable[[Stream], str] = attrs.field(init=False)
    _prepare: Callable[[str], None] | None = attrs.field(default=None, init=False)
    _exactly: KafkaCursorStore | None = attrs.field(default=None, init=False)
    _first: Mapping[TableKey, Any] = attrs.field(factory=dict, init=False)
    """The tables of the first look, with the ids of their logs. One that comes later is read from its first change."""
    _begun: set[str] = attrs.field(factory=set, init=False)
    """The lanes that have begun once. If their cursors are lost, they do not begin at the start again."""

    def __attrs_post_init__(self) -> None:
        self.properties.require()
        DebeziumMessages(self.properties)  # raises what is wrong with them
        self._dead_letter()
        self._start = self._start_of(self.properties.text("rscylla.start"))
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
                self._exactly = cursors_in_kafka(
                    self.properties, config, lease=self.membership, stop=stop, clock=self.clock
                )
            with Heartbeats(self.properties, publisher, self.clock):
                return self._run(publisher, stop)
        finally:
            self._stores.close()
            if self._exactly is not None:
                closed(self._exactly)
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
                    names, lag_ms = ", ".join(".".join(key) for key in tables), self.properties.number(_LAG)
                    log.info("publishing %s, %g s behind the clock (%s)", names, lag_ms / 1000, _LAG)
                    for topic, shared in self._shared(tables).items():
                        log.warning("%s have one topic, %s, where their keys mix; see topic.delimiter", shared, topic)
                    if first:
                        self._first = tables
                    failed = self._storeless(tables, first=first)
                    missing |= {f'table "{".".join(key)}"': why for key, why in failed.items()}
                    lanes, group = self._lanes({k: v for k, v in tables.items() if k not in failed}, publisher)
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
            if self._exactly is None:
                self._stores.of(key[0])
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

    def _lanes(self, tables: Mapping[TableKey, Any], publisher: Publisher) -> tuple[list[Spec], Group | None]:
        """Return the lanes of the tables: those of a process alone, or of the slices that a group gives to it.

        Each lane reads its cursor itself, so one that cannot keeps no other from running.
        """
        streams = {key: self._stream(key) for key in tables}  # once, so that slices of a table are read together
        fresh = {key for key, log_id in tables.items() if self._first.get(key) == log_id}

        def of_slice(index: int, count: int) -> list[Spec]:
            return [self._lane(key, streams[key], publisher, (index, count), fresh=key in fresh) for key in tables]

        return ([], Group(self.membership, of_slice)) if self.membership is not None else (of_slice(0, 1), None)

    def _lane(self, key: TableKey, stream: Stream, publisher: Publisher, part: tuple[int, int], *, fresh: bool) -> Spec:
        properties = self.properties
        name, exactly = consumer_name(properties, *key), self._exactly
        store = self._stores.of(key[0]) if exactly is None else exactly
        if self.membership is not None:
            name, stream = slice_name(name, *part), stream.sliced(*part)
        if exactly is not None:
            publisher = exactly.publisher(name, prepare=self._prepare)
        snapshots = self._snapshots(publisher, part)
        # A snapshot begins where the changes do; and a table that comes later is new: all of its changes are wanted.
        start = self._start if fresh and snapshots.mode == "never" else None
        if self.before is not None:
            self.before(key, stream, store)
        consumer = publishing(name, self._messages(name), publisher, **self._bounds(part))
        options: list[StreamOption] = [StreamLag(timedelta(milliseconds=properties.number(_LAG)))]
        if self.to_head:
            options.append(StreamToHead())
        begin = partial(self._begin, store, key, name, stream, start)
        return Spec(
            _Beginning(snapshots.lane(stream, store, name), begin), store, consumer, *options, registry=self.registry
        )

    def _begin(
        self,
        store: CursorStore,
        key: TableKey,
        name: str,
        stream: Stream,
        start: Callable[[Stream], str] | None,
    ) -> str:
        """Set the cursor of a lane that has none, and return it: that of at-least-once mode, or the start.

        Called by the lane, so that all of them begin their sessions at once: one must not wait for what another left.
        """
        cursor = "" if self._exactly is None else self._taken(self._exactly, key, name, stream)
        if not cursor and start is not None and name not in self._begun and (cursor := start(stream)):
            store.set_cursor(name, cursor)
            flush_cursor(store, name)  # a later crash must not move the start
        self._begun.add(name)
        return cursor

    def _taken(self, store: KafkaCursorStore, key: TableKey, name: str, stream: Stream) -> str:
        """Take the cursors of a lane over from ScyllaDB into Kafka, if it has none there; return that of changes."""
        if store.find_cursor(name) is not None:
            return ""
        kept = self._stores.scylla(key[0])
        try:
            take_along(kept, name, stream.key_slice, from_whole=False)
            for each in (snapshot_name(name, stream.key_slice), name):
                record = kept.find_cursor(each)
                if record is not None and record.cursor:
                    log.info("%s continues in exactly-once mode where its cursor in ScyllaDB is", each)
                    store.reset_cursor(each, record.cursor, reason="taken from the table of cursors in ScyllaDB")
        except TableNotFound:
            pass  # it was never used
        return store.get_cursor(name)

    def _bounds(self, part: tuple[int, int]) -> dict[str, Any]:
        """Return the options of ``publishing`` for a slice."""
        properties = self.properties
        max_bytes = properties.number("max.queue.size.in.bytes") or MAX_BYTES
        return {
            "max_unacknowledged": properties.number("max.queue.size"),
            "max_bytes": max(max_bytes // part[1], LEAST_BYTES),
            "dead_letter": self._dead_letter(),
            "registry": self.registry,
        }

    def _snapshots(self, publisher: Publisher, part: tuple[int, int]) -> Snapshots:
        properties = self.properties
        rows = properties.number("rscylla.snapshot.rows.per.second")
        return Snapshots(
            properties,
            publisher,
            cast("Mode", properties.snapshot_mode),
            timedelta(milliseconds=properties.number(_LAG)),
            # Slices share the limit of their table.
            rows_per_s=max(1.0, rows / part[1]) if rows else None,
            poll=timedelta(milliseconds=properties.number("signal.poll.interval.ms")),
            on_progress=self.on_snapshot,
            options=self._bounds(part),
        )

    def _stream(self, key: TableKey) -> Stream:
        properties = self.properties
        size = properties.number("scylla.query.options.fetch.size")
        return Stream(
            self.session,
            *key,
            consistency=properties.text("scylla.consistency.level").upper(),
            on_expired="oldest" if properties.text("rscylla.on.expired").lower() == "oldest" else "raise",
            limits=Limits(page_size=size) if size else Limits(),
        )

    def _start_of(self, start: str) -> Callable[[Stream], str]:
        """Return what returns the cursor at which a first start begins; "" is the oldest change."""
        lookback = self.properties.number("scylla.initial.lookback.ms")
        lag = timedelta(milliseconds=self.properties.number(_LAG))
        if start == "head":
            return lambda stream: stream.head_cursor(lag)
        if start != "oldest":
            try:
                time = datetime.fromisoformat(start)
            except ValueError:
                raise ConfigError(
                    f"rscylla.start is {start!r}; it is oldest, head, or a time such as 2026-11-23T10:00:00Z"
                ) from None
            time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return lambda stream: stream.cursor_at(time)
        if lookback:
            back = timedelta(milliseconds=lookback)
            return lambda stream: stream.cursor_at(self._now() - back)
        return lambda stream: ""

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)

    def _messages(self, consumer: str) -> Messages:
        messages = DebeziumMessages(self.properties, clock=self.clock)
        if self.properties.text("event.processing.failure.handling.mode").lower() == "fail":
            return messages
        count = metrics_for(self.registry).consumer(consumer).count

        def tolerant(event: Event) -> list[Message]:
            try:
                return messages(event)
            except (MalformedData, MetadataError) as error:  # of the change itself: whatever else is wrong may pass
                log.warning("event %s becomes no record: %s", event.id, error)
                count("given_up")
                return []

        return tolerant

    def _dead_letter(self) -> DeadLetter | None:
        if self.properties.text("errors.tolerance").lower() != "all":
            return None
        topic = self.properties.text("errors.deadletterqueue.topic.name")
        if topic and not is_topic(topic):
            raise ConfigError(f"errors.deadletterqueue.topic.name is {topic!r}, which Kafka does not take as a topic")

        def dead(message: Message, why: str) -> Message | None:
            log.warning("a record is passed over: %s", why)
            return letter_of(message, topic, why) if topic else None

        return dead

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
        self._prepare = None if topics is None else topics.ensure
        return config, self._prepare


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


@attrs.frozen(eq=False)
class _Beginning:
    """A stream of a lane whose cursor *begin* sets, and returns, if there is none."""

    supports_lag = True

    stream: StreamFunc
    begin: Callable[[], str]

    @property
    def source(self) -> str:
        return str(getattr(self.stream, "source", ""))

    def __call__(self, after: str, *options: StreamOption, stop: Stop | None = None) -> StreamClient:
        return self.stream(after or self.begin(), *options, stop=stop)
