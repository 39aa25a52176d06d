"""``spark_progress``: a progress bar for long jobs of Spark in a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ...abc import BatchProgress
from ...errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

__all__ = ["JobProgress", "spark_progress"]

POLL_S = 0.25
"""How often Spark's status is read. Each reading is one local call for each active stage."""


class JobProgress:
    """Tasks that are done, and tasks that are known, since a bar was shown. Thread-safe.

    Call it with the progress of a window to show how far a loop is: ``windows(..., on_done=progress)``.
    """

    def __init__(self, what: str, show: Callable[[str, int, int], None] | None = None) -> None:
        self.what = what
        self._show = show
        self._active: dict[str, dict[int, tuple[int, int]]] = {}  # by operation and stage: tasks that are done, and all
        self._ended = 0  # tasks of stages that have ended
        self._lock = threading.RLock()

    @property
    def done(self) -> int:
        with self._lock:
            return self._ended + sum(done for stages in self._active.values() for done, _ in stages.values())

    @property
    def total(self) -> int:
        with self._lock:
            return self._ended + sum(total for stages in self._active.values() for _, total in stages.values())

    def update(self, active: Iterable[tuple[int, int, int]], operation: str = "") -> None:
        """Show the stages in *active*: of each its id, tasks that are done, and all. Other known stages have ended.

        Args:
            operation: the one whose stages these are, where Spark tells of each operation alone.
        """
        with self._lock:
            now = {stage: (done, total) for stage, done, total in active}
            before = self._active.pop(operation, {})
            self._ended += sum(total for stage, (_, total) in before.items() if stage not in now)
            if now:
                self._active[operation] = now
        self._shown()

    def __call__(self, batch: BatchProgress) -> None:
        behind = "" if batch.windows_behind is None else f", {batch.windows_behind} windows behind"
        self.what = f"{batch.query} {batch.batch}{behind}"
        self._shown()

    def _shown(self) -> None:
        if self._show is not None:
            with self._lock:
                self._show(self.what, self.done, self.total)


@contextmanager
def spark_progress(spark: SparkSession, what: str, *, console: Console | None = None) -> Iterator[JobProgress]:
    """Show how many tasks of Spark's stages are done while the block runs; the bar disappears at its end.

    ::

        with spark_progress(spark, "latest"):
            latest(changes).write.parquet("/data/orders")

    DataFrames are lazy, so the block must contain the action. The total grows as Spark starts stages. All jobs of the
    application count, not only those of the block. Where standard error is not a terminal, nothing is shown.

    Args:
        spark: a session of classic Spark, or of Spark Connect, where all operations of the session count.
        what: text before the bar.
        console: where to show the bar, if not on standard error.

    Raises:
        ConfigError: standard error is a terminal, and the package ``rich`` is missing.
    """
    if not (sys.stderr.isatty() if console is None else console.is_terminal):
        yield JobProgress(what)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as e:
        raise ConfigError("a progress bar needs the package rich: pip install 'rscylla[spark]'") from e
    console = console or Console(stderr=True)
    what_column, of_column = TextColumn("{task.description}"), TextColumn("tasks")
    columns = what_column, BarColumn(), MofNCompleteColumn(), of_column, TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(what, total=None)
        progress = JobProgress(
            what, lambda text, done, total: bars.update(task, description=text, completed=done, total=total or None)
        )
        with _watching(spark, progress):
            yield progress


@contextmanager
def _watching(spark: SparkSession, progress: JobProgress) -> Iterator[None]:
    """Update *progress* while the block runs."""
    if ".connect." in type(spark).__module__:

        def handle(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            if stages is not None:
                active = [] if done else [(s.stage_id, s.num_completed_tasks, s.num_tasks) for s in stages]
                progress.update(active, operation_id or "")

        spark.registerProgressHandler(handle)
        try:
            yield
        finally:
            spark.removeProgressHandler(handle)
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def poll() -> None:
        # Spark may end before the block does. The block then has the error; the bar has none of its own.
        with suppress(Exception):
            while not ended.wait(POLL_S):
                infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
                progress.update([(info.stageId, info.numCompletedTasks, info.numTasks) for info in infos])

    thread = threading.Thread(target=poll, name="rscylla-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
