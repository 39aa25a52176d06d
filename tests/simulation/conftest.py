"""Sums what happened in all seeds, over all processes, and fails a full run in which something never happened."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from simulated import never_happened

TOTAL = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TOTAL] = Counter()


class _Sum:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == "simulation":
                    self._config.stash[TOTAL].update(json.loads(str(value)))


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(_Sum(session.config), "simulation-sum")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if never_happened(session.config.stash[TOTAL]) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    total = config.stash[TOTAL]
    if total:
        terminalreporter.write_line("simulation: " + json.dumps(dict(sorted(total.items()))))
        for kind in never_happened(total):
            terminalreporter.write_line(f"simulation: {kind} never happened in {total['seeds']} seeds", red=True)
