"""``Facts``, what is known of a log and its cluster, and ``Finding``, what judges say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from ..cdc.log import Lifetimes, LoggedTable, Model
from ..errors import RscyllaError
from ..options import SAFE_LAG

__all__ = ["Facts", "Finding", "Judgement", "Node", "Severity", "error", "ok", "warn"]

Severity = Literal["ok", "warn", "error"]

Judgement = tuple[Severity, str, str]
"""What a judge says: how bad it is, what was found, and what to do."""

SECOND = 1_000_000

DRIVER_FROM, DRIVER_BEFORE = (3, 29, 2), (3, 30)
"""Versions of scylla-driver that rscylla is tested with; ``setup.cfg`` requires the same."""

CDC_PARTITIONER = "com.scylladb.dht.CDCPartitioner"


@attrs.frozen
class Finding:
    """The result of one check: ``what`` was found, and what to ``do`` about it ("" if nothing)."""

    check: str
    severity: Severity
    what: str
    do: str = ""


@attrs.frozen
class Node:
    """A node as the driver sees it. ``skew_us``: its clock minus this machine's; None if it did not answer."""

    address: str
    dc: str
    is_up: bool = True
    skew_us: int | None = 0


@attrs.frozen
class Facts:
    """The facts that the checks judge. ``failed`` has the reason of each check whose facts could not be read.

    ``log_columns``: types by name. ``generations``: times in ms, ascending. ``streams``: how many streams the current
    generation has, None if not read; ``queries``: how many one poll needs. ``cursors``: by consumer; None for a
    consumer without a cursor. ``judged``: what the reader says about each cursor: the lifetimes of the rows after it,
    or the error that refuses it. ``why_pure``: why the decoder is not the compiled one. ``can_save``: whether the
    caller has checked that cursors can be read and saved.
    """

    table: LoggedTable
    now_us: int
    log_columns: Mapping[str, str]
    partitioner: str = CDC_PARTITIONER
    compaction: str = "TimeWindowCompactionStrategy"
    replication: Mapping[str, str] = attrs.field(factory=dict)
    model: Model = "vnodes"
    generations: tuple[int, ...] = ()
    streams: int | None = None
    queries: int = 1
    nodes: tuple[Node, ...] = ()
    lag_us: int | None = None
    reads: str = "QUORUM"
    writes: str = "QUORUM"
    driver: str = ".".join(map(str, DRIVER_FROM))
    decoder: str = "compiled"
    why_pure: str = ""
    cursors: Mapping[str, str | None] = attrs.field(factory=dict)
    judged: Mapping[str, Lifetimes | RscyllaError] = attrs.field(factory=dict)
    can_save: bool = False
    failed: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def ttl_us(self) -> int:
        """TTL of log rows; 0 for none."""
        return self.table.ttl_s * SECOND

    @property
    def latest_us(self) -> int:
        """The time on the fastest node, by whose clock rows may expire."""
        return self.now_us + max((node.skew_us for node in self.nodes if node.skew_us is not None), default=0)

    @property
    def assumed_lag_us(self) -> int:
        return int(SAFE_LAG.total_seconds()) * SECOND if self.lag_us is None else self.lag_us


def ok(what: str) -> Judgement:
    return "ok", what, ""


def warn(what: str, do: str) -> Judgement:
    return "warn", what, do


def error(what: str, do: str) -> Judgement:
    return "error", what, do
