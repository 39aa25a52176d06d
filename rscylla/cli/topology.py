"""``rscylla topology``: shows the CDC options, streams, and node clocks that a reader of a table depends on."""

from __future__ import annotations

from typing import Any

import rscylla

from .shared.names import parse_table, time_of
from .shared.options import Connection, JsonOutput, TableArgument, command
from .shared.output import json_line, moment, table
from .shared.standard import write

__all__ = ["topology"]


@command
def topology(name: TableArgument, connection: Connection, as_json: JsonOutput = False) -> None:
    """Show a table's CDC options, its streams, and the clocks of the nodes.

    A generation is expired when all its rows have outlived the log's TTL, and upcoming when it has not started yet.
    """
    parsed = parse_table(name)
    with connection.session() as session:
        found = _describe(rscylla.NewStream(session, *parsed))
    write(json_line(found)) if as_json else _show(found)


def _describe(stream: rscylla.Stream) -> dict[str, Any]:
    """Return the shown values as a JSON object."""
    source = stream.describe()
    info = source.table
    # With no lag: the question is which generation the nodes write to now.
    now, oldest = source.watermark_us(0), source.oldest_us()
    generations = []
    for i, generation in enumerate(source.generations):
        end_us = source.generations[i + 1].start_us if i + 1 < len(source.generations) else None
        # Without a TTL nothing expires, so no generation has.
        state = _state(generation.start_us, end_us, now, oldest if info.ttl_s else 0)
        # The streams of an expired generation may be deleted.
        streams = () if state == "expired" else source.streams(generation)
        counts = {"streams": len(streams) or None, "vnodes": source.topology.vnodes(streams) or None}
        generations.append({"time": time_of(generation.start_us), "state": state, **counts})
    return {
        "keyspace": info.keyspace,
        "table": info.name,
        "cdc": {
            "enabled": info.enabled,
            "ttl_s": info.ttl_s,
            "preimage": info.preimage,
            "postimage": info.postimage,
        },
        "model": source.topology.model,
        "generations": generations,
        "node_clock_skew_ms": {address: skew / 1000 for address, skew in sorted(source.node_clocks.skew_us.items())},
    }


def _state(start_us: int, end_us: int | None, now_us: int, oldest_us: int) -> str:
    """Return the state of a generation; *end_us* is the start of the next one, None if there is none."""
    if start_us > now_us:
        return "upcoming"
    if end_us is None or end_us > now_us:
        return "current"
    return "expired" if end_us <= oldest_us else "past"


def _show(found: dict[str, Any]) -> None:
    cdc = found["cdc"]
    write(f"table {found['keyspace']}.{found['table']}")
    write(
        f"cdc   {'enabled' if cdc['enabled'] else 'switched off'}, ttl {cdc['ttl_s'] or 'none'}"
        f"{' s' if cdc['ttl_s'] else ''}, preimage {cdc['preimage']}, postimage {cdc['postimage']}"
    )
    write(f"streams follow {found['model']}")
    write("")
    table(
        ("generation", "state", "streams", "vnodes"),
        [
            (moment(g["time"]), g["state"], *("-" if g[k] is None else str(g[k]) for k in ("streams", "vnodes")))
            for g in found["generations"]
        ],
    )
    write("")
    skews = found["node_clock_skew_ms"].items()
    table(("node", "clock"), [(address, f"{skew:+.0f} ms" if skew else "in step") for address, skew in skews])
