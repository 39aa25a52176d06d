"""What brokers answer to records: counted a call of ``publish``, or for a record that is published alone.

A partition takes any number for the first record of a producer that it does not know. So if the request before is
refused, since the partition is not ready yet, and two requests are on their way, then what it had is lost; and
librdkafka reports it as delivered, because later records are. Such a report has no offset, and counts as a failure.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from ...abc import PublishDone
from ...errors import LeaseLost, PublishFailed, RscyllaError

if TYPE_CHECKING:
    from .publisher import KafkaPublisher

__all__ = ["NEVER", "UNSURE", "Answer", "Tally", "ended_by"]

NEVER: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError._BAD_MSG,  # noqa: SLF001 - the names of librdkafka's own errors begin so
    )
)
"""Errors of a record that stay, however often it is sent. All others may pass: topics are created, rights granted."""

FENCED: Final = frozenset(
    (
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )
)
"""Errors of a session that another one ended, or that Kafka gave up."""

UNSURE: Final = KafkaError._INCONSISTENT  # noqa: SLF001
"""The error of a record that no broker acknowledged, while librdkafka says that it was delivered."""


def error_of(error: KafkaError | None, answer: Any) -> KafkaError | None:
    """Return the error of a record, from the report of a producer that is idempotent."""
    if error is not None or answer.offset() is not None:
        return error
    return KafkaError(UNSURE, f"partition {answer.partition()} has acknowledged a later record, and not this one")


def ended_by(error: KafkaError, what: str, transactional_id: str) -> RscyllaError:
    """Return the error of a session in which *what* failed."""
    if error.code() in FENCED:
        return LeaseLost(
            f"another process publishes under the transactional id {transactional_id!r}, or the transaction took "
            f"longer than transaction.timeout.ms: {error.str()}"
        )
    return PublishFailed(f"{what}: {error.str()}")


class Tally:
    """Counts the answers to the records of one call. Called for each record, by one thread at a time."""

    __slots__ = ("_done", "_error", "_error_of", "_expected", "_finished", "_lock", "_owner", "_producer", "_settled")

    def __init__(self, owner: KafkaPublisher, producer: Producer, expected: int, done: PublishDone) -> None:
        self._owner = owner
        self._producer = producer
        self._error_of = error_of if owner.is_idempotent else _told
        self._done = done
        self._expected = expected
        self._settled = 0
        self._error: Exception | None = None
        self._finished = False
        self._lock = threading.Lock()

    def __call__(self, error: KafkaError | None, answer: Any) -> None:
        found = self._error_of(error, answer)
        if found is not None:
            self._note(found)
        self._settled += 1
        if self._settled >= self._expected:
            self._finish()

    def ends_at(self, index: int) -> None:
        """Expect answers for the first *index* records only; the others were not taken."""
        self._expected = index
        if index and self._settled >= index:
            self._finish()

    def _note(self, error: KafkaError) -> None:
        told = self._owner.refused if error.code() in NEVER else self._owner.failed
        failed = told(error, self._producer)
        failed.__cause__ = KafkaException(error)
        self._error = self._error or failed

    def _finish(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._finished = True
        if self._error is None:
            self._owner.delivered()
        self._done(self._error)


class Answer:
    """The answer to a record that is published alone."""

    __slots__ = ("_error_of", "error", "is_there")

    def __init__(self, owner: KafkaPublisher) -> None:
        self._error_of = error_of if owner.is_idempotent else _told
        self.is_there = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, answer: Any) -> None:
        self.error, self.is_there = self._error_of(error, answer), True

    def ends_at(self, index: int) -> None:
        """Expect nothing: the record was not taken."""


def _told(error: KafkaError | None, answer: Any) -> KafkaError | None:
    return error  # without acknowledgements, there are no offsets
