"""``rscylla serve ctl``: every command against a running server, as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rscylla.embedded import ControlClient, EmbeddedScylla, ManualClock

from .conftest import Process, Ran, Run

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"

Ctl = Callable[..., Ran]


@pytest.fixture
def own_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A temporary directory of the test's own; short, as the path of a socket has to be."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ctl") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        monkeypatch.setenv("TMPDIR", directory)
        yield directory


@pytest.fixture
def scylla(own_directory: str) -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla(2, tablets=True, control=True, clock=ManualClock()) as server:
        server.execute(f"CREATE KEYSPACE ks WITH replication = {REPLICATION} AND tablets = {{'initial': 2}}")
        server.execute("CREATE TABLE ks.\"T\" (pk int PRIMARY KEY, gone bigint TTL) WITH cdc = {'enabled': true}")
        yield server


@pytest.fixture
def ctl(run: Run, scylla: EmbeddedScylla) -> Ctl:
    return lambda *arguments: run("serve", "ctl", *arguments, "--port", str(scylla.port))


@pytest.mark.parametrize(
    ("line", "answer", "text"),
    [
        ("add-node --delay 1", {"address": "127.0.0.3"}, "node 127.0.0.3 was added"),
        ("remove-node 127.0.0.2", {"address": "127.0.0.2"}, "node 127.0.0.2 was removed"),
        ("new-generation --delay 1.5", {"time": "2025-11-21T10:00:01.500Z"}, "starts at 2025-11-21T10:00:01.500Z"),
        (
            'split-tablets ks."T" --delay 2',
            {"keyspace": "ks", "table": "T", "time": "2025-11-21T10:00:02.000Z"},
            "ks.T has new streams from 2025-11-21T10:00:02.000Z",
        ),
        (
            'merge-tablets ks."T"',
            {"keyspace": "ks", "table": "T", "time": "2025-11-21T10:01:05.000Z"},
            "ks.T has new streams from 2025-11-21T10:01:05.000Z",
        ),
        ("expire-rows", {"rows": 0}, "0 rows were deleted"),
        ("advance 60", {"time": "2025-11-21T10:01:00.000Z"}, "the time is 2025-11-21T10:01:00.000Z"),
        ("stop-node 127.0.0.2", {"address": "127.0.0.2"}, "node 127.0.0.2 is stopped"),
        ("start-node 127.0.0.2", {"address": "127.0.0.2"}, "node 127.0.0.2 is up"),
        ("stall-node 127.0.0.2", {"address": "127.0.0.2"}, "node 127.0.0.2 is stalled"),
        ("slow-node 127.0.0.2 --by 1", {"address": "127.0.0.2", "delay_s": 1.0}, "node 127.0.0.2 is slow by 1 s"),
        ("resume-node 127.0.0.2", {"address": "127.0.0.2"}, "node 127.0.0.2 answers as usual"),
        ("skew-clock 127.0.0.2 --by -3", {"address": "127.0.0.2", "clock_skew_s": -3.0}, "is off by -3 s"),
        ("fail overloaded", {"rule": 0}, "rule 0 was added"),
        ("no-answer --applied", {"rule": 0}, "rule 0 was added"),
        ("delay --by 1", {"rule": 0}, "rule 0 was added"),
        ("drop-connection --partway", {"rule": 0}, "rule 0 was added"),
        ("cut-pages --rows 2 --empty", {"rule": 0}, "rule 0 was added"),
        ("replay-writes", {"rule": 0}, "rule 0 was added"),
        ("hold-writes", {"rule": 0}, "rule 0 was added"),
        ("deliver", {"delivered": 0}, "0 writes were applied"),
        ("clear", {}, "all faults have ended"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_command_is_carried_out_and_answered(
    ctl: Ctl, line: str, answer: dict[str, Any], text: str, as_json: bool
) -> None:
    ran = ctl(*line.split(), *(["--json"] if as_json else []))
    assert (ran.code, ran.err, len(ran.out)) == (0, [], 1)
    assert ran.objects == [answer] if as_json else ran.out[0].endswith(text)


def test_status_shows_what_was_changed(ctl: Ctl, scylla: EmbeddedScylla) -> None:
    ctl("skew-clock", "127.0.0.1", "--by", "2")
    ctl("slow-node", "127.0.0.2", "--by", "0.5")
    ctl("split-tablets", 'ks."T"', "--delay", "1")
    ctl(*("fail", "read_timeout", "--kind", "select", "--table", 'ks."T"', "--times", "3", "--matching", "pk"))
    ctl("hold-writes", "--keyspace", "ks")
    scylla.execute('INSERT INTO ks."T" (pk) VALUES (1)')
    (found,) = ctl("status", "--json").objects
    assert found == scylla.status()
    lines = ctl("status").out
    assert lines[0] == f"port {scylla.port}, shard-aware port {scylla.shard_aware_port}, time 2025-11-21T10:00:00.000Z"
    assert lines[1:3] == [
        "node 127.0.0.1: up, clock +2 s, 8 tokens, connections by shard [0, 0]",
        "node 127.0.0.2: slow by 0.5 s, 8 tokens, connections by shard [0, 0]",
    ]
    assert lines[3:] == [
        "generation 2025-11-21T10:00:00.000Z: 32 streams",
        "table ks.T: 4 tablets; streams: 2 from 2025-11-21T09:59:55.000Z, 4 from 2025-11-21T10:00:01.000Z",
        "rule 0: fail read_timeout kind=select keyspace=ks table=T matching=pk; 0 of 3 requests met",
        "rule 1: hold keyspace=ks; 1 of all requests met",
        "1 writes are held back",
    ]
    assert ctl("hits", "1").out == ["rule 1 has met 1 requests"]
    assert ctl("remove-rule", "1", "--json").objects == [{"rule": 1}]
    assert ctl("deliver", "--json").objects == [{"delivered": 1}]
    assert [rule["rule"] for rule in scylla.status()["faults"]] == [0]


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("remove-node 127.0.0.9", 1, "no node has the address 127.0.0.9; the nodes are 127.0.0.1, 127.0.0.2"),
        ("split-tablets ks.t", 1, "ks.t is no table with a CDC log in a keyspace with tablets"),
        ("upgrade", 1, "only a cluster of version 4.3 can be upgraded"),
        ("fail nope", 2, "no fault is called 'nope'; there are unavailable,"),
        ("fail overloaded --times 1 --always", 2, "--times and --always exclude each other"),
        ("fail overloaded --probability 2", 2, "probability must be above 0 and at most 1"),
        ("fail overloaded --matching [", 2, "--matching: '[' is no regular expression"),
        ("hold-writes --table ks.t --keyspace ks", 2, "--table names the keyspace, too"),
        ("cut-pages", 2, "cut-pages requires --rows N, --empty, or both"),
        ("slow-node 127.0.0.1 --by -1", 2, "a delay cannot be negative"),
        ("hits 5", 2, "no rule has the number 5"),
        ("split-tablets t", 2, "does not name a table"),
    ],
)
def test_a_refusal_is_one_line(ctl: Ctl, line: str, code: int, text: str) -> None:
    ran = ctl(*line.split(), "--json")
    assert (ran.code, ran.out) == (code, [])
    assert text in ran.error
    assert text in json.loads(ran.err[-1])["message"]


@pytest.mark.parametrize("line", ["add-node --delay nan", "advance inf", "skew-clock 127.0.0.1 --by x", "hits -1"])
def test_a_number_that_is_none_is_refused(ctl: Ctl, line: str) -> None:
    assert ctl(*line.split()).code == 2


def test_no_server(run: Run, own_directory: str) -> None:
    ran = run("serve", "ctl", "status", "--port", "9999")
    assert (ran.code, ran.out) == (3, [])
    assert ran.error.endswith("9999.sock'")
    ran = run("serve", "ctl", "status", "--control", f"{own_directory}/nothing")
    assert (ran.code, ran.error) == (3, f"error: no server listens on the control socket '{own_directory}/nothing'")


def test_options_in_front_of_ctl_are_refused(run: Run) -> None:
    ran = run("serve", "--port", "9999", "ctl", "status")
    assert ran.code == 2
    assert "--port has no effect on `ctl`" in ran.error


def test_a_server_of_the_command_line_is_controlled(
    start: Callable[..., Process], run: Run, own_directory: str
) -> None:
    server = start("serve", "--port", "0", "--json", "--clock", "manual", "--scylla-version", "4.3")
    ready = json.loads(server.line())
    ctl = ("serve", "ctl", "--json", "--port", str(ready["port"]))
    assert Path(ready["control"]).parent.parent == Path(own_directory)
    (before,) = run("serve", "ctl", "status", *ctl[2:]).objects
    assert (before["clock"], before["version"]) == ("manual", "4.3")
    assert run("serve", "ctl", "upgrade", "--rewriting", "held", *ctl[2:]).objects == [
        {"version": "4.4", "rewriting": "held"}
    ]
    assert run("serve", "ctl", "finish-rewriting", *ctl[2:]).objects == [{}]
    assert run("serve", "ctl", "advance", "3600", *ctl[2:]).objects[0]["time"] > before["time"]
    assert server.end(signal.SIGTERM) == 0
    assert not Path(ready["control"]).exists()


def test_the_path_of_the_socket_can_be_chosen(start: Callable[..., Process], run: Run, own_directory: str) -> None:
    path = f"{own_directory}/mine"
    server = start("serve", "--port", "0", "--control", path)
    assert f"; control socket {path}; data is in memory only; " in server.line()
    assert run("serve", "ctl", "add-node", "--control", path, "--json").objects == [{"address": "127.0.0.2"}]
    taken = run("serve", "--port", "0", "--control", path)
    assert (taken.code, "another server uses the control socket" in taken.error) == (1, True)
    server.kill()
    server = start("serve", "--port", "0", "--control", path)
    server.line()
    assert len(ControlClient(path).status()["nodes"]) == 1
    assert server.end(signal.SIGTERM) == 0
    assert not Path(path).exists()


def test_a_server_runs_without_a_control_socket_that_nobody_asked_for(
    start: Callable[..., Process], run: Run, own_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(own_directory) / ("long" * 30)
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    server = start("serve", "--port", "0", "--json")
    ready = json.loads(server.line())
    assert ready["control"] is None
    assert server.end(signal.SIGTERM) == 0
    (warning,) = server.err
    assert warning.startswith("warning: `rscylla serve ctl` cannot control this server: cannot open the control socket")
    asked = run("serve", "--port", "0", "--control", str(directory / "mine"))
    assert (asked.code, "the path is too long for a Unix socket" in asked.error) == (1, True)
