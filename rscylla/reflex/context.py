"""``Run``: one run of a spec, which its consumer receives with each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import attrs

from ..abc import ChunkClient, CursorStore, EventSaver, Fate, StreamClient
from ..clock import Clock, InnerStop, Stop, SystemClock, fenced
from ..errors import Stopped
from ..event import Event
from .fate import NO_FATE
from .spec import Spec
from .telemetry.logs import log_context
from .telemetry.series import ConsumerSeries

__all__ = ["Failure", "Run"]


@attrs.frozen
class Failure:
    """Why a consumer ended its run, at which stage and event."""

    error: BaseException
    stage: str
    event: Event | None


@attrs.define(eq=False)
class Run:
    """One run of a consumer; see ``rscylla.abc.Run``. Thread-safe.

    ``rscylla.Run("billing")`` is a run without a spec, for code that calls a consumer directly, such as a test: nothing
    stops it, and ``commit`` saves no cursor.
    """

    consumer: str
    source: str = ""
    stop: Stop = attrs.field(factory=Stop)
    clock: Clock = attrs.field(factory=SystemClock)
    fate: Fate = NO_FATE
    series: ConsumerSeries = attrs.Factory(lambda run: ConsumerSeries(run.consumer), takes_self=True)
    store: CursorStore | None = None
    event: Event | None = None
    stage: str = "reset"
    whole: str = attrs.field(default=attrs.Factory(lambda run: run.consumer, takes_self=True), kw_only=True)
    key_slice: tuple[int, int] = attrs.field(default=(0, 1), kw_only=True)
    client: StreamClient | ChunkClient | None = None
    reported: list[Failure] = attrs.field(factory=list, kw_only=True)
    """What the consumer reported; the later ones are taken as consequences of the first."""
    unclean: list[Failure] = attrs.field(factory=list, kw_only=True)
    """What failed in the cleanup."""
    saver: EventSaver | None = attrs.Factory(
        lambda run: None if run.store is None else EventSaver(run.store, run.consumer), takes_self=True
    )

    @classmethod
    def of(cls, spec: Spec, stop: Stop) -> Run:
        """Return a run of *spec* that *stop* ends. Its ``end`` must be called."""
        inner = InnerStop(stop)
        given = spec.name, spec.source, inner, spec.clock, spec.fate, spec.series, spec.store
        return cls(*given, whole=spec.whole, key_slice=spec.key_slice)

    def clean_up(self, stage: str, step: Callable[[], None]) -> None:
        """Take a last step; if it fails, the run reports that next to its first error."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - kept for ``ending``
            self.unclean.append(Failure(error, stage, None))

    def close(self) -> None:
        """Close the stream, if it was opened."""
        if self.client is not None:
            self.series.closed()
            self.client.close()

    def end(self) -> None:
        """Detach from the caller's stop, and set the run's own, so that nothing waits for this run any more."""
        if isinstance(self.stop, InnerStop):
            self.stop.forget()
        self.stop.set()

    @property
    def tempt(self) -> Callable[..., None]:
        """``Fate.tempt`` itself: it reads the module of its caller, which a method around it would replace."""
        return self.fate.tempt

    @property
    def failure(self) -> Failure | None:
        """The first failure that the consumer reported, or None."""
        return self.reported[0] if self.reported else None

    def commit(self, cursor: str | Event) -> None:
        """Save *cursor*, or the one right after an event, for the consumer, and raise the errors of the store."""
        if self.fate is not NO_FATE:
            self.fate.tempt("before_set_cursor")
        if self.store is not None and isinstance(cursor, str):
            self.store.set_cursor(self.consumer, cursor)
        elif self.saver is not None and not isinstance(cursor, str):
            self.saver(cursor)
        if self.series.is_failing:
            self.series.moved()

    def fail(self, error: BaseException, *, event: Event | None = None, stage: str = "consume") -> None:
        """End the run with *error*; the first one counts."""
        self.reported.append(Failure(error, stage, event))
        self.stop.set()

    @contextmanager
    def handling(self, event: Event) -> Iterator[Run]:
        """Show that this thread works on *event*; yield the run with this event, for the consumer and for logs."""
        # A copy, because threads of one run work on different events; failures and the stop are shared.
        run = attrs.evolve(self, event=event)
        with log_context(run), fenced(self.stop), self.series.activity.working(self.clock, event):
            yield run

    def waiting(self, why: str = "") -> AbstractContextManager[None]:
        """Show that this thread waits on purpose, so that it does not seem to hang. *why* appears in health checks."""
        return self.series.activity.waiting(why)

    def pause(self, seconds: float, why: str = "") -> None:
        """Wait *seconds* by the run's clock. Raises ``Stopped`` if the run must end first."""
        with self.waiting(why):
            if self.clock.wait(self.stop, seconds):
                raise Stopped

    def count(self, what: str, times: int = 1) -> None:
        """Add to the counter *what* of the consumer's metrics."""
        self.series.count(what, times)

    def attempt_failed(self, event: Event) -> None:
        """Count a failed attempt at *event*, for metrics and health checks."""
        self.series.event_failed(event.id)

    def show(self, what: str, value: Callable[[], float] | None) -> None:
        """Show the gauge *what* in the consumer's metrics; None removes it."""
        self.series.show(what, value)

    def __repr__(self) -> str:
        return f"<Run of {self.consumer!r}>"
