"""``traced``: a span for each event, below the writer's where the event carries its trace."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rscylla._timeuuid import datetime_of
from rscylla.errors import ConfigError, HeadReached, RunError, Stopped
from rscylla.event import SimpleEvent
from rscylla.options import StreamToHead
from rscylla.reflex import Consumer, Spec, run
from rscylla.reflex.telemetry.tracing import traced
from rscylla.testing import FakeCursorStore, FakeStream

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Bench:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def run(self, fn: Any, *, trace: bytes = b"", **options: Any) -> Any:
        """Consume one event and return its span."""
        consumer = Consumer("billing", fn, registry=CollectorRegistry())
        stream = FakeStream([SimpleEvent("e1", timestamp=datetime_of(0), trace=trace)])
        stream.source = "shop.orders"  # type: ignore[attr-defined]
        wrapped = traced(consumer, tracer_provider=self.provider, **options)
        with pytest.raises((HeadReached, RunError, Stopped)):
            run(Spec(stream, FakeCursorStore(), wrapped, StreamToHead()))
        return self.exporter.get_finished_spans()[-1]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_event_is_consumed_within_a_span(bench: Bench) -> None:
    inside: list[Any] = []
    span = bench.run(lambda event, fate: inside.append(trace.get_current_span().get_span_context().span_id))
    assert span.name == "process shop.orders"
    assert span.kind is trace.SpanKind.CONSUMER
    assert inside == [span.context.span_id]
    assert span.parent is None
    assert dict(span.attributes) == {
        "messaging.system": "scylladb",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": "e1",
        "messaging.destination.name": "shop.orders",
        "rscylla.late": False,
    }
    assert span.status.is_ok or span.status.status_code is trace.StatusCode.UNSET
    assert not trace.get_current_span().get_span_context().is_valid


def test_it_continues_the_writers_trace_with_its_flags_and_state(bench: Bench) -> None:
    states: list[str] = []
    span = bench.run(
        lambda event, fate: states.append(trace.get_current_span().get_span_context().trace_state.to_header()),
        trace=f"{PARENT}\nvendor=1".encode(),
    )
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == SPAN_ID
    assert span.parent.trace_flags.sampled
    assert states == ["vendor=1"]


def test_the_trace_may_come_from_elsewhere(bench: Bench) -> None:
    span = bench.run(lambda event, fate: None, trace_of=lambda event: PARENT)
    assert f"{span.context.trace_id:032x}" == TRACE_ID


def no_trace(event: Any) -> str:
    raise KeyError("traceparent")


@pytest.mark.parametrize("trace_of", [lambda e: "nonsense", lambda e: None, lambda e: b"\xff\xfe", no_trace])
def test_text_that_is_not_a_trace_context_is_ignored(bench: Bench, trace_of: Any) -> None:
    seen: list[str] = []
    span = bench.run(lambda event, fate: seen.append(event.id), trace_of=trace_of)
    assert span.parent is None
    assert seen == ["e1"]


def test_an_error_is_recorded_by_its_type_alone(bench: Bench) -> None:
    def fn(event: Any, fate: Any) -> None:
        raise ValueError("card 4111")

    span = bench.run(fn)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes["error.type"] == "builtins.ValueError"
    assert "4111" not in span.to_json()


def test_a_stop_is_not_an_error(bench: Bench) -> None:
    def fn(event: Any, fate: Any) -> None:
        raise Stopped

    assert bench.run(fn).status.status_code is trace.StatusCode.UNSET


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return importing(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"rscylla\[otel\]"):
        traced(Consumer("billing", lambda event, fate: None, registry=CollectorRegistry()))
