"""A group that runs a consumer of each kind, while all that can happen to its members, its cluster, and its table does.

Members are killed and paused, their clocks step, nodes go away, streams split, slices change their number, poison comes
and goes, CDC is switched off and on, and the table is dropped and created again.

RSCYLLA_SOAK_SECONDS says for how long, RSCYLLA_SEED repeats what is done to them; when it happens is the machine's.
"""

from __future__ import annotations

import json
import os
import random
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import eventbank
import pytest
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from mockkafka import MockKafka
from soak_kinds import POISON, TOPIC
from soak_members import Members, explained
from soaking import PATIENCE_S, Chaos, Replicas, Watcher, Writer, await_true, read, shop

import rscylla
from cursorstore import ScyllaCursorStore, ScyllaDeadLetters, ScyllaGroupTable, reslice_group
from rscylla.embedded import EmbeddedScyllaError, EmbeddedScyllaProcess

SECONDS = float(os.environ.get("RSCYLLA_SOAK_SECONDS", "30"))
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "soaks" / "soak_group.py"
PARKED = ("parked", "concurrent_parked", "batch_parked")
KINDS = ("plain", "swept", "batch", "concurrent", "ack", "windows", "aio", *PARKED)
"""Those that append lines; beside them run "kafka" and "projection"."""

LAG_MS = 500
TTL_S = 6
MEMBERS = 3
COUNTS = (3, 4, 6)
"""Numbers of slices."""

COLUMNS = "(id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}"
Line = list[str]
FAILED = (DriverException, NoHostAvailable, ConnectionException, OSError, rscylla.RscyllaError)


@pytest.fixture
def scylla() -> Iterator[EmbeddedScyllaProcess]:
    with shop() as server:
        session = server.connect()
        session.execute("CREATE KEYSPACE bank WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute(
            "CREATE KEYSPACE split WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            "AND tablets = {'initial': 2}"
        )
        session.execute(f"CREATE TABLE split.orders {COLUMNS}")
        eventbank.Bank(session)
        yield server


class Payer(threading.Thread):
    """Pays into accounts, each time until it is confirmed; ``balances`` are what they have then."""

    def __init__(self, scylla: EmbeddedScyllaProcess) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.bank = eventbank.Bank(scylla.connect())
        self.balances = Counter[str]()

    def run(self) -> None:
        amount = 0
        while not self.stop.wait(0.1):
            amount += 1
            account, command_id = f"a{amount % 11}", str(uuid.uuid4())
            while not self._confirmed(account, amount, command_id):
                pass
            self.balances[account] += amount

    def _confirmed(self, account: str, amount: int, command_id: str) -> bool:
        try:
            self.bank.handler.handle(account, amount, command_id=command_id)
        except FAILED:
            return False
        return True

    def is_shown(self) -> bool:
        """Return whether the projection has what was paid."""
        try:
            rows = self.bank.balances.rows(self.bank.projector.active())
        except FAILED:
            return False
        return {account: balance for account, (_, balance) in rows.items()} == dict(self.balances)


class Replayer(threading.Thread):
    """Replays letters all the time, while others do, too."""

    def __init__(self, scylla: EmbeddedScyllaProcess, out: Path) -> None:
        super().__init__(daemon=True)
        self.stop = rscylla.Stop()
        self.done = Counter[str]()
        self.error: BaseException | None = None
        self._letters = ScyllaDeadLetters(scylla.connect(), "shop", create=True)
        self._out = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._poison = Path(f"{out}.poison")

    def run(self) -> None:
        try:
            while not self.stop.wait(0.5):
                for kind in PARKED:
                    with suppress(*FAILED):
                        self.done[kind] += self.replay(kind)
        except BaseException as error:
            self.error = error
            raise

    def replay(self, kind: str) -> int:
        def handle(event: rscylla.Event) -> None:
            number = event.change.after["n"]
            if number % POISON == 0 and self._poison.exists():
                raise ValueError("poison")
            os.write(self._out, f"replay\t{kind}\t0\t{event.foreign_id}\t{number}\t{event.id}\n".encode())

        return rscylla.replay_letters(self._letters, kind, handle, key=rscylla.reflex.partition_of)[0]

    def put_aside(self, kind: str) -> set[int]:
        return {letter.event.change.after["n"] for letter in self._letters.list_letters(kind)}


def kind_of(name: str) -> str:
    """Return the consumer of a lane; a replay gives that itself."""
    return name if name in PARKED else rscylla.reflex.slice_of(name)[0]


class Soak:
    """One run: what is there, what may be done to it, and what has to be true afterwards."""

    def __init__(self, scylla: EmbeddedScyllaProcess, where: Path, kafka: MockKafka, seed: int) -> None:
        self.scylla = scylla
        self.kafka = kafka
        self.dice = random.Random(seed)
        self.keyspace = "split" if seed % 2 else "shop"
        self.out = where / "delivered"
        self.poison = Path(f"{self.out}.poison")
        self.session = scylla.connect()
        self.writer = Writer(scylla, self.keyspace, every_s=0.02)
        self.payer = Payer(scylla)
        self.replayers = [Replayer(scylla, self.out) for _ in range(2)]
        kinds = ",".join((*KINDS, "kafka", "projection"))
        self.replicas = Replicas(
            *(scylla, PROGRAM, self.out, MEMBERS, COUNTS[1], LAG_MS, TTL_S, self.keyspace, kinds, kafka.servers)
        )
        self.chaos = Chaos(scylla, self.replicas, self.out, self.dice, pause_s=TTL_S + 2)
        self.members = Members(scylla, self.replicas, where / "history")
        self.watcher = Watcher(scylla)
        self.watched = Counter[str]()
        self.counts = Counter[str]()
        self.never = rscylla.Stop()

    def start(self) -> None:
        self.poison.touch()
        self.replicas.fill()
        for thread in (self.writer, self.payer, self.watcher, *self.replayers):
            thread.start()
        self.await_progress()

    # ------------------------------------------------------------ what happens

    @property
    def steps(self) -> tuple[Callable[[], None], ...]:
        return self.kill, self.stop, self.pause, self.break_cluster, self.split, self.toggle_poison, self.reslice

    @property
    def alterations(self) -> tuple[Callable[[], None], ...]:
        return self.create_again, self.switch_cdc

    def take(self, step: Callable[[], None]) -> None:
        self.counts[step.__name__] += 1
        self.members.note(f"{step.__name__}, {self.writer.written} written")
        if step in self.alterations:
            self.replicas.excuse()
        step()
        assert self.writer.is_alive()
        assert self.payer.is_alive()
        if step in self.alterations:
            self.replicas.excuse()  # those that were started meanwhile
        self.await_progress()
        if step in self.alterations:
            self.replicas.ended.clear()
        assert not self.replicas.ended, f"{step.__name__}: exit codes by process: {self.replicas.ended}"

    def kill(self) -> None:
        self.members.kill(self.dice.choice(self.replicas.running))
        self.members.join()

    def stop(self) -> None:
        self.members.stop(self.dice.choice(self.replicas.running))
        self.members.join()

    def pause(self) -> None:
        self.members.pause(self.dice.choice(self.replicas.running))

    def break_cluster(self) -> None:
        self.chaos.strike_cluster()

    def split(self) -> None:
        with suppress(EmbeddedScyllaError):  # the last streams have not begun yet, or there is nothing to merge
            if self.keyspace == "shop":
                self.scylla.new_generation(timedelta(seconds=2))
            else:
                self.dice.choice([self.scylla.split_tablets, self.scylla.merge_tablets])(self.keyspace, "orders")

    def toggle_poison(self) -> None:
        if self.poison.exists():
            self.poison.unlink()
        else:
            self.poison.touch()

    def reslice(self) -> None:
        self.end_watching()
        view = self.members.view()
        count = self.dice.choice([one for one in COUNTS if view is None or one != view.count])
        store = ScyllaCursorStore(self.session, "shop", create=True)
        reslice_group(ScyllaGroupTable(self.session, "shop"), "soak", count, store)
        self.members.await_balance()
        self.watcher = Watcher(self.scylla)
        self.watcher.start()

    def create_again(self) -> None:
        """Drop the table when all was delivered, and create it; a member may be killed meanwhile."""
        with self.writer.writing:
            self.await_all()
            self._alter(f"DROP TABLE {self.keyspace}.orders")
            self._wait_a_while()
            self._alter(
                f"CREATE TABLE {self.keyspace}.orders (id int PRIMARY KEY, n int) WITH cdc = {{'enabled': true}}"
            )

    def switch_cdc(self) -> None:
        """Nothing is written while it is off; what was written before may still have to be delivered."""
        with self.writer.writing:
            self._alter(f"ALTER TABLE {self.keyspace}.orders WITH cdc = {{'enabled': false}}")
            self._wait_a_while()
            self._alter(f"ALTER TABLE {self.keyspace}.orders WITH cdc = {{'enabled': true}}")

    def _alter(self, statement: str) -> None:
        self.session.execute(statement, timeout=60)

    def _wait_a_while(self) -> None:
        self.never.wait(self.dice.choice([0, 0.2, 2, 5]))
        if self.dice.random() < 0.5 and self.replicas.running:
            self.replicas.kill(self.dice.choice(self.replicas.running))
        self.replicas.fill()

    # ------------------------------------------------------------ what has to be true

    def numbers(self) -> dict[str, set[int]]:
        """Return what each kind has delivered."""
        found: dict[str, set[int]] = defaultdict(set)
        for line in read(self.out):
            found[kind_of(line[1])].add(int(line[4]))
        return found

    def await_progress(self) -> None:
        """Wait until each kind has delivered something that was written after now."""
        since = self.writer.written
        missing = set(KINDS)

        def done() -> bool:
            self.replicas.fill()
            found = self.numbers()
            for kind in list(missing):
                if max(found[kind], default=-1) >= since:
                    missing.discard(kind)
            return not missing

        await_true(done, "nothing is delivered any more by", lambda: f"{missing}; written {self.writer.written}")
        self.members.await_balance()

    def await_all(self) -> None:
        """Wait until each kind has delivered or put aside what was written."""
        expected = set(range(self.writer.written))
        missing = dict.fromkeys((*KINDS, "kafka"), expected)

        def done() -> bool:
            self.replicas.fill()
            found = self.numbers()
            for kind in list(missing):
                numbers = self._published() if kind == "kafka" else found[kind] | (self._put_aside(kind) or set())
                missing[kind] = expected - numbers
                if not missing[kind]:
                    del missing[kind]
            return not missing

        await_true(done, "not all was delivered:", lambda: str({k: sorted(v)[:20] for k, v in missing.items()}))

    def _put_aside(self, kind: str) -> set[int] | None:
        """Return the numbers of the letters of a kind; None if they cannot be read just now."""
        if kind not in PARKED:
            return set()
        try:
            return self.replayers[0].put_aside(kind)
        except FAILED:
            return None

    def _await_replayed(self) -> None:
        aside: dict[str, set[int] | None] = {}

        def none_left() -> bool:
            aside.update((kind, self._put_aside(kind)) for kind in PARKED)
            return all(numbers == set() for numbers in aside.values())

        await_true(none_left, "letters are not replayed:", lambda: str(aside)[:1000])

    def _published(self) -> set[int]:
        return {int(line[4]) for line in self._records()}

    def _records(self) -> list[Line]:
        return [(message.value or b"").decode().rstrip("\n").split("\t") for message in self.kafka.read(TOPIC)]

    def end_watching(self) -> None:
        self.watcher.stop.set()
        self.watcher.join()
        assert self.watcher.regressions == []
        self.watched["moves"] += self.watcher.moves

    def end(self) -> None:
        """Stop writing, let everything be delivered and replayed, and stop the members."""
        for thread in (self.writer, self.payer):
            thread.stop.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "the cluster takes no writes any more"
        self.scylla.faults.clear()
        self.poison.unlink(missing_ok=True)
        self.await_all()
        self._await_replayed()
        await_true(self.payer.is_shown, "the projection does not have what was paid")
        self.members.await_balance()  # one that has just been started does not know yet how to stop
        assert self.replicas.end() == [0] * MEMBERS
        for replayer in self.replayers:
            replayer.stop.set()
            replayer.join(PATIENCE_S)
            assert replayer.error is None
        self.end_watching()
        self._await_replayed()

    def verdict(self) -> dict[str, object]:
        """Check what was delivered; return what happened."""
        expected = set(range(self.writer.written))
        of_kind: dict[str, list[Line]] = defaultdict(list)
        for line in read(self.out):
            of_kind[kind_of(line[1])].append(line)
        of_kind["kafka"] = self._records()
        for kind in (*KINDS, "kafka"):
            numbers = {int(line[4]) for line in of_kind[kind]}
            lost, unknown = sorted(expected - numbers), sorted(numbers - expected)
            assert not lost, f"{kind}: {len(lost)} of {len(expected)} are lost: {lost[:20]}"
            assert not unknown, f"{kind}: {unknown[:20]} were not written"
            check_order(kind, of_kind[kind])
        await_true(self.payer.is_shown, "the projection lost what was paid")
        return {
            "written": len(expected),
            "delivered": {kind: len(lines) for kind, lines in of_kind.items()},
            "replayed": dict(sum((replayer.done for replayer in self.replayers), Counter[str]())),
            "paid": len(self.payer.balances),
            "cursor_moves_seen": self.watched["moves"],
            **self.counts,
            **self.chaos.counts,
        }


def check_order(kind: str, lines: list[Line]) -> None:
    """Each key's changes came in the order of the log at first, and its newest one came last.

    By their places in the log: a write that was held up while it was tried again comes after its successors there.
    """
    numbers: dict[str, dict[tuple[int, bytes], str]] = defaultdict(dict)
    last: dict[str, tuple[int, bytes]] = {}
    for _, _, _, key, number, event_id in lines:
        place = rscylla.cursor_key(event_id)
        numbers[key].setdefault(place, number)
        last[key] = place
    for key, known in numbers.items():
        wrong = [f"{known[one]} before {known[other]}" for one, other in pairwise(known) if one > other]
        newest, told = max(known), [line[:3] + line[4:5] for line in lines if line[3] == key][-5:]
        assert not wrong, f"{kind}: key {key} is out of order: {wrong[:5]}"
        assert last[key] == newest, f"{kind}: key {key} ends with an old value, not with {known[newest]}: {told}"


@pytest.mark.timeout(SECONDS + 10 * PATIENCE_S)
def test_no_kind_of_consumer_loses_anything_whatever_becomes_of_its_group_and_its_table(
    scylla: EmbeddedScyllaProcess, tmp_path: Path
) -> None:
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    clock = rscylla.SystemClock()
    with explained(tmp_path), MockKafka(partitions=4) as kafka:
        soak = Soak(scylla, tmp_path, kafka, seed)
        try:
            soak.start()
            ends = clock.monotonic() + SECONDS
            surely = [*soak.alterations, *soak.steps]
            soak.dice.shuffle(surely)
            while surely or clock.monotonic() < ends:
                soak.take(surely.pop() if surely else soak.dice.choice([*soak.steps, *soak.steps, *soak.alterations]))
            soak.end()
        finally:
            soak.replicas.close()
        print(json.dumps(soak.verdict()))
