"""``rscylla demo``: writes, reads, crashes, and recovers on one machine, shows the progress, and gives a verdict."""

from __future__ import annotations

import logging
import random
from typing import Annotated

import typer
from typer import Option

from ..shared.failures import Exit, quiet_logs, stopping
from ..shared.options import JsonOutput, command
from ..shared.output import json_line, show, table
from ..shared.standard import say, write
from .check import Verdict
from .run import Demo, DemoPlan, Snapshot

__all__ = ["conclude", "demo"]

_SHOWN = ("written", "delivered", "lost", "duplicates", "out_of_order", "generations", "restarts")


@command
def demo(
    events: Annotated[int, Option(min=20, metavar="N", help="Number of changes to write.")] = DemoPlan().events,
    seed: Annotated[
        int | None,
        Option(
            min=0,
            metavar="S",
            help="Repeat the writes and failures of this seed. Default: a random seed.",
        ),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """Show that no change is lost while a consumer keeps crashing.

    Starts an embedded Scylla, writes to a table of orders, and reads its CDC log with a consumer that fails now and
    then (fate) and crashes without saving its cursor. Halfway, a node joins, which starts a new CDC generation. The
    exit code is 0 only if every change was delivered, and the changes of each order were delivered in sequence.
    """
    from rscylla.embedded import EmbeddedScyllaProcess  # imports packages that other commands do not need

    plan = DemoPlan(events=events, seed=random.SystemRandom().getrandbits(31) if seed is None else seed)
    quiet_logs(logging.ERROR)  # the demo causes warnings on purpose, such as that of a short lag
    with stopping() as stop, EmbeddedScyllaProcess(seed=plan.seed) as scylla:
        work = Demo(scylla, plan)
        stop.on_set(work.stop)
        if not as_json:
            write(_headline(plan))
        verdict = work.run(lambda now: _tell(now, as_json=as_json))
    raise typer.Exit(conclude(verdict, plan, as_json=as_json))


# ---------------------------------------------------------------- while it runs


def _headline(plan: DemoPlan) -> str:
    return (
        f"{plan.events} changes to {plan.orders} orders, seed {plan.seed}; each step fails with a chance of "
        f"{plan.fate:.0%} or less, and the consumer crashes about every {plan.crash_every} steps. "
        f"The lag is {plan.lag.total_seconds():g} s, "
        "which is safe here because one clock stamps all rows; on a cluster, use 30 s or more."
    )


def _tell(now: Snapshot, *, as_json: bool) -> None:
    """Write a line of progress."""
    verdict = now.verdict
    numbers = {
        "phase": now.phase,
        "written": verdict.written,
        "delivered": verdict.delivered,
        "duplicates": verdict.duplicates,
        "lag_s": None if now.lag_s is None else round(now.lag_s, 3),
        "generations": verdict.generations,
        "nodes": now.nodes,
        "restarts": verdict.restarts,
    }
    text = "  ".join(f"{name} {'-' if value is None else value}" for name, value in numbers.items())
    show({"progress": numbers}, text, as_json=as_json)


# ---------------------------------------------------------------- the verdict


def conclude(verdict: Verdict, plan: DemoPlan, *, as_json: bool) -> int:
    """Show the verdict; return the exit code."""
    if as_json:
        write(json_line({name: getattr(verdict, name) for name in _SHOWN}))
    else:
        _show(verdict, plan)
    if verdict.ok:
        return Exit.DONE
    say(f"error: {_what_is_wrong(verdict)} (seed {plan.seed})")
    return Exit.FAILED


def _show(verdict: Verdict, plan: DemoPlan) -> None:
    rows = (
        ("written", "changes that the database confirmed"),
        ("delivered", "confirmed changes that reached the consumer"),
        ("lost", "confirmed changes that did not reach the consumer"),
        ("duplicates", "repeated after a restart, which at-least-once delivery allows"),
        ("out_of_order", "delivered out of order for their key"),
        ("generations", "generations of CDC streams that were read"),
        ("restarts", "restarts of the consumer, after errors of fate or crashes"),
    )
    write("")
    shown = [(name.replace("_", " "), str(getattr(verdict, name)), text) for name, text in rows]
    table(("verdict", "count", "meaning"), shown)
    if verdict.ok:
        write(f"nothing lost, order held (seed {plan.seed})")


def _what_is_wrong(verdict: Verdict) -> str:
    parts = [
        text.format(count)
        for text, count in (
            ("{} changes were lost", verdict.lost),
            ("{} changes were delivered out of order", verdict.out_of_order),
            ("{} delivered changes were never written", verdict.strangers),
        )
        if count
    ]
    return ", ".join(parts) or "nothing was written"
