"""The child of an `EmbeddedScyllaProcess`: a server until its standard input ends, or SIGINT or SIGTERM."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from .errors import EmbeddedScyllaError
from .facade import EmbeddedScylla

__all__ = ["main"]


def main() -> int:
    """Serve until told to stop. Prints one JSON line when listening. Returns the exit code: 0, or 1 on failure."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # Collect less often: millions of stored cells are not garbage, and this process holds little else.
    gc.set_threshold(50_000, 20, 50)
    # Here, not on the command line, which would show passwords to everyone.
    options = pickle.loads(bytes.fromhex(sys.stdin.readline()))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        scylla = EmbeddedScylla(**options).start()
    except (EmbeddedScyllaError, ValueError) as error:
        _say({"number": 0, **_refusal(error)})
        return 1
    with scylla:
        listens = {"port": scylla.port, "shard_aware_port": scylla.shard_aware_port}
        _say({"number": 0, "contact_points": scylla.contact_points, **listens})
        # A daemon: a read from standard input cannot be cut short when a signal ends the process.
        threading.Thread(target=_obey, args=(scylla, stop), daemon=True).start()
        stop.wait()
    return 0


def _obey(scylla: EmbeddedScylla, stop: threading.Event) -> None:
    """Carry out the commands of the parent process until it closes the pipe."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = _carry_out(scylla, command)
        except (EmbeddedScyllaError, ValueError) as error:
            answer = _refusal(error)
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


def _refusal(error: Exception) -> dict[str, Any]:
    return {"error": str(error), "is_value_error": isinstance(error, ValueError)}


def _say(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
