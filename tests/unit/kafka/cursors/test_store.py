"""Cursors in Kafka keep their number of slices; tests/unit/kafka/producer has their transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mockkafka import MockKafka

from cursorstore import IntCursorCodec, MemoryCursorStore
from rscylla.abc import flush_cursor
from rscylla.errors import ConfigError
from rscylla.kafka import KafkaCursorStore
from rscylla.reflex import take_along


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCursorStore]:
    monkeypatch.setattr(KafkaCursorStore, "_check_policy", lambda self, admin: None)  # the mock cluster knows none
    with MockKafka(partitions=2) as cluster:
        cluster.create("rscylla_cursors", 2)
        opened = KafkaCursorStore({"bootstrap.servers": cluster.servers, "log_level": 0}, codec=IntCursorCodec())
        yield opened
        opened.close()


@pytest.mark.parametrize(("before", "index", "count"), [("c[0/4]", 0, 8), ("c[3/4]", 0, 1), ("c", 1, 4)])
def test_another_number_of_slices_is_refused_with_what_can_be_done(
    store: KafkaCursorStore, before: str, index: int, count: int
) -> None:
    store.get_cursor(before)
    store.set_cursor(before, "7")
    store.flush_cursor(before)
    name = "c" if count == 1 else f"c[{index}/{count}]"
    kept = 1 if before == "c" else 4
    with pytest.raises(ConfigError, match=f"go on with {kept}, the number that the cursors") as error:
        take_along(store, name, (index, count), from_whole=False)
    assert "reslice" not in str(error.value)
    elsewhere = MemoryCursorStore(codec=IntCursorCodec())
    elsewhere.set_cursor(before, "7")
    with pytest.raises(ConfigError, match=f"rscylla cursor reslice c --from {kept} --to {count}"):
        take_along(elsewhere, name, (index, count), from_whole=False)


def test_a_flush_that_a_subclass_overrides_is_not_bypassed() -> None:
    class Own(KafkaCursorStore):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    store = Own({"bootstrap.servers": "localhost:1"})
    flush_cursor(store, "c")
    assert store.flushes == 1
