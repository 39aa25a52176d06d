"""Runs the shop: ``python -m examples.event_sourcing``.

Alone, it brings an embedded Scylla and a mock broker. With addresses, it uses those, and each further process joins the
group of the first.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import uvicorn

import rscylla

from .api import application
from .broker import mock_broker
from .settings import Settings, parse
from .shop import Shop, create_keyspace

log = logging.getLogger("shop")

STOP_S = 10.0
"""How long requests may take to end."""


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    settings = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("cassandra").setLevel(logging.ERROR)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        session, scylla = stack.enter_context(_sessions(settings))
        servers = settings.kafka or stack.enter_context(mock_broker())
        create_keyspace(session, settings)
        shop = Shop(session, servers, settings)
        stack.callback(shop.close)
        if settings.is_embedded or not settings.kafka:
            print(
                f"another process joins with: python -m examples.event_sourcing --scylla {scylla} --kafka {servers} "
                f"--lag {settings.lag.total_seconds():g} --port 0",
                flush=True,
            )
        return serve(
            shop,
            settings,
            stop,
            lambda host, port: print(f"{_url(host, port)}  (Ctrl-C stops the shop)", flush=True),
        )


def serve(shop: Shop, settings: Settings, stop: threading.Event, listening: Callable[[str, int], None]) -> int:
    """Run the service and the web until *stop* is set or the service gives up; return the exit code.

    The web ends first, so that no command comes to a process whose readers have ended. *listening* is called with the
    address once the web answers.
    """
    shop.service.start()
    web = uvicorn.Server(
        uvicorn.Config(
            application(shop, settings.allowed_hosts),
            settings.host,
            settings.port,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=int(STOP_S),
        )
    )
    # In a thread of its own, it leaves the signals of the process alone.
    thread = threading.Thread(target=_run, args=(web, stop), name="shop-web")
    thread.start()
    threading.Thread(target=_watch, args=(shop.service.wait, stop), name="shop-watch", daemon=True).start()
    while not web.started and not stop.wait(0.05):
        pass
    if web.started:
        listening(*web.servers[0].sockets[0].getsockname()[:2])
    stop.wait()
    log.info("stopping")
    web.should_exit = True
    thread.join()
    shop.service.stop()
    shop.service.wait()
    log.info("stopped with exit code %d", shop.service.exit_code)
    return shop.service.exit_code or (0 if web.started else 1)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _run(web: uvicorn.Server, stop: threading.Event) -> None:
    try:
        web.run()
    except SystemExit:  # it could not listen, and has logged why
        log.error("the web server did not start; is the port in use?")
    finally:
        stop.set()


def _watch(wait: Callable[[], bool], stop: threading.Event) -> None:
    wait()
    stop.set()


@contextmanager
def _sessions(settings: Settings) -> Iterator[tuple[rscylla.Session, str]]:
    """Yield a session to the cluster of the settings, or to one of this process, and its address."""
    with ExitStack() as stack:
        where = settings.scylla
        if settings.is_embedded:
            from rscylla.embedded import EmbeddedScylla  # needs packages that a cluster does not

            scylla = stack.enter_context(EmbeddedScylla())
            where = (f"{scylla.contact_points[0]}:{scylla.port}",)
        session = rscylla.connect(where, username=settings.username, password=settings.password)
        stack.callback(session.cluster.shutdown)
        yield session, ",".join(where)


if __name__ == "__main__":
    sys.exit(main())
