"""A group of processes under load, which grows and shrinks while members are killed and paused, and nodes go away.

RSCYLLA_SOAK_SECONDS says for how long, RSCYLLA_SEED repeats what is done to them; when it happens is the machine's.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from soak_members import Members, explained
from soaking import PATIENCE_S, Chaos, Replicas, Watcher, Writer, await_progress, await_true, read, shop

import rscylla
from rscylla.embedded import EmbeddedScyllaProcess

SECONDS = float(os.environ.get("RSCYLLA_SOAK_SECONDS", "30"))
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "soaks" / "soak_group.py"
SLICES = 16
LAG_MS = 500
TTL_S = 6
FEWEST, MOST = 3, 8


@pytest.fixture
def scylla() -> Iterator[EmbeddedScyllaProcess]:
    with shop() as server:
        yield server


def next_step(members: Members, chaos: Chaos, dice: random.Random, growing: bool) -> Callable[[], None]:
    """Return what happens next: the group grows to its most members, then shrinks to its fewest."""
    one = dice.choice(members.running)
    steps: list[Callable[[], None]] = [lambda: members.pause(one), chaos.strike_cluster]
    if growing:
        steps += [members.join] * 3
    else:
        steps += [lambda: members.kill(one), lambda: members.kill(one), lambda: members.stop(one)]
    return dice.choice(steps)


@pytest.mark.timeout(SECONDS + 6 * PATIENCE_S)
def test_a_group_that_is_broken_all_the_time_loses_nothing(scylla: EmbeddedScyllaProcess, tmp_path: Path) -> None:
    with explained(tmp_path):
        break_group(scylla, tmp_path)


def break_group(scylla: EmbeddedScyllaProcess, tmp_path: Path) -> None:
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    dice = random.Random(seed)
    out = tmp_path / "delivered"
    clock = rscylla.SystemClock()
    writer, watcher = Writer(scylla), Watcher(scylla)
    replicas = Replicas(scylla, PROGRAM, out, FEWEST, SLICES, LAG_MS, TTL_S)
    chaos = Chaos(scylla, replicas, out, dice, pause_s=TTL_S + 2)
    members = Members(scylla, replicas, tmp_path / "history")
    try:
        replicas.fill()
        writer.start()
        watcher.start()
        ends = clock.monotonic() + SECONDS
        await_true(lambda: len(read(out)) > 10, "nothing was delivered")
        members.await_balance()
        members.join()
        members.kill(dice.choice(replicas.running))
        members.join()
        members.stop(dice.choice(replicas.running))
        growing, sizes = True, {FEWEST, FEWEST + 1}
        while clock.monotonic() < ends:
            next_step(members, chaos, dice, growing)()
            members.note(f"faults {dict(chaos.counts)}, delivered {len(read(out))}")
            members.await_balance()
            await_progress(out)
            sizes.add(len(replicas.running))
            growing = len(replicas.running) < MOST if growing else len(replicas.running) <= FEWEST
        writer.stop.set()
        writer.join(PATIENCE_S)
        assert not writer.is_alive(), "the cluster takes no writes any more"
        scylla.faults.clear()
        expected = set(range(writer.written))
        await_true(lambda: expected <= numbers(out), "not all was delivered")
        running = len(replicas.running)
        codes = replicas.end()
        watcher.stop.set()
        watcher.join()
        view = members.view()
    finally:
        replicas.close()
    lines, errors = read(out), read(out.with_name("delivered.errors"))
    assert numbers(out) == expected
    assert watcher.regressions == []
    assert watcher.moves > 0
    assert codes == [0] * running
    assert not replicas.ended, (replicas.ended, (tmp_path / "errors").read_text()[-5000:])
    assert view is not None
    # By their places in the log: a write that was held up while it was tried again comes after its successors there.
    first: dict[str, dict[str, tuple[int, bytes]]] = defaultdict(dict)
    tenures: dict[tuple[str, str], list[tuple[int, bytes]]] = defaultdict(list)
    holders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for process, key_slice, epoch, key, _, event_id in lines:
        first[key].setdefault(event_id, rscylla.cursor_key(event_id))
        tenures[key_slice, epoch].append(rscylla.cursor_key(event_id))
        holders[key_slice, epoch].add(process)
    assert all(list(delivered.values()) == sorted(delivered.values()) for delivered in first.values())
    assert all(delivered == sorted(delivered) for delivered in tenures.values())
    assert all(len(processes) == 1 for processes in holders.values()), "two held a slice at once"
    # Each move and each failed run repeats the event that was at work on its slice, at most.
    moves = sum(one.epoch for one in view.slices)
    duplicates = len(lines) - sum(map(len, first.values()))
    assert duplicates <= moves + len(errors)
    verdict = {
        "written": writer.written,
        "lost": len(expected - numbers(out)),
        "duplicates": duplicates,
        "moves": moves,
        "runs_failed": len(errors),
        "members": [min(sizes), max(sizes)],
        "faults": chaos.counts,
        "cursor_moves_seen": watcher.moves,
        "cursor_regressions": len(watcher.regressions),
        "seconds": {
            what: {"times": len(each), "median": round(median(each), 1), "most": round(max(each), 1)}
            for what, each in members.seconds.items()
        },
    }
    print(json.dumps(verdict))


def numbers(out: Path) -> set[int]:
    return {int(line[4]) for line in read(out)}
