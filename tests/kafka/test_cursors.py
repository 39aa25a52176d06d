"""The contract of cursor stores on a real broker, and processes that take a cursor over from each other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from kafka_broker import KafkaBroker

pytest.importorskip("confluent_kafka")

from cursorstore import IntCursorCodec
from rscylla.abc import CursorStore, Message
from rscylla.errors import ConfigError, LeaseLost
from rscylla.kafka import KafkaCursorStore
from rscylla.testing.contracts import CursorAdminContract, EventCursorStoreContract

pytestmark = pytest.mark.slow


class TestOnABroker(EventCursorStoreContract, CursorAdminContract):
    @pytest.fixture(autouse=True)
    def make(self, broker: KafkaBroker) -> None:
        self.config = {"bootstrap.servers": broker.address, "log_level": 2}

    def open_store(self) -> CursorStore:
        return KafkaCursorStore(self.config, "contract", interval=timedelta(minutes=10), replication=1)


@pytest.fixture
def open_store(broker: KafkaBroker) -> Iterator[Callable[[], KafkaCursorStore]]:
    name = f"cursors-{uuid.uuid4().hex}"
    opened: list[KafkaCursorStore] = []

    def open_() -> KafkaCursorStore:
        config = {"bootstrap.servers": broker.address, "log_level": 0}
        store = KafkaCursorStore(config, name, interval=timedelta(minutes=10), replication=1, codec=IntCursorCodec())
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


def test_a_successor_sees_nothing_of_what_its_predecessor_left_open(
    open_store: Callable[[], KafkaCursorStore], topic: Callable[..., str]
) -> None:
    first, second = open_store(), open_store()
    name = topic()
    assert first.get_cursor("c") == ""
    first.set_cursor("c", "1")
    first.flush()
    publisher = first.publisher("c")
    with publisher.join(lambda: True):
        publisher.publish([Message(name, b"k", b"v")], lambda error: None)
    first.set_cursor("c", "2")
    assert second.get_cursor("c") == "1"
    second.set_cursor("c", "3")
    second.flush()
    with pytest.raises(LeaseLost, match="another process publishes"):
        first.flush_cursor("c")
    with pytest.raises(LeaseLost):
        first.set_cursor("c", "4")
    assert first.get_cursor("c") == "3"  # and fences the second
    second.set_cursor("c", "5")
    with pytest.raises(LeaseLost):
        second.flush_cursor("c")


def test_a_reset_fences_the_process_that_uses_the_cursor(open_store: Callable[[], KafkaCursorStore]) -> None:
    first, operator = open_store(), open_store()
    first.get_cursor("c")
    first.set_cursor("c", "9")
    first.flush()
    operator.reset_cursor("c", "3", reason="replay")
    first.set_cursor("c", "10")
    with pytest.raises(LeaseLost):
        first.flush_cursor("c")
    assert first.get_cursor("c") == "3"
    assert [(r.epoch, r.cursor, r.reason) for r in operator.cursor_history("c")] == [(1, "3", "replay"), (0, "9", "")]


def test_a_topic_that_forgets_is_refused(broker: KafkaBroker, topic: Callable[..., str]) -> None:
    store = KafkaCursorStore({"bootstrap.servers": broker.address, "log_level": 2}, topic(cleanup_policy="delete"))
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        store.get_cursor("c")
    store.close()
