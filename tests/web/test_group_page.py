"""The example whose page shows a group: processes share the slices, and it ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import group_page
import pytest
from waiting import eventually

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the example in a process, which opens no browser."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.endswith("DISPLAY")}
        command = [sys.executable, group_page.__file__, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, **pipes, text=True, env=environment))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("display", [None, "DISPLAY", "WAYLAND_DISPLAY"])
def test_the_page_is_opened_where_there_is_a_display(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], display: str | None
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(group_page.webbrowser, "open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if display is not None:
        monkeypatch.setenv(display, ":0")
    group_page._show("http://127.0.0.1:9100/", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"url": "http://127.0.0.1:9100/"}
    assert opened == (["http://127.0.0.1:9100/"] if display else [])


@pytest.mark.slow
def test_the_page_shows_processes_that_share_the_slices(start: Start) -> None:
    group = start("--json", "--seed", "3")
    assert group.stdout is not None
    url = json.loads(group.stdout.readline())["url"]

    def shared() -> Any:
        with urllib.request.urlopen(f"{url}status", timeout=60) as answer:
            found = json.loads(answer.read())
        held = [len(member["slices"]) for member in found["group"]["members"]]
        return found if held == [8, 8, 8] and all(one["events"] for one in found["consumers"]) else None

    found = eventually(shared)
    assert {member["member"] for member in found["group"]["members"]} == {"lisbon", "stockholm", "porto"}
    assert [one["consumer"] for one in found["consumers"]] == ["billing", "audit"]
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert b"<title>rscylla" in answer.read()
    group.send_signal(signal.SIGINT)
    err = group.communicate(timeout=60)[1]
    assert not any("Traceback" in line or line.startswith("error:") for line in err.splitlines())
    assert group.returncode == 0


@pytest.mark.slow
def test_the_page_ends_after_the_given_time(start: Start) -> None:
    out, err = start("--seconds", "1").communicate(timeout=100)
    assert out.startswith("http://127.0.0.1:")
    assert not any("Traceback" in line or line.startswith("error:") for line in err.splitlines())
