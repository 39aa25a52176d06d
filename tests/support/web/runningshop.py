"""The shop of the event sourcing example, running in this process on an embedded server and a mock broker."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import attrs
from event_sourcing.__main__ import serve
from event_sourcing.broker import mock_broker
from event_sourcing.settings import Settings
from event_sourcing.shop import Shop, create_keyspace

import rscylla
from rscylla.embedded import EmbeddedScylla

__all__ = ["Answer", "RunningShop", "running_shop"]

PATIENCE_S = 60.0


@attrs.frozen
class Answer:
    """What the web answered: ``content`` is JSON, or text where it is not."""

    status: int
    content: Any
    headers: Mapping[str, str]


@attrs.frozen
class RunningShop:
    """A shop that runs. ``servers``: those of the mock broker."""

    url: str
    shop: Shop
    scylla: EmbeddedScylla
    session: rscylla.Session
    servers: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; ``If_None_Match`` is the header If-None-Match."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return _answer(answer)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error)

    def get(self, path: str, **headers: str) -> Any:
        """Return what a query answers."""
        answer = self.ask("GET", path, **headers)
        assert answer.status == 200, answer
        return answer.content

    def do(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return what a command answers that is carried out and seen."""
        answer = self.ask(method, path, body, Prefer=f"wait={PATIENCE_S:.0f}", **headers)
        assert answer.status in (200, 201), answer
        return answer.content

    def until(self, condition: Any, what: str) -> Any:
        """Wait until *condition* returns something true, and return it; only a minute without it is a failure."""
        clock, never = rscylla.SystemClock(), rscylla.Stop()
        deadline = clock.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert clock.monotonic() < deadline, f"a minute passed without: {what}"
            clock.wait(never, 0.05)
        return found


def _answer(answer: Any) -> Answer:
    text = answer.read().decode()
    is_json = answer.headers.get_content_type().endswith("json")
    return Answer(answer.status, json.loads(text) if is_json and text else text, dict(answer.headers))


@contextmanager
def running_shop(kafka: str = "", **settings: Any) -> Iterator[RunningShop]:
    """Run a shop until the block ends, and see it stop well. *kafka*: a broker, instead of a mock of its own."""
    chosen = Settings(port=0, replication=1, slices=2, lag=timedelta(seconds=0.2), **settings)
    with EmbeddedScylla() as scylla, nullcontext(kafka) if kafka else mock_broker() as servers:
        session = scylla.connect()
        create_keyspace(session, chosen)
        shop = Shop(session, servers, chosen)
        stop, told, codes = threading.Event(), SimpleQueue[tuple[str, int]](), []
        thread = threading.Thread(
            target=lambda: codes.append(serve(shop, chosen, stop, lambda host, port: told.put((host, port))))
        )
        thread.start()
        try:
            host, port = told.get(timeout=PATIENCE_S)
            running = RunningShop(f"http://{host}:{port}/", shop, scylla, session, servers)
            running.until(lambda: running.ask("GET", "/api/orders").status == 200, "a read model")
            yield running
        finally:
            stop.set()
            thread.join()
            shop.close()
        assert codes == [0]
