"""``rscylla demo``: writes, reads, crashes, and recovers on one machine, shows the progress, and gives a verdict."""

from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import attrs
import typer
from typer import Option

import rscylla

from ..shared.failures import Exit, quiet_logs, stopping
from ..shared.options import JsonOutput, command, number
from ..shared.output import json_line
from ..shared.standard import say, write
from .check import Verdict
from .run import Demo, DemoPlan, Snapshot

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["conclude", "demo"]

_SHOWN = ("written", "delivered", "lost", "duplicates", "out_of_order", "generations", "restarts")


@command
def demo(
    events: Annotated[
        int, Option(parser=number(int, least=20), metavar="N", help="Number of changes to write.")
    ] = DemoPlan().events,
    seed: Annotated[
        int | None,
        Option(
            parser=number(int, least=0),
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
    _quieten()
    with stopping() as stop, EmbeddedScyllaProcess(seed=plan.seed) as scylla:
        work = Demo(scylla, plan)
        stop.on_set(work.stop)
        verdict = _watched(work, _display(plan, as_json=as_json))
    raise typer.Exit(conclude(verdict, plan, as_json=as_json))


def _quieten() -> None:
    """Hide warnings that the demo causes on purpose, such as that of a short lag."""
    quiet_logs(logging.ERROR)


def _watched(work: Demo, display: _Display) -> Verdict:
    """Run the demo in another thread; this one shows the progress and handles signals."""
    verdicts: list[Verdict] = []
    failures: list[BaseException] = []
    done = rscylla.Stop()

    def run() -> None:
        try:
            verdicts.append(work.run())
        except BaseException as error:  # noqa: BLE001 - raised below, in the main thread
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="rscylla-demo", daemon=True).start()
    with display:
        while not done.wait(display.every_s):
            display.show(work.snapshot())
        display.show(work.snapshot())
    if failures:
        raise failures[0]
    return verdicts[0]


# ---------------------------------------------------------------- while it runs


@attrs.frozen
class _Display(AbstractContextManager["_Display"]):
    """The display of progress. ``around`` is entered while the demo runs."""

    every_s: float
    show: Callable[[Snapshot], None]
    around: AbstractContextManager[object] = attrs.field(factory=nullcontext)

    def __enter__(self) -> _Display:
        self.around.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.around.__exit__(None, None, None)


def _display(plan: DemoPlan, *, as_json: bool) -> _Display:
    """Return a live display on a terminal; otherwise, one that prints a line per second, as JSON or text."""
    if as_json:
        return _Display(1.0, lambda now: write(json_line({"progress": _numbers(now)})))
    if not sys.stdout.isatty():
        write(_headline(plan))
        return _Display(1.0, lambda now: write(_text(now)))
    from rich.console import Console
    from rich.live import Live

    console = Console()
    console.print(_headline(plan), style="dim")
    live = Live(console=console, auto_refresh=False)
    return _Display(0.1, lambda now: live.update(_panel(now, plan), refresh=True), live)


def _headline(plan: DemoPlan) -> str:
    return (
        f"{plan.events} changes to {plan.orders} orders, seed {plan.seed}; each step fails with a chance of "
        f"{plan.fate:.0%} or less, and the consumer crashes about every {plan.crash_every} steps. "
        f"The lag is {plan.lag.total_seconds():g} s, "
        "which is safe here because one clock stamps all rows; on a cluster, use 30 s or more."
    )


def _numbers(now: Snapshot) -> dict[str, object]:
    verdict = now.verdict
    return {
        "phase": now.phase,
        "written": verdict.written,
        "delivered": verdict.delivered,
        "duplicates": verdict.duplicates,
        "lag_s": None if now.lag_s is None else round(now.lag_s, 3),
        "generations": verdict.generations,
        "nodes": now.nodes,
        "restarts": verdict.restarts,
    }


def _text(now: Snapshot) -> str:
    return "  ".join(f"{name} {'-' if value is None else value}" for name, value in _numbers(now).items())


def _panel(now: Snapshot, plan: DemoPlan) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    numbers = _numbers(now)
    bars = Table.grid(padding=(0, 1))
    for name in ("written", "delivered"):
        count = int(getattr(now.verdict, name))
        bars.add_row(name, ProgressBar(total=plan.events, completed=count, width=50), f"{count}/{plan.events}")
    rest = Table.grid(padding=(0, 2))
    names = ("duplicates", "restarts", "lag_s", "generations", "nodes", "phase")
    rest.add_row(
        *(f"{name.removesuffix('_s')} [bold]{'-' if numbers[name] is None else numbers[name]}" for name in names)
    )
    return Group(bars, rest)


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
    from rich.console import Console
    from rich.table import Table

    table = Table(title="verdict")
    table.add_column("")
    table.add_column("count", justify="right")
    table.add_column("meaning")
    good, bad = "[green]", "[bold red]"
    for name, text in (
        ("written", "changes that the database confirmed"),
        ("delivered", "confirmed changes that reached the consumer"),
        ("lost", "confirmed changes that did not reach the consumer"),
        ("duplicates", "repeated after a restart, which at-least-once delivery allows"),
        ("out_of_order", "delivered out of order for their key"),
        ("generations", "generations of CDC streams that were read"),
        ("restarts", "restarts of the consumer, after errors of fate or crashes"),
    ):
        value = getattr(verdict, name)
        style = (bad if value else good) if name in ("lost", "out_of_order") else ""
        table.add_row(name.replace("_", " "), f"{style}{value}", text)
    console = Console()
    console.print(table)
    if verdict.ok:
        console.print(f"{good}nothing lost, order held[/] (seed {plan.seed})", highlight=False)


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
