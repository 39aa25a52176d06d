"""How an embedded server is controlled from outside its process: commands and answers as lines of JSON.

`Commands` is the side that asks, `answer` the side that does it: a command is the name of a method of `Commands`, which
the server has as well, with its arguments. Two channels carry the lines: the pipes of an `EmbeddedScyllaProcess`, and
the Unix socket of ``sockets.py``. A span of time is in milliseconds, a point in time as ISO 8601 has it.

    {"command": "add_node", "number": 1, "delay_ms": 5000}
    {"number": 1, "result": "127.0.0.2"}
    {"number": 2, "error": "no node has the address 127.0.0.9; the nodes are 127.0.0.1", "is_value_error": false}
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ..clock import checked_seconds
from ..errors import EmbeddedScyllaError
from ..faults.rules import Faults

if TYPE_CHECKING:
    from ..cluster.descriptions import Rewriting

__all__ = ["Commands", "answer", "refusal", "result_of"]

_SPAN: Final = "_ms"

log = logging.getLogger("rscylla.embedded")


class Commands:
    """What an embedded server in another process can be told; each method does what it does on `EmbeddedScylla`.

    Raises (all methods): EmbeddedScyllaError, if the server does not answer or cannot do it; ValueError for an argument
    that makes no sense.
    """

    def _command(self, name: str, /, **arguments: Any) -> Any:
        """Send a command and return its result."""
        spans = {key: value for key, value in arguments.items() if isinstance(value, timedelta)}
        sent = {key: value for key, value in arguments.items() if value is not None and key not in spans}
        sent |= {key + _SPAN: value / timedelta(milliseconds=1) for key, value in spans.items()}
        return self._ask({"command": name, **sent})["result"]

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def contact_points(self) -> list[str]:
        """Addresses of the current nodes."""
        return list(self._command("contact_points"))

    @property
    def listening_nodes(self) -> list[str]:
        """Addresses of the current nodes that listen: those that no fault has stopped."""
        return list(self._command("listening_nodes"))

    def status(self) -> dict[str, Any]:
        """Return the state of the server, see `EmbeddedScylla.status`."""
        return dict(self._command("status"))

    def add_node(self, delay: timedelta | None = None) -> str:
        """Add a node, see `EmbeddedScylla.add_node`; return its address."""
        return str(self._command("add_node", delay=delay))

    def remove_node(self, address: str) -> None:
        """Remove a node, see `EmbeddedScylla.remove_node`."""
        self._command("remove_node", address=address)

    def new_generation(self, delay: timedelta | None = None) -> datetime:
        """Create a CDC generation, see `EmbeddedScylla.new_generation`; return its time."""
        return datetime.fromisoformat(self._command("new_generation", delay=delay))

    def split_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Split each tablet of a table in two, see `EmbeddedScylla.split_tablets`; return the time of the new set."""
        return datetime.fromisoformat(self._command("split_tablets", keyspace=keyspace, table=table, delay=delay))

    def merge_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Merge tablets two by two, see `EmbeddedScylla.merge_tablets`; return the time of the new set."""
        return datetime.fromisoformat(self._command("merge_tablets", keyspace=keyspace, table=table, delay=delay))

    def expire_rows(self) -> int:
        """Delete the rows that have expired by their table's TTL column; return how many there were."""
        return int(self._command("expire_rows"))

    def upgrade(self, rewriting: Rewriting = "done") -> None:
        """Upgrade from 4.3 to 4.4, see `EmbeddedScylla.upgrade`."""
        self._command("upgrade", rewriting=rewriting)

    def finish_rewriting(self) -> None:
        """Copy the generations that an upgrade omitted, see `EmbeddedScylla.finish_rewriting`."""
        self._command("finish_rewriting")

    def advance(self, by: timedelta) -> None:
        """Advance the clock of a server whose clock is a `ManualClock`."""
        self._command("advance", by=by)

    def call_fault(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Do one thing that `Faults` asks for; arguments and result are JSON."""
        return self._command("call_fault", name=name, arguments=arguments)

    @property
    def faults(self) -> Faults:
        """Faults to inject into this cluster, see `EmbeddedScylla.faults`."""
        return Faults(self.call_fault)


_NAMES: Final = frozenset(name for name in vars(Commands) if not name.startswith("_") and name != "faults")


def result_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, or raise the error that it carries: of the same kind as `EmbeddedScylla` raises."""
    if "error" in found:
        raise (ValueError if found.get("is_value_error") else EmbeddedScyllaError)(found["error"])
    return found


# ---------------------------------------------------------------- the side of the server


def answer(server: object, line: str | bytes) -> str:
    """Carry out a command on an `EmbeddedScylla`; return the line that answers. Not for the server's own thread."""
    number: Any = None
    found: dict[str, Any]
    try:
        command = json.loads(line, parse_float=_finite, parse_constant=_finite)
        number = command.pop("number", None)
        found = {"result": _carry_out(server, **command)}
    except (EmbeddedScyllaError, ValueError) as error:
        found = refusal(error)
    except (AttributeError, KeyError, TypeError) as error:
        log.debug("a malformed command", exc_info=True)
        found = {"error": f"malformed command ({type(error).__name__}: {error})", "is_value_error": True}
    except Exception as error:
        log.exception("a command failed")
        found = {"error": f"internal error of the embedded server: {type(error).__name__}; its log has the traceback"}
    return json.dumps({"number": number, **found}) + "\n"


def refusal(error: Exception) -> dict[str, Any]:
    """Return the answer that makes `result_of` raise *error* again."""
    return {"error": str(error), "is_value_error": isinstance(error, ValueError)}


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"numbers must be finite, not {text[:40]}")
    return value


def _carry_out(server: object, command: str, **arguments: Any) -> Any:
    if command not in _NAMES:
        raise ValueError(f"unknown command {command!r}")
    spans = {key: checked_seconds(value, 1e-3, key) for key, value in arguments.items() if key.endswith(_SPAN)}
    given = {key: value for key, value in arguments.items() if key not in spans}
    given |= {key.removesuffix(_SPAN): timedelta(seconds=seconds) for key, seconds in spans.items()}
    found = getattr(server, command)
    result = found(**given) if callable(found) else found
    return result.isoformat() if isinstance(result, datetime) else result
