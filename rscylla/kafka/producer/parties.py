"""Who takes part in the transactions of a ``TransactionalPublisher``: runs, and who publishes while none commits."""

# ruff: noqa: SLF001 - they are parts of it

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...errors import PublishFailed

if TYPE_CHECKING:
    from .transactions import TransactionalPublisher

__all__ = ["Gate", "NoProducer", "Party"]


BUSY_S: Final = 0.02
"""How often callbacks are looked for while somebody publishes."""


class Gate:
    """Publishing is inside of it, by ``with``, at any depth; ``shut`` keeps others out. Reentrant, and thread-safe.

    *serve* runs callbacks, for which those inside may wait.
    """

    def __init__(self, serve: Callable[[], object]) -> None:
        self._serve = serve
        self.changed = threading.Condition(threading.RLock())
        self.is_shut = 0
        self._inside = Counter[int]()  # threads, and how deep

    @property
    def has_me(self) -> bool:
        """Whether the calling thread is inside."""
        return threading.get_ident() in self._inside

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.changed:
            while self.is_shut and me not in self._inside:
                self.changed.wait()
            self._inside[me] += 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self.changed:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                self.changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Wait until nobody else is inside, and let nobody in meanwhile."""
        me = threading.get_ident()
        with self.changed:
            self.is_shut += 1
        try:
            while True:
                with self.changed:
                    if not (self._inside.keys() - {me}):
                        break
                    self.changed.wait(BUSY_S)
                self._serve()
            yield
        finally:
            with self.changed:
                self.is_shut -= 1
                self.changed.notify_all()


class NoProducer:
    """What stands for the producer between sessions."""

    def __len__(self) -> int:
        return 0

    def poll(self, timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        """Do nothing: nothing waits."""


class Party:
    """A run that takes part in transactions."""

    def __init__(self, owner: TransactionalPublisher, settle: Callable[[], bool]) -> None:
        self._owner = owner
        self._session = 0
        self.settle = settle

    def __enter__(self) -> None:
        owner = self._owner
        owner.enter()
        try:
            owner.check()
            self._session = self._session or owner.session
            if self._session != owner.session:
                raise PublishFailed("the transaction was aborted; what was not committed is published again")
        except BaseException:
            owner._gate.__exit__()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._owner.spoil(PublishFailed(f"the records of a change were not all published: {error}"))
        self._owner._gate.__exit__()

    def leave(self) -> None:
        """Take part no more. Unless all that was published is behind a saved cursor, it is aborted."""
        owner = self._owner
        if not self.settle():
            owner.spoil(PublishFailed("a cursor was not saved"))
        with owner._state:
            if self in owner._parties:
                owner._parties.remove(self)
            owner._used = owner._clock.monotonic()
