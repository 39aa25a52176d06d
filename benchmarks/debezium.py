"""What it costs to make records of changes, in memory: CPU µs per record for each format, and where they go.

Each round reads the log anew, so that nothing is decoded before, and converts its changes in every way, in turns. A
ratio is the median, over the rounds, of the ratios to ``event.metadata``, the JSON that events make of themselves. The
garbage collector is off while time is taken: here all records are kept, elsewhere each is gone before the next.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import rscylla
from rscylla.debezium import AvroConverter, Emitter, JsonConverter, JsonSchemaConverter, Registered, Settings
from rscylla.embedded import EmbeddedScylla
from rscylla.testing import ManualClock

NOW_NS = 1_795_311_099_465_123_456
IMAGES: dict[str, Any] = {"output_format": "advanced", "before": "full", "after": "full"}
WAYS: dict[str, dict[str, Any]] = {
    "legacy": {},
    "legacy, preimages": {"preimages": True},
    "advanced, no images": {"output_format": "advanced"},
    "advanced, full images": IMAGES,
    "advanced, all placements": {
        **IMAGES,
        "placement": ("kafka-key", "payload-after", "payload-before", "payload-key", "kafka-headers"),
    },
}


class Counting:
    """A registry in memory."""

    def registered(self, subject: str, form: str, text: str) -> Registered:
        return Registered(1, text)


CONVERTERS: dict[str, Callable[[], Any]] = {
    "JSON": lambda: JsonConverter(schemas=False),
    "schemas": lambda: JsonConverter(schemas=True),
    "Avro": lambda: AvroConverter(Counting()),
    "Schema": lambda: JsonSchemaConverter(Counting()),
}


def main() -> None:
    """Print a line for each way: µs of emitting, of each converter, of emitting and JSON, and the ratio of that."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=4000, help="changes in the log")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    clock = ManualClock()
    with EmbeddedScylla(clock=clock) as scylla:
        session = scylla.connect()
        fill(session, args.changes)
        clock.advance(60)
        stream = rscylla.NewStream(session, "shop", "items", clock=clock)
        rounds = [one_round(stream) for _ in range(args.rounds)]
    print(f"{'':26} {'emit':>7} {' '.join(f'{name:>8}' for name in CONVERTERS)} {'sum':>7} {'of metadata':>12}")
    metadata = [found["metadata"][0] for found in rounds]
    print(f"{'event.metadata':26} {'':>7} {' ' * (9 * len(CONVERTERS) - 1)} {median(metadata):7.2f} {1:12.2f}")
    for way in WAYS:
        emit, *others = (median([found[way][at] for found in rounds]) for at in range(1 + len(CONVERTERS)))
        ratio = median([(found[way][0] + found[way][1]) / found["metadata"][0] for found in rounds])
        shown = " ".join(f"{one:8.2f}" for one in others)
        print(f"{way:26} {emit:7.2f} {shown} {emit + others[0]:7.2f} {ratio:12.2f}")


def fill(session: rscylla.Session, changes: int) -> None:
    """Write *changes* inserts and updates of rows of seven columns."""
    session.execute(
        "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
        "AND tablets = {'enabled': false}"
    )
    session.execute(
        "CREATE TABLE shop.items (pk int, ck text, name text, qty int, price decimal, at timestamp, tags set<text>, "
        "PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
    )
    insert = session.prepare(
        "INSERT INTO shop.items (pk, ck, name, qty, price, at, tags) VALUES (?, ?, ?, ?, 1.50, 0, ?)"
    )
    update = session.prepare("UPDATE shop.items SET name = ?, qty = ? WHERE pk = ? AND ck = ?")
    for n in range(changes // 2):
        session.execute(insert, (n, f"key {n}", f"the name of item {n}", n, {"a", "b"}))
        session.execute(update, (f"another name of item {n}", n + 1, n, f"key {n}"))


def one_round(stream: rscylla.Stream) -> dict[str, list[float]]:
    """Return the µs per record of each way: of emitting, and of each converter."""
    events = read(stream)
    found = {"metadata": [timed(lambda: [event.metadata for event in events], len(events))[0]]}
    for way, settings in WAYS.items():
        events = read(stream)
        emitter = Emitter(Settings(prefix="demo", **settings))
        emit, records = timed(lambda: [r for e in events for r in emitter.records(e, NOW_NS)], len(events))  # noqa: B023
        found[way] = [emit]
        for made in CONVERTERS.values():
            converter = made()
            work = lambda: [(converter.key(r), converter.value(r)) for r in records]  # noqa: B023, E731
            found[way].append(timed(work, len(records))[0])
    return found


def read(stream: rscylla.Stream) -> list[Any]:
    """Return all events of the log."""
    client = stream("", rscylla.StreamLag(seconds=30), rscylla.StreamToHead())
    found: list[Any] = []
    try:
        while True:
            event = client.recv()
            if not isinstance(event, rscylla.Progress):
                found.append(event)
    except rscylla.HeadReached:
        return found
    finally:
        client.close()


def timed(work: Callable[[], Any], count: int) -> tuple[float, Any]:
    """Return the CPU µs of *work* for each of *count*, and its result."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    result = work()
    took = time.process_time() - start
    gc.enable()
    return took / count * 1e6, result


if __name__ == "__main__":
    main()
