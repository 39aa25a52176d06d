"""``run`` and ``run_forever`` for consumers that are coroutine functions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import NoReturn

import attrs

from .. import reflex
from ..clock import InnerStop, Stop
from ..errors import ConfigError, HeadReached, RscyllaError, Stopped
from ..event import Event
from ..reflex import Backoff, Spec
from ._bridge import Bridge
from ._consumer import AsyncConsumer

__all__ = ["in_thread", "run", "run_forever"]

log = logging.getLogger("rscylla.aio")


async def run(spec: Spec, *, stop: Stop | None = None) -> NoReturn:
    """Run an async consumer until something ends the run; always raises, with the same errors as ``rscylla.run``.

    A separate thread reads the stream, at most 1,000 events ahead of the loop. The consumer is awaited for
    one event at a time, in order. Another thread saves cursors, one write at a time and always the newest cursor: a
    crash repeats the events that were done since the last write began.

    When the task is cancelled, the stream is closed at once, the current event does not count as done, and the task
    ends when earlier events are saved. If something that the consumer awaits is cancelled, but the task is not, the
    cancellation is an error like any other.

    Raises:
        HeadReached, Stopped, RunError: as ``rscylla.run``.
        ConfigError: the spec's consumer has no ``aconsume``; make it a ``rscylla.aio.Consumer``.
    """
    await _drive(spec, stop, lambda driven, signal: reflex.run(driven, stop=signal))
    raise AssertionError("a run never returns")


async def run_forever(
    spec: Spec,
    *,
    stop: Stop | None = None,
    backoff: Backoff | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> None:
    """Run *spec* until *stop* is set, the stream reaches the head that it runs to, or the task is cancelled.

    Like ``rscylla.run_forever``, with an async consumer; see ``run``. Another thread calls *on_error*. Use this
    function for tasks of a ``TaskGroup`` that run consumers.

    Raises:
        RunError: an error that a retry cannot fix.
        ConfigError: the spec's consumer has no ``aconsume``.
    """

    def forever(driven: Spec, signal: Stop) -> None:
        reflex.run_forever(driven, stop=signal, backoff=backoff, on_error=on_error)

    await _drive(spec, stop, forever)


async def _drive(spec: Spec, stop: Stop | None, call: Callable[[Spec, Stop], None]) -> None:
    consumer = spec.consumer
    if not isinstance(consumer, AsyncConsumer):
        raise ConfigError(
            f'consumer "{spec.name}" has no aconsume; make it a rscylla.aio.Consumer, or run it with rscylla.run'
        )
    bridge = Bridge(spec.name, spec.series, consumer, spec.store.flush)
    signal = InnerStop(stop)
    in_thread(bridge, attrs.evolve(spec, consumer=bridge), signal, call)
    try:
        while (event := await bridge.next()) is not None:
            await _handle(spec, consumer, bridge, event)
    except BaseException as error:
        signal.set()
        bridge.abandon()
        if isinstance(error, GeneratorExit):  # the loop is closed, so nothing can be awaited any more
            raise
        await bridge.over()
        if isinstance(bridge.error, Exception) and not isinstance(bridge.error, Stopped | HeadReached):
            log.warning("%s", bridge.error)
        raise
    finally:
        signal.forget()
    if bridge.error is not None:
        raise bridge.error


async def _handle(spec: Spec, consumer: AsyncConsumer, bridge: Bridge, event: Event) -> None:
    """Let the consumer handle *event*, and report the outcome to the bridge."""
    with bridge.run.handling(event) as run:
        try:
            await consumer.aconsume(event, run)
            run.tempt("after_consume")
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            bridge.failed(event, _cancelled_within(spec.name, error))
        except Exception as error:  # noqa: BLE001 - raised by the run, with the event's name
            bridge.failed(event, error)
        else:
            bridge.done()


def _cancelled_within(name: str, error: asyncio.CancelledError) -> RscyllaError:
    """Return the error of a run whose consumer met a cancellation although its task was not cancelled.

    If the cancellation were raised, the task would seem to have been cancelled, and a ``TaskGroup`` would ignore it.
    """
    failure = RscyllaError(f'consumer "{name}": something that it awaited was cancelled, but its task was not')
    failure.resumable = True
    failure.__cause__ = error
    return failure


def in_thread(bridge: Bridge, spec: Spec, signal: Stop, call: Callable[[Spec, Stop], None]) -> None:
    """Call *call* in a separate thread, and report its end to *bridge*, which belongs to the running loop."""
    # Read here, in the loop's thread, because the new thread has no running loop.
    bridge.attach()

    def work() -> None:
        error: BaseException | None = None
        try:
            call(spec, signal)
        except BaseException as e:  # noqa: BLE001 - raised by the task that waits
            error = e
        bridge.end(error)

    threading.Thread(target=work, name=f"rscylla-aio-{spec.name}", daemon=True).start()
