"""Calls of other libraries that may not return: they are left behind when it is time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from .clock import Stop

__all__ = ["bounded"]

T = TypeVar("T")


def bounded(call: Callable[[], T], *, seconds: float | None = None, stop: Stop | None = None) -> T:
    """Return what *call* returns, which runs in a thread of its own; it goes on there if it is left behind.

    Raises:
        Stopped: *stop* was set first.
        TimeoutError: *seconds* were over first.
        BaseException: what *call* raises.
    """
    answers: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(),))
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            answers.put(error)

    if stop is not None:
        stop.check()
    threading.Thread(target=work, name="rscylla-call", daemon=True).start()
    forget = None if stop is None else stop.on_set(lambda: answers.put(None))
    try:
        found = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    finally:
        if forget is not None:
            forget()
    if isinstance(found, tuple):
        return found[0]
    if found is None:
        assert stop is not None
        stop.check()
    assert isinstance(found, BaseException)
    raise found
