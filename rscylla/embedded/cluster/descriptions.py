"""Which tables describe the vnode generations: the one of 4.3, those of 4.4 and later, or both during an upgrade.

Owned by the server's loop thread; nothing here locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

__all__ = ["LEGACY_TABLE", "V2_TABLES", "Descriptions", "Rewriting", "Version"]

Version = Literal["4.3", "4.4"]
Rewriting = Literal["done", "held", "disabled"]

LEGACY_TABLE: Final = "cdc_streams_descriptions"
V2_TABLES: Final = ("cdc_generation_timestamps", "cdc_streams_descriptions_v2")


class Descriptions:
    """What the description tables hold, as times of generations in ms.

    ``legacy`` and ``v2`` are None where the tables do not exist; ``rewritten`` is the row of that name in
    ``system.cdc_local``. ``version`` None is the present Scylla, which has tablets too.
    """

    def __init__(self, version: Version | None = None) -> None:
        if version not in (None, "4.3", "4.4"):
            raise ValueError(f"there is no imitation of version {version!r}; give '4.3', '4.4', or None for the newest")
        self.version = version
        self.legacy: list[int] | None = [] if version == "4.3" else None
        self.v2: list[int] | None = None if version == "4.3" else []
        self.rewritten = False
        self._may_rewrite = False

    @property
    def content(self) -> tuple[Any, ...]:
        """Return something that differs when what the tables hold differs."""
        return (tuple(self.legacy or ()), tuple(self.v2 or ()), self.v2 is None, self.rewritten)

    def state(self) -> tuple[Any, ...]:
        """Return all of it as plain values, for ``restore``."""
        return (self.version, self.legacy, self.v2, self.rewritten, self._may_rewrite)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Become what ``state`` was taken of."""
        self.version, legacy, v2, self.rewritten, self._may_rewrite = state
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
        if self.version != "4.3":
            raise ValueError("only a cluster of version 4.3 can be upgraded")
        if rewriting not in ("done", "held", "disabled"):
            raise ValueError(f"rewriting must be 'done', 'held' or 'disabled', not {rewriting!r}")
        self.version = "4.4"
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
