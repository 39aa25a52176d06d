"""Threads that take turns: one runs at a time, dice say which is next, and time passes when all of them wait.

``primitives`` stands where a module has imported what its threads start, lock and wait with. A thread gives its turn
away where it locks, waits, or calls ``pause``, and nowhere else, so the same dice give the same order of everything.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty
from types import SimpleNamespace
from typing import Any

from rscylla.clock import Stop
from rscylla.testing import ManualClock

__all__ = ["Host", "Killed", "Turns"]

MOST_TURNS = 300_000
"""More than any test takes: threads that take so many turns go round in circles."""

PATIENCE_S = 600.0
"""Real time after which a thread hangs that does not wait as the others do."""


class Killed(BaseException):
    """The process has been killed: raised where a thread would have its next turn, and wherever it waits then."""


class Host:
    """A process: its threads are those that they start. It may be killed, or stand still for a while."""

    def __init__(self) -> None:
        self.is_killed = False
        self.frozen_until = 0.0


class Turns:
    """Some threads, beside the one that creates it: of one process, or of several, each with a ``Host``.

    Args:
        clock: a clock that somebody must move; it is moved on when all threads wait for a time.
    """

    def __init__(self, clock: ManualClock, dice: random.Random) -> None:
        self._clock = clock
        self._dice = dice
        self._main = self._current = _Thread(self)
        self._threads = [self._main]
        self._taken = 0
        self._failure: BaseException | None = None
        self.is_killed = False

    # ------------------------------------------------------------ of the threads

    def start(self, run: Callable[[], None], name: str, host: Host | None = None) -> Any:
        """Start a thread, which has its first turn later. What it raises is raised by ``finish``."""
        thread = _Thread(self, run, name=name, host=host)
        thread.start()
        return thread

    def pause(self) -> None:
        """Let others have a turn."""
        self.wait(lambda: True)

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, seconds)

    def wait(self, is_ready: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Give the turn away until *is_ready*, at most for *seconds* of the clock; return whether it is."""
        me = self._current
        assert me.is_here(), f"{threading.current_thread().name} is none of the threads that take turns"
        me.is_ready, me.due = is_ready, self._clock.monotonic() + seconds
        self._next().take_over_from(me)
        self.check()
        if self._failure is not None and not self.is_killed:
            raise self._failure
        return is_ready()

    def check(self) -> None:
        """Raise ``Killed`` in the threads of a process that was killed."""
        if self._current is not self._main and (self.is_killed or self._current.host.is_killed):
            raise Killed

    def kill(self) -> None:
        """End all threads but the first: none gets beyond the line where it waits."""
        self.is_killed = True
        self.check()

    def finish(self, threads: list[Any]) -> None:
        """Let *threads* run to their ends; all of them, if the process was killed.

        Raises: what one of them raised.
        """
        self.wait(lambda: self._threads == [self._main] if self.is_killed else all(t.has_ended for t in threads))
        for thread in threads:
            if thread.error is not None:
                raise thread.error

    def add(self, thread: _Thread) -> None:
        self._threads.append(thread)

    def leave(self, thread: _Thread) -> None:
        """*thread*, whose turn it is, has ended."""
        thread.has_ended = True
        self._threads.remove(thread)
        self._next().take_over_from(None)

    def _next(self) -> _Thread:
        try:
            self._current = self._chosen()
        except BaseException as e:  # noqa: BLE001 - raised in the first thread, whoever is the one to notice
            self._failure = e
            self._current = self._main
        return self._current

    def _chosen(self) -> _Thread:
        if self.is_killed:
            return self._threads[-1]  # the first one is the last to go on
        self._taken += 1
        assert self._taken < MOST_TURNS, f"they go round in circles: {self._threads}"
        while True:
            now = self._clock.monotonic()
            able = [thread for thread in self._threads if thread.is_able(now)]
            if able:
                return self._dice.choices(able, [thread.weight for thread in able])[0]
            due = min(thread.able_at(now) for thread in self._threads)
            assert due < math.inf, f"they wait for ever: {self._threads}"
            self._clock.advance(max(0.001, due - now))

    @property
    def current(self) -> _Thread:
        return self._current

    def weight(self) -> float:
        return self._dice.random() ** 2 + 0.01

    def chance(self, probability: float) -> bool:
        return self._dice.random() < probability

    # ------------------------------------------------------------ what stands for primitives

    def primitives(self) -> dict[str, Any]:
        """Return what stands for the names of a module: ``threading``, ``SimpleQueue`` and ``Stop``."""

        def thread(*, target: Callable[[], None], name: str, daemon: bool) -> _Thread:
            assert daemon
            return _Thread(self, target, name=name)

        module = SimpleNamespace(
            Thread=thread,
            Lock=lambda: _Lock(self, most=1),
            RLock=lambda: _Lock(self),
            Event=lambda: _Event(self),
            current_thread=lambda: self._current,
        )
        return {"threading": module, "SimpleQueue": lambda: _Queue(self), "Stop": lambda: _Stop(self)}


class _Thread:
    """A thread, or the one that was there first. ``weight``: how often it is chosen, beside the others."""

    def __init__(
        self, turns: Turns, run: Callable[[], None] | None = None, *, name: str = "main", host: Host | None = None
    ) -> None:
        self._turns = turns
        self.host = host or (Host() if run is None else turns.current.host)
        self._run = run
        self._turn = threading.Lock()
        self._turn.acquire()
        self._thread = (
            threading.Thread(target=self._live, name=name, daemon=True) if run else threading.current_thread()
        )
        self.name = name
        self.weight = turns.weight()
        self.is_ready: Callable[[], bool] = lambda: True
        self.due = math.inf
        self.has_ended = False
        self.error: BaseException | None = None

    def start(self) -> None:
        self._turns.add(self)
        self._thread.start()

    def is_able(self, now: float) -> bool:
        """Return whether it could have a turn now."""
        host = self.host
        return host.is_killed or (host.frozen_until <= now and (self.due <= now or self.is_ready()))

    def able_at(self, now: float) -> float:
        """Return when it can have a turn at the latest, unless it is able now."""
        frozen_until = self.host.frozen_until
        return frozen_until if frozen_until > now else self.due

    def join(self, timeout: float = math.inf) -> None:
        self._turns.wait(lambda: self.has_ended, timeout)

    def is_alive(self) -> bool:
        return not self.has_ended

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def take_over_from(self, former: _Thread | None) -> None:
        if former is self:
            return
        self._turn.release()
        if former is not None:
            former.await_turn()

    def await_turn(self) -> None:
        assert self._turn.acquire(timeout=PATIENCE_S), f"{self._turns.current} does not give its turn away"

    def _live(self) -> None:
        assert self._run is not None
        self.await_turn()
        try:
            self._turns.check()
            self._run()
        except Killed:
            pass
        except BaseException as e:  # noqa: BLE001 - raised by ``finish``
            self.error = e
        finally:
            self._run = None
            self._turns.leave(self)

    def __repr__(self) -> str:
        return f"{self.name} due at {self.due:.3f}"


class _Lock:
    """A lock that its owner may take *most* times."""

    def __init__(self, turns: Turns, most: float = math.inf) -> None:
        self._turns = turns
        self._most = most
        self._owner: _Thread | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._turns.current
        if self._owner is not me:
            if self._turns.chance(0.2):
                self._turns.pause()
            is_free = self._owner is None or (
                blocking and self._turns.wait(lambda: self._owner is None, math.inf if timeout < 0 else timeout)
            )
            if not is_free:
                return False
        assert self._depth < self._most, f"{me} waits for itself"
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        assert self._owner is self._turns.current
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Queue:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        self._turns.wait(lambda: bool(self._items))
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class _Event:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._turns.wait(lambda: self._is_set, math.inf if timeout is None else timeout)


class _Stop(Stop):
    """A stop signal whose ``wait`` gives the turn away."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def wait(self, seconds: float | None = None) -> bool:
        return self._turns.wait(self.is_set, math.inf if seconds is None else seconds)
