"""The consumers that the soak test of a group runs: one of each kind, all of them over the same changes.

Each hands what it has handled to ``Kinds.told``, which appends a line. Kinds that end in "parked" fail at some events
for as long as the file OUT.poison is there, and put them aside with all later ones of their keys.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import rscylla
from cursorstore import ScyllaDeadLetters
from rscylla.abc import Message
from rscylla.aio import on_loop
from rscylla.kafka import KafkaPublisher
from rscylla.publish import publishing

POISON = 3 * 41
"""Events with a number that this divides fail while there is poison. A third of the keys have some."""

TOPIC = "orders"


class Stepping(rscylla.SystemClock):
    """A clock whose time of day is set anew every 20 seconds, often by minutes."""

    def now_us(self) -> int:
        dice = random.Random(f"{os.getpid()} {int(time.monotonic() / 20)}")
        return super().now_us() + int(dice.choice([0, 0, dice.uniform(-100e6, 100e6)]))


class Kinds:
    """Makes the consumer of a slice, of each kind.

    Args:
        epoch: Returns the epoch in which this process has the slice of a name.
        kafka: The servers of the broker, for the kind "kafka".
    """

    def __init__(self, out: Path, letters: ScyllaDeadLetters, epoch: Callable[[str], int], kafka: str) -> None:
        self._out = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._poison = Path(f"{out}.poison")
        self._letters = letters
        self._epoch = epoch
        self._pool = ThreadPoolExecutor(4)
        self._kafka = kafka
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._publisher: KafkaPublisher | None = None

    def maker(self, kind: str) -> Callable[[str], Any]:
        return getattr(self, kind)  # type: ignore[no-any-return]

    def told(self, name: str, *events: rscylla.Event) -> None:
        os.write(self._out, b"".join(self.line(name, event) for event in events))

    def line(self, name: str, event: rscylla.Event) -> bytes:
        line = (os.getpid(), name, self._epoch(name), event.foreign_id, event.change.after["n"], event.id)
        return "\t".join(map(str, line)).encode() + b"\n"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._pool.shutdown()
        if self._publisher is not None:
            self._publisher.close()

    # ------------------------------------------------------------ the kinds

    def plain(self, name: str) -> Any:
        return rscylla.Consumer(name, lambda event, _: self.told(name, event))

    def swept(self, name: str) -> Any:
        return self.plain(name)

    def batch(self, name: str) -> Any:
        return rscylla.batch(name, lambda events, _: self.told(name, *events), size=20)

    def concurrent(self, name: str) -> Any:
        return rscylla.concurrent(self.plain(name), workers=4)

    def ack(self, name: str) -> Any:
        """Done elsewhere, where keys overtake each other, and events of a key do not."""
        doing: dict[str, list[tuple[rscylla.Event, rscylla.reflex.Ack]]] = {}
        lock = threading.Lock()

        def work(key: str) -> None:
            with lock:
                event, done = doing[key][0]
            self.told(name, event)
            done()
            with lock:
                doing[key].pop(0)
                if doing[key]:
                    self._pool.submit(work, key)

        def begin(event: rscylla.Event, _run: object, done: rscylla.reflex.Ack) -> None:
            with lock:
                waiting = doing.setdefault(event.foreign_id, [])
                waiting.append((event, done))
                if len(waiting) == 1:
                    self._pool.submit(work, event.foreign_id)

        return rscylla.ack(name, begin)

    def windows(self, name: str) -> Any:
        """The numbers are those of the columns."""

        def take(window: Any, _run: object) -> None:
            values = window.to_arrow()["cdc_values"].to_pylist()
            assert [row["n"] for row in values] == [event.change.after["n"] for event in window]
            self.told(name, *window)

        return rscylla.windows(name, take)

    def aio(self, name: str) -> Any:
        async def consume(event: rscylla.Event, _run: object) -> None:
            await asyncio.sleep(0)
            self.told(name, event)

        return rscylla.Consumer(name, on_loop(consume, self._loop))

    def parked(self, name: str) -> Any:
        pauses = rscylla.Backoff(initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=50))
        return rscylla.dead_letter(
            rscylla.Consumer(name, self._tempted(name)),
            self._letters,
            retries=1,
            backoff=pauses,
            park=rscylla.reflex.partition_of,
        )

    def concurrent_parked(self, name: str) -> Any:
        return rscylla.concurrent(self.parked(name), workers=4)

    def batch_parked(self, name: str) -> Any:
        def take(events: Sequence[rscylla.Event], _run: object) -> None:
            for event in events:
                self._taste(event)
            self.told(name, *events)

        return rscylla.batch(name, take, size=20, fallback=self.parked(name))

    def kafka(self, name: str) -> Any:
        if self._publisher is None:
            self._publisher = KafkaPublisher({"bootstrap.servers": self._kafka, "log_level": 2})

        def messages(event: rscylla.Event) -> list[Message]:
            return [Message(TOPIC, event.foreign_id.encode(), self.line(name, event))]

        return publishing(name, messages, self._publisher)

    def _tempted(self, name: str) -> Callable[[rscylla.Event, object], None]:
        def consume(event: rscylla.Event, _run: object) -> None:
            self._taste(event)
            self.told(name, event)

        return consume

    def _taste(self, event: rscylla.Event) -> None:
        if event.change.after["n"] % POISON == 0 and self._poison.exists():
            raise ValueError("poison")
