"""``TransactionalPublisher``: records, and the cursors behind them, become visible together: in transactions of Kafka.

A session is the time from ``begin`` to the first failure. ``begin`` ends the sessions of all others with the same
transactional id, so it fences a predecessor that still runs, and aborts what that left open. Within a session, one
transaction follows the other. A transaction is committed whole or not at all:

    - no commit comes between the records of one event: who publishes them is inside of a ``Participant``;
    - a commit waits until all records are acknowledged and all cursors that follow from that are saved, so the cursors
      that it writes are right after its records;
    - whatever fails ends the session, and what was not committed is aborted. Runs begin again at the committed cursors;
    - no request to end a transaction hits the next one: if it may have been sent more than once, another producer
      begins, by which Kafka refuses what is still on its way, before anything else is published.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from ...abc import Message, PublishDone
from ...clock import Stop
from ...errors import ConfigError, LeaseLost, PublishFailed, RscyllaError, Stopped
from .answers import NEVER, Tally, ended_by
from .parties import Gate, NoProducer, Party
from .publisher import BUSY_S, IDLE_S, KafkaPublisher

__all__ = ["TransactionalPublisher"]

log = logging.getLogger("rscylla.kafka")

TIMEOUT_MS: Final = 10_000
"""After so long without a commit, Kafka aborts a transaction; until then, it hides what comes after its records."""

MOST_TIMEOUT_MS: Final = 900_000
"""``transaction.max.timeout.ms`` of brokers, unless it is set there."""

MOST_RECORDS: Final = 50_000
MOST_BYTES: Final = 64 << 20
"""A transaction is committed before its time when it has so much."""

PROGRESS_S: Final = 30.0
"""How often cursors are committed that moved without records."""

RETRY_MS: Final = 500
"""``retry.backoff.ms`` of the producer. librdkafka sends a request again after four fifths of it, at the earliest, so a
commit that took less time was sent once."""

ANSWER_S: Final = 30.0
"""How long a call waits for Kafka before the run fails, and is tried again later."""

ABORT_S: Final = 5.0
IDLE_SESSION_S: Final = 5.0
"""A session that nobody uses for so long ends, and its connections with it. What takes long uses it until its end."""

REFUSED_KEPT: Final = 1000

Cursors = Callable[[], Sequence[Message]]
"""Returns the records of the cursors that moved since the last commit."""


class TransactionalPublisher(KafkaPublisher):
    """Publishes to Kafka in transactions; a ``Publisher`` that runs join. Thread-safe, and meant for one lane.

    A record counts as acknowledged when it is in the transaction. It becomes visible to consumers in read_committed
    with the commit, every *interval* and when much is in it, and so do the cursors that *cursors* returns then.

    Args:
        config: As for ``KafkaPublisher``. ``transaction.timeout.ms`` is 10,000, or twice *interval*, unless given.
        transactional_id: Who begins with the same one ends this publisher's session.
        interval: How long a transaction stays open, at most.
        cursors: Returns what to write right before a commit; None: nothing.
        committed: Called with that after the commit.
        doubted: Called after a commit that may have been sent more than once: calls ``begin_again``, and returns
            whether the cursors in Kafka are as they were committed; if not, the session ends.
        prepare: As for ``KafkaPublisher``.

    Raises:
        ConfigError: librdkafka refuses the configuration, or Kafka would abort transactions before *interval* is over.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        transactional_id: str,
        *,
        interval: timedelta = timedelta(seconds=1),
        cursors: Cursors | None = None,
        committed: Callable[[Sequence[Message]], None] | None = None,
        doubted: Callable[[], bool] | None = None,
        prepare: Callable[[str], None] | None = None,
    ) -> None:
        given = dict(config)
        for name in ("message.timeout.ms", "delivery.timeout.ms"):  # a transaction does not last longer
            given.pop(name, None)
        interval_ms = int(interval.total_seconds() * 1000)
        timeout = given.setdefault("transaction.timeout.ms", min(max(TIMEOUT_MS, 2 * interval_ms), MOST_TIMEOUT_MS))
        if str(timeout).isdigit() and int(timeout) <= interval_ms:
            raise ConfigError(
                f"transactions stay open for {interval_ms} ms (transaction.boundary.interval.ms), but Kafka aborts "
                f"them after {timeout} ms (transaction.timeout.ms); make the first shorter"
            )
        given |= {"message.timeout.ms": timeout, "transactional.id": transactional_id}
        given.setdefault("enable.gapless.guarantee", False)  # nobody sees a part of a failed transaction
        retry_ms = given.setdefault("retry.backoff.ms", RETRY_MS)
        self._id = transactional_id
        self._interval_s = interval.total_seconds()
        self._cursors, self._committed, self._doubted = cursors, committed, doubted
        self._gate = Gate(lambda: self._serve(self._producer, 0))
        self._state = self._gate.changed  # guards what is below
        self._commits = threading.RLock()  # who holds it ends or begins transactions and sessions
        self._serial = threading.Lock()
        self._parties: list[Party] = []
        self._session = 0
        self._is_alive = False
        self._lost: tuple[type[RscyllaError], str] | None = None
        self._is_told = True
        self._is_open = False
        self._since = 0.0  # when the transaction began
        self._moved: float | None = None  # when a cursor moved that is not committed
        self._records = self._bytes = 0
        self._used = 0.0
        self._known: dict[tuple[Any, ...], str] = {}  # what the broker refused
        # After so long, at least, librdkafka sends a request again; 0 if that is not known.
        self._once_s = min(0.8 * _number(retry_ms), _number(given.get("retry.backoff.max.ms", 1000))) / 1000
        super().__init__(given, prepare=prepare)

    # ------------------------------------------------------------ as a publisher

    def join(self, settle: Callable[[], bool]) -> Party:
        """Return what a run publishes in; see ``rscylla.abc.JointPublisher``."""
        party = Party(self, settle)
        with self._state:
            self._parties.append(party)
        return party

    def publish(self, messages: Sequence[Message], done: PublishDone) -> None:
        """Pass *messages* to librdkafka, in the transaction that is open, or in a new one."""
        if self._server == threading.get_ident():  # a callback: the commit waits for it
            super().publish(messages, done)
            return
        self.enter()
        try:
            super().publish(messages, done)
        finally:
            self._gate.__exit__()

    def enter(self) -> None:
        """Come inside of the gate, where there is a session, which may have failed.

        It begins before: who begins one waits for a commit of another thread, and that for all who are inside.
        """
        while True:
            is_inside = self._gate.has_me
            if not is_inside and not self._has_session:
                with self._commits:
                    if not self._has_session:
                        self.begin()
            self._gate.__enter__()
            if is_inside or self._has_session:
                return
            self._gate.__exit__()  # it has ended meanwhile, since nobody used it

    def _pass_on(self, messages: Sequence[Message], done: PublishDone) -> None:
        self._open()  # after topics were created, which may take longer than a transaction
        super()._pass_on(messages, done)
        self._records += len(messages)
        self._bytes += sum(len(m.key or b"") + len(m.value or b"") for m in messages)

    def _first_refused(self, messages: Sequence[Message]) -> tuple[int, str] | None:
        found = super()._first_refused(messages)
        for index, message in enumerate(messages[: None if found is None else found[0]] if self._known else ()):
            if (why := self._known.get(message[:3])) is not None:
                return index, f"a record can never be sent: {why}"
        return found

    def flush(self, timeout_s: float) -> bool:
        """Commit what was published, at most *timeout_s* seconds; return whether it is committed.

        Raises:
            LeaseLost, PublishFailed: it is not, and will not be.
        """
        try:
            self.commit(timeout_s)
        except PublishFailed:
            if self._lost is None:
                return False
            raise
        return True

    def abandon(self) -> None:
        """Abort the transaction: nothing of it comes later."""
        self.spoil(PublishFailed("the transaction was abandoned"))
        with self._lock:
            self._abandoned += 1
        self._producer.purge()
        self._abort()

    def close(self) -> None:
        """Abort what is not committed, and stop the thread. Safe to repeat."""
        super().close()
        self._abort()
        with self._commits:
            self._is_alive = False
            self._producer = NoProducer()
            self._old.clear()

    # ------------------------------------------------------------ sessions

    @property
    def session(self) -> int:
        """The number of the session; 0 if there is none that works."""
        return self._session if self._is_alive and self._lost is None else 0

    def begin(self, stop: Stop | None = None) -> int:
        """Begin a session, and return its number. It fences who has the transactional id, and aborts what that left.

        Raises:
            PublishFailed: Kafka does not answer within half a minute, or does not allow it.
            Stopped: *stop* was set.
        """
        if self._closed:
            raise ConfigError("this publisher is closed; create another one")
        with self._commits:
            with self._lock:
                self._abandoned += 1
            self._producer.purge()
            with self._gate.shut():
                self._is_alive = False
                self.begin_again(stop)
                with self._state:
                    self._session += 1
                    self._moved = None
                    self._is_alive, self._lost, self._is_told = True, None, True
                self._clear()
                self._used = self._clock.monotonic()
                self._wanted.set()
                return self._session

    def begin_again(self, stop: Stop | None = None) -> None:
        """Begin by another producer, while nobody publishes. What the one before has sent is refused from then on.

        Raises:
            PublishFailed, Stopped: as ``begin``.
        """
        new = self._connect(self._config)
        self._init(new, stop)
        with self._state:
            old, self._producer = self._producer, new
        if not isinstance(old, NoProducer):
            self._old.append(old)

    def _init(self, producer: Producer, stop: Stop | None) -> None:
        deadline = self._clock.monotonic() + ANSWER_S
        while True:
            if stop is not None:
                stop.check()
            try:
                producer.init_transactions(1.0)
            except KafkaException as error:
                found = error.args[0]
                if found.retriable() and not found.fatal() and self._clock.monotonic() < deadline:
                    continue
                raise PublishFailed(f"no transaction can begin as {self._id!r}: {found.str()}") from error
            return

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let no session end meanwhile because nobody takes part in it."""
        party = self.join(lambda: True)
        try:
            yield
        finally:
            party.leave()

    def moved(self) -> bool:
        """Note that a cursor is to be committed; return False if the session has ended."""
        with self._state:
            self._used = self._clock.monotonic()
            if self._moved is None:
                self._moved = self._clock.monotonic()
                self._wanted.set()
            return self.session != 0

    def spoil(self, error: RscyllaError, producer: Producer | None = None) -> RscyllaError:
        """End the session because of *error*, unless it has ended; return *error*. What is not committed is aborted.

        An error of a *producer* ends no other session than that which it was made for.
        """
        with self._state:
            if self._lost is None and self._is_alive and producer in (None, self._producer):
                self._lost, self._is_told = (type(error), str(error)), False
                self._wanted.set()
        return error

    def check(self) -> None:
        """Raise what ended the session, if it ended."""
        lost = self._lost
        if lost is not None:
            kind, why = lost
            raise (kind if kind in (LeaseLost, PublishFailed) else PublishFailed)(
                f"{why}; what was not committed is published again"
            )

    # ------------------------------------------------------------ transactions

    def commit(self, timeout_s: float = ANSWER_S) -> None:
        """Commit the records and the cursors behind them, if there are any. Blocks.

        Raises:
            LeaseLost: the session was fenced. Told once, until the next session begins.
            PublishFailed: it failed, and what was not committed is aborted; or *timeout_s* is over, and it goes on.
        """
        try:
            self._commit(timeout_s)
        except RscyllaError:
            self._is_told = self._is_told or self._lost is not None
            raise

    def _commit(self, timeout_s: float = ANSWER_S) -> None:
        deadline = self._clock.monotonic() + timeout_s
        with self._commits, self._gate.shut():
            if self._lost is not None:
                if not self._is_told:
                    self.check()
                return
            if not self._is_alive:
                return
            self._settle(deadline)
            if not all(party.settle() for party in [*self._parties]):
                self.spoil(PublishFailed("a cursor was not saved"))
            self.check()
            self._moved = None  # a cursor that moves from here on may be in the next commit only
            cursors = self._cursors() if self._cursors is not None else ()
            if not cursors and not self._is_open:
                return
            for message in cursors:
                self._open()
                tally = Tally(self, self._producer, 1, lambda error: None)  # an error has ended the session by then
                self._produce(self._producer, (message,), tally, self._abandoned)
            self._settle(deadline)
            self.check()
            since = self._clock.monotonic()
            self._end("commit", deadline)
            in_doubt = self._clock.monotonic() - since >= self._once_s
            self._clear()
            self._used = self._clock.monotonic()
            if self._committed is not None:
                self._committed(cursors)
            if in_doubt:
                self._settle_doubt()

    def _settle_doubt(self) -> None:
        """Let nothing that is still on its way end the next transaction."""
        log.info("the end of a transaction as %r may have been sent more than once; another producer begins", self._id)
        try:
            if self._doubted is None:
                self.begin_again()
            elif not self._doubted():
                raise LeaseLost(f"another process has published under the transactional id {self._id!r}")
        except Stopped:
            self.spoil(PublishFailed("the publisher stops"))
            self._is_told = True  # what was to be committed is
        except RscyllaError as error:
            raise self.spoil(error) from error

    def _end(self, what: str, deadline: float) -> None:
        """Commit or abort the transaction."""
        step = self._producer.commit_transaction if what == "commit" else self._producer.abort_transaction
        while True:
            try:
                with self._serving_here():
                    step(BUSY_S * 50)
            except KafkaException as error:
                found = error.args[0]
                if found.retriable() and not found.fatal() and self._clock.monotonic() < deadline:
                    continue
                raise self.spoil(self._said(found, f"the transaction cannot {what}")) from error
            return

    def _open(self) -> None:
        if self._is_open:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self.spoil(self._said(error.args[0], "no transaction can begin")) from error
        self._is_open, self._since = True, self._clock.monotonic()
        self._wanted.set()

    def _abort(self) -> None:
        """Abort the transaction of a session that ended, as far as Kafka answers; else Kafka does, after its time."""
        with self._commits:
            if not self._is_open or self._lost is None:
                return
            self._producer.purge()
            try:
                self._end("abort", self._clock.monotonic() + ABORT_S)
            except RscyllaError as error:
                log.info("%s", error)
            self._clear()

    def _clear(self) -> None:
        self._is_open = False
        self._records = self._bytes = 0

    def _settle(self, deadline: float) -> None:
        """Wait until there is an answer to each record, and their callbacks have returned."""
        while True:
            self._serve(self._producer, BUSY_S, wait=True)
            with self._serving_here():
                if not len(self._producer):
                    return
            if self._clock.monotonic() > deadline or self._ended.is_set():
                raise PublishFailed("Kafka did not acknowledge all records in time")

    # ------------------------------------------------------------ in place of KafkaPublisher's

    @contextmanager
    def _serving_here(self) -> Iterator[None]:
        """Run callbacks in this thread only."""
        with self._serving:
            self._server = threading.get_ident()
            try:
                yield
            finally:
                self._server = 0

    def _first(self) -> Any:
        self._connect({**self._config}).purge()  # librdkafka checks it
        return NoProducer()

    @property
    def _has_session(self) -> bool:
        return self._is_alive or self._lost is not None

    def _renew(self) -> None:
        self.check()
        if not self._is_alive:
            raise PublishFailed("the session has ended; what was not committed is published again")

    def _rejoin(self) -> None:
        until = self._apart_until
        if until is not None and self._clock.monotonic() >= until:
            self._apart_until = None

    def _produce_apart(
        self, producer: Producer, messages: Sequence[Message], done: PublishDone, abandoned: int
    ) -> None:
        with self._serial:
            super()._produce_apart(producer, messages, done, abandoned)

    def _judged(self, error: KafkaError, message: Message) -> None:
        super()._judged(error, message)
        if error.code() in NEVER:
            while len(self._known) >= REFUSED_KEPT:
                del self._known[next(iter(self._known))]
            self._known[message[:3]] = error.str()
            raise self.spoil(PublishFailed(f"Kafka refused a record: {error.str()}"))

    def failed(self, error: KafkaError, producer: Producer) -> RscyllaError:
        """End the session, and return the error of a record that was not delivered."""
        return self.spoil(self._said(error, "Kafka did not take a record"), producer)

    def refused(self, error: KafkaError, producer: Producer) -> RscyllaError:
        """End the session; in the next ones, records are sent one by one."""
        self._apart_until = self._apart_end()
        return self.spoil(super().failed(error, producer), producer)

    def _said(self, error: KafkaError, what: str) -> RscyllaError:
        return ended_by(error, what, self._id)

    def _serve(self, producer: Any, timeout_s: float, *, wait: bool = False) -> None:
        super()._serve(producer, timeout_s, wait=wait)
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            error, ended = fatal
            self.spoil(self._said(error, "the Kafka producer ended"), ended)

    def _tend(self) -> None:
        """Look for acknowledgements, and commit when it is time."""
        self._rejoin()
        self._serve(self._producer, 0)
        self._drop_old()
        if self._lost is not None:
            self._abort()
        elif self._due() <= 0:
            self._commit()
        elif self._is_alive and not self._parties and not self._is_open and self._moved is None:
            self._retire()

    def _due(self) -> float:
        """Return in how many seconds to commit."""
        if self._lost is not None:
            return 0.0 if self._is_open else IDLE_S
        now = self._clock.monotonic()
        if self._is_open:
            full = self._records >= MOST_RECORDS or self._bytes >= MOST_BYTES
            return 0.0 if full else self._since + self._interval_s - now
        if self._moved is not None:
            return self._moved + max(PROGRESS_S, self._interval_s) - now
        return IDLE_S

    def _retire(self) -> None:
        """End a session that nobody uses."""
        with self._commits, self._gate.shut(), self._state:
            idle = self._clock.monotonic() - self._used >= IDLE_SESSION_S
            if idle and not self._parties and not self._is_open and self._moved is None and self._is_alive:
                self._is_alive = False
                self._old.append(self._producer)
                self._producer = NoProducer()


def _number(setting: object) -> int:
    """Return *setting* as a number; 0 for the other ways to write one that librdkafka takes, such as ``0x64``."""
    text = str(setting)
    return int(text) if text.isdecimal() and not text.startswith("0") else 0
