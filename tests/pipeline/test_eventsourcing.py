"""Event sourcing in processes that are killed: the store, a projection, timers, and a broker agree at the end."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import eventbank
import pytest
from eventbank import ACCOUNTS, KEYSPACE, Account, Bank, PaidIn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mockkafka import MockKafka
from prometheus_client import CollectorRegistry

import rscylla
from cursorstore import MemoryCursorStore
from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaProcess
from rscylla.eventsourcing import Built, EventMessages, EventTypes, Timer, firing_id, parking_key
from rscylla.kafka import KafkaPublisher

PROGRAM = Path(eventbank.__file__)
CREATE = f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
PATIENCE_S = 240


def until(check: Callable[[], Any], what: str) -> None:
    never = rscylla.Stop()
    for _ in range(PATIENCE_S * 10):
        if check():
            return
        never.wait(0.1)
    pytest.fail(f"{what}: not within {PATIENCE_S} s")


class Bankrun:
    """A bank in processes: senders that each have a plan, and servers."""

    def __init__(self, scylla: EmbeddedScyllaProcess, kafka: MockKafka, directory: Path) -> None:
        self._host = f"{scylla.contact_points[0]}:{scylla.port}"
        self._kafka = kafka
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        session = scylla.connect()
        session.execute(CREATE)
        self.bank = Bank(session)
        self._errors = (directory / "errors").open("ab")

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAM), *map(str, arguments)]
        found = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._errors)
        self._running.append(found)
        return found

    def serve(self) -> subprocess.Popen[bytes]:
        return self.start("serve", self._host, self._kafka.servers)

    def send(self, name: str) -> subprocess.Popen[bytes]:
        return self.start("send", self._host, self._directory / name, self._directory / f"{name}.done")

    def plan(self, name: str, commands: list[tuple[str, str, int]]) -> None:
        (self._directory / name).write_text("".join(json.dumps(command) + "\n" for command in commands))

    def done(self, name: str) -> set[str]:
        path = self._directory / f"{name}.done"
        return set(path.read_text().split()) if path.exists() else set()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._running.remove(process)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._errors.close()

    def builds(self) -> Built:
        return self.bank.projector.find_builds(fresh=True)

    def shown(self) -> dict[str, tuple[int, int]]:
        return self.bank.balances.rows(self.builds().active)

    def published(self) -> dict[str, list[int]]:
        """Return the versions by account in the order of the topic, without those that came again."""
        found: dict[str, dict[int, None]] = {}
        for message in self._kafka.read("account"):
            versions = found.setdefault((message.key or b"").decode(), {})
            versions[int(dict(message.headers)["version"] or b"")] = None
        return {account: list(versions) for account, versions in found.items()}


def histories(bank: Bank) -> dict[str, list[Any]]:
    """Return the records of all accounts."""
    found: dict[str, list[Any]] = {}
    for page in bank.store.scan():
        for record in page.records:
            found.setdefault(record.aggregate.id, []).append(record)
    return found


def check_history(records: list[Any], amounts: dict[str, int]) -> int:
    """Play the commands of a history in its order by a model; return the balance. Each must have led to its events."""
    balance, commands = 0, list(dict.fromkeys(record.causation_id for record in records))
    events: list[tuple[str, int]] = []
    for command in commands:
        amount = amounts[command]
        assert balance + amount >= 0
        balance += amount
        if amount > 0:
            events.append(("PaidIn", amount))
        else:
            events += [("PaidOut", -amount - 1), ("PaidOut", 1)] if amount < -1 else [("PaidOut", 1)]
    assert [(record.type, json.loads(record.data)["amount"]) for record in records] == events
    assert [record.version for record in records] == list(range(1, len(records) + 1))
    return balance


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(
    max_examples=1,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32))
def test_a_thousand_commands_with_kills_leave_store_projection_and_broker_in_agreement(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    accounts = [f"a{n}" for n in range(12)]
    amounts: dict[str, int] = {}
    with ExitStack() as stack:
        kafka = stack.enter_context(MockKafka(partitions=3))
        kafka.create("account")
        scylla = stack.enter_context(EmbeddedScyllaProcess())
        run = Bankrun(scylla, kafka, tmp_path_factory.mktemp("bank"))
        stack.callback(run.close)
        plans: dict[str, list[tuple[str, str, int]]] = {f"plan{n}": [] for n in range(3)}
        for number in range(1000):
            command = f"command{number}", dice.choice(accounts), dice.randrange(-40, 60)
            amounts[command[0]] = command[2]
            plan = plans[dice.choice(list(plans))]
            plan.append(command)
            if dice.random() < 0.05:  # sent twice, by whatever process
                plans[dice.choice(list(plans))].append(command)
        now = datetime.now(UTC)
        for number in range(30):
            due = now + timedelta(milliseconds=dice.randrange(20_000))
            timer = Timer(f"t{number}", due, json.dumps([dice.choice(accounts), 1]))
            amounts[str(firing_id(timer))] = 1
            run.bank.timers.schedule(timer)
        for name, commands in plans.items():
            run.plan(name, commands)
        senders = {name: run.send(name) for name in plans}
        servers = [run.serve(), run.serve()]
        kills = 0

        def all_sent() -> bool:
            return all(len(run.done(name)) == len({c[0] for c in plan}) for name, plan in plans.items())

        while not all_sent():
            before = sum(len(run.done(name)) for name in plans)
            step = dice.randrange(60, 150)
            until(lambda: all_sent() or sum(len(run.done(n)) for n in plans) >= before + step, "commands")  # noqa: B023
            if all_sent():
                break
            name = dice.choice([n for n, plan in plans.items() if len(run.done(n)) < len({c[0] for c in plan})])
            run.kill(senders[name])
            senders[name] = run.send(name)
            kills += 1
            if kills % 3 == 0:
                run.kill(servers.pop(dice.randrange(2)))
                servers.append(run.serve())
                with suppress(rscylla.ConfigError):  # the last one is not dropped yet
                    run.bank.projector.rebuild()
        assert kills >= 4
        for sender in senders.values():
            assert sender.wait(PATIENCE_S) == 0
        until(lambda: not run.bank.timers.due(datetime.now(UTC) + timedelta(minutes=1), 1), "timers")

        found = histories(run.bank)
        balances = {account: check_history(records, amounts) for account, records in found.items()}
        fired = [r for records in found.values() for r in records if not r.causation_id.startswith("command")]
        assert len(fired) == len({r.causation_id for r in fired}) == 30
        expected = {account: (len(records), balances[account]) for account, records in found.items()}
        until(
            lambda: run.bank.balances.rows(run.bank.projector.find_builds(fresh=True).active) == expected,
            "the projection",
        )
        until(
            lambda: {k: len(v) for k, v in run.published().items()} == {k: len(v) for k, v in found.items()}, "broker"
        )
        assert run.published() == {account: list(range(1, len(records) + 1)) for account, records in found.items()}
        # A last rebuild, from nothing, is equal to what the kills and rebuilds before led to.
        until(lambda: not run.builds().building, "the build under way")
        until(lambda: not run.builds().retired, "the drop of the build before")
        build = run.bank.projector.rebuild()
        until(lambda: run.builds().active == build, "a rebuild")
        assert run.shown() == expected
        assert list(run.bank.letters.list_letters()) == []
        for server in servers:
            server.terminate()
        for server in servers:
            assert server.wait(60) == 0


@pytest.fixture
def bank() -> Iterator[Bank]:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute(CREATE)
        yield Bank(session)


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with MockKafka(partitions=3) as cluster:
        cluster.create("account")
        yield cluster


class Lane:
    """A lane in a thread, whose cursors outlive it."""

    def __init__(self, bank: Bank, make: Callable[[], Any]) -> None:
        stream = rscylla.NewStream(bank.session, KEYSPACE, "rscylla_events", poll=timedelta(milliseconds=10))
        self.registry = CollectorRegistry()
        self._cursors = MemoryCursorStore()
        self._stop = rscylla.Stop()
        self.errors: list[Exception] = []
        spec = rscylla.Spec(stream, self._cursors, make(), rscylla.StreamLag(milliseconds=50), registry=self.registry)
        self._thread = threading.Thread(
            target=rscylla.run_forever, args=(spec,), kwargs={"stop": self._stop, "on_error": self.errors.append}
        )
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def versions(kafka: MockKafka) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for message in kafka.read("account"):
        found.setdefault(message.key or b"", []).append(int(dict(message.headers)["version"] or b""))
    return found


@pytest.mark.timeout(300)
def test_a_lane_waits_for_a_broker_that_is_down_and_keeps_the_order(bank: Bank, kafka: MockKafka) -> None:
    with ExitStack() as stack:
        publisher = KafkaPublisher({"bootstrap.servers": kafka.servers, "log_level": 2})
        stack.callback(publisher.close)
        bank.handler.handle("a", 1)
        lane = Lane(bank, lambda: bank.publishing("broker", publisher))
        stack.callback(lane.close)
        until(lambda: versions(kafka), "the first event")
        kafka.down()
        for number in range(60):
            bank.handler.handle(f"{'abc'[number % 3]}", 1)
        until(publisher.trouble, "the broker's trouble")
        until(
            lambda: lane.registry.get_sample_value("rscylla_unfinished_events", {"consumer_name": "broker"}),
            "a lane that waits",
        )
        kafka.up()
        until(lambda: sum(map(len, versions(kafka).values())) >= 61, "all events")
        found = {key: list(dict.fromkeys(of)) for key, of in versions(kafka).items()}
        assert found == {b"a": list(range(1, 22)), b"b": list(range(1, 21)), b"c": list(range(1, 21))}
        assert list(bank.letters.list_letters()) == []
        assert lane.errors == []


@pytest.mark.timeout(300)
def test_a_poison_event_is_parked_with_its_aggregate_and_replayed_after_the_fix(bank: Bank, kafka: MockKafka) -> None:
    with ExitStack() as stack:
        publisher = KafkaPublisher({"bootstrap.servers": kafka.servers, "log_level": 2})
        stack.callback(publisher.close)
        bank.handler.handle("a", 1)
        [good] = bank.store.read(ACCOUNTS.id("a"))
        bank.store.append([attrs.evolve(good, version=2, event_id=uuid.uuid4(), type="Gift", data='{"value":2}')])
        bank.store.append([attrs.evolve(good, version=3, event_id=uuid.uuid4())])
        bank.handler.handle("b", 5)
        with ExitStack() as lanes:
            lanes.callback(Lane(bank, lambda: bank.publishing("broker", publisher)).close)
            lanes.callback(Lane(bank, lambda: bank.projecting("balances")).close)
            until(lambda: versions(kafka) == {b"a": [1], b"b": [1]}, "the others")
            until(lambda: dict(bank.letters.count_letters()) == {"broker": 2, "balances": 2}, "letters")
        newer = EventTypes()
        newer.register(PaidIn)
        newer.upcaster("Gift", 1, to=("PaidIn", 1))(lambda data: {"amount": data["value"]})
        mended = Bank(bank.session, newer)
        project, messages = mended.projector.consumer("balances"), EventMessages(decode=newer.decode)
        outcomes: list[Exception | None] = []

        def publish(event: rscylla.Event) -> None:
            publisher.publish(messages(event), outcomes.append)
            assert publisher.flush(60)

        def replay(consumer: str, handle: Callable[[rscylla.Event], None]) -> tuple[int, int]:
            return rscylla.replay_letters(bank.letters, consumer, handle, key=parking_key)

        assert replay("balances", lambda event: project.consume(event, rscylla.Run("balances"))) == (2, 0)
        assert replay("broker", publish) == (2, 0)
        assert outcomes == [None, None]
        assert versions(kafka) == {b"a": [1, 2, 3], b"b": [1]}
        with ExitStack() as lanes:
            lanes.callback(Lane(mended, lambda: mended.projecting("balances")).close)
            bank.handler.handle("b", 6)
            assert mended.projector.wait_for(ACCOUNTS.id("b"), 2, timedelta(seconds=PATIENCE_S)) == 2
            assert mended.balances.rows(mended.projector.active()) == {"a": (3, 4), "b": (2, 11)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_timers_fire_once_in_effect_over_kills(tmp_path: Path) -> None:
    """Two servers fire the same timers and are killed again and again."""
    with ExitStack() as stack:
        kafka = stack.enter_context(MockKafka())
        kafka.create("account")
        run = Bankrun(stack.enter_context(EmbeddedScyllaProcess()), kafka, tmp_path)
        stack.callback(run.close)
        now = datetime.now(UTC)
        timers = [Timer(f"t{n}", now + timedelta(milliseconds=100 * n), '["a", 1]') for n in range(120)]
        for timer in timers:
            assert run.bank.timers.schedule(timer)
        servers = [run.serve(), run.serve()]
        head = 0
        for _ in range(4):
            until(lambda: run.bank.store.head(ACCOUNTS.id("a")) > head + 5, "timers that fire")  # noqa: B023
            run.kill(servers.pop(0))
            servers.append(run.serve())
            head = run.bank.store.head(ACCOUNTS.id("a"))
        # Not those that are due now: between two, there may be none.
        until(lambda: not run.bank.timers.due(timers[-1].due, 1), "the last timer")
        records = list(run.bank.store.read(ACCOUNTS.id("a")))
        assert sorted(r.causation_id for r in records) == sorted(str(firing_id(t)) for t in timers)
        assert run.bank.handler.load("a").state == Account(len(timers))
