"""How an embedded server is controlled from outside its process: commands and answers as lines of JSON.

`Commands` is the side that asks, `answer` the side that does it. Two channels carry the lines: the pipes of an
`EmbeddedScyllaProcess`, and the Unix socket of ``sockets.py``.

    {"command": "add_node", "number": 1, "delay_ms": 5000}
    {"number": 1, "contact_points": ["127.0.0.1", "127.0.0.2"], "address": "127.0.0.2"}
    {"number": 2, "contact_points": [...], "error": "no node has the address 127.0.0.9; ...", "is_value_error": false}
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..clock import ManualClock, checked_seconds, milliseconds
from ..errors import EmbeddedScyllaError
from ..faults.rules import Faults

if TYPE_CHECKING:
    from ..cluster.descriptions import Rewriting
    from ..facade import EmbeddedScylla

__all__ = ["Commands", "answer", "refusal", "result_of"]

_LAST_S: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()

log = logging.getLogger("rscylla.embedded")


class Commands:
    """What an embedded server in another process can be told; each method does what it does on `EmbeddedScylla`.

    Raises (all methods): EmbeddedScyllaError, if the server does not answer or cannot do it; ValueError for an argument
    that makes no sense.
    """

    def _command(self, name: str, delay: timedelta | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        if delay is not None:
            arguments["delay_ms"] = milliseconds(delay)
        return self._ask({"command": name, **arguments})

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return the state of the server, see `EmbeddedScylla.status`."""
        status: dict[str, Any] = self._command("status")["status"]
        return status

    def add_node(self, delay: timedelta | None = None) -> str:
        """Add a node, see `EmbeddedScylla.add_node`; return its address."""
        return str(self._command("add_node", delay)["address"])

    def remove_node(self, address: str) -> None:
        """Remove a node, see `EmbeddedScylla.remove_node`."""
        self._command("remove_node", address=address)

    def new_generation(self, delay: timedelta | None = None) -> datetime:
        """Create a CDC generation, see `EmbeddedScylla.new_generation`; return its time."""
        return _time(self._command("new_generation", delay))

    def split_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Split each tablet of a table in two, see `EmbeddedScylla.split_tablets`; return the time of the new set."""
        return _time(self._command("split_tablets", delay, keyspace=keyspace, table=table))

    def merge_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Merge tablets two by two, see `EmbeddedScylla.merge_tablets`; return the time of the new set."""
        return _time(self._command("merge_tablets", delay, keyspace=keyspace, table=table))

    def expire_rows(self) -> int:
        """Delete the rows that have expired by their table's TTL column; return how many there were."""
        return int(self._command("expire_rows")["rows"])

    def upgrade(self, rewriting: Rewriting = "done") -> None:
        """Upgrade from 4.3 to 4.4, see `EmbeddedScylla.upgrade`."""
        self._command("upgrade", rewriting=rewriting)

    def finish_rewriting(self) -> None:
        """Copy the generations that an upgrade omitted, see `EmbeddedScylla.finish_rewriting`."""
        self._command("finish_rewriting")

    def advance(self, by: timedelta) -> None:
        """Advance the clock of a server whose clock is a `ManualClock`."""
        self._command("advance", seconds=by.total_seconds())

    @property
    def faults(self) -> Faults:
        """Faults to inject into this cluster, see `EmbeddedScylla.faults`."""
        return Faults(lambda name, arguments: self._command("fault", call=name, arguments=arguments).get("result"))


def _time(found: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(found["time"])


def result_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, or raise the error that it carries: of the same kind as `EmbeddedScylla` raises."""
    if "error" in found:
        raise (ValueError if found.get("is_value_error") else EmbeddedScyllaError)(found["error"])
    return found


# ---------------------------------------------------------------- the side of the server


def answer(scylla: EmbeddedScylla, line: str | bytes) -> str:
    """Carry out a command and return the line that answers it. Called on any thread but the server's own."""
    number: Any = None
    found: dict[str, Any]
    try:
        command = json.loads(line, parse_float=_finite, parse_constant=_finite)
        number = command.get("number")
        found = _carry_out(scylla, command)
    except (EmbeddedScyllaError, ValueError) as error:
        found = refusal(error)
    except (AttributeError, KeyError, TypeError) as error:
        log.debug("a malformed command", exc_info=True)
        found = {"error": f"malformed command ({type(error).__name__}: {error})", "is_value_error": True}
    except Exception as error:
        log.exception("a command failed")
        found = {"error": f"internal error of the embedded server: {type(error).__name__}; its log has the traceback"}
    return json.dumps({"number": number, "contact_points": scylla.contact_points, **found}) + "\n"


def refusal(error: Exception) -> dict[str, Any]:
    """Return the answer that makes `result_of` raise *error* again."""
    return {"error": str(error), "is_value_error": isinstance(error, ValueError)}


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"numbers must be finite, not {text[:40]}")
    return value


def _carry_out(scylla: EmbeddedScylla, command: Mapping[str, Any]) -> dict[str, Any]:
    delay = None
    if "delay_ms" in command:
        delay = timedelta(seconds=checked_seconds(command["delay_ms"], 1e-3, "delay_ms"))
    match command["command"]:
        case "status":
            return {"status": scylla.status()}
        case "nodes":
            return {"listening": scylla.listening_nodes}
        case "add_node":
            return {"address": scylla.add_node(delay)}
        case "remove_node":
            scylla.remove_node(command["address"])
        case "new_generation":
            return {"time": scylla.new_generation(delay).isoformat()}
        case "split_tablets":
            return {"time": scylla.split_tablets(command["keyspace"], command["table"], delay).isoformat()}
        case "merge_tablets":
            return {"time": scylla.merge_tablets(command["keyspace"], command["table"], delay).isoformat()}
        case "expire_rows":
            return {"rows": scylla.expire_rows()}
        case "upgrade":
            scylla.upgrade(command["rewriting"])
        case "finish_rewriting":
            scylla.finish_rewriting()
        case "advance":
            if not isinstance(scylla.clock, ManualClock):
                raise EmbeddedScyllaError(
                    "the server runs on the machine's clock; start it with --clock manual, or with a ManualClock"
                )
            seconds = checked_seconds(command["seconds"], 1, "seconds")
            if scylla.clock.now_us() / 1e6 + seconds > _LAST_S:
                raise ValueError("the clock cannot pass the year 9000")
            scylla.clock.advance(seconds)
        case "fault":
            return {"result": scylla.call_fault(command["call"], command["arguments"])}
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")
    return {}
