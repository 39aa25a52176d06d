"""A connector that runs in a thread of the test, and what it has published."""

from __future__ import annotations

import threading

from mockkafka import MockKafka
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore, ScyllaCursorStore
from rscylla.clock import Stop
from rscylla.kafka import Connector, Properties

__all__ = ["LONG_S", "Running"]

LONG_S = 60.0


class Running:
    """A connector in a thread, of the tables of the keyspace ``shop`` unless told otherwise."""

    def __init__(
        self, session: rscylla.Session, kafka: MockKafka, *, in_memory: bool = True, **properties: str
    ) -> None:
        given = {
            "topic.prefix": "demo",
            "scylla.cluster.ip.addresses": "127.0.0.1:9042",
            "scylla.table.names": "shop.*",
            "bootstrap.servers": kafka.servers,
            "scylla.confidence.window.size": "50",
            "worker.max.retries": "0",
            "heartbeat.interval.ms": "0",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }
        self.kafka, self.session = kafka, session
        self.store, self.stop, self.metrics = MemoryCursorStore(), Stop(), CollectorRegistry()
        self.connector = Connector(
            Properties.of(given | {name.replace("_", "."): value for name, value in properties.items()}),
            session,
            store_of=(lambda keyspace: self.store) if in_memory else None,
            registry=self.metrics,
        )
        self.code: int | None = None
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.code = self.connector.run(self.stop)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()

    def insert(self, table: str, *ids: int, keyspace: str = "shop") -> None:
        for number in ids:
            self.session.execute(f"INSERT INTO {keyspace}.{table} (id, v) VALUES ({number}, 1)")

    def records(self, table: str, *, keyspace: str = "shop") -> int:
        return len(self.kafka.read(f"demo.{keyspace}.{table}"))

    def lanes(self) -> set[str]:
        """Return the consumers that read now."""
        service = self.connector.service
        lanes = () if service is None else service.facts().lanes
        return {lane.consumer for lane in lanes if lane.state == "streaming"}

    def cursor(self, consumer: str, keyspace: str) -> str:
        """Return the cursor that ScyllaDB has."""
        try:
            return ScyllaCursorStore(self.session, keyspace).get_cursor(consumer)
        except rscylla.TableNotFound:
            return ""

    def not_ready(self) -> str:
        """Return why the service is not ready, "" if it is."""
        service = self.connector.service
        checks = [] if service is None else service.ready()["checks"]
        return "; ".join(check["why"] for check in checks if not check["ok"])

    def count(self, what: str, table: str = "a") -> float | None:
        return self.metrics.get_sample_value(what, {"consumer_name": f"demo.shop.{table}"})
