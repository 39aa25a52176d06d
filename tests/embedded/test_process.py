"""`EmbeddedScyllaProcess`: refusals and a child that has ended raise the same errors as `EmbeddedScylla`."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from rscylla.embedded import ControlClient, EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess, Tls

Server = EmbeddedScylla | EmbeddedScyllaProcess


@pytest.mark.parametrize("make", [EmbeddedScylla, EmbeddedScyllaProcess])
def test_a_refusal_has_the_same_message_in_a_process(make: Callable[[], Server]) -> None:
    with make() as server:
        with pytest.raises(ValueError, match=r"^no fault is called 'nope'"):
            server.faults.fail(cast("Any", "nope"))
        with pytest.raises(EmbeddedScyllaError, match=r"^no node has the address 127\.0\.0\.9"):
            server.faults.stop_node("127.0.0.9")


def test_commands_to_a_process_that_has_ended_say_so() -> None:
    with EmbeddedScyllaProcess() as server:
        os.kill(server.pid, signal.SIGKILL)
        for _ in range(2):  # the first may still find the pipe open
            with pytest.raises(EmbeddedScyllaError, match="process has ended"):
                server.faults.clear()


def test_an_answer_after_the_time_out_is_not_taken_for_the_next_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedScyllaProcess() as server:
        os.kill(server.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(server, "_timeout_s", 0.0)
            with pytest.raises(EmbeddedScyllaError, match="did not answer"):
                server.expire_rows()
        os.kill(server.pid, signal.SIGCONT)
        assert server.add_node() == "127.0.0.2"
        assert server.expire_rows() == 0


def test_a_signal_that_does_not_wake_the_main_thread_ends_the_process() -> None:
    """As when it comes just before the main thread blocks; here another thread takes it, the one that answers."""
    code = (
        "import signal; from rscylla.embedded import child; "
        "child.answer = lambda _, line: ('stop' in line and signal.raise_signal(signal.SIGTERM)) or line; "
        "raise SystemExit(child.main())"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(pickle.dumps({}).hex() + "\n")
            child.stdin.flush()
            assert '"number": 0' in child.stdout.readline()
            for line in ("wait\n", "stop\n"):  # while the first one is answered, the main thread blocks
                child.stdin.write(line)
                child.stdin.flush()
                assert child.stdout.readline() == line
            assert child.wait(30) == 0
        finally:
            child.kill()


@pytest.mark.parametrize("make", [EmbeddedScylla, EmbeddedScyllaProcess])
def test_options_that_do_not_go_together_are_refused_alike(make: Callable[..., Server]) -> None:
    with pytest.raises(ValueError, match="no client could log in"):
        make(users={})
    with pytest.raises(ValueError, match=r"Scylla 4\.3 has no tablets"):
        make(tablets=True, version="4.3").start()


def test_a_process_has_the_options_that_it_is_given(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "port": 9999,
        "shards": 3,
        "vnodes": 5,
        "users": {"ann": "right"},
        "tls": Tls("cert.pem", "key.pem", "ca.pem"),
        "seed": 7,
        "ring_delay": timedelta(seconds=1),
        "tablets": True,
        "version": "4.4",
        "data_dir": tmp_path,
        "fsync": True,
        "skip_broken": True,
        "compact_bytes": 1000,
        "shard_aware": False,
        "shard_aware_port": 19042,
        "compression": True,
        "max_frame": 2000,
        "max_connections": 10,
        "control": tmp_path / "control",
    }
    arguments = EmbeddedScyllaProcess(2, **given).arguments()
    assert pickle.loads(pickle.dumps(arguments)) == given


def test_a_process_is_as_its_options_say(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedScyllaProcess(2, shards=3, seed=7, users={"ann": "right"}, data_dir=str(data)) as server:
        assert server.contact_points == ["127.0.0.1", "127.0.0.2"]
        nodes = server.connect().cluster.metadata.all_hosts()
        assert data.is_dir()
    with EmbeddedScylla(2, shards=3, seed=7) as other:
        rows = [row for table in ("local", "peers") for row in other.execute(f"SELECT host_id FROM system.{table}")]
    assert {node.host_id for node in nodes} == {row["host_id"] for row in rows}


def test_nodes_that_another_client_added_removed_or_stopped_are_noticed(tmp_path: Path) -> None:
    with EmbeddedScyllaProcess(2, control=tmp_path / "c") as server:
        other = ControlClient(tmp_path / "c")
        added = other.add_node()
        assert server.contact_points == ["127.0.0.1", "127.0.0.2", added]
        other.remove_node("127.0.0.1")
        assert server.contact_points == ["127.0.0.2", added]
        other.faults.stop_node("127.0.0.2")
        assert server.contact_points == ["127.0.0.2", added]
        contact_points = server.connect().cluster.contact_points
        assert contact_points == [added]
