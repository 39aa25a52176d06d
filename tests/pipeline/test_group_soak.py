"""A group of processes under load, which grows and shrinks while members are killed and paused, and nodes go away.

RSCYLLA_SOAK_SECONDS says for how long, RSCYLLA_SEED repeats what is done to them; when it happens is the machine's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
from soaking import PATIENCE_S, Chaos, Replicas, Watcher, Writer, await_progress, await_true, read, shop

import rscylla
from cursorstore import ScyllaGroupTable, find_group
from rscylla._timeuuid import datetime_of
from rscylla.abc import GroupView
from rscylla.embedded import EmbeddedScyllaProcess

SECONDS = float(os.environ.get("RSCYLLA_SOAK_SECONDS", "30"))
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "soak_group.py"
SLICES = 16
LAG_MS = 500
TTL_S = 6
FEWEST, MOST = 3, 8


@pytest.fixture
def scylla() -> Iterator[EmbeddedScyllaProcess]:
    with shop() as server:
        yield server


class Members:
    """The processes of the group, what the group's table says of them, and how long each change takes there.

    Args:
        history: gets a line for each change that a look at the table finds, and for each step of the test.
    """

    def __init__(self, scylla: EmbeddedScyllaProcess, replicas: Replicas, history: Path) -> None:
        self._table = ScyllaGroupTable(scylla.connect(), "shop", create=True)
        self._replicas = replicas
        self._history = history
        self._clock = rscylla.SystemClock()
        self._seen: GroupView | None = None
        self._shown = ""
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @property
    def running(self) -> list[subprocess.Popen[bytes]]:
        return self._replicas.running

    def view(self) -> GroupView | None:
        try:
            view = find_group(self._table, "soak")
        except rscylla.RscyllaError:
            return None  # that node is away just now
        if view is not None and (shown := as_text(view)) != self._shown:
            self._shown = shown
            self.note(shown)
        return view

    def note(self, what: str) -> None:
        with self._history.open("a") as out:
            out.write(f"{datetime_of(self._clock.now_us()):%H:%M:%S.%f} {what}\n")

    def join(self) -> None:
        """Measures from when the new member is in the table: before, Python starts."""
        self._replicas.count = len(self.running) + 1
        self._replicas.fill()
        name = str(self.running[-1].pid)
        self.note(f"{name} is started")
        self._await(lambda view: any(one.owner == name for one in view.members), "it does not join")
        with self._measured("join to balance"):
            self.await_balance()

    def stop(self, one: subprocess.Popen[bytes]) -> None:
        self._replicas.count = len(self.running) - 1
        self.note(f"{one.pid} gets SIGTERM")
        with self._measured("clean stop to takeover"):
            one.terminate()
            self.await_takeover(one)
        self.running.remove(one)
        assert one.wait(PATIENCE_S) == 0
        self.await_balance()

    def kill(self, one: subprocess.Popen[bytes]) -> None:
        self._replicas.count = len(self.running) - 1
        self.note(f"{one.pid} gets SIGKILL")
        with self._measured("kill to takeover"):
            self._replicas.kill(one)
            self.await_takeover(one)
        self.await_balance()

    def pause(self, one: subprocess.Popen[bytes]) -> None:
        """Past its membership, so that others take its slices before it wakes up."""
        self.note(f"{one.pid} gets SIGSTOP")
        with self._measured("pause to takeover"):
            one.send_signal(signal.SIGSTOP)
            self.await_takeover(one)
        self.note(f"{one.pid} gets SIGCONT")
        with self._measured("waking up to balance"):
            one.send_signal(signal.SIGCONT)
            self.await_balance()

    def await_takeover(self, one: subprocess.Popen[bytes]) -> None:
        """Wait until all slices have members that are there, and *one* is none of them."""

        def taken(view: GroupView) -> bool:
            holders = [view.holder(key_slice.index) for key_slice in view.slices]
            return all(holder is not None and holder.owner != str(one.pid) for holder in holders)

        self._await(taken, "not all slices are taken over")

    def await_balance(self) -> None:
        """Wait until the members are the processes that run, and their slices differ by at most one."""

        def balanced(view: GroupView) -> bool:
            has = Counter(member.owner for one in view.slices if (member := view.holder(one.index)) is not None)
            expected = {str(one.pid) for one in self.running}
            return (
                {member.owner for member in view.members} == set(has) == expected
                and has.total() == SLICES
                and max(has.values()) - min(has.values()) <= 1
            )

        self._await(balanced, "the group does not come into balance")

    def _await(self, condition: Callable[[GroupView], bool], what: str) -> None:
        def holds() -> bool:
            self._seen = self.view()
            return self._seen is not None and condition(self._seen)

        await_true(holds, what, lambda: f"processes {[(p.pid, p.poll()) for p in self.running]}, group {self._seen}")

    @contextmanager
    def _measured(self, what: str) -> Iterator[None]:
        began = self._clock.monotonic()
        yield
        self.seconds[what].append(self._clock.monotonic() - began)
        self.note(f"{what}: {self.seconds[what][-1]:.1f} s")


def as_text(view: GroupView) -> str:
    """Return what *view* shows but for how long members last: of each, its name and its slices, of lost ones, too."""
    names = {member.token: member.owner for member in view.members}
    held: dict[str, list[int]] = {name: [] for name in sorted(names.values())}
    for one in view.slices:
        held.setdefault(names.get(one.holder, f"nobody, before {one.owner or one.before}"), []).append(one.index)
    new = [member.owner for member in view.members if not member.renewals]
    leaving = [member.owner for member in view.members if member.drains]
    return f"{held}" + (f" new {new}" if new else "") + (f" leaving {leaving}" if leaving else "")


@contextmanager
def explained(where: Path) -> Iterator[None]:
    """Add what the members logged last, and what became of the group, to the error of the test."""
    try:
        yield
    except BaseException as error:
        for name in ("history", "errors"):
            lines = (where / name).read_text().splitlines() if (where / name).exists() else []
            error.add_note("\n".join([f"--- the last of {len(lines)} lines of {where / name}", *lines[-150:]]))
        raise


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
    assert watcher.regressions == 0
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
        "cursor_regressions": watcher.regressions,
        "seconds": {
            what: {"times": len(each), "median": round(median(each), 1), "most": round(max(each), 1)}
            for what, each in members.seconds.items()
        },
    }
    print(json.dumps(verdict))


def numbers(out: Path) -> set[int]:
    return {int(line[4]) for line in read(out)}
