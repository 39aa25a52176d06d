"""Progress bars: shown in a terminal only, and gone when the block ends, however it ends."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from rscylla.abc import BatchProgress
from rscylla.spark.session import bars
from rscylla.spark.session.bars import JobProgress, spark_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class Tracker:
    """Spark's status: the stages of one reading after the other; when there are no more, ``read`` is set."""

    def __init__(self, *readings: list[tuple[int, int, int]]) -> None:
        self._readings = iter(readings)
        self._now: dict[int, tuple[int, int, int]] = {}
        self.read = threading.Event()

    def getActiveStageIds(self) -> list[int]:
        reading = next(self._readings, None)
        if reading is None:
            self.read.set()
            raise ConnectionError("Spark has gone")
        self._now = {stage: (stage, done, total) for stage, done, total in reading}
        return [*self._now]

    def getStageInfo(self, stage: int) -> Any:
        if stage < 0:
            return None  # it has ended since
        _, done, total = self._now[stage]
        return SimpleNamespace(stageId=stage, numCompletedTasks=done, numTasks=total)


def session(tracker: Tracker) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "POLL_S", 0.001)


@pytest.mark.usefixtures("quick")
def test_stages_that_are_no_longer_active_are_done() -> None:
    tracker = Tracker([(1, 0, 4)], [(1, 3, 4), (2, 0, 8)], [(2, 5, 8), (-1, 0, 1)])
    console = terminal()
    with spark_progress(session(tracker), "latest", console=console) as progress:
        assert tracker.read.wait(PATIENCE_S)
    assert (progress.done, progress.total) == (4 + 5, 12)
    assert "latest" in written(console)


def test_what_is_kept_does_not_grow_with_the_stages_that_have_ended() -> None:
    progress = JobProgress("windows")
    for stage in range(1000):
        progress.update([(stage, 0, 4)])
    assert (progress.done, progress.total) == (999 * 4, 1000 * 4)
    assert sum(len(kept) for kept in vars(progress).values() if isinstance(kept, dict)) == 1


@pytest.mark.usefixtures("quick")
def test_the_error_of_the_block_comes_through_and_no_thread_is_left() -> None:
    console = terminal()
    with pytest.raises(ValueError, match="of the block"), spark_progress(session(Tracker()), "x", console=console):
        raise ValueError("of the block")
    assert [t for t in threading.enumerate() if t.name == "rscylla-spark-progress"] == []
    assert written(console).endswith("\x1b[?25h\r\x1b[1A\x1b[2K"), "the bar is erased, and the terminal has its cursor"


def test_nothing_is_asked_or_shown_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    with spark_progress(SimpleNamespace(), "latest", console=console) as progress:  # type: ignore[arg-type]
        progress(BatchProgress(query="lake", batch="w"))
    assert written(console) == ""


def test_windows_are_named_beside_the_bar() -> None:
    shown: list[tuple[str, int, int]] = []
    progress = JobProgress("windows", lambda *given: shown.append(given))
    progress.update([(1, 2, 3)])
    progress(BatchProgress(query="lake", batch="w1", windows_behind=7))
    progress(BatchProgress(query="lake", batch="w2"))
    assert shown == [("windows", 2, 3), ("lake w1, 7 windows behind", 2, 3), ("lake w2", 2, 3)]


def test_spark_connect_tells_by_itself() -> None:
    handlers: list[Any] = []
    methods = {"registerProgressHandler": handlers.append, "removeProgressHandler": handlers.remove}
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    spark = kind()
    for name, method in methods.items():
        setattr(spark, name, method)
    with spark_progress(spark, "latest", console=terminal()) as progress:
        stage = SimpleNamespace(stage_id=1, num_tasks=4, num_completed_tasks=3, num_bytes_read=0, done=False)
        handlers[0](stages=[stage], inflight_tasks=1, operation_id="o", done=False)
        handlers[0](stages=None, inflight_tasks=0, operation_id="o", done=False)
        assert (progress.done, progress.total) == (3, 4)
        handlers[0](stages=[stage], inflight_tasks=0, operation_id="o", done=True)
        assert (progress.done, progress.total) == (4, 4), "Spark does not tell of the last tasks"
        for stage_id, operation in ((2, "p"), (3, "q"), (2, "p"), (3, "q")):
            told = SimpleNamespace(**{**vars(stage), "stage_id": stage_id})
            handlers[0](stages=[told], inflight_tasks=1, operation_id=operation, done=False)
        assert (progress.done, progress.total) == (4 + 3 + 3, 12), "each operation tells of its own stages"
    assert handlers == []


@pytest.fixture
def gates(tmp_path: Path) -> list[str]:
    """Files whose readers wait until somebody opens them for writing."""
    paths = [str(tmp_path / f"gate-{i}") for i in range(2)]
    for path in paths:
        os.mkfifo(path)
    return paths


@pytest.mark.usefixtures("quick")
def test_tasks_of_a_job_are_counted_while_it_runs(
    spark: SparkSession, gates: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()
    update = JobProgress.update

    def noticed(self: JobProgress, active: Any) -> None:
        update(self, active)
        if self.total == len(gates):
            seen.set()

    monkeypatch.setattr(JobProgress, "update", noticed)

    def open_gates() -> None:
        seen.wait(PATIENCE_S)
        for gate in gates:
            Path(gate).write_text("")

    def wait(path: str) -> None:
        with Path(path).open() as gate:
            gate.read()

    opener = threading.Thread(target=open_gates)
    opener.start()
    with spark_progress(spark, "job", console=terminal()) as progress:
        spark.sparkContext.parallelize(gates, len(gates)).foreach(wait)
    opener.join()
    assert seen.is_set()
    assert progress.total == len(gates)


def test_without_a_terminal_nothing_is_needed_to_show_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with spark_progress(session(Tracker()), "latest") as progress:
        assert progress.what == "latest"
