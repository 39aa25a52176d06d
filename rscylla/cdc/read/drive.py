"""Takes the steps of a walk. What it means that a window is too much to read at once is known here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from ...driver import Page
from ..log import Action, LogWindow, Probe, Read, StreamGroup, Switch, Wait, Walk
from .scan import LogScan, TooMuch, TooSlow

__all__ = ["Drive"]


class Drive:
    """A walk, and the queries of its steps. Used by one thread at a time.

    ``walk``: the position after the steps that were taken.

    Args:
        groups_of: returns the streams of a generation, given by its time.
        whole: see ``Scanner.pages``.
        check: called with each page that has rows, and its window, before the page is yielded; may raise ``TooMuch``.
    """

    def __init__(
        self,
        walk: Walk,
        scan: LogScan,
        groups_of: Callable[[int], Sequence[StreamGroup]],
        *,
        whole: bool = True,
        check: Callable[[Page, LogWindow], None] | None = None,
    ) -> None:
        self.walk = walk
        self._scan = scan
        self._groups_of = groups_of
        self._whole = whole
        self._check = check

    def take(self, step: Action, *, most: int | None = None) -> Iterator[Page]:
        """Take *step*, the next one of ``walk``: yield the pages of its window, if it reads one. Blocks.

        When all were yielded, ``walk`` is the one after the step. If it is still at the start of the window, that was
        too much to read at once: drop the pages of it; later windows are narrower.

        Args:
            most: the most rows of a window; None for the limit of the scan.

        Raises:
            Stopped, SourceError: as for ``LogScan``.
        """
        match step:
            case Read(window=window):
                groups = self._groups_of(window.generation)
                rows = size = 0
                try:
                    with closing(self._scan.pages(window, groups, whole=self._whole, most=most)) as pages:
                        for page in pages:
                            rows += page.row_count
                            size += page.size
                            if page.row_count and self._check is not None:
                                self._check(page, window)
                            yield page
                except TooMuch as e:
                    self.walk = self.walk.too_much(step, slow=isinstance(e, TooSlow), fitting_us=e.fitting_us)
                else:
                    self.walk = self.walk.read(step, rows, size)
            case Probe(window=window):
                self.walk = self.walk.probed(step, self._scan.first_us(window, self._groups_of(window.generation)))
            case Switch():
                self.walk = self.walk.switched(step)
            case Wait():
                self.walk = self.walk.waited()
