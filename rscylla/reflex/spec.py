"""``Spec``: what a run needs, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict

import attrs
from prometheus_client import CollectorRegistry

from .._tokens import FAST, Slice
from ..abc import Consumer, CursorStore, Fate, Stopper, StreamFunc
from ..clock import Clock, SystemClock
from ..errors import ConfigError
from ..options import StreamOption, StreamOptions, resolve
from .fate import NO_FATE
from .telemetry.metrics import series_of
from .telemetry.series import ConsumerSeries

__all__ = ["RunOptions", "Spec"]


class RunOptions(TypedDict, total=False):
    """The keyword arguments that functions which build specs pass on to ``Spec``."""

    fate: Fate | None
    clock: Clock | None
    flush_timeout: timedelta
    from_whole: bool
    registry: CollectorRegistry | None


@attrs.frozen(init=False)
class Spec:
    """What ``run`` needs: a stream, a cursor store, a consumer, and the options of the stream.

    The options of the stream follow the consumer, or come as ``options``. ``fate`` is tempted at the points after_recv,
    after_consume, before_set_cursor, and before_flush. ``flush_timeout`` limits the flush at the end of a run. Metrics
    go to the consumer's own ``series`` unless ``registry`` is given. ``key_slice`` is the slice of the keys that the
    stream reads, ``(m, n)``; default: what the stream says. With ``from_whole``, a slice that has no cursor yet
    continues at that of the whole consumer, which one process has read before. ``attrs.evolve`` makes a changed copy.
    """

    stream: StreamFunc
    store: CursorStore
    consumer: Consumer
    options: tuple[StreamOption, ...] = ()
    fate: Fate = NO_FATE
    clock: Clock = attrs.field(factory=SystemClock)
    flush_timeout: timedelta = timedelta(seconds=10)
    series: ConsumerSeries = attrs.field(kw_only=True, eq=False, repr=False)
    key_slice: tuple[int, int] = attrs.field(default=(0, 1), kw_only=True, repr=False)
    from_whole: bool = attrs.field(default=False, kw_only=True, repr=False)

    def __init__(
        self,
        stream: StreamFunc,
        store: CursorStore,
        consumer: Consumer,
        *given: StreamOption,
        options: Iterable[StreamOption] = (),
        fate: Fate | None = None,
        clock: Clock | None = None,
        flush_timeout: timedelta = timedelta(seconds=10),
        registry: CollectorRegistry | None = None,
        series: ConsumerSeries | None = None,
        key_slice: tuple[int, int] | None = None,
        from_whole: bool = False,
    ) -> None:
        chosen = (*given, *options)
        resolve(chosen)
        if flush_timeout <= timedelta():
            raise ConfigError("Spec: flush_timeout must be more than zero")
        if clock is not None and not isinstance(clock, Clock):
            raise ConfigError(
                f"Spec: clock= is a {type(clock).__module__}.{type(clock).__qualname__}, which cannot drive a run; "
                "use a clock with now_us, monotonic, and wait, such as rscylla.SystemClock or "
                "rscylla.testing.ManualClock"
            )
        self.__attrs_init__(
            stream,
            store,
            consumer,
            chosen,
            fate or NO_FATE,
            clock or SystemClock(),
            flush_timeout,
            series=series or series_of(consumer, registry),
            key_slice=getattr(stream, "key_slice", (0, 1)) if key_slice is None else key_slice,
            from_whole=from_whole,
        )

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.consumer.name

    @property
    def whole(self) -> str:
        """The consumer's name without the slice that the stream reads: ``billing`` for ``billing[0/4]``."""
        # A lane tells the name of its consumer, which is named after the slice.
        name = getattr(self.consumer, "lane_of", self.name)
        return Slice.of(self.key_slice).whole(name) or name

    @property
    def part_of(self) -> str:
        """The name of the lane without its slice: ``billing[fast]`` for ``billing[0/4][fast]``."""
        is_fast = getattr(self.consumer, "lane_of", self.name) != self.name
        return f"{self.whole}{FAST}" if is_fast else self.whole

    @property
    def stream_options(self) -> StreamOptions:
        """The options of the stream, combined into one value."""
        return resolve(self.options)

    @property
    def source(self) -> str:
        """What the stream reads, such as ``shop.orders``; "" if it does not say."""
        return str(getattr(self.stream, "source", ""))

    def stop(self) -> None:
        """Stop the consumer's background work, if it has any."""
        if isinstance(self.consumer, Stopper):
            self.consumer.stop()
