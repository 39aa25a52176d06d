"""How series become Prometheus families: a row of a table for each family, and a collector for each registry."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector

__all__ = ["Histogram", "PerRegistry", "Row", "SeriesCollector"]


class Histogram:
    """Counts by bucket. Guarded by the lock of its owner, so that an event takes one lock for all of its metrics."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: Sequence[float], scale: float = 1) -> None:
        """Count *values*, each divided by *scale*."""
        bounds = self.bounds
        first = bisect_left(bounds, min(values) / scale)
        if first == bisect_left(bounds, max(values) / scale):  # nearly always: events of one time, quickly consumed
            self.counts[first] += len(values)
        else:
            for value in values:
                self.counts[bisect_left(bounds, value / scale)] += 1
        self.total += sum(values) / scale

    def samples(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative buckets, and the sum."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, accumulate(self.counts), strict=True)], self.total


class Named(Protocol):
    """What a collector asks of its series."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Named)

Row = tuple[str, str, Callable[[S], Any]]
"""The name of a family, its text, and what a series has for it: a number, None for no sample, or buckets and a sum."""

_KINDS: Mapping[str, type[GaugeMetricFamily | UnknownMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "unknown": UnknownMetricFamily,
    "counter": CounterMetricFamily,
}


class SeriesCollector(Collector, Generic[S]):
    """The series of one registry by name. Thread-safe.

    Args:
        label: The label that has the name of a series.
        make: Makes the series of a name.
        tables: The rows of families by kind: gauge, unknown, counter, histogram.
    """

    def __init__(self, label: str, make: Callable[[str], S], tables: Mapping[str, Sequence[Row[S]]]) -> None:
        self._label = label
        self._make = make
        self._tables = tables
        self._series: dict[str, S] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> S:
        """Return the series of *name*, created on first use."""
        with self._lock:
            known = self._series.get(name)
            if known is None:
                known = self._series[name] = self._make(name)
            return known

    def show(self, series: S, shown: bool) -> None:
        """Add *series* unless its name has one, or remove it."""
        with self._lock:
            if shown:
                self._series.setdefault(series.name, series)
            elif self._series.get(series.name) is series:
                del self._series[series.name]

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples, so that a registry notices names that are taken."""
        return self.families([])

    def collect(self) -> Iterable[Metric]:
        """Return all families as they are now."""
        with self._lock:
            series = list(self._series.values())
        return self.families(series)

    def families(self, series: list[S]) -> list[Metric]:
        """Return the families of *series*."""
        found: list[Metric] = []
        for kind, rows in self._tables.items():
            for name, text, value_of in rows:
                if kind == "histogram":
                    histogram = HistogramMetricFamily(name, text, labels=(self._label,))
                    for one in series:
                        histogram.add_metric([one.name], *value_of(one))
                    found.append(histogram)
                    continue
                family = _KINDS[kind](name, text, labels=(self._label,))
                for one in series:
                    if (value := value_of(one)) is not None:
                        family.add_metric([one.name], value)
                found.append(family)
        return found


T = TypeVar("T")


class PerRegistry(Generic[T]):
    """One object for each registry, which *make* makes on first use and which lives as long. Thread-safe."""

    def __init__(self, make: Callable[[CollectorRegistry], T]) -> None:
        self._make = make
        self._made: weakref.WeakKeyDictionary[CollectorRegistry, T] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, registry: CollectorRegistry | None) -> T:
        """Return the object of *registry*, None: of the default one."""
        registry = REGISTRY if registry is None else registry
        with self._lock:
            found = self._made.get(registry)
            if found is None:
                found = self._made[registry] = self._make(registry)
            return found
