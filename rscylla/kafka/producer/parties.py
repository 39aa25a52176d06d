"""Runs that take part in the transactions of a ``TransactionalPublisher``, and what it has between its sessions."""

# ruff: noqa: SLF001 - they are parts of it

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import PublishFailed

if TYPE_CHECKING:
    from .transactions import TransactionalPublisher

__all__ = ["NoProducer", "Party"]


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
        owner._enter()
        try:
            owner.check()
            self._session = self._session or owner.session
            if self._session != owner.session:
                raise PublishFailed("the transaction was aborted; what was not committed is published again")
        except BaseException:
            owner._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._owner.spoil(PublishFailed(f"the records of a change were not all published: {error}"))
        self._owner._leave()

    def leave(self) -> None:
        """Take part no more. Unless all that was published is behind a saved cursor, it is aborted."""
        owner = self._owner
        if not self.settle():
            owner.spoil(PublishFailed("a cursor was not saved"))
        with owner._gate:
            if self in owner._parties:
                owner._parties.remove(self)
            owner._used = owner._clock.monotonic()
