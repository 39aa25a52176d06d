"""A consumer process is killed with SIGKILL again and again; nothing is lost, and little comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from orderwriter import OrderWriter

import rscylla
from cursorstore import ScyllaDeadLetters
from rscylla.embedded import EmbeddedScylla

CONSUMER = Path(__file__).resolve().parents[1] / "support" / "soaks" / "kill_consumer.py"
LAG_MS = 100
KEYS = 40
POISON = 37
"""With dead letters, numbers that are 5 modulo this always fail."""


@pytest.fixture
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(ring_delay=timedelta(milliseconds=100)) as server:
        yield server


def start(scylla: EmbeddedScylla, out: Path, *options: str) -> subprocess.Popen[bytes]:
    host = f"{scylla.contact_points[0]}:{scylla.port}"
    command = [sys.executable, str(CONSUMER), host, str(out), str(LAG_MS), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read(out: Path) -> list[list[str]]:
    """Return the whole lines as (process, key, number, event id); a line cut by a kill cannot be: it is one write."""
    return [line.split("\t") for line in out.read_text().splitlines()]


def await_events(out: Path, consumer: subprocess.Popen[bytes], some: int) -> None:
    """Wait until *consumer* has delivered one event and some more."""
    delivered = f"{consumer.pid}\t"
    for _ in range(6000):
        if out.exists() and sum(line.startswith(delivered) for line in out.read_text().splitlines()) > some:
            return
        assert consumer.poll() is None, "it ended by itself"
        rscylla.Stop().wait(0.01)
    raise AssertionError("it delivered nothing for a minute")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kills", "options", "bound"),
    [(50, (), 1), (10, ("--buffered", "50"), None), (10, ("--workers", "4", "--poison", str(POISON)), 64)],
    ids=["scylla", "buffered", "concurrent with dead letters"],
)
def test_kill_9_loses_nothing(
    scylla: EmbeddedScylla, tmp_path: Path, kills: int, options: tuple[str, ...], bound: int | None
) -> None:
    """*bound*: events that may be repeated after one kill; None if it depends on the speed of the machine."""
    seed = int(os.environ.get("RSCYLLA_SEED", random.randrange(2**32)))
    print(f"RSCYLLA_SEED={seed}")
    dice = random.Random(seed)
    out = tmp_path / "delivered"
    writer = OrderWriter(scylla, keys=KEYS, pause_s=0.004)
    writer.start()
    for kill in range(kills):
        consumer = start(scylla, out, *options)
        assert consumer.stdout is not None
        if dice.random() < 0.8:  # else it is killed while it starts
            assert consumer.stdout.readline() == b"started\n"
            await_events(out, consumer, dice.randrange(60))
        assert consumer.poll() is None, "it must still be running when it is killed"
        consumer.kill()
        consumer.communicate()
        if kill == kills // 2:
            scylla.new_generation(delay=timedelta(seconds=6))
    writer.end()
    assert not rscylla.Stop().wait(LAG_MS / 1000)  # the last writes reach the lag
    last = start(scylla, out, "--to-head", *options)
    _, errors = last.communicate(timeout=60)
    assert last.returncode == 0, errors.decode()

    events = read(out)
    numbers = [int(line[2]) for line in events]
    poison = {n for n in range(writer.written) if n % POISON == 5} if "--poison" in options else set()
    lost = sorted(set(range(writer.written)) - set(numbers) - poison)
    assert lost == []
    assert len({*numbers, *poison}) == writer.written > 100
    if poison:
        # Exactly the poison became letters, each after as many attempts as if no process had died.
        letters = list(ScyllaDeadLetters(scylla.connect(), "shop").list_letters("kill"))
        assert {letter.event.change.after["n"] for letter in letters} == poison.difference(numbers) == poison
        assert {letter.attempts for letter in letters} == {4}
    duplicates = sum(n - 1 for n in Counter(numbers).values())
    assert bound is None or duplicates <= bound * kills
    # Most were killed at work: it is of them that something is shown.
    assert len({process for process, *_ in events}) > kills / 2
    # Each event has one identity, whichever process delivered it.
    assert len({(line[2], line[3]) for line in events}) == writer.written - len(poison)
    for key in range(KEYS):
        by_process: dict[str, list[int]] = {}
        for process, foreign_id, number, _ in events:
            if foreign_id == f'{{"id":{key}}}':
                by_process.setdefault(process, []).append(int(number))
        assert all(numbers == sorted(numbers) for numbers in by_process.values())
    print(f"kills {kills}, written {writer.written}, duplicates {duplicates}")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "options", [(), ("--buffered", "50"), ("--workers", "4")], ids=["plain", "buffered", "workers"]
)
def test_an_event_that_kills_its_process_is_put_aside(
    scylla: EmbeddedScylla, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "delivered"
    session = scylla.connect()
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, n int) WITH cdc = {'enabled': true}")
    for n in range(20):
        session.execute("INSERT INTO shop.orders (id, n) VALUES (%s, %s)", (n, n))
    codes = []
    while len(codes) < 10 and (not codes or codes[-1]):
        with start(scylla, out, "--to-head", "--deadly", "7", *options) as consumer:
            consumer.communicate(timeout=100)
            codes.append(consumer.returncode)
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
    assert 4 <= len(codes) - 1 <= 5, "retries are 3; a death may be another event's where several are at hand"
    delivered = Counter(int(number) for _, _, number, _ in read(out))
    assert sorted(delivered) == [n for n in range(20) if n != 7]
    [letter] = ScyllaDeadLetters(session, "shop").list_letters("kill")
    assert (letter.event.foreign_id, letter.error) == ('{"id":7}', "rscylla.errors.ProcessDied")
