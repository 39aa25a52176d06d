"""`EmbeddedScyllaProcess`: what is refused, and a child that has ended, are told as `EmbeddedScylla` would."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from rscylla.embedded import EmbeddedScylla, EmbeddedScyllaError, EmbeddedScyllaProcess

Server = EmbeddedScylla | EmbeddedScyllaProcess


@pytest.mark.parametrize("make", [EmbeddedScylla, EmbeddedScyllaProcess])
def test_what_is_refused_is_told_alike(make: Callable[[], Server]) -> None:
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
        with monkeypatch.context() as patch:
            patch.setattr(server, "_timeout_s", 0.0)
            with pytest.raises(EmbeddedScyllaError, match="did not answer"):
                server.expire_rows()
        assert server.add_node() == "127.0.0.2"
        assert server.expire_rows() == 0
