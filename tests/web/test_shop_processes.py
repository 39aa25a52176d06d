"""The shop of the event sourcing example as processes: one command starts it, others join, and SIGTERM ends it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import rscylla

pytest.importorskip("fastapi", reason="pip install 'rscylla[examples]'")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 60.0


@attrs.frozen
class Process:
    running: subprocess.Popen[str]
    url: str
    join: list[str]
    """The arguments of a process that joins this one."""

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def until(self, held: int, members: int) -> None:
        """Wait until the process holds so many slices of a group of so many."""
        clock, never = rscylla.SystemClock(), rscylla.Stop()
        deadline = clock.monotonic() + PATIENCE_S
        while (group := self.ask("api/operations")["group"])["held"] != held or group["members"] != members:
            assert clock.monotonic() < deadline, group
            clock.wait(never, 0.1)


@contextmanager
def started(*arguments: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "event_sourcing", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, text=True) as running:
        try:
            join: list[str] = []
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("http"):
                    break
                join = shlex.split(line.partition("event_sourcing ")[2])
            else:
                pytest.fail("the shop ended before it listened")
            yield Process(running, line.split()[0], join)
        finally:
            running.kill()


@pytest.mark.timeout(300)
def test_a_second_process_joins_takes_its_share_and_hands_it_back() -> None:
    with started("--slices", "4") as first:
        first.until(held=4, members=1)
        with started(*first.join) as second:
            first.until(held=2, members=2)
            second.until(held=2, members=2)
            anna = {"email": "a@example.com", "first_name": "Anna", "last_name": "Berg"}
            customer = first.ask("api/customers", anna)["id"]
            items = [{"product_id": "cup", "quantity": 1}]
            orders = {
                process.ask("api/orders", {"customer_id": customer, "items": items})["id"]
                for process in (first, second, first, second, first, second)
            }
            second.running.send_signal(signal.SIGTERM)
            assert second.running.wait(PATIENCE_S) == 0
        first.until(held=4, members=1)
        clock, never = rscylla.SystemClock(), rscylla.Stop()
        deadline = clock.monotonic() + PATIENCE_S
        while {one["order_id"] for one in first.ask("api/orders")} != orders:
            assert clock.monotonic() < deadline
            clock.wait(never, 0.1)
        first.running.send_signal(signal.SIGTERM)
        assert first.running.wait(PATIENCE_S) == 0
