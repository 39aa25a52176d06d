"""Which tables describe the vnode generations: the one of 4.3, those of 4.4 and later, or both during an upgrade.

Owned by the server's loop thread; nothing here locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from ..versions import Release, Version

__all__ = ["LEGACY_TABLE", "V2_TABLES", "Descriptions", "Rewriting"]

Rewriting = Literal["done", "held", "disabled"]

LEGACY_TABLE: Final = "cdc_streams_descriptions"
V2_TABLES: Final = ("cdc_generation_timestamps", "cdc_streams_descriptions_v2")


class Descriptions:
    """The release of the cluster, and what its description tables hold, as times of generations in ms.

    ``legacy`` and ``v2`` are None where the tables do not exist; ``rewritten`` is the row of that name in
    ``system.cdc_local``. ``version``: see `Release`.
    """

    def __init__(self, version: Version | None = None) -> None:
        self.release = Release(version)
        has_v2 = self.release.has_table("system_distributed", V2_TABLES[0])
        self.legacy: list[int] | None = None if has_v2 else []
        self.v2: list[int] | None = [] if has_v2 else None
        self.rewritten = False
        self._may_rewrite = False

    @property
    def content(self) -> tuple[Any, ...]:
        """Return something that differs when what the tables hold differs."""
        return (tuple(self.legacy or ()), tuple(self.v2 or ()), self.v2 is None, self.rewritten)

    def state(self) -> tuple[Any, ...]:
        """Return all of it as plain values, for ``restore``."""
        return (self.release.given, self.legacy, self.v2, self.rewritten, self._may_rewrite)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Become what ``state`` was taken of."""
        version, legacy, v2, self.rewritten, self._may_rewrite = state
        self.release = Release(version)
        self.legacy = None if legacy is None else list(legacy)
        self.v2 = None if v2 is None else list(v2)

    def publish(self, time_ms: int) -> None:
        """List a new generation: in the new tables as soon as there are any, and only there."""
        if self.v2 is not None:
            self.v2.append(time_ms)
        elif self.legacy is not None:
            self.legacy.append(time_ms)

    def upgrade(self, generations: Sequence[int], rewriting: Rewriting) -> None:
        """Go from 4.3 to 4.4: the new tables appear with the newest generation; see ``rewrite`` for the others.

        Raises ValueError when this is not 4.3 any more.
        """
        if self.release.given != "4.3":
            raise ValueError("only a cluster of version 4.3 can be upgraded")
        if rewriting not in ("done", "held", "disabled"):
            raise ValueError(f"rewriting must be 'done', 'held' or 'disabled', not {rewriting!r}")
        self.release = Release("4.4")
        self._may_rewrite = rewriting != "disabled"
        # 4.4 itself describes only the generation in use; the older ones come by rewriting.
        self.v2 = [generations[-1]]
        if rewriting == "done":
            self.rewrite(generations)

    def rewrite(self, generations: Sequence[int]) -> None:
        """Copy the generations of the old table into the new ones, then say so in ``system.cdc_local``.

        Raises ValueError when there is nothing to be copied.
        """
        if not self._may_rewrite:
            raise ValueError("no rewriting of generations is held back")
        self._may_rewrite = False
        self.v2 = list(generations)
        self.rewritten = True
