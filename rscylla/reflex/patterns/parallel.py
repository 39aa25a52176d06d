"""``parallel``: runs several specs at once, each in a thread; and what specs that run side by side must be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from ..._retry import Backoff
from ..._tokens import FAST
from ...clock import InnerStop, Stop
from ...errors import ConfigError
from ..consumer import check_threads_can_drive
from ..spec import Spec
from .run_forever import run_forever

__all__ = ["checked_specs", "flat_specs", "parallel"]


def parallel(
    specs: Iterable[Spec],
    *,
    stop: Stop | None = None,
    backoff: Backoff | None = None,
    on_error: Callable[[Exception], None] | None = None,
    keep_going: bool = False,
) -> None:
    """Run each of *specs* with ``run_forever`` in its own thread; return when all have returned.

    With the specs of ``slice_specs``, the threads together read a table once, each key in order. Threads speed up
    consumers that wait for other systems. For consumers that compute, start several processes with some slices each.

    An error that a retry cannot fix stops the other specs, too, and is raised when all have ended. With *keep_going*,
    the others continue, and the error is raised at the end. An interrupt in this thread stops all specs and waits for
    them.

    Args:
        specs: Specs with different consumer names. They can share stores and sessions, but consumers only if these are
            thread-safe.
        stop: Ends all specs.
        backoff: The pauses of each spec after an error.
        on_error: As for ``run_forever``; called by several threads.

    Raises:
        ConfigError: two specs have the same name, there are none, or a consumer is a coroutine function.
        RunError: the first error; the others are in its notes.
    """
    chosen = list(specs)
    checked_specs("parallel", chosen)
    inner = InnerStop(stop)
    failed: list[BaseException] = []
    lock = threading.Lock()

    def work(spec: Spec) -> None:
        try:
            run_forever(spec, stop=inner, backoff=backoff, on_error=on_error)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            with lock:
                failed.append(error)
            if not keep_going:
                inner.set()

    threads = [threading.Thread(target=work, args=(s,), name=f"rscylla-{s.name}", daemon=True) for s in chosen]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        inner.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    finally:
        inner.forget()
    if failed:
        for other in failed[1:]:
            failed[0].add_note(f"then another failed: {other}")
        raise failed[0]


def flat_specs(specs: Iterable[Spec | Iterable[Spec]]) -> tuple[Spec, ...]:
    """Return *specs* in one tuple, in which an item may stand for several."""
    return tuple(spec for item in specs for spec in ((item,) if isinstance(item, Spec) else item))


def checked_specs(who: str, specs: Sequence[Spec]) -> None:
    """Raise ``ConfigError`` unless *specs* can run side by side, each in a thread."""
    if not specs:
        raise ConfigError(f"{who} needs at least one Spec")
    for spec in specs:
        check_threads_can_drive(spec.consumer)
    names = [spec.name for spec in specs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f'{who}: several specs are named "{twice[0]}" and would share a cursor; rename the consumers')
    lanes = {f"{name}{FAST}": name for name in names}
    for spec in specs:
        consumer = lanes.get(spec.name)
        if consumer is not None and getattr(spec.consumer, "lane_of", None) != consumer:
            raise ConfigError(f'{who}: "{spec.name}" is the name of the fast lane of "{consumer}"; rename the consumer')
