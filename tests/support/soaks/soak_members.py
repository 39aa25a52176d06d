"""The processes of a group, for soak tests: started, stopped, killed, paused, and looked at in the group's table."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from soaking import Replicas, await_true

import rscylla
from cursorstore import ScyllaGroupTable, find_group
from rscylla._timeuuid import datetime_of
from rscylla.abc import GroupView
from rscylla.embedded import EmbeddedScyllaProcess

__all__ = ["Members", "explained"]


class Members:
    """The processes of the group, what the group's table says of them, and how long each change takes there.

    Args:
        history: gets a line for each change that a look at the table finds, and for each step of the test.
    """

    def __init__(self, scylla: EmbeddedScyllaProcess, replicas: Replicas, history: Path) -> None:
        self._table = ScyllaGroupTable(scylla.connect(), "shop", create=True)
        self._replicas = replicas
        self._history = history
        self._clock = rscylla.SystemClock()
        self._seen: GroupView | None = None
        self._shown = ""
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @property
    def running(self) -> list[subprocess.Popen[bytes]]:
        return self._replicas.running

    def view(self) -> GroupView | None:
        try:
            view = find_group(self._table, "soak")
        except rscylla.RscyllaError:
            return None  # that node is away just now
        if view is not None and (shown := as_text(view)) != self._shown:
            self._shown = shown
            self.note(shown)
        return view

    def note(self, what: str) -> None:
        with self._history.open("a") as out:
            out.write(f"{datetime_of(self._clock.now_us()):%H:%M:%S.%f} {what}\n")

    def join(self) -> None:
        """Measures from when the new member is in the table: before, Python starts."""
        self._replicas.count = len(self.running) + 1
        self._replicas.fill()
        name = str(self.running[-1].pid)
        self.note(f"{name} is started")
        self._await(lambda view: any(one.owner == name for one in view.members), "it does not join")
        with self._measured("join to balance"):
            self.await_balance()

    def stop(self, one: subprocess.Popen[bytes]) -> None:
        self._replicas.count = len(self.running) - 1
        self.note(f"{one.pid} gets SIGTERM")
        self.running.remove(one)
        try:
            with self._measured("clean stop to takeover"):
                one.terminate()
                self.await_takeover(one)
            assert self._replicas.code(one) == 0
        finally:
            one.kill()
        self.await_balance()

    def kill(self, one: subprocess.Popen[bytes]) -> None:
        self._replicas.count = len(self.running) - 1
        self.note(f"{one.pid} gets SIGKILL")
        with self._measured("kill to takeover"):
            self._replicas.kill(one)
            self.await_takeover(one)
        self.await_balance()

    def pause(self, one: subprocess.Popen[bytes]) -> None:
        """Past its membership, so that others take its slices before it wakes up."""
        self.note(f"{one.pid} gets SIGSTOP")
        with self._measured("pause to takeover"):
            one.send_signal(signal.SIGSTOP)
            self.await_takeover(one)
        self.note(f"{one.pid} gets SIGCONT")
        with self._measured("waking up to balance"):
            one.send_signal(signal.SIGCONT)
            self.await_balance()

    def await_takeover(self, one: subprocess.Popen[bytes]) -> None:
        """Wait until all slices have members that are there, and *one* is none of them."""

        def taken(view: GroupView) -> bool:
            holders = [view.holder(key_slice.index) for key_slice in view.slices]
            return all(holder is not None and holder.owner != str(one.pid) for holder in holders)

        self._await(taken, "not all slices are taken over")

    def await_balance(self) -> None:
        """Wait until the members are the processes that run, and their slices differ by at most one."""

        def balanced(view: GroupView) -> bool:
            has = Counter(member.owner for one in view.slices if (member := view.holder(one.index)) is not None)
            expected = {str(one.pid) for one in self.running}
            return (
                {member.owner for member in view.members} == set(has) == expected
                and has.total() == view.count
                and max(has.values()) - min(has.values()) <= 1
            )

        self._await(balanced, "the group does not come into balance")

    def _await(self, condition: Callable[[GroupView], bool], what: str) -> None:
        """Wait until *condition* holds. One that gives up meanwhile is replaced: the group would not have it again."""

        def holds() -> bool:
            self._replicas.fill()
            self._seen = self.view()
            return self._seen is not None and condition(self._seen)

        await_true(holds, what, lambda: f"processes {[(p.pid, p.poll()) for p in self.running]}, group {self._seen}")

    @contextmanager
    def _measured(self, what: str) -> Iterator[None]:
        began = self._clock.monotonic()
        yield
        self.seconds[what].append(self._clock.monotonic() - began)
        self.note(f"{what}: {self.seconds[what][-1]:.1f} s")


def as_text(view: GroupView) -> str:
    """Return what *view* shows but for how long members last: of each, its name and its slices, of lost ones, too."""
    names = {member.token: member.owner for member in view.members}
    held: dict[str, list[int]] = {name: [] for name in sorted(names.values())}
    for one in view.slices:
        held.setdefault(names.get(one.holder, f"nobody, before {one.owner or one.before}"), []).append(one.index)
    new = [member.owner for member in view.members if not member.renewals]
    leaving = [member.owner for member in view.members if member.drains]
    return f"{held}" + (f" new {new}" if new else "") + (f" leaving {leaving}" if leaving else "")


@contextmanager
def explained(where: Path) -> Iterator[None]:
    """Add what the members logged last, and what became of the group, to the error of the test."""
    try:
        yield
    except BaseException as error:
        for name in ("history", "errors"):
            lines = (where / name).read_text().splitlines() if (where / name).exists() else []
            error.add_note("\n".join([f"--- the last of {len(lines)} lines of {where / name}", *lines[-150:]]))
        raise
