"""``parallel``: runs several specs at once, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ..._retry import Backoff
from ...clock import InnerStop, Stop
from ..spec import Spec, checked_specs
from .run_forever import run_forever

__all__ = ["parallel"]


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
