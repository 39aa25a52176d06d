"""Tools for the tests of applications: fakes of each part, and contract suites in ``rscylla.testing.contracts``."""

from ..embedded.clock import ManualClock
from .fakes import (
    FakeCursorStore,
    FakeStream,
    FakeStreamClient,
    RecordingConsumer,
    ScriptedFate,
    await_cursor,
)

__all__ = [
    "FakeCursorStore",
    "FakeStream",
    "FakeStreamClient",
    "ManualClock",
    "RecordingConsumer",
    "ScriptedFate",
    "await_cursor",
]
