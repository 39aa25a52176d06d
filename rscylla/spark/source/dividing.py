"""Divides windows of a log into spans for the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import attrs

from ...cdc.log import Generation, LogWindow, Promise, Source, by_replicas, naming_dropped_log
from ...cdc.read import Span
from ...errors import ConfigError
from .options import MOST_CPUS, Options

__all__ = ["MAX_PARTITIONS", "Division"]

MAX_PARTITIONS = 100_000

MOST_STREAMS = 500_000
"""A plan contains at most about so many stream ids, of 20 bytes each; executors look the others up."""

MANY = 8
"""In more generations than this, a generation is divided into fewer parts."""


class Division:
    """Divides windows of one table's log as *options* say. Used by one thread at a time."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._options = options
        self._near: tuple[tuple[bytes, ...], tuple[bytes, ...]] = (), ()

    def spans(
        self,
        windows: Sequence[LogWindow],
        *,
        after: bytes = b"",
        promise: Promise | None = None,
        most_us: int | None = None,
    ) -> list[Span]:
        """Return spans that contain all rows of *windows*, each exactly once. May block on small queries.

        Args:
            after: if not empty, the position of the row after which to start.
            promise: the rows that must not be missed, unless ``failOnDataLoss`` is false.
            most_us: the longest span; None for any.

        Raises:
            ConfigError: there would be too many.
            TableChanged, TableNotFound, CDCDisabled: the log no longer exists.
        """
        source, options = self._source, self._options
        if not options.fail_on_data_loss:
            promise = None
        elif promise is not None:  # an executor asks one node for its time
            promise = attrs.evolve(promise, ahead_us=source.latest_us() - source.now_us())
        spans: list[Span] = []
        shipped = 0
        for window in windows:
            streams = None
            if shipped < MOST_STREAMS or options.streams_per_partition is not None:
                with naming_dropped_log(source.reread_table):
                    streams = source.streams(Generation(window.generation))
            count = None if streams is None else len(streams)
            parts, pieces = _division(window, count, len(windows), options, most_us)
            # Checked inside the loop, so that a mistyped windowSpan does not fill the memory first.
            if len(spans) + parts * pieces > MAX_PARTITIONS:
                raise ConfigError(
                    f"the options would make more than {MAX_PARTITIONS:,} partitions; {_fewer_by(options, most_us)}"
                )
            shipped += pieces * (count or 0)
            shares = [
                Span(source.table, piece, after=after, promise=promise, part=part, parts=parts)
                for piece in _cut(window, pieces)
                for part in range(parts)
            ]
            if streams is not None and shipped <= MOST_STREAMS:
                near = self._neighbors(streams)
                shares = [share.of(near) for share in shares]
            spans += shares
        return spans

    def _neighbors(self, streams: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the streams with those of the same replicas together, so that few nodes serve most of a partition.

        Only for streams that are part of the plan: an executor that finds its share alone may know another ring.
        """
        known, near = self._near
        if known is not streams:  # each micro-batch would ask for the replicas of each vnode again
            replicas_of = self._source.session.replicas_of(self._source.table.keyspace)
            near = streams if replicas_of is None else tuple(chain.from_iterable(by_replicas(streams, replicas_of)))
            self._near = streams, near
        return near


def _division(
    window: LogWindow, streams: int | None, windows: int, options: Options, most_us: int | None
) -> tuple[int, int]:
    """Return into how many parts by streams, and into how many by time, *window* is divided.

    It is divided by time, too, if there are too few streams to keep all executors busy.

    Args:
        streams: how many there are; None: unknown.
        windows: in how many generations the read is.
        most_us: the longest part.
    """
    pieces = 1 if most_us is None else -(-window.span_us // most_us)
    if options.streams_per_partition is not None and streams is not None:
        return -(-streams // options.streams_per_partition), pieces
    # Rows may all be in one generation, so each is for all executors, unless they are very many.
    wanted = min(options.parallelism, max(1, -(-MANY * options.parallelism // windows)))
    parts = wanted if streams is None else min(wanted, streams)
    return parts, min(max(pieces, -(-wanted // parts)), window.span_us)


def _fewer_by(options: Options, most_us: int | None) -> str:
    """Return how a read gets fewer partitions, by the options that were given and that count."""
    ways = ["increase windowSpan"] if most_us is not None else []
    if options.streams_per_partition is not None:
        ways.append("increase streamsPerPartition")
    elif options.parallelism > MOST_CPUS:
        ways.append("decrease parallelism")
    return " or ".join(ways) or "start later"


def _cut(window: LogWindow, pieces: int) -> Iterator[LogWindow]:
    """Yield *window* in so many equal parts."""
    edges = [window.start_us + window.span_us * i // pieces for i in range(pieces + 1)]
    for start_us, end_us in pairwise(edges):
        yield LogWindow(window.generation, start_us, end_us)
