"""A service under load, of which replicas are killed and paused past their lease while nodes and connections go away.

RSCYLLA_SOAK_SECONDS says for how long, RSCYLLA_SEED repeats what is done to them; when it happens is the machine's.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from soaking import PATIENCE_S, Chaos, Replicas, Watcher, Writer, await_progress, await_true, read, shop

import rscylla
from cursorstore import ScyllaDeadLetters
from rscylla.embedded import EmbeddedScyllaProcess

SECONDS = float(os.environ.get("RSCYLLA_SOAK_SECONDS", "30"))
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "soaks" / "soak_service.py"
LAG_MS = 500
LEASE_S = 4
REPLICAS = 3
POISON = 41


@pytest.fixture
def scylla() -> Iterator[EmbeddedScyllaProcess]:
    with shop() as server:
        yield server


@pytest.mark.timeout(SECONDS + 3 * PATIENCE_S)
def test_a_service_that_is_broken_all_the_time_loses_nothing(scylla: EmbeddedScyllaProcess, tmp_path: Path) -> None:
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    out = tmp_path / "delivered"
    clock = rscylla.SystemClock()
    writer, watcher, replicas = (
        Writer(scylla),
        Watcher(scylla),
        Replicas(scylla, PROGRAM, out, REPLICAS, LAG_MS, LEASE_S),
    )
    chaos = Chaos(scylla, replicas, out, random.Random(seed), pause_s=LEASE_S + 2)
    letters = ScyllaDeadLetters(scylla.connect(), "shop", create=True)
    try:
        replicas.fill()
        writer.start()
        watcher.start()
        ends = clock.monotonic() + SECONDS
        await_true(lambda: len(read(out)) > 10, "nothing was delivered")
        while clock.monotonic() < ends:
            chaos.strike()
            await_progress(out)
        writer.stop.set()
        writer.join(PATIENCE_S)
        assert not writer.is_alive(), "the cluster takes no writes any more"
        scylla.faults.clear()
        replicas.fill()
        expected = set(range(writer.written))
        poison = {n for n in expected if n % POISON == 0}

        def dead() -> set[int]:
            return {letter.event.change.after["n"] for letter in letters.list_letters("soak")}

        await_true(lambda: expected - poison <= numbers(out) and poison <= dead(), "not all was delivered")
        codes = replicas.end()
        watcher.stop.set()
        watcher.join()
    finally:
        replicas.close()
    lines = read(out)
    assert numbers(out) == expected - poison
    assert dead() == poison
    assert watcher.regressions == []
    assert watcher.moves > 0
    assert codes == [0] * REPLICAS
    assert not replicas.ended, (replicas.ended, (tmp_path / "errors").read_text()[-5000:])
    # By their places in the log: a write that was held up while it was tried again comes after its successors there.
    tenures: dict[tuple[str, str, str], list[tuple[int, bytes]]] = {}
    for process, epoch, key, _, event_id in lines:
        tenures.setdefault((epoch, process, key), []).append(rscylla.cursor_key(event_id))
    assert all(delivered == sorted(delivered) for delivered in tenures.values())
    epochs = {epoch for epoch, _, _ in tenures}
    assert len({(epoch, process) for epoch, process, _ in tenures}) == len(epochs), "two held a lease at once"
    verdict = {
        "written": writer.written,
        "lost": len(expected - poison - numbers(out)),
        "duplicates": len(lines) - len(numbers(out)),
        "dead_letters": len(poison),
        "cursor_moves_seen": watcher.moves,
        "cursor_regressions": len(watcher.regressions),
        "tenures": len(epochs),
        **chaos.counts,
    }
    print(json.dumps(verdict))


def numbers(out: Path) -> set[int]:
    return {int(line[3]) for line in read(out)}
