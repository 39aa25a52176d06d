"""``traced``: an OpenTelemetry span for each event of a consumer. Only this module imports ``opentelemetry``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...abc import Consumer, Run
from ...errors import ConfigError, is_expected
from ...event import Event
from ..wrapper import Wrapper

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["TraceOf", "traced"]

log = logging.getLogger("rscylla.reflex")

TraceOf = Callable[[Event], "str | bytes | None"]
"""Returns the W3C trace context that an event's writer left: ``traceparent``, and ``tracestate`` on a second line."""


def traced(
    consumer: Consumer, *, trace_of: TraceOf | None = None, tracer_provider: TracerProvider | None = None
) -> Consumer:
    """Return *consumer*, wrapped so that each event is consumed within its own span, which is the current span.

    The span has the kind consumer and the name ``process`` plus the source. If the event carries the writer's trace,
    the span continues it. Spans that the consumer and its calls open become children. The span records only the type of
    an error, because its text may contain row values. Thread-safe if *consumer* is.

    Args:
        consumer: The consumer to wrap; its name, metrics, ``reset``, and ``stop`` are kept. Put this wrapper next to
            the function, inside ``dead_letter`` and similar wrappers: each attempt is then a span.
        trace_of: Returns the trace context of an event, such as ``lambda event: event.change.after.get("traceparent")``
            if writers put it into a column; default: ``event.trace``. An invalid trace context is ignored.
        tracer_provider: Default: the global one.

    Raises:
        ConfigError: ``opentelemetry-api`` is not installed, or *consumer* finishes events later.
    """
    return _Traced(consumer, trace_of or (lambda event: event.trace), tracer_provider)


class _Traced(Wrapper):
    def __init__(self, inner: Consumer, trace_of: TraceOf, provider: TracerProvider | None) -> None:
        super().__init__(inner)
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as e:
            raise ConfigError('tracing requires opentelemetry-api; pip install "rscylla[otel]"') from e
        self._tracer = trace.get_tracer("rscylla", tracer_provider=provider)
        self._kind = trace.SpanKind.CONSUMER
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()
        self._trace_of = trace_of

    def consume(self, event: Event, run: Run) -> None:
        source = run.source
        attributes: dict[str, Any] = {
            "messaging.system": "scylladb",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self.name,
            "messaging.message.id": event.id,
            "rscylla.late": event.late,
        }
        if source:
            attributes["messaging.destination.name"] = source
        with self._tracer.start_as_current_span(
            f"process {source}".strip(),
            context=self._propagator.extract(self._carrier(event)),
            kind=self._kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                self._inner.consume(event, run)
            except Exception as error:
                if not is_expected(error):
                    span.set_attribute("error.type", f"{type(error).__module__}.{type(error).__qualname__}")
                    span.set_status(self._failed)
                raise

    def _carrier(self, event: Event) -> dict[str, str]:
        """Return the trace headers of *event*; empty if it has none."""
        try:
            trace = self._trace_of(event)
        except Exception as error:
            # An event without a trace must still be consumed.
            log.debug('consumer "%s": no trace context of event %s', self.name, event.id, exc_info=error)
            return {}
        text = trace.decode("ascii", "replace") if isinstance(trace, bytes) else trace or ""
        return dict(zip(("traceparent", "tracestate"), text.splitlines(), strict=False))
