"""A thread that writes the orders of a test, for tests that kill who reads them."""

from __future__ import annotations

import threading

import rscylla
from rscylla.embedded import EmbeddedScylla

__all__ = ["OrderWriter"]


class OrderWriter(threading.Thread):
    """Creates the table shop.orders, and writes numbered changes of *keys* orders, *pause_s* apart, until ``end``."""

    def __init__(self, scylla: EmbeddedScylla, *, keys: int, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.written = 0
        self._keys = keys
        self._pause_s = pause_s
        self._session = scylla.connect()
        # Stamped where they are written: then no row is late, however slow the machine is.
        self._session.use_client_timestamp = False
        self._session.execute(
            "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        self._session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
        self._insert = self._session.prepare("INSERT INTO shop.orders (id, n) VALUES (?, ?)")

    def run(self) -> None:
        while not self.stop.wait(self._pause_s):
            self._session.execute(self._insert, (self.written % self._keys, self.written))
            self.written += 1

    def end(self) -> None:
        self.stop.set()
        self.join()
