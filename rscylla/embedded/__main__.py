"""``python -m rscylla.embedded``: one embedded cluster until SIGINT or SIGTERM, or under `EmbeddedScyllaProcess`."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from .durability.durable import COMPACT_BYTES
from .errors import EmbeddedScyllaError
from .facade import EmbeddedScylla
from .process import USERS_VARIABLE
from .wire.tls import Tls

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop. Prints one JSON line when listening. Returns the exit code: 0, or 1 on failure."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # Collect less often: millions of stored cells are not garbage, and this process holds little else.
    gc.set_threshold(50_000, 20, 50)
    users = json.loads(os.environ[USERS_VARIABLE]) if USERS_VARIABLE in os.environ else None
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        scylla = EmbeddedScylla(
            options.nodes,
            port=options.port,
            shards=options.shards,
            vnodes=options.vnodes,
            seed=options.seed,
            ring_delay=timedelta(milliseconds=options.ring_delay_ms),
            users=users,
            tls=_tls(options),
            tablets=bool(options.tablets),
            version=options.scylla_version,
            data_dir=options.data_dir,
            fsync=bool(options.fsync),
            compact_bytes=options.compact_bytes,
        )
        scylla.start()
    except EmbeddedScyllaError as error:
        _say({"number": 0, "error": str(error)})
        return 1
    with scylla:
        _say({"number": 0, "contact_points": scylla.contact_points, "port": scylla.port, "pid": os.getpid()})
        if options.control:
            # A daemon: a read from standard input cannot be cut short when a signal ends the process.
            threading.Thread(target=_obey, args=(scylla, stop), daemon=True).start()
        stop.wait()
    return 0


def _tls(options: argparse.Namespace) -> Tls | None:
    return None if options.tls_cert is None else Tls(options.tls_cert, options.tls_key, options.tls_ca)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rscylla.embedded", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--port", type=int, default=9042, help="0 lets the system choose")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--vnodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--ring-delay-ms", type=int, default=30_000)
    parser.add_argument("--tablets", type=int, default=0, help="1: new keyspaces use tablets unless they say otherwise")
    parser.add_argument("--scylla-version", choices=["4.3", "4.4"], default=None, help="an old Scylla, without tablets")
    parser.add_argument("--data-dir", default=None, help="keep all data there; without it, data is in memory only")
    parser.add_argument("--fsync", type=int, default=0, help="1: answer a write only once the disk has it")
    parser.add_argument("--compact-bytes", type=int, default=COMPACT_BYTES, help="log bytes before a snapshot is made")
    parser.add_argument("--tls-cert", help="PEM file with the nodes' certificate; they then speak TLS only")
    parser.add_argument("--tls-key", help="PEM file with its key")
    parser.add_argument("--tls-ca", help="PEM file of the authority that clients' certificates need (mutual TLS)")
    parser.add_argument("--control", action="store_true", help="take commands on standard input, stop when it ends")
    return parser


def _obey(scylla: EmbeddedScylla, stop: threading.Event) -> None:
    """Carry out the commands of the parent process until it closes the pipe."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = _carry_out(scylla, command)
        except EmbeddedScyllaError as error:
            answer = {"error": str(error)}
        except ValueError as error:
            answer = {"error": str(error), "is_value_error": True}
        except LookupError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _say(answer | {"number": command["number"], "contact_points": scylla.contact_points})
    stop.set()


def _carry_out(scylla: EmbeddedScylla, command: Mapping[str, Any]) -> dict[str, Any]:
    delay = timedelta(milliseconds=command["delay_ms"]) if "delay_ms" in command else None
    match command["command"]:
        case "add_node":
            return {"address": scylla.add_node(delay)}
        case "remove_node":
            scylla.remove_node(command["address"])
        case "new_generation":
            scylla.new_generation(delay)
        case "expire_rows":
            return {"rows": scylla.expire_rows()}
        case "split_tablets":
            scylla.split_tablets(command["keyspace"], command["table"], delay)
        case "merge_tablets":
            scylla.merge_tablets(command["keyspace"], command["table"], delay)
        case "upgrade":
            scylla.upgrade(command["rewriting"])
        case "finish_rewriting":
            scylla.finish_rewriting()
        case "fault":
            return {"result": scylla.call_fault(command["call"], command["arguments"])}
        case unknown:
            return {"error": f"unknown command {unknown!r}"}
    return {}


def _say(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
