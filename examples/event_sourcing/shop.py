"""``Shop``: the application. It handles commands and answers queries, and its service reads the events.

::

    commands -> decide -> event store ==CDC log==> orders            the read model
                                              ==> payment-deadline  timers, and commands again
                                              ==> broker            records for the rest of the company

Each reader is a consumer of its own, with its own cursor, in slices that the processes of the group share. None of them
can hold up another, or a command.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

import rscylla
from cursorstore import BufferedCursorStore, ScyllaCursorStore, ScyllaDeadLetters, ScyllaMembership
from rscylla.eventsourcing import (
    AggregateID,
    CommandHandler,
    EventMessages,
    EventRecord,
    Handled,
    PersonalData,
    Processes,
    Projector,
    ScyllaBuilds,
    ScyllaEventStore,
    ScyllaSnapshotStore,
    ScyllaSubjectKeys,
    ScyllaTimers,
    VersionConflict,
    aggregate_of,
    parking_key,
    parking_messages,
    timer_of,
)
from rscylla.kafka import KafkaPublisher
from rscylla.publish import publishing

from .asked import Asked
from .deadline import PaymentDeadline
from .domain import customers, orders
from .domain.rules import RuleBroken
from .events import aggregates, event_types
from .models import CommandDone
from .problems import Problem
from .settings import Settings
from .tables import OrderProjection, OrderTables, is_outage

__all__ = ["Shop", "create_keyspace"]

log = logging.getLogger("shop")

EVENT_TABLE: Final = "events"

BROKER: Final = "broker"

LETTERS_SHOWN: Final = 50


def create_keyspace(session: rscylla.Session, settings: Settings) -> None:
    """Create the keyspace if it does not exist. The tables are created when they are first used."""
    # Conditional writes and CDC in a keyspace with tablets depend on the version of Scylla.
    session.execute(
        f'CREATE KEYSPACE IF NOT EXISTS "{settings.keyspace}" WITH replication = '
        f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {settings.replication}}} "
        "AND tablets = {'enabled': false}"
    )


class Meters:
    """The metrics of the application; those of the readers are the library's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commands: Final = Counter(
            "shop_commands",
            "commands by what became of them: done, repeated, refused, conflict, failed",
            ("command", "outcome"),
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "shop_command_seconds", "from a command to its stored events", ("command",), registry=registry
        )
        self.visible: Final = Histogram(
            "shop_visible_seconds",
            "from stored events to a read model that shows them",
            registry=registry,
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )
        self.late: Final = Counter(
            "shop_visible_late", "commands whose client did not wait until queries showed them", registry=registry
        )
        self.build: Final = Gauge(
            "shop_read_model_build", "the build of the read model that is read", registry=registry
        )


class Shop:
    """Everything of one process but the web. Thread-safe. ``service`` has to be started and stopped by the owner.

    Args:
        servers: Bootstrap servers of Kafka.
        clock: The clock of commands and timers.
    """

    def __init__(
        self, session: rscylla.Session, servers: str, settings: Settings, clock: rscylla.Clock | None = None
    ) -> None:
        keyspace, self._settings = settings.keyspace, settings
        self.registry = registry = CollectorRegistry()
        self._meters = Meters(registry)
        self._clock = clock or rscylla.SystemClock()
        self._stop = rscylla.Stop()

        # The write side.
        self._keys = PersonalData(ScyllaSubjectKeys(session, keyspace, create=True))
        self.types = types = event_types(self._keys)
        self.store = ScyllaEventStore(session, keyspace, EVENT_TABLE, create=True)
        self.store.create_schema()  # before its log is read
        snapshots = ScyllaSnapshotStore(session, keyspace, create=True)
        self._orders, self._customers = (
            CommandHandler(kind, self.store, snapshots=snapshots, snapshot_every=settings.snapshot_every, clock=clock)
            for kind in aggregates(types)
        )

        # The read side.
        self.letters = ScyllaDeadLetters(session, keyspace, create=True)
        self._projection = OrderProjection(session, keyspace)
        self._projector = Projector(
            self._projection, self.store, types.decode, ScyllaBuilds(session, keyspace, create=True)
        )
        self._processes = Processes(
            PaymentDeadline(),
            self._send,
            ScyllaTimers(session, keyspace, create=True),
            types.decode,
            refused=RuleBroken,
        )
        self._publisher = KafkaPublisher({"bootstrap.servers": servers, "client.id": "shop"})
        self._messages = EventMessages(lambda record: f"shop.{record.aggregate.type}s")
        self.breaker = rscylla.CircuitBreaker(
            "read-model", outage=is_outage, reset_after=timedelta(seconds=10), registry=registry
        )

        membership = ScyllaMembership(session, keyspace, "shop", slices=settings.slices, create=True)
        cursors = BufferedCursorStore(ScyllaCursorStore(session, keyspace, create=True, lease=membership))
        stream = rscylla.NewStream(session, keyspace, EVENT_TABLE)
        lag = rscylla.StreamLag(settings.lag)
        lanes = [
            rscylla.group_lanes(name, stream, cursors, make, lag, registry=registry)
            for name, make in (
                (self._projection.name, self._projecting),
                (PaymentDeadline.name, self._reacting),
                (BROKER, self._publishing),
            )
        ]
        self.service = rscylla.Service(
            [self._processes.timer_spec(wrap=self._with_letters, registry=registry)],
            group=rscylla.Group(membership, *lanes),
            dead_letters=self.letters,
            port=settings.service_port,
            registry=registry,
        )
        self._replays: Mapping[str, Callable[[rscylla.Event], None]] = {
            self._projection.name: self._replayed_by(self._projecting_alone),
            PaymentDeadline.name: self._replayed_by(self._processes.consumer),
            f"{PaymentDeadline.name}-timers": lambda event: self._processes.fire(timer_of(event)),
            BROKER: self._republish,
        }

    def close(self) -> None:
        """End the waits of requests, and release the publisher. Call it after the service has ended."""
        self._stop.set()
        self._publisher.close()

    # ------------------------------------------------------------ readers of the events

    def _with_letters(self, consumer: rscylla.abc.Consumer) -> rscylla.abc.Consumer:
        return rscylla.dead_letter(self.breaker.guard(consumer), self.letters)

    def _projecting_alone(self, name: str) -> rscylla.abc.Consumer:
        return self._projector.consumer(name, event_filter=_is_of_an_order, registry=self.registry)

    def _projecting(self, name: str) -> rscylla.abc.Consumer:
        # An outage opens the breaker, and the lane waits. What remains is the fault of an event: it is set aside, and
        # the later ones of its order with it, so that nothing overtakes it.
        guarded = self.breaker.guard(self._projecting_alone(name))
        return rscylla.dead_letter(guarded, self.letters, park=parking_key)

    def _reacting(self, name: str) -> rscylla.abc.Consumer:
        consumer = self._processes.consumer(name, registry=self.registry)
        return rscylla.dead_letter(self.breaker.guard(consumer), self.letters, park=parking_key)

    def _publishing(self, name: str) -> rscylla.abc.Consumer:
        # A broker that is down is no error: the lane waits. A record that it will never take is a dead letter.
        messages = parking_messages(name, self._messages, self.letters)
        return publishing(name, messages, self._publisher, registry=self.registry)

    # ------------------------------------------------------------ commands

    def place(self, order_id: str, command: orders.CreateOrder, asked: Asked) -> CommandDone:
        """Create an order, if its customer may order.

        That is looked up before the command: another command may suspend the customer in between. A rule that spans two
        aggregates cannot hold at every moment; a process manager can put right what slips through.
        """
        # An order that is there was placed by this command before, or is refused below: its customer does not matter.
        if not self.store.head(AggregateID(orders.NAME, order_id)):
            customer = self._customers.load(command.customer_id).state
            if customer.status is None:
                raise RuleBroken("no_customer", "there is no such customer")
            if customer.status is not customers.CustomerStatus.ACTIVE:
                raise RuleBroken("customer_not_active", f"the customer is {customer.status}")
        return self.orders_do(order_id, command, asked)

    def orders_do(self, order_id: str, command: orders.OrderCommand, asked: Asked) -> CommandDone:
        """Carry out a command to an order, and wait until queries show it, as long as the client waits."""
        done = self._handled(self._orders, order_id, command, asked)
        return _answer(done, asked, self._is_visible(done.aggregate, done.version, asked.wait))

    def customers_do(self, customer_id: str, command: customers.CustomerCommand, asked: Asked) -> CommandDone:
        """Carry out a command to a customer. Queries make customers of their events, and show it at once."""
        return _answer(self._handled(self._customers, customer_id, command, asked), asked, True)

    def _handled(
        self, handler: CommandHandler[Any, Any, Any], id_: str, command: Any, asked: Asked
    ) -> Handled[Any, Any]:
        with self._measured(type(command).__name__) as outcome:
            done = handler.handle(
                id_,
                command,
                command_id=asked.command_id,
                correlation_id=asked.correlation_id,
                user=asked.user,
                expected=asked.expected,
            )
            outcome("repeated" if done.repeated else "done")
            return done

    def _send(self, to: AggregateID, command: Any, *, command_id: str, correlation_id: str) -> None:
        """Carry out a command of the process manager."""
        with self._measured(type(command).__name__) as outcome:
            done = self._orders.handle(to.id, command, command_id=command_id, correlation_id=correlation_id)
            outcome("repeated" if done.repeated else "done")

    @contextmanager
    def _measured(self, command: str) -> Iterator[Callable[[str], None]]:
        outcomes = ["failed"]
        with self._meters.seconds.labels(command).time():
            try:
                yield outcomes.append
            except RuleBroken:
                outcomes.append("refused")
                raise
            except VersionConflict:
                outcomes.append("conflict")
                raise
            finally:
                self._meters.commands.labels(command, outcomes[-1]).inc()

    def _is_visible(self, aggregate: AggregateID, version: int, wait: timedelta) -> bool:
        began = self._clock.monotonic()
        if wait < self._settings.lag:
            wait = timedelta()  # no reader gets there in time, so a look is enough
        try:
            self._projector.wait_for(aggregate, version, wait, stop=self._stop)
        except (TimeoutError, rscylla.Stopped):
            self._meters.late.inc()
            return False
        self._meters.visible.observe(self._clock.monotonic() - began)
        return True

    def payment_due_at(self) -> datetime:
        """Return until when an order that is confirmed now has to be paid."""
        return datetime.fromtimestamp(self._clock.now_us() / 1e6, UTC) + self._settings.pay_within

    def forget(self, customer_id: str) -> None:
        """Make the personal data of a customer unreadable, for good. Other processes forget it within minutes."""
        self._keys.forget(customer_id)

    # ------------------------------------------------------------ queries

    def views(self) -> OrderTables:
        """Return the read model that queries use now."""
        build = self._projector.active()
        self._meters.build.set(build)
        if not build:
            raise Problem(503, "building", "The read model is being built", "ask again soon", retry_after_s=2)
        return self._projection.tables(build)

    def events_of_order(self, order_id: str) -> Sequence[EventRecord]:
        """Return the stream of an order."""
        return list(self.store.read(AggregateID(orders.NAME, order_id)))

    def tracking_number(self, order_id: str) -> str:
        """Return the tracking number of an order, made of its events: no read model has it. "" if there is none."""
        order: orders.Order = self._orders.load(order_id).state
        return order.tracking_number

    def customer(self, customer_id: str) -> tuple[int, customers.Customer]:
        """Return the version and the state of a customer.

        Raises:
            RuleBroken: there is none.
        """
        found = self._customers.load(customer_id)
        if found.state.status is None:
            raise RuleBroken("not_found", "there is no such customer")
        return found.version, found.state

    # ------------------------------------------------------------ operations

    def operations(self) -> dict[str, Any]:
        """Return what the page shows of this process and its group."""
        facts = self.service.facts()
        consumers = defaultdict(list)
        for lane in facts.lanes:
            consumers[lane.part_of].append(lane)
        group = facts.group
        builds = self._projector.find_builds()
        shown = [_consumer(name, lanes) for name, lanes in sorted(consumers.items())]
        failed = [{"check": one["consumer"], "why": one["trouble"]} for one in shown if one["trouble"]]
        if facts.failure:
            failed.insert(0, {"check": "service", "why": facts.failure})
        return {
            "failed": failed,
            "consumers": shown,
            "broker": self._publisher.trouble(),
            "breakers": [{"name": self.breaker.name, "state": self.breaker.state}],
            "read_model": {"active": builds.active, "building": builds.building},
            "group": None
            if group is None
            else {
                "name": group.name,
                "member": group.owner,
                "members": 0 if group.view is None else len(group.view.members),
                "slices": self._settings.slices if group.view is None else group.view.count,
                "held": len(group.held),
            },
            "letters": [
                {
                    "consumer": letter.consumer,
                    "event_id": letter.event.id,
                    "key": str(aggregate_of(letter.event)) if letter.event.change else letter.event.foreign_id,
                    "failed_at": letter.failed_at,
                    "attempts": letter.attempts,
                    "error": letter.error.rpartition(".")[2],
                }
                for letter in islice(self.letters.list_letters(), LETTERS_SHOWN)
            ],
        }

    def replay(self, consumer: str) -> tuple[int, int]:
        """Handle the dead letters of *consumer* again, in order; return how many it handled, and how many not."""
        handle = self._replays.get(consumer)
        if handle is None:
            raise Problem(404, "not-found", "Not found", "there is no such consumer")
        return rscylla.replay_letters(self.letters, consumer, handle, key=_key, reason="replayed on the page")

    def _replayed_by(self, make: Callable[[str], rscylla.abc.Consumer]) -> Callable[[rscylla.Event], None]:
        def handle(event: rscylla.Event) -> None:
            make("replay").consume(event, rscylla.Run("replay"))

        return handle

    def _republish(self, event: rscylla.Event) -> None:
        settled = threading.Event()
        errors: list[Exception | None] = []

        def done(error: Exception | None) -> None:
            errors.append(error)
            settled.set()

        self._publisher.publish(self._messages(event), done)
        if not settled.wait(10.0):
            raise TimeoutError("the broker has not acknowledged the record yet; it stays a dead letter")
        if errors[0] is not None:
            raise errors[0]

    def rebuild(self) -> int:
        """Have the read model made again; return the number of the build."""
        try:
            return self._projector.rebuild()
        except rscylla.ConfigError as error:
            raise Problem(409, "busy", "The last build is not dropped yet", str(error), retry_after_s=60) from error


def _key(event: rscylla.Event) -> object:
    return aggregate_of(event) if event.change is not None else event.foreign_id


def _is_of_an_order(event: rscylla.Event) -> bool:
    return bool(event.key.get("aggregate_type") == orders.NAME)


def _consumer(name: str, lanes: Sequence[Any]) -> dict[str, Any]:
    """Return what all lanes of a consumer show together."""
    states: dict[str, int] = defaultdict(int)
    for lane in lanes:
        states[lane.state] += 1
    lags = [lane.watermark_lag_s for lane in lanes if lane.watermark_lag_s is not None]
    # The text of an error may hold values; its class does not.
    trouble = next((f"waits: {lane.pause}" for lane in lanes if lane.pause), "")
    trouble = trouble or next((f"{lane.state}: {lane.why}" for lane in lanes if lane.why), "")
    return {
        "consumer": name,
        "states": dict(states),
        "lag_s": max(lags, default=None),
        "events": sum(lane.events for lane in lanes),
        "trouble": trouble,
    }


def _answer(done: Handled[Any, Any], asked: Asked, visible: bool) -> CommandDone:
    return CommandDone(
        id=done.aggregate.id,
        version=done.version,
        events=[envelope.type for envelope in done.events],
        command_id=asked.command_id,
        visible=visible,
    )
