"""``KafkaPublisher``: records go to Kafka, by the idempotent producer of librdkafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from ...abc import Message, PublishDone
from ...clock import Stop, SystemClock
from ...errors import ConfigError, PublishFailed, PublishRejected, RscyllaError
from .answers import NEVER, UNSURE, Answer, Tally
from .topics import NO_TOPIC, is_topic

__all__ = ["DEFAULTS", "KafkaPublisher"]

log = logging.getLogger("rscylla.kafka")
# librdkafka warns at each start that this is an experiment; our tests on a broker show that it works.
log.addFilter(lambda record: "enable.gapless.guarantee is experimental" not in record.getMessage())

DEFAULTS: Final[dict[str, Any]] = {
    "client.id": "rscylla",
    "enable.idempotence": True,
    # After a refused request, librdkafka sends nothing that would come after its records.
    "enable.gapless.guarantee": True,
    # As Connect: with more, the second request of a producer that is new to a partition may be taken before the first.
    "max.in.flight.requests.per.connection": 1,
    # A broker that is down is waited for: a record that timed out would be overtaken by the next one of its key.
    "message.timeout.ms": 0,
    # As the Java producer, whose limit of a record this is. librdkafka's own is 1,000,000.
    "message.max.bytes": 1_048_576,
    # As the Java producer, so that keys stay in the partitions in which the connector put them.
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    # Consumers bound what is on its way; this is the bound of all of them together.
    "queue.buffering.max.messages": 1_000_000,
}
"""What librdkafka is told unless the user says otherwise."""

IDLE_S: Final = 1.0
BUSY_S: Final = 0.02
"""How often a thread looks for acknowledgements, while none and while some are missing. Those who publish look, too."""

ASK_S: Final = 1.0
"""How long the thread waits for brokers that did not answer before, while no record does."""

APART_S: Final = 60.0
"""For at least so long after a refusal, each record is in a request of its own, so that the broker judges it alone."""

APART: Final[dict[str, Any]] = {"batch.num.messages": 1, "linger.ms": 0, "enable.gapless.guarantee": False}
"""What librdkafka is told meanwhile. A lane waits for each of its records, so a refusal leaves no gap."""

GONE: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    )
)
"""Errors of a record whose topic was deleted, or has fewer partitions than before."""

DOWN: Final = frozenset((KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE))  # noqa: SLF001
REFUSED: Final = frozenset((KafkaError._AUTHENTICATION, KafkaError._SSL))  # noqa: SLF001


class KafkaPublisher:
    """Publishes to Kafka; a ``Publisher``. Thread-safe: lanes share it, with its connections and memory.

    A record is acknowledged when the broker says so, with *acks* of its configuration: all replicas in sync, unless
    told otherwise. The producer is idempotent, so its own retries neither repeat nor reorder records. It waits for
    brokers that are down without end, and consumers wait with it (``trouble`` says why).

    A broker refuses whole requests. Then all records that wait fail, since later ones of a key must not overtake those
    refused; their lanes publish them again, each in a request of its own, and wait for each. What is refused alone can
    never be published, and nothing of its lane comes after it.

    Args:
        config: By the names of librdkafka, at least ``bootstrap.servers``; it replaces ``DEFAULTS``.
        prepare: Called with the name of each topic before its first record, to create it, and again if it is deleted.

    Raises:
        ConfigError: librdkafka refuses the configuration.
    """

    def __init__(self, config: Mapping[str, Any], *, prepare: Callable[[str], None] | None = None) -> None:
        self._config = {**DEFAULTS, **config}
        self.is_idempotent = str(self._config["enable.idempotence"]).lower() != "false"
        if not self.is_idempotent:
            self._config.pop("enable.gapless.guarantee", None)
        if not self._config.get("bootstrap.servers") and "test.mock.num.brokers" not in self._config:
            raise ConfigError("bootstrap.servers is missing; it is where Kafka is, such as localhost:9092")
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._lock = threading.Lock()  # of the fields
        self._serving = threading.Lock()  # so that callbacks come one at a time
        self._trouble = ""
        self._fatal: tuple[KafkaError, Producer] | None = None
        self._refusal: KafkaError | None = None
        self._apart_until: float | None = None  # while each record is in a request of its own
        self._clock = SystemClock()
        self._calls = 0  # of publish, now
        self._abandoned = 0
        self._server = 0  # the thread that runs callbacks
        self._served: Producer | None = None  # whose they are
        self._closed = False
        self._producer = self._first()
        self._old: list[Producer] = []  # those that ended, until all of their records are settled
        self._ended, self._wanted = Stop(), Stop()
        self._thread = threading.Thread(target=self._look, name="rscylla-kafka", daemon=True)
        self._thread.start()

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        """Pass *messages* to librdkafka; see ``Publisher``. Waits while its queue is full."""
        if not messages:
            done(None)
            return
        self._ready()
        refused = self._first_refused(messages)
        if refused is None or refused[0]:
            self._pass_on(messages if refused is None else messages[: refused[0]], done)
        if refused is not None:
            index, why = refused
            raise PublishRejected(why, index=index)

    def _pass_on(self, messages: Sequence[Message], done: PublishDone) -> None:
        with self._lock:
            producer, is_apart, abandoned = self._producer, self._apart_until is not None, self._abandoned
            self._calls += 1
        try:
            if is_apart and self._server != threading.get_ident():
                self._produce_apart(producer, messages, done, abandoned)
            else:
                self._produce(producer, messages, Tally(self, producer, len(messages), done), abandoned)
        finally:
            with self._lock:
                self._calls -= 1
        if producer is not self._producer:  # it ended meanwhile, perhaps before it was given all of them
            producer.purge()
            self._old.append(producer)
        if not self._wanted.is_set():
            self._wanted.set()
        self._serve(producer, 0)

    def _produce(self, producer: Producer, messages: Sequence[Message], tally: Tally | Answer, abandoned: int) -> None:
        produce = producer.produce
        for index, (topic, key, value, headers, partition) in enumerate(messages):
            while True:
                try:
                    if not headers and partition is None:
                        produce(topic, value, key, on_delivery=tally)
                    else:
                        at = -1 if partition is None else partition
                        produce(topic, value, key, at, on_delivery=tally, headers=[*headers])
                    break
                except BufferError:
                    # A callback cannot wait for other callbacks, and after ``abandon`` nobody wants the rest.
                    if self._server == threading.get_ident() or self._abandoned != abandoned:
                        tally.ends_at(index)
                        raise PublishFailed("the queue of the Kafka producer is full") from None
                    self._serve(producer, BUSY_S)
                except KafkaException as error:
                    tally.ends_at(index)
                    raise self._refused(error, producer, index) from error

    def _produce_apart(
        self, producer: Producer, messages: Sequence[Message], done: PublishDone, abandoned: int
    ) -> None:
        """Publish record after record: none is passed on before the answer to the one before it."""
        for index, message in enumerate(messages):
            answer = Answer(self)
            try:
                self._produce(producer, (message,), answer, abandoned)
                while not answer.is_there:
                    self._serve(producer, BUSY_S)
                if answer.error is not None:
                    self._judged(answer.error, message)
                    found = KafkaException(answer.error)
                    raise self._refused(found, producer, index) from found
            except PublishFailed as error:
                if isinstance(error, PublishRejected):
                    error.index = index
                if index:
                    done(None)
                raise
        self.delivered()
        done(None)

    def flush(self, timeout_s: float) -> bool:
        """Wait until librdkafka has an answer for each record."""
        deadline = self._clock.monotonic() + timeout_s
        while waiting := [producer for producer in (*self._old, self._producer) if len(producer)]:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._serve(waiting[0], min(left, BUSY_S), wait=True)
        return True

    def abandon(self) -> None:
        """Drop what librdkafka has. Requests that are with a broker may still be carried out."""
        with self._lock:
            self._abandoned += 1
            producer = self._producer
        producer.purge()
        self._serve(producer, 0, wait=True)
        self.flush(1.0)

    def trouble(self) -> str:
        """Return why records wait, as librdkafka says it."""
        return self._trouble

    def close(self) -> None:
        """Stop the thread, and drop what is not settled. Safe to repeat."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._ended.set()
        self._wanted.set()
        self._thread.join()
        self.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ of callbacks

    def delivered(self) -> None:
        """Note that a broker answered."""
        if self._trouble:
            log.info("Kafka answers again")
            self._trouble = ""

    def failed(self, error: KafkaError, producer: Producer) -> RscyllaError:
        """Return the error of a record that *producer* did not deliver."""
        if error.code() in GONE:
            self._prepared.clear()
        if error.code() == UNSURE and producer is self._producer:
            self._fatal = error, producer  # what waits must not come before it
        return PublishFailed(f"Kafka did not take a record: {error.str()}")

    def refused(self, error: KafkaError, producer: Producer) -> RscyllaError:
        """Return the error of a record that was in a refused request; from now on, each has a request of its own."""
        self._refusal = error
        return PublishFailed(f"Kafka refused a request: {error.str()}; its records are sent one by one")

    # ------------------------------------------------------------ of the producer

    def _first(self) -> Any:
        return self._connect(self._config)

    def _connect(self, config: Mapping[str, Any]) -> Producer:
        try:
            return Producer({**config, "error_cb": self._erred}, logger=log)
        except (KafkaException, TypeError, ValueError) as error:
            found = error.args[0] if error.args else error
            why = found.str() if isinstance(found, KafkaError) else str(found)
            raise ConfigError(f"librdkafka refuses the configuration: {why}") from error

    def _erred(self, error: KafkaError) -> None:
        """Note what librdkafka reports outside of records."""
        is_fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001
        producer = self._producer
        if is_fatal and self._served in (None, producer):  # one that ended has been replaced
            self._fatal = error, producer
        known = error.code() in DOWN or error.code() in REFUSED
        if known and (not self._trouble or error.code() == KafkaError._ALL_BROKERS_DOWN):  # noqa: SLF001
            self._trouble = f"Kafka does not answer: {error.str()}"
        log.log(logging.WARNING if known else logging.INFO, "Kafka: %s", error.str())

    def _ready(self) -> None:
        """Begin another producer if the last one ended."""
        if self._closed:
            raise ConfigError("this publisher is closed; create another one")
        self._renew()

    def _first_refused(self, messages: Sequence[Message]) -> tuple[int, str] | None:
        """Prepare topics; return the first record whose topic Kafka forbids, and why, or None."""
        if {message.topic for message in messages} <= self._prepared:
            return None
        for index, message in enumerate(messages):
            if message.topic in self._prepared:
                continue
            if not is_topic(message.topic):  # the name may be a value of a row, so it is not told
                return index, NO_TOPIC
            try:
                if self._prepare is not None:
                    self._prepare(message.topic)
            except PublishRejected as error:
                return index, str(error)
            self._prepared.add(message.topic)
        return None

    def _renew(self) -> None:
        """Begin another producer if a fatal error or a refused request ended this one."""
        if self._fatal is None and self._refusal is None:
            return
        with self._lock:
            ended, fatal, refusal = self._producer, self._fatal, self._refusal
            if fatal is None and refusal is None:
                return
            if fatal is not None and refusal is None:
                log.warning("the Kafka producer ended with %s; another one begins", fatal[0].str())
            if refusal is not None:
                log.warning(
                    "Kafka refused a request with %s; records are sent one by one, until none was refused for %g s. If "
                    "the topic takes less than a request may have, lower producer.override.batch.size",
                    refusal.str(),
                    APART_S,
                )
                self._apart_until = self._apart_end()
            self._fatal = self._refusal = None
            self._producer = self._connect(self._config_now)
            self._old.append(ended)
        ended.purge()  # its records would wait for ever, or overtake; now they fail, and are published again

    def _rejoin(self) -> None:
        """Send records together again, if none was refused for long. Only while none waits, so that none overtakes."""
        with self._lock:
            until = self._apart_until
            if until is None or self._calls or len(self._producer) or self._clock.monotonic() < until:
                return
            self._apart_until = None
            self._producer = self._connect(self._config_now)

    @property
    def _config_now(self) -> dict[str, Any]:
        return self._config if self._apart_until is None else {**self._config, **APART}

    def _judged(self, error: KafkaError, message: Message) -> None:
        """Note that *message* failed alone: if it was refused, records go together again only much later."""
        if error.code() in NEVER:
            self._apart_until = self._apart_end()

    def _apart_end(self) -> float:
        return self._clock.monotonic() + APART_S

    def _refused(self, error: KafkaException, producer: Producer, index: int) -> RscyllaError:
        """Return the error of a record that librdkafka does not take."""
        found = error.args[0]
        if found.code() in NEVER or found.code() == KafkaError._INVALID_ARG:  # noqa: SLF001
            return PublishRejected(f"a record can never be sent: {found.str()}", index=index)
        return self.failed(found, producer)

    def _serve(self, producer: Producer, timeout_s: float, *, wait: bool = False) -> None:
        """Run the callbacks that are due, or leave that to the thread that runs them now."""
        if self._server == threading.get_ident():
            return
        if self._serving.acquire(blocking=wait or timeout_s > 0):
            self._server, self._served = threading.get_ident(), producer
            try:
                producer.poll(timeout_s)
            except KafkaException as error:  # how it tells of a fatal error
                if producer is self._producer:
                    self._fatal = error.args[0], producer
            finally:
                self._server, self._served = 0, None
                self._serving.release()

    def _look(self) -> None:
        """Look for acknowledgements while nobody publishes.

        Not in a poll that blocks: for each callback, its thread would wait for the interpreter, which a thread that
        computes passes on only every few milliseconds. Those who publish run the callbacks in their own thread.
        """
        while not self._ended.is_set():
            try:
                self._tend()
            except RscyllaError as error:
                log.warning("%s", error)
            except Exception:  # the thread must go on: without it, nobody learns of acknowledgements
                log.exception("the producer cannot be looked after")
                unknown = KafkaError(KafkaError._FAIL, "an unexpected error, which is logged")  # noqa: SLF001
                self.failed(unknown, self._producer)
            if len(self._producer) or self._old:
                self._ended.wait(BUSY_S)
                continue
            self._wanted = wanted = Stop()
            left = self._due()
            if left > 0 and not len(self._producer) and not self._ended.is_set():
                wanted.wait(min(left, IDLE_S))

    def _tend(self) -> None:
        self._renew()
        self._rejoin()
        self._serve(self._producer, 0)
        self._ask()
        self._drop_old()

    def _due(self) -> float:
        """Return in how many seconds there is something to do at the latest."""
        return IDLE_S

    def _ask(self) -> None:
        """Look whether brokers that did not answer do so now. If records wait, the answer to these will tell."""
        if self._trouble and not len(self._producer):
            with suppress(KafkaException):
                self._producer.list_topics(timeout=ASK_S)
                self.delivered()

    def _drop_old(self) -> None:
        """Run the callbacks of producers that ended, and let go of those that have no more."""
        for ended in [*self._old]:
            self._serve(ended, 0)
            if not len(ended):
                self._old.remove(ended)
