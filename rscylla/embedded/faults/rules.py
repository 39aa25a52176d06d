"""Breaking a cluster on purpose: the owner's side. What is asked for here is done in ``board.py``.

    scylla.faults.stop_node("127.0.0.2")
    with scylla.faults.fail("overloaded", Statements(kind="select", table="orders_scylla_cdc_log"), times=3):
        ...

One class serves a server in this process and one in a process of its own; all it sends is JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self

import attrs

__all__ = ["FaultName", "Faults", "Rule", "StatementKind", "Statements"]

FaultName = Literal[
    "unavailable",
    "read_timeout",
    "write_timeout",
    "read_failure",
    "write_failure",
    "overloaded",
    "bootstrapping",
    "unprepared",
    "rate_limit",
    "server_error",
    "invalid",
    "unauthorized",
]
"""An error of the protocol. ``unprepared`` is met by prepared statements only."""

StatementKind = Literal["select", "insert", "update", "delete", "batch", "prepare", "other"]

Send = Callable[[str, Mapping[str, Any]], Any]


@attrs.frozen
class Statements:
    """Which requests a fault meets: those that fit all that is given. The default is every request.

    Args:
        kind: What they do. A batch fits ``batch`` and the kinds of its statements. A request to prepare a statement is
            met only when ``prepare`` is asked for, and USE, which drivers send as they connect, never.
        keyspace: The keyspace they name. System keyspaces, which drivers live on, are met only when named here.
        table: The table they name; that of a CDC log ends in ``_scylla_cdc_log``.
        matching: A regular expression that is found in their text, in any case.
        node: Address of the node that they are sent to.
        later_pages: Only requests that ask for a second or later page.
    """

    kind: StatementKind | None = None
    keyspace: str | None = None
    table: str | None = None
    matching: str | None = attrs.field(default=None)
    node: str | None = None
    later_pages: bool = False

    @matching.validator
    def _check_matching(self, _: Any, value: str | None) -> None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"matching: {value!r} is no regular expression: {error}") from error


EVERY = Statements()


class Rule:
    """A fault that was asked for and lasts until it met as many requests as it should, or is removed.

    As a context manager it is removed at the end. Thread-safe.
    """

    def __init__(self, send: Send, number: int) -> None:
        self._send = send
        self._number = number

    @property
    def number(self) -> int:
        """Its number, by which `Faults.rule` finds it; unique as long as the server runs."""
        return self._number

    @property
    def hits(self) -> int:
        """How many requests it met so far."""
        return int(self._send("hits", {"number": self._number}))

    def remove(self) -> None:
        """End it. Harmless when it has ended."""
        self._send("remove", {"number": self._number})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """Faults to inject into an embedded cluster. Thread-safe.

    The rules for requests share three arguments: ``times`` is how many requests they meet, None for all until they are
    removed; ``probability`` is the chance of each of them to be met; ``seed`` makes that repeatable. Where several
    rules fit, the oldest one that is not exhausted is taken.

    Raises (all methods):
        EmbeddedScyllaError: the server does not run, or no node has that address.
        ValueError: an argument makes no sense.
    """

    def __init__(self, send: Send) -> None:
        self._send = send

    # ------------------------------------------------------------ nodes

    def stop_node(self, address: str) -> None:
        """Cut a node's clients and close its port, then tell the clients of the others that it is DOWN.

        What the cluster stores is not lost: the nodes of an embedded cluster share it.
        """
        self._send("stop_node", {"address": address})

    def start_node(self, address: str) -> None:
        """Let a stopped node listen again on its old port, and tell the clients of the others that it is UP."""
        self._send("start_node", {"address": address})

    def stall_node(self, address: str) -> None:
        """Let a node take connections and requests, but answer none before `resume_node`: like one that hangs.

        It does not tell that a USING TIMEOUT is over, either.
        """
        self._send("stall_node", {"address": address})

    def slow_node(self, address: str, by: timedelta) -> None:
        """Let a node take this much longer for each request, until `resume_node`.

        A statement whose USING TIMEOUT is shorter gets the time-out error then, by the server's clock, as with `delay`.
        """
        self._send("slow_node", {"address": address, "delay_s": by.total_seconds()})

    def resume_node(self, address: str) -> None:
        """End `stall_node` and `slow_node`: what was asked meanwhile is answered now."""
        self._send("resume_node", {"address": address})

    def skew_clock(self, address: str, by: timedelta) -> None:
        """Set a node's clock off by this much: ahead, or behind when negative. Zero sets it right."""
        self._send("skew_clock", {"address": address, "skew_us": by // timedelta(microseconds=1)})

    # ------------------------------------------------------------ answers

    def fail(
        self,
        fault: FaultName,
        on: Statements = EVERY,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int | None = None,
        applied: bool = False,
    ) -> Rule:
        """Answer requests with an error. ``applied``: only after they were carried out, as with a real time-out."""
        return self._rule("fail", on, times, probability, seed, fault=fault, applied=applied)

    def no_answer(
        self,
        on: Statements = EVERY,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int | None = None,
        applied: bool = False,
    ) -> Rule:
        """Never answer requests, so that the client's own time-out has to end them. ``applied``: as with `fail`."""
        return self._rule("no_answer", on, times, probability, seed, applied=applied)

    def delay(
        self,
        by: timedelta,
        on: Statements = EVERY,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int | None = None,
    ) -> Rule:
        """Carry requests out this much later.

        A statement whose USING TIMEOUT is over before, by the server's clock, gets the time-out error then, and is not
        carried out.
        """
        return self._rule("delay", on, times, probability, seed, delay_s=by.total_seconds())

    def drop_connection(
        self,
        on: Statements = EVERY,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int | None = None,
        partway: bool = False,
    ) -> Rule:
        """Cut the connection that a request came by instead of answering. ``partway``: after half of the answer."""
        return self._rule("drop", on, times, probability, seed, partway=partway)

    def cut_pages(
        self,
        rows: int | None = None,
        on: Statements = EVERY,
        *,
        times: int | None = None,
        probability: float = 1.0,
        seed: int | None = None,
        empty: bool = False,
    ) -> Rule:
        """Answer SELECTs with smaller pages than asked for: at most ``rows``.

        ``empty``: pages without a row that still say there is more, as Scylla sends them, come before those with rows.
        Requests without a page size stay whole.
        """
        return self._rule("cut", on, times, probability, seed, rows=rows, empty=empty)

    # ------------------------------------------------------------ writes

    def replay_writes(self, keyspace: str | None = None, table: str | None = None, *, times: int | None = 1) -> Rule:
        """Put the log rows of writes into the log twice: same time, other random bits, other UUIDs.

        So it is when another coordinator completes a Paxos round and repeats its last step.
        """
        return self._rule("replay", Statements(keyspace=keyspace, table=table), times, 1.0, None)

    def hold_writes(self, keyspace: str | None = None, table: str | None = None, *, times: int | None = None) -> Rule:
        """Take writes and answer that they are done, but carry them out only at `deliver_held`: late rows.

        Base and log rows keep the time they were written at, and nobody sees them before.
        """
        return self._rule("hold", Statements(keyspace=keyspace, table=table), times, 1.0, None)

    def deliver_held(self) -> int:
        """Carry out the writes that were held back, in their order. Return how many requests those were.

        Raises EmbeddedScyllaError if a table of theirs was changed or dropped meanwhile; that write is let go.
        """
        return int(self._send("deliver_held", {}))

    # ------------------------------------------------------------ all

    def rule(self, number: int) -> Rule:
        """Return the rule with this number; its methods raise ValueError if there is none."""
        return Rule(self._send, number)

    def clear(self) -> None:
        """End all rules, stalls, delays and skews, start the stopped nodes, and deliver what was held back."""
        self._send("clear", {})

    def _rule(
        self, action: str, on: Statements, times: int | None, probability: float, seed: int | None, **arguments: Any
    ) -> Rule:
        sent = {"action": action, "on": attrs.asdict(on), "times": times, "probability": probability, "seed": seed}
        return Rule(self._send, int(self._send("add", {**sent, "arguments": arguments})))
