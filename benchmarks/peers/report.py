"""Tables of costs, and the aims that they are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from .measure import PURE, Cost

BASE = "driver"
"""The reader that others are compared with, where it took part."""


@attrs.frozen
class Aim:
    """That *reader* costs at most *bound* times as much client CPU as *peer*, with these kinds of work."""

    what: str
    reader: tuple[str, str]
    peer: tuple[str, str]
    bound: float


AIMS = (
    Aim("columns, all cells typed, against Rust", ("arrow", "cells"), ("rust", "cells"), 1.0),
    Aim("loop that reads key and values, against Go", ("run-scylla", "cells"), ("go", "cells"), 1.0),
    Aim("loop that reads key and values", ("run-scylla", "cells"), (BASE, "count"), 0.8),
    Aim("loop that reads nothing", ("run-scylla", "count"), (BASE, "count"), 0.4),
    Aim("events", ("events", "count"), (BASE, "count"), 1 / 18),
    Aim("events with id", ("events", "id"), (BASE, "count"), 1 / 9),
    Aim("columns", ("arrow", "cells"), (BASE, "count"), 1 / 15),
    Aim("events, pure", (f"events{PURE}", "count"), (BASE, "count"), 1 / 3),
    Aim("loop, pure", (f"run-scylla{PURE}", "count"), (BASE, "count"), 1.0),
    Aim("two slices in one process, against one loop", ("slices", "count"), ("run", "count"), 1.3),
)


def table_of(title: str, costs: Sequence[Cost]) -> str:
    """Return the costs as text, the medians with their spread."""
    lines = [title]
    for kind in dict.fromkeys(cost.kind for cost in costs):
        lines += [
            "",
            f"{kind:<16}{'us/row':>8}{'min':>8}{'max':>8}{'ratio':>8}{'wall s':>8}{'server':>8}{'peak MB':>9}",
        ]
        base = next((cost for cost in costs if (cost.reader, cost.kind) == (BASE, kind)), None)
        for cost in costs:
            if cost.kind == kind:
                middle, least, most = cost.client_us
                ratio = f"{cost.ratio_to(base):.2f}" if base else "-"
                lines.append(
                    f"{cost.reader:<16}{middle:>8.2f}{least:>8.2f}{most:>8.2f}{ratio:>8}{cost.wall_s:>8.2f}"
                    f"{cost.server_us:>8.2f}{cost.peak_mb:>9.0f}"
                )
    return "\n".join(lines)


def aims_of(costs: Sequence[Cost]) -> str:
    """Return the aims of which both sides took part, as text: wanted, found, met or missed."""
    known: Mapping[tuple[str, str], Cost] = {(cost.reader, cost.kind): cost for cost in costs}
    lines = [f"{'aim: client CPU a row, as a ratio to the plain driver':<56}{'at most':>9}{'found':>9}"]
    for aim in AIMS:
        if aim.reader in known and aim.peer in known:
            found = known[aim.reader].ratio_to(known[aim.peer])
            verdict = "met" if found <= aim.bound else "MISSED"
            lines.append(f"{aim.what:<56}{aim.bound:>9.3f}{found:>9.3f}  {verdict}")
    return "\n".join(lines)
