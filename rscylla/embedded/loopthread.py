"""The thread of the server's event loop, and the calls that other threads make into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from .errors import EmbeddedScyllaError

__all__ = ["LoopThread"]

_STOP_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, which may be started again after its end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # start and stop may come from several threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Start the thread. Raises EmbeddedScyllaError if it runs."""
        with self._lock:
            if self._loop is not None:
                raise EmbeddedScyllaError("the embedded server is already running; call stop() first")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run_loop, args=(self._loop,), name="rscylla-embedded-scylla", daemon=True
            )
            self._thread.start()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run *last* in the loop and end the thread; return whether this call has ended it."""
        with self._lock:
            loop, thread = self._loop, self._thread
            # Only one of two callers finds them; the other has nothing to stop.
            self._loop = self._thread = None
        if loop is None or thread is None:
            return False

        async def end() -> None:
            try:
                await last()
            finally:
                loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(_STOP_TIMEOUT_S)
        return not thread.is_alive()

    def run(self, work: Callable[[], T]) -> T:
        """Run *work* on the loop's thread and return what it returns."""

        async def run() -> T:
            return work()

        return self.wait(run())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of *work*, run in the loop. EmbeddedScyllaError if the loop does not run, or ends."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            # A coroutine that is never awaited would warn.
            work.close()
            if loop is None:
                raise EmbeddedScyllaError("the embedded server is not running; call start()")
            raise EmbeddedScyllaError(
                "this method cannot be called in the server's own thread; call it from another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise EmbeddedScyllaError("the embedded server was stopped during the call") from None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, then cancel what is left so that no caller waits for ever."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        loop.close()
