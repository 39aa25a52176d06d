"""Heartbeats of a connector: records that say that it runs."""

from __future__ import annotations

import logging
import threading

from ..abc import Publisher
from ..clock import Clock, Stop
from ..publish import DebeziumMessages
from .config.properties import Properties

__all__ = ["Heartbeats"]

log = logging.getLogger("rscylla.kafka")


class Heartbeats:
    """Publishes a heartbeat every ``heartbeat.interval.ms``, while the ``with`` block runs."""

    def __init__(self, properties: Properties, publisher: Publisher, clock: Clock) -> None:
        self._interval_s = properties.number("heartbeat.interval.ms") / 1000
        self._publisher = publisher
        self._messages = DebeziumMessages(properties, clock=clock)
        self._ended = Stop()
        self._thread = threading.Thread(target=self._beat, name="rscylla-kafka-heartbeats", daemon=True)

    def __enter__(self) -> None:
        if self._interval_s:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(self._interval_s):
            if self._publisher.trouble():
                continue  # heartbeats that wait would all come at once
            try:
                self._publisher.publish(self._messages.heartbeat(), self._settled)
            except Exception as error:  # noqa: BLE001 - the thread must beat again, whatever a publisher of users raises
                log.warning("a heartbeat is not published: %s", error)

    @staticmethod
    def _settled(error: Exception | None) -> None:
        if error is not None:
            log.warning("a heartbeat is not published: %s", error)
