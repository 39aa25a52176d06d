"""Judges whether reads of a log see what was written to it, by consistency levels and replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from .finding import Facts, Judgement, error, ok, warn

__all__ = ["consistency"]


def consistency(facts: Facts) -> Iterator[Judgement]:
    replicas = _replicas(facts)
    if not replicas:
        yield warn("the replication of the keyspace cannot be read", "check it manually")
        return
    yield _overlap(facts, replicas)
    yield from _enough_nodes(facts, replicas)


def _overlap(facts: Facts, replicas: Mapping[str, int]) -> Judgement:
    """Return whether each read sees each acknowledged write: R + W > RF, by data center."""
    shown = ", ".join(f"{n} in {dc}" if dc else str(n) for dc, n in sorted(replicas.items()))
    levels = f"reads at {facts.reads}, writes at {facts.writes}, replicas: {shown}"
    pairs = [
        (w, r)
        for w, r in product(replicas, repeat=2)
        if not _must_meet(_least(facts.writes, replicas, w), _least(facts.reads, replicas, r), replicas)
    ]
    if not pairs:
        return ok(f"reads see all writes ({levels})")
    apart = [(w, r) for w, r in pairs if w != r]
    if len(apart) == len(pairs):
        return warn(
            f"reads in {apart[0][1]} may not see what was just written in {apart[0][0]} ({levels})",
            "read or write at QUORUM, or keep a lag that is longer than replication between the data centers takes",
        )
    return error(
        f"reads can miss writes permanently: R + W is not more than the number of replicas ({levels})",
        "read the log at QUORUM (consistency=) and write at QUORUM, or LOCAL_QUORUM for both in one data center",
    )


def _enough_nodes(facts: Facts, replicas: Mapping[str, int]) -> Iterator[Judgement]:
    """Yield an error for the first data center in which fewer nodes are up than a read needs."""
    for dc in sorted(replicas):
        mins, total = _least(facts.reads, replicas, dc)
        up = {d: min(n, sum(node.is_up for node in facts.nodes if d in ("", node.dc))) for d, n in replicas.items()}
        if facts.nodes and (sum(up.values()) < total or any(up[d] < n for d, n in mins.items())):
            yield error(
                f"{facts.reads}{f' in {dc}' if dc else ''} needs {total} replicas, and too few nodes are up",
                "bring nodes back, or lower the keyspace's replication factor to the number of available nodes",
            )
            return


def _replicas(facts: Facts) -> dict[str, int]:
    """Return the replicas by data center; "" if the strategy has none. Empty if they cannot be determined."""
    kind = facts.replication.get("class", "").rpartition(".")[2]
    if kind == "LocalStrategy":
        return {"": 1}
    if kind == "EverywhereStrategy":
        return {"": max(1, len(facts.nodes))}
    texts = {k: v for k, v in facts.replication.items() if k != "class" and not k.startswith("initial_")}
    if kind == "SimpleStrategy":
        texts = {"": texts.get("replication_factor", "")}
    found = {dc: _factor(text) for dc, text in texts.items()}
    return {} if None in found.values() else {dc: n for dc, n in found.items() if n}


def _factor(text: str) -> int | None:
    """Return a replication factor, given as a number or as a list of the racks that have a replica each."""
    if text.strip().isdigit():
        return int(text)
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        return len([rack for rack in inner[1:-1].split(",") if rack.strip()])
    return None


def _least(level: str, replicas: Mapping[str, int], local: str) -> tuple[dict[str, int], int]:
    """Return the minimum number of replicas that take part, by data center and in total."""
    total = sum(replicas.values())
    if level in ("LOCAL_ONE", "LOCAL_QUORUM"):
        n = 1 if level == "LOCAL_ONE" else replicas[local] // 2 + 1
        return {local: n}, n
    if level in ("ALL", "EACH_QUORUM"):
        each = {dc: n if level == "ALL" else n // 2 + 1 for dc, n in replicas.items()}
        return each, sum(each.values())
    return {}, {"ANY": 0, "ONE": 1, "TWO": 2, "THREE": 3}.get(level, total // 2 + 1)


def _must_meet(
    write: tuple[dict[str, int], int], read: tuple[dict[str, int], int], replicas: Mapping[str, int]
) -> bool:
    """Return whether a write and a read always have a replica in common."""
    if any(write[0].get(dc, 0) + read[0].get(dc, 0) > n for dc, n in replicas.items()):
        return True
    # At most all replicas take part: a node refuses TWO with a single replica, or reads that replica.
    total = sum(replicas.values())
    return min(write[1], total) + min(read[1], total) > total
